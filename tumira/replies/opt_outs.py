"""Opt-outs: the numbers that get no more messages from an account, and the operator's rules about them.

The account's row is locked while one is added, so an accept comes wholly before it or wholly after it.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from tumira.core.errors import RecipientCode
from tumira.core.ids import AccountId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.destinations import NOBODY
from tumira.replies.keywords import Keyword, Keywords, Meaning

# Before which all opt-outs of an account are.
LATEST: Final = (datetime(9999, 1, 1, tzinfo=UTC), "")


class OptOutSource(StrEnum):
    REPLY = "reply"
    # By hand, on the page or at the command line.
    PAGE = "page"
    IMPORT = "import"


class OptOut(Struct, frozen=True):
    number: str
    source: OptOutSource
    added_at: datetime


# The row is changed even where the flag is set: a call that saw the account before then reads it again.
SQL_FLAG: Final = Statement("UPDATE accounts SET has_opt_outs = true WHERE id = %(account_id)s")

SQL_ADD: Final = Statement("""
INSERT INTO opt_outs (account_id, number, source)
SELECT %(account_id)s, number, %(source)s
  FROM unnest(%(numbers)s::text[]) AS asked (number)
 ORDER BY number
    ON CONFLICT (account_id, number) DO NOTHING
RETURNING number
""")


async def add(
    connection: Connection, account_id: AccountId, numbers: Sequence[str], source: OptOutSource
) -> AbstractSet[str]:
    """Opt numbers out of an account's messages, and return those that were not yet."""
    if not numbers:
        return frozenset()
    await SQL_FLAG.rows(connection, account_id=account_id)
    rows = await SQL_ADD.rows(connection, account_id=account_id, numbers=numbers, source=source.value)
    return {row["number"] for row in rows}


SQL_REMOVE: Final = Statement("""
DELETE FROM opt_outs WHERE account_id = %(account_id)s AND number = %(number)s RETURNING 1
""")


async def remove(connection: Connection, account_id: AccountId, number: str) -> bool:
    """Opt a number in again; False if it was not opted out."""
    return await SQL_REMOVE.value(connection, account_id=account_id, number=number) is not None


# The primary key is used for each number, whatever the planner estimates.
SQL_FIND: Final = Statement("""
SELECT asked.account_id, asked.number
  FROM unnest(%(account_ids)s::uuid[], %(numbers)s::text[]) AS asked (account_id, number)
  JOIN LATERAL (
       SELECT FROM opt_outs WHERE account_id = asked.account_id AND number = asked.number OFFSET 0
       ) found ON true
""")


class OptedOut(Struct, frozen=True):
    """Numbers that have opted out of an account's messages, and whether that covers one-time codes."""

    numbers: Mapping[AccountId, AbstractSet[str]] = {}
    covers_passcodes: bool = False

    def bar(self, account_id: AccountId, *, is_passcode: bool) -> Mapping[str, RecipientCode]:
        """Return the numbers that may not get a text from an account, with the reason."""
        numbers = self.numbers.get(account_id)
        if not numbers or (is_passcode and not self.covers_passcodes):
            return NOBODY
        return dict.fromkeys(numbers, RecipientCode.RECIPIENT_OPTED_OUT)


_NOBODY_OPTED_OUT: Final = OptedOut()


async def find(connection: Connection, asked: Sequence[tuple[AccountId, str]]) -> OptedOut:
    """Return which of these numbers have opted out of which account's messages."""
    if not asked:
        return _NOBODY_OPTED_OUT
    rows = await SQL_FIND.rows(
        connection,
        account_ids=[account_id for account_id, _ in asked],
        numbers=[number for _, number in asked],
    )
    if not rows:
        return _NOBODY_OPTED_OUT
    found: dict[AccountId, set[str]] = {}
    for account_id, number in rows:
        found.setdefault(AccountId(account_id), set()).add(number)
    return OptedOut(found, (await get_settings(connection)).covers_passcodes)


SQL_HAS_ANY: Final = Statement("SELECT has_opt_outs FROM accounts WHERE id = %(account_id)s")


async def find_among(connection: Connection, account_id: AccountId, numbers: Sequence[str]) -> OptedOut:
    """Return which of these numbers have opted out of an account's messages."""
    if not numbers or not await SQL_HAS_ANY.value(connection, account_id=account_id):
        return _NOBODY_OPTED_OUT
    return await find(connection, [(account_id, number) for number in numbers])


SQL_LIST_NUMBERS: Final = Statement("SELECT number FROM opt_outs WHERE account_id = %(account_id)s")


async def find_all(connection: Connection, account_id: AccountId) -> OptedOut:
    """Return all numbers that have opted out of an account's messages."""
    rows = await SQL_LIST_NUMBERS.rows(connection, account_id=account_id)
    if not rows:
        return _NOBODY_OPTED_OUT
    numbers = {row["number"] for row in rows}
    return OptedOut({account_id: numbers}, (await get_settings(connection)).covers_passcodes)


SQL_LIST: Final = Statement("""
SELECT number, source, added_at
  FROM opt_outs
 WHERE account_id = %(account_id)s
   AND (added_at, number) < (%(before_at)s, %(before_number)s)
 ORDER BY added_at DESC, number DESC
 LIMIT %(count_max)s
""")

SQL_FIND_ONE: Final = Statement("""
SELECT number, source, added_at FROM opt_outs WHERE account_id = %(account_id)s AND number = %(number)s
""")

SQL_COUNT: Final = Statement("SELECT count(*) FROM opt_outs WHERE account_id = %(account_id)s")


async def list_of_account(
    connection: Connection, account_id: AccountId, before: tuple[datetime, str], count_max: int
) -> Sequence[OptOut]:
    """Return an account's opt-outs before this one, newest first."""
    rows = await SQL_LIST.rows(
        connection, account_id=account_id, before_at=before[0], before_number=before[1], count_max=count_max
    )
    return [OptOut(number, OptOutSource(source), added_at) for number, source, added_at in rows]


async def find_one(connection: Connection, account_id: AccountId, number: str) -> OptOut | None:
    row = await SQL_FIND_ONE.row(connection, account_id=account_id, number=number)
    return None if row is None else OptOut(row["number"], OptOutSource(row["source"]), row["added_at"])


SQL_LIST_OF_NUMBER: Final = Statement("""
SELECT o.account_id, o.number, o.source, o.added_at
  FROM accounts a
  JOIN opt_outs o ON o.account_id = a.id AND o.number = %(number)s
 WHERE a.has_opt_outs
 LIMIT %(count_max)s
""")


async def list_of_number(
    connection: Connection, number: str, count_max: int
) -> Sequence[tuple[AccountId, OptOut]]:
    """Return the accounts of whose messages a number has opted out."""
    rows = await SQL_LIST_OF_NUMBER.rows(connection, number=number, count_max=count_max)
    return [
        (account_id, OptOut(own, OptOutSource(source), added_at))
        for account_id, own, source, added_at in rows
    ]


async def count(connection: Connection, account_id: AccountId) -> int:
    return int(await SQL_COUNT.value(connection, account_id=account_id))


class OptOutSettings(Struct, frozen=True):
    """What the operator decided for all accounts."""

    # Whether an opt-out also stops one-time codes.
    covers_passcodes: bool
    # The text that confirms an opt-out; None for none.
    confirmation: str | None


SQL_GET_SETTINGS: Final = Statement("SELECT covers_passcodes, confirmation FROM opt_out_settings")

SQL_SET_SETTINGS: Final = Statement("""
UPDATE opt_out_settings SET covers_passcodes = %(covers_passcodes)s, confirmation = %(confirmation)s
""")


async def get_settings(connection: Connection) -> OptOutSettings:
    row = await SQL_GET_SETTINGS.row(connection)
    assert row is not None
    return OptOutSettings(*row)


async def set_settings(connection: Connection, settings: OptOutSettings) -> None:
    await SQL_SET_SETTINGS.rows(
        connection, covers_passcodes=settings.covers_passcodes, confirmation=settings.confirmation
    )


SQL_LIST_KEYWORDS: Final = Statement("""
SELECT word, meaning, language, is_active, leads
  FROM reply_keywords
 ORDER BY meaning DESC, is_active DESC, language, word
""")

SQL_PUT_KEYWORD: Final = Statement("""
INSERT INTO reply_keywords (word, meaning, language, is_active, leads)
VALUES (%(word)s, %(meaning)s, %(language)s, %(is_active)s, %(leads)s)
    ON CONFLICT (word) DO UPDATE
   SET meaning = excluded.meaning,
       language = excluded.language,
       is_active = excluded.is_active,
       leads = excluded.leads
""")

SQL_DELETE_KEYWORD: Final = Statement("DELETE FROM reply_keywords WHERE word = %(word)s RETURNING 1")


async def list_keywords(connection: Connection) -> Sequence[Keyword]:
    return [
        Keyword(word, Meaning(meaning), language, is_active, leads)
        for word, meaning, language, is_active, leads in await SQL_LIST_KEYWORDS.rows(connection)
    ]


async def get_keywords(connection: Connection) -> Keywords:
    return Keywords(await list_keywords(connection))


async def put_keyword(connection: Connection, keyword: Keyword) -> None:
    """Add a keyword, or change it."""
    await SQL_PUT_KEYWORD.rows(
        connection,
        word=keyword.word,
        meaning=keyword.meaning.value,
        language=keyword.language,
        is_active=keyword.is_active,
        leads=keyword.leads,
    )


async def delete_keyword(connection: Connection, word: str) -> bool:
    return await SQL_DELETE_KEYWORD.value(connection, word=word) is not None
