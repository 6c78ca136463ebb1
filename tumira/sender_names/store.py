"""Sender names, where each may be used, and the history of both."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import asyncpg

from tumira.core.ids import AccountId, SenderNameId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.sender_names.places import Place

# A paper is kept for this long after the last decision about its name.
PAPER_KEPT: Final = timedelta(days=90)
# Of names that begin or end alike, at most as many are compared.
CANDIDATES_MAX: Final = 1_000
# Above all ids.
LATEST: Final = SenderNameId(UUID(int=(1 << 128) - 1))


class GrantState(StrEnum):
    REQUESTED = "requested"
    GRANTED = "granted"
    REFUSED = "refused"
    REVOKED = "revoked"


# In the history beside the states: a granted name replaced another.
USED: Final = "used"


@dataclass(frozen=True, slots=True)
class Grant:
    """What was asked or decided about a name in one place."""

    place: Place
    state: GrantState
    in_use: bool
    note: str
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class SenderName:
    """A name that an account asked for; the paper itself is read on its own."""

    id: SenderNameId
    account_id: AccountId
    business: str
    name: str
    note: str
    created_at: datetime
    paper_type: str | None
    paper_bytes: int
    grants: Sequence[Grant]

    @property
    def is_waiting(self) -> bool:
        return any(one.state is GrantState.REQUESTED for one in self.grants)

    def find_grant(self, place: Place) -> Grant | None:
        return next((one for one in self.grants if one.place == place), None)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    at: datetime
    actor: str
    place: Place
    change: str
    note: str


@dataclass(frozen=True, slots=True)
class OtherName:
    """A sender name or business of another account, for comparison."""

    account_id: AccountId
    business: str
    name: str


SQL_LOCK: Final = Statement("SELECT pg_advisory_xact_lock(hashtext('tumira sender names'))")


async def lock(connection: Connection) -> None:
    """Make requests and decisions wait for each other: two operators never grant look-alikes at once."""
    await SQL_LOCK.rows(connection)


# A name that was asked for before keeps its id, and its paper unless there is a new one.
SQL_UPSERT: Final = Statement("""
INSERT INTO sender_names AS old (id, account_id, name, key, note, paper, paper_type)
VALUES (%(name_id)s, %(account_id)s, %(name)s, %(key)s, %(note)s, %(paper)s, %(paper_type)s)
    ON CONFLICT (account_id, name) DO UPDATE
   SET note = excluded.note,
       paper = coalesce(excluded.paper, old.paper),
       paper_type = coalesce(excluded.paper_type, old.paper_type)
RETURNING id
""")


async def upsert_name(
    connection: Connection,
    name_id: SenderNameId,
    account_id: AccountId,
    name: str,
    key: str,
    note: str,
    paper: tuple[bytes, str] | None,
) -> SenderNameId:
    data, paper_type = (None, None) if paper is None else paper
    return SenderNameId(
        await SQL_UPSERT.value(
            connection,
            name_id=name_id,
            account_id=account_id,
            name=name,
            key=key,
            note=note,
            paper=data,
            paper_type=paper_type,
        )
    )


# The name in use gives way first: an index allows one in a place.
SQL_MAKE_WAY: Final = Statement("""
UPDATE sender_grants
   SET in_use = false
 WHERE account_id = %(account_id)s
   AND country = %(country)s
   AND network = %(network)s
   AND in_use
   AND name_id <> %(name_id)s
""")

SQL_SET_GRANT: Final = Statement("""
INSERT INTO sender_grants AS old (name_id, account_id, name, country, network, state, in_use, note)
SELECT id, account_id, name, %(country)s, %(network)s, %(state)s, %(in_use)s, %(note)s
  FROM sender_names
 WHERE id = %(name_id)s
    ON CONFLICT (name_id, country, network) DO UPDATE
   SET state = excluded.state, in_use = excluded.in_use, note = excluded.note,
       changed_at = clock_timestamp()
""")

SQL_ADD_HISTORY: Final = Statement("""
INSERT INTO sender_name_history (name_id, actor, country, network, change, note)
VALUES (%(name_id)s, %(actor)s, %(country)s, %(network)s, %(change)s, %(note)s)
""")


async def set_grant(
    connection: Connection,
    name: SenderName,
    place: Place,
    state: GrantState,
    *,
    in_use: bool,
    note: str,
    actor: str,
    change: str | None = None,
) -> None:
    """Write what was asked or decided for a place, and its line of the history."""
    where = {"country": place.country, "network": place.network}
    if in_use:
        await SQL_MAKE_WAY.rows(connection, account_id=name.account_id, name_id=name.id, **where)
    await SQL_SET_GRANT.rows(
        connection, name_id=name.id, state=state.value, in_use=in_use, note=note, **where
    )
    await SQL_ADD_HISTORY.rows(
        connection, name_id=name.id, actor=actor, change=change or state.value, note=note, **where
    )


SQL_HAS_NAME_IN_USE: Final = Statement("""
SELECT EXISTS (
       SELECT
         FROM sender_grants
        WHERE account_id = %(account_id)s
          AND country = %(country)s
          AND network = %(network)s
          AND in_use)
""")


async def has_name_in_use(connection: Connection, account_id: AccountId, place: Place) -> bool:
    return bool(
        await SQL_HAS_NAME_IN_USE.value(
            connection, account_id=account_id, country=place.country, network=place.network
        )
    )


# Octets are counted without reading them.
_NAME: Final = """
SELECT n.id, n.account_id, a.business, n.name, n.note, n.created_at, n.paper_type,
       coalesce(length(n.paper), 0) AS paper_bytes
  FROM sender_names n
  JOIN accounts a ON a.id = n.account_id
"""

SQL_FIND: Final = Statement(_NAME + " WHERE n.id = %(name_id)s")


async def find_name(connection: Connection, name_id: SenderNameId) -> SenderName | None:
    found = await _with_grants(connection, await SQL_FIND.rows(connection, name_id=name_id))
    return found[0] if found else None


SQL_LIST_OF_ACCOUNT: Final = Statement(_NAME + " WHERE n.account_id = %(account_id)s ORDER BY n.id DESC")


async def list_of_account(connection: Connection, account_id: AccountId) -> Sequence[SenderName]:
    rows = await SQL_LIST_OF_ACCOUNT.rows(connection, account_id=account_id)
    return await _with_grants(connection, rows)


SQL_LIST_BEFORE: Final = Statement(_NAME + " WHERE n.id < %(before)s ORDER BY n.id DESC LIMIT %(count_max)s")


async def list_before(
    connection: Connection, count_max: int, before: SenderNameId = LATEST
) -> Sequence[SenderName]:
    """Return the names of all accounts before one of them, newest first."""
    rows = await SQL_LIST_BEFORE.rows(connection, before=before, count_max=count_max)
    return await _with_grants(connection, rows)


SQL_LIST_WAITING: Final = Statement(f"""
WITH waiting AS MATERIALIZED (
    SELECT name_id, min(changed_at) AS since
      FROM (SELECT name_id, changed_at
              FROM sender_grants
             WHERE state = 'requested'
             ORDER BY changed_at
             LIMIT 10 * %(count_max)s) AS oldest
     GROUP BY name_id
)
{_NAME}
  JOIN waiting ON waiting.name_id = n.id
 ORDER BY waiting.since, n.id
 LIMIT %(count_max)s
""")  # noqa: S608 - a constant


async def list_waiting(connection: Connection, count_max: int) -> Sequence[SenderName]:
    """Return the names that wait for a decision, the longest waiting first."""
    return await _with_grants(connection, await SQL_LIST_WAITING.rows(connection, count_max=count_max))


SQL_LIST_GRANTS: Final = Statement("""
SELECT name_id, country, network, state, in_use, note, changed_at
  FROM sender_grants
 WHERE name_id = ANY(%(ids)s::uuid[])
 ORDER BY country DESC, network
""")


async def _with_grants(connection: Connection, rows: Sequence[asyncpg.Record]) -> Sequence[SenderName]:
    grants: dict[UUID, list[Grant]] = {row["id"]: [] for row in rows}
    for name_id, *fields in await SQL_LIST_GRANTS.rows(connection, ids=list(grants)) if grants else ():
        country, network, state, *rest = fields
        grants[name_id].append(Grant(Place(country, network), GrantState(state), *rest))
    return [SenderName(**dict(row), grants=grants[row["id"]]) for row in rows]


SQL_LIST_HISTORY: Final = Statement("""
SELECT at, actor, country, network, change, note
  FROM sender_name_history
 WHERE name_id = %(name_id)s
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_history(
    connection: Connection, name_id: SenderNameId, count_max: int
) -> Sequence[HistoryEntry]:
    rows = await SQL_LIST_HISTORY.rows(connection, name_id=name_id, count_max=count_max)
    return [
        HistoryEntry(at, actor, Place(country, network), change, note)
        for at, actor, country, network, change, note in rows
    ]


SQL_FIND_PAPER: Final = Statement("""
SELECT paper, paper_type FROM sender_names WHERE id = %(name_id)s AND paper IS NOT NULL
""")


async def find_paper(connection: Connection, name_id: SenderNameId) -> tuple[bytes, str] | None:
    row = await SQL_FIND_PAPER.row(connection, name_id=name_id)
    return None if row is None else (row["paper"], row["paper_type"])


# Of keys that are one letter or one swap apart, either the first two letters are the same or the last two.
SQL_LIST_OTHERS: Final = Statement("""
SELECT n.account_id, a.business, n.name
  FROM sender_names n
  JOIN accounts a ON a.id = n.account_id
 WHERE (n.key = %(key)s OR left(n.key, 2) = left(%(key)s, 2) OR right(n.key, 2) = right(%(key)s, 2))
   AND n.account_id <> %(account_id)s
   AND EXISTS (SELECT FROM sender_grants g WHERE g.name_id = n.id AND g.state IN ('requested', 'granted'))
 ORDER BY n.key = %(key)s DESC, n.id
 LIMIT %(count_max)s
""")


async def list_other_names(connection: Connection, account_id: AccountId, key: str) -> Sequence[OtherName]:
    """Return names of other accounts, asked for or granted, whose keys may be near this one."""
    rows = await SQL_LIST_OTHERS.rows(connection, account_id=account_id, key=key, count_max=CANDIDATES_MAX)
    return [OtherName(*row) for row in rows]


SQL_LIST_BUSINESSES: Final = Statement("""
SELECT DISTINCT a.id, a.business, a.business AS name
  FROM account_words w
  JOIN accounts a ON a.id = w.account_id
 WHERE w.word = ANY(%(words)s::text[])
   AND a.id <> %(account_id)s
   AND a.phone <> 'system'
   AND a.closed_at IS NULL
 LIMIT %(count_max)s
""")


async def list_businesses(
    connection: Connection, account_id: AccountId, words: Sequence[str]
) -> Sequence[OtherName]:
    """Return other accounts with one of these words in their names."""
    rows = await SQL_LIST_BUSINESSES.rows(
        connection, account_id=account_id, words=words, count_max=CANDIDATES_MAX
    )
    return [OtherName(*row) for row in rows]


SQL_LIST_IN_USE: Final = Statement("""
SELECT country, network, name
  FROM sender_grants
 WHERE account_id = %(account_id)s
   AND in_use
 ORDER BY country, network
""")


async def list_in_use(connection: Connection, account_id: AccountId) -> Sequence[tuple[Place, str]]:
    rows = await SQL_LIST_IN_USE.rows(connection, account_id=account_id)
    return [(Place(country, network), name) for country, network, name in rows]


# A closed account asks for nothing, and its names are free for others.
SQL_CLOSE: Final = Statement("""
WITH ended AS (
    UPDATE sender_grants
       SET state = 'revoked', in_use = false, changed_at = clock_timestamp()
     WHERE account_id = %(account_id)s
       AND state IN ('requested', 'granted')
 RETURNING name_id, country, network
), noted AS (
    INSERT INTO sender_name_history (name_id, actor, country, network, change, note)
    SELECT name_id, %(actor)s, country, network, 'revoked', 'account closed' FROM ended
)
UPDATE sender_names SET paper = NULL, paper_type = NULL, note = '' WHERE account_id = %(account_id)s
""")


async def close_account(connection: Connection, account_id: AccountId, actor: str) -> None:
    """Revoke the names of an account that is being closed, and erase its papers and notes."""
    await SQL_CLOSE.rows(connection, account_id=account_id, actor=actor)


SQL_ERASE_PAPERS: Final = Statement("""
WITH old AS MATERIALIZED (
    SELECT n.id
      FROM sender_names n
     WHERE n.paper IS NOT NULL
       AND NOT EXISTS (
           SELECT
             FROM sender_grants g
            WHERE g.name_id = n.id
              AND (g.state = 'requested' OR g.changed_at > statement_timestamp() - %(kept)s::interval))
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
)
UPDATE sender_names
   SET paper = NULL, paper_type = NULL
 WHERE id IN (SELECT id FROM old)
RETURNING 1
""")


async def erase_old_papers(connection: Connection, count_max: int) -> int:
    """Erase papers about which everything was decided long ago, and return how many."""
    parameters: dict[str, Any] = {"kept": PAPER_KEPT, "count_max": count_max}
    return len(await SQL_ERASE_PAPERS.rows(connection, **parameters))
