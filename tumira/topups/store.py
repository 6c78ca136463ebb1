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
from tumira.topups.states import Currency, Method, TopUp, TopUpState

# Larger than every id.
LAST: Final = TopUpId(UUID(int=(1 << 128) - 1))


_COLUMNS: Final = ", ".join(TopUp.__slots__)
_SELECT: Final = f"SELECT {_COLUMNS} FROM top_ups "  # noqa: S608 - only names of columns are put in


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
    """A top-up before anything has happened with it."""

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
    # Whether somebody has to ask its provider; not for what is decided at once, or comes by itself.
    is_due: bool = True


# Not the account's row: whoever settles holds a top-up first and the account then, and would wait for us in a
# circle where we hold the account and wait for the same PIN.
SQL_LOCK_STARTS: Final = Statement("""
SELECT pg_advisory_xact_lock(hashtextextended('tumira top-ups ' || %(account_id)s::uuid::text, 0))
""")


async def lock_starts(connection: Connection, account_id: AccountId) -> None:
    """Let one after the other start top-ups for an account, until the commit: so they are counted right."""
    await SQL_LOCK_STARTS.rows(connection, account_id=account_id)


SQL_INSERT: Final = Statement("""
INSERT INTO top_ups (id, account_id, method, provider, currency, asked, rate, rate_on, phone, kept,
                     sealed_pin, pin_hash, due_at)
VALUES (%(top_up_id)s, %(account_id)s, %(method)s, %(provider)s, %(currency)s, %(asked)s, %(rate)s,
        %(rate_on)s, %(phone)s, %(kept)s, %(sealed_pin)s, %(pin_hash)s,
        CASE WHEN %(is_due)s::boolean THEN clock_timestamp() END)
""")


async def insert(connection: Connection, new: NewTopUp) -> None:
    """Begin a top-up; raises UniqueViolationError where the same PIN is being tried already."""
    await SQL_INSERT.rows(
        connection,
        top_up_id=new.id,
        account_id=new.account_id,
        method=new.method,
        provider=new.provider,
        currency=new.currency,
        asked=new.asked,
        rate=new.rate,
        rate_on=new.rate_on,
        phone=new.phone,
        kept=json.dumps(dict(new.kept)),
        sealed_pin=new.sealed_pin,
        pin_hash=new.pin_hash,
        is_due=new.is_due,
    )


SQL_FIND: Final = Statement(_SELECT + "WHERE id = %(top_up_id)s AND account_id = %(account_id)s")


async def find(connection: Connection, account_id: AccountId, top_up_id: TopUpId) -> TopUp | None:
    """Return an account's top-up; None for an unknown one and for somebody else's."""
    row = await SQL_FIND.row(connection, top_up_id=top_up_id, account_id=account_id)
    return None if row is None else _top_up(row)


SQL_FIND_ANY: Final = Statement(_SELECT + "WHERE id = %(top_up_id)s")


async def find_any(connection: Connection, top_up_id: TopUpId) -> TopUp | None:
    """Return a top-up, whoever's it is, for the operator and for the provider's notices."""
    row = await SQL_FIND_ANY.row(connection, top_up_id=top_up_id)
    return None if row is None else _top_up(row)


SQL_LOCK: Final = Statement(_SELECT + "WHERE id = %(top_up_id)s FOR NO KEY UPDATE")


async def lock(connection: Connection, top_up_id: TopUpId) -> TopUp:
    """Lock a top-up until the commit; whoever else wants to move it sees what we did."""
    row = await SQL_LOCK.row(connection, top_up_id=top_up_id)
    assert row is not None, "top-ups are never deleted"
    return _top_up(row)


# By both columns of the index, in its order: with one of them fixed PostgreSQL may take the primary key,
# and walk through everybody's.
SQL_LIST_OF_ACCOUNT: Final = Statement(
    _SELECT
    + """
 WHERE account_id >= %(account_id)s
   AND (account_id, id) < (%(account_id)s, %(before)s)
 ORDER BY account_id DESC, id DESC
 LIMIT %(count_max)s
"""
)


async def list_of_account(
    connection: Connection, account_id: AccountId, count_max: int, before: TopUpId = LAST
) -> Sequence[TopUp]:
    """Return an account's top-ups, newest first."""
    rows = await SQL_LIST_OF_ACCOUNT.rows(
        connection, account_id=account_id, before=before, count_max=count_max
    )
    return [_top_up(row) for row in rows]


SQL_LIST: Final = Statement(
    _SELECT
    + """
 WHERE id < %(before)s
   AND id >= %(since)s
   AND state = ANY(%(states)s::text[])
   AND method = ANY(%(methods)s::text[])
 ORDER BY id DESC
 LIMIT %(count_max)s
"""
)


async def list_latest(
    connection: Connection,
    count_max: int,
    *,
    states: Sequence[TopUpState] = tuple(TopUpState),
    methods: Sequence[Method] = tuple(Method),
    since: UUID = UUID(int=0),  # noqa: B008 - a UUID is never changed
    before: UUID = LAST,
) -> Sequence[TopUp]:
    """Return everybody's top-ups of some states and methods, newest first, for the operator."""
    rows = await SQL_LIST.rows(
        connection,
        before=before,
        since=since,
        states=list(states),
        methods=list(methods),
        count_max=count_max,
    )
    return [_top_up(row) for row in rows]


# The mark that a provider may have been asked is committed before it is: whoever finds it there after a crash
# asks what became of it, and never for the money again.
SQL_CLAIM_DUE: Final = Statement(f"""
WITH due AS MATERIALIZED (
    SELECT one.id, one.asked_before
      FROM unnest(%(desks)s::text[], %(rooms)s::integer[]) AS asked (desk, room)
     CROSS JOIN LATERAL (
         SELECT id, asked_at AS asked_before
           FROM top_ups
          WHERE due_at <= statement_timestamp()
            AND CASE method WHEN 'voucher' THEN provider ELSE method END = asked.desk
          ORDER BY due_at
          LIMIT asked.room
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
    """A top-up that is ours to look at for a while, and whether its provider may have been asked before."""

    top_up: TopUp
    was_asked: bool


async def claim_due(
    connection: Connection, rooms: Mapping[str, int], lease_s: float
) -> Sequence[ClaimedTopUp]:
    """Take top-ups that have to be looked at, as many of each provider as there is room for.

    Nobody else gets them while the lease lasts, unless a notice makes one due again. `due_at` of what is
    returned is the end of the lease.
    """
    rows = await SQL_CLAIM_DUE.rows(
        connection, desks=list(rooms), rooms=list(rooms.values()), lease=timedelta(seconds=lease_s)
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
    """Have a top-up looked at soon, because its provider says that something happened."""
    await SQL_MARK_DUE.rows(connection, top_up_id=top_up_id)


async def postpone(connection: Connection, top_up_id: TopUpId, wait_s: float) -> None:
    """Have a top-up looked at again after a while."""
    await SQL_POSTPONE.rows(connection, top_up_id=top_up_id, wait=timedelta(seconds=wait_s))


SQL_STOP_POLLING: Final = Statement("UPDATE top_ups SET due_at = NULL WHERE id = %(top_up_id)s")


async def stop_polling(connection: Connection, top_up_id: TopUpId) -> None:
    """Have a top-up looked at no more."""
    await SQL_STOP_POLLING.rows(connection, top_up_id=top_up_id)


SQL_NOTE_PROBLEM: Final = Statement("UPDATE top_ups SET problem = %(problem)s WHERE id = %(top_up_id)s")


async def note_problem(connection: Connection, top_up_id: TopUpId, problem: str) -> None:
    """Tell the operator something about a top-up that it does not move any more."""
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
    """What a top-up becomes; `wait_s` is after how long it is looked at again, None for never."""

    state: TopUpState
    wait_s: float | None = None
    # Somebody else has said since when it is looked at again: `wait_s` does not count.
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
    """Move a top-up that we hold; raises UniqueViolationError for a reference that was credited before."""
    await SQL_MARK.rows(
        connection,
        top_up_id=top_up_id,
        state=step.state,
        paid=step.paid,
        amount=step.amount,
        provider_reference=step.provider_reference,
        kept=json.dumps(dict(step.kept)),
        reason=step.reason,
        problem=step.problem,
        keeps_pin=step.keeps_pin,
        sealed_change=step.sealed_change,
        owed=step.owed,
        note=step.note,
        resolved_by=step.resolved_by,
        keeps_due=step.keeps_due,
        wait=None if step.wait_s is None else timedelta(seconds=step.wait_s),
        is_open=step.state in {TopUpState.STARTED, TopUpState.PENDING, TopUpState.DOUBT},
    )


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
    """Return how many top-ups begun lately are open, of an account and from a number."""
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
    """Erase a change voucher whose owner has it."""
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
    """Give an account what its top-up brought, and return the balance after it; a second time it raises."""
    balance = await SQL_CREDIT.value(
        connection, account_id=account_id, top_up_id=top_up_id, book=_book(method), amount=amount
    )
    assert isinstance(balance, Decimal)
    return balance


# The balance is held first: what is there is what can be taken.
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
    """Take as much of an amount from an account as is there, and return how much that was."""
    taken = await SQL_TAKE_BACK.value(
        connection, account_id=account_id, top_up_id=top_up_id, book=_book(method), amount=amount
    )
    assert isinstance(taken, Decimal)
    return taken


def _book(method: Method) -> str:
    return f"topup:{method}"
