"""The ledger: transfers between books, balances after each of them, and the proof that they add up.

An account's transfers are inserted while its row is locked, so their ids are in the order in which its
balance changed, and a reader that sees one sees all before it. Every thousandth transfer gets a mark with
the sum so far: the balance after any transfer is summed from the mark before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final

from tumira.core.ids import AccountId, BatchId, MessageId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

MARK_EVERY: Final = 1_000
LOOK_MAX: Final = 10_000
ENTRIES_MAX: Final = 1_000
LAST: Final = (1 << 63) - 1

# In one turn of the task: so many accounts, and of each so many transfers, for marks and for the proof.
ACCOUNTS_PER_TURN: Final = 100
TRANSFERS_PER_TURN: Final = 10_000
PROVED_AGAIN_AFTER: Final = timedelta(minutes=10)

# One statement, so no balance is ever read and then written.
SQL_MOVE: Final = Statement("""
WITH moved AS (
    UPDATE accounts
       SET balance = balance + CASE WHEN %(to_book)s = 'customer' THEN 1 ELSE -1 END * %(amount)s::numeric
     WHERE id = %(account_id)s
 RETURNING id, balance
), recorded AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, note, actor)
    SELECT id, %(from_book)s, %(to_book)s, %(amount)s, %(note)s, %(actor)s
      FROM moved
)
SELECT balance FROM moved
""")


async def adjust(
    connection: Connection, account_id: AccountId, amount: Decimal, *, note: str, actor: str
) -> Decimal:
    """Credit or debit an account on the operator's order; return the balance after it."""
    assert amount != 0
    books = ("adjustment", "customer") if amount > 0 else ("customer", "adjustment")
    balance = await SQL_MOVE.value(
        connection,
        account_id=account_id,
        amount=abs(amount),
        from_book=books[0],
        to_book=books[1],
        note=note,
        actor=actor,
    )
    assert isinstance(balance, Decimal)
    return balance


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer as the operator sees it."""

    id: int
    from_book: str
    to_book: str
    amount: Decimal
    batch_id: BatchId | None
    note: str | None
    actor: str | None
    created_at: datetime


SQL_LIST: Final = Statement("""
SELECT id, from_book, to_book, amount, batch_id, note, actor, created_at
  FROM transfers
 WHERE account_id = %(account_id)s
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_latest(connection: Connection, account_id: AccountId, count_max: int) -> Sequence[Transfer]:
    """Return an account's latest transfers, newest first."""
    rows = await SQL_LIST.rows(connection, account_id=account_id, count_max=count_max)
    return [Transfer(*row) for row in rows]


SQL_BOOKS: Final = Statement("""
SELECT book, sum(amount) AS balance
  FROM (SELECT to_book AS book, amount FROM transfers
         UNION ALL
        SELECT from_book, -amount FROM transfers) AS side
 GROUP BY book
 ORDER BY book
""")


async def books(connection: Connection) -> Mapping[str, Decimal]:
    """Return the balance of each book; their sum is zero."""
    return {row["book"]: row["balance"] for row in await SQL_BOOKS.rows(connection)}


class EntryKind(StrEnum):
    ALL = "all"
    SENDS = "sends"
    REFUNDS = "refunds"
    TOP_UPS = "top-ups"
    ADJUSTMENTS = "adjustments"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A transfer as the account's owner sees it; what was paid is negative."""

    id: int
    kind: EntryKind
    amount: Decimal
    batch_id: BatchId | None
    message_id: MessageId | None
    book: str
    note: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Entries:
    """A page of entries; `older` is the id before which the next page begins.

    `stopped_at` tells how far back the search got before it had looked at too many others.
    """

    entries: Sequence[LedgerEntry]
    older: int | None
    stopped_at: datetime | None


_SIGNED: Final = "CASE WHEN to_book = 'customer' THEN amount ELSE -amount END"
_KIND: Final = """
CASE WHEN message_id IS NOT NULL THEN 'refunds'
     WHEN batch_id IS NOT NULL THEN 'sends'
     WHEN 'adjustment' IN (from_book, to_book) THEN 'adjustments'
     ELSE 'top-ups' END"""


# Planned without values, a plan depends on guesses: of bounds of `id` alone, that they are narrow, and then
# the primary key leads the way, past everybody's transfers. So both columns are compared and sorted by, and
# rows are limited, if only by a number never reached: one index has that order, and no sort is as quick.
def _stretch(low: str, high: str, limit: str = "%(last)s") -> str:
    return f"""
SELECT account_id, id, {_SIGNED} AS amount
  FROM transfers
 WHERE (account_id, id) > (%(account_id)s, {low})
   AND (account_id, id) <= (%(account_id)s, {high})
 ORDER BY account_id, id
 LIMIT {limit}
"""  # noqa: S608 - only constants are put in


# The last row that was looked at is returned even if it does not fit: from there the search goes on.
def _walk(condition: str) -> Statement:
    return Statement(f"""
SELECT id, kind, amount, batch_id, message_id, book, note, created_at, fits, place = %(look_max)s AS is_last
  FROM (SELECT account_id, id, {_SIGNED} AS amount, batch_id, message_id, note, created_at,
               CASE WHEN to_book = 'customer' THEN from_book ELSE to_book END AS book,
               {_KIND} AS kind,
               {_KIND} = ANY(%(kinds)s::text[]) AS fits,
               row_number() OVER (ORDER BY account_id DESC, id DESC) AS place
          FROM transfers
         WHERE {condition}
           AND (account_id, id) >= (%(account_id)s, %(since)s)
           AND (account_id, id) < (%(account_id)s, %(before)s)
         ORDER BY account_id DESC, id DESC
         LIMIT %(look_max)s) AS near
 WHERE fits OR place = %(look_max)s
 ORDER BY account_id DESC, id DESC
 LIMIT %(count_max)s
""")  # noqa: S608 - only constants are put in


SQL_WALK: Final = _walk("true")
SQL_WALK_WITHOUT_BATCH: Final = _walk("batch_id IS NULL")


async def list_entries(
    connection: Connection,
    account_id: AccountId,
    kind: EntryKind,
    count_max: int,
    *,
    since: int = 0,
    before: int = LAST,
    look_max: int = LOOK_MAX,
) -> Entries:
    """Return at most `count_max` of an account's entries of a kind, newest first."""
    assert 0 < count_max < look_max
    statement = SQL_WALK_WITHOUT_BATCH if kind in {EntryKind.TOP_UPS, EntryKind.ADJUSTMENTS} else SQL_WALK
    rows = await statement.rows(
        connection,
        account_id=account_id,
        kinds=list(EntryKind) if kind is EntryKind.ALL else [kind],
        since=since,
        before=before,
        look_max=look_max,
        # One more than is shown tells whether there are more.
        count_max=count_max + 1,
    )
    found = [
        LedgerEntry(row["id"], EntryKind(row["kind"]), *(row[name] for name in LedgerEntry.__slots__[2:]))
        for row in rows
        if row["fits"]
    ]
    if len(found) > count_max:
        return Entries(found[:count_max], found[count_max - 1].id, None)
    if rows and rows[-1]["is_last"]:
        return Entries(found, rows[-1]["id"], rows[-1]["created_at"])
    return Entries(found, None, None)


# Times are in the order of the ids, but no index knows them: the place is found by halving. A probe is the
# account's first transfer from the middle on, and there is one, because the middle is never above the last.
SQL_FIRST_SINCE: Final = Statement("""
WITH RECURSIVE halving (low, high) AS (
    SELECT 0::bigint, coalesce((
               SELECT id + 1
                 FROM transfers
                WHERE (account_id, id) BETWEEN (%(account_id)s, 0) AND (%(account_id)s, %(last)s)
                ORDER BY account_id DESC, id DESC
                LIMIT 1
           ), 0)
     UNION ALL
    SELECT CASE WHEN probe.created_at < %(at)s THEN probe.id + 1 ELSE low END,
           CASE WHEN probe.created_at < %(at)s THEN high ELSE (low + high) / 2 END
      FROM halving
     CROSS JOIN LATERAL (
           SELECT id, created_at
             FROM transfers
            WHERE (account_id, id) >= (%(account_id)s, (low + high) / 2)
            ORDER BY account_id, id
            LIMIT 1
           ) AS probe
     WHERE low < high
)
SELECT low FROM halving WHERE low = high
""")


async def first_since(connection: Connection, account_id: AccountId, at: datetime) -> int:
    """Return the first id that a transfer since this moment may have."""
    return int(await SQL_FIRST_SINCE.value(connection, account_id=account_id, at=at, last=LAST))


# Each of these begins at the one before it, or at a mark between the two if there is one.
SQL_STEPS: Final = Statement(f"""
SELECT wanted.id, mark.transfer_id AS mark_id, mark.balance AS mark_balance, coalesce(step.total, 0) AS total
  FROM unnest(%(ids)s::bigint[], %(previous_ids)s::bigint[]) AS wanted (id, previous_id)
  LEFT JOIN LATERAL (
       SELECT transfer_id, balance
         FROM ledger_marks
        WHERE account_id = %(account_id)s
          AND transfer_id <= wanted.id
        ORDER BY transfer_id DESC
        LIMIT 1
       ) AS mark ON true
 CROSS JOIN LATERAL (
       SELECT sum(amount) AS total
         FROM ({_stretch("greatest(wanted.previous_id, mark.transfer_id)", "wanted.id")}) AS near
       ) AS step
 ORDER BY wanted.id
""")  # noqa: S608 - only constants are put in

# A mark is right if what follows it, up to the next one, makes the difference between the two. From the last
# one on the balance itself is compared.
SQL_WRONG_MARKS: Final = Statement(f"""
SELECT count(*)
  FROM unnest(%(mark_ids)s::bigint[]) AS used (id)
 CROSS JOIN LATERAL (
       SELECT transfer_id, balance
         FROM ledger_marks
        WHERE account_id = %(account_id)s
          AND transfer_id > used.id
        ORDER BY transfer_id
        LIMIT 1
       ) AS following
 WHERE following.balance <> coalesce((
           SELECT balance FROM ledger_marks WHERE account_id = %(account_id)s AND transfer_id = used.id
       ), 0) + (
           SELECT coalesce(sum(amount), 0)
             FROM ({_stretch("used.id", "following.transfer_id")}) AS near
       )
""")  # noqa: S608 - only constants are put in


async def balances_after(
    connection: Connection, account_id: AccountId, ids: Sequence[int]
) -> Mapping[int, Decimal] | None:
    """Return the balance after each of these transfers; None if the marks contradict each other."""
    assert len(ids) <= ENTRIES_MAX
    ascending = sorted(ids)
    steps = await SQL_STEPS.rows(
        connection,
        account_id=account_id,
        ids=ascending,
        previous_ids=[0, *ascending][: len(ascending)],
        last=LAST,
    )
    found: dict[int, Decimal] = {}
    balance, previous_id = Decimal(0), 0
    for step in steps:
        if step["mark_id"] is not None and step["mark_id"] > previous_id:
            balance = step["mark_balance"]
        balance += step["total"]
        previous_id = step["id"]
        found[previous_id] = balance
    used = {step["mark_id"] or 0 for step in steps}
    wrong = await SQL_WRONG_MARKS.value(connection, account_id=account_id, mark_ids=sorted(used), last=LAST)
    return None if wrong else found


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The sum of an account's transfers, beside its balance.

    Of the first ones the sum is taken from the mark that was reached at `since`, which is None while there is
    none; the `counted` ones after it were added up. `proved_at` is when all of them, from the first on, were
    last added up and came to the balance of then; `broken_at`, when they did not, and have not since.
    """

    balance: Decimal
    total: Decimal
    counted: int
    since: datetime | None
    proved_at: datetime | None
    proved_entries: int | None
    broken_at: datetime | None

    @property
    def adds_up(self) -> bool:
        """Whether the sums agree, now and in the last complete proof."""
        return self.total == self.balance and self.broken_at is None


# One statement, so that the balance and the movements are those of one moment.
SQL_STANDING: Final = Statement(f"""
SELECT accounts.balance, coalesce(mark.balance, 0) + coalesce(later.total, 0) AS total, later.counted,
       mark.created_at AS since, proof.proved_at, proof.proved_entries, proof.broken_at
  FROM accounts
  LEFT JOIN LATERAL (
       SELECT transfer_id, balance,
              (SELECT created_at FROM transfers WHERE id = transfer_id) AS created_at
         FROM ledger_marks
        WHERE account_id = %(account_id)s
        ORDER BY transfer_id DESC
        LIMIT 1
       ) AS mark ON true
 CROSS JOIN LATERAL (
       SELECT sum(amount) AS total, count(*) AS counted
         FROM ({_stretch("coalesce(mark.transfer_id, 0)", "%(last)s")}) AS near
       ) AS later
  LEFT JOIN ledger_proofs AS proof ON proof.account_id = accounts.id
 WHERE accounts.id = %(account_id)s
""")  # noqa: S608 - only constants are put in


async def get_state(connection: Connection, account_id: AccountId) -> LedgerState:
    """Sum an account's transfers from the last mark on, beside its balance."""
    row = await SQL_STANDING.row(connection, account_id=account_id, last=LAST)
    assert row is not None, "accounts are never deleted"
    return LedgerState(*row)


@dataclass(frozen=True, slots=True)
class SentBatch:
    """The batch of a debit, if it is still kept."""

    reference: str | None
    recipients: int


# Whose they are is asked so that no index answers it: the way is that of the primary key.
SQL_SENT: Final = Statement("""
SELECT id, reference, recipients
  FROM batches
 WHERE id = ANY(%(ids)s::uuid[])
   AND id BETWEEN %(low)s AND %(high)s
   AND account_id IS NOT DISTINCT FROM %(account_id)s
""")


async def list_sent(
    connection: Connection, account_id: AccountId, ids: Sequence[BatchId]
) -> Mapping[BatchId, SentBatch]:
    """Return the batches of debits; those of dropped weeks are left out."""
    if not ids:
        return {}
    rows = await SQL_SENT.rows(connection, account_id=account_id, ids=ids, low=min(ids), high=max(ids))
    return {row["id"]: SentBatch(row["reference"], row["recipients"]) for row in rows}


@dataclass(frozen=True, slots=True)
class RefundedMessage:
    """The message of a refund, and why it was refunded."""

    recipient: str
    status: str
    failure_reason: str | None


SQL_RETURNED: Final = Statement("""
SELECT id, recipient, status, failure_reason
  FROM messages
 WHERE id = ANY(%(ids)s::uuid[])
   AND id BETWEEN %(low)s AND %(high)s
   AND account_id IS NOT DISTINCT FROM %(account_id)s
""")


async def list_refunded(
    connection: Connection, account_id: AccountId, ids: Sequence[MessageId]
) -> Mapping[MessageId, RefundedMessage]:
    """Return the messages of refunds; those of dropped weeks are left out."""
    if not ids:
        return {}
    rows = await SQL_RETURNED.rows(connection, account_id=account_id, ids=ids, low=min(ids), high=max(ids))
    return {
        row["id"]: RefundedMessage(row["recipient"], row["status"], row["failure_reason"]) for row in rows
    }


SQL_BEGIN_PROOFS: Final = Statement("""
INSERT INTO ledger_proofs (account_id)
SELECT id
  FROM accounts
 WHERE NOT EXISTS (SELECT FROM ledger_proofs WHERE account_id = accounts.id)
 LIMIT %(accounts_max)s
    ON CONFLICT DO NOTHING
""")

# By a clock that stands still, so that the index tells what is due.
SQL_HOLD_PROOFS: Final = Statement("""
SELECT account_id, transfer_id, entries, total
  FROM ledger_proofs
 WHERE due_at <= statement_timestamp()
 ORDER BY due_at
 LIMIT %(accounts_max)s
   FOR NO KEY UPDATE SKIP LOCKED
""")

SQL_MARK: Final = Statement(f"""
WITH mark AS (
    SELECT transfer_id, balance
      FROM ledger_marks
     WHERE account_id = %(account_id)s
     ORDER BY transfer_id DESC
     LIMIT 1
), near AS (
    {_stretch("coalesce((SELECT transfer_id FROM mark), 0)", "%(last)s", "%(transfers_max)s")}
), noted AS (
    INSERT INTO ledger_marks (account_id, transfer_id, balance)
    SELECT account_id, id, coalesce((SELECT balance FROM mark), 0) + total
      FROM (SELECT account_id, id, row_number() OVER (ORDER BY id) AS place,
                   sum(amount) OVER (ORDER BY id) AS total
              FROM near) AS placed
     WHERE place % {MARK_EVERY} = 0
 RETURNING 1
)
SELECT count(*) FROM noted
""")  # noqa: S608 - only constants are put in

# Goes on where the last turn stopped, and compares with every mark that it comes past; one that stands at no
# transfer is as wrong as one that says something else.
SQL_READ_ON: Final = Statement(f"""
WITH read AS MATERIALIZED (
    SELECT id, %(total)s::numeric + sum(amount) OVER (ORDER BY id) AS total
      FROM ({_stretch("%(transfer_id)s", "%(last)s", "%(transfers_max)s")}) AS near
), came AS (
    SELECT count(*) AS entries, coalesce(max(id), %(transfer_id)s) AS transfer_id,
           count(*) < %(transfers_max)s AS is_end
      FROM read
)
SELECT came.transfer_id, came.entries, came.is_end,
       coalesce((SELECT total FROM read WHERE id = came.transfer_id), %(total)s::numeric) AS total,
       (SELECT balance FROM accounts WHERE id = %(account_id)s) AS balance,
       (SELECT count(*)
          FROM ledger_marks AS mark
          LEFT JOIN read ON read.id = mark.transfer_id
         WHERE mark.account_id = %(account_id)s
           AND mark.transfer_id > %(transfer_id)s
           AND (mark.transfer_id <= came.transfer_id OR came.is_end)
           AND read.total IS DISTINCT FROM mark.balance) AS wrong_marks
  FROM came
""")  # noqa: S608 - only constants are put in

SQL_GO_ON: Final = Statement("""
UPDATE ledger_proofs
   SET transfer_id = %(transfer_id)s, entries = %(entries)s, total = %(total)s, due_at = clock_timestamp()
 WHERE account_id = %(account_id)s
""")

SQL_CONCLUDE: Final = Statement("""
UPDATE ledger_proofs
   SET transfer_id = 0,
       entries = 0,
       total = 0,
       due_at = clock_timestamp() + %(again_after)s::interval,
       proved_at = CASE WHEN %(holds)s::boolean THEN clock_timestamp() ELSE proved_at END,
       proved_entries = CASE WHEN %(holds)s THEN %(entries)s ELSE proved_entries END,
       broken_at = CASE WHEN %(holds)s THEN NULL ELSE clock_timestamp() END
 WHERE account_id = %(account_id)s
""")


@dataclass(frozen=True, slots=True)
class ProofTurn:
    """The result of a turn: marks written, accounts proved, and accounts whose sums differ."""

    marks: int
    proved: int
    broken: Sequence[AccountId]


async def add_up(connection: Connection, transfers_max: int = TRANSFERS_PER_TURN) -> ProofTurn:
    """Write the missing marks, and sum the transfers of accounts again from the first on."""
    await SQL_BEGIN_PROOFS.rows(connection, accounts_max=ACCOUNTS_PER_TURN)
    marks = 0
    proved: list[AccountId] = []
    broken: list[AccountId] = []
    for proof in await SQL_HOLD_PROOFS.rows(connection, accounts_max=ACCOUNTS_PER_TURN):
        account_id = AccountId(proof["account_id"])
        marks += int(
            await SQL_MARK.value(connection, account_id=account_id, transfers_max=transfers_max, last=LAST)
        )
        read = await SQL_READ_ON.row(
            connection,
            account_id=account_id,
            transfer_id=proof["transfer_id"],
            total=proof["total"],
            transfers_max=transfers_max,
            last=LAST,
        )
        assert read is not None
        entries = proof["entries"] + read["entries"]
        if not read["is_end"] and not read["wrong_marks"]:
            await SQL_GO_ON.rows(
                connection,
                account_id=account_id,
                transfer_id=read["transfer_id"],
                entries=entries,
                total=read["total"],
            )
            continue
        holds = not read["wrong_marks"] and read["total"] == read["balance"]
        (proved if holds else broken).append(account_id)
        await SQL_CONCLUDE.rows(
            connection,
            account_id=account_id,
            entries=entries,
            holds=holds,
            again_after=PROVED_AGAIN_AFTER,
        )
    return ProofTurn(marks, len(proved), broken)
