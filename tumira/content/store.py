"""Refused texts, how often and for which words, and their reviews by the operator.

A text itself is kept only while its account consents to review, or when its owner submitted it for review.
Rows are kept for 30 days after the last refusal, and at most 10,000 per account. A maintenance task deletes
the oldest above that, so between two of its runs there can be more.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from tumira.core.ids import AccountId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

KEPT: Final = timedelta(days=30)
PER_ACCOUNT_MAX: Final = 10_000

_NUMBER: Final = re.compile(r"\d+")

# Beyond every row of a list.
_LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)
_NO_ACCOUNT: Final = AccountId(UUID(int=0))

# The words that weighed, each with its category.
Words = Sequence[Mapping[str, str]]


def digest_of(text: str) -> bytes:
    """Return the key of a text; texts that differ only in their numbers have the same one."""
    return sha256(_NUMBER.sub("0", text).encode()).digest()


class NewRefusal(Struct, frozen=True):
    """A text that was refused just now."""

    account_id: AccountId
    digest: bytes
    at: datetime
    category: str
    score: float
    reasons: Words
    text: str | None


@dataclass(frozen=True, slots=True)
class ContentRefusal:
    account_id: AccountId
    first_at: datetime
    last_at: datetime
    count: int
    category: str
    score: float
    reasons: Words
    text: str | None
    digest: bytes
    # When its owner asked for a review, and their comment.
    review_asked_at: datetime | None
    review_note: str | None
    # The operator's answer to the last request: whether such texts may be sent now, and why.
    review_allowed: bool | None
    review_answer: str | None


# The row describes the last refusal: templates and the account's consent change. A text that its owner
# submitted for review stays until the operator has answered.
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
    """Record the refused texts of a group of calls; this transaction has locked the accounts."""
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
       review_note, review_allowed, review_answer
  FROM content_refusals
"""


def _decode(row: asyncpg.Record) -> dict[str, Any]:
    return {**dict(row), "reasons": json.loads(row["reasons"])}


SQL_LIST: Final = Statement(_REFUSAL + "ORDER BY last_at DESC LIMIT %(count_max)s")

SQL_LIST_OF_ACCOUNT: Final = Statement(
    _REFUSAL + "WHERE account_id = %(account_id)s ORDER BY last_at DESC LIMIT %(count_max)s"
)


async def list_latest(
    connection: Connection, account_id: AccountId | None, count_max: int
) -> Sequence[ContentRefusal]:
    """Return the refused texts of an account, or of all, the latest first."""
    if account_id is None:
        rows = await SQL_LIST.rows(connection, count_max=count_max)
    else:
        rows = await SQL_LIST_OF_ACCOUNT.rows(connection, account_id=account_id, count_max=count_max)
    return [ContentRefusal(**_decode(row)) for row in rows]


SQL_FIND: Final = Statement(_REFUSAL + "WHERE account_id = %(account_id)s AND digest = %(digest)s")


async def find(connection: Connection, account_id: AccountId, digest: bytes) -> ContentRefusal | None:
    """Return one of an account's refused texts, or None."""
    row = await SQL_FIND.row(connection, account_id=account_id, digest=digest)
    return None if row is None else ContentRefusal(**_decode(row))


SQL_ASK_REVIEW: Final = Statement("""
UPDATE content_refusals
   SET review_asked_at = clock_timestamp(), review_note = %(note)s, text = %(text)s,
       review_allowed = NULL, review_answer = NULL
 WHERE account_id = %(account_id)s
   AND digest = %(digest)s
""")


async def ask_review(
    connection: Connection, account_id: AccountId, digest: bytes, *, note: str, text: str
) -> None:
    """Store a refused text with its owner's comment for the operator to review."""
    await SQL_ASK_REVIEW.rows(connection, account_id=account_id, digest=digest, note=note, text=text)


SQL_COUNT_ASKED: Final = Statement("""
SELECT count(*)
  FROM content_refusals
 WHERE account_id = %(account_id)s
   AND review_asked_at IS NOT NULL
""")


async def count_asked(connection: Connection, account_id: AccountId) -> int:
    """Return how many refused texts of an account wait for the operator's answer."""
    waiting: int = await SQL_COUNT_ASKED.value(connection, account_id=account_id)
    return waiting


SQL_ERASE_TEXTS: Final = Statement("""
UPDATE content_refusals
   SET text = NULL
 WHERE account_id = %(account_id)s
   AND text IS NOT NULL
""")


async def erase_texts(connection: Connection, account_id: AccountId) -> None:
    """Erase an account's refused texts; the refusals stay."""
    await SQL_ERASE_TEXTS.rows(connection, account_id=account_id)


# Locked rows are skipped: they are being refused again now, and waiting for them could deadlock.
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

# The first surplus row, counted from the newest, is found on the account's index.
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
    """Delete refusals that are old or surplus, up to `count_max` of each, and return how many."""
    old = await SQL_DELETE_OLD.rows(connection, kept=KEPT, count_max=count_max)
    surplus = await SQL_DELETE_SURPLUS.rows(connection, kept_max=PER_ACCOUNT_MAX, count_max=count_max)
    return len(old) + len(surplus)


@dataclass(frozen=True, slots=True)
class ReviewedText(ContentRefusal):
    """A refused text with what the operator needs to know about its account."""

    business: str
    consents: bool


_REVIEW: Final = """
SELECT r.account_id, r.first_at, r.last_at, r.count, r.category, r.score, r.reasons, r.text, r.digest,
       r.review_asked_at, r.review_note, r.review_allowed, r.review_answer, a.business,
       a.review_consent AS consents
  FROM content_refusals r
  JOIN accounts a ON a.id = r.account_id
"""

# The longest-waiting request comes first.
SQL_LIST_REQUESTED: Final = Statement(
    _REVIEW
    + """
 WHERE r.review_asked_at IS NOT NULL
 ORDER BY r.review_asked_at
 LIMIT %(count_max)s
"""
)


async def list_requested(connection: Connection, count_max: int) -> Sequence[ReviewedText]:
    """Return the refused texts whose owners asked for a review."""
    return [
        ReviewedText(**_decode(row)) for row in await SQL_LIST_REQUESTED.rows(connection, count_max=count_max)
    ]


# The first condition uses the index; the second continues among rows of the same time.
SQL_LIST_REVIEWS: Final = Statement(
    _REVIEW
    + """
 WHERE r.last_at <= %(before)s
   AND (r.last_at, r.account_id, r.digest) < (%(before)s, %(account_id)s, %(digest)s)
 ORDER BY r.last_at DESC, r.account_id DESC, r.digest DESC
 LIMIT %(count_max)s
"""
)


async def list_reviews(
    connection: Connection,
    count_max: int,
    before: datetime = _LATEST,
    account_id: AccountId = _NO_ACCOUNT,
    digest: bytes = b"",
) -> Sequence[ReviewedText]:
    """Return the page of refused texts before a given one, the latest first."""
    rows = await SQL_LIST_REVIEWS.rows(
        connection, before=before, account_id=account_id, digest=digest, count_max=count_max
    )
    return [ReviewedText(**_decode(row)) for row in rows]


SQL_LIST_CONSENTED: Final = Statement(
    _REVIEW
    + """
 WHERE r.last_at >= %(since)s
   AND r.text IS NOT NULL
   AND a.review_consent
 ORDER BY r.last_at
"""
)


async def list_consented(connection: Connection, since: datetime) -> Sequence[ReviewedText]:
    """Return the refused texts since a moment, of accounts that consent to review."""
    return [ReviewedText(**_decode(row)) for row in await SQL_LIST_CONSENTED.rows(connection, since=since)]


SQL_FIND_REVIEW: Final = Statement(
    _REVIEW
    + """
 WHERE r.account_id = %(account_id)s
   AND r.digest = %(digest)s
"""
)


async def find_review(connection: Connection, account_id: AccountId, digest: bytes) -> ReviewedText | None:
    row = await SQL_FIND_REVIEW.row(connection, account_id=account_id, digest=digest)
    return None if row is None else ReviewedText(**_decode(row))


# A text that was submitted only for review is erased; with the account's consent it stays.
SQL_CLOSE_REVIEW: Final = Statement("""
UPDATE content_refusals r
   SET review_asked_at = NULL, review_note = NULL, text = CASE WHEN a.review_consent THEN r.text END,
       review_allowed = %(allowed)s, review_answer = %(answer)s
  FROM accounts a
 WHERE r.account_id = %(account_id)s
   AND r.digest = %(digest)s
   AND r.review_asked_at IS NOT NULL
   AND a.id = r.account_id
RETURNING 1
""")


async def close_review(
    connection: Connection, account_id: AccountId, digest: bytes, *, allowed: bool, answer: str
) -> bool:
    """End a review with an answer; False when none was requested, or another operator has ended it."""
    closed = await SQL_CLOSE_REVIEW.value(
        connection, account_id=account_id, digest=digest, allowed=allowed, answer=answer
    )
    return closed is not None


@dataclass(frozen=True, slots=True)
class RefusedTexts:
    """How many texts were refused while that is kept, and how often."""

    texts: int
    times: int


SQL_COUNT: Final = Statement("""
SELECT count(*) AS texts, coalesce(sum(count), 0)::bigint AS times
  FROM content_refusals
 WHERE account_id = %(account_id)s
""")


async def count(connection: Connection, account_id: AccountId) -> RefusedTexts:
    row = await SQL_COUNT.row(connection, account_id=account_id)
    assert row is not None
    return RefusedTexts(*row)
