"""Operators see which top-ups need a decision, and decide them."""

import re
import time
from decimal import Decimal
from typing import Final

import httpx

from tests.support.console.operators import ACTOR, changes_of, hidden, walk
from tests.support.identity.customers import link, words
from tests.support.identity.people import alert, at_once, goes_to
from tests.support.processes.service import Caller, Service
from tumira.console.pages.top_ups import PARTS
from tumira.core.ids import TOP_UP, TopUpId, new_id, write_id
from tumira.identity import manage_accounts
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.settle import settle
from tumira.topups.states import (
    Currency,
    Expired,
    FailureReason,
    Method,
    NotPaid,
    Paid,
    PaymentInDoubt,
    ProviderAnswer,
    Reversed,
    StillPending,
)
from tumira.topups.store import NewTopUp

TOP_UPS: Final = "/operator/top-ups"
PIN: Final = b"sealed 8412 9035 5501"
FIVE: Final = Decimal(5)
NOTE: Final = "On the statement of Monday"

_references: Final = iter(range(10_000))


async def _start(database: Database, new: NewTopUp) -> None:
    async with database.transaction() as connection:
        await top_ups.insert(connection, new)


def start(service: Service, caller: Caller, *answer: ProviderAnswer, by_voucher: bool = False) -> TopUpId:
    top_up_id = TopUpId(new_id(time.time_ns() // 1_000_000))
    new = NewTopUp(
        id=top_up_id,
        account_id=caller.id,
        method=Method.VOUCHER if by_voucher else Method.PAYNOW,
        provider="ott" if by_voucher else "ecocash",
        currency=Currency.ZAR if by_voucher else Currency.USD,
        asked=None if by_voucher else FIVE,
        rate=Decimal("18.5") if by_voucher else Decimal(1),
        phone="+263771200001",
        sealed_pin=PIN if by_voucher else None,
    )
    service.run(_start, new)
    for one in answer:
        service.run(settle, top_up_id, one)
    return top_up_id


def paid(amount: Decimal = FIVE) -> Paid:
    return Paid(f"ref-{next(_references)}", amount)


def path(top_up_id: TopUpId, form: str = "") -> str:
    return f"{TOP_UPS}/{write_id(TOP_UP, top_up_id)}{form}"


def part(page: str, key: str) -> str:
    found = re.search(rf'<section class="card" aria-labelledby="{key}">(.*?)</section>', page, re.DOTALL)
    assert found is not None, key
    return found[1]


def test_what_needs_a_look_comes_first_with_what_is_unclear(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    doubt = start(
        service, caller, StillPending("PN-7"), PaymentInDoubt("no answer within 45 seconds", is_last=True)
    )
    asked_again = start(service, caller, PaymentInDoubt("line fell"))
    reversed_ = start(service, caller, paid(), Reversed("charged back"))
    late = start(service, caller, Expired(), paid())
    failed_late = start(service, caller, NotPaid(FailureReason.DECLINED, "no money"), paid())
    refused = start(service, caller, NotPaid(FailureReason.DECLINED, "not enough money"))
    credited = start(service, caller, paid())
    page = admin.get(TOP_UPS).text
    assert page.count("<h1") == 1
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == list(PARTS.values())
    in_doubt = part(page, "doubt")
    assert "PN-7" in in_doubt
    assert "no answer within 45 seconds" in in_doubt
    assert "Needs your decision." in words(in_doubt)
    assert "The provider is asked again automatically." in words(in_doubt)
    taken = part(page, "reversed")
    assert "US$0.00 of US$5.00" in words(taken)
    assert "suspended" in words(taken)
    places = {key: set(re.findall(r"top_[0-9a-z]{26}", part(page, key))) for key in PARTS}
    expected = {
        "doubt": {doubt, asked_again},
        "reversed": {reversed_},
        "late": {late, failed_late},
        "all": {doubt, asked_again, reversed_, late, failed_late, refused, credited},
    }
    for key, ids in expected.items():
        assert {write_id(TOP_UP, one) for one in ids} <= places[key], key
    assert write_id(TOP_UP, refused) not in places["late"] | places["doubt"]


def test_a_long_list_is_turned_page_by_page(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    service.sql(
        "INSERT INTO top_ups (id, account_id, method, provider, currency, asked, state, problem)"
        " SELECT uuidv7(), $1, 'paynow', 'onemoney', 'USD', 5, 'doubt', 'paged' FROM generate_series(1, 70)",
        caller.id,
    )
    older = link(admin.get(TOP_UPS).text, "Older: In doubt")
    assert older is not None
    seen = set(walk(admin, older, "Older: In doubt", r"(top_[0-9a-z]{26})\">Paynow, OneMoney"))
    # The first ten stood on the overview.
    assert len(seen) == 60
    service.sql("DELETE FROM top_ups WHERE problem = 'paged'")


def test_a_top_up_is_found_by_its_id(service: Service, admin: httpx.Client) -> None:
    top_up_id = start(service, service.open_account())
    assert goes_to(admin.get(TOP_UPS, params={"id": f" {write_id(TOP_UP, top_up_id)} "})) == path(top_up_id)
    for text in ("top_" + "0" * 26, "<b>", "acc_1"):
        page = admin.get(TOP_UPS, params={"id": text})
        assert page.status_code == 200
        assert f"There is no top-up {text}" in words(page.text)
        assert admin.get(f"{TOP_UPS}/{text}").status_code == 404
    assert admin.get(TOP_UPS, params={"show": "x", "before": "y"}).status_code == 200


def test_one_top_up_tells_its_whole_story_but_never_the_pin(service: Service, viewer: httpx.Client) -> None:
    caller = service.open_account()
    service.run(manage_accounts.credit, caller.id, Decimal(-98), note="spent", actor="test")
    top_up_id = start(service, caller, by_voucher=True)
    assert PIN.decode() not in viewer.get(path(top_up_id)).text
    reference = f"ref-{next(_references)}"
    service.run(settle, top_up_id, Paid(reference, Decimal(185), sealed_change=b"change 7755"))
    service.run(manage_accounts.credit, caller.id, Decimal(-8), note="spent", actor="test")
    service.run(settle, top_up_id, Reversed("charged back"))
    page = viewer.get(path(top_up_id))
    assert page.status_code == 200
    assert page.text.count("<h1") == 1
    said = words(page.text)
    for one in (
        "Voucher, ",
        reference,
        "185.00 ZAR",
        "18.50 ZAR = US$1",
        "Credited US$10.00",
        "Still owed US$6.00",
        "charged back",
        "Credited: US$10.00",
        "Taken back: US$4.00",
        "Finished: reversed",
        "a new voucher, which only the customer can see",
        "suspended",
    ):
        assert one in said, (one, said)
    for secret in (PIN.decode(), "7755", PIN.hex(), "sealed"):
        assert secret not in page.text
    assert "<form" not in page.text[page.text.index("<main") :]


def test_a_doubt_is_credited_once_after_it_was_confirmed(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account(balance="1")
    top_up_id = start(service, caller, PaymentInDoubt("no answer", is_last=True))
    form = {"outcome": "paid", "paid": "5", "reference": "PN-99", "note": NOTE}
    asked = admin.post(path(top_up_id, "/resolve"), data=form)
    assert "Balance after US$6.00" in words(asked.text)
    assert service.balance(caller) == Decimal(1)
    fields = hidden(asked)
    answers = at_once([lambda: admin.post(path(top_up_id, "/resolve/confirm"), data=fields)] * 3)
    assert sorted(one.status_code for one in answers) == [303, 409, 409]
    assert service.balance(caller) == Decimal(6)
    detail = f"{write_id(TOP_UP, top_up_id)}: 5.0000 USD credited; {NOTE}"
    assert changes_of(service, caller.id) == [(ACTOR, "top-up decided", detail)]
    said = words(admin.get(path(top_up_id)).text)
    assert f"Decided by {ACTOR} Note {NOTE}" in said
    assert "Continue" not in said
    # One in rand is credited in dollars.
    in_rand = start(service, caller, PaymentInDoubt("no answer", is_last=True), by_voucher=True)
    asked = admin.post(path(in_rand, "/resolve"), data=form | {"paid": "185", "reference": ""})
    assert "Paid 185.00 ZAR Credit US$10.00" in words(asked.text)
    assert goes_to(admin.post(path(in_rand, "/resolve/confirm"), data=hidden(asked)))
    assert service.balance(caller) == Decimal(16)


def test_a_doubt_is_decided_as_not_paid_and_credited_after_all(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account(balance="1")
    top_up_id = start(service, caller, PaymentInDoubt("no answer", is_last=True))
    form = {"outcome": "not-paid", "paid": "", "reference": "", "note": "Not on any statement"}
    fields = hidden(admin.post(path(top_up_id, "/resolve"), data=form))
    decided = admin.post(path(top_up_id, "/resolve/confirm"), data=fields)
    assert goes_to(decided) == path(top_up_id, "?done=not-paid")
    assert service.balance(caller) == Decimal(1)
    # It was there, one statement later.
    page = admin.get(path(top_up_id)).text
    assert "Credit it now" in page
    form = {"outcome": "paid", "paid": "5", "reference": "PN-100", "note": NOTE}
    assert goes_to(admin.post(path(top_up_id, "/resolve/confirm"), data=form)) == path(
        top_up_id, "?done=paid"
    )
    assert service.balance(caller) == Decimal(6)
    assert [what for _, what, _ in changes_of(service, caller.id)] == ["top-up decided"] * 2


def test_a_decision_needs_an_amount_and_a_reason(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    top_up_id = start(service, caller, PaymentInDoubt("no answer", is_last=True), by_voucher=True)
    faults = {"paid": ["", "0", "0.0001", "1e3"], "note": [" "], "reference": ["x" * 101]}
    for name, value in ((name, value) for name, values in faults.items() for value in values):
        form = {"outcome": "paid", "paid": "5", "reference": "", "note": NOTE} | {name: value}
        for step in ("/resolve", "/resolve/confirm"):
            refused = admin.post(path(top_up_id, step), data=form)
            assert refused.status_code == 422, (name, value)
            assert f'id="{name}-fault"' in refused.text
    assert service.balance(caller) == Decimal(100)
    # What ended well is not the operator's to change.
    credited = start(service, caller, paid())
    refused = admin.post(path(credited, "/resolve/confirm"), data={"outcome": "not-paid", "note": NOTE})
    assert (refused.status_code, "credited" in alert(refused)) == (409, True)
    assert service.balance(caller) == Decimal(105)


def test_the_provider_is_asked_again(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    top_up_id = start(service, caller, PaymentInDoubt("no answer", is_last=True))
    due = "SELECT due_at <= now() FROM top_ups WHERE id = $1"
    assert service.sql(due, top_up_id)[0][0] is None
    assert goes_to(admin.post(path(top_up_id, "/ask"), data={"a": ""})) == path(top_up_id, "?done=asked")
    assert service.sql(due, top_up_id)[0][0] is True
    name = write_id(TOP_UP, top_up_id)
    assert changes_of(service, caller.id) == [(ACTOR, "top-up asked about again", name)]
    over = start(service, caller, paid(), Reversed("charged back"))
    refused = admin.post(path(over, "/ask"), data={"a": ""})
    assert refused.status_code == 409
    assert "cannot be checked with its provider" in alert(refused)
    assert "Ask again" not in admin.get(path(over)).text


def test_an_account_sends_again_after_a_reversal(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    top_up_id = start(service, caller, paid(), Reversed("charged back"))
    assert service.send(caller).status_code == 403
    assert admin.post(path(top_up_id, "/lift"), data={"lift_note": ""}).status_code == 422
    lifted = admin.post(path(top_up_id, "/lift"), data={"lift_note": "They paid in cash"})
    assert goes_to(lifted) == path(top_up_id, "?done=lifted")
    assert service.send(caller).status_code == 202
    assert changes_of(service, caller.id) == [(ACTOR, "account may send again", "They paid in cash")]
    assert "Lift suspension" not in admin.get(path(top_up_id)).text
