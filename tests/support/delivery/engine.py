"""A worker on a database, carriers for it, and sends."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import asyncpg
import msgspec

from tests.support.carriers.server import CarrierServer
from tests.support.processes.service import Caller, new_caller
from tests.support.sending.batchers import broken_promises, send_call
from tumira.api.schemas import write_sent
from tumira.carriers.manage import add_carrier, add_http_carrier, new_access
from tumira.core import backoff
from tumira.delivery import supervisor
from tumira.delivery.http.client import HttpTimeouts
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.store.binds import BindState
from tumira.delivery.supervisor import CarrierTerms
from tumira.postgres.pool import KEY_LOOKUPS, Database
from tumira.sending.batcher import Batcher
from tumira.sending.direct.claims import DirectClaims
from tumira.sending.types import Answered
from tumira.worker import run_worker

WAIT_S: Final = 40.0
# Carriers that come, go or fail are noticed soon, and a message that was refused is soon tried again.
BEAT_S: Final = 0.2
RETRY_WAITS_S: Final = (0.1, 0.1, 0.1)
# A peer that is silent is found out soon.
QUICK: Final = SmppTimeouts(response_s=2.0, enquire_after_s=2.0, enquire_answer_s=2.0, bind_s=3.0)
QUICK_HTTP: Final = HttpTimeouts(answer_s=2.0, repeat_s=0.05, stop_s=0.5, ask_s=0.1)


@dataclass(slots=True)
class Engine:
    """A database with a batcher in front of it, and workers behind it."""

    url: str
    database: Database
    batcher: Batcher
    # Where its workers and its batcher meet for direct claims, if they do.
    data_dir: Path | None = None
    workers: list["asyncio.Task[None]"] = field(default_factory=list)

    async def open_account(self, balance: str = "100000", rate: int = 1_000_000) -> Caller:
        return await new_caller(self.url, balance, rate)

    async def add_carrier(
        self,
        name: str,
        port: int,
        countries: Sequence[str] | None = None,
        priority: int = 100,
        **options: Any,
    ) -> None:
        options = {"window": 64, "tps": 0, "doubt_wait": 2} | options
        query = "&".join(f"{key}={value}" for key, value in options.items())
        await add_carrier(
            self.database, name, f"smpp://tester:secret@127.0.0.1:{port}?{query}", countries, priority
        )

    async def add_http_carrier(
        self,
        name: str,
        provider: CarrierServer,
        countries: Sequence[str] | None = None,
        priority: int = 100,
        **options: Any,
    ) -> None:
        """Add a carrier that is reached at the stand-in of a provider."""
        given = {"tps": "0", "doubt_wait": "1", **{key: str(value) for key, value in options.items()}}
        settings = {**provider.settings, **given}
        access = new_access(provider.profile, provider.url, settings, provider.secrets, provider.profile_text)
        await add_http_carrier(self.database, name, access, countries, priority)

    def start_worker(
        self, timing: SmppTimeouts = QUICK, *, http: HttpTimeouts = QUICK_HTTP, public_url: str = ""
    ) -> "asyncio.Task[None]":
        worker = asyncio.create_task(_work(self.url, timing, http, public_url, self.data_dir))
        self.workers.append(worker)
        return worker

    async def stop_worker(self, worker: "asyncio.Task[None]") -> None:
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
        if worker in self.workers:
            self.workers.remove(worker)

    async def send(
        self, caller: Caller, to: Sequence[str], body: str = "Your code is 493817."
    ) -> dict[str, Any]:
        decision = await self.batcher.ask(send_call(caller, to, body))
        assert isinstance(decision, Answered), decision
        answer: dict[str, Any] = msgspec.json.decode(decision.response)
        return answer

    async def rows(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        async with self.database.connection() as connection:
            return await connection.fetch(statement, *arguments)

    async def statuses(self) -> Counter[str]:
        rows = await self.rows("SELECT status, count(*) FROM messages GROUP BY status")
        return Counter({row["status"]: row["count"] for row in rows})

    async def message(self, recipient: str) -> asyncpg.Record:
        rows = await self.rows("SELECT * FROM messages WHERE recipient = $1", recipient)
        assert len(rows) == 1, rows
        return rows[0]

    async def until(
        self, condition: Callable[[], Awaitable[bool]], what: str, wait_s: float = WAIT_S
    ) -> None:
        deadline = time.monotonic() + wait_s
        while not await condition():
            assert time.monotonic() < deadline, f"{what}: {await self.statuses()}"
            await asyncio.sleep(0.02)

    async def until_all(self, *statuses: str, wait_s: float = WAIT_S) -> None:
        async def all_there() -> bool:
            return set(await self.statuses()) <= set(statuses)

        await self.until(all_there, f"not all {statuses}", wait_s)

    async def until_status(self, recipient: str, status: str, wait_s: float = WAIT_S) -> None:
        async def there() -> bool:
            return (await self.message(recipient))["status"] == status  # type: ignore[no-any-return]

        await self.until(there, f"{recipient} not {status}", wait_s)

    async def until_bound(self, *carriers: str) -> None:
        """Wait until carriers are bound and every worker knows it."""
        for carrier in carriers:
            await self._until_reported(carrier, BindState.BOUND)
        await self._until_known()

    async def until_state(self, carrier: str, *states: BindState) -> str | None:
        """Wait until a bind is in one of these states and every worker knows it; return its problem."""
        problem = await self._until_reported(carrier, *states)
        await self._until_known()
        return problem

    async def bind(self, carrier: str) -> asyncpg.Record | None:
        """Return the first bind of a carrier as its worker reported it."""
        rows = await self.rows(
            "SELECT binds.* FROM binds JOIN carriers ON carriers.id = carrier_id"
            " WHERE name = $1 AND number = 1",
            carrier,
        )
        return rows[0] if rows else None

    async def _until_reported(self, carrier: str, *states: BindState) -> str | None:
        problems: list[str | None] = []

        async def is_reported() -> bool:
            bind = await self.bind(carrier)
            if bind is not None and bind["state"] in states:
                problems.append(bind["problem"])
            return bool(problems)

        await self.until(is_reported, f"{carrier} not {states}")
        return problems[0]

    async def _until_known(self) -> None:
        """Wait until every worker divides the queues by what is in the database now.

        It does so at the end of each beat, so two more must begin: the next one reads what is there now, and
        the one after it begins when that one has ended.
        """
        await self._until_all_beat()
        await self._until_all_beat()

    async def _until_all_beat(self) -> None:
        before = set(await self.rows("SELECT id, seen_at FROM workers"))

        async def have_beaten() -> bool:
            return before.isdisjoint(await self.rows("SELECT id, seen_at FROM workers"))

        await self.until(have_beaten, "a worker does not beat")

    async def audit(self) -> Sequence[str]:
        return await broken_promises(self.database)


async def _work(
    url: str, timing: SmppTimeouts, http: HttpTimeouts, public_url: str, data_dir: Path | None
) -> None:
    database = Database(url, settings=KEY_LOOKUPS)
    try:
        terms = CarrierTerms(smpp=timing, http=http, public_url=public_url)
        await run_worker(database, carriers=terms, webhooks_allow_private=True, data_dir=data_dir)
    finally:
        await database.close()


@asynccontextmanager
async def open_engine(url: str, data_dir: Path | None = None) -> AsyncIterator[Engine]:
    database = Database(url)
    claims = DirectClaims(data_dir, url)
    batcher = Batcher(database, write_sent, claims)
    engine = Engine(url, database, batcher, data_dir)
    try:
        async with claims.running():
            with (
                patch.object(supervisor, "BEAT_S", BEAT_S),
                patch.object(backoff, "_RETRY_WAITS_S", RETRY_WAITS_S),
            ):
                yield engine
    finally:
        for worker in list(engine.workers):
            await engine.stop_worker(worker)
        await batcher.close()
        await database.close()


def numbers(count: int, start: int = 0) -> Sequence[str]:
    return [f"+2637712{place:05}" for place in range(start, start + count)]
