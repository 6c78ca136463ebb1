"""Rows of invoices, receipts and credit notes, their numbers, and the transfers that wait for one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

import asyncpg
import msgspec

from tumira.core.ids import AccountId, TopUpId
from tumira.papers.content import PaperContent, PaperSeries
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

LAST: Final = (1 << 63) - 1

_decode: Final = msgspec.json.Decoder(PaperContent).decode


@dataclass(frozen=True, slots=True)
class Paper:
    """A stored paper; nothing about it ever changes."""

    account_id: AccountId
    transfer_id: int
    issued_at: datetime
    content: PaperContent

    @property
    def number(self) -> str:
        return self.content.written_number


@dataclass(frozen=True, slots=True)
class DuePaper:
    """A transfer whose paper is to be made."""

    transfer_id: int
    by_entry: bool
    account_id: AccountId
    is_credit: bool
    amount: Decimal
    note: str | None
    top_up_id: TopUpId | None
    created_at: datetime


def _select(rest: str) -> Statement:
    return Statement(f"SELECT account_id, transfer_id, issued_at, content FROM papers {rest}")  # noqa: S608


def _paper(row: asyncpg.Record) -> Paper:
    return Paper(row["account_id"], row["transfer_id"], row["issued_at"], _decode(row["content"]))


SQL_FIND: Final = _select("WHERE series = %(series)s AND number = %(number)s")


async def find_any(connection: Connection, series: PaperSeries, number: int) -> Paper | None:
    """Return a paper of any account, for the operator."""
    row = await SQL_FIND.row(connection, series=series, number=number)
    return None if row is None else _paper(row)


async def find(
    connection: Connection, account_id: AccountId, series: PaperSeries, number: int
) -> Paper | None:
    """Return an account's paper; None for an unknown one and for another account's."""
    found = await find_any(connection, series, number)
    return found if found is not None and found.account_id == account_id else None


SQL_FIND_BY_TRANSFER: Final = _select("WHERE transfer_id = %(transfer_id)s AND account_id = %(account_id)s")


async def find_by_transfer(connection: Connection, account_id: AccountId, transfer_id: int) -> Paper | None:
    row = await SQL_FIND_BY_TRANSFER.row(connection, transfer_id=transfer_id, account_id=account_id)
    return None if row is None else _paper(row)


SQL_FIND_OF_TOP_UP: Final = _select("""
 WHERE transfer_id = (SELECT id FROM transfers WHERE top_up_id = %(top_up_id)s AND to_book = 'customer')
""")


async def find_of_top_up(connection: Connection, top_up_id: TopUpId) -> Paper | None:
    """Return the paper of a top-up's credit."""
    row = await SQL_FIND_OF_TOP_UP.row(connection, top_up_id=top_up_id)
    return None if row is None else _paper(row)


SQL_FIND_REVERSAL: Final = Statement("""
SELECT back.id
  FROM transfers AS credit
  JOIN transfers AS back ON back.top_up_id = credit.top_up_id AND back.from_book = 'customer'
 WHERE credit.id = %(transfer_id)s
   AND credit.to_book = 'customer'
""")


async def find_reversal(connection: Connection, transfer_id: int) -> int | None:
    """Return the transfer that took back the credit of another."""
    found: int | None = await SQL_FIND_REVERSAL.value(connection, transfer_id=transfer_id)
    return found


SQL_LIST: Final = _select("""
 WHERE account_id = %(account_id)s
   AND transfer_id < %(before)s
 ORDER BY account_id, transfer_id DESC
 LIMIT %(count_max)s
""")


async def list_of_account(
    connection: Connection, account_id: AccountId, count_max: int, before: int = LAST
) -> Sequence[Paper]:
    """Return an account's papers, newest first."""
    rows = await SQL_LIST.rows(connection, account_id=account_id, before=before, count_max=count_max)
    return [_paper(row) for row in rows]


SQL_LIST_LATEST: Final = _select("ORDER BY transfer_id DESC LIMIT %(count_max)s")


async def list_latest(connection: Connection, count_max: int) -> Sequence[Paper]:
    """Return the newest papers of all accounts."""
    return [_paper(row) for row in await SQL_LIST_LATEST.rows(connection, count_max=count_max)]


SQL_NUMBERS: Final = Statement("""
SELECT transfer_id, series, number
  FROM papers
 WHERE transfer_id = ANY(%(transfer_ids)s::bigint[])
   AND account_id = %(account_id)s
""")


async def list_numbers(
    connection: Connection, account_id: AccountId, transfer_ids: Sequence[int]
) -> Mapping[int, tuple[PaperSeries, int]]:
    """Return the numbers of the papers of some transfers, by transfer."""
    if not transfer_ids:
        return {}
    rows = await SQL_NUMBERS.rows(connection, account_id=account_id, transfer_ids=list(transfer_ids))
    return {row["transfer_id"]: (PaperSeries(row["series"]), row["number"]) for row in rows}


SQL_ARE_DUE: Final = Statement(
    "SELECT transfer_id FROM papers_due WHERE transfer_id = ANY(%(transfer_ids)s::bigint[])"
)


async def list_waiting(connection: Connection, transfer_ids: Sequence[int]) -> frozenset[int]:
    """Return which of some transfers wait for their paper."""
    rows = await SQL_ARE_DUE.rows(connection, transfer_ids=list(transfer_ids))
    return frozenset(row["transfer_id"] for row in rows)


SQL_HAS_DUE: Final = Statement("SELECT EXISTS (SELECT FROM papers_due)")


async def has_due(connection: Connection) -> bool:
    return bool(await SQL_HAS_DUE.value(connection))


SQL_LOCK_SERIES: Final = Statement("SELECT series, last FROM paper_series ORDER BY series FOR UPDATE")


async def lock_series(connection: Connection) -> dict[PaperSeries, int]:
    """Lock all series until the end of the transaction, and return the last number of each.

    A process that gives numbers waits here for those that gave some before. A number that is not committed
    is given again, so there are no gaps.
    """
    return {PaperSeries(row["series"]): row["last"] for row in await SQL_LOCK_SERIES.rows(connection)}


SQL_LIST_SERIES: Final = Statement("""
SELECT series, last, (SELECT count(*) FROM papers_due) AS due FROM paper_series ORDER BY series
""")


async def list_series(connection: Connection) -> tuple[Mapping[PaperSeries, int], int]:
    """Return the last number of each series, and how many papers are to be made."""
    rows = await SQL_LIST_SERIES.rows(connection)
    return {PaperSeries(row["series"]): row["last"] for row in rows}, rows[0]["due"]


# Up to a transfer, where one is given: those that get a number of a series, in the order of the ledger, and
# that transfer itself.
SQL_LIST_DUE: Final = Statement("""
SELECT transfer_id, by_entry, account_id, to_book = 'customer' AS is_credit, amount, note, top_up_id,
       created_at
  FROM papers_due
  JOIN transfers ON transfers.id = transfer_id
 WHERE transfer_id = %(up_to)s
    OR %(up_to)s::bigint IS NULL
    OR NOT by_entry AND transfer_id < %(up_to)s
 ORDER BY by_entry, transfer_id
 LIMIT %(count_max)s
""")


async def list_due(connection: Connection, count_max: int, up_to: int | None = None) -> Sequence[DuePaper]:
    rows = await SQL_LIST_DUE.rows(connection, count_max=count_max, up_to=up_to)
    return [DuePaper(*row) for row in rows]


SQL_INSERT: Final = Statement("""
WITH made AS (
    INSERT INTO papers (series, number, account_id, transfer_id, total, tax, content)
    VALUES (%(series)s, %(number)s, %(account_id)s, %(transfer_id)s, %(total)s, %(tax)s, %(content)s)
 RETURNING series, number, transfer_id
), counted AS (
    UPDATE paper_series
       SET last = made.number
      FROM made
     WHERE paper_series.series = made.series
)
DELETE FROM papers_due USING made WHERE papers_due.transfer_id = made.transfer_id
""")


async def insert(connection: Connection, due: DuePaper, content: PaperContent) -> None:
    """Store a paper under its number, which is the next one of its series."""
    await SQL_INSERT.rows(
        connection,
        series=content.series,
        number=content.number,
        account_id=due.account_id,
        transfer_id=due.transfer_id,
        total=content.total,
        tax=content.tax,
        content=msgspec.json.encode(content).decode(),
    )
