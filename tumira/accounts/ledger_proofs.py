"""Balances after each transfer, and the proof that an account's transfers add up to its balance.

Every thousandth transfer gets a mark with the sum so far: the balance after any transfer is summed from the
mark before it. A task writes the marks, and sums all transfers again from the first one on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from tumira.accounts.ledger import ENTRIES_MAX, LAST, SIGNED
from tumira.core.ids import AccountId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

MARK_EVERY: Final = 1_000
# In one turn of the task: so many accounts, and of each so many transfers, for marks and for the proof.
ACCOUNTS_PER_TURN: Final = 100
TRANSFERS_PER_TURN: Final = 10_000
PROVED_AGAIN_AFTER: Final = timedelta(minutes=10)


# Planned without values, a plan depends on guesses: of bounds of `id` alone, that they are narrow, and then
# the primary key leads the way, past everybody's transfers. So both columns are compared and sorted by, and
# rows are limited, if only by a number never reached: one index has that order, and no sort is as quick.
def _stretch(low: str, high: str, limit: str = "%(last)s") -> str:
    return f"""
SELECT account_id, id, {SIGNED} AS amount
  FROM transfers
 WHERE (account_id, id) > (%(account_id)s, {low})
   AND (account_id, id) <= (%(account_id)s, {high})
 ORDER BY account_id, id
 LIMIT {limit}
"""  # noqa: S608 - only constants are put in


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
