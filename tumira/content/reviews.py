"""Which refused texts does the operator look at, and what is left of one that was looked at?"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import asyncpg

from tumira.content.store import Words
from tumira.content.template_store import Template
from tumira.content.templates import TemplateVerdict
from tumira.core.ids import AccountId, TemplateId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# After everything that can stand in a list.
LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)
NOBODY: Final = AccountId(UUID(int=0))
NEWEST: Final = TemplateId(UUID(int=(1 << 128) - 1))


@dataclass(frozen=True, slots=True)
class Review:
    """A text that was refused, whose it is, and what they say about it if they asked for a review."""

    account_id: AccountId
    business: str
    digest: bytes
    first_at: datetime
    last_at: datetime
    count: int
    category: str
    score: float
    reasons: Words
    text: str | None
    review_asked_at: datetime | None
    review_note: str | None
    consents: bool


def _review(row: asyncpg.Record) -> Review:
    return Review(**{**dict(row), "reasons": json.loads(row["reasons"])})


_SELECT: Final = """
SELECT r.account_id, a.business, r.digest, r.first_at, r.last_at, r.count, r.category, r.score, r.reasons,
       r.text, r.review_asked_at, r.review_note, a.review_consent AS consents
  FROM content_refusals r
  JOIN accounts a ON a.id = r.account_id
"""

# Whoever has waited longest comes first.
SQL_LIST_ASKED: Final = Statement(
    _SELECT
    + """
 WHERE r.review_asked_at IS NOT NULL
 ORDER BY r.review_asked_at
 LIMIT %(count_max)s
"""
)


async def list_asked(connection: Connection, count_max: int) -> Sequence[Review]:
    """Return the refused texts that their owners asked us to look at."""
    return [_review(row) for row in await SQL_LIST_ASKED.rows(connection, count_max=count_max)]


# The first condition is for the index; the second goes on inside one moment.
SQL_LIST_BEFORE: Final = Statement(
    _SELECT
    + """
 WHERE r.last_at <= %(before)s
   AND (r.last_at, r.account_id, r.digest) < (%(before)s, %(account_id)s, %(digest)s)
 ORDER BY r.last_at DESC, r.account_id DESC, r.digest DESC
 LIMIT %(count_max)s
"""
)


async def list_before(
    connection: Connection,
    count_max: int,
    before: datetime = LATEST,
    account_id: AccountId = NOBODY,
    digest: bytes = b"",
) -> Sequence[Review]:
    """Return the texts that were refused last, before one of them."""
    rows = await SQL_LIST_BEFORE.rows(
        connection, before=before, account_id=account_id, digest=digest, count_max=count_max
    )
    return [_review(row) for row in rows]


SQL_FIND: Final = Statement(
    _SELECT
    + """
 WHERE r.account_id = %(account_id)s
   AND r.digest = %(digest)s
"""
)


async def find(connection: Connection, account_id: AccountId, digest: bytes) -> Review | None:
    """Return a refused text; None if there is none."""
    row = await SQL_FIND.row(connection, account_id=account_id, digest=digest)
    return None if row is None else _review(row)


# Given for a review alone, the text goes with it; where the account lets us keep texts, it stays.
SQL_CLOSE: Final = Statement("""
UPDATE content_refusals r
   SET review_asked_at = NULL, review_note = NULL, text = CASE WHEN a.review_consent THEN r.text END
  FROM accounts a
 WHERE r.account_id = %(account_id)s
   AND r.digest = %(digest)s
   AND r.review_asked_at IS NOT NULL
   AND a.id = r.account_id
RETURNING 1
""")


async def close(connection: Connection, account_id: AccountId, digest: bytes) -> bool:
    """End a review; False when none was asked for, or somebody else has ended it."""
    return await SQL_CLOSE.value(connection, account_id=account_id, digest=digest) is not None


@dataclass(frozen=True, slots=True)
class ListedTemplate:
    """A template, and whose it is; without a business it is everybody's."""

    template: Template
    business: str | None


SQL_LIST_TEMPLATES: Final = Statement("""
SELECT t.id, t.account_id, t.pattern, t.verdict, t.note, t.created_at, t.created_by, a.business
  FROM templates t
  LEFT JOIN accounts a ON a.id = t.account_id
 WHERE t.id < %(before)s
 ORDER BY t.id DESC
 LIMIT %(count_max)s
""")


async def list_templates(
    connection: Connection, count_max: int, before: TemplateId = NEWEST
) -> Sequence[ListedTemplate]:
    """Return templates made before one of them, the newest first."""
    rows = await SQL_LIST_TEMPLATES.rows(connection, before=before, count_max=count_max)
    return [
        ListedTemplate(
            Template(
                TemplateId(row["id"]),
                row["account_id"],
                row["pattern"],
                TemplateVerdict(row["verdict"]),
                row["note"],
                row["created_at"],
                row["created_by"],
            ),
            row["business"],
        )
        for row in rows
    ]
