"""What has to be done now and then, whoever is calling? Each chore runs on one node at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from tumira.accounts import ledger
from tumira.content import store as content_refusals
from tumira.core import metrics
from tumira.core.ids import ACCOUNT, write_id
from tumira.core.loops import forever
from tumira.delivery import follow_up
from tumira.delivery.store import binds, carriers, receipts
from tumira.delivery.store import latency as latencies
from tumira.delivery.store import waiting as places
from tumira.delivery.supervisor import LEASE_S
from tumira.identity import code_rules
from tumira.identity.store import attempts, devices, operators, sessions, verifications
from tumira.mail import outbox
from tumira.operations import audit_runs, old_numbers, run_audit
from tumira.operations.erasure import erase as erase_number
from tumira.operations.retention import drop_old
from tumira.operations.retention_store import Kind
from tumira.postgres import clock, partitions
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement
from tumira.pricing.actions import apply_due_prices
from tumira.pricing.store import list_countries
from tumira.sending import batches
from tumira.sending import lookups as calls
from tumira.uploads import checks as file_checks
from tumira.uploads import store as uploads

KEYS_PER_TURN_MAX: Final = 5_000
TEXTS_PER_TURN_MAX: Final = 1_000
REFUSALS_PER_TURN_MAX: Final = 1_000
GUESTS_PER_TURN_MAX: Final = 1_000
MAILS_PER_TURN_MAX: Final = 1_000
NUMBERS_PER_TURN_MAX: Final = 2_000
SLOTS_PER_TURN_MAX: Final = 5_000
AUDITS_PER_TURN_MAX: Final = 100
RECEIPTS_PER_TURN_MAX: Final = 5_000
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
    "SELECT pg_try_advisory_xact_lock(hashtext('tumira chore'), hashtext(%(name)s))"
)


@dataclass(frozen=True, slots=True)
class Chore:
    """Something done every so often, and again at once when it says that it did `more_at` or more."""

    name: str
    every_s: float
    do: Callable[[Connection], Awaitable[int]]
    more_at: int | None = None


@dataclass(frozen=True, slots=True)
class OwnChore:
    """A chore that does not fit into one transaction, and sees to it itself that one node is at it."""

    name: str
    every_s: float
    do: Callable[[Database], Awaitable[int]]
    more_at: int | None = None


async def _create_partitions(connection: Connection) -> int:
    return len(await partitions.create_ahead(connection))


async def _forget_idempotency_keys(connection: Connection) -> int:
    return await calls.delete_old_idempotency_keys(connection, KEYS_PER_TURN_MAX)


async def _resume_due(connection: Connection) -> int:
    return await follow_up.resume_due(
        connection,
        await carriers.list_settings(connection),
        await clock.read_now(connection),
        await _well_countries(connection),
    )


async def _try_unmatched(database: Database) -> int:
    """Try kept receipts, a group in each transaction, until none is due."""
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
    return await follow_up.take_over_from_dead(connection, await carriers.list_settings(connection), LEASE_S)


async def _fail_unroutable(connection: Connection) -> int:
    active = await carriers.list_active(connection)
    if any(carrier.countries is None for carrier in active):
        return 0
    covered = {country for carrier in active for country in carrier.countries or ()}
    return await follow_up.fail_unroutable(connection, covered)


async def _expire_waiting(database: Database) -> int:
    """End what has waited for too long, a group a transaction: nobody's account is held for long.

    All that waits is read to find it, so what is found is for many groups.
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


async def _erase_texts(connection: Connection) -> int:
    return await batches.erase_texts(connection, TEXTS_PER_TURN_MAX)


async def _forget_refusals(connection: Connection) -> int:
    return await content_refusals.delete_old(connection, REFUSALS_PER_TURN_MAX)


async def _forget_mails(connection: Connection) -> int:
    return await outbox.delete_expired(connection, MAILS_PER_TURN_MAX)


async def _forget_latencies(connection: Connection) -> int:
    return await latencies.delete_old(connection, await clock.read_now(connection), SLOTS_PER_TURN_MAX)


async def _forget_audits(connection: Connection) -> int:
    return await audit_runs.delete_old(connection, AUDITS_PER_TURN_MAX)


async def _erase_codes(connection: Connection) -> int:
    return await batches.erase_codes(connection, code_rules.LIFETIME, TEXTS_PER_TURN_MAX)


async def _forget_guests(connection: Connection) -> int:
    return sum(
        [
            await sessions.delete_old(connection, GUESTS_PER_TURN_MAX),
            await verifications.delete_old(connection, GUESTS_PER_TURN_MAX),
            await attempts.delete_old(connection, GUESTS_PER_TURN_MAX),
            await devices.delete_old(connection, GUESTS_PER_TURN_MAX),
            await operators.delete_old(connection, GUESTS_PER_TURN_MAX),
        ]
    )


async def _forget_uploads(connection: Connection) -> int:
    forgotten = await uploads.delete_old(connection, UPLOADS_PER_TURN_MAX)
    return forgotten + await file_checks.delete_old(connection, UPLOADS_PER_TURN_MAX)


async def _cut_old_numbers(connection: Connection) -> int:
    return await old_numbers.cut_old(connection, await clock.read_now(connection), NUMBERS_PER_TURN_MAX)


async def _drop_attempts(database: Database) -> int:
    return await drop_old(database, Kind.ATTEMPTS, ATTEMPT_WEEKS)


async def _drop_events(database: Database) -> int:
    return await drop_old(database, Kind.EVENTS, EVENT_WEEKS)


def drop_messages(weeks_kept: int) -> OwnChore:
    """Return the chore that drops what the operator does not want to keep for longer."""

    async def do(database: Database) -> int:
        return await drop_old(database, Kind.MESSAGES, weeks_kept)

    return OwnChore("drop old messages", 3600, do)


async def _add_up_ledgers(connection: Connection) -> int:
    added = await ledger.add_up(connection)
    for account_id in added.broken:
        _log.error("ledger does not add up", account_id=write_id(ACCOUNT, account_id))
    return added.marks


async def _well_countries(connection: Connection) -> frozenset[str]:
    """Return the countries for which some carrier is at work."""
    countries = await list_countries(connection)
    return frozenset(countries) - await binds.countries_without_carrier(connection)


CHORES: Final[Sequence[Chore | OwnChore]] = (
    Chore("create partitions", 60, _create_partitions),
    Chore("forget idempotency keys", 60, _forget_idempotency_keys, more_at=KEYS_PER_TURN_MAX),
    Chore("resume due messages", 0.5, _resume_due, more_at=follow_up.GROUP_MAX),
    OwnChore("try unmatched receipts", 1, _try_unmatched),
    Chore("forget unmatched receipts", 10, _forget_unmatched, more_at=RECEIPTS_PER_TURN_MAX),
    Chore("take over from dead workers", 1, _take_over_from_dead, more_at=follow_up.GROUP_MAX),
    Chore("adopt orphans", 60, places.adopt_orphans),
    # A group of these is not full where somebody holds some of it just now.
    Chore("fail what has no route", 1, _fail_unroutable, more_at=1),
    OwnChore(EXPIRY, 15, _expire_waiting, more_at=1),
    Chore("give up receipts", 60, _give_up_receipts, more_at=follow_up.GROUP_MAX),
    OwnChore("drop old tries of webhooks", 3600, _drop_attempts),
    OwnChore("drop old events", 3600, _drop_events),
    Chore("erase texts", 600, _erase_texts, more_at=TEXTS_PER_TURN_MAX),
    Chore("cut old numbers", 60, _cut_old_numbers, more_at=NUMBERS_PER_TURN_MAX),
    Chore("go on erasing numbers", 60, erase_number.go_on, more_at=1),
    Chore("erase codes", 60, _erase_codes, more_at=TEXTS_PER_TURN_MAX),
    Chore("forget old sessions and codes", 600, _forget_guests, more_at=3 * GUESTS_PER_TURN_MAX),
    Chore("forget refused texts", 600, _forget_refusals, more_at=REFUSALS_PER_TURN_MAX),
    Chore("forget old uploads", 600, _forget_uploads, more_at=UPLOADS_PER_TURN_MAX),
    Chore("forget old mails", 60, _forget_mails, more_at=MAILS_PER_TURN_MAX),
    Chore("forget old latencies", 600, _forget_latencies, more_at=2 * SLOTS_PER_TURN_MAX),
    Chore("add up ledgers", 10, _add_up_ledgers),
    Chore("put prices into force", 10, apply_due_prices, more_at=1),
    Chore("ask for the nightly audit", 60, run_audit.ask_nightly),
    Chore("forget old audits", 3600, _forget_audits, more_at=AUDITS_PER_TURN_MAX),
)


async def run_chore(database: Database, chore: Chore | OwnChore) -> int:
    """Do a chore once, if it can be in one transaction, unless another node is at it."""
    if isinstance(chore, OwnChore):
        return await chore.do(database)
    async with database.transaction() as connection:
        if not await SQL_TRY_LOCK.value(connection, name=chore.name):
            return 0
        return await chore.do(connection)


async def run_chores(database: Database, keep_weeks: int | None = None) -> None:
    """Do all chores at their times until cancelled; messages are kept for so many weeks, or for good."""
    chores = CHORES if keep_weeks is None else (*CHORES, drop_messages(keep_weeks))
    async with asyncio.TaskGroup() as group:
        for chore in chores:
            group.create_task(_repeat(database, chore))
        # Not in the list: an audit takes long and needs a snapshot of its own.
        group.create_task(forever("run the audit", partial(_run_audit, database), AUDIT_LOOK_S))


async def _repeat(database: Database, chore: Chore | OwnChore) -> None:
    async def step() -> float | None:
        try:
            done = await run_chore(database, chore)
        except Exception:
            metrics.CHORES.labels(chore.name, "failed").inc()
            raise
        metrics.CHORES.labels(chore.name, "done").inc()
        metrics.CHORE_ITEMS.labels(chore.name).inc(done)
        if done:
            _log.info("chore done", chore=chore.name, count=done)
        return 0.0 if chore.more_at is not None and done >= chore.more_at else None

    await forever(chore.name, step, chore.every_s)


async def _run_audit(database: Database) -> None:
    if await run_audit.run_next(database):
        _log.info("audit done")
