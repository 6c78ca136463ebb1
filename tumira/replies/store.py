"""Replies as they are stored, for pages, events and retention."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct, structs

from tumira.core.ids import AccountId, MessageId, ReplyId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

HIGHEST: Final = UUID(int=(1 << 128) - 1)
LOWEST: Final = UUID(int=0)


class Reply(Struct, frozen=True):
    """A text that a recipient sent."""

    id: ReplyId
    account_id: AccountId | None
    carrier_id: int
    # The person's number, and ours to which it was sent.
    number: str
    destination: str
    # None once it is erased.
    text: str | None
    # How many parts came, and how many the text has.
    parts: int
    total: int
    # The message that it answers.
    message_id: MessageId | None
    # One of `keywords.Meaning`.
    meaning: str | None
    received_at: datetime

    @property
    def is_complete(self) -> bool:
        return self.parts == self.total


_REPLY: Final = """
SELECT id, account_id, carrier_id, number, destination, text, parts, total, message_id, meaning, received_at
  FROM replies
"""

SQL_INSERT: Final = Statement("""
INSERT INTO replies (id, account_id, carrier_id, number, destination, text, parts, total, message_id, meaning,
                     received_at)
VALUES (%(id)s, %(account_id)s, %(carrier_id)s, %(number)s, %(destination)s, %(text)s, %(parts)s, %(total)s,
        %(message_id)s, %(meaning)s, %(received_at)s)
""")


async def insert(connection: Connection, reply: Reply) -> None:
    await SQL_INSERT.rows(connection, **structs.asdict(reply))


SQL_FIND: Final = Statement(_REPLY + "WHERE id = %(reply_id)s AND account_id = %(account_id)s")


async def find(connection: Connection, account_id: AccountId, reply_id: UUID) -> Reply | None:
    """Return a reply; None for an unknown id and for another account's reply."""
    row = await SQL_FIND.row(connection, reply_id=reply_id, account_id=account_id)
    return None if row is None else Reply(*row)


SQL_LIST_NAMED: Final = Statement(_REPLY + "WHERE id = ANY(%(ids)s::uuid[])")


async def list_named(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, Reply]:
    rows = await SQL_LIST_NAMED.rows(connection, ids=ids) if ids else []
    return {row["id"]: Reply(*row) for row in rows}


# Two statements, because each has an index of its own.
_HOLDS: Final = "(%(text)s::text = '' OR strpos(lower(text), lower(%(text)s::text)) > 0)"

SQL_LIST: Final = Statement(
    _REPLY
    + f"""
 WHERE account_id = %(account_id)s
   AND id < %(before)s
   AND id >= %(since)s
   AND {_HOLDS}
 ORDER BY id DESC
 LIMIT %(count_max)s
"""
)

SQL_LIST_OF_NUMBER: Final = Statement(
    _REPLY
    + f"""
 WHERE number = %(number)s
   AND account_id = %(account_id)s
   AND id < %(before)s
   AND id >= %(since)s
   AND {_HOLDS}
 ORDER BY id DESC
 LIMIT %(count_max)s
"""
)


async def list_of_account(
    connection: Connection,
    account_id: AccountId,
    count_max: int,
    *,
    before: UUID = HIGHEST,
    since: UUID = LOWEST,
    text: str = "",
    number: str | None = None,
) -> Sequence[Reply]:
    """Return the replies to an account, newest first: those that hold a text, and those from a number."""
    asked = {
        "account_id": account_id,
        "before": before,
        "since": since,
        "text": text,
        "count_max": count_max,
    }
    if number is None:
        rows = await SQL_LIST.rows(connection, **asked)
    else:
        rows = await SQL_LIST_OF_NUMBER.rows(connection, **asked, number=number)
    return [Reply(*row) for row in rows]


SQL_LIST_UNMATCHED: Final = Statement(
    _REPLY
    + """
 WHERE account_id IS NULL
   AND id < %(before)s
 ORDER BY id DESC
 LIMIT %(count_max)s
"""
)


async def list_unmatched(
    connection: Connection, count_max: int, *, before: UUID = HIGHEST
) -> Sequence[Reply]:
    """Return the replies that belong to no account, newest first."""
    return [
        Reply(*row) for row in await SQL_LIST_UNMATCHED.rows(connection, before=before, count_max=count_max)
    ]


SQL_LIST_FROM: Final = Statement(_REPLY + "WHERE number = %(number)s ORDER BY id DESC LIMIT %(count_max)s")


async def list_from(connection: Connection, number: str, count_max: int) -> Sequence[Reply]:
    """Return the replies from a number to all accounts, newest first."""
    rows = await SQL_LIST_FROM.rows(connection, number=number, count_max=count_max)
    return [Reply(*row) for row in rows]


SQL_ERASE_TEXTS: Final = Statement("""
UPDATE replies
   SET text = NULL
 WHERE id = ANY(ARRAY(
       SELECT id FROM replies WHERE text IS NOT NULL AND id < %(before)s ORDER BY id LIMIT %(count_max)s
          FOR UPDATE SKIP LOCKED))
RETURNING 1
""")


async def erase_texts(connection: Connection, before: UUID, count_max: int) -> int:
    """Erase the texts of replies with lower ids, and return how many."""
    return len(await SQL_ERASE_TEXTS.rows(connection, before=before, count_max=count_max))


SQL_DELETE_OLD: Final = Statement("""
DELETE FROM replies
 WHERE id = ANY(ARRAY(
       SELECT id FROM replies WHERE id < %(before)s ORDER BY id LIMIT %(count_max)s FOR UPDATE SKIP LOCKED))
RETURNING 1
""")


async def delete_old(connection: Connection, before: UUID, count_max: int) -> int:
    return len(await SQL_DELETE_OLD.rows(connection, before=before, count_max=count_max))


SQL_ERASE_NUMBER: Final = Statement("""
UPDATE replies
   SET number = %(pseudonym)s, text = NULL
 WHERE id = ANY(ARRAY(
       SELECT id FROM replies WHERE number = %(number)s AND id < %(until)s ORDER BY id LIMIT %(count_max)s
          FOR UPDATE))
RETURNING account_id
""")


async def erase_number(
    connection: Connection, number: str, pseudonym: str, until: UUID, count_max: int
) -> Sequence[AccountId | None]:
    """Erase a number and its texts in replies with ids below `until`, and return whose they were."""
    rows = await SQL_ERASE_NUMBER.rows(
        connection, number=number, pseudonym=pseudonym, until=until, count_max=count_max
    )
    return [row["account_id"] for row in rows]
