"""Templates in the database."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg

from tumira.content.templates import Policy, TemplateVerdict
from tumira.core.ids import AccountId, TemplateId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# Beyond every template.
NEWEST: Final = TemplateId(UUID(int=(1 << 128) - 1))


@dataclass(frozen=True, slots=True)
class Template:
    """A form of text that is allowed or blocked, for one account or, with None, for every one."""

    id: TemplateId
    account_id: AccountId | None
    pattern: str
    verdict: TemplateVerdict
    note: str
    created_at: datetime
    created_by: str


# One statement, so that version and rows are of one moment; a row also when there is no template.
SQL_POLICY: Final = Statement("""
SELECT p.version, t.id, t.account_id, t.pattern, t.verdict
  FROM content_policy p
  LEFT JOIN templates t ON true
 ORDER BY t.id
""")


async def get_policy(connection: Connection) -> Policy:
    """Return all templates, compiled for comparison."""
    rows = await SQL_POLICY.rows(connection)
    assert rows, "the migration inserts the version"
    return Policy(
        rows[0]["version"],
        [
            (row["account_id"], TemplateVerdict(row["verdict"]), row["pattern"])
            for row in rows
            if row["id"] is not None
        ],
    )


SQL_VERSION: Final = Statement("SELECT version FROM content_policy")


async def get_version(connection: Connection) -> int:
    """Return the version of the templates, which every change raises."""
    return int(await SQL_VERSION.value(connection))


# Locked until commit, so that concurrent inserts do not exceed the maximum or add a duplicate.
SQL_LOCK: Final = Statement("SELECT version FROM content_policy FOR UPDATE")

SQL_COUNT: Final = Statement("""
SELECT count(*) AS in_all,
       count(*) FILTER (WHERE account_id IS NOT DISTINCT FROM %(account_id)s::uuid) AS own
  FROM templates
""")


async def lock_and_count(connection: Connection, account_id: AccountId | None) -> tuple[int, int]:
    """Lock the templates; return how many there are, and how many of this account's."""
    await SQL_LOCK.rows(connection)
    row = await SQL_COUNT.row(connection, account_id=account_id)
    assert row is not None
    return row["in_all"], row["own"]


SQL_FIND_SAME: Final = Statement("""
SELECT id
  FROM templates
 WHERE account_id IS NOT DISTINCT FROM %(account_id)s::uuid
   AND pattern = %(pattern)s
""")


async def find_same(connection: Connection, account_id: AccountId | None, pattern: str) -> TemplateId | None:
    """Return the account's template with the same pattern, or None."""
    found = await SQL_FIND_SAME.value(connection, account_id=account_id, pattern=pattern)
    return None if found is None else TemplateId(found)


SQL_INSERT: Final = Statement("""
INSERT INTO templates (id, account_id, pattern, verdict, note, created_at, created_by)
VALUES (%(template_id)s, %(account_id)s, %(pattern)s, %(verdict)s, %(note)s, %(created_at)s, %(created_by)s)
""")


async def insert_template(connection: Connection, template: Template) -> None:
    await SQL_INSERT.rows(
        connection,
        template_id=template.id,
        account_id=template.account_id,
        pattern=template.pattern,
        verdict=template.verdict,
        note=template.note,
        created_at=template.created_at,
        created_by=template.created_by,
    )


# Templates for every account apply to this one too.
SQL_LIST: Final = Statement("""
SELECT id, account_id, pattern, verdict, note, created_at, created_by
  FROM templates
 WHERE %(account_id)s::uuid IS NULL OR account_id IS NULL OR account_id = %(account_id)s
 ORDER BY id
 LIMIT %(count_max)s
""")


async def list_templates(
    connection: Connection, account_id: AccountId | None, count_max: int
) -> Sequence[Template]:
    """Return all templates, or those that apply to an account, the oldest first."""
    rows = await SQL_LIST.rows(connection, account_id=account_id, count_max=count_max)
    return [_template(row) for row in rows]


SQL_DELETE: Final = Statement("""
DELETE FROM templates
 WHERE id = %(template_id)s
RETURNING id, account_id, pattern, verdict, note, created_at, created_by
""")


async def delete_template(connection: Connection, template_id: TemplateId) -> Template | None:
    row = await SQL_DELETE.row(connection, template_id=template_id)
    return None if row is None else _template(row)


@dataclass(frozen=True, slots=True)
class ListedTemplate:
    """A template and the business it belongs to; without a business it is for every account."""

    template: Template
    business: str | None


SQL_LIST_BEFORE: Final = Statement("""
SELECT t.id, t.account_id, t.pattern, t.verdict, t.note, t.created_at, t.created_by, a.business
  FROM templates t
  LEFT JOIN accounts a ON a.id = t.account_id
 WHERE t.id < %(before)s
 ORDER BY t.id DESC
 LIMIT %(count_max)s
""")


async def list_templates_before(
    connection: Connection, count_max: int, before: TemplateId = NEWEST
) -> Sequence[ListedTemplate]:
    """Return the page of templates before a given one, the newest first."""
    rows = await SQL_LIST_BEFORE.rows(connection, before=before, count_max=count_max)
    return [ListedTemplate(_template(row), row["business"]) for row in rows]


def _template(row: asyncpg.Record) -> Template:
    template_id, account_id, pattern, verdict, *others = row
    return Template(template_id, account_id, pattern, TemplateVerdict(verdict), *others[:3])
