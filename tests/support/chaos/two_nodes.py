"""Two nodes on one database, each a web and a worker that are processes of their own.

The carrier lives in the test, so that what reached it can be counted whichever of them dies.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx

from tests.support.chaos.node import PATIENCE_S
from tests.support.delivery.engine import Engine
from tests.support.processes.forked_commands import ForkedProcess, start_part
from tests.support.processes.service import NO_TLS, Caller, Service, run_web
from tumira.accounts.store import SYSTEM


@dataclass(slots=True)
class TwoNodes:
    """The web of each node, and the workers that were started."""

    engine: Engine
    webs: Sequence[Service]
    client: httpx.AsyncClient
    workers: list[ForkedProcess] = field(default_factory=list)

    async def start_worker(self, *mistakes: str) -> ForkedProcess:
        """Start the worker of the next node."""
        settings = {"TUMIRA_DATABASE_URL": self.engine.url, "TUMIRA_LOG_LEVEL": "error"}
        worker = await asyncio.to_thread(start_part, "worker", settings, changes=("hurry", *mistakes))
        self.workers.append(worker)
        return worker

    async def start_workers(self, *mistakes: str) -> None:
        """Start the worker of each node, and wait until each has a connection to the carrier."""
        for _ in self.webs:
            await self.start_worker(*mistakes)
        await self.until_bound()

    async def until_bound(self) -> None:
        async def are_bound() -> bool:
            rows = await self.engine.rows("SELECT DISTINCT worker FROM binds WHERE state = 'bound'")
            return len(rows) == len(self.workers)

        await self.engine.until(are_bound, "the workers do not share the carrier")

    async def kill(self, worker: ForkedProcess) -> None:
        worker.kill()
        await asyncio.to_thread(worker.wait)

    async def send(self, node: int, caller: Caller, to: Sequence[str], body: str) -> dict[str, Any]:
        answer = await self.client.post(
            f"{self.webs[node].base}/api/v1/messages",
            headers={"Authorization": f"Bearer {caller.key}"},
            json={"channel": "sms", "to": list(to), "body": body},
        )
        assert answer.status_code == httpx.codes.ACCEPTED, answer.text
        told: dict[str, Any] = answer.json()
        return told

    async def now(self) -> datetime:
        (row,) = await self.engine.rows("SELECT clock_timestamp() AS now")
        assert isinstance(row["now"], datetime)
        return row["now"]

    async def statements_ended(self) -> datetime:
        """Wait until all statements have ended that may not see what was committed; return when that was."""
        committed_at = await self.now()

        async def are_over() -> bool:
            return not await self.engine.rows(
                "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND state = 'active' AND query_start <= $1",
                committed_at,
            )

        await self.engine.until(are_over, "a statement does not end")
        return await self.now()

    async def taken(self) -> int:
        """Return how many segments of customers' messages carriers took."""
        (row,) = await self.engine.rows(
            "SELECT count(*) FROM parts p JOIN messages m ON m.id = p.message_id WHERE m.account_id <> $1",
            SYSTEM,
        )
        return int(row["count"])

    async def until_taken(self, count: int) -> None:
        async def are_taken() -> bool:
            return await self.taken() >= count

        await self.engine.until(are_taken, "nothing is taken")


@asynccontextmanager
async def run_two_nodes(engine: Engine, *changes: str) -> AsyncIterator[TwoNodes]:
    """Run the webs of two nodes, with changes to both; the test starts the workers."""
    async with AsyncExitStack() as stack:
        webs = [stack.enter_context(run_web(engine.url, changes=changes)) for _ in range(2)]
        client = await stack.enter_async_context(
            httpx.AsyncClient(timeout=30, trust_env=False, verify=NO_TLS)
        )
        nodes = TwoNodes(engine, webs, client)
        try:
            yield nodes
        finally:
            for worker in nodes.workers:
                worker.terminate()
            # In a thread: they part from the carrier, which answers from our event loop.
            for worker in nodes.workers:
                await asyncio.to_thread(worker.wait, PATIENCE_S)
