"""Money is held for what is scheduled, follows each change, and comes back on cancel."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.delivery.engine import Engine, numbers, open_engine
from tests.support.postgres.databases import clone
from tests.support.schedules.sends import (
    ACTOR,
    TEXT,
    balance_of,
    check_and_schedule,
    get,
    in_minutes,
    make_due,
    schedule,
    start_due,
    try_schedule,
)
from tumira.core.errors import (
    AccountSuspended,
    FieldError,
    InsufficientBalance,
    Refusal,
    SpendLimitReached,
)
from tumira.core.ids import AccountId, ScheduleId
from tumira.identity import manage_accounts
from tumira.postgres.pool import Database
from tumira.schedules import manage, store
from tumira.schedules.manage import NotWaiting, Scheduled
from tumira.schedules.store import ScheduleState
from tumira.sending import compose
from tumira.sending.compose import Draft
from tumira.uploads import store as uploads

PRICE = Decimal("0.04")


async def change(
    database: Database, account_id: AccountId, schedule_id: ScheduleId, to: int, minutes: float = 20
) -> Scheduled | NotWaiting | Refusal:
    draft = Draft(" ".join(numbers(to)), TEXT, "")
    review = await compose.examine(database, account_id, draft)
    return await manage.change_message(
        database, account_id, schedule_id, draft, review, in_minutes(minutes), ACTOR
    )


async def test_money_is_held_from_the_schedule_to_the_cancel(engine: Engine) -> None:
    caller = await engine.open_account("1")
    schedule_id = await schedule(engine.database, caller.id, numbers(5))
    assert await balance_of(engine.database, caller.id) == 1 - 5 * PRICE
    made = await get(engine.database, caller.id, schedule_id)
    assert (made.state, made.held, made.cost, made.count) == (ScheduleState.WAITING, 5 * PRICE, 5 * PRICE, 5)
    # The audit of the held book.
    assert await engine.audit() == []
    assert await manage.cancel(engine.database, caller.id, schedule_id, ACTOR)
    assert await balance_of(engine.database, caller.id) == 1
    assert (await get(engine.database, caller.id, schedule_id)).state is ScheduleState.CANCELLED
    assert not await manage.cancel(engine.database, caller.id, schedule_id, ACTOR)
    books = await engine.rows(
        "SELECT from_book, to_book, amount FROM transfers WHERE schedule_id = $1 ORDER BY id", schedule_id
    )
    assert [tuple(row) for row in books] == [
        ("customer", "held", 5 * PRICE),
        ("held", "customer", 5 * PRICE),
    ]


async def test_one_form_makes_one_schedule(engine: Engine) -> None:
    caller = await engine.open_account("1")
    draft = Draft(" ".join(numbers(5)), TEXT, "")
    review = await compose.examine(engine.database, caller.id, draft)
    schedule_id = ScheduleId((await engine.rows("SELECT gen_random_uuid()"))[0][0])
    made = [
        await manage.schedule_message(
            engine.database, caller.id, schedule_id, draft, review, in_minutes(), ACTOR
        )
        for _ in range(3)
    ]
    assert made == [Scheduled(schedule_id)] * 3
    assert await balance_of(engine.database, caller.id) == 1 - 5 * PRICE


async def test_nobody_spends_what_is_held(engine: Engine) -> None:
    caller = await engine.open_account("0.40")
    await schedule(engine.database, caller.id, numbers(6))
    refused = await try_schedule(engine.database, caller.id, numbers(5))
    assert isinstance(refused, InsufficientBalance)
    await engine.send(caller, numbers(4))
    assert await balance_of(engine.database, caller.id) == 0


async def test_a_schedule_is_held_to_the_limits_of_its_own_day(engine: Engine) -> None:
    caller = await engine.open_account("10")
    await engine.rows("UPDATE accounts SET call_limit = 0.20, daily_limit = 0.30 WHERE id = $1", caller.id)
    await engine.send(caller, numbers(5))
    # Today's limit is not that of another day; the limit per send is.
    await schedule(engine.database, caller.id, numbers(5))
    assert isinstance(await try_schedule(engine.database, caller.id, numbers(6)), SpendLimitReached)
    await manage_accounts.suspend(engine.database, caller.id, suspended=True, actor=ACTOR)
    assert isinstance(await try_schedule(engine.database, caller.id, numbers(1)), AccountSuspended)


async def test_the_time_is_checked_by_the_databases_clock(engine: Engine) -> None:
    caller = await engine.open_account("10")
    for minutes in (4.9, 90 * 24 * 60 + 1):
        with pytest.raises(FieldError):
            await try_schedule(engine.database, caller.id, numbers(1), minutes=minutes)
    schedule_id = await schedule(engine.database, caller.id, numbers(1))
    with pytest.raises(FieldError):
        await manage.change_start(engine.database, caller.id, schedule_id, in_minutes(1), ACTOR)
    assert await manage.change_start(engine.database, caller.id, schedule_id, in_minutes(60), ACTOR)
    assert await balance_of(engine.database, caller.id) == 10 - PRICE


async def test_an_account_has_so_many_schedules(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manage, "WAITING_MAX", 2)
    caller = await engine.open_account("10")
    for _ in range(2):
        await schedule(engine.database, caller.id, numbers(1))
    with pytest.raises(FieldError, match="which is the most"):
        await try_schedule(engine.database, caller.id, numbers(1))
    assert await balance_of(engine.database, caller.id) == 10 - 2 * PRICE


async def test_a_change_holds_what_the_new_message_costs(engine: Engine) -> None:
    caller = await engine.open_account("0.40")
    schedule_id = await schedule(engine.database, caller.id, numbers(5))
    for count in (10, 2):
        assert await change(engine.database, caller.id, schedule_id, count) == Scheduled(schedule_id)
        assert await balance_of(engine.database, caller.id) == Decimal("0.40") - count * PRICE
        assert (await get(engine.database, caller.id, schedule_id)).count == count
        assert await engine.audit() == []
    assert isinstance(await change(engine.database, caller.id, schedule_id, 11), InsufficientBalance)
    await make_due(engine.database, schedule_id)
    assert await start_due(engine.database) == 1
    assert await change(engine.database, caller.id, schedule_id, 1) == NotWaiting()
    assert not await manage.cancel(engine.database, caller.id, schedule_id, ACTOR)


async def test_nobody_else_sees_or_touches_a_schedule(engine: Engine) -> None:
    caller, other = await engine.open_account("1"), await engine.open_account("1")
    schedule_id = await schedule(engine.database, caller.id, numbers(1))
    assert not await manage.cancel(engine.database, other.id, schedule_id, ACTOR)
    assert not await manage.change_start(engine.database, other.id, schedule_id, in_minutes(), ACTOR)
    assert not await manage.approve(engine.database, other.id, schedule_id, ACTOR)
    assert await change(engine.database, other.id, schedule_id, 2) == NotWaiting()
    async with engine.database.connection() as connection:
        assert await store.find(connection, other.id, schedule_id) is None
        assert not await store.list_recipients(connection, other.id, schedule_id)


async def test_a_file_is_held_once_and_comes_back(engine: Engine) -> None:
    caller = await engine.open_account("1")
    rows = [f"{number},Tariro" for number in numbers(5)]
    upload_id, made = await check_and_schedule(engine.database, caller.id, rows)
    assert isinstance(made, Scheduled)
    again = await manage.schedule_file(engine.database, caller.id, upload_id, 5 * PRICE, in_minutes(), ACTOR)
    assert again == made
    assert await balance_of(engine.database, caller.id) == 1 - 5 * PRICE
    assert await engine.audit() == []
    assert await manage.cancel(engine.database, caller.id, made.id, ACTOR)
    async with engine.database.connection() as connection:
        upload = await uploads.find(connection, caller.id, upload_id)
    assert upload is not None
    assert upload.state == uploads.CHECKED
    assert await balance_of(engine.database, caller.id) == 1


async def test_a_closed_account_gets_its_money_back(engine: Engine) -> None:
    caller = await engine.open_account("1")
    schedule_id = await schedule(engine.database, caller.id, numbers(5))
    async with engine.database.transaction() as connection:
        await manage.cancel_all(connection, caller.id, ACTOR)
    assert await balance_of(engine.database, caller.id) == 1
    assert (await get(engine.database, caller.id, schedule_id)).state is ScheduleState.CANCELLED


async def test_texts_and_numbers_go_a_week_after_the_end(engine: Engine) -> None:
    caller = await engine.open_account("1")
    schedule_id, waiting = [await schedule(engine.database, caller.id, numbers(2)) for _ in range(2)]
    await manage.cancel(engine.database, caller.id, schedule_id, ACTOR)

    async def age(days: timedelta) -> int:
        async with engine.database.transaction() as connection:
            await connection.execute(
                "UPDATE schedules SET ended_at = clock_timestamp() - $1::interval WHERE ended_at IS NOT NULL",
                days,
            )
            return await store.forget_old(connection, 100)

    assert await age(timedelta(days=6)) == 0
    assert await age(timedelta(days=8)) == 1
    (row,) = await engine.rows("SELECT message, recipients FROM schedules WHERE id = $1", schedule_id)
    assert (row["message"], row["recipients"]) == ("", [])
    assert (await get(engine.database, caller.id, waiting)).message == TEXT
    assert await age(timedelta(days=91)) == 1
    assert len(await engine.rows("SELECT FROM schedules")) == 1


@pytest.fixture(scope="module")
def shared_url(server_url: str) -> Iterator[str]:
    with clone(server_url) as url:
        yield url


# An action, a place among the schedules, and a number of recipients.
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["schedule", "change", "cancel", "send", "start", "late"]),
        st.integers(0, 3),
        st.integers(1, 9),
    ),
    max_size=12,
)


def test_holds_and_balance_add_up_through_one_of_everything(shared_url: str) -> None:
    acts = ["schedule", "schedule", "send", "change", "schedule", "cancel", "late", "start", "schedule"]
    asyncio.run(follow(shared_url, [(act, place % 2, 2 + place) for place, act in enumerate(acts)]))


# Each history is some dozens of transactions and an audit.
@pytest.mark.long
@settings(max_examples=60)
@given(ACTS)
def test_holds_and_balance_are_always_what_there_was(
    shared_url: str, acts: list[tuple[str, int, int]]
) -> None:
    asyncio.run(follow(shared_url, acts))


async def follow(url: str, acts: list[tuple[str, int, int]]) -> None:
    """Do as a plain model says: what is held and spent never exceeds the balance, and nothing gets lost."""
    async with open_engine(url) as engine:
        database = engine.database
        caller = await engine.open_account("0.50")
        balance = Decimal("0.50")
        waiting: dict[ScheduleId, Decimal] = {}
        for act, place, count in acts:
            cost = count * PRICE
            chosen = list(waiting)[place] if place < len(waiting) else None
            if act == "schedule":
                made = await try_schedule(database, caller.id, numbers(count))
                assert isinstance(made, Scheduled) == (cost <= balance)
                if isinstance(made, Scheduled):
                    waiting[made.id] = cost
                    balance -= cost
            elif act == "send" and cost <= balance:
                await engine.send(caller, numbers(count))
                balance -= cost
            elif chosen is None:
                continue
            elif act == "change":
                changed = await change(database, caller.id, chosen, count)
                assert isinstance(changed, Scheduled) == (cost <= balance + waiting[chosen])
                if isinstance(changed, Scheduled):
                    balance += waiting[chosen] - cost
                    waiting[chosen] = cost
            elif act == "cancel":
                assert await manage.cancel(database, caller.id, chosen, ACTOR)
                balance += waiting.pop(chosen)
            elif act in {"start", "late"}:
                await make_due(database, chosen, timedelta(hours=7 if act == "late" else 0))
                assert await start_due(database) == 1
                held = waiting.pop(chosen)
                balance += held if act == "late" else 0
            assert await balance_of(database, caller.id) == balance
            (row,) = await engine.rows(
                "SELECT coalesce(sum(held), 0) FROM schedules WHERE account_id = $1", caller.id
            )
            assert row[0] == sum(waiting.values())
        assert await engine.audit() == []
        for schedule_id in waiting:
            assert await manage.cancel(database, caller.id, schedule_id, ACTOR)
