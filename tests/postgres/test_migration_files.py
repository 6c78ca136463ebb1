"""Rules for migrations that run beside the version before and beside traffic."""

import re
from collections.abc import Sequence
from typing import Final

import pytest

from tumira.postgres.migrate import Migration, known
from tumira.postgres.partitions import TABLES

# The first one makes all tables, in an empty database.
FREE_UP_TO: Final = 1

# What a `_pre` never says, and why.
FORBIDDEN: Final = {
    r"\bDROP\s+(COLUMN|TABLE|VIEW|FUNCTION|TRIGGER|TYPE|SCHEMA)\b": "the version before may use it",
    r"\bRENAME\b": "the version before knows the old name",
    r"\bALTER\s+(COLUMN\s+)?\w+\s+(SET\s+DATA\s+)?TYPE\b": "it rewrites the table, and changes what is read",
    r"\bSET\s+NOT\s+NULL\b": "the version before may write NULL",
    r"\bTRUNCATE\b": "the version before may use it",
    r"\bADD\s+COLUMN\s+(?:(?!\bDEFAULT\b)[^,;])*\bNOT\s+NULL\b(?![^,;]*\bDEFAULT\b)": "old code omits it",
    r"\bLOCK\s+TABLE\b": "everybody waits for it",
    r"\bCLUSTER\b|\bVACUUM\s+FULL\b": "it rewrites the table under a lock",
}
VOLATILE: Final = re.compile(
    r"\bALTER\s+TABLE\b[^;]*\bADD\s+COLUMN\b[^;]*\bDEFAULT\s+"
    r"(clock_timestamp|gen_random_uuid|random|nextval|uuidv7)\b",
    re.IGNORECASE,
)
CONSTRAINT: Final = re.compile(
    r"\bALTER\s+TABLE\s+(?P<table>\w+)[^;]*\bADD\s+(CONSTRAINT|CHECK|FOREIGN|UNIQUE|PRIMARY)\b(?P<rest>[^;]*)",
    re.IGNORECASE,
)
TABLE: Final = re.compile(r"\bCREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)", re.IGNORECASE)
INDEX: Final = re.compile(
    r"\bCREATE\s+(?:UNIQUE\s+)?INDEX\s+(?P<beside>CONCURRENTLY\s+)?(?P<again>IF\s+NOT\s+EXISTS\s+)?(?P<name>\S+)"
    r"\s+ON\s+(?P<only>ONLY\s+)?(?P<table>\S+)",
    re.IGNORECASE,
)
DROPPED: Final = re.compile(
    r"\bDROP\s+INDEX\s+(?:CONCURRENTLY\s+)?(?:IF\s+EXISTS\s+)?(?P<name>[\w{}]+)", re.IGNORECASE
)
CHANGED: Final = re.compile(r"\b(?:UPDATE|DELETE\s+FROM)\s+(?:ONLY\s+)?(?P<table>\w+)", re.IGNORECASE)
COMMENT: Final = re.compile(r"--.*")


def faults(migration: Migration) -> Sequence[str]:
    """Return what makes a `_pre` unsafe beside old code, or beside those who write."""
    text = COMMENT.sub("", migration.text)
    own = set(TABLE.findall(text))
    return [
        *(
            f"{found[0]}: {why}"
            for words, why in FORBIDDEN.items()
            if (found := re.search(words, text, re.IGNORECASE))
        ),
        *_index_faults(text, own, is_outside=migration.is_outside),
        *_scan_faults(text, own),
        *_outside_faults(migration, text),
    ]


def _index_faults(text: str, own: set[str], *, is_outside: bool) -> Sequence[str]:
    made = {found["name"] for found in INDEX.finditer(text)}
    wrong = [f"{name}: drop it in a _post" for name in DROPPED.findall(text) if name not in made]
    for found in INDEX.finditer(text):
        table, name = found["table"], found["name"]
        if table in own:
            continue
        if found["beside"] is not None:
            if not is_outside:
                wrong.append(f"{name}: CONCURRENTLY needs a line `-- outside a transaction`")
            if found["again"] is not None:
                # What a crash leaves behind has the name and is not valid.
                wrong.append(f"{name}: drop what a crash left, instead of IF NOT EXISTS")
            if not re.search(rf"DROP INDEX (CONCURRENTLY )?IF EXISTS {re.escape(name)}\b", text):
                wrong.append(f"{name}: first drop what a crash may have left")
        elif table in TABLES and found["only"] is None:
            wrong.append(f"{name}: ON ONLY {table}, then each week CONCURRENTLY")
        elif found["only"] is None:
            wrong.append(f"{name}: who writes to {table} waits for it; build it CONCURRENTLY")
    return wrong


def _scan_faults(text: str, own: set[str]) -> Sequence[str]:
    return [
        *(f"{found[0]}: it rewrites the table" for found in VOLATILE.finditer(text)),
        *(
            f"{found['table']}: add it NOT VALID, and validate it in another file"
            for found in CONSTRAINT.finditer(text)
            if found["table"] not in own and "NOT VALID" not in found["rest"].upper()
        ),
        *(
            f"{found['table']}: all of a large table is not changed in one transaction"
            for found in CHANGED.finditer(text)
            if found["table"] in TABLES
        ),
    ]


def _outside_faults(migration: Migration, text: str) -> Sequence[str]:
    if not migration.is_outside:
        return ["{week}: only outside a transaction"] if "{week}" in text else []
    wrong = ["$$: a statement ends with a semicolon and its line"] if "$$" in text else []
    work = migration.work()
    if any("{week}" in statement for statement in work.first):
        wrong.append("{week}: after `-- for each week of TABLE without INDEX`")
    # It is begun again after a crash.
    return wrong + [
        f"{statement.split(chr(10))[0]}: IF NOT EXISTS"
        for statement in (*work.first, *work.each_week)
        if re.match(r"CREATE (TABLE|INDEX (?!CONCURRENTLY))(?!.*IF NOT EXISTS)", statement, re.IGNORECASE)
    ]


@pytest.mark.parametrize("migration", known(), ids=lambda migration: migration.name)
def test_a_migration_takes_nothing_away_and_holds_nobody_up(migration: Migration) -> None:
    if migration.number > FREE_UP_TO and not migration.is_post:
        assert faults(migration) == []


def test_what_a_step_comes_after_is_an_earlier_post() -> None:
    posts = {migration.number for migration in known() if migration.is_post}
    for migration in known():
        assert migration.after is None or (migration.after in posts and migration.after < migration.number)


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE accounts DROP COLUMN email;",
        "ALTER TABLE accounts RENAME COLUMN name TO called;",
        "ALTER TABLE accounts ALTER COLUMN name TYPE varchar(10);",
        "ALTER TABLE accounts ALTER COLUMN email SET NOT NULL;",
        "ALTER TABLE accounts ADD COLUMN colour text NOT NULL;",
        "ALTER TABLE accounts ADD COLUMN seen_at timestamptz DEFAULT clock_timestamp();",
        "ALTER TABLE accounts ADD CONSTRAINT named CHECK (name <> '');",
        "CREATE INDEX accounts_by_name ON accounts (name);",
        "CREATE INDEX messages_by_cost ON messages (cost);",
        "CREATE INDEX CONCURRENTLY accounts_by_name ON accounts (name);",
        "-- outside a transaction\nCREATE INDEX CONCURRENTLY accounts_by_name ON accounts (name);\n",
        "-- outside a transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS a ON accounts (name);\n",
        "-- outside a transaction\nCREATE TABLE cups (id integer);\n",
        "-- outside a transaction\nCREATE INDEX CONCURRENTLY {week}_a ON {week} (cost);\n",
        "DROP INDEX messages_by_recipient;",
        "UPDATE messages SET cost = 0;",
        "LOCK TABLE accounts;",
    ],
)
def test_what_would_hurt_is_found(text: str) -> None:
    assert faults(Migration(9001, "9001_bad_pre", text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE cups (at timestamptz NOT NULL DEFAULT clock_timestamp()); CREATE INDEX a ON cups (at);",
        "ALTER TABLE accounts ADD COLUMN colour text, ADD COLUMN size integer NOT NULL DEFAULT 0;",
        "ALTER TABLE accounts ADD CONSTRAINT named CHECK (name <> '') NOT VALID;",
        "-- outside a transaction\nDROP INDEX IF EXISTS a;\nCREATE INDEX CONCURRENTLY a ON mails (id);\n",
        "CREATE INDEX messages_by_cost ON ONLY messages (cost);",
    ],
)
def test_what_hurts_nobody_is_allowed(text: str) -> None:
    assert faults(Migration(9001, "9001_good_pre", text)) == []
