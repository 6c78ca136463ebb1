"""The PostgreSQL of a run, and a database as each seed finds it: accounts, keys and endpoints are there."""

import asyncio
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

import asyncpg

from tests.proof.simulation.clock import seeded_secrets
from tests.proof.simulation.database import SCHEMA, SEARCH_PATH, SQL_CLOCK, TypeCache, database_time
from tests.support.postgres.databases import execute, open_directory, sibling
from tests.support.postgres.embedded import quick_directory
from tests.support.processes.service import Caller
from tumira.accounts.api_keys import Scope
from tumira.accounts.open_account import open_account
from tumira.core.ids import ACCOUNT, KEY, write_id
from tumira.identity.manage_keys import create_key
from tumira.postgres.embedded import server as embedded
from tumira.postgres.embedded.files import PORT
from tumira.postgres.migrate import migrate
from tumira.postgres.pool import Database
from tumira.webhooks.manage import add_endpoint

TEMPLATE: Final = "simulation"
BALANCE: Final = Decimal(1000)
RECEIVERS: Final = (("198.51.100.10", 8080), ("198.51.100.11", 8080))

# What the checks read afterwards, beside the product's own tables: each status and each claim, as it changed.
SQL_RECORDS: Final = f"""
CREATE TABLE {SCHEMA}.sim_statuses (
    number bigint GENERATED ALWAYS AS IDENTITY, at timestamptz DEFAULT clock_timestamp(),
    message_id uuid, old text, new text
);
CREATE TABLE {SCHEMA}.sim_claims (
    number bigint GENERATED ALWAYS AS IDENTITY, at timestamptz DEFAULT clock_timestamp(),
    message_id uuid, worker text, is_begun boolean
);
CREATE FUNCTION {SCHEMA}.note_status() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sim_statuses (message_id, old, new)
    VALUES (NEW.id, CASE WHEN TG_OP = 'UPDATE' THEN OLD.status END, NEW.status);
    RETURN NULL;
END $$;
CREATE FUNCTION {SCHEMA}.note_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO sim_claims (message_id, worker, is_begun) VALUES (NEW.message_id, NEW.worker, true);
    ELSE
        INSERT INTO sim_claims (message_id, worker, is_begun) VALUES (OLD.message_id, OLD.worker, false);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER note_status AFTER INSERT OR UPDATE OF status ON messages
    FOR EACH ROW EXECUTE FUNCTION note_status();
CREATE TRIGGER note_claim AFTER INSERT OR DELETE ON in_flight
    FOR EACH ROW EXECUTE FUNCTION note_claim();
"""

_numbers: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Template:
    """A server with a database to clone."""

    url: str
    callers: Sequence[Caller]
    secrets: Sequence[str]
    types: TypeCache = field(default_factory=TypeCache)

    @property
    def socket_path(self) -> str:
        directory = parse_qs(urlsplit(self.url).query)["host"][0]
        return f"{directory}/.s.PGSQL.{PORT}"

    @property
    def user(self) -> str:
        return urlsplit(self.url).username or ""

    @contextmanager
    def clone(self) -> Iterator[str]:
        name = f"{TEMPLATE}_{os.getpid()}_{next(_numbers)}"
        execute(self.url, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy")
        try:
            yield name
        finally:
            execute(self.url, f"DROP DATABASE {name} WITH (FORCE)")

    def url_of(self, name: str) -> str:
        return sibling(self.url, name)


@contextmanager
def run_template() -> Iterator[Template]:
    """Run a PostgreSQL with the template; nothing of it outlives the run, so nothing waits for a disk."""
    quick = {"autovacuum": "off", "fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
    with (
        open_directory("tumira-simulation-", quick_directory()) as path,
        patch.dict(embedded.FIXED, quick),
        embedded.start(path / "data", lambda _line: None) as url,
    ):
        execute(url, f"CREATE DATABASE {TEMPLATE}")
        # Ids are the same in every template, so that a seed is replayed exactly.
        made_ns = int(database_time(0.0).timestamp() * 1e9)
        with seeded_secrets(TEMPLATE), patch.object(time, "time_ns", lambda: made_ns):
            callers, secrets = asyncio.run(_prepare(sibling(url, TEMPLATE)))
        yield Template(url, callers, secrets)


async def _prepare(url: str) -> tuple[Sequence[Caller], Sequence[str]]:
    connection = await asyncpg.connect(url)
    await connection.execute(SQL_CLOCK)
    await connection.close()
    database = Database(url, connections_max=1, settings={"search_path": SEARCH_PATH})
    try:
        await migrate(database)
        async with database.connection() as pooled:
            await pooled.execute(SQL_RECORDS)
            await pooled.execute("ALTER TABLE accounts ALTER COLUMN code_guard SET DEFAULT false")
        callers, secrets = [], []
        for place, (host, port) in enumerate(RECEIVERS):
            caller = await _open_account(database, place)
            callers.append(caller)
            _, secret = await add_endpoint(
                database, caller.id, f"http://{host}:{port}/events", None, "", allow_private=True
            )
            secrets.append(secret)
    finally:
        await database.close()
    return callers, secrets


async def _open_account(database: Database, place: int) -> Caller:
    opened = await open_account(
        database,
        phone=f"+26377129990{place}",
        name="Test",
        business="Test",
        balance=BALANCE,
        rate_limit=1_000_000,
        actor="test",
    )
    key_id, key = await create_key(database, opened.id, "test", tuple(Scope))
    return Caller(opened.id, write_id(ACCOUNT, opened.id), write_id(KEY, key_id), key)
