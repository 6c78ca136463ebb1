"""Maintenance tasks of the worker, each on one node at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final
from uuid import UUID

import structlog

from tumira.accounts import ledger_proofs, money_days
from tumira.approvals import store as approvals
from tumira.carriers import store as carriers
from tumira.carriers.routes import store as route_store
from tumira.carriers.routes.rules import list_losing, rank_carriers
from tumira.content import near_line_store
from tumira.content import store as content_store
from tumira.core import metrics
from tumira.core.ids import ACCOUNT, first_id, write_id
from tumira.core.loops import forever
from tumira.delivery import follow_up, match_receipts
from tumira.delivery.networks import ported
from tumira.delivery.replies import store as reply_parts
from tumira.delivery.store import binds, receipts, references, sender_refusals
from tumira.delivery.store import latency as latencies
from tumira.delivery.store import waiting as places
from tumira.delivery.supervisor import LEASE_S
from tumira.identity import code_rules
from tumira.identity.store import expired
from tumira.mail import outbox
from tumira.operations import retention
from tumira.operations.audit import runs
from tumira.operations.erasure import erase as erase_number
from tumira.operations.retention import RetentionKind
from tumira.postgres import clock, partitions
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement
from tumira.pricing.actions import apply_due_prices
from tumira.pricing.phone_numbers import NUMBERS_KEPT
from tumira.pricing.store import get_tariff, list_countries
from tumira.replies import store as replies
from tumira.schedules import store as schedules
from tumira.sender_names import store as sender_names
from tumira.sending import batches, code_stops
from tumira.sending.lifecycle import TEXT_KEPT
from tumira.sending.lookups import delete_old_idempotency_keys
from tumira.uploads import checks as file_checks
from tumira.uploads import kept_files
from tumira.uploads import store as uploads

KEYS_PER_TURN_MAX: Final = 5_000
TEXTS_PER_TURN_MAX: Final = 1_000
REFUSALS_PER_TURN_MAX: Final = 1_000
GUESTS_PER_TURN_MAX: Final = 1_000
MAILS_PER_TURN_MAX: Final = 1_000
APPROVALS_PER_TURN_MAX: Final = 1_000
PAPERS_PER_TURN_MAX: Final = 100
NUMBERS_PER_TURN_MAX: Final = 2_000
SLOTS_PER_TURN_MAX: Final = 5_000
RANGES_PER_TURN_MAX: Final = 5_000
AUDITS_PER_TURN_MAX: Final = 100
RECEIPTS_PER_TURN_MAX: Final = 5_000
REPLIES_PER_TURN_MAX: Final = 1_000
REFERENCES_PER_TURN_MAX: Final = 5_000
# Of each carrier: one that sends receipts for messages that are not ours fills no disk.
RECEIPTS_KEPT_MAX: Final = 20_000
EXPIRED_PER_TURN_MAX: Final = 20 * follow_up.GROUP_MAX
EXPIRY: Final = "expire waiting messages"
# Each has up to ten thousand rows.
UPLOADS_PER_TURN_MAX: Final = 20
# Events can be sent once more, and tries to deliver them looked at, for 30 days.
EVENT_WEEKS: Final = 5
ATTEMPT_WEEKS: Final = 5
AUDIT_LOOK_S: Final = 5

_log: Final = structlog.get_logger()

SQL_TRY_LOCK: Final = Statement(
    "SELECT pg_try_advisory_xact_lock(hashtext('tumira maintenance'), hashtext(%(name)s))"
)


@dataclass(frozen=True, slots=True)
class MaintenanceTask:
    """A task that runs at an interval, and again at once when it handled `more_at` items or more."""

    name: str
    every_s: float
    do: Callable[[Connection], Awaitable[int]]
    more_at: int | None = None


@dataclass(frozen=True, slots=True)
class MultiStepTask:
    """A task of several transactions, which itself makes sure that one node runs it at a time."""

    name: str
    every_s: float
    do: Callable[[Database], Awaitable[int]]
    more_at: int | None = None


def _some(
    name: str, every_s: float, handle: Callable[[Connection, int], Awaitable[int]], count_max: int
) -> MaintenanceTask:
    """Return a task that handles up to `count_max` items at a time."""

    async def do(connection: Connection) -> int:
        return await handle(connection, count_max)

    return MaintenanceTask(name, every_s, do, more_at=count_max)


async def _create_partitions(connection: Connection) -> int:
    return len(await partitions.create_ahead(connection))


async def _resume_due(connection: Connection) -> int:
    return await follow_up.resume_due(
        connection,
        await carriers.list_settings(connection),
        await clock.read_now(connection),
        await _well_countries(connection),
    )


async def _try_unmatched(database: Database) -> int:
    """Try unmatched receipts, a group in each transaction, until none is due."""
    found = 0
    while True:
        async with database.transaction() as connection:
            if not await SQL_TRY_LOCK.value(connection, name="try unmatched receipts"):
                return found
            tried = await follow_up.retry_unmatched_receipts(connection)
        found += tried.found
        if not tried.is_more_due:
            return found


async def _forget_unmatched(connection: Connection) -> int:
    old = await receipts.delete_old(connection)
    return old + await receipts.delete_beyond(connection, RECEIPTS_KEPT_MAX, RECEIPTS_PER_TURN_MAX)


async def _take_over_from_dead(connection: Connection) -> int:
    # Before their rows are locked: one that froze may hold them.
    await binds.end_sessions_of_dead_workers(connection, LEASE_S)
    return await follow_up.take_over_from_dead(connection, await carriers.list_settings(connection), LEASE_S)


async def _fail_unroutable(connection: Connection) -> int:
    ranked = rank_carriers(
        await carriers.list_active(connection),
        await list_countries(connection),
        await route_store.list_routes(connection),
    )
    return await follow_up.fail_unroutable(connection, [queue for queue, able in ranked.items() if able])


async def _warn_of_losses(connection: Connection) -> int:
    losing = list_losing(await route_store.list_routes(connection), (await get_tariff(connection)).prices)
    for route, price in losing:
        _log.warning(
            "route costs more than its price",
            carrier=route.carrier,
            route=route.queue,
            cost_usd=str(route.cost_usd),
            price_usd=str(price),
        )
    return 0


async def _expire_waiting(database: Database) -> int:
    """Expire messages, a group in each transaction, so that no account is locked for long.

    All waiting messages are read to find them, so one search is for many groups.
    """
    async with database.connection() as connection:
        now = await clock.read_now(connection)
        found = list((await follow_up.list_expired(connection, now, EXPIRED_PER_TURN_MAX)).items())
        well = await _well_countries(connection)
    ended = 0
    for first in range(0, len(found), follow_up.GROUP_MAX):
        group = dict(found[first : first + follow_up.GROUP_MAX])
        async with database.transaction() as connection:
            if not await SQL_TRY_LOCK.value(connection, name=EXPIRY):
                break
            ended += await follow_up.expire(connection, group, well)
    return ended


async def _give_up_receipts(connection: Connection) -> int:
    return await follow_up.give_up_receipts(connection, await clock.read_now(connection))


async def _forget_references(connection: Connection, count_max: int) -> int:
    low, _ = match_receipts.bounds(await clock.read_now(connection))
    return await references.delete_old(connection, low, count_max)


async def _forget_latencies(connection: Connection) -> int:
    return await latencies.delete_old(connection, await clock.read_now(connection), SLOTS_PER_TURN_MAX)


async def _erase_codes(connection: Connection, count_max: int) -> int:
    return await batches.erase_codes(connection, code_rules.LIFETIME, count_max)


async def _forget_guests(connection: Connection) -> int:
    return await expired.delete_expired(connection, GUESTS_PER_TURN_MAX)


async def _forget_uploads(connection: Connection) -> int:
    forgotten = await uploads.erase_old(connection, UPLOADS_PER_TURN_MAX)
    weeks = await partitions.list_weeks(connection, "batches")
    if weeks:
        # Batches of earlier weeks were dropped, and with the last of them goes their file.
        forgotten += await uploads.delete_empty(connection, weeks[0].low, UPLOADS_PER_TURN_MAX)
    forgotten += await file_checks.delete_old(connection, UPLOADS_PER_TURN_MAX)
    return forgotten + await kept_files.delete_old(connection, UPLOADS_PER_TURN_MAX)


async def _erase_reply_texts(connection: Connection, count_max: int) -> int:
    now = await clock.read_now(connection)
    return await replies.erase_texts(connection, _first_id(now - TEXT_KEPT), count_max)


async def _forget_replies(connection: Connection) -> int:
    now = await clock.read_now(connection)
    old = await replies.delete_old(connection, _first_id(now - NUMBERS_KEPT), REPLIES_PER_TURN_MAX)
    return old + await reply_parts.delete_old(connection, REPLIES_PER_TURN_MAX)


def _first_id(at: datetime) -> UUID:
    return first_id(int(at.timestamp() * 1000))


def _drop_weeks(name: str, kind: RetentionKind, weeks_kept: int) -> MultiStepTask:
    async def do(database: Database) -> int:
        return await retention.drop_old(database, kind, weeks_kept)

    return MultiStepTask(name, 3600, do)


def drop_messages(weeks_kept: int) -> MultiStepTask:
    """Return the task that drops messages older than the operator keeps."""
    return _drop_weeks("drop old messages", RetentionKind.MESSAGES, weeks_kept)


async def _add_up_ledgers(connection: Connection) -> int:
    added = await ledger_proofs.add_up(connection)
    for account_id in added.broken:
        _log.error("ledger does not add up", account_id=write_id(ACCOUNT, account_id))
    return added.marks


async def _well_countries(connection: Connection) -> frozenset[str]:
    """Return the countries with a working carrier."""
    countries = await list_countries(connection)
    return frozenset(countries) - await binds.countries_without_carrier(connection)


MAINTENANCE_TASKS: Final[Sequence[MaintenanceTask | MultiStepTask]] = (
    MaintenanceTask("create partitions", 60, _create_partitions),
    _some("forget idempotency keys", 60, delete_old_idempotency_keys, KEYS_PER_TURN_MAX),
    MaintenanceTask("resume due messages", 0.5, _resume_due, more_at=follow_up.GROUP_MAX),
    MultiStepTask("try unmatched receipts", 1, _try_unmatched),
    MaintenanceTask("forget unmatched receipts", 10, _forget_unmatched, more_at=RECEIPTS_PER_TURN_MAX),
    _some("forget references of carriers", 60, _forget_references, REFERENCES_PER_TURN_MAX),
    MaintenanceTask("take over from dead workers", 1, _take_over_from_dead, more_at=follow_up.GROUP_MAX),
    MaintenanceTask("adopt orphans", 60, places.adopt_orphans),
    # A group of these is not full where somebody holds some of it just now.
    MaintenanceTask("fail what has no route", 1, _fail_unroutable, more_at=1),
    MultiStepTask(EXPIRY, 15, _expire_waiting, more_at=1),
    MaintenanceTask("give up receipts", 60, _give_up_receipts, more_at=follow_up.GROUP_MAX),
    _drop_weeks("drop old tries of webhooks", RetentionKind.ATTEMPTS, ATTEMPT_WEEKS),
    _drop_weeks("drop old events", RetentionKind.EVENTS, EVENT_WEEKS),
    _some("erase texts", 600, batches.erase_texts, TEXTS_PER_TURN_MAX),
    _some("erase texts of replies", 600, _erase_reply_texts, TEXTS_PER_TURN_MAX),
    MaintenanceTask("forget old replies", 600, _forget_replies, more_at=REPLIES_PER_TURN_MAX),
    _some("forget resent batches", 3600, batches.delete_old_resent, TEXTS_PER_TURN_MAX),
    _some("cut old numbers", 60, retention.cut_old, NUMBERS_PER_TURN_MAX),
    MaintenanceTask("go on erasing numbers", 60, erase_number.go_on, more_at=1),
    _some("erase codes", 60, _erase_codes, TEXTS_PER_TURN_MAX),
    MaintenanceTask("forget old sessions and codes", 600, _forget_guests, more_at=3 * GUESTS_PER_TURN_MAX),
    _some("forget refused texts", 600, content_store.delete_old, REFUSALS_PER_TURN_MAX),
    _some("forget texts near the line", 600, near_line_store.delete_old, REFUSALS_PER_TURN_MAX),
    _some("forget counted passcodes", 600, code_stops.delete_old_ranges, RANGES_PER_TURN_MAX),
    _some("forget stopped passcodes", 3600, code_stops.delete_old_stops, RANGES_PER_TURN_MAX),
    MaintenanceTask("forget old uploads", 600, _forget_uploads, more_at=UPLOADS_PER_TURN_MAX),
    _some("forget old schedules", 600, schedules.forget_old, TEXTS_PER_TURN_MAX),
    _some("forget old approvals", 3600, approvals.delete_old, APPROVALS_PER_TURN_MAX),
    _some("erase old papers", 3600, sender_names.erase_old_papers, PAPERS_PER_TURN_MAX),
    _some("forget refused senders", 3600, sender_refusals.delete_old, REFUSALS_PER_TURN_MAX),
    _some("forget old mails", 60, outbox.delete_expired, MAILS_PER_TURN_MAX),
    _some("forget networks of numbers", 600, ported.delete_old, NUMBERS_PER_TURN_MAX),
    MaintenanceTask("warn of routes that lose money", 600, _warn_of_losses),
    MaintenanceTask("forget old latencies", 600, _forget_latencies, more_at=2 * SLOTS_PER_TURN_MAX),
    MaintenanceTask("add up ledgers", 10, _add_up_ledgers),
    MaintenanceTask("add up money by day", 10, money_days.add_up, more_at=money_days.TRANSFERS_PER_TURN),
    MaintenanceTask("put prices into force", 10, apply_due_prices, more_at=1),
    MaintenanceTask("ask for the nightly audit", 60, runs.ask_nightly),
    _some("forget old audits", 3600, runs.delete_old, AUDITS_PER_TURN_MAX),
)


async def run_task(database: Database, task: MaintenanceTask | MultiStepTask) -> int:
    """Run a task once, unless another node runs it."""
    if isinstance(task, MultiStepTask):
        return await task.do(database)
    async with database.transaction() as connection:
        if not await SQL_TRY_LOCK.value(connection, name=task.name):
            return 0
        return await task.do(connection)


async def run_maintenance(database: Database, keep_weeks: int | None = None) -> None:
    """Run all tasks at their intervals until cancelled.

    Messages are kept for `keep_weeks`, or permanently.
    """
    tasks = MAINTENANCE_TASKS if keep_weeks is None else (*MAINTENANCE_TASKS, drop_messages(keep_weeks))
    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(_repeat(database, task))
        # Not in the list: an audit takes long and needs a snapshot of its own.
        group.create_task(forever("run the audit", partial(_run_audit, database), AUDIT_LOOK_S))


async def _repeat(database: Database, task: MaintenanceTask | MultiStepTask) -> None:
    async def step() -> float | None:
        try:
            done = await run_task(database, task)
        except Exception:
            metrics.TASK_RUNS.labels(task.name, "failed").inc()
            raise
        metrics.TASK_RUNS.labels(task.name, "done").inc()
        metrics.TASK_ITEMS.labels(task.name).inc(done)
        if done:
            _log.info("maintenance task done", task=task.name, count=done)
        return 0.0 if task.more_at is not None and done >= task.more_at else None

    await forever(task.name, step, task.every_s)


async def _run_audit(database: Database) -> None:
    if await runs.run_next(database):
        _log.info("audit done")
