"""A batch is sent again to its failed recipients: once, at a price that was shown, and to nobody else."""

import re
from collections.abc import Sequence
from typing import Final

import httpx
import pytest

from tests.support.identity.customers import Customer, link, open_session, words
from tests.support.identity.people import at_once, goes_to
from tests.support.maintenance import run_named
from tests.support.processes.service import Service
from tumira.audit_log import OPERATOR
from tumira.content.review import add_template
from tumira.content.templates import TemplateVerdict
from tumira.core.ids import BATCH, read_id

BATCHES: Final = "/dashboard/batches"
BODY: Final = "Your parcel is at the desk."
NUMBERS: Final = [f"+26377120{place:04d}" for place in range(6)]

_TERMS: Final = re.compile(r'name="terms" value="([^"]*)"')


@pytest.fixture
def customer(service: Service) -> Customer:
    caller = service.open_account()
    return Customer(service, caller, open_session(service, caller))


def send_and_end(customer: Customer, **statuses: Sequence[str]) -> str:
    """Send a batch, and end its messages: the others were delivered."""
    batch_id = customer.send(*NUMBERS, body=BODY, reference="order-7")
    customer.service.sql(
        "UPDATE batches SET status = 'completed', pending = 0, completed_at = now() WHERE id = $1",
        read_id(BATCH, batch_id),
    )
    for status, numbers in {"delivered": NUMBERS, **statuses}.items():
        customer.service.sql(
            "UPDATE messages SET status = $2 WHERE batch_id = $1 AND recipient = ANY($3)",
            read_id(BATCH, batch_id),
            status,
            numbers,
        )
    return f"{BATCHES}/{batch_id}"


def confirm(customer: Customer, path: str) -> httpx.Response:
    terms = _TERMS.search(customer.page(f"{path}/resend"))
    assert terms is not None
    return customer.post(f"{path}/resend", terms=terms[1])


def recipients(customer: Customer, path: str) -> Sequence[str]:
    return [row["number"] for row in customer.table(f"{path}/messages.csv")]


def test_the_failed_ones_get_it_again_once_after_the_price(customer: Customer) -> None:
    path = send_and_end(customer, failed=NUMBERS[:1], undelivered=NUMBERS[1:2], expired=NUMBERS[2:3])
    before = customer.service.balance(customer.caller)
    assert link(customer.page(path), "Resend to 3 failed") == f"{path}/resend"
    asked = customer.page(f"{path}/resend")
    assert "Resend to 3 failed recipients?" in words(asked)
    assert BODY in words(asked)
    assert "Total US$0.12" in words(asked)
    assert customer.service.balance(customer.caller) == before
    terms = _TERMS.search(asked)
    assert terms is not None
    sent = goes_to(customer.post(f"{path}/resend", terms=terms[1]))
    assert sent is not None
    assert sent != path
    assert recipients(customer, sent) == NUMBERS[:3]
    assert "Reference order-7" in words(customer.page(sent))
    paid = before - customer.service.balance(customer.caller)
    assert f"{paid:.2f}" == "0.12"

    # Another press, from this page or another, leads to the same batch and costs nothing.
    for again in (customer.post(f"{path}/resend", terms=terms[1]), customer.ask(f"{path}/resend")):
        assert goes_to(again) == path
    page = customer.page(path)
    assert link(page, "see the new batch") == sent
    assert "Resend to" not in page
    assert before - customer.service.balance(customer.caller) == paid


def test_two_presses_at_once_make_one_batch(customer: Customer) -> None:
    path = send_and_end(customer, failed=NUMBERS[:2])
    terms = _TERMS.search(customer.page(f"{path}/resend"))
    assert terms is not None
    press = [lambda: customer.post(f"{path}/resend", terms=terms[1])] * 4
    assert len({goes_to(answer) for answer in at_once(press)} - {path}) == 1
    assert len(customer.table(BATCHES + ".csv")) == 2


@pytest.mark.parametrize("remembers", [True, False])
def test_it_is_sent_once_also_after_its_idempotency_key_has_expired(
    customer: Customer, *, remembers: bool
) -> None:
    """The twin that does not remember sends and charges it again."""
    path = send_and_end(customer, failed=NUMBERS[:2])
    asked = customer.page(f"{path}/resend")
    terms = _TERMS.search(asked)
    assert terms is not None
    sent = goes_to(customer.post(f"{path}/resend", terms=terms[1]))
    balance = customer.service.balance(customer.caller)
    customer.service.sql("UPDATE idempotency_keys SET created_at = created_at - interval '73 hours'")
    customer.service.run(run_named, "forget idempotency keys")
    if not remembers:
        customer.service.sql("DELETE FROM resent_batches")
    customer.service.run(run_named, "forget resent batches")

    again = goes_to(customer.post(f"{path}/resend", terms=terms[1]))

    if remembers:
        assert again == path
        assert goes_to(customer.ask(f"{path}/resend")) == path
        assert link(customer.page(path), "see the new batch") == sent
    assert (again == path) == (customer.service.balance(customer.caller) == balance) == remembers


def test_it_is_remembered_for_longer_than_it_is_offered(customer: Customer) -> None:
    path = send_and_end(customer, failed=NUMBERS[:2])
    confirm(customer, path)
    other = send_and_end(customer, failed=NUMBERS[:2])
    customer.service.sql("UPDATE resent_batches SET sent_at = sent_at - interval '8 days'")
    customer.service.sql("UPDATE batches SET completed_at = completed_at - interval '8 days'")
    customer.service.run(run_named, "forget resent batches")
    # Where no worker has erased the text, it is not offered either.
    assert "Resend to" not in customer.page(other)
    assert goes_to(customer.post(f"{other}/resend", terms="")) == other
    assert link(customer.page(path), "see the new batch") is not None
    customer.service.sql("UPDATE resent_batches SET sent_at = sent_at - interval '8 days'")
    customer.service.run(run_named, "forget resent batches")
    assert customer.service.sql("SELECT FROM resent_batches") == []


def test_it_is_offered_only_where_something_failed_and_is_still_stored(customer: Customer) -> None:
    delivered = send_and_end(customer)
    erased = send_and_end(customer, failed=NUMBERS[:2])
    customer.service.sql(
        "UPDATE batches SET body = NULL WHERE id = $1", read_id(BATCH, erased.rpartition("/")[2])
    )
    masked = send_and_end(customer, failed=NUMBERS[:1])
    customer.service.sql(
        "UPDATE messages SET recipient = '+263••••••000' WHERE batch_id = $1 AND status = 'failed'",
        read_id(BATCH, masked.rpartition("/")[2]),
    )
    own_texts = send_and_end(customer, failed=NUMBERS[:1])
    customer.service.sql(
        "UPDATE messages SET body = 'Dear Anna' WHERE batch_id = $1",
        read_id(BATCH, own_texts.rpartition("/")[2]),
    )
    running = f"{BATCHES}/{customer.send(*NUMBERS, body=BODY)}"
    for path in (delivered, erased, masked, own_texts, running):
        assert "Resend to" not in customer.page(path)
        assert goes_to(customer.ask(f"{path}/resend")) == path
        assert goes_to(customer.post(f"{path}/resend", terms="")) == path
    partly = send_and_end(customer, failed=NUMBERS[:2])
    customer.service.sql(
        "UPDATE messages SET recipient = '+263•erased' WHERE batch_id = $1 AND recipient = $2",
        read_id(BATCH, partly.rpartition("/")[2]),
        NUMBERS[0],
    )
    sent = goes_to(confirm(customer, partly))
    assert sent is not None
    assert recipients(customer, sent) == NUMBERS[1:2]


def test_what_cannot_be_sent_now_says_why_and_sends_nothing(customer: Customer) -> None:
    path = send_and_end(customer, failed=NUMBERS[:2])
    terms = _TERMS.search(customer.page(f"{path}/resend"))
    assert terms is not None
    changed = customer.post(f"{path}/resend", terms="0.0400; 1 to ZW at 0.0400; 0 rejected")
    assert changed.status_code == httpx.codes.CONFLICT
    assert "The price has changed" in words(changed.text)
    customer.service.sql("UPDATE accounts SET balance = 0.05 WHERE id = $1", customer.caller.id)
    for answer in (customer.ask(f"{path}/resend"), customer.post(f"{path}/resend", terms=terms[1])):
        assert answer.status_code == httpx.codes.PAYMENT_REQUIRED
        assert 'href="/dashboard/top-up?amount=5' in answer.text
        assert "<button" not in answer.text[answer.text.index('class="send"') :]
    customer.service.sql("UPDATE accounts SET balance = 100 WHERE id = $1", customer.caller.id)
    customer.service.run(
        add_template, BODY, customer.caller.id, TemplateVerdict.BLOCK, note="", actor=OPERATOR
    )
    refused = customer.post(f"{path}/resend", terms=terms[1])
    assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert len(customer.table(BATCHES + ".csv")) == 1


def test_a_foreign_batch_looks_unknown(customer: Customer, service: Service) -> None:
    caller = service.open_account()
    stranger = Customer(service, caller, open_session(service, caller))
    path = send_and_end(stranger, failed=NUMBERS[:1])
    assert customer.ask(f"{path}/resend").status_code == httpx.codes.NOT_FOUND
    assert customer.post(f"{path}/resend", terms="").status_code == httpx.codes.NOT_FOUND
