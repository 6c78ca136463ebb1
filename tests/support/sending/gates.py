"""How does a test race several web processes against each other? With a gate for each, in one event loop.

A gate is all of a web process that decides; each has its own connection, so gates meet only in the database.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.support.processes.service import Caller
from tumira.accounts.api_keys import KeySecret, Scope
from tumira.api.request import fingerprint
from tumira.api.schemas import write_sent
from tumira.core.ids import KEY, KeyId, read_id
from tumira.operations import audit_checks
from tumira.postgres.pool import Database
from tumira.pricing.quote import SendRequest
from tumira.sending.batcher import Gate
from tumira.sending.types import Call, Decision, Send


@dataclass(frozen=True, slots=True)
class Gates:
    """Several gates on one database."""

    database: Database
    gates: Sequence[Gate]

    async def ask_all(self, calls: Sequence[Call]) -> Sequence[Decision]:
        """Make all calls at once, each at the next gate in turn."""
        return await asyncio.gather(
            *(self.gates[place % len(self.gates)].ask(call) for place, call in enumerate(calls))
        )


@asynccontextmanager
async def open_gates(url: str, count: int) -> AsyncIterator[Gates]:
    """Open `count` gates."""
    database = Database(url)
    gates = [Gate(database, write_sent) for _ in range(count)]
    try:
        yield Gates(database, gates)
    finally:
        await asyncio.gather(*(gate.close() for gate in gates))
        await database.close()


def send_call(
    caller: Caller,
    to: Sequence[str] = ("+263771200001",),
    body: str = "Your code is 493817.",
    idempotency_key: str | None = None,
) -> Call:
    """Make a live send as the API would have read it."""
    request = SendRequest("sms", to, body, None, dry_run=False)
    payload = None if idempotency_key is None else fingerprint({"to": list(to), "body": body})
    return Call(
        caller.id, secret_of(caller).key_id, Scope.SEND, Send(None, idempotency_key, payload, request)
    )


def read_call(caller: Caller) -> Call:
    """Make a call that only reads."""
    return Call(caller.id, secret_of(caller).key_id, Scope.ACCOUNT)


def secret_of(caller: Caller) -> KeySecret:
    """Return what the API knows of a caller once the key was proved."""
    key_id = read_id(KEY, caller.key_id)
    assert key_id is not None
    return KeySecret(KeyId(key_id), caller.id, b"")


async def broken_promises(database: Database) -> Sequence[str]:
    """Audit the database and return the names of the checks that fail."""
    async with audit_checks.snapshot(database) as connection:
        findings = [await audit_checks.run(connection, check) for check in audit_checks.CHECKS]
    return [finding.check.name for finding in findings if finding.rows]
