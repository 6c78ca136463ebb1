"""Does the audit see what it promises to see? Each promise is broken by a row written past every guard."""

from collections.abc import Sequence

import asyncpg
import pytest

from tests.support.gates import broken_promises, open_gates, send_call
from tests.support.service import new_caller
from tumira.actions.calls import Answered
from tumira.store import audit

# What breaks a promise, by the name of the check that must see it, and of those that see it too.
BREAKS: dict[str, tuple[str, Sequence[str]]] = {
    "balance": ("UPDATE accounts SET balance = balance + 0.0001", []),
    "batch_cost: cost": ("UPDATE messages SET cost = cost + 1", []),
    "batch_cost: a message too few": (
        "DELETE FROM queue; DELETE FROM messages WHERE id = (SELECT id FROM messages ORDER BY id LIMIT 1)",
        ["pending", "waiting"],
    ),
    "batch_cost: a message without a batch": (
        "DELETE FROM batches WHERE recipients = 2",
        ["debit_without_batch", "idempotency"],
    ),
    "debit: none": (
        "ALTER TABLE transfers DISABLE TRIGGER USER; DELETE FROM transfers WHERE batch_id IS NOT NULL",
        ["balance"],
    ),
    "debit: another amount": (
        """
        ALTER TABLE transfers DISABLE TRIGGER USER;
        UPDATE transfers SET amount = 9 WHERE batch_id IS NOT NULL
        """,
        ["balance"],
    ),
    "debit_without_batch": (
        """
        INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id)
        SELECT id, 'customer', 'revenue', 1, 'ffffffff-ffff-7fff-bfff-ffffffffffff' FROM accounts
        """,
        ["balance"],
    ),
    "refund: a message that was not refunded": (
        """
        INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id)
        SELECT account_id, 'revenue', 'customer', cost, batch_id, id FROM messages
        """,
        ["balance"],
    ),
    "refund: no money came back": ("UPDATE messages SET refunded_at = now()", ["refunded"]),
    "refunded": ("UPDATE batches SET refunded = 0.01", []),
    "owner": ("UPDATE messages SET account_id = gen_random_uuid()", []),
    "waiting: lost": ("DELETE FROM queue", []),
    "waiting: twice": ("INSERT INTO retries SELECT message_id, now() FROM queue", []),
    "waiting: not any more": ("UPDATE messages SET status = 'sent'", []),
    "pending": ("UPDATE batches SET pending = 1", []),
    "pending: completed too early": ("UPDATE batches SET status = 'completed'", []),
    "idempotency": ("UPDATE idempotency_keys SET batch_id = gen_random_uuid()", []),
}


def test_every_check_is_broken_by_some_row() -> None:
    assert {name.split(":")[0] for name in BREAKS} == {check.name for check in audit.CHECKS}


@pytest.mark.parametrize("name", BREAKS)
async def test_the_audit_sees_a_broken(name: str, database_url: str) -> None:
    statement, also = BREAKS[name]
    caller = await new_caller(database_url)
    async with open_gates(database_url, 1) as gates:
        call = send_call(caller, ["+263771200001", "+27821230002"], idempotency_key="audit-me")
        for one in (send_call(caller), call):
            assert isinstance(await gates.gates[0].ask(one), Answered)
        assert await broken_promises(gates.database) == []
        connection = await asyncpg.connect(database_url)
        await connection.execute(statement)
        await connection.close()
        assert sorted(await broken_promises(gates.database)) == sorted([name.partition(":")[0], *also])
