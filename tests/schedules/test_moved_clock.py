"""Scheduled sends of a database whose own clock is moved to their time, begun by a worker that runs."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.schedules.test_start import add, sent_to
from tests.support.chaos.node import WorkerProcess
from tests.support.delivery.engine import Engine, numbers, open_engine
from tests.support.postgres.moved_clock import MovedClock, run_server_with_clock
from tests.support.processes.service import Caller
from tests.support.schedules.sends import ACTOR, balance_of, get, schedule
from tumira.accounts.passcode_limits import PasscodeLimits
from tumira.audit_log import OPERATOR
from tumira.content.review import add_template
from tumira.content.templates import TemplateVerdict
from tumira.core.ids import ScheduleId
from tumira.identity import manage_accounts
from tumira.replies import manage as replies
from tumira.replies.opt_outs import OptOutSource
from tumira.schedules.store import ScheduleState

PRICE: Final = Decimal("0.04")
CODE: Final = "Your code is 493817."
DEPOT: Final = "Your parcel 77 is at the depot."
# A worker looks every half minute, by a clock that is not moved.
WAIT_S: Final = 90.0

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def moved() -> Iterator[tuple[str, MovedClock]]:
    with run_server_with_clock() as running:
        yield running


@pytest_asyncio.fixture
async def office(moved: tuple[str, MovedClock]) -> AsyncIterator[Engine]:
    async with open_engine(moved[0]) as engine:
        yield engine


async def test_all_is_checked_again_when_the_clock_of_the_database_says_so(
    office: Engine, moved: tuple[str, MovedClock], tmp_path: Path
) -> None:
    url, clock = moved
    database = office.database
    callers: dict[str, Caller] = {}
    made: dict[str, ScheduleId] = {}
    names = ("message", "file", "later", "opted out", "blocked", "limit", "guard", "suspended")
    for name in names:
        callers[name] = await office.open_account("1")
        if name == "file":
            made[name] = await add(office, callers[name].id, 2, is_file=True)
            continue
        text = {"blocked": DEPOT, "guard": CODE}.get(name, "Your parcel 1042 is ready at our counter.")
        minutes = 30 if name == "later" else 10
        made[name] = await schedule(database, callers[name].id, numbers(2), text, minutes)
    worker = WorkerProcess(tmp_path / "worker.log", database_url=url, webhooks="off")
    try:
        # A minute before, things change; that minute is still too early.
        clock.move(timedelta(minutes=9))
        await replies.opt_out(
            database, callers["opted out"].id, numbers(1), None, source=OptOutSource.PAGE, actor=ACTOR
        )
        await add_template(
            database,
            "Your parcel {number} is at the depot.",
            callers["blocked"].id,
            TemplateVerdict.BLOCK,
            note="a test",
            actor=OPERATOR,
        )
        await office.send(callers["limit"], numbers(2))
        await office.rows("UPDATE accounts SET daily_limit = 0.10 WHERE id = $1", callers["limit"].id)
        await manage_accounts.set_passcode_limits(
            database, callers["guard"].id, lambda _: PasscodeLimits(number=1), actor=ACTOR
        )
        await office.send(callers["guard"], numbers(1), CODE)
        await manage_accounts.suspend(database, callers["suspended"].id, suspended=True)
        for name in names:
            assert (await get(database, callers[name].id, made[name])).is_waiting, name

        clock.move(timedelta(minutes=11))

        async def all_ended() -> bool:
            (row,) = await office.rows("SELECT count(*) FROM schedules WHERE held > 0 OR state = 'waiting'")
            return int(row[0]) == 1

        await office.until(all_ended, "not all begin", WAIT_S)
    finally:
        worker.end()
    ended = {name: await get(database, callers[name].id, made[name]) for name in names}
    assert {name: (one.state.value, one.left_out, one.problem) for name, one in ended.items()} == {
        "message": ("sent", 0, None),
        "file": ("sent", 0, None),
        "later": ("waiting", 0, None),
        "opted out": ("sent", 1, None),
        "blocked": ("not_sent", 0, "The text is refused as marketing."),
        "limit": ("not_sent", 0, "It would exceed your daily limit."),
        "guard": ("sent", 1, None),
        "suspended": ("not_sent", 0, "Your account is suspended."),
    }
    # There is no carrier, so the worker refunds what it cannot send: only debits are counted.
    rows = await office.rows(
        "SELECT account_id, sum(amount) AS amount FROM transfers WHERE to_book = 'revenue' GROUP BY 1"
    )
    paid = {row["account_id"]: row["amount"] for row in rows}
    sent = {"message": 2, "file": 2, "opted out": 1, "limit": 2, "guard": 2}
    assert paid == {callers[name].id: count * PRICE for name, count in sent.items()}
    assert ended["later"].held == 2 * PRICE
    assert await balance_of(database, callers["later"].id) == 1 - 2 * PRICE
    one, other = numbers(2)
    assert await sent_to(office) == Counter({one: 4, other: 5})
    assert await office.audit() == []


async def test_after_an_outage_of_hours_only_what_is_not_too_late_is_sent(
    office: Engine, moved: tuple[str, MovedClock], tmp_path: Path
) -> None:
    url, clock = moved
    caller = await office.open_account("1")
    late, too_late = [
        await schedule(office.database, caller.id, numbers(1), minutes=minutes) for minutes in (600, 10)
    ]
    clock.move(timedelta(minutes=10, hours=11))
    worker = WorkerProcess(tmp_path / "worker.log", database_url=url, webhooks="off")
    try:

        async def both_ended() -> bool:
            return not await office.rows("SELECT FROM schedules WHERE state = 'waiting'")

        await office.until(both_ended, "not both end", WAIT_S)
    finally:
        worker.end()
    assert (await get(office.database, caller.id, late)).state is ScheduleState.SENT
    assert (await get(office.database, caller.id, too_late)).problem == (
        "The service was away at that time, and for more than 6 hours."
    )
    assert await sent_to(office) == Counter(numbers(1))
    assert await office.audit() == []
