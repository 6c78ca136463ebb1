"""No top-up is credited twice, lost or reversed wrongly, whatever its provider answers in any order."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tests.support.delivery.settling import BLOCKED
from tests.support.processes.service import Caller, new_caller
from tests.support.sending.batchers import broken_promises
from tumira.accounts import ledger
from tumira.accounts import store as accounts
from tumira.audit_log import Actor
from tumira.core.errors import OperatorError
from tumira.core.ids import TopUpId, new_id
from tumira.identity import manage_accounts
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.settle import Settled, can_poll, poll_again, resolve, settle
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
    TopUp,
    TopUpState,
    Unreachable,
    to_usd,
)
from tumira.topups.store import NewTopUp
from tumira.topups.voucher_pins import Issuer, Seal

FIVE: Final = Decimal(5)
OPENING: Final = Decimal(100)

_references: Final = itertools.count(1)


@pytest_asyncio.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    yield database
    assert await broken_promises(database) == []
    await database.close()


@pytest_asyncio.fixture
async def caller(url: str) -> Caller:
    return await new_caller(url)


async def start(
    database: Database,
    caller: Caller,
    asked: Decimal | None = FIVE,
    *,
    provider: str = "ecocash",
    rate: Decimal = Decimal(1),
    sealed_pin: bytes | None = None,
) -> TopUpId:
    """Start a top-up through Paynow, or with rand by voucher where it has another rate."""
    is_voucher = rate != 1 or sealed_pin is not None
    top_up_id = TopUpId(new_id(time.time_ns() // 1_000_000))
    async with database.transaction() as connection:
        await top_ups.insert(
            connection,
            NewTopUp(
                id=top_up_id,
                account_id=caller.id,
                method=Method.VOUCHER if is_voucher else Method.PAYNOW,
                provider="ott" if is_voucher else provider,
                currency=Currency.ZAR if is_voucher else Currency.USD,
                asked=asked,
                rate=rate,
                sealed_pin=sealed_pin,
                pin_hash=None if sealed_pin is None else bytes(32),
            ),
        )
    return top_up_id


def paid(amount: Decimal = FIVE) -> Paid:
    return Paid(f"ref-{next(_references)}", amount)


async def read(database: Database, top_up_id: TopUpId) -> TopUp:
    async with database.connection() as connection:
        found = await top_ups.find_any(connection, top_up_id)
    assert found is not None
    return found


async def balance_of(database: Database, caller: Caller) -> Decimal:
    async with database.connection() as connection:
        account = await accounts.find(connection, caller.id)
    assert account is not None
    return account.balance


async def moved(database: Database, top_up_id: TopUpId) -> tuple[Decimal, Decimal]:
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT to_book, amount FROM transfers WHERE top_up_id = $1", top_up_id)
    assert len(rows) <= 2
    came = sum((row["amount"] for row in rows if row["to_book"] == "customer"), Decimal(0))
    return came, sum((row["amount"] for row in rows), Decimal(0)) - came


# What brings a top-up into each state.
WAYS: Final[dict[TopUpState, Sequence[ProviderAnswer]]] = {
    TopUpState.STARTED: [],
    TopUpState.PENDING: [StillPending()],
    TopUpState.DOUBT: [PaymentInDoubt("no answer")],
    TopUpState.CREDITED: [Paid("given", FIVE)],
    TopUpState.FAILED: [NotPaid(FailureReason.DECLINED, "no money")],
    TopUpState.EXPIRED: [Expired()],
    TopUpState.REVERSED: [Paid("given", FIVE), Reversed("refunded")],
}
NEWS: Final[dict[str, ProviderAnswer]] = {
    "waiting": StillPending(),
    "paid": Paid("given", FIVE),
    "paid another amount": Paid("given", Decimal(50)),
    "refused": NotPaid(FailureReason.CANCELLED, "cancelled"),
    "lapsed": Expired(),
    "unclear": PaymentInDoubt("no answer"),
    "silent": Unreachable("not reached"),
    "unclear for good": PaymentInDoubt("no answer", is_last=True),
    "taken back": Reversed("refunded"),
}
OPEN_MOVES: Final = {
    "waiting": TopUpState.PENDING,
    "paid": TopUpState.CREDITED,
    "paid another amount": TopUpState.DOUBT,
    "refused": TopUpState.FAILED,
    "lapsed": TopUpState.EXPIRED,
    "unclear": TopUpState.DOUBT,
    "unclear for good": TopUpState.DOUBT,
    "silent": TopUpState.DOUBT,
    "taken back": TopUpState.FAILED,
}
MOVES: Final[dict[TopUpState, dict[str, TopUpState]]] = {
    TopUpState.STARTED: OPEN_MOVES,
    # What waits for its customer does so although its provider could not be asked.
    TopUpState.PENDING: OPEN_MOVES | {"silent": TopUpState.PENDING},
    TopUpState.DOUBT: OPEN_MOVES,
    TopUpState.CREDITED: {"taken back": TopUpState.REVERSED},
    TopUpState.FAILED: {},
    TopUpState.EXPIRED: {},
    TopUpState.REVERSED: {},
}
WORTH: Final = {TopUpState.CREDITED: FIVE}


def named(answer: ProviderAnswer) -> ProviderAnswer:
    return paid(answer.paid) if isinstance(answer, Paid) else answer


@pytest.mark.parametrize("before", TopUpState)
async def test_a_word_moves_a_top_up_as_the_table_says_and_a_second_time_nothing(
    database: Database, caller: Caller, before: TopUpState
) -> None:
    for name, answer in NEWS.items():
        top_up_id = await start(database, caller)
        for way in WAYS[before]:
            await settle(database, top_up_id, named(way))
        assert (await read(database, top_up_id)).state is before
        balance = await balance_of(database, caller)
        expected = MOVES[before].get(name, before)

        word = named(answer)
        settled = await settle(database, top_up_id, word)

        assert (settled.before, settled.top_up.state) == (before, expected), name
        gained = WORTH.get(expected, 0) - WORTH.get(before, 0)
        assert await balance_of(database, caller) == balance + gained, name
        came, went = await moved(database, top_up_id)
        assert (came, went) == (
            FIVE if expected in {TopUpState.CREDITED, TopUpState.REVERSED} else 0,
            FIVE if expected is TopUpState.REVERSED else 0,
        )

        again = await settle(database, top_up_id, word)
        assert again.top_up.state is MOVES[expected].get(name, expected) is expected, name
        assert await balance_of(database, caller) == balance + gained, name


async def test_what_a_provider_gave_us_is_kept_through_what_it_says_later(
    database: Database, caller: Caller
) -> None:
    top_up_id = await start(database, caller)
    await settle(database, top_up_id, StillPending("9510", {"poll_url": "https://a", "instructions": "Dial"}))
    await settle(database, top_up_id, PaymentInDoubt("no answer"))
    await settle(database, top_up_id, StillPending(None, {"instructions": "Dial again"}))
    found = await read(database, top_up_id)
    assert found.kept == {"poll_url": "https://a", "instructions": "Dial again"}
    assert (found.provider_reference, found.state, found.problem) == ("9510", TopUpState.PENDING, None)


async def test_a_payment_that_was_credited_before_is_a_doubt_and_brings_nothing(
    database: Database, caller: Caller, url: str
) -> None:
    word = paid()
    await settle(database, await start(database, caller, provider="ecocash"), word)
    other = await new_caller(url)
    second = await start(database, other, provider="card")

    settled = await settle(database, second, word)

    assert (settled.top_up.state, settled.top_up.due_at) == (TopUpState.DOUBT, None)
    assert settled.top_up.problem == f"{word.provider_reference} was credited for another top-up already"
    assert await moved(database, second) == (Decimal(0), Decimal(0))
    with pytest.raises(OperatorError, match="already credited to another top-up"):
        await decide(database, second, FIVE, reference=word.provider_reference)
    assert (await read(database, second)).state is TopUpState.DOUBT
    assert await balance_of(database, other) == OPENING
    # Another issuer may well call something the same.
    rand = await start(database, other, None, rate=Decimal(20))
    await settle(database, rand, Paid(word.provider_reference, Decimal(100)))
    assert await balance_of(database, other) == OPENING + FIVE


async def test_rand_become_dollars_at_the_rate_of_the_start_rounded_down(
    database: Database, caller: Caller
) -> None:
    top_up_id = await start(database, caller, None, rate=Decimal("18.57"))
    settled = await settle(database, top_up_id, paid(Decimal("150.00")))
    assert settled.top_up.amount == Decimal("8.0775")
    assert await balance_of(database, caller) == OPENING + Decimal("8.0775")
    nothing = await start(database, caller, None, rate=Decimal("18.57"))
    settled = await settle(database, nothing, paid(Decimal("0.0001")))
    assert settled.top_up.state is TopUpState.DOUBT


@pytest.mark.parametrize("end", [Expired(), NotPaid(FailureReason.CANCELLED, "cancelled")])
async def test_a_payment_that_comes_too_late_is_noted_and_left_to_the_operator(
    database: Database, caller: Caller, end: ProviderAnswer
) -> None:
    top_up_id = await start(database, caller)
    ended = (await settle(database, top_up_id, end)).top_up.state
    word = paid()

    assert (await settle(database, top_up_id, word)).top_up.state is ended

    found = await read(database, top_up_id)
    reference = word.provider_reference
    assert found.problem == f"{reference}: 5 USD was paid after it had {ended}"
    assert await balance_of(database, caller) == OPENING
    resolved = await decide(database, top_up_id, FIVE, reference=reference)
    assert (resolved.before, resolved.top_up.state) == (ended, TopUpState.CREDITED)
    assert await balance_of(database, caller) == OPENING + FIVE
    # Once and for all.
    assert (await settle(database, top_up_id, word)).top_up.state is TopUpState.CREDITED
    with pytest.raises(OperatorError, match="Operators cannot change that"):
        await decide(database, top_up_id, FIVE)
    assert await balance_of(database, caller) == OPENING + FIVE


@pytest.mark.parametrize(("left", "owed"), [("5", "0"), ("2.5", "2.5"), ("0", "5")])
async def test_what_is_taken_back_is_what_is_there_and_the_rest_is_owed(
    database: Database, caller: Caller, left: str, owed: str
) -> None:
    top_up_id = await start(database, caller)
    await settle(database, top_up_id, paid())
    spent = OPENING + FIVE - Decimal(left)
    if spent:
        await manage_accounts.credit(database, caller.id, -spent, note="spent", actor="test")

    settled = await settle(database, top_up_id, Reversed("refunded"))

    assert (settled.top_up.state, settled.top_up.owed) == (TopUpState.REVERSED, Decimal(owed))
    assert settled.top_up.problem == "refunded"
    assert await moved(database, top_up_id) == (FIVE, FIVE - Decimal(owed))
    assert await balance_of(database, caller) == Decimal(left) - (FIVE - Decimal(owed))
    async with database.connection() as connection:
        account = await accounts.find(connection, caller.id)
        changed = await connection.fetchval(
            "SELECT count(*) FROM changes WHERE account_id = $1 AND actor = 'gateway'", caller.id
        )
    assert account is not None
    assert account.suspended_at is not None
    assert changed == 1
    # It is not credited again, whoever says that it was paid after all.
    assert (await settle(database, top_up_id, paid())).top_up.state is TopUpState.REVERSED


async def test_what_is_spent_while_a_top_up_is_taken_back_is_not_taken_too(
    database: Database, caller: Caller
) -> None:
    top_up_id = await start(database, caller)
    await settle(database, top_up_id, paid())
    async with database.transaction() as spending:
        await ledger.adjust(spending, caller.id, 3 - OPENING - FIVE, note="spent", actor="test")
        reversing = asyncio.create_task(settle(database, top_up_id, Reversed("refunded")))
        async with database.connection() as connection:
            for _ in range(2000):
                if await connection.fetch(BLOCKED):
                    break
                await asyncio.sleep(0.01)
    taken = (await reversing).top_up
    assert (taken.state, taken.owed) == (TopUpState.REVERSED, Decimal(2))
    assert await balance_of(database, caller) == 0
    assert await moved(database, top_up_id) == (FIVE, Decimal(3))


async def decide(
    database: Database, top_up_id: TopUpId, amount: Decimal | None, reference: str | None = None
) -> Settled:
    return await resolve(
        database, top_up_id, paid=amount, provider_reference=reference, note="seen there", actor=Actor("test")
    )


async def test_the_operator_decides_a_doubt_either_way_and_nothing_else(
    database: Database, caller: Caller
) -> None:
    doubts = [await start(database, caller) for _ in range(2)]
    for one in doubts:
        await settle(database, one, PaymentInDoubt("no answer", is_last=True))

    credited = (await decide(database, doubts[0], Decimal("4.50"))).top_up
    failed = (await decide(database, doubts[1], None)).top_up

    assert credited.state is TopUpState.CREDITED
    assert credited.paid == credited.amount == Decimal("4.50")
    assert credited.provider_reference == f"operator:{credited.id}"
    assert (failed.state, failed.reason) == (TopUpState.FAILED, "DECIDED")
    for decided in (credited, failed):
        assert (decided.note, decided.resolved_by, decided.due_at) == ("seen there", "test", None)
    assert await balance_of(database, caller) == OPENING + Decimal("4.50")
    waiting = await start(database, caller)
    for one in (doubts[0], doubts[1], waiting):
        with pytest.raises(OperatorError, match="Operators cannot change that"):
            await decide(database, one, None)
    with pytest.raises(OperatorError, match="no such top-up"):
        await decide(database, TopUpId(new_id(1)), FIVE)
    assert await balance_of(database, caller) == OPENING + Decimal("4.50")


async def test_a_decision_worth_nothing_credits_nothing(database: Database, caller: Caller) -> None:
    doubt = await start(database, caller, rate=Decimal(20))
    await settle(database, doubt, PaymentInDoubt("no answer", is_last=True))
    with pytest.raises(OperatorError, match="worth less than"):
        await decide(database, doubt, Decimal("0.001"))
    assert (await read(database, doubt)).state is TopUpState.DOUBT
    # The smallest amount that is worth something.
    assert (await decide(database, doubt, Decimal("0.002"))).top_up.amount == Decimal("0.0001")


async def test_a_decision_names_the_payment_it_credits(database: Database, caller: Caller) -> None:
    named, known, taken = [await start(database, caller) for _ in range(3)]
    await settle(database, known, StillPending(provider_reference="of the provider"))
    for one in (named, known, taken):
        await settle(database, one, PaymentInDoubt("no answer", is_last=True))
    reference = f"ref-{next(_references)}"
    credited = await decide(database, named, FIVE, reference)
    assert (credited.before, credited.top_up.provider_reference) == (TopUpState.DOUBT, reference)
    assert credited.moved
    assert (await decide(database, known, FIVE)).top_up.provider_reference == "of the provider"
    with pytest.raises(OperatorError, match="already credited to another"):
        await decide(database, taken, FIVE, reference)
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT detail FROM changes WHERE account_id = $1 AND what = 'top-up decided' ORDER BY id",
            caller.id,
        )
    assert [row["detail"].rpartition(": ")[2] for row in rows] == ["5.0000 USD credited"] * 2


async def test_an_operator_has_what_a_provider_knows_of_polled_again(
    database: Database, caller: Caller
) -> None:
    polled, elsewhere = await start(database, caller), await start(database, caller, rate=Decimal(20))
    reversed_ = await start(database, caller)
    for one in (polled, elsewhere):
        await settle(database, one, NotPaid(FailureReason.DECLINED, "no money"))
        assert (await read(database, one)).due_at is None
        await poll_again(database, one, Actor("Rudo"))
        assert (await read(database, one)).due_at is not None
    await settle(database, reversed_, paid())
    await settle(database, reversed_, Reversed("refunded"))
    for one in (reversed_, TopUpId(new_id(1))):
        with pytest.raises(OperatorError, match="cannot be checked with its provider"):
            await poll_again(database, one, Actor("Rudo"))
    assert (await read(database, reversed_)).due_at is None
    # Deposits and vouchers of our own are in our own tables.
    found = await read(database, elsewhere)
    assert not can_poll(replace(found, provider=Issuer.OWN))
    assert not can_poll(replace(found, method=Method.USDT))
    assert can_poll(replace(found, method=Method.PAYNOW, provider=Issuer.OWN))


async def test_while_it_is_open_it_is_polled_and_its_pin_is_kept_and_no_longer(
    database: Database, caller: Caller
) -> None:
    sealed = Seal("secret").close("1234567890123456")
    words: Sequence[tuple[ProviderAnswer, bool, bool]] = (
        (StillPending(), True, True),
        (PaymentInDoubt("no answer"), True, True),
        (Unreachable("not reached"), True, True),
        (PaymentInDoubt("no answer", is_last=True), True, False),
        (NotPaid(FailureReason.VOUCHER_NOT_VALID, "used"), False, False),
        (Expired(), False, False),
        (Paid("pin-kept", Decimal(100), b"change"), False, False),
    )
    for answer, is_open, is_polled in words:
        top_up_id = await start(database, caller, None, rate=Decimal(20), sealed_pin=sealed)
        found = (await settle(database, top_up_id, answer)).top_up
        assert (found.sealed_pin is not None, found.due_at is not None) == (is_polled, is_polled), answer
        assert (found.finished_at is None) is is_open, answer
        if is_open:
            # Of one PIN there is at most one that is open.
            await settle(database, top_up_id, Expired())
    assert found.sealed_change == b"change"
    async with database.connection() as connection:
        await top_ups.forget_change(connection, (await new_caller(database.url)).id, found.id)
        assert (await read(database, found.id)).sealed_change == b"change"
        await top_ups.forget_change(connection, caller.id, found.id)
    assert (await read(database, found.id)).sealed_change is None


async def test_a_claim_says_whether_the_provider_may_have_been_asked_before(
    database: Database, caller: Caller
) -> None:
    top_up_id = await start(database, caller)

    async def claim(lease_s: float) -> bool | None:
        async with database.transaction() as connection:
            claimed = await top_ups.claim_due(connection, {"paynow": 1_000}, lease_s)
        return next((one.was_asked for one in claimed if one.top_up.id == top_up_id), None)

    assert [await claim(0), await claim(60), await claim(60)] == [False, True, None]
    async with database.connection() as connection:
        # A notice brings it forward; one that is put off waits.
        await top_ups.mark_due(connection, top_up_id)
        assert await claim(0) is True
        await top_ups.postpone(connection, top_up_id, 60)
        assert await claim(0) is None
        await top_ups.postpone(connection, top_up_id, None)
        await top_ups.mark_due(connection, top_up_id)
    assert await claim(60) is True
    assert (await read(database, top_up_id)).tries == 4


async def test_a_notice_about_what_has_ended_is_followed_until_the_provider_says_more(
    database: Database, caller: Caller
) -> None:
    top_up_id = await start(database, caller)
    await settle(database, top_up_id, paid())
    for answer, is_polled in (
        (Unreachable("not reached"), True),
        (PaymentInDoubt("no answer"), True),
        (PaymentInDoubt("no answer", is_last=True), False),
        (Unreachable("not reached"), True),
        (StillPending(), False),
    ):
        found = (await settle(database, top_up_id, answer)).top_up
        assert found.state is TopUpState.CREDITED
        assert ((await read(database, top_up_id)).due_at is not None) is is_polled, answer
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE top_ups SET finished_at = finished_at - interval '181 days' WHERE id = $1", top_up_id
        )
    await settle(database, top_up_id, Unreachable("not reached"))
    assert (await read(database, top_up_id)).due_at is None


async def test_what_one_worker_claims_no_other_worker_waits_for_or_gets(
    database: Database, caller: Caller
) -> None:
    async with database.connection() as connection:
        # What earlier tests left comes later.
        await connection.execute("UPDATE top_ups SET due_at = due_at + interval '1 hour'")
    first = await start(database, caller)
    async with database.transaction() as connection, database.transaction() as other:
        (claimed,) = await top_ups.claim_due(connection, {"paynow": 1}, 60)
        assert claimed.top_up.id == first
        second = await start(database, caller)
        assert [one.top_up.id for one in await top_ups.claim_due(other, {"paynow": 2}, 60)] == [second]


async def test_nobody_sees_anothers_top_up(database: Database, url: str, caller: Caller) -> None:
    top_up_id = await start(database, caller)
    stranger = await new_caller(url)
    async with database.connection() as connection:
        assert await top_ups.find(connection, stranger.id, top_up_id) is None
        assert await top_ups.list_of_account(connection, stranger.id, 10) == []
        found = await top_ups.find(connection, caller.id, top_up_id)
        assert await top_ups.list_of_account(connection, caller.id, 10) == [found]
        assert found in await top_ups.list_latest(connection, 1_000, states=[TopUpState.STARTED])
        assert await top_ups.list_latest(connection, 1_000, methods=[Method.USDT]) == []


# References are few, so that some payments claim another's.
WORDS: Final = some.one_of(
    some.just(StillPending()),
    some.builds(
        Paid,
        some.sampled_from(["a", "b", "c", "d", "e"]),
        some.sampled_from([FIVE, FIVE, FIVE, Decimal("12.50")]),
    ),
    some.just(NotPaid(FailureReason.DECLINED, "no")),
    some.just(Expired()),
    some.builds(PaymentInDoubt, some.just("?"), is_last=some.booleans()),
    some.just(Unreachable("?")),
    some.just(Reversed("back")),
)
# Whose top-up it is about, and how much is spent before.
TURNS: Final = some.lists(
    some.tuples(some.integers(0, 5), WORDS, some.sampled_from([0, 0, 1, 90])), min_size=8, max_size=30
)


def any_history(examples: int) -> Callable[[Any], Any]:
    chosen = settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    return lambda test: chosen(given(turns=TURNS)(test))


@any_history(5)
async def test_after_any_history_money_adds_up(
    database: Database, url: str, turns: Sequence[tuple[int, ProviderAnswer, int]]
) -> None:
    await live_through(database, url, turns)


@pytest.mark.long
@any_history(50)
async def test_after_many_histories_money_adds_up(
    database: Database, url: str, turns: Sequence[tuple[int, ProviderAnswer, int]]
) -> None:
    await live_through(database, url, turns)


async def live_through(
    database: Database, url: str, turns: Sequence[tuple[int, ProviderAnswer, int]]
) -> None:
    callers = [await new_caller(url) for _ in range(2)]
    made = [
        await start(database, callers[place % 2], None, rate=Decimal("1.5"))
        if place >= 4
        else await start(database, callers[place % 2])
        for place in range(6)
    ]
    run = f"{random.getrandbits(64):x}"
    spent = dict.fromkeys((caller.id for caller in callers), Decimal(0))
    for place, answer, wish in turns:
        # The references of another example are another's payments.
        word = Paid(f"{run}-{answer.provider_reference}", answer.paid) if isinstance(answer, Paid) else answer
        caller = callers[place % 2]
        wanted = min(Decimal(wish), await balance_of(database, caller))
        if wanted:
            await manage_accounts.credit(database, caller.id, -wanted, note="spent", actor="test")
            spent[caller.id] += wanted
        before = await read(database, made[place])
        settled = await settle(database, made[place], word)
        assert settled.before is before.state
        if before.state in {TopUpState.FAILED, TopUpState.EXPIRED, TopUpState.REVERSED}:
            assert settled.top_up.state is before.state
    for number, caller in enumerate(callers):
        found = [await read(database, one) for place, one in enumerate(made) if place % 2 == number]
        kept = sum((one.amount or 0 for one in found if one.state is TopUpState.CREDITED), Decimal(0))
        owed = sum((one.owed for one in found), Decimal(0))
        assert await balance_of(database, caller) == OPENING + kept + owed - spent[caller.id]
        for one in found:
            assert one.amount is None or one.amount == to_usd(one.paid or Decimal(0), one.rate)
    assert await broken_promises(database) == []


async def test_what_waits_for_too_long_is_given_up_or_shown_to_the_operator(
    database: Database, caller: Caller
) -> None:
    for answer, state in (
        (StillPending(), TopUpState.EXPIRED),
        (PaymentInDoubt("no answer"), TopUpState.DOUBT),
    ):
        top_up_id = await start(database, caller)
        async with database.connection() as connection:
            await connection.execute(
                "UPDATE top_ups SET created_at = created_at - $2::interval WHERE id = $1",
                top_up_id,
                timedelta(hours=25),
            )
        settled = await settle(database, top_up_id, answer)
        assert (settled.top_up.state, settled.top_up.due_at) == (state, None)
