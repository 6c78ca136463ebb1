"""Comparison of two databases, by their catalogs and rows."""

from collections.abc import Collection, Mapping
from typing import Final

from tests.support.postgres.databases import execute

# Everything by name: numbers differ between two databases that are otherwise the same.
SQL_CATALOG: Final = """
SELECT 'relation' AS kind, c.relname || ' ' || c.relkind::text
       || ' ' || coalesce(array_to_string(c.reloptions, ','), '')
       || ' ' || coalesce(pg_get_expr(c.relpartbound, c.oid), '')
       || ' ' || coalesce((SELECT inhparent::regclass::text FROM pg_inherits WHERE inhrelid = c.oid), '')
       || ' ' || coalesce(pg_get_partkeydef(c.oid), '') AS entry
  FROM pg_class c
 WHERE c.relnamespace = 'public'::regnamespace
 UNION ALL
SELECT 'column', format('%s.%s %s %s %s %s %s %s %s', attrelid::regclass, attname, attnum,
       format_type(atttypid, atttypmod), attnotnull, attidentity, attgenerated, attcollation::regcollation,
       (SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = attrelid AND adnum = attnum))
  FROM pg_attribute
  JOIN pg_class ON pg_class.oid = attrelid
 WHERE relnamespace = 'public'::regnamespace AND attnum > 0 AND NOT attisdropped
 UNION ALL
SELECT 'constraint',
       format('%s %s %s %s', conrelid::regclass, conname, convalidated, pg_get_constraintdef(oid))
  FROM pg_constraint
 WHERE connamespace = 'public'::regnamespace
 UNION ALL
SELECT 'index', pg_get_indexdef(indexrelid) || ' ' || indisvalid::text
  FROM pg_index
  JOIN pg_class ON pg_class.oid = indexrelid
 WHERE relnamespace = 'public'::regnamespace
 UNION ALL
SELECT 'trigger', pg_get_triggerdef(oid) || ' ' || tgenabled::text FROM pg_trigger WHERE NOT tgisinternal
 UNION ALL
SELECT 'function', pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
 UNION ALL
SELECT 'sequence', format('%s %s %s', sequencename, last_value, increment_by) FROM pg_sequences
"""
SQL_TABLES: Final = """
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
"""


def catalog(url: str) -> set[tuple[str, str]]:
    return {(row["kind"], row["entry"]) for row in execute(url, SQL_CATALOG)}


def rows(url: str, without: Collection[str] = ()) -> Mapping[str, str]:
    names = [row["relname"] for row in execute(url, SQL_TABLES) if row["relname"] not in without]
    text = r"count(*) || ' ' || md5(string_agg(t::text, E'\n' ORDER BY t::text))"
    each = [f"SELECT '{name}' AS name, {text} AS hash FROM {name} AS t HAVING count(*) > 0" for name in names]
    return {row["name"]: row["hash"] for row in execute(url, " UNION ALL ".join(each))}
