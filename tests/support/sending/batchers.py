"""Several batchers in one event loop stand for web processes that race: they meet only in the database."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from tests.support.processes.service import Caller
from tumira.accounts.api_keys import KeySecret, Scope
from tumira.api.request import fingerprint
from tumira.api.schemas import write_sent
from tumira.core.errors import ServiceUnavailable
from tumira.core.ids import KEY, KeyId, read_id
from tumira.operations.audit import runs
from tumira.operations.audit.checks import CHECKS
from tumira.postgres.pool import Database
from tumira.pricing.quote import ValidRequest
from tumira.sending.batcher import Batcher
from tumira.sending.types import Answered, Call, Decision, IdempotencyKey, Refused, Send

PATIENCE_S: Final = 40.0


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.001)


@dataclass(frozen=True, slots=True)
class Batchers:
    """Several batchers on one database."""

    database: Database
    batchers: Sequence[Batcher]

    async def ask_all(self, calls: Sequence[Call]) -> Sequence[Decision]:
        return await asyncio.gather(
            *(self.batchers[place % len(self.batchers)].ask(call) for place, call in enumerate(calls))
        )


@asynccontextmanager
async def open_batchers(url: str, count: int) -> AsyncIterator[Batchers]:
    database = Database(url)
    batchers = [Batcher(database, write_sent) for _ in range(count)]
    try:
        yield Batchers(database, batchers)
    finally:
        await asyncio.gather(*(batcher.close() for batcher in batchers))
        await database.close()


async def warm_up(batcher: Batcher, caller: Caller) -> None:
    """Send until the batcher leaves the wait for the disk to its flusher."""
    async with asyncio.timeout(PATIENCE_S):
        while not batcher._flusher.is_ready:
            await batcher.ask(send_call(caller))


def send_call(
    caller: Caller,
    to: Sequence[str] = ("+263771200001",),
    body: str = "Your code is 493817.",
    idempotency_key: str | None = None,
) -> Call:
    request = ValidRequest("sms", to, body, None, dry_run=False)
    idempotency = None
    if idempotency_key is not None:
        idempotency = IdempotencyKey(idempotency_key, fingerprint({"to": list(to), "body": body}))
    return Call(caller.id, secret_of(caller).key_id, Scope.SEND, Send(request, idempotency))


def read_call(caller: Caller) -> Call:
    return Call(caller.id, secret_of(caller).key_id, Scope.ACCOUNT)


def secret_of(caller: Caller) -> KeySecret:
    key_id = read_id(KEY, caller.key_id)
    assert key_id is not None
    return KeySecret(KeyId(key_id), caller.id, b"")


def is_503(decision: Decision) -> bool:
    return isinstance(decision, Refused) and isinstance(decision.refusal, ServiceUnavailable)


async def until_accepted(batcher: Batcher, call: Call) -> Answered:
    """Send, again after each 503, until it is accepted."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        decision = await batcher.ask(call)
        if isinstance(decision, Answered):
            return decision
        assert is_503(decision), decision
        assert time.monotonic() < deadline, "it was never accepted"
        await asyncio.sleep(0.05)


async def broken_promises(database: Database) -> Sequence[str]:
    async with runs.snapshot(database) as connection:
        findings = [await runs.run_check(connection, check) for check in CHECKS]
    return [finding.check.name for finding in findings if finding.rows]
