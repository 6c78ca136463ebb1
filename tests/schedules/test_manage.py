"""Money is held for what is scheduled, follows each change, and comes back on cancel."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.support.delivery.engine import Engine, numbers, open_engine
from tests.support.postgres.databases import clone
from tests.support.processes.service import Caller
from tests.support.schedules.sends import (
    ACTOR,
    TEXT,
    balance_of,
    check_and_schedule,
    get,
    in_minutes,
    make_due,
    schedule,
    send_files,
    start_due,
    try_schedule,
)
from tests.support.uploads.files import check_file
from tumira.accounts import holds
from tumira.audit_log import OPERATOR
from tumira.content.review import add_template, remove_template
from tumira.content.templates import TemplateVerdict
from tumira.core.errors import (
    AccountSuspended,
    FieldError,
    InsufficientBalance,
    Refusal,
    SpendLimitReached,
)
from tumira.core.ids import AccountId, ScheduleId, UploadId
from tumira.identity import manage_accounts
from tumira.postgres.pool import Database
from tumira.schedules import hold_price, manage, store
from tumira.schedules.manage import NotWaiting, Scheduled
from tumira.schedules.store import ScheduleState
from tumira.sending import compose
from tumira.sending.compose import Draft
from tumira.uploads import store as uploads
from tumira.uploads.check_rows import Wanted
from tumira.uploads.send import NoLongerAllowed

PRICE = Decimal("0.04")
OFFER = "Get 20% off your next order with the code SAVE20!"


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


async def test_nothing_can_always_be_held_and_more_than_there_is_never(engine: Engine) -> None:
    caller = await engine.open_account(str(PRICE))
    schedule_id = await schedule(engine.database, caller.id, numbers(1))
    async with engine.database.transaction() as connection:
        assert await holds.hold(connection, caller.id, schedule_id, Decimal(0))
        assert not await holds.hold(connection, caller.id, schedule_id, Decimal("0.01"))
        with pytest.raises(AssertionError, match="no more is released"):
            await holds.release(connection, schedule_id, PRICE + Decimal("0.01"))
        assert await holds.release(connection, schedule_id, Decimal("0.01")) == Decimal("0.01")
        assert await holds.release(connection, schedule_id) == PRICE - Decimal("0.01")
        assert await holds.release(connection, schedule_id) == 0
        assert await holds.hold(connection, caller.id, schedule_id, PRICE)


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
    monkeypatch.setattr(hold_price, "WAITING_MAX", 2)
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


def rows_to(count: int, name: str = "Tariro") -> list[str]:
    return [f"{number},{name}" for number in numbers(count)]


async def test_a_file_replaces_a_scheduled_file_and_the_hold_follows(engine: Engine) -> None:
    caller, database = await engine.open_account("0.40"), engine.database
    first, made = await check_and_schedule(database, caller.id, rows_to(5))
    assert isinstance(made, Scheduled)
    files = [first]
    for count in (10, 2):
        text = f"Dear {{name}}, parcel {count} is at our counter."
        upload_id, changed = await check_and_schedule(database, caller.id, rows_to(count), text, made.id)
        assert changed == made
        # A second press changes nothing more.
        again = await manage.schedule_file(
            database, caller.id, upload_id, count * PRICE, in_minutes(90), ACTOR
        )
        assert again == made
        one = await get(database, caller.id, made.id)
        assert (one.upload_id, one.count, one.cost, one.held) == (
            upload_id,
            count,
            count * PRICE,
            count * PRICE,
        )
        assert await balance_of(database, caller.id) == Decimal("0.40") - count * PRICE
        assert await engine.audit() == []
        # The version before is gone, so nobody sends it by mistake.
        assert not await engine.rows("SELECT FROM uploads WHERE id = $1", files[-1])
        files.append(upload_id)
    dear, refused = await check_and_schedule(database, caller.id, rows_to(11), replaces=made.id)
    assert isinstance(refused, InsufficientBalance)
    assert (await get(database, caller.id, made.id)).upload_id == files[-1]
    await make_due(database, made.id)
    assert await start_due(database) == 1
    await send_files(database)
    late = await manage.schedule_file(database, caller.id, dear, 11 * PRICE, in_minutes(), ACTOR)
    assert late == NotWaiting()
    bodies = await engine.rows("SELECT body FROM batches WHERE account_id = $1", caller.id)
    assert [row["body"] for row in bodies] == ["Dear Tariro, parcel 2 is at our counter."]
    assert await balance_of(database, caller.id) == Decimal("0.40") - 2 * PRICE
    assert await engine.audit() == []


async def test_a_file_whose_texts_are_no_longer_allowed_is_not_scheduled(engine: Engine) -> None:
    caller, database = await engine.open_account("1"), engine.database
    allowed = await add_template(
        database, OFFER, None, TemplateVerdict.ALLOW, note="for tests", actor=OPERATOR
    )
    data = "\n".join(["to,text", f"{numbers(1)[0]},Your parcel is here.", f"{numbers(2)[1]},{OFFER}"])
    upload_id = await check_file(
        database, caller.id, Wanted("people.csv", data.encode(), "{text}", None, None)
    )
    assert isinstance(upload_id, UUID), upload_id
    await remove_template(database, allowed.id, OPERATOR)
    refused = await manage.schedule_file(
        database, caller.id, UploadId(upload_id), 2 * PRICE, in_minutes(), ACTOR
    )
    assert refused == NoLongerAllowed(1)
    assert await engine.rows("SELECT FROM schedules") == []
    assert await balance_of(database, caller.id) == 1


async def test_a_message_becomes_a_file_and_a_cancelled_file_can_be_sent(engine: Engine) -> None:
    caller, other = await engine.open_account("1"), await engine.open_account("1")
    database = engine.database
    schedule_id = await schedule(database, caller.id, numbers(3))
    _upload_id, foreign = await check_and_schedule(database, other.id, rows_to(1), replaces=schedule_id)
    assert foreign == NotWaiting()
    upload_id, made = await check_and_schedule(database, caller.id, rows_to(2), replaces=schedule_id)
    assert made == Scheduled(schedule_id)
    async with database.connection() as connection:
        assert not await store.list_recipients(connection, caller.id, schedule_id)
    assert await balance_of(database, caller.id) == 1 - 2 * PRICE
    assert await manage.cancel(database, caller.id, schedule_id, ACTOR)
    assert await balance_of(database, caller.id) == 1
    # It is a checked file like any other, and no longer the version of a schedule that has ended.
    again = await manage.schedule_file(database, caller.id, upload_id, 2 * PRICE, in_minutes(), ACTOR)
    assert isinstance(again, Scheduled)
    assert again != made


@pytest.mark.parametrize("is_file", [False, True], ids=["message", "file"])
async def test_a_change_and_the_start_never_both_win(engine: Engine, *, is_file: bool) -> None:
    """Whichever locks the schedule first: the old version is sent, or the new one waits with its own hold."""
    caller, database = await engine.open_account("10"), engine.database
    spent = Decimal(0)
    for turn in range(4):
        if is_file:
            _upload_id, made = await check_and_schedule(database, caller.id, rows_to(2))
            assert isinstance(made, Scheduled)
            schedule_id = made.id
            wanted = Wanted("p.csv", "\n".join(["to", *numbers(3)]).encode(), TEXT, None, None)
            new_id = await check_file(database, caller.id, structs.replace(wanted, replaces=schedule_id))
            editing = manage.schedule_file(
                database, caller.id, cast("UploadId", new_id), 3 * PRICE, in_minutes(), ACTOR
            )
        else:
            schedule_id = await schedule(database, caller.id, numbers(2))
            editing = change(database, caller.id, schedule_id, 3)
        await make_due(database, schedule_id)
        both: list[Any] = [editing, start_due(database)]
        results = await asyncio.gather(*(reversed(both) if turn % 2 else both))
        edited, begun = reversed(results) if turn % 2 else results
        one = await get(database, caller.id, schedule_id)
        if begun:
            assert (edited, one.state, one.count) == (NotWaiting(), ScheduleState.SENT, 2)
            await send_files(database)
            spent += 2 * PRICE
        else:
            assert (edited, one.count, one.held) == (Scheduled(schedule_id), 3, 3 * PRICE)
            assert await manage.cancel(database, caller.id, schedule_id, ACTOR)
        assert await balance_of(database, caller.id) == 10 - spent
    assert await engine.audit() == []


async def test_a_declined_send_says_why_and_its_money_comes_back(engine: Engine) -> None:
    caller, database = await engine.open_account("1"), engine.database
    schedule_id = await schedule(database, caller.id, numbers(2))
    assert not await manage.decline(database, caller.id, schedule_id, "Wrong day", ACTOR)
    await engine.rows("UPDATE schedules SET approval_needed = true")
    assert await manage.decline(database, caller.id, schedule_id, "Wrong day", ACTOR)
    one = await get(database, caller.id, schedule_id)
    assert (one.state, one.problem) == (ScheduleState.NOT_SENT, "owner declined it: Wrong day")
    assert await balance_of(database, caller.id) == 1
    assert not await manage.decline(database, caller.id, schedule_id, "Again", ACTOR)
    assert await engine.audit() == []


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
    for one in (schedule_id, waiting):
        await engine.rows(
            "INSERT INTO scheduled_files VALUES ($1, 'a.csv', 'to', '', '', '', '', '{}', clock_timestamp())",
            one,
        )

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
    files = await engine.rows("SELECT schedule_id FROM scheduled_files")
    assert [file["schedule_id"] for file in files] == [waiting]
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
        st.sampled_from(["schedule", "file", "change", "change by file", "cancel", "send", "start", "late"]),
        st.integers(0, 3),
        st.integers(1, 9),
    ),
    max_size=12,
)


def test_holds_and_balance_add_up_through_one_of_everything(shared_url: str) -> None:
    acts = ["schedule", "file", "send", "change", "change by file", "cancel", "late", "start", "schedule"]
    asyncio.run(follow(shared_url, [(act, place % 2, 2 + place) for place, act in enumerate(acts)]))


# Each history is some dozens of transactions and an audit.
@pytest.mark.long
@settings(max_examples=300)
@given(ACTS)
def test_holds_and_balance_are_always_what_there_was(
    shared_url: str, acts: list[tuple[str, int, int]]
) -> None:
    asyncio.run(follow(shared_url, acts))


@dataclass
class Model:
    """What an account must have after each act: its balance, and what is held for each waiting send."""

    engine: Engine
    caller: Caller
    balance: Decimal
    waiting: dict[ScheduleId, Decimal] = field(default_factory=dict)
    files: set[ScheduleId] = field(default_factory=set)

    async def schedule(self, count: int, *, is_file: bool) -> None:
        if is_file:
            _id, made = await check_and_schedule(self.engine.database, self.caller.id, rows_to(count))
        else:
            made = await try_schedule(self.engine.database, self.caller.id, numbers(count))
        assert isinstance(made, Scheduled) == (count * PRICE <= self.balance)
        if isinstance(made, Scheduled):
            self._hold(made.id, count, is_file=is_file)

    async def change(self, chosen: ScheduleId, count: int, *, is_file: bool) -> None:
        if is_file:
            _id, changed = await check_and_schedule(
                self.engine.database, self.caller.id, rows_to(count), replaces=chosen
            )
        else:
            changed = await change(self.engine.database, self.caller.id, chosen, count)
        if chosen in self.files and not is_file:
            assert changed == NotWaiting()
            return
        assert isinstance(changed, Scheduled) == (count * PRICE <= self.balance + self.waiting[chosen])
        if isinstance(changed, Scheduled):
            self._hold(chosen, count, is_file=is_file)

    def _hold(self, schedule_id: ScheduleId, count: int, *, is_file: bool) -> None:
        self.balance += self.waiting.get(schedule_id, Decimal(0)) - count * PRICE
        self.waiting[schedule_id] = count * PRICE
        if is_file:
            self.files.add(schedule_id)

    async def send(self, count: int) -> None:
        if count * PRICE <= self.balance:
            await self.engine.send(self.caller, numbers(count))
            self.balance -= count * PRICE

    async def start(self, chosen: ScheduleId, *, is_late: bool) -> None:
        await make_due(self.engine.database, chosen, timedelta(hours=7 if is_late else 0))
        assert await start_due(self.engine.database) == 1
        await send_files(self.engine.database)
        held = self.waiting.pop(chosen)
        self.balance += held if is_late else 0

    async def cancel(self, chosen: ScheduleId) -> None:
        assert await manage.cancel(self.engine.database, self.caller.id, chosen, ACTOR)
        self.balance += self.waiting.pop(chosen)

    async def check(self) -> None:
        assert await balance_of(self.engine.database, self.caller.id) == self.balance
        (row,) = await self.engine.rows(
            "SELECT coalesce(sum(held), 0) FROM schedules WHERE account_id = $1", self.caller.id
        )
        assert row[0] == sum(self.waiting.values())


async def follow(url: str, acts: list[tuple[str, int, int]]) -> None:
    """Do as a plain model says: what is held and spent never exceeds the balance, and nothing gets lost."""
    async with open_engine(url) as engine:
        model = Model(engine, await engine.open_account("0.50"), Decimal("0.50"))
        for act, place, count in acts:
            await perform(model, act, place, count)
            await model.check()
        assert await engine.audit() == []
        for schedule_id in list(model.waiting):
            await model.cancel(schedule_id)
        await model.check()


async def perform(model: Model, act: str, place: int, count: int) -> None:
    if act in {"schedule", "file"}:
        await model.schedule(count, is_file=act == "file")
    elif act == "send":
        await model.send(count)
    elif place < len(model.waiting):
        chosen = list(model.waiting)[place]
        if act in {"change", "change by file"}:
            await model.change(chosen, count, is_file=act == "change by file")
        elif act == "cancel":
            await model.cancel(chosen)
        else:
            await model.start(chosen, is_late=act == "late")
