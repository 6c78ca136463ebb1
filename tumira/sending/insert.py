"""Writes what accepted sends change, in one statement for a whole group.

A send to many recipients is written in two statements: its rows first and its account last, so that the
account is locked for a moment only. All statements share the same CTEs.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from tumira.accounts.rate_limit import changed_count
from tumira.accounts.store import LockedAccount
from tumira.core.days import local_day
from tumira.core.ids import AccountId, BatchId
from tumira.postgres.columns import column
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.networks import find_network, queue_of
from tumira.pricing.quote import Quote, ValidRequest
from tumira.sending.code_guard import RangeCodes, RangeKey

# An account, a queue and a lane.
Flow = tuple[AccountId, str, int]


class NewLeg(Struct, frozen=True):
    """The messages of a batch to one network: they cost the same, have one length and share a flow."""

    country: str
    network: str
    queue: str
    cost: Decimal
    segments: int
    count: int


def split_by_network(
    quote: Quote, leg_segments: Sequence[int] | None, ported: Mapping[str, str]
) -> tuple[Sequence[NewLeg], Sequence[int]]:
    """Return the legs of a quote cut into networks, and the leg of each number.

    `ported` are the numbers that are known to be in another network than their prefix says.
    """
    places: dict[tuple[int, str], int] = {}
    leg_of: list[int] = []
    for number, leg in zip(quote.numbers, quote.leg_of, strict=True):
        network = ported.get(number) or find_network(number)
        leg_of.append(places.setdefault((leg, network), len(places)))
    legs = []
    for place, (leg, network) in enumerate(places):
        country, cost = quote.legs[leg].country, quote.legs[leg].cost
        segments = quote.segments if leg_segments is None else leg_segments[leg]
        queue = queue_of(country, network, quote.routed)
        legs.append(NewLeg(country, network, queue, cost, segments, leg_of.count(place)))
    return legs, leg_of


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
    # When its messages stop being worth delivering.
    expires_at: datetime
    # Set where each recipient has its own text.
    texts: Sequence[str] | None = None
    # A text of it passed near the line.
    near_line: bool = False


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
# slower, because asyncpg looks at each of them.
_CHARGE: Final = """
charged AS (
    UPDATE accounts
       SET balance = balance - charge.amount,
           call_times = coalesce(charge.call_times::bigint[], accounts.call_times),
           call_counts = coalesce(
               charge.call_counts::integer[],
               accounts.call_counts[:cardinality(accounts.call_counts) - 1] || charge.last_count),
           spent_on = charge.spent_on,
           spent_today = charge.spent_today,
           unbilled_today = charge.unbilled_today
      FROM unnest(%(charged_ids)s::uuid[], %(charged_amounts)s::numeric[], %(call_times)s::text[],
                  %(call_counts)s::text[], %(last_counts)s::integer[], %(spent_on)s::date[],
                  %(spent_today)s::numeric[], %(unbilled_today)s::bigint[])
           AS charge (account_id, amount, call_times, call_counts, last_count, spent_on, spent_today,
                      unbilled_today)
     WHERE id = charge.account_id
       AND id = ANY(%(charged_ids)s::uuid[])
)"""

# The column `country` of `flows`, `queue` and `clocks` names a queue: a country, or a network of it.
_ADVANCE: Final = """
advanced AS (
    INSERT INTO flows (account_id, country, lane, next_turn)
    SELECT account_id, queue, lane, next_turn
      FROM unnest(%(flow_account_ids)s::uuid[], %(flow_queues)s::text[], %(flow_lanes)s::smallint[],
                  %(next_turns)s::bigint[]) AS flow (account_id, queue, lane, next_turn)
        ON CONFLICT (account_id, country, lane) DO UPDATE SET next_turn = excluded.next_turn
)"""

_STORE_BATCHES: Final = """
stored AS (
    INSERT INTO batches (id, account_id, created_at, completed_at, recipients, pending, segments,
                         total_cost, status, channel, reference, body, near_line, expires_at)
    SELECT id, account_id, %(created_at)s::timestamptz,
           CASE WHEN recipients = 0 THEN %(created_at)s::timestamptz END,
           recipients, recipients, segments, total_cost,
           CASE WHEN recipients = 0 THEN 'completed' ELSE 'queued' END, channel, reference, body, near_line,
           expires_at
      FROM unnest(%(ids)s::uuid[], %(account_ids)s::uuid[], %(recipient_counts)s::integer[],
                  %(segments)s::smallint[], %(total_costs)s::numeric[], %(channels)s::text[],
                  %(references)s::text[], %(bodies)s::text[], %(near_lines)s::boolean[],
                  %(expiries)s::timestamptz[])
           AS batch (id, account_id, recipients, segments, total_cost, channel, reference, body, near_line,
                     expires_at)
)"""

# A message refers to its leg by index into short arrays, so a thousand rows take four long arrays only.
_ADDRESS: Final = """
addressed AS (
    INSERT INTO messages (id, batch_id, account_id, segments, country, network, recipient, cost)
    SELECT id, (%(leg_batch_ids)s::uuid[])[leg], (%(leg_account_ids)s::uuid[])[leg],
           (%(leg_segments)s::smallint[])[leg], (%(leg_countries)s::text[])[leg],
           (%(leg_networks)s::text[])[leg], recipient,
           (%(leg_costs)s::numeric[])[leg]
      FROM unnest(%(message_ids)s::uuid[], %(legs)s::integer[], %(recipients)s::text[])
           AS message (id, leg, recipient)
)"""

# The same where each message has its own text.
_ADDRESS_TEXTS: Final = """
addressed AS (
    INSERT INTO messages (id, batch_id, account_id, segments, country, network, recipient, cost, body)
    SELECT id, (%(leg_batch_ids)s::uuid[])[leg], (%(leg_account_ids)s::uuid[])[leg],
           (%(leg_segments)s::smallint[])[leg], (%(leg_countries)s::text[])[leg],
           (%(leg_networks)s::text[])[leg], recipient,
           (%(leg_costs)s::numeric[])[leg], body
      FROM unnest(%(message_ids)s::uuid[], %(legs)s::integer[], %(recipients)s::text[], %(texts)s::text[])
           AS message (id, leg, recipient, body)
)"""

_QUEUE: Final = """
queued AS (
    INSERT INTO queue (country, lane, turn, message_id, expires_at)
    SELECT (%(leg_queues)s::text[])[leg], (%(leg_lanes)s::smallint[])[leg], turn, id,
           (%(leg_expiries)s::timestamptz[])[leg]
      FROM unnest(%(message_ids)s::uuid[], %(legs)s::integer[], %(turns)s::bigint[])
           AS message (id, leg, turn)
)"""

_STORE: Final = f"{_STORE_BATCHES}, {_ADDRESS}, {_QUEUE}"
_STORE_TEXTS: Final = f"{_STORE_BATCHES}, {_ADDRESS_TEXTS}, {_QUEUE}"

# The key is inserted under the lock on its account's row, after a lookup found it unused. A key that exists
# nevertheless is not overwritten, and the count shows it.
_DEBIT: Final = """
debited AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id)
    SELECT account_id, 'customer', 'revenue', amount, batch_id
      FROM unnest(%(account_ids)s::uuid[], %(total_costs)s::numeric[], %(ids)s::uuid[])
           AS debit (account_id, amount, batch_id)
     WHERE amount > 0
), remembered AS (
    INSERT INTO idempotency_keys AS old (account_id, key, fingerprint, response, batch_id)
    SELECT account_id, key, fingerprint, response, batch_id
      FROM unnest(%(account_ids)s::uuid[], %(keys)s::text[], %(fingerprints)s::bytea[],
                  %(responses)s::bytea[], %(ids)s::uuid[])
           AS debit (account_id, key, fingerprint, response, batch_id)
     WHERE key IS NOT NULL
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
SQL_ACCEPT: Final = Statement(f"WITH {_CHARGE}, {_ADVANCE}, {_STORE}, {_DEBIT} {_REMEMBERED}")
SQL_ACCEPT_CODES: Final = Statement(
    f"WITH {_CHARGE}, {_ADVANCE}, {_STORE}, {_COUNT_CODES}, {_DEBIT} {_REMEMBERED}"
)
SQL_ACCEPT_TEXTS: Final = Statement(
    f"WITH {_CHARGE}, {_ADVANCE}, {_STORE_TEXTS}, {_COUNT_CODES}, {_DEBIT} {_REMEMBERED}"
)
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
        statement = SQL_ACCEPT
        # Each batch with its own debit.
        assert [debit.batch_id for debit in debits] == [batch.id for batch in batches]
        parameters |= _advance(next_turns) | _store(batches) | _remember(debits)
        if ranges:
            statement = SQL_ACCEPT_CODES
            parameters |= _count_codes(ranges, batches[0].created_at)
        if batches[0].texts is not None:
            assert len(batches) == 1
            statement = SQL_ACCEPT_TEXTS
            parameters |= _count_codes(ranges, batches[0].created_at)
            parameters["texts"] = batches[0].texts
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
    return {
        "charged_ids": [account.id for account in accounts],
        "charged_amounts": [amount for _, amount in charges],
        "call_times": [None if window is None else _write_array(window.times_us) for window in windows],
        "call_counts": [None if window is None else _write_array(window.counts) for window in windows],
        "last_counts": last_counts,
        "spent_on": [account.spent_on for account in accounts],
        "spent_today": [account.spent_today for account in accounts],
        "unbilled_today": [account.unbilled_today for account in accounts],
    }


def _write_array(numbers: Sequence[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def _advance(next_turns: Mapping[Flow, int]) -> dict[str, Any]:
    return {
        "flow_account_ids": [account_id for account_id, _, _ in next_turns],
        "flow_queues": [queue for _, queue, _ in next_turns],
        "flow_lanes": [lane for _, _, lane in next_turns],
        "next_turns": list(next_turns.values()),
    }


def _store(batches: Sequence[NewBatch]) -> dict[str, Any]:
    legs = [(batch, leg) for batch in batches for leg in batch.legs]
    legs_of_messages: list[int] = []
    first_leg = 1
    for batch in batches:
        legs_of_messages.extend([first_leg + leg for leg in batch.leg_of])
        first_leg += len(batch.legs)
    return {
        "ids": [batch.id for batch in batches],
        "account_ids": [batch.account_id for batch in batches],
        # Of the transaction, as the database's clock has it.
        "created_at": batches[0].created_at,
        "recipient_counts": [len(batch.quote.numbers) for batch in batches],
        "segments": [batch.quote.segments for batch in batches],
        "total_costs": [batch.quote.total_cost for batch in batches],
        "channels": [batch.request.channel for batch in batches],
        "references": [batch.request.reference for batch in batches],
        "bodies": [batch.request.body for batch in batches],
        # NULL takes no room in a row.
        "near_lines": [batch.near_line or None for batch in batches],
        "expiries": [batch.expires_at for batch in batches],
        "leg_expiries": [batch.expires_at for batch, _ in legs],
        "leg_batch_ids": [batch.id for batch, _ in legs],
        "leg_account_ids": [batch.account_id for batch, _ in legs],
        "leg_segments": [leg.segments for _, leg in legs],
        "leg_lanes": [batch.lane for batch, _ in legs],
        "leg_countries": [leg.country for _, leg in legs],
        "leg_networks": [leg.network for _, leg in legs],
        "leg_queues": [leg.queue for _, leg in legs],
        "leg_costs": [leg.cost for _, leg in legs],
        "message_ids": [message_id for batch in batches for message_id in batch.message_ids],
        "legs": legs_of_messages,
        "recipients": [number for batch in batches for number in batch.quote.numbers],
        "turns": [turn for batch in batches for turn in batch.turns],
    }


def _count_codes(ranges: Mapping[RangeKey, RangeCodes], now: datetime) -> dict[str, Any]:
    # In the order of the primary key, like all who lock some of them.
    ordered = sorted(ranges.items(), key=lambda item: item[0])
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
    return {
        "account_ids": [debit.account_id for debit in debits],
        "total_costs": [debit.amount for debit in debits],
        "ids": [debit.batch_id for debit in debits],
    }


def _remember(debits: Sequence[Debit]) -> dict[str, Any]:
    return {
        "keys": [debit.idempotency_key for debit in debits],
        "fingerprints": [debit.fingerprint for debit in debits],
        "responses": [debit.response for debit in debits],
    }
