"""Writes what accepted sends change, in one statement for a whole group.

A send to many recipients is written in two statements: its rows first and its account last, so that the
account is locked for a moment only. All statements share the same CTEs.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from operator import itemgetter
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from tumira.accounts.rate_limit import changed_count
from tumira.accounts.store import LockedAccount
from tumira.core.days import local_day
from tumira.core.ids import AccountId, BatchId
from tumira.postgres.columns import by_place, column, named_columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.legs import NewLeg
from tumira.pricing.quote import Quote, ValidRequest
from tumira.sending.code_guard import RangeCodes, RangeKey
from tumira.sending.lifecycle import VALIDITY

# An account, a queue and a lane.
Flow = tuple[AccountId, str, int]


class Flight(Struct, frozen=True):
    """Whose claim a message is from the beginning: a worker's, for one of its binds."""

    worker: str
    bind: str
    carrier_id: int


class NewBatch(Struct, frozen=True):
    """A batch to be stored: the request, its price, and the ids and turns of its messages."""

    id: BatchId
    account_id: AccountId
    created_at: datetime
    request: ValidRequest
    quote: Quote
    lane: int
    message_ids: Sequence[UUID]
    turns: Sequence[int]
    legs: Sequence[NewLeg]
    leg_of: Sequence[int]
    # How long its messages are worth delivering.
    lifetime: timedelta
    # Set where each recipient has its own text.
    texts: Sequence[str] | None = None
    # A text of it passed near the line.
    near_line: bool = False
    # Set where its messages are claimed at once, instead of waiting in the queue.
    flight: Flight | None = None


class Debit(Struct, frozen=True):
    """The cost of one accepted batch, and the answer to repeat for its Idempotency-Key."""

    account_id: AccountId
    batch_id: BatchId
    amount: Decimal
    idempotency_key: str | None
    fingerprint: bytes | None
    response: bytes


# The balance is lowered, not set: the row is locked, and the table has a CHECK, so even an error in our
# arithmetic cannot create money or take the balance below zero. The list of ids keeps the plan on the
# primary key, whatever the planner estimates for unnest. Windows differ in length, which an array of arrays
# does not allow, so they are passed as text; without one, only the last count changes. Numbers would be
# slower, because asyncpg looks at each of them. For the same reason what many rows share is passed once, and
# named by its place (`by_place`).
_CHARGE: Final = """
charged AS (
    UPDATE accounts
       SET balance = balance - charge.amount,
           call_times = coalesce(charge.call_times::bigint[], accounts.call_times),
           call_counts = coalesce(
               charge.call_counts::integer[],
               accounts.call_counts[:cardinality(accounts.call_counts) - 1] || charge.last_count),
           spent_on = (%(days)s::date[])[coalesce(charge.day, 1)],
           spent_today = charge.spent_today,
           unbilled_today = coalesce(charge.unbilled_today, 0)
      FROM unnest(%(charged_ids)s::uuid[], %(charged_amounts)s::numeric[], %(call_times)s::text[],
                  %(call_counts)s::text[], %(last_counts)s::integer[], %(charge_days)s::integer[],
                  %(spent_today)s::numeric[], %(unbilled_today)s::bigint[])
           AS charge (account_id, amount, call_times, call_counts, last_count, day, spent_today,
                      unbilled_today)
     WHERE id = charge.account_id
       AND id = ANY(%(charged_ids)s::uuid[])
)"""

# The column `country` of `flows`, `queue` and `clocks` names a queue: a country, or a network of it.
_ADVANCE: Final = """
advanced AS (
    INSERT INTO flows (account_id, country, lane, next_turn)
    SELECT account_id, (%(flow_queues)s::text[])[coalesce(place, 1)],
           (%(flow_lanes)s::smallint[])[coalesce(place, 1)], next_turn
      FROM unnest(%(flow_account_ids)s::uuid[], %(flow_places)s::integer[], %(next_turns)s::bigint[])
           AS flow (account_id, place, next_turn)
        ON CONFLICT (account_id, country, lane) DO UPDATE SET next_turn = excluded.next_turn
)"""

# Calls are alike: `kind` is the place of what a batch shares with others. Without a time of its own a message
# lives for 24 hours.
_STORE_BATCHES: Final = """
stored AS (
    INSERT INTO batches (id, account_id, created_at, completed_at, recipients, pending, segments,
                         total_cost, status, channel, reference, body, near_line, expires_at)
    SELECT id, (%(owner_ids)s::uuid[])[owner], %(created_at)s::timestamptz,
           CASE WHEN recipients = 0 THEN %(created_at)s::timestamptz END,
           recipients, recipients, (%(segments)s::smallint[])[kind], (%(total_costs)s::numeric[])[kind],
           (%(batch_statuses)s::text[])[kind], (%(channels)s::text[])[kind],
           reference, body, (%(near_lines)s::boolean[])[kind],
           %(created_at)s::timestamptz + (%(lifetimes_s)s::double precision[])[kind] * interval '1 second'
      FROM (SELECT id, coalesce(owner, 1) AS owner, coalesce(kind, 1) AS kind,
                   (%(recipient_counts)s::integer[])[coalesce(kind, 1)] AS recipients, reference, body
              FROM unnest(%(ids)s::uuid[], %(owners)s::integer[], %(kinds)s::integer[],
                          %(references)s::text[], %(bodies)s::text[])
                   AS given (id, owner, kind, reference, body)) AS batch
)"""

# A message refers to its batch and to its leg by places, so a thousand rows take three long arrays only.
_ADDRESS: Final = """
addressed AS (
    INSERT INTO messages (id, batch_id, account_id, segments, country, network, recipient, cost, status)
    SELECT id, (%(ids)s::uuid[])[batch], (%(owner_ids)s::uuid[])[coalesce((%(owners)s::integer[])[batch], 1)],
           (%(leg_segments)s::smallint[])[leg], (%(leg_countries)s::text[])[leg],
           (%(leg_networks)s::text[])[leg], recipient, (%(leg_costs)s::numeric[])[leg],
           (%(leg_statuses)s::text[])[leg]
      FROM (SELECT id, coalesce(batch, 1) AS batch, coalesce(leg, 1) AS leg, recipient
              FROM unnest(%(message_ids)s::uuid[], %(message_batches)s::integer[],
                          %(message_legs)s::integer[], %(recipients)s::text[])
                   AS given (id, batch, leg, recipient)) AS message
)"""

# The same where each message has its own text; they are of one batch.
_ADDRESS_TEXTS: Final = """
addressed AS (
    INSERT INTO messages (id, batch_id, account_id, segments, country, network, recipient, cost, status, body)
    SELECT id, (%(ids)s::uuid[])[1], (%(owner_ids)s::uuid[])[1],
           (%(leg_segments)s::smallint[])[leg], (%(leg_countries)s::text[])[leg],
           (%(leg_networks)s::text[])[leg], recipient, (%(leg_costs)s::numeric[])[leg],
           (%(leg_statuses)s::text[])[leg], body
      FROM (SELECT id, coalesce(leg, 1) AS leg, recipient, body
              FROM unnest(%(message_ids)s::uuid[], %(message_legs)s::integer[], %(recipients)s::text[],
                          %(texts)s::text[])
                   AS given (id, leg, recipient, body)) AS message
)"""

_QUEUE: Final = """
queued AS (
    INSERT INTO queue (country, lane, turn, message_id, expires_at)
    SELECT (%(leg_queues)s::text[])[leg], (%(leg_lanes)s::smallint[])[leg], turn, id,
           %(created_at)s::timestamptz + (%(lifetimes_s)s::double precision[])[kind] * interval '1 second'
      FROM (SELECT id, coalesce(leg, 1) AS leg, turn,
                   coalesce((%(kinds)s::integer[])[coalesce(batch, 1)], 1) AS kind
              FROM unnest(%(message_ids)s::uuid[], %(message_batches)s::integer[],
                          %(message_legs)s::integer[], %(turns)s::bigint[])
                   AS given (id, batch, leg, turn)) AS message
     {where}
)"""
_QUEUE_ALL: Final = _QUEUE.format(where="")

_OF_THE_QUEUE: Final = ("leg_queues", "leg_lanes", "turns")

# Messages that are claimed at once; the worker of a leg that goes into the queue is NULL.
_CLAIM: Final = """
claimed AS (
    INSERT INTO in_flight (message_id, worker, bind, carrier_id, claimed_at, is_direct)
    SELECT id, (%(leg_workers)s::text[])[leg], (%(leg_binds)s::text[])[leg],
           (%(leg_carrier_ids)s::integer[])[leg], %(created_at)s::timestamptz, true
      FROM (SELECT id, coalesce(leg, 1) AS leg
              FROM unnest(%(message_ids)s::uuid[], %(message_legs)s::integer[]) AS given (id, leg)) AS message
     WHERE (%(leg_workers)s::text[])[leg] IS NOT NULL
)"""
_QUEUE_REST: Final = _QUEUE.format(where="WHERE (%(leg_workers)s::text[])[leg] IS NULL")

_STORE: Final = f"{_STORE_BATCHES}, {_ADDRESS}, {_QUEUE_ALL}"
_STORE_TEXTS: Final = f"{_STORE_BATCHES}, {_ADDRESS_TEXTS}, {_QUEUE_ALL}"
_STORE_CLAIMED: Final = f"{_STORE_BATCHES}, {_ADDRESS}, {_CLAIM}"
_STORE_MIXED: Final = f"{_STORE_CLAIMED}, {_QUEUE_REST}"

# The key is inserted under the lock on its account's row, after a lookup found it unused. A key that exists
# nevertheless is not overwritten, and the count shows it.
_DEBIT: Final = """
debited AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id)
    SELECT (%(owner_ids)s::uuid[])[coalesce(owner, 1)], 'customer', 'revenue', amount, batch_id
      FROM (SELECT batch_id, owner, (%(total_costs)s::numeric[])[coalesce(kind, 1)] AS amount
              FROM unnest(%(ids)s::uuid[], %(owners)s::integer[], %(kinds)s::integer[])
                   AS given (batch_id, owner, kind)) AS debit
     WHERE amount > 0
), remembered AS (
    INSERT INTO idempotency_keys AS old (account_id, key, fingerprint, response, batch_id)
    SELECT (%(owner_ids)s::uuid[])[coalesce((%(owners)s::integer[])[batch], 1)], key, fingerprint, response,
           (%(ids)s::uuid[])[batch]
      FROM unnest(%(keyed)s::integer[], %(keys)s::text[], %(fingerprints)s::bytea[], %(responses)s::bytea[])
           AS debit (batch, key, fingerprint, response)
        ON CONFLICT (account_id, key) DO UPDATE
       SET fingerprint = excluded.fingerprint,
           response = excluded.response,
           batch_id = excluded.batch_id,
           created_at = excluded.created_at
     WHERE old.created_at <= clock_timestamp() - interval '72 hours'
 RETURNING 1
)"""

# The passcodes counted to ranges of numbers; the account's row is locked, so nobody else writes them.
_COUNT_CODES: Final = """
counted AS (
    INSERT INTO code_ranges AS r (account_id, prefix, codes, last_on, stopped_until)
    SELECT account_id, prefix, codes, %(range_day)s::date, stopped_until
      FROM unnest(%(range_account_ids)s::uuid[], %(range_prefixes)s::text[], %(range_codes)s::bytea[],
                  %(range_stops)s::timestamptz[])
           AS counted (account_id, prefix, codes, stopped_until)
        ON CONFLICT (account_id, prefix) DO UPDATE
       SET codes = excluded.codes, last_on = excluded.last_on, stopped_until = excluded.stopped_until
)"""

_REMEMBERED: Final = "SELECT count(*) FROM remembered"

SQL_CHARGE: Final = Statement(f"WITH {_CHARGE} SELECT 0")
SQL_CHARGE_AND_ADVANCE: Final = Statement(f"WITH {_CHARGE}, {_ADVANCE} SELECT 0")


def _accept(store: str, *more: str) -> Statement:
    return Statement(f"WITH {', '.join((_CHARGE, _ADVANCE, store, *more, _DEBIT))} {_REMEMBERED}")


SQL_ACCEPT: Final = _accept(_STORE)
SQL_ACCEPT_CODES: Final = _accept(_STORE, _COUNT_CODES)
SQL_ACCEPT_CLAIMED: Final = _accept(_STORE_CLAIMED)
SQL_ACCEPT_CLAIMED_CODES: Final = _accept(_STORE_CLAIMED, _COUNT_CODES)
SQL_ACCEPT_MIXED: Final = _accept(_STORE_MIXED)
SQL_ACCEPT_MIXED_CODES: Final = _accept(_STORE_MIXED, _COUNT_CODES)
SQL_ACCEPT_TEXTS: Final = _accept(_STORE_TEXTS, _COUNT_CODES)
SQL_STORE: Final = Statement(f"WITH {_STORE} SELECT 0")
SQL_CHARGE_AND_DEBIT: Final = Statement(f"WITH {_CHARGE}, {_DEBIT} {_REMEMBERED}")


class AlreadyRecordedError(Exception):
    """An Idempotency-Key was recorded by a transaction that did not lock the account's row."""


async def write(
    connection: Connection,
    charges: Sequence[tuple[LockedAccount, Decimal]],
    next_turns: Mapping[Flow, int],
    batches: Sequence[NewBatch],
    debits: Sequence[Debit],
    ranges: Mapping[RangeKey, RangeCodes],
) -> None:
    """Write what a group of calls changed; this transaction has locked the accounts.

    `ranges` are those to which passcodes were counted. Debits without batches are for rows that this
    transaction wrote before. A batch with its own text for each message is written alone.
    """
    parameters = _charge(charges)
    if batches:
        # Each batch with its own debit.
        assert [debit.batch_id for debit in debits] == [batch.id for batch in batches]
        parameters |= _advance(next_turns) | _store(batches) | _remember(debits)
        with_texts = batches[0].texts is not None
        if with_texts:
            assert len(batches) == 1
            statement = SQL_ACCEPT_TEXTS
            parameters["texts"] = batches[0].texts
        elif "leg_workers" not in parameters:
            statement = SQL_ACCEPT_CODES if ranges else SQL_ACCEPT
        elif None in parameters["leg_workers"]:
            statement = SQL_ACCEPT_MIXED_CODES if ranges else SQL_ACCEPT_MIXED
        else:
            statement = SQL_ACCEPT_CLAIMED_CODES if ranges else SQL_ACCEPT_CLAIMED
            for name in _OF_THE_QUEUE:
                del parameters[name]
        if ranges or with_texts:
            parameters |= _count_codes(ranges, batches[0].created_at)
    elif debits:
        statement = SQL_CHARGE_AND_DEBIT
        parameters |= _debit(debits) | _remember(debits)
    elif next_turns:
        statement = SQL_CHARGE_AND_ADVANCE
        parameters |= _advance(next_turns)
    elif charges:
        statement = SQL_CHARGE
    else:
        return
    remembered = await statement.value(connection, **parameters)
    if remembered != sum(debit.idempotency_key is not None for debit in debits):
        raise AlreadyRecordedError


async def insert_batch(connection: Connection, batch: NewBatch) -> None:
    """Insert a batch with its messages, each in the queue; it is not paid yet."""
    await SQL_STORE.value(connection, **_store([batch]))


def _charge(charges: Sequence[tuple[LockedAccount, Decimal]]) -> dict[str, Any]:
    accounts = [account for account, _ in charges]
    last_counts = [changed_count(account.stored_window, account.window) for account in accounts]
    windows = [
        account.window if last_count is None else None
        for account, last_count in zip(accounts, last_counts, strict=True)
    ]
    charge_days, days = by_place(account.spent_on for account in accounts)
    return {
        "charged_ids": [account.id for account in accounts],
        "charged_amounts": [amount for _, amount in charges],
        "call_times": column([window and _write_array(window.times_us) for window in windows]),
        "call_counts": column([window and _write_array(window.counts) for window in windows]),
        "last_counts": column(last_counts),
        "charge_days": charge_days,
        "days": days,
        "spent_today": [account.spent_today for account in accounts],
        "unbilled_today": column([account.unbilled_today or None for account in accounts]),
    }


def _write_array(numbers: Sequence[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def _advance(next_turns: Mapping[Flow, int]) -> dict[str, Any]:
    flow_places, lanes = by_place((queue, lane) for _, queue, lane in next_turns)
    return {
        "flow_account_ids": [account_id for account_id, _, _ in next_turns],
        "flow_places": flow_places,
        **named_columns("flow_queues flow_lanes", lanes),
        "next_turns": list(next_turns.values()),
    }


def _store(batches: Sequence[NewBatch]) -> dict[str, Any]:
    owners, owner_ids = by_place(batch.account_id for batch in batches)
    kinds, shared = by_place(map(_kind_of, batches))
    legs: dict[tuple[Any, ...], int] = {}
    message_legs: list[int] = []
    message_batches: list[int] = []
    for number, batch in enumerate(batches, start=1):
        places = [
            legs.setdefault(
                (
                    leg.country,
                    leg.network,
                    leg.queue,
                    leg.cost,
                    leg.segments,
                    batch.lane,
                    batch.flight,
                ),
                len(legs) + 1,
            )
            for leg in batch.legs
        ]
        count = len(batch.leg_of)
        message_legs.extend(places * count if len(places) == 1 else [places[leg] for leg in batch.leg_of])
        message_batches.extend([number] * count)
    flights = [flight for *_, flight in legs]
    return {
        "ids": [batch.id for batch in batches],
        "owners": owners,
        "owner_ids": owner_ids,
        # Of the transaction, as the database's clock has it.
        "created_at": batches[0].created_at,
        "kinds": kinds,
        **named_columns(
            "recipient_counts segments total_costs channels near_lines lifetimes_s batch_statuses", shared
        ),
        "references": column([batch.request.reference for batch in batches]),
        "bodies": [batch.request.body for batch in batches],
        **named_columns("leg_countries leg_networks leg_queues leg_costs leg_segments leg_lanes", legs),
        "leg_statuses": ["queued" if flight is None else "sending" for flight in flights],
        **(_claims(flights) if any(flights) else {}),
        "message_ids": [message_id for batch in batches for message_id in batch.message_ids],
        "message_batches": message_batches if len(batches) > 1 else [],
        "message_legs": message_legs if len(legs) > 1 else [],
        "recipients": [number for batch in batches for number in batch.quote.numbers],
        "turns": [turn for batch in batches for turn in batch.turns],
    }


def _kind_of(batch: NewBatch) -> tuple[Any, ...]:
    """Return what a batch may share with others of its group, in the order of the columns above."""
    quote, lifetime = batch.quote, batch.lifetime
    return (
        len(quote.numbers),
        quote.segments,
        quote.total_cost,
        batch.request.channel,
        # NULL takes no room in a row.
        batch.near_line or None,
        None if lifetime == VALIDITY else lifetime.total_seconds(),
        _first_status(batch),
    )


def _first_status(batch: NewBatch) -> str:
    if not batch.quote.numbers:
        return "completed"
    return "queued" if batch.flight is None else "processing"


def _claims(flights: Sequence[Flight | None]) -> dict[str, Any]:
    """Return the claim of each leg; None for those that go into the queue."""
    return {
        "leg_workers": [None if flight is None else flight.worker for flight in flights],
        "leg_binds": [None if flight is None else flight.bind for flight in flights],
        "leg_carrier_ids": [None if flight is None else flight.carrier_id for flight in flights],
    }


def _count_codes(ranges: Mapping[RangeKey, RangeCodes], now: datetime) -> dict[str, Any]:
    # In the order of the primary key, like all who lock some of them.
    ordered = sorted(ranges.items(), key=itemgetter(0))
    stops = [one.stopped_until_us for _, one in ordered]
    return {
        "range_account_ids": [account_id for (account_id, _), _ in ordered],
        "range_prefixes": [prefix for (_, prefix), _ in ordered],
        "range_codes": [one.codes for _, one in ordered],
        "range_day": local_day(now),
        "range_stops": column(
            [datetime.fromtimestamp(stop / 1_000_000, UTC) if stop else None for stop in stops]
        ),
    }


def _debit(debits: Sequence[Debit]) -> dict[str, Any]:
    owners, owner_ids = by_place(debit.account_id for debit in debits)
    kinds, amounts = by_place(debit.amount for debit in debits)
    return {
        "ids": [debit.batch_id for debit in debits],
        "owners": owners,
        "owner_ids": owner_ids,
        "kinds": kinds,
        "total_costs": amounts,
    }


def _remember(debits: Sequence[Debit]) -> dict[str, Any]:
    keyed = [
        (place, debit) for place, debit in enumerate(debits, start=1) if debit.idempotency_key is not None
    ]
    return {
        "keyed": [place for place, _ in keyed],
        "keys": [debit.idempotency_key for _, debit in keyed],
        "fingerprints": [debit.fingerprint for _, debit in keyed],
        "responses": [debit.response for _, debit in keyed],
    }
