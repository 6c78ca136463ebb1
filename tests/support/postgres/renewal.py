"""Renewal of a used database, which is quicker than a new clone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Final

import asyncpg

from tumira.postgres.connect import ServerConnection

# Whatever a test may have created has a higher number than PostgreSQL's own.
FIRST_OWN: Final = 16_384

# All that describes a schema. A clone has the same rows as its template, written by the same transactions; so
# their number and those of the transactions say whether one was written, which is sooner read than the rows.
_BY_NUMBER: Final = (
    "pg_attrdef",
    "pg_cast",
    "pg_collation",
    "pg_constraint",
    "pg_default_acl",
    "pg_enum",
    "pg_event_trigger",
    "pg_extension",
    "pg_largeobject_metadata",
    "pg_operator",
    "pg_policy",
    "pg_proc",
    "pg_publication",
    "pg_rewrite",
    "pg_statistic_ext",
    "pg_type",
)
_BY_OWNER: Final = {
    "pg_attribute": "attrelid",
    "pg_description": "objoid",
    "pg_index": "indexrelid",
    "pg_inherits": "inhrelid",
    "pg_sequence": "seqrelid",
}

_WRITTEN: Final = "(count(*), sum(xmin::text::bigint))::text"

# Of a relation not where its file lies, which changes when it is emptied. Its size as the planner knows it is
# part of the shape, but for an index, where the planner asks the file; and so are the statistics: where
# somebody has analysed a table, plans are others.
SQL_SHAPE: Final = " UNION ALL ".join(
    (
        f"""
SELECT 'pg_class' AS kind, (oid, relname, relnamespace, reltype, relowner, relam, relkind, relpersistence,
       relchecks, relnatts, relhasrules, relrowsecurity, relforcerowsecurity, relispartition, relreplident,
       relacl, reloptions, pg_get_expr(relpartbound, oid),
       CASE WHEN relkind <> 'i' THEN (relpages, reltuples) END)::text AS entry
  FROM pg_class
 WHERE oid >= {FIRST_OWN}
   AND relpersistence <> 't'
""",
        *(f"SELECT '{name}', {_WRITTEN} FROM {name} WHERE oid >= {FIRST_OWN}" for name in _BY_NUMBER),
        *(
            f"SELECT '{name}', {_WRITTEN} FROM {name} WHERE {owner} >= {FIRST_OWN}"
            for name, owner in _BY_OWNER.items()
        ),
        # Written by the renewal, which switches triggers off and on.
        f"SELECT 'pg_trigger', entry::text FROM pg_trigger AS entry WHERE oid >= {FIRST_OWN}",
        "SELECT 'pg_namespace', entry::text FROM pg_namespace AS entry WHERE nspname !~ '^pg_(toast_)?temp_'",
        """
SELECT 'pg_stats', (schemaname, tablename, attname)::text
  FROM pg_stats
 WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
""",
        """
SELECT 'pg_database', (datdba, datallowconn, datconnlimit, datacl)::text
  FROM pg_database
 WHERE datname = current_database()
""",
        """
SELECT 'pg_db_role_setting', (setrole, setconfig)::text
  FROM pg_db_role_setting
 WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
""",
    )
)
SQL_HASH: Final = (
    f"SELECT md5(string_agg(kind || entry, E'\\n' ORDER BY kind, entry)) FROM ({SQL_SHAPE}) AS shape"
)

# A table without a page has no row, nor had it one before. In the order in which they were made: what a table
# refers to stands before it.
SQL_FILLED: Final = f"""
SELECT oid::regclass::text AS name
  FROM pg_class
 WHERE relkind = 'r'
   AND oid >= {FIRST_OWN}
   AND relpersistence <> 't'
   AND pg_relation_size(oid) > 0
 ORDER BY oid
"""
SQL_WITH_TRIGGERS: Final = (
    "SELECT DISTINCT tgrelid::regclass::text AS name FROM pg_trigger WHERE NOT tgisinternal"
)
SQL_SEQUENCES: Final = """
SELECT format('%I.%I', schemaname, sequencename) AS name,
       coalesce(last_value, start_value) AS value,
       last_value IS NOT NULL AS is_called
  FROM pg_sequences
"""
SQL_RESTART: Final = """
SELECT setval(name::regclass, value, is_called)
  FROM unnest($1::text[], $2::bigint[], $3::boolean[]) AS wanted (name, value, is_called)
"""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a fresh database is like."""

    shape: str
    seeds: Mapping[str, bytes]
    sequences: Sequence[tuple[str, int, bool]]
    with_triggers: Sequence[str]


async def read_pattern(url: str) -> Pattern:
    connection = await asyncpg.connect(url)
    try:
        return Pattern(
            await shape_of(connection),
            {table: await _rows(connection, table) for table in await _names(connection, SQL_FILLED)},
            [(row["name"], row["value"], row["is_called"]) for row in await connection.fetch(SQL_SEQUENCES)],
            await _names(connection, SQL_WITH_TRIGGERS),
        )
    finally:
        await connection.close()


async def shape_of(connection: "asyncpg.Connection[asyncpg.Record]") -> str:
    """Return what stands for the schema, the settings and the statistics of a database."""
    shape = await connection.fetchval(SQL_HASH)
    assert isinstance(shape, str)
    return shape


async def renew(url: str, pattern: Pattern) -> bool:
    """Make a used database like a fresh one, and tell whether it is: not if its schema was changed."""
    connection = await asyncpg.connect(url, connection_class=ServerConnection)
    try:
        async with connection.transaction():
            await _empty(connection, pattern)
        return await shape_of(connection) == pattern.shape
    except asyncpg.PostgresError:
        # Something is missing, or something new is in the way.
        return False
    finally:
        await connection.close()


async def _empty(connection: "asyncpg.Connection[asyncpg.Record]", pattern: Pattern) -> None:
    await _switch(connection, "DISABLE", pattern.with_triggers)
    filled = dict.fromkeys([*await _names(connection, SQL_FILLED), *pattern.seeds])
    # Not deleted row by row: then the planner would take the tables for small ones.
    await connection.execute(f"TRUNCATE {', '.join(filled)} CASCADE")
    for table, rows in pattern.seeds.items():
        await connection.copy_to_table(table, source=BytesIO(rows))
    await _switch(connection, "ENABLE", pattern.with_triggers)
    names, values, called = zip(*pattern.sequences, strict=True)
    await connection.execute(SQL_RESTART, names, values, called)


async def _switch(connection: "asyncpg.Connection[asyncpg.Record]", verb: str, tables: Sequence[str]) -> None:
    # A rule such as that a transfer is final would refuse it, or write something down in turn.
    await connection.execute(";".join(f"ALTER TABLE {table} {verb} TRIGGER USER" for table in tables))


async def _rows(connection: "asyncpg.Connection[asyncpg.Record]", table: str) -> bytes:
    output = BytesIO()
    await connection.copy_from_table(table, output=output)
    return output.getvalue()


async def _names(connection: "asyncpg.Connection[asyncpg.Record]", statement: str) -> Sequence[str]:
    return [row["name"] for row in await connection.fetch(statement)]
