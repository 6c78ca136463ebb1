"""Paynow is asked for money once, and only its signed answers count."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from tests.support.processes.ports import free_port
from tests.support.processes.service import NO_TLS
from tests.support.topups.paynow_server import (
    INTEGRATION_ID,
    Call,
    Fault,
    Outcome,
    PaynowServer,
)
from tests.support.topups.top_ups import FIVE, new_top_up
from tumira.core.ids import TOP_UP, write_id
from tumira.core.settings.payments import Paynow
from tumira.topups.providers.paynow import EXPIRY_GRACE, LOST_AFTER, PROBLEM_MAX, PaynowProvider
from tumira.topups.providers.paynow_messages import Wallet
from tumira.topups.states import (
    Expired,
    FailureReason,
    NotPaid,
    Paid,
    PaymentInDoubt,
    ProviderAnswer,
    Reversed,
    StillPending,
    TopUp,
    Unreachable,
)

PUBLIC_URL: Final = "https://tumira.example"
LOCAL: Final = "0771200001"
EMAIL: Final = "owner@example.co.zw"


NOW: Final = datetime.now(UTC)


def new_payment(
    wallet: Wallet = Wallet.ECOCASH, age: timedelta = timedelta(seconds=5), email: str | None = EMAIL
) -> TopUp:
    return new_top_up(
        provider=wallet,
        phone="+263771200001" if wallet.needs_phone else None,
        kept={} if email is None else {"email": email},
        asked_at=NOW - age,
    )


def name_of(top_up: TopUp) -> str:
    return write_id(TOP_UP, top_up.id)


def after(top_up: TopUp, answer: ProviderAnswer) -> TopUp:
    """Return a top-up with what its start gave us, as the worker passes it next."""
    assert isinstance(answer, StillPending), answer
    return replace(top_up, kept={**top_up.kept, **answer.kept})


@pytest_asyncio.fixture
async def provider(paynow: PaynowServer) -> AsyncIterator[PaynowProvider]:
    made = PaynowProvider(paynow.access, PUBLIC_URL)
    yield made
    await made.close()


async def test_a_wallet_is_asked_for_with_everything_that_paynow_needs(
    paynow: PaynowServer, provider: PaynowProvider
) -> None:
    top_up = new_payment()
    answer = await provider.start(top_up)
    ((call, pairs),) = paynow.calls
    assert call is Call.START
    assert [name for name, _ in pairs][-1] == "hash"
    assert dict(pairs[:-1]) == {
        "id": INTEGRATION_ID,
        "reference": name_of(top_up),
        "amount": "5.00",
        "additionalinfo": "Tumira top-up",
        "returnurl": f"{PUBLIC_URL}/dashboard/top-up/{name_of(top_up)}",
        "resulturl": f"{PUBLIC_URL}/hooks/paynow/{name_of(top_up)}",
        "authemail": "owner@example.co.zw",
        "phone": LOCAL,
        "method": "ecocash",
        "merchanttrace": name_of(top_up).removeprefix(TOP_UP),
        "status": "Message",
    }
    (payment,) = paynow.payments
    assert answer == StillPending(
        str(payment.number),
        {
            "poll_url": f"{paynow.url}/Interface/CheckPayment/?guid={payment.guid}",
            "instructions": "Dial *151*2*4# and enter your PIN.",
            "paynow_reference": str(payment.number),
        },
    )


async def test_innbucks_gives_a_code_and_says_until_when(
    paynow: PaynowServer, provider: PaynowProvider
) -> None:
    paynow.code_expires = "5-Nov-2026 14:30"
    # Other letters, and fields that nobody knows.
    paynow.mixes_case = paynow.adds_fields = True
    answer = await provider.start(new_payment(Wallet.INNBUCKS))
    assert isinstance(answer, StillPending)
    assert answer.kept["poll_url"].startswith(f"{paynow.url}/")
    assert answer.kept["code"] == "951077"
    assert answer.kept["code_expires"] == "2026-11-05T12:30:00+00:00"


async def test_a_card_is_given_on_a_page_of_paynow(paynow: PaynowServer, provider: PaynowProvider) -> None:
    top_up = new_payment(Wallet.CARD)
    answer = await provider.start(top_up)
    assert isinstance(answer, StillPending)
    assert not {"phone", "method"} & dict(paynow.calls[0][1]).keys()
    async with httpx.AsyncClient(trust_env=False, verify=NO_TLS) as browser:
        page = await browser.get(answer.kept["browser_url"])
        assert "US$5.00" in page.text
        response = await browser.post(answer.kept["browser_url"], data={"status": "Paid"})
    assert response.headers["location"] == f"{PUBLIC_URL}/dashboard/top-up/{name_of(top_up)}"
    assert await provider.poll(after(top_up, answer), NOW) == Paid("9510", FIVE)


@pytest.mark.parametrize(
    ("of_merchant", "of_customer", "told"),
    [
        ("shop@example.co.zw", "owner@example.co.zw", "shop@example.co.zw"),
        (None, "owner@example.co.zw", "owner@example.co.zw"),
        (None, None, "no-reply@tumira.example"),
    ],
)
async def test_paynow_writes_to_the_merchant_in_test_mode_or_else_to_the_customer(
    paynow: PaynowServer, of_merchant: str | None, of_customer: str | None, told: str
) -> None:
    provider = PaynowProvider(replace(paynow.access, email=of_merchant), PUBLIC_URL)
    await provider.start(new_payment(email=of_customer))
    await provider.close()
    assert dict(paynow.calls[0][1])["authemail"] == told


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        ("Sent", StillPending()),
        ("Something New", StillPending()),
        ("Paid", Paid("9510", FIVE)),
        ("Cancelled", NotPaid(FailureReason.CANCELLED, "Paynow: Cancelled")),
        ("Failed", NotPaid(FailureReason.DECLINED, "Paynow: Failed")),
        ("Refunded", Reversed("Paynow: Refunded")),
    ],
)
async def test_a_status_is_the_same_news_by_poll_and_by_trace_however_it_is_written(
    paynow: PaynowServer, provider: PaynowProvider, status: str, answer: ProviderAnswer
) -> None:
    top_up = new_payment()
    begun = after(top_up, await provider.start(top_up))
    paynow.move(paynow.payments[0], status)
    assert await provider.poll(begun, NOW) == answer
    assert paynow.count(Call.TRACE) == 0
    paynow.mixes_case = paynow.adds_fields = True
    assert await provider.poll(begun, NOW) == answer
    assert await provider.poll(top_up, NOW) == answer
    assert (paynow.count(Call.POLL), paynow.count(Call.TRACE)) == (2, 1)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault.NO_ANSWER, "no answer"),
        (Fault.HANG, "no answer"),
        (Fault.WRONG_HASH, "hash is wrong"),
        (Fault.NO_HASH, "hash is wrong"),
        (Fault.FIELD_TWICE, "cannot be read"),
        (Fault.PAGE, "cannot be read (HTTP 503)"),
        (Fault.FOREIGN_POLL_URL, "its pollurl is not at the place that TUMIRA_PAYNOW_URL names"),
        (Fault.FOREIGN_BROWSER_URL, "its browserurl is not at the place that TUMIRA_PAYNOW_URL names"),
    ],
)
async def test_a_start_whose_answer_cannot_be_relied_upon_is_unclear_and_found_again_by_its_trace(
    paynow: PaynowServer, fault: Fault, words: str
) -> None:
    provider = PaynowProvider(paynow.access, PUBLIC_URL, answer_s=0.5)
    top_up = new_payment()
    paynow.outcomes[LOCAL] = Outcome("Paid")
    paynow.misbehave(Call.START, fault)
    answer = await provider.start(top_up)
    assert isinstance(answer, PaymentInDoubt)
    assert words in answer.problem
    assert await provider.poll(top_up, NOW) == Paid("9510", FIVE)
    await provider.close()
    assert [call for call, _ in paynow.calls] == [Call.START, Call.TRACE]


async def test_a_start_that_reached_nobody_never_arrived() -> None:
    access = Paynow(f"http://127.0.0.1:{free_port()}", INTEGRATION_ID, "key", None)
    provider = PaynowProvider(access, PUBLIC_URL)
    answer = await provider.start(new_payment())
    await provider.close()
    assert isinstance(answer, NotPaid)
    assert answer.reason is FailureReason.NEVER_ARRIVED


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": "another"}, "Invalid Hash. Hash should start with: "),
        ({"integration_id": "7"}, "Invalid id."),
    ],
)
async def test_wrong_access_is_the_operators_to_put_right(
    paynow: PaynowServer, changes: Mapping[str, Any], words: str
) -> None:
    provider = PaynowProvider(replace(paynow.access, **changes), PUBLIC_URL)
    answer = await provider.start(new_payment())
    await provider.close()
    assert isinstance(answer, NotPaid)
    assert answer.reason is FailureReason.NOT_CONFIGURED
    assert answer.problem.startswith(words)


async def test_an_error_inside_a_good_answer_is_a_refusal_in_paynows_words_and_not_too_many_of_them(
    paynow: PaynowServer, provider: PaynowProvider
) -> None:
    paynow.misbehave(Call.START, Fault.ERROR_INSIDE)
    assert await provider.start(new_payment()) == NotPaid(FailureReason.DECLINED, "Something went wrong")
    paynow.outcomes[LOCAL] = Outcome(error=f" Not\r\nnow\0{'!' * 1000}")
    answer = await provider.start(new_payment())
    assert isinstance(answer, NotPaid)
    assert answer.problem.startswith("Not  now !!!")
    assert len(answer.problem) == PROBLEM_MAX


@pytest.mark.parametrize("call", [Call.POLL, Call.TRACE])
async def test_an_answer_that_cannot_be_relied_upon_tells_nothing_of_the_money(
    paynow: PaynowServer, provider: PaynowProvider, call: Call
) -> None:
    top_up = new_payment(age=2 * LOST_AFTER)
    begun = after(top_up, await provider.start(top_up))
    paynow.move(paynow.payments[0], "Paid")
    asked = begun if call is Call.POLL else top_up
    for fault in (
        Fault.NO_ANSWER,
        Fault.WRONG_HASH,
        Fault.NO_HASH,
        Fault.FIELD_TWICE,
        Fault.FOREIGN_REFERENCE,
        Fault.ERROR_INSIDE,
        Fault.PAGE,
    ):
        paynow.misbehave(call, fault)
        assert isinstance(await provider.poll(asked, NOW), Unreachable), fault
        assert await provider.poll(asked, NOW) == Paid("9510", FIVE)


@pytest.mark.parametrize(
    ("fault", "reference", "amount"),
    [(Fault.CHANGED_AMOUNT, "9510", "50.00"), (Fault.SHIFTED_BOUNDARY, "951", "05.00")],
)
async def test_what_paynow_says_it_took_is_told_as_it_says_it(
    paynow: PaynowServer, provider: PaynowProvider, fault: Fault, reference: str, amount: str
) -> None:
    top_up = new_payment()
    begun = after(top_up, await provider.start(top_up))
    paynow.move(paynow.payments[0], "Paid")
    paynow.misbehave(Call.POLL, fault)
    assert await provider.poll(begun, NOW) == Paid(reference, Decimal(amount))


async def test_what_paynow_does_not_know_never_arrived_but_only_after_a_while(
    paynow: PaynowServer, provider: PaynowProvider
) -> None:
    assert isinstance(await provider.poll(new_payment(age=LOST_AFTER), NOW), PaymentInDoubt)
    answer = await provider.poll(new_payment(age=LOST_AFTER + timedelta(seconds=1)), NOW)
    assert answer == NotPaid(FailureReason.NEVER_ARRIVED, "Paynow knows nothing of it")
    # Unsigned, anybody could say so.
    paynow.misbehave(Call.TRACE, Fault.NO_HASH)
    assert isinstance(await provider.poll(new_payment(age=2 * LOST_AFTER), NOW), Unreachable)


@pytest.mark.parametrize(
    "address",
    [
        "http://localhost:{port}/Interface/CheckPayment/?guid={guid}",
        "https://127.0.0.1:{port}/Interface/CheckPayment/?guid={guid}",
        "http://127.0.0.1/Interface/CheckPayment/?guid={guid}",
        "http://127.0.0.1:{port}@paynow.example/?guid={guid}",
        "http://127.0.0.1:{port}\\@paynow.example/?guid={guid}",
        "http://[::1:{port}/",
        "/Interface/CheckPayment/?guid={guid}",
    ],
)
async def test_an_address_elsewhere_is_never_called(
    paynow: PaynowServer, provider: PaynowProvider, address: str
) -> None:
    top_up = new_payment()
    await provider.start(top_up)
    kept = {"poll_url": address.format(port=paynow.port, guid=paynow.payments[0].guid)}
    assert await provider.poll(replace(top_up, kept=kept), NOW) == StillPending()
    assert [call for call, _ in paynow.calls] == [Call.START, Call.TRACE]


async def test_a_code_that_was_not_used_lapses_a_while_after_its_end(
    paynow: PaynowServer, provider: PaynowProvider
) -> None:
    top_up = new_payment(Wallet.INNBUCKS)
    begun = after(top_up, await provider.start(top_up))
    assert await provider.poll(begun, NOW) == StillPending()
    ended = datetime.now(UTC) - EXPIRY_GRACE
    late = replace(begun, kept={**begun.kept, "code_expires": ended.isoformat()})
    just_ended = replace(
        begun, kept={**begun.kept, "code_expires": (ended + timedelta(minutes=1)).isoformat()}
    )
    assert await provider.poll(just_ended, NOW) == StillPending()
    assert await provider.poll(late, NOW) == Expired()
    paynow.move(paynow.payments[0], "Paid")
    assert await provider.poll(late, NOW) == Paid("9510", FIVE)
