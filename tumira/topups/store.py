"""Top-up rows, and the transfers that credit or reverse them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

import asyncpg

from tumira.core.ids import AccountId, TopUpId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.topups.states import OPEN_STATES, Currency, Method, TopUp, TopUpState

# Larger than every id.
LAST: Final = TopUpId(UUID(int=(1 << 128) - 1))


_COLUMNS: Final = ", ".join(TopUp.__slots__)


def _select(rest: str) -> Statement:
    return Statement(f"SELECT {_COLUMNS} FROM top_ups {rest}")  # noqa: S608 - only constants are put in


def _top_up(row: asyncpg.Record) -> TopUp:
    values = dict(row)
    values.pop("was_asked", None)
    values["method"] = Method(values["method"])
    values["state"] = TopUpState(values["state"])
    values["currency"] = Currency(values["currency"])
    values["kept"] = json.loads(values["kept"])
    return TopUp(**values)


@dataclass(frozen=True, slots=True)
class NewTopUp:
    """A top-up to insert."""

    id: TopUpId
    account_id: AccountId
    method: Method
    provider: str
    currency: Currency
    asked: Decimal | None = None
    rate: Decimal = Decimal(1)
    rate_on: date | None = None
    phone: str | None = None
    kept: Mapping[str, str] = field(default_factory=dict)
    sealed_pin: bytes | None = field(default=None, repr=False)
    pin_hash: bytes | None = field(default=None, repr=False)
    # Whether its provider has to be called; not for own vouchers and USDT.
    is_due: bool = True


# Not the account's row: settling locks a top-up first and then the account, and would deadlock with a start
# that holds the account and waits for the same PIN.
SQL_LOCK_STARTS: Final = Statement("""
SELECT pg_advisory_xact_lock(hashtextextended('tumira top-ups ' || %(account_id)s::uuid::text, 0))
""")


async def lock_starts(connection: Connection, account_id: AccountId) -> None:
    """Let one process at a time start top-ups for an account, until commit, so that the counts are right."""
    await SQL_LOCK_STARTS.rows(connection, account_id=account_id)


SQL_INSERT: Final = Statement("""
INSERT INTO top_ups (id, account_id, method, provider, currency, asked, rate, rate_on, phone, kept,
                     sealed_pin, pin_hash, due_at)
VALUES (%(id)s, %(account_id)s, %(method)s, %(provider)s, %(currency)s, %(asked)s, %(rate)s,
        %(rate_on)s, %(phone)s, %(kept)s, %(sealed_pin)s, %(pin_hash)s,
        CASE WHEN %(is_due)s::boolean THEN clock_timestamp() END)
""")


async def insert(connection: Connection, new: NewTopUp) -> None:
    """Insert a top-up; raises UniqueViolationError where the same PIN is being redeemed already."""
    values = {name: getattr(new, name) for name in NewTopUp.__slots__}
    await SQL_INSERT.rows(connection, **(values | {"kept": json.dumps(dict(new.kept))}))


SQL_FIND: Final = _select("WHERE id = %(top_up_id)s AND account_id = %(account_id)s")


async def find(connection: Connection, account_id: AccountId, top_up_id: TopUpId) -> TopUp | None:
    """Return an account's top-up; None for an unknown one and for another account's."""
    row = await SQL_FIND.row(connection, top_up_id=top_up_id, account_id=account_id)
    return None if row is None else _top_up(row)


SQL_FIND_ANY: Final = _select("WHERE id = %(top_up_id)s")


async def find_any(connection: Connection, top_up_id: TopUpId) -> TopUp | None:
    """Return a top-up of any account, for the operator and for the provider's notices."""
    row = await SQL_FIND_ANY.row(connection, top_up_id=top_up_id)
    return None if row is None else _top_up(row)


SQL_LOCK: Final = _select("WHERE id = %(top_up_id)s FOR NO KEY UPDATE")


async def lock(connection: Connection, top_up_id: TopUpId) -> TopUp:
    """Lock a top-up until the commit."""
    row = await SQL_LOCK.row(connection, top_up_id=top_up_id)
    assert row is not None, "top-ups are never deleted"
    return _top_up(row)


# By both columns of the index, in its order: with one of them fixed PostgreSQL may take the primary key
# and scan the top-ups of all accounts.
SQL_LIST_OF_ACCOUNT: Final = _select("""
 WHERE account_id >= %(account_id)s
   AND (account_id, id) < (%(account_id)s, %(before)s)
 ORDER BY account_id DESC, id DESC
 LIMIT %(count_max)s
""")


async def list_of_account(
    connection: Connection, account_id: AccountId, count_max: int, before: TopUpId = LAST
) -> Sequence[TopUp]:
    rows = await SQL_LIST_OF_ACCOUNT.rows(
        connection, account_id=account_id, before=before, count_max=count_max
    )
    return [_top_up(row) for row in rows]


SQL_LIST: Final = _select("""
 WHERE id < %(before)s
   AND id >= %(since)s
   AND state = ANY(%(states)s::text[])
   AND method = ANY(%(methods)s::text[])
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_latest(
    connection: Connection,
    count_max: int,
    *,
    states: Sequence[TopUpState] = tuple(TopUpState),
    methods: Sequence[Method] = tuple(Method),
    since: UUID = UUID(int=0),  # noqa: B008 - a UUID is never changed
    before: UUID = LAST,
) -> Sequence[TopUp]:
    rows = await SQL_LIST.rows(
        connection,
        before=before,
        since=since,
        states=list(states),
        methods=list(methods),
        count_max=count_max,
    )
    return [_top_up(row) for row in rows]


# `asked_at` is committed before the provider is called: after a crash the provider is polled for the outcome,
# and never asked for the money again.
SQL_CLAIM_DUE: Final = Statement(f"""
WITH due AS MATERIALIZED (
    SELECT one.id, one.asked_before
      FROM unnest(%(keys)s::text[], %(slots)s::integer[]) AS provider (key, slots)
     CROSS JOIN LATERAL (
         SELECT id, asked_at AS asked_before
           FROM top_ups
          WHERE due_at <= statement_timestamp()
            AND CASE method WHEN 'voucher' THEN provider ELSE method END = provider.key
          ORDER BY due_at
          LIMIT provider.slots
            FOR NO KEY UPDATE SKIP LOCKED
     ) AS one
)
UPDATE top_ups
   SET due_at = clock_timestamp() + %(lease)s::interval,
       tries = tries + 1,
       asked_at = coalesce(asked_at, clock_timestamp())
 WHERE id = ANY(ARRAY(SELECT id FROM due))
RETURNING {_COLUMNS},
          (SELECT asked_before IS NOT NULL FROM due WHERE due.id = top_ups.id) AS was_asked
""")  # noqa: S608 - only names of columns are put in


@dataclass(frozen=True, slots=True)
class ClaimedTopUp:
    """A top-up under our lease, and whether its provider may have been called before."""

    top_up: TopUp
    was_asked: bool


async def claim_due(
    connection: Connection, slots: Mapping[str, int], lease_s: float
) -> Sequence[ClaimedTopUp]:
    """Claim top-ups that are due, up to the free slots of each provider.

    No other worker gets them while the lease lasts, unless a notice makes one due again. `due_at` of what is
    returned is the end of the lease.
    """
    rows = await SQL_CLAIM_DUE.rows(
        connection, keys=list(slots), slots=list(slots.values()), lease=timedelta(seconds=lease_s)
    )
    return [ClaimedTopUp(_top_up(row), row["was_asked"]) for row in rows]


SQL_MARK_DUE: Final = Statement("""
UPDATE top_ups
   SET due_at = least(due_at, clock_timestamp())
 WHERE id = %(top_up_id)s
RETURNING 1
""")

SQL_POSTPONE: Final = Statement("""
UPDATE top_ups
   SET due_at = clock_timestamp() + %(wait)s::interval
 WHERE id = %(top_up_id)s
""")


async def mark_due(connection: Connection, top_up_id: TopUpId) -> None:
    """Have a top-up polled soon, because its provider says that something happened."""
    await SQL_MARK_DUE.rows(connection, top_up_id=top_up_id)


async def postpone(connection: Connection, top_up_id: TopUpId, wait_s: float | None) -> None:
    """Set when a top-up is polled next; None for never."""
    await SQL_POSTPONE.rows(connection, top_up_id=top_up_id, wait=_interval(wait_s))


def _interval(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


SQL_NOTE_PROBLEM: Final = Statement("UPDATE top_ups SET problem = %(problem)s WHERE id = %(top_up_id)s")


async def note_problem(connection: Connection, top_up_id: TopUpId, problem: str) -> None:
    """Record a problem for the operator on a top-up that has ended."""
    await SQL_NOTE_PROBLEM.rows(connection, top_up_id=top_up_id, problem=problem)


SQL_MARK: Final = Statement("""
UPDATE top_ups
   SET state = %(state)s,
       paid = coalesce(%(paid)s, paid),
       amount = coalesce(%(amount)s, amount),
       provider_reference = coalesce(%(provider_reference)s, provider_reference),
       kept = kept || %(kept)s::jsonb,
       reason = %(reason)s,
       problem = %(problem)s,
       sealed_pin = CASE WHEN %(keeps_pin)s::boolean THEN sealed_pin END,
       sealed_change = coalesce(%(sealed_change)s, sealed_change),
       owed = %(owed)s,
       note = coalesce(%(note)s, note),
       resolved_by = coalesce(%(resolved_by)s, resolved_by),
       due_at = CASE WHEN %(keeps_due)s::boolean THEN due_at ELSE clock_timestamp() + %(wait)s::interval END,
       finished_at = CASE WHEN %(is_open)s::boolean THEN NULL ELSE clock_timestamp() END
 WHERE id = %(top_up_id)s
""")


@dataclass(frozen=True, slots=True)
class TopUpUpdate:
    """What a top-up becomes; `wait_s` is the time until the next poll, None for never."""

    state: TopUpState
    wait_s: float | None = None
    # Another process has set the next poll since: `wait_s` is ignored.
    keeps_due: bool = False
    paid: Decimal | None = None
    amount: Decimal | None = None
    provider_reference: str | None = None
    kept: Mapping[str, str] = field(default_factory=dict)
    reason: str | None = None
    problem: str | None = None
    keeps_pin: bool = False
    sealed_change: bytes | None = field(default=None, repr=False)
    owed: Decimal = Decimal(0)
    note: str | None = None
    resolved_by: str | None = None


async def mark(connection: Connection, top_up_id: TopUpId, step: TopUpUpdate) -> None:
    """Update a locked top-up; raises UniqueViolationError for a reference that was credited before."""
    values = {name: getattr(step, name) for name in TopUpUpdate.__slots__ if name != "wait_s"}
    values |= {
        "top_up_id": top_up_id,
        "kept": json.dumps(dict(step.kept)),
        "wait": _interval(step.wait_s),
        "is_open": step.state in OPEN_STATES,
    }
    await SQL_MARK.rows(connection, **values)


SQL_COUNT_OPEN: Final = Statement("""
SELECT count(*) FILTER (WHERE account_id = %(account_id)s) AS of_account,
       count(*) FILTER (WHERE phone = %(phone)s) AS of_phone
  FROM top_ups
 WHERE state IN ('started', 'pending', 'doubt')
   AND method = %(method)s
   AND id >= %(since)s
""")


async def count_open(
    connection: Connection, account_id: AccountId, phone: str | None, method: Method, since: UUID
) -> tuple[int, int]:
    """Return how many recent top-ups are open: of the account, and from the phone number."""
    row = await SQL_COUNT_OPEN.row(connection, account_id=account_id, phone=phone, method=method, since=since)
    assert row is not None
    return row["of_account"], row["of_phone"]


SQL_FORGET_CHANGE: Final = Statement("""
UPDATE top_ups
   SET sealed_change = NULL
 WHERE id = %(top_up_id)s
   AND account_id = %(account_id)s
""")


async def forget_change(connection: Connection, account_id: AccountId, top_up_id: TopUpId) -> None:
    """Erase a change voucher that the customer has noted down."""
    await SQL_FORGET_CHANGE.rows(connection, account_id=account_id, top_up_id=top_up_id)


# One statement, so no balance is ever read and then written.
SQL_CREDIT: Final = Statement("""
WITH moved AS (
    UPDATE accounts
       SET balance = balance + %(amount)s
     WHERE id = %(account_id)s
 RETURNING id, balance
), recorded AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, top_up_id)
    SELECT id, %(book)s, 'customer', %(amount)s, %(top_up_id)s
      FROM moved
)
SELECT balance FROM moved
""")


async def credit(
    connection: Connection, account_id: AccountId, top_up_id: TopUpId, method: Method, amount: Decimal
) -> Decimal:
    """Credit an account with its top-up and return the new balance; a second time it raises."""
    balance = await SQL_CREDIT.value(
        connection, account_id=account_id, top_up_id=top_up_id, book=_book(method), amount=amount
    )
    assert isinstance(balance, Decimal)
    return balance


# The balance is locked first: at most what is there can be taken.
SQL_TAKE_BACK: Final = Statement("""
WITH held AS MATERIALIZED (
    SELECT id, least(balance, %(amount)s::numeric) AS taken
      FROM accounts
     WHERE id = %(account_id)s
       FOR NO KEY UPDATE
), moved AS (
    UPDATE accounts
       SET balance = balance - held.taken
      FROM held
     WHERE accounts.id = held.id
), recorded AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, top_up_id)
    SELECT id, 'customer', %(book)s, taken, %(top_up_id)s
      FROM held
     WHERE taken > 0
)
SELECT taken FROM held
""")


async def take_back(
    connection: Connection, account_id: AccountId, top_up_id: TopUpId, method: Method, amount: Decimal
) -> Decimal:
    """Take back as much of an amount as the balance holds, and return how much that was."""
    taken = await SQL_TAKE_BACK.value(
        connection, account_id=account_id, top_up_id=top_up_id, book=_book(method), amount=amount
    )
    assert isinstance(taken, Decimal)
    return taken


def _book(method: Method) -> str:
    return f"topup:{method}"
