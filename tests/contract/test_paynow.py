"""Do we ask Paynow for money once, believe only what it signed, and credit what it took exactly once?"""

import asyncio
import itertools
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio
import uvicorn
from starlette.applications import Starlette

from tests.support.chaos import first_true, until
from tests.support.gates import broken_promises, open_gates, send_call
from tests.support.paynow_server import (
    INTEGRATION_ID,
    KEY,
    RESENDS_MAX,
    Call,
    Fault,
    Outcome,
    Payment,
    PaynowServer,
    paynow_server,
)
from tests.support.postgres import clone
from tests.support.service import NO_TLS, Caller, new_caller
from tumira.actions.start_paynow import start_paynow
from tumira.config.payments import Payments, Paynow
from tumira.engine.cashier import Cashier
from tumira.hooks.paynow import BODY_BYTES_MAX, routes
from tumira.ids import TOP_UP, TopUpId, new_id, write_id
from tumira.outbound.payments.paynow import EXPIRY_GRACE, LOST_AFTER, PROBLEM_MAX, PaynowProvider
from tumira.outbound.payments.port import Order
from tumira.rules.paynow import Wallet, local_phone
from tumira.rules.top_ups import (
    Currency,
    Lapsed,
    Method,
    News,
    Paid,
    Reason,
    Refused,
    Silent,
    State,
    TakenBack,
    Unclear,
    Waiting,
)
from tumira.store import accounts, top_ups
from tumira.store.database import Database
from tumira.store.top_ups import NewTopUp, TopUp

PUBLIC_URL: Final = "https://tumira.example"
PHONE: Final = "+263771200001"
LOCAL: Final = "0771200001"
FIVE: Final = Decimal(5)

_numbers: Final = itertools.count(10_001, 100)


def new_order(wallet: Wallet = Wallet.ECOCASH, **changes: Any) -> Order:
    order = Order(
        id=TopUpId(new_id(1_700_000_000_000)),
        provider=wallet,
        asked=FIVE,
        rate=Decimal(1),
        phone=PHONE if wallet.needs_phone else None,
        email="owner@example.co.zw",
        sealed_pin=None,
        kept={},
        age=timedelta(seconds=5),
    )
    return replace(order, **changes)


def name_of(order: Order) -> str:
    return write_id(TOP_UP, order.id)


def after(order: Order, news: News) -> Order:
    """Return an order with what its start gave us to keep, as the cashier would pass it next."""
    assert isinstance(news, Waiting), news
    return replace(order, kept={**order.kept, **news.kept})


@pytest.fixture
def paynow() -> Iterator[PaynowServer]:
    """Give a Paynow that tells nothing by itself: nobody listens at the address that we give."""
    with paynow_server() as running:
        running.tells = False
        running.numbers = itertools.count(9510)
        yield running


@pytest_asyncio.fixture
async def provider(paynow: PaynowServer) -> AsyncIterator[PaynowProvider]:
    """Give a provider that speaks to it."""
    made = PaynowProvider(paynow.access, PUBLIC_URL)
    yield made
    await made.close()


async def test_a_wallet_is_asked_for_with_everything_that_paynow_needs(
    paynow: PaynowServer, provider: PaynowProvider
) -> None:
    order = new_order()
    news = await provider.start(order)
    ((call, pairs),) = paynow.calls
    assert call is Call.START
    assert [name for name, _ in pairs][-1] == "hash"
    assert dict(pairs[:-1]) == {
        "id": INTEGRATION_ID,
        "reference": name_of(order),
        "amount": "5.00",
        "additionalinfo": "Tumira top-up",
        "returnurl": f"{PUBLIC_URL}/dashboard/top-up/{name_of(order)}",
        "resulturl": f"{PUBLIC_URL}/hooks/paynow/{name_of(order)}",
        "authemail": "owner@example.co.zw",
        "phone": LOCAL,
        "method": "ecocash",
        "merchanttrace": name_of(order).removeprefix(TOP_UP),
        "status": "Message",
    }
    (payment,) = paynow.payments
    assert news == Waiting(
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
    news = await provider.start(new_order(Wallet.INNBUCKS))
    assert isinstance(news, Waiting)
    assert news.kept["code"] == "951077"
    assert news.kept["code_expires"] == "2026-11-05T12:30:00+00:00"


async def test_a_card_is_given_on_a_page_of_paynow(paynow: PaynowServer, provider: PaynowProvider) -> None:
    order = new_order(Wallet.CARD)
    news = await provider.start(order)
    assert isinstance(news, Waiting)
    assert not {"phone", "method"} & dict(paynow.calls[0][1]).keys()
    async with httpx.AsyncClient(trust_env=False, verify=NO_TLS) as browser:
        page = await browser.get(news.kept["browser_url"])
        assert "US$5.00" in page.text
        answer = await browser.post(news.kept["browser_url"], data={"status": "Paid"})
    assert answer.headers["location"] == f"{PUBLIC_URL}/dashboard/top-up/{name_of(order)}"
    assert await provider.look(after(order, news)) == Paid("9510", FIVE)


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
    await provider.start(new_order(email=of_customer))
    await provider.close()
    assert dict(paynow.calls[0][1])["authemail"] == told


@pytest.mark.parametrize(
    ("number", "news"),
    [
        ("1111111", Paid("9510", FIVE)),
        ("2222222", Paid("9510", FIVE)),
        ("3333333", Refused(Reason.CANCELLED, "Paynow: Cancelled")),
    ],
)
async def test_the_numbers_for_tests_do_as_documented(
    provider: PaynowProvider, number: str, news: News
) -> None:
    order = new_order(phone=f"+26377{number}")
    assert await provider.look(after(order, await provider.start(order))) == news


async def test_a_wallet_without_money_is_refused_at_once(provider: PaynowProvider) -> None:
    news = await provider.start(new_order(phone="+263774444444"))
    assert news == Refused(Reason.DECLINED, "Insufficient balance")


@pytest.mark.parametrize(
    ("status", "news"),
    [
        ("Created", Waiting()),
        ("Sent", Waiting()),
        ("SENT", Waiting()),
        ("Something New", Waiting()),
        ("Paid", Paid("9510", FIVE)),
        ("paid", Paid("9510", FIVE)),
        ("Awaiting Delivery", Paid("9510", FIVE)),
        ("Delivered", Paid("9510", FIVE)),
        ("Cancelled", Refused(Reason.CANCELLED, "Paynow: Cancelled")),
        ("Failed", Refused(Reason.DECLINED, "Paynow: Failed")),
        ("Disputed", TakenBack("Paynow: Disputed")),
        ("Refunded", TakenBack("Paynow: Refunded")),
    ],
)
async def test_a_status_is_the_same_news_by_poll_and_by_trace_however_it_is_written(
    paynow: PaynowServer, provider: PaynowProvider, status: str, news: News
) -> None:
    order = new_order()
    begun = after(order, await provider.start(order))
    paynow.move(paynow.payments[0], status)
    assert await provider.look(begun) == news
    assert paynow.count(Call.TRACE) == 0
    paynow.mixes_case = paynow.adds_fields = True
    assert await provider.look(begun) == news
    assert await provider.look(order) == news
    assert (paynow.count(Call.POLL), paynow.count(Call.TRACE)) == (2, 1)


async def test_a_start_is_understood_with_other_letters_and_fields_that_nobody_knows(
    paynow: PaynowServer, provider: PaynowProvider
) -> None:
    paynow.mixes_case = paynow.adds_fields = True
    news = await provider.start(new_order())
    assert isinstance(news, Waiting)
    assert news.kept["poll_url"].startswith(f"{paynow.url}/")


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
    order = new_order()
    paynow.outcomes[LOCAL] = Outcome("Paid")
    paynow.misbehave(Call.START, fault)
    news = await provider.start(order)
    assert isinstance(news, Unclear)
    assert words in news.problem
    assert await provider.look(order) == Paid("9510", FIVE)
    await provider.close()
    assert [call for call, _ in paynow.calls] == [Call.START, Call.TRACE]


async def test_a_slow_answer_is_waited_for(paynow: PaynowServer, provider: PaynowProvider) -> None:
    paynow.misbehave(Call.START, Fault.SLOW)
    assert isinstance(await provider.start(new_order()), Waiting)


async def test_a_start_that_reached_nobody_never_arrived() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    with paynow_server() as paynow:
        provider = PaynowProvider(replace(paynow.access, url=url), PUBLIC_URL)
        news = await provider.start(new_order())
        await provider.close()
    assert isinstance(news, Refused)
    assert news.reason is Reason.NEVER_ARRIVED


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
    news = await provider.start(new_order())
    await provider.close()
    assert isinstance(news, Refused)
    assert news.reason is Reason.NOT_CONFIGURED
    assert news.problem.startswith(words)


async def test_an_error_inside_a_good_answer_is_a_refusal_in_paynows_words_and_not_too_many_of_them(
    paynow: PaynowServer, provider: PaynowProvider
) -> None:
    paynow.misbehave(Call.START, Fault.ERROR_INSIDE)
    assert await provider.start(new_order()) == Refused(Reason.DECLINED, "Something went wrong")
    paynow.outcomes[LOCAL] = Outcome(error=f" Not\r\nnow\0{'!' * 1000}")
    news = await provider.start(new_order())
    assert isinstance(news, Refused)
    assert news.problem.startswith("Not  now !!!")
    assert len(news.problem) == PROBLEM_MAX


@pytest.mark.parametrize("is_poll", [True, False])
@pytest.mark.parametrize(
    "fault",
    [
        Fault.NO_ANSWER,
        Fault.WRONG_HASH,
        Fault.NO_HASH,
        Fault.FIELD_TWICE,
        Fault.FOREIGN_REFERENCE,
        Fault.ERROR_INSIDE,
        Fault.PAGE,
    ],
)
async def test_an_answer_that_cannot_be_relied_upon_tells_nothing_of_the_money(
    paynow: PaynowServer, provider: PaynowProvider, fault: Fault, *, is_poll: bool
) -> None:
    order = new_order(age=2 * LOST_AFTER)
    begun = after(order, await provider.start(order))
    paynow.move(paynow.payments[0], "Paid")
    paynow.misbehave(Call.POLL if is_poll else Call.TRACE, fault)
    asked = begun if is_poll else order
    assert isinstance(await provider.look(asked), Silent)
    assert await provider.look(asked) == Paid("9510", FIVE)


@pytest.mark.parametrize(
    ("fault", "reference", "amount"),
    [(Fault.CHANGED_AMOUNT, "9510", "50.00"), (Fault.SHIFTED_BOUNDARY, "951", "05.00")],
)
async def test_what_paynow_says_it_took_is_told_as_it_says_it(
    paynow: PaynowServer, provider: PaynowProvider, fault: Fault, reference: str, amount: str
) -> None:
    order = new_order()
    begun = after(order, await provider.start(order))
    paynow.move(paynow.payments[0], "Paid")
    paynow.misbehave(Call.POLL, fault)
    assert await provider.look(begun) == Paid(reference, Decimal(amount))


async def test_what_paynow_does_not_know_never_arrived_but_only_after_a_while(
    paynow: PaynowServer, provider: PaynowProvider
) -> None:
    assert isinstance(await provider.look(new_order(age=LOST_AFTER)), Unclear)
    news = await provider.look(new_order(age=LOST_AFTER + timedelta(seconds=1)))
    assert news == Refused(Reason.NEVER_ARRIVED, "Paynow knows nothing of it")
    # Unsigned, anybody could say so.
    paynow.misbehave(Call.TRACE, Fault.NO_HASH)
    assert isinstance(await provider.look(new_order(age=2 * LOST_AFTER)), Silent)


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
    order = new_order()
    await provider.start(order)
    kept = {"poll_url": address.format(port=paynow.port, guid=paynow.payments[0].guid)}
    assert await provider.look(replace(order, kept=kept)) == Waiting()
    assert [call for call, _ in paynow.calls] == [Call.START, Call.TRACE]


async def test_a_code_that_was_not_used_lapses_a_while_after_its_end(
    paynow: PaynowServer, provider: PaynowProvider
) -> None:
    order = new_order(Wallet.INNBUCKS)
    begun = after(order, await provider.start(order))
    assert await provider.look(begun) == Waiting()
    ended = datetime.now(UTC) - EXPIRY_GRACE
    late = replace(begun, kept={**begun.kept, "code_expires": ended.isoformat()})
    just_ended = replace(
        begun, kept={**begun.kept, "code_expires": (ended + timedelta(minutes=1)).isoformat()}
    )
    assert await provider.look(just_ended) == Waiting()
    assert await provider.look(late) == Lapsed()
    paynow.move(paynow.payments[0], "Paid")
    assert await provider.look(late) == Paid("9510", FIVE)


@dataclass(frozen=True, slots=True)
class Till:
    """An account's way to Paynow and back: the hook listens, and `work` does what a worker does."""

    database: Database
    paynow: PaynowServer
    provider: PaynowProvider
    public_url: str
    caller: Caller
    # The wallet's, of this till alone: only so many payments may wait on one phone.
    phone: str

    @property
    def local(self) -> str:
        """Return the number as Paynow is told it."""
        return local_phone(self.phone)

    async def start(self, wallet: Wallet = Wallet.ECOCASH, amount: Decimal = FIVE) -> TopUpId:
        """Begin a top-up, as the page does."""
        payments = Payments(paynow=self.paynow.access)
        return await start_paynow(self.database, payments, self.caller.id, wallet, amount, self.phone)

    async def work(self, top_up_id: TopUpId) -> TopUp:
        """Look once at a top-up, as if its time had come."""
        async with self.database.connection() as connection:
            await connection.execute(
                "UPDATE top_ups SET due_at = clock_timestamp() WHERE id = $1 AND due_at IS NOT NULL",
                top_up_id,
            )
        return await self.look(top_up_id)

    async def look(self, top_up_id: TopUpId) -> TopUp:
        """Look at what is due, and return what a top-up is then."""
        cashier = Cashier(self.database, {"paynow": self.provider})
        await cashier._look()
        await asyncio.gather(*cashier._asking)
        return await self.find(top_up_id)

    async def find(self, top_up_id: TopUpId) -> TopUp:
        """Return a top-up as it stands."""
        async with self.database.connection() as connection:
            found = await top_ups.find_any(connection, top_up_id)
        assert found is not None
        return found

    def payment(self, top_up_id: TopUpId) -> Payment:
        """Return the one payment of a top-up."""
        (payment,) = self.paynow.of(write_id(TOP_UP, top_up_id))
        return payment

    async def begun(self, wallet: Wallet = Wallet.ECOCASH) -> tuple[TopUpId, Payment]:
        """Begin a top-up, and have Paynow asked for it."""
        top_up_id = await self.start(wallet)
        assert (await self.work(top_up_id)).state is State.PENDING
        return top_up_id, self.payment(top_up_id)

    async def tell(self, top_up_id: TopUpId | str, body: bytes) -> int:
        """Post a notice, and return the status of the answer."""
        name = top_up_id if isinstance(top_up_id, str) else write_id(TOP_UP, top_up_id)
        return await post(f"{self.public_url}/hooks/paynow/{name}", body)

    async def balance(self) -> Decimal:
        """Return the account's balance, which its transfers must come to, and nothing else be wrong."""
        assert await broken_promises(self.database) == []
        async with self.database.connection() as connection:
            account = await accounts.find(connection, self.caller.id)
            moved = await connection.fetchval(
                "SELECT coalesce(sum(CASE WHEN to_book = 'customer' THEN amount ELSE -amount END), 0)"
                "  FROM transfers WHERE account_id = $1",
                self.caller.id,
            )
        assert account is not None
        assert account.balance == moved
        return account.balance


async def post(url: str, body: bytes) -> int:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    async with httpx.AsyncClient(trust_env=False, verify=NO_TLS) as client:
        return (await client.post(url, content=body, headers=headers)).status_code


@contextmanager
def listening_hooks(url: str, payments: Payments) -> Iterator[str]:
    """Run the hooks of a web process in a thread, and give their address."""
    database = Database(url, connections_max=4)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        await database.close()

    app = Starlette(routes=list(routes(database, payments)), lifespan=lifespan)
    serving = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_config=None, access_log=False))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serving.run, args=([listening],))
        thread.start()
        until(lambda: serving.started, "the hooks do not listen")
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        serving.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def shared_url(server_url: str) -> Iterator[str]:
    """Give a database that the tests of this file share; each opens an account of its own."""
    with clone(server_url) as url:
        yield url


@pytest.fixture(scope="module")
def hooks_url(shared_url: str) -> Iterator[str]:
    """Give the address of hooks that the tests of this file share."""
    access = Paynow("https://paynow.example", INTEGRATION_ID, KEY, None)
    with listening_hooks(shared_url, Payments(paynow=access)) as url:
        yield url


@pytest_asyncio.fixture
async def till(shared_url: str, hooks_url: str, paynow: PaynowServer) -> AsyncIterator[Till]:
    """Give an account without money, and all that it needs to be topped up."""
    database = Database(shared_url, connections_max=8)
    provider = PaynowProvider(paynow.access, hooks_url)
    # The last digit is never a zero, which could go over to an amount and not change it.
    number = next(_numbers)
    paynow.numbers = itertools.count(number)
    caller = await new_caller(shared_url, "0")
    yield Till(database, paynow, provider, hooks_url, caller, f"+2637712{number:05}")
    await provider.close()
    async with database.connection() as connection:
        # What a test leaves open must not be looked at by the next.
        await connection.execute("UPDATE top_ups SET due_at = NULL")
    await database.close()


async def test_a_top_up_is_credited_once_when_its_notice_comes(till: Till) -> None:
    till.paynow.tells = True
    working = asyncio.create_task(Cashier(till.database, {"paynow": till.provider}).run())
    top_up_id = await till.start()
    name = write_id(TOP_UP, top_up_id)
    payment = await asyncio.to_thread(till.paynow.wait_for_payment, name)
    till.paynow.move(payment, "Paid")

    async def is_credited() -> bool:
        return (await till.find(top_up_id)).state is State.CREDITED

    await first_true(is_credited, "it was not credited")
    notice = await asyncio.to_thread(till.paynow.wait_for_notice, name, "Paid")
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    assert notice.answers == [200]
    assert (payment.phone, till.paynow.charged(name)) == (till.local, FIVE)
    assert await till.balance() == FIVE
    found = await till.find(top_up_id)
    assert (found.amount, found.paid, found.provider_reference) == (FIVE, FIVE, str(payment.number))
    # The loop has closed it.
    assert till.paynow.count(Call.START) == 1


async def test_a_good_notice_makes_its_top_up_due_and_does_nothing_else(till: Till) -> None:
    top_up_id, payment = await till.begun()
    before = await till.find(top_up_id)
    assert await till.tell(top_up_id, till.paynow.notice(payment, "Paid")) == 200
    found = await till.find(top_up_id)
    assert before.due_at is not None
    assert found.due_at is not None
    assert found.due_at < before.due_at
    assert replace(found, due_at=before.due_at) == before
    # Paynow itself says that nothing was paid.
    assert (await till.look(top_up_id)).state is State.PENDING
    assert await till.balance() == 0


async def test_nothing_in_a_notice_is_believed(till: Till) -> None:
    top_up_id, payment = await till.begun()
    foreign = f"http://localhost:{till.paynow.port}/Interface/CheckPayment/?guid={payment.guid}"
    told = till.paynow.notice(payment, "Paid", amount="5000.00", pollurl=foreign, paynowreference="1")
    assert await till.tell(top_up_id, told) == 200
    till.paynow.move(payment, "Paid")
    found = await till.look(top_up_id)
    assert (found.state, found.amount, found.provider_reference) == (
        State.CREDITED,
        FIVE,
        str(payment.number),
    )
    assert await till.balance() == FIVE


async def test_forged_notices_are_refused_and_change_nothing(till: Till) -> None:
    top_up_id, payment = await till.begun()
    other_id, other = await till.begun()
    till.paynow.move(payment, "Paid")
    before = [await till.find(top_up_id), await till.find(other_id)]
    good = till.paynow.notice(payment)
    forged = {
        "another key": till.paynow.notice(payment, key="another"),
        "no hash": good.partition(b"&hash=")[0],
        "changed": good.replace(b"amount=5.00", b"amount=50.00"),
        "a field more": good + b"&status=Paid",
        "another order": b"&".join(reversed(good.split(b"&"))),
        "another payment": till.paynow.notice(other),
        "no reference": till.paynow.notice(payment, reference=""),
        "nothing": b"",
        "no form": b"\xff\xfe",
        "JSON": b'{"status": "Paid"}',
    }
    assert {what: await till.tell(top_up_id, body) for what, body in forged.items()} == dict.fromkeys(
        forged, 400
    )
    assert await till.tell(top_up_id, good + b"&" + b"x" * BODY_BYTES_MAX) == 413
    assert [await till.find(top_up_id), await till.find(other_id)] == before
    assert await till.balance() == 0


async def test_a_notice_for_what_is_not_there_is_not_found(till: Till) -> None:
    top_up_id, payment = await till.begun()
    good = till.paynow.notice(payment)
    voucher_id = TopUpId(new_id(1_700_000_000_000))
    async with till.database.connection() as connection:
        await top_ups.insert(
            connection,
            NewTopUp(voucher_id, till.caller.id, Method.VOUCHER, "own", Currency.USD, is_due=False),
        )
    unknown = TopUpId(new_id(1_700_000_000_000))
    assert await till.tell(unknown, good) == 404
    assert await till.tell(voucher_id, good) == 404
    assert await till.tell("top_x", good) == 404
    with listening_hooks(till.database.url, Payments()) as public_url:
        assert await post(f"{public_url}/hooks/paynow/{write_id(TOP_UP, top_up_id)}", good) == 404
    async with httpx.AsyncClient(trust_env=False, verify=NO_TLS) as client:
        assert (await client.get(f"{till.public_url}/hooks/paynow/top_x")).status_code == 405


async def test_a_notice_that_is_answered_with_an_error_is_told_ten_times_more(till: Till) -> None:
    till.paynow.resend_s = 0
    order = new_order()
    await till.provider.start(order)
    till.paynow.tells = True
    till.paynow.move(till.paynow.payments[0], "Paid")
    notice = await asyncio.to_thread(till.paynow.wait_for_notice, name_of(order), "Paid")
    assert notice.answers == [404] * (1 + RESENDS_MAX)


async def test_repeated_reordered_and_late_notices_change_nothing(till: Till) -> None:
    top_up_id, payment = await till.begun()
    told = [till.paynow.notice(payment, status) for status in ("Created", "Sent", "Cancelled", "Paid")]
    till.paynow.move(payment, "Paid")
    assert (await till.work(top_up_id)).state is State.CREDITED
    for body in [*reversed(told), *told, *told]:
        assert await till.tell(top_up_id, body) == 200
        assert (await till.look(top_up_id)).state is State.CREDITED
    assert await till.balance() == FIVE
    assert (await till.find(top_up_id)).due_at is None


async def test_a_start_that_timed_out_after_paynow_took_the_money_is_credited_once_and_not_asked_again(
    till: Till,
) -> None:
    till.paynow.outcomes[till.local] = Outcome("Paid")
    till.paynow.misbehave(Call.START, Fault.NO_ANSWER)
    top_up_id = await till.start()
    assert (await till.work(top_up_id)).state is State.DOUBT
    assert (await till.work(top_up_id)).state is State.CREDITED
    assert await till.balance() == FIVE
    assert till.paynow.charged(write_id(TOP_UP, top_up_id)) == FIVE
    assert till.paynow.count(Call.START) == 1


async def test_a_start_that_paynow_never_got_is_in_doubt_and_has_failed_after_a_while(till: Till) -> None:
    till.paynow.misbehave(Call.START, Fault.LOST)
    top_up_id = await till.start()
    assert (await till.work(top_up_id)).state is State.DOUBT
    assert (await till.work(top_up_id)).state is State.DOUBT
    async with till.database.connection() as connection:
        earlier = "UPDATE top_ups SET asked_at = asked_at - $2::interval WHERE id = $1"
        await connection.execute(earlier, top_up_id, LOST_AFTER)
    found = await till.work(top_up_id)
    assert (found.state, found.reason) == (State.FAILED, Reason.NEVER_ARRIVED)
    assert (till.paynow.count(Call.START), till.paynow.payments) == (1, [])
    assert await till.balance() == 0


@pytest.mark.parametrize("fault", [Fault.CHANGED_AMOUNT, Fault.SHIFTED_BOUNDARY])
async def test_another_amount_than_was_asked_for_is_for_the_operator(till: Till, fault: Fault) -> None:
    top_up_id, payment = await till.begun()
    till.paynow.move(payment, "Paid")
    till.paynow.misbehave(Call.POLL, fault)
    found = await till.work(top_up_id)
    assert found.state is State.DOUBT
    assert found.problem is not None
    assert "was taken where 5.00 was asked for" in found.problem
    assert await till.balance() == 0


@pytest.mark.parametrize(
    ("status", "state", "reason"),
    [
        ("Cancelled", State.FAILED, Reason.CANCELLED),
        ("Failed", State.FAILED, Reason.DECLINED),
        ("Refunded", State.FAILED, Reason.CANCELLED),
        ("Sent", State.PENDING, None),
        ("Awaiting Delivery", State.CREDITED, None),
        ("Delivered", State.CREDITED, None),
    ],
)
async def test_a_status_moves_a_top_up(till: Till, status: str, state: State, reason: Reason | None) -> None:
    top_up_id, payment = await till.begun()
    till.paynow.move(payment, status)
    found = await till.work(top_up_id)
    assert (found.state, found.reason) == (state, reason)
    assert await till.balance() == (FIVE if state is State.CREDITED else 0)


@pytest.mark.parametrize("status", ["Refunded", "Disputed"])
async def test_what_paynow_takes_back_is_taken_as_far_as_it_is_there_and_the_rest_is_owed(
    till: Till, status: str
) -> None:
    top_up_id, payment = await till.begun()
    till.paynow.move(payment, "Paid")
    await till.work(top_up_id)
    async with open_gates(till.database.url, 1) as gates:
        await gates.ask_all([send_call(till.caller, [f"+2637712{place:05}" for place in range(25)])])
    assert await till.balance() == 4
    till.paynow.move(payment, status)
    assert await till.tell(top_up_id, till.paynow.notice(payment)) == 200
    found = await till.look(top_up_id)
    assert (found.state, found.amount, found.owed) == (State.REVERSED, FIVE, Decimal(1))
    assert found.problem == f"Paynow: {status}"
    assert await till.balance() == 0
    async with till.database.connection() as connection:
        account = await accounts.find(connection, till.caller.id)
    assert account is not None
    assert account.suspended_at is not None
    # Told again, or paid once more: it has ended.
    for again in (status, "Paid"):
        till.paynow.move(payment, again)
        assert await till.tell(top_up_id, till.paynow.notice(payment)) == 200
        assert (await till.look(top_up_id)).state is State.REVERSED
    assert await till.balance() == 0


async def test_a_payment_that_comes_after_its_top_up_has_ended_is_for_the_operator(till: Till) -> None:
    top_up_id, payment = await till.begun()
    till.paynow.move(payment, "Cancelled")
    assert (await till.work(top_up_id)).state is State.FAILED
    till.paynow.move(payment, "Paid")
    assert await till.tell(top_up_id, till.paynow.notice(payment)) == 200
    found = await till.look(top_up_id)
    assert (found.state, found.due_at) == (State.FAILED, None)
    assert found.problem == f"{payment.number}: 5.00 USD was paid after it had failed"
    assert await till.balance() == 0
