"""Search for accounts by words of their names, by phone number, or the newest.

Each way walks along one index. A word that very many names have leads past accounts whose other words do not
fit: a search that has looked at too many of them says so, and goes on from there when it is asked to.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

import asyncpg

from tumira.core.ids import AccountId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

LOOK_MAX: Final = 2_000
WORDS_MAX: Final = 8
# Longer than any number is.
_NINES: Final = "9" * 15
_DIGITS_MIN: Final = 3

FIRST: Final = AccountId(UUID(int=0))
LAST: Final = AccountId(UUID(int=(1 << 128) - 1))

_NUMBER: Final = re.compile(r"\+?[0-9][0-9 ()./-]{0,30}")
_NOT_A_DIGIT: Final = re.compile(r"[^0-9]+")


@dataclass(frozen=True, slots=True)
class FoundAccount:
    id: AccountId
    phone: str
    name: str
    business: str
    balance: Decimal
    suspended_at: datetime | None
    closed_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SearchCursor:
    """Where a search by words continues: after an account, at one of its words."""

    word: str
    account_id: AccountId


@dataclass(frozen=True, slots=True)
class FoundAccounts:
    """Accounts, and where the search goes on if there may be more.

    `is_cut` tells that it stopped because it had looked at too many others.
    """

    accounts: Sequence[FoundAccount]
    following: SearchCursor | None
    is_cut: bool


_COLUMNS: Final = "id, phone, name, business, balance, suspended_at, closed_at, created_at"

SQL_NEWEST: Final = Statement(f"""
SELECT {_COLUMNS}
  FROM accounts
 WHERE id < %(before)s
   AND phone <> 'system'
 ORDER BY id DESC
 LIMIT %(count_max)s
""")  # noqa: S608 - only names of columns are put in


async def list_newest(
    connection: Connection, count_max: int, before: AccountId = LAST
) -> tuple[Sequence[FoundAccount], bool]:
    """Return the newest customers' accounts, and whether there are older ones."""
    rows = await SQL_NEWEST.rows(connection, before=before, count_max=count_max + 1)
    return [FoundAccount(*row) for row in rows[:count_max]], len(rows) > count_max


# All numbers begin with a plus sign and go on with digits, so every collation has them in the same order, and
# the index that keeps them unique is the one to walk along.
SQL_PHONES: Final = Statement(f"""
SELECT account.*
  FROM unnest(%(beginnings)s::text[]) AS wanted (beginning)
 CROSS JOIN LATERAL (
       SELECT {_COLUMNS}
         FROM accounts
        WHERE phone BETWEEN wanted.beginning AND wanted.beginning || %(nines)s::text
          AND phone > %(after)s
        ORDER BY phone
        LIMIT %(count_max)s
       ) AS account
 ORDER BY account.phone
 LIMIT %(count_max)s
""")  # noqa: S608 - only names of columns are put in


async def list_by_phone(
    connection: Connection, beginnings: Sequence[str], count_max: int, after: str = "+"
) -> tuple[Sequence[FoundAccount], bool]:
    """Return accounts whose number has one of these prefixes, by number, and whether there are more."""
    rows = await SQL_PHONES.rows(
        connection, beginnings=beginnings, nines=_NINES, after=after, count_max=count_max + 1
    )
    return [FoundAccount(*row) for row in rows[:count_max]], len(rows) > count_max


def phone_beginnings(text: str, calling_codes: Sequence[str]) -> Sequence[str]:
    """Return the prefixes of a number that was typed whole or in part; nothing for other texts.

    Without a plus sign it may be written as at home, with a zero or without.
    """
    if not _NUMBER.fullmatch(text):
        return []
    digits = _NOT_A_DIGIT.sub("", text)
    is_whole = text.startswith("+") or digits.startswith("00")
    digits = digits.removeprefix("00") if is_whole else digits
    if len(digits) < _DIGITS_MIN:
        return []
    if is_whole:
        return [f"+{digits}"]
    at_home = digits.removeprefix("0")
    found = {f"+{code}{at_home}" for code in calling_codes}
    if at_home == digits:
        found.add(f"+{digits}")
    # What lies within another stretch would be found twice.
    return sorted(one for one in found if not any(one != other and one.startswith(other) for other in found))


SQL_WORDS: Final = Statement("""
SELECT word
  FROM words_of(%(text)s) AS word
 ORDER BY length(word) DESC, word
 LIMIT %(count_max)s
""")

# In the order of the index to the end, so that no more accounts are looked at than are needed. The last one
# that was looked at is returned even if it does not fit: from there the search goes on. An account with
# several words that begin so is found by the first of them.
SQL_BY_WORD: Final = Statement(f"""
SELECT account.*, word, fits, place = %(look_max)s AS is_last
  FROM (SELECT word, account_id, row_number() OVER (ORDER BY word, account_id) AS place
          FROM account_words
         WHERE (word, account_id) > (%(word)s, %(after)s)
           AND word >= %(beginning)s::text
           AND word < %(beginning)s::text || chr(1114111)
         ORDER BY word, account_id
         LIMIT %(look_max)s) AS near
 CROSS JOIN LATERAL (
       SELECT {_COLUMNS}
         FROM accounts
        WHERE id = near.account_id
       OFFSET 0
       ) AS account
 CROSS JOIN LATERAL (
       SELECT account.phone <> 'system'
              AND NOT EXISTS (
                  SELECT
                    FROM account_words
                   WHERE account_id = near.account_id
                     AND word >= %(beginning)s
                     AND word < near.word
              )
              AND NOT EXISTS (
                  SELECT
                    FROM unnest(%(others)s::text[]) AS other (beginning)
                   WHERE NOT EXISTS (
                         SELECT
                           FROM account_words
                          WHERE account_id = near.account_id
                            AND starts_with(word, other.beginning)
                   )
              ) AS fits
       OFFSET 0
       ) AS judged
 WHERE fits OR place = %(look_max)s
 ORDER BY word, near.account_id
 LIMIT %(count_max)s
""")  # noqa: S608 - only names of columns are put in


async def list_by_words(
    connection: Connection,
    text: str,
    count_max: int,
    after: SearchCursor | None = None,
    look_max: int = LOOK_MAX,
) -> FoundAccounts:
    """Return accounts that have, for each word typed, a word in their names with that prefix."""
    assert 0 < count_max < look_max
    words = [row["word"] for row in await SQL_WORDS.rows(connection, text=text, count_max=WORDS_MAX)]
    if not words:
        return FoundAccounts([], None, is_cut=False)
    # The longest is the one that the fewest names have.
    beginning, *others = words
    rows = await SQL_BY_WORD.rows(
        connection,
        beginning=beginning,
        others=others,
        word=beginning if after is None else after.word,
        after=FIRST if after is None else after.account_id,
        look_max=look_max,
        count_max=count_max + 1,
    )
    found = [row for row in rows if row["fits"]]
    shown = [FoundAccount(*(row[name] for name in FoundAccount.__slots__)) for row in found[:count_max]]
    if len(found) > count_max:
        return FoundAccounts(shown, _place(found[count_max - 1]), is_cut=False)
    if rows and rows[-1]["is_last"]:
        return FoundAccounts(shown, _place(rows[-1]), is_cut=True)
    return FoundAccounts(shown, None, is_cut=False)


def _place(row: asyncpg.Record) -> SearchCursor:
    return SearchCursor(row["word"], AccountId(row["id"]))
