"""Which texts were refused, how often, and for which words?

A text itself is kept only while its account consents to review, or where its owner gave it to us to ask for
one. Rows are kept for 30 days after the last
time, and at most 10,000 of an account: a task deletes the oldest above that, so between two of its turns
there can be as many more as the account makes calls.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

import asyncpg
from msgspec import Struct

from tumira.core.ids import AccountId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

KEPT: Final = timedelta(days=30)
PER_ACCOUNT_MAX: Final = 10_000

_NUMBER: Final = re.compile(r"\d+")

# The words that weighed, each with its category.
Words = Sequence[Mapping[str, str]]


def digest_of(text: str) -> bytes:
    """Return under what a text is kept: one with another code, date or amount in figures is the same."""
    return sha256(_NUMBER.sub("0", text).encode()).digest()


class NewRefusal(Struct, frozen=True):
    """A text that was refused just now; `digest` is the same for texts that differ in their numbers alone."""

    account_id: AccountId
    digest: bytes
    at: datetime
    category: str
    score: float
    reasons: Words
    text: str | None


@dataclass(frozen=True, slots=True)
class ContentRefusal:
    """A text that was refused, and how often."""

    account_id: AccountId
    first_at: datetime
    last_at: datetime
    count: int
    category: str
    score: float
    reasons: Words
    text: str | None
    digest: bytes
    # When its owner asked the operator to look at it, and what they say about it.
    review_asked_at: datetime | None
    review_note: str | None


# What is kept about the text is that of the last time: templates and the account's consent change. A text
# that its owner gave us for a review stays until the operator has seen it.
SQL_RECORD: Final = Statement("""
INSERT INTO content_refusals AS old
       (account_id, digest, first_at, last_at, count, category, score, reasons, text)
SELECT account_id, digest, at, at, count, category, score, reasons::jsonb, text
  FROM unnest(%(account_ids)s::uuid[], %(digests)s::bytea[], %(ats)s::timestamptz[], %(counts)s::bigint[],
              %(categories)s::text[], %(scores)s::double precision[], %(reasons)s::text[], %(texts)s::text[])
       AS refusal (account_id, digest, at, count, category, score, reasons, text)
    ON CONFLICT (account_id, digest) DO UPDATE
   SET last_at = excluded.last_at,
       count = old.count + excluded.count,
       category = excluded.category,
       score = excluded.score,
       reasons = excluded.reasons,
       text = coalesce(excluded.text, CASE WHEN old.review_asked_at IS NOT NULL THEN old.text END)
""")


async def record(connection: Connection, refusals: Sequence[NewRefusal]) -> None:
    """Note the texts that a group of calls was refused for; the accounts are held by us."""
    # One statement may not touch a row twice.
    counts = Counter((refusal.account_id, refusal.digest) for refusal in refusals)
    latest = {(refusal.account_id, refusal.digest): refusal for refusal in refusals}
    rows = [latest[key] for key in sorted(latest)]
    await SQL_RECORD.rows(
        connection,
        account_ids=[row.account_id for row in rows],
        digests=[row.digest for row in rows],
        ats=[row.at for row in rows],
        counts=[counts[row.account_id, row.digest] for row in rows],
        categories=[row.category for row in rows],
        scores=[row.score for row in rows],
        reasons=[json.dumps(row.reasons) for row in rows],
        texts=[row.text for row in rows],
    )


_REFUSAL: Final = """
SELECT account_id, first_at, last_at, count, category, score, reasons, text, digest, review_asked_at,
       review_note
  FROM content_refusals
"""

SQL_LIST: Final = Statement(_REFUSAL + "ORDER BY last_at DESC LIMIT %(count_max)s")

SQL_LIST_OF_ACCOUNT: Final = Statement(
    _REFUSAL + "WHERE account_id = %(account_id)s ORDER BY last_at DESC LIMIT %(count_max)s"
)


async def list_latest(
    connection: Connection, account_id: AccountId | None, count_max: int
) -> Sequence[ContentRefusal]:
    """Return an account's refused texts, or everybody's, those refused last first."""
    if account_id is None:
        rows = await SQL_LIST.rows(connection, count_max=count_max)
    else:
        rows = await SQL_LIST_OF_ACCOUNT.rows(connection, account_id=account_id, count_max=count_max)
    return [_refusal(row) for row in rows]


SQL_FIND: Final = Statement(_REFUSAL + "WHERE account_id = %(account_id)s AND digest = %(digest)s")


async def find(connection: Connection, account_id: AccountId, digest: bytes) -> ContentRefusal | None:
    """Return one of an account's refused texts; None if it has no such."""
    row = await SQL_FIND.row(connection, account_id=account_id, digest=digest)
    return None if row is None else _refusal(row)


SQL_ASK_REVIEW: Final = Statement("""
UPDATE content_refusals
   SET review_asked_at = clock_timestamp(), review_note = %(note)s, text = %(text)s
 WHERE account_id = %(account_id)s
   AND digest = %(digest)s
""")


async def ask_review(
    connection: Connection, account_id: AccountId, digest: bytes, *, note: str, text: str
) -> None:
    """Keep a refused text that its owner gave us, and what they say about it, for the operator to see."""
    await SQL_ASK_REVIEW.rows(connection, account_id=account_id, digest=digest, note=note, text=text)


def _refusal(row: asyncpg.Record) -> ContentRefusal:
    return ContentRefusal(
        AccountId(row["account_id"]),
        row["first_at"],
        row["last_at"],
        row["count"],
        row["category"],
        row["score"],
        json.loads(row["reasons"]),
        row["text"],
        row["digest"],
        row["review_asked_at"],
        row["review_note"],
    )


SQL_ERASE_TEXTS: Final = Statement("""
UPDATE content_refusals
   SET text = NULL
 WHERE account_id = %(account_id)s
   AND text IS NOT NULL
""")


async def erase_texts(connection: Connection, account_id: AccountId) -> None:
    """Erase an account's refused texts; that they were refused stays."""
    await SQL_ERASE_TEXTS.rows(connection, account_id=account_id)


# Skipping what is locked: it is being refused once more just now, and two who wait for each other's rows
# would never end.
SQL_DELETE_OLD: Final = Statement("""
WITH old AS MATERIALIZED (
    SELECT account_id, digest
      FROM content_refusals
     WHERE last_at < statement_timestamp() - %(kept)s::interval
     ORDER BY last_at
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
)
DELETE FROM content_refusals
 WHERE (account_id, digest) IN (SELECT account_id, digest FROM old)
RETURNING 1
""")

# The first that is one too many, counted from the newest, is found on the account's index.
SQL_DELETE_SURPLUS: Final = Statement("""
WITH surplus AS MATERIALIZED (
    SELECT r.account_id, r.digest
      FROM accounts a
     CROSS JOIN LATERAL (
           SELECT last_at
             FROM content_refusals
            WHERE account_id = a.id
            ORDER BY last_at DESC
           OFFSET %(kept_max)s
            LIMIT 1
           ) edge
      JOIN content_refusals r ON r.account_id = a.id AND r.last_at <= edge.last_at
     LIMIT %(count_max)s
       FOR UPDATE OF r SKIP LOCKED
)
DELETE FROM content_refusals
 WHERE (account_id, digest) IN (SELECT account_id, digest FROM surplus)
RETURNING 1
""")


async def delete_old(connection: Connection, count_max: int) -> int:
    """Forget refusals that are old or too many, up to `count_max` of each, and return how many."""
    old = await SQL_DELETE_OLD.rows(connection, kept=KEPT, count_max=count_max)
    surplus = await SQL_DELETE_SURPLUS.rows(connection, kept_max=PER_ACCOUNT_MAX, count_max=count_max)
    return len(old) + len(surplus)
