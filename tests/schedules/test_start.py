"""A scheduled send begins once, at its time, and is checked again then."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Final

import pytest

from tests.support.chaos.shifted_clock import shift_clock
from tests.support.delivery.engine import Engine, numbers
from tests.support.schedules.sends import (
    ACTOR,
    balance_of,
    check_and_schedule,
    get,
    make_due,
    schedule,
    send_files,
    start_due,
)
from tumira.accounts.passcode_limits import PasscodeLimits
from tumira.accounts.store import SYSTEM
from tumira.audit_log import OPERATOR
from tumira.content.review import add_template
from tumira.content.templates import TemplateVerdict
from tumira.core.ids import AccountId, ScheduleId
from tumira.identity import manage_accounts
from tumira.pricing.actions import set_price
from tumira.pricing.destinations import Price, PriceStatus
from tumira.replies import manage as replies
from tumira.replies.opt_outs import OptOutSource
from tumira.schedules import manage, store
from tumira.schedules import start as starting
from tumira.schedules.manage import Scheduled
from tumira.schedules.store import Schedule, ScheduleState
from tumira.schedules.worker import run_scheduler

PRICE: Final = Decimal("0.04")
NOTHING: Final = Decimal(0)
OFFER: Final = "Get 20% off your next order with the code SAVE20!"


async def notices(engine: Engine) -> list[str]:
    rows = await engine.rows("SELECT body FROM batches WHERE account_id = $1 ORDER BY id", SYSTEM)
    return [row["body"] for row in rows]


async def let_owner_be_told(engine: Engine) -> None:
    """Give every account an owner who has proved the phone and wants notices."""
    await engine.rows(
        "INSERT INTO logins (account_id, password_hash, phone_proved_at)"
        " SELECT id, '', now() FROM accounts WHERE phone <> 'system' ON CONFLICT DO NOTHING"
    )


async def sent_to(engine: Engine) -> Counter[str]:
    rows = await engine.rows(
        "SELECT recipient, count(*) FROM messages WHERE account_id <> $1 GROUP BY 1", SYSTEM
    )
    return Counter({row["recipient"]: row["count"] for row in rows})


@pytest.mark.parametrize("count", [3, 60])
async def test_a_message_begins_at_its_time_and_is_paid_from_its_hold(engine: Engine, count: int) -> None:
    """A send to more than fifty is written in another way."""
    caller = await engine.open_account("10")
    schedule_id = await schedule(engine.database, caller.id, numbers(count))
    assert await start_due(engine.database) == 0
    await make_due(engine.database, schedule_id)
    assert await start_due(engine.database) == 1
    made = await get(engine.database, caller.id, schedule_id)
    assert (made.state, made.held, made.sent_cost) == (ScheduleState.SENT, NOTHING, count * PRICE)
    assert await balance_of(engine.database, caller.id) == 10 - count * PRICE
    (batch,) = await engine.rows("SELECT id, reference, total_cost FROM batches WHERE id = $1", made.batch_id)
    assert (batch["reference"], batch["total_cost"]) == ("order 7", count * PRICE)
    assert await sent_to(engine) == Counter(numbers(count))
    # All of the balance may be held: the release and the charge are one.
    poor = await engine.open_account(str(count * PRICE))
    await make_due(engine.database, await schedule(engine.database, poor.id, numbers(count)))
    assert await start_due(engine.database) == 1
    assert await balance_of(engine.database, poor.id) == 0


async def refused(engine: Engine, schedule_id: ScheduleId, caller_id: object) -> Schedule:
    """Begin a send that is not made: its money is back, nothing was sent, and its owner gets a notice."""
    await let_owner_be_told(engine)
    await make_due(engine.database, schedule_id)
    assert await start_due(engine.database) == 1
    made = await get(engine.database, caller_id, schedule_id)  # type: ignore[arg-type]
    assert (made.state, made.held, made.batch_id) == (ScheduleState.NOT_SENT, NOTHING, None)
    assert not await sent_to(engine)
    (told,) = await notices(engine)
    assert made.problem is not None
    assert made.problem in told
    assert "back in your balance" in told
    return made


async def raise_price(engine: Engine, price: str) -> None:
    await set_price(engine.database, Price("sms", "ZW", Decimal(price), PriceStatus.ACTIVE), OPERATOR)


async def test_a_price_that_rose_beyond_the_balance_sends_nothing(engine: Engine) -> None:
    caller = await engine.open_account("0.20")
    schedule_id = await schedule(engine.database, caller.id, numbers(5))
    await raise_price(engine, "0.05")
    made = await refused(engine, schedule_id, caller.id)
    assert made.problem == "It costs US$0.25 now, and your balance is US$0.20."
    assert await balance_of(engine.database, caller.id) == Decimal("0.20")


async def test_a_price_that_changed_is_paid_as_it_is_then(engine: Engine) -> None:
    caller = await engine.open_account("1")
    for price in ("0.05", "0.03"):
        before = await balance_of(engine.database, caller.id)
        schedule_id = await schedule(engine.database, caller.id, numbers(5))
        await raise_price(engine, price)
        await make_due(engine.database, schedule_id)
        assert await start_due(engine.database) == 1
        made = await get(engine.database, caller.id, schedule_id)
        assert (made.state, made.sent_cost) == (ScheduleState.SENT, 5 * Decimal(price))
        assert await balance_of(engine.database, caller.id) == before - 5 * Decimal(price)


async def test_a_text_that_is_refused_by_then_is_not_sent(engine: Engine) -> None:
    caller = await engine.open_account("1")
    schedule_id = await schedule(engine.database, caller.id, numbers(2), "Your parcel 77 is at the depot.")
    await add_template(
        engine.database,
        "Your parcel {number} is at the depot.",
        caller.id,
        TemplateVerdict.BLOCK,
        note="a test",
        actor=OPERATOR,
    )
    made = await refused(engine, schedule_id, caller.id)
    assert made.problem == "The text is refused as marketing."
    # The owner finds it among the refused texts, to ask for a review.
    assert len(await engine.rows("SELECT FROM content_refusals WHERE account_id = $1", caller.id)) == 1


async def test_a_suspended_account_a_limit_and_opt_outs_stop_it(engine: Engine) -> None:
    caller = await engine.open_account("1")
    schedule_id = await schedule(engine.database, caller.id, numbers(2))
    await replies.opt_out(engine.database, caller.id, numbers(2), None, source=OptOutSource.PAGE, actor=ACTOR)
    made = await refused(engine, schedule_id, caller.id)
    assert made.problem == "None of the recipients can be sent to any more."
    assert await balance_of(engine.database, caller.id) == 1
    for statement, problem in (
        ("UPDATE accounts SET daily_limit = 0.04 WHERE id = $1", "It would exceed your daily limit."),
        ("UPDATE accounts SET call_limit = 0.04 WHERE id = $1", "It costs more than your limit per send."),
        ("UPDATE accounts SET suspended_at = now() WHERE id = $1", "Your account is suspended."),
    ):
        other = await engine.open_account("1")
        schedule_id = await schedule(engine.database, other.id, numbers(2))
        await engine.rows(statement, other.id)
        await make_due(engine.database, schedule_id)
        assert await start_due(engine.database) == 1
        assert (await get(engine.database, other.id, schedule_id)).problem == problem
        assert await balance_of(engine.database, other.id) == 1


async def test_who_opted_out_is_left_out_and_not_paid_for(engine: Engine) -> None:
    caller = await engine.open_account("1")
    schedule_id = await schedule(engine.database, caller.id, numbers(3))
    await replies.opt_out(engine.database, caller.id, numbers(1), None, source=OptOutSource.PAGE, actor=ACTOR)
    await make_due(engine.database, schedule_id)
    assert await start_due(engine.database) == 1
    made = await get(engine.database, caller.id, schedule_id)
    assert (made.left_out, made.sent_cost) == (1, 2 * PRICE)
    assert await balance_of(engine.database, caller.id) == 1 - 2 * PRICE


async def test_the_passcode_guard_counts_what_was_sent_until_then(engine: Engine) -> None:
    caller = await engine.open_account("1")
    await manage_accounts.set_passcode_limits(
        engine.database, caller.id, lambda _: PasscodeLimits(number=1), actor=ACTOR
    )
    one, other = numbers(2)
    some, none = [
        await schedule(engine.database, caller.id, to, "Your code is 493817.") for to in ([one, other], [one])
    ]
    await engine.send(caller, [one])
    for schedule_id in (some, none):
        await make_due(engine.database, schedule_id)
    assert await start_due(engine.database) == 2
    assert await sent_to(engine) == Counter([one, other])
    made = await get(engine.database, caller.id, some)
    assert (made.state, made.left_out, made.sent_cost) == (ScheduleState.SENT, 1, PRICE)
    made = await get(engine.database, caller.id, none)
    assert made.problem == "None of the recipients can be sent to any more."
    assert await balance_of(engine.database, caller.id) == 1 - 2 * PRICE
    assert await engine.audit() == []


async def test_the_passcode_guard_stops_a_range_when_sends_begin(engine: Engine) -> None:
    """Nothing was counted while they waited, so each of them was scheduled."""
    caller = await engine.open_account("1")
    await manage_accounts.set_passcode_limits(
        engine.database, caller.id, lambda _: PasscodeLimits(range=2), actor=ACTOR
    )
    to = numbers(5)
    some, none = [
        await schedule(engine.database, caller.id, part, "Your code is 493817.") for part in (to[:2], to[2:3])
    ]
    rows = [f"{number},49381{place}" for place, number in enumerate(to[3:])]
    upload_id, made = await check_and_schedule(engine.database, caller.id, rows, "Your code is {name}.")
    assert isinstance(made, Scheduled)
    for schedule_id in (some, none, made.id):
        await make_due(engine.database, schedule_id)
        assert await start_due(engine.database) == 1
    await send_files(engine.database)
    assert await sent_to(engine) == Counter(to[:2])
    problem = (await get(engine.database, caller.id, none)).problem
    assert problem == "None of the recipients can be sent to any more."
    left_out = await engine.rows("SELECT code FROM upload_faults WHERE upload_id = $1", upload_id)
    assert [row["code"] for row in left_out] == ["RECIPIENT_LIMIT"] * 2
    assert (await get(engine.database, caller.id, made.id)).held == 0
    assert await balance_of(engine.database, caller.id) == 1 - 2 * PRICE
    assert await engine.audit() == []


async def test_after_an_outage_it_begins_late_but_not_too_late(engine: Engine) -> None:
    caller = await engine.open_account("1")
    late, too_late = [await schedule(engine.database, caller.id, numbers(1)) for _ in range(2)]
    await make_due(engine.database, late, timedelta(hours=5, minutes=59))
    await make_due(engine.database, too_late, timedelta(hours=6, seconds=1))
    assert await start_due(engine.database) == 2
    assert (await get(engine.database, caller.id, late)).state is ScheduleState.SENT
    made = await get(engine.database, caller.id, too_late)
    assert made.state is ScheduleState.NOT_SENT
    assert await balance_of(engine.database, caller.id) == 1 - PRICE


async def test_without_approval_it_does_not_begin(engine: Engine) -> None:
    caller = await engine.open_account("1")
    approved, forgotten = [await schedule(engine.database, caller.id, numbers(1)) for _ in range(2)]
    await engine.rows("UPDATE schedules SET approval_needed = true")
    assert await manage.approve(engine.database, caller.id, approved, ACTOR)
    assert not await manage.approve(engine.database, caller.id, approved, ACTOR)
    for schedule_id in (approved, forgotten):
        await make_due(engine.database, schedule_id)
    assert await start_due(engine.database) == 2
    assert (await get(engine.database, caller.id, approved)).state is ScheduleState.SENT
    assert (await get(engine.database, caller.id, forgotten)).problem == "Nobody approved it in time."
    assert await balance_of(engine.database, caller.id) == 1 - PRICE


@pytest.mark.parametrize("is_file", [False, True], ids=["message", "file"])
async def test_a_price_that_rose_above_the_rule_needs_an_approval(engine: Engine, *, is_file: bool) -> None:
    caller = await engine.open_account("1")
    await engine.rows("UPDATE accounts SET approval_above = 0.20 WHERE id = $1", caller.id)
    schedule_id = await add(engine, caller.id, 5, is_file=is_file)
    assert not (await get(engine.database, caller.id, schedule_id)).lacks_approval
    await raise_price(engine, "0.05")
    await make_due(engine.database, schedule_id)
    assert await start_due(engine.database) == 1
    assert (await get(engine.database, caller.id, schedule_id)).problem == "Nobody approved it in time."
    assert await balance_of(engine.database, caller.id) == 1
    assert not await sent_to(engine)


async def add(engine: Engine, account_id: AccountId, count: int, *, is_file: bool) -> ScheduleId:
    if not is_file:
        return await schedule(engine.database, account_id, numbers(count))
    rows = [f"{number},Tariro" for number in numbers(count)]
    _upload_id, made = await check_and_schedule(engine.database, account_id, rows)
    assert isinstance(made, Scheduled), made
    return made.id


async def test_a_file_pays_each_chunk_from_its_hold(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tumira.uploads.check_rows.CHUNK_MAX", 2)
    monkeypatch.setattr("tumira.uploads.check_file.BRIEF_S", 2.0)
    caller = await engine.open_account(str(5 * PRICE))
    rows = [f"{number},Tariro" for number in numbers(5)]
    upload_id, made = await check_and_schedule(engine.database, caller.id, rows, "Dear {name}, it is here.")
    assert isinstance(made, Scheduled)
    assert await balance_of(engine.database, caller.id) == 0
    await replies.opt_out(engine.database, caller.id, numbers(1), None, source=OptOutSource.PAGE, actor=ACTOR)
    await make_due(engine.database, made.id)
    assert await start_due(engine.database) == 1
    # It is on its way: all of its money is still held.
    assert (await get(engine.database, caller.id, made.id)).held == 5 * PRICE
    assert await engine.audit() == []
    await send_files(engine.database)
    assert await sent_to(engine) == Counter(numbers(5)[1:])
    ended = await get(engine.database, caller.id, made.id)
    assert (ended.state, ended.held) == (ScheduleState.SENT, NOTHING)
    # Who opted out was not paid for.
    assert await balance_of(engine.database, caller.id) == PRICE
    (upload,) = await engine.rows("SELECT state FROM uploads WHERE id = $1", upload_id)
    assert upload["state"] == "sent"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE uploads SET state = 'checked'", "The file is not there any more."),
        ("DELETE FROM uploads", "The file is not there any more."),
        ("UPDATE accounts SET suspended_at = now()", "suspended"),
        ("UPDATE accounts SET call_limit = 0.07", "more than your limit per send"),
        ("UPDATE accounts SET approval_above = 0.07", "Nobody approved it in time."),
    ],
)
async def test_a_file_that_cannot_begin_any_more_says_why_and_releases_its_money(
    engine: Engine, change: str, problem: str
) -> None:
    caller, database = await engine.open_account("1"), engine.database
    schedule_id = await scheduled_file(engine, caller.id)
    await engine.rows(change)
    await make_due(database, schedule_id)
    assert await start_due(database) == 1
    ended = await get(database, caller.id, schedule_id)
    assert ended.state is ScheduleState.NOT_SENT
    assert problem in str(ended.problem)
    assert (ended.held, await balance_of(database, caller.id)) == (NOTHING, Decimal(1))
    assert await sent_to(engine) == Counter()


async def scheduled_file(engine: Engine, account_id: AccountId) -> ScheduleId:
    _, made = await check_and_schedule(engine.database, account_id, [f"{one},Rudo" for one in numbers(2)])
    assert isinstance(made, Scheduled), made
    return made.id


async def test_a_file_that_stops_half_way_releases_the_rest(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tumira.uploads.check_rows.CHUNK_MAX", 2)
    monkeypatch.setattr("tumira.uploads.check_file.BRIEF_S", 2.0)
    caller = await engine.open_account("1")
    rows = [f"{number},Tariro" for number in numbers(4)]
    _upload_id, made = await check_and_schedule(engine.database, caller.id, rows)
    assert isinstance(made, Scheduled)
    await let_owner_be_told(engine)
    await make_due(engine.database, made.id)
    assert await start_due(engine.database) == 1
    await manage_accounts.suspend(engine.database, caller.id, suspended=True)
    await send_files(engine.database)
    assert await balance_of(engine.database, caller.id) == 1
    assert (await get(engine.database, caller.id, made.id)).held == 0
    assert any("stopped" in text for text in await notices(engine))


async def test_texts_of_a_file_are_judged_again_by_a_new_content_check(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await engine.open_account("1")
    rows = [f"{numbers(1)[0]},Tariro", f"{numbers(2)[1]},{OFFER}"]
    monkeypatch.setattr("tumira.uploads.check_rows.check_text", lambda *_: None)
    upload_id, made = await check_and_schedule(engine.database, caller.id, rows, "{name}: it is here.")
    monkeypatch.undo()
    assert isinstance(made, Scheduled)
    await engine.rows("UPDATE schedules SET judged_by = 'an older one'")
    await let_owner_be_told(engine)
    await make_due(engine.database, made.id)
    assert await start_due(engine.database) == 1
    await send_files(engine.database)
    assert await sent_to(engine) == Counter(numbers(1))
    assert await balance_of(engine.database, caller.id) == 1 - PRICE
    assert any("refused and were left out" in text for text in await notices(engine))
    assert len(await engine.rows("SELECT FROM upload_faults WHERE upload_id = $1", upload_id)) == 1


async def begin_at_once(engine: Engine, count: int) -> None:
    """Let workers meet in the database at the time of all schedules."""
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(start_due_once(engine))


async def start_due_once(engine: Engine) -> None:
    while True:
        async with engine.database.connection() as connection:
            found = await store.find_next(connection, [])
        if found is None or found.wait_s > 0:
            return
        await starting.start(engine.database, found)


async def test_many_workers_begin_each_once(engine: Engine) -> None:
    caller = await engine.open_account("10")
    for place in range(8):
        schedule_id = await schedule(engine.database, caller.id, numbers(2, start=2 * place))
        await make_due(engine.database, schedule_id)
    await begin_at_once(engine, 4)
    assert await sent_to(engine) == Counter(numbers(16))
    assert await balance_of(engine.database, caller.id) == 10 - 16 * PRICE


async def test_a_worker_without_the_lock_is_caught(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of the test above: the key that is made from the schedule bills once, and the rest says so."""
    caller = await engine.open_account("10")
    schedule_id = await schedule(engine.database, caller.id, numbers(2))
    await make_due(engine.database, schedule_id)
    async with engine.database.connection() as connection:
        due = await store.find_next(connection, [])
        seen = await store.find(connection, caller.id, schedule_id)
    assert due is not None
    assert await starting.start(engine.database, due)

    async def claim(*_: object) -> Schedule | None:
        return seen

    monkeypatch.setattr(store, "claim", claim)
    with pytest.raises(AssertionError):
        await starting.start(engine.database, due)
    assert await sent_to(engine) == Counter(numbers(2))
    assert await balance_of(engine.database, caller.id) == 10 - 2 * PRICE


async def until(engine: Engine, condition: Callable[[Schedule], bool], *key: object) -> None:
    async def met() -> bool:
        return condition(await get(engine.database, *key))  # type: ignore[arg-type]

    await engine.until(met, "the schedule does not get there")


async def test_a_loop_wakes_at_the_time_and_goes_past_what_fails(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await engine.open_account("10")
    broken, soon = [await schedule(engine.database, caller.id, numbers(1)) for _ in range(2)]
    await make_due(engine.database, broken)
    await engine.rows(
        "UPDATE schedules SET start_at = clock_timestamp() + interval '1 second' WHERE id = $1", soon
    )
    begin = starting.start

    async def fail(database: object, due: store.NextSchedule) -> bool:
        if due.id == broken:
            raise RuntimeError("a fault of ours")
        return await begin(database, due)  # type: ignore[arg-type]

    monkeypatch.setattr("tumira.schedules.worker.start", fail)
    task = asyncio.create_task(run_scheduler(engine.database))
    await until(engine, lambda one: one.state is ScheduleState.SENT, caller.id, soon)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await get(engine.database, caller.id, broken)).is_waiting


@pytest.mark.parametrize(
    "by", [timedelta(hours=100), pytest.param(-timedelta(hours=100), marks=pytest.mark.long)]
)
async def test_a_node_with_a_wrong_clock_begins_neither_early_nor_late(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, by: timedelta
) -> None:
    caller = await engine.open_account("10")
    due, waiting = [await schedule(engine.database, caller.id, numbers(1)) for _ in range(2)]
    shift_clock(monkeypatch, by)
    await make_due(engine.database, due)
    assert await start_due(engine.database) == 1
    assert (await get(engine.database, caller.id, due)).state is ScheduleState.SENT
    assert (await get(engine.database, caller.id, waiting)).is_waiting
