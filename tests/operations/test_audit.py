"""The audit finds every broken promise."""

import re
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

import asyncpg
import pytest

from tests.support.postgres.old_weeks import add_batch, make_weeks, tell
from tests.support.processes.service import new_caller
from tests.support.schedules.sends import check_and_schedule, schedule
from tests.support.sending.batchers import open_batchers, send_call
from tumira.core.ids import new_id
from tumira.operations.audit import runs
from tumira.operations.audit.checks import CHECKS
from tumira.operations.retention import RetentionKind, drop_old
from tumira.postgres import partitions
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.schedules.manage import Scheduled
from tumira.sending.types import Answered

Names = Mapping[str, object]

# What breaks a promise, by the name of the check that must see it, and after a plus those that see it too.
BREAKS: Final = {
    "balance": "UPDATE accounts SET balance = balance + 0.0001",
    "batch_cost: cost": "UPDATE messages SET cost = cost + 1",
    "batch_cost: a message too few + pending + waiting": """
        DELETE FROM queue; DELETE FROM messages WHERE id = (SELECT id FROM messages ORDER BY id LIMIT 1)
        """,
    "batch_cost: a message without a batch + debit_without_batch + idempotency": """
        DELETE FROM batches WHERE recipients = 2
        """,
    "debit: none + balance": """
        ALTER TABLE transfers DISABLE TRIGGER USER; DELETE FROM transfers WHERE batch_id IS NOT NULL
        """,
    "debit_without_batch + balance": """
        INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id)
        SELECT id, 'customer', 'revenue', 1, 'ffffffff-ffff-7fff-bfff-ffffffffffff' FROM accounts
         WHERE phone <> 'system'
        """,
    "refund: a message that was not refunded + balance": """
        INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id)
        SELECT account_id, 'revenue', 'customer', cost, batch_id, id FROM messages
        """,
    "refund: no money came back + refunded + refund_status + message_event": """
        UPDATE messages SET refunded_at = now()
        """,
    "refunded": "UPDATE batches SET refunded = 0.01",
    "owner": "UPDATE messages SET account_id = gen_random_uuid()",
    "waiting: lost": "DELETE FROM queue",
    "waiting: twice": "INSERT INTO retries SELECT message_id, now() FROM queue",
    "waiting: not any more + hand_over": "UPDATE messages SET status = 'sent'",
    "pending": "UPDATE batches SET pending = 1",
    "idempotency": "UPDATE idempotency_keys SET batch_id = gen_random_uuid()",
}


# The same, where one batch was settled: its first message was delivered, the second was not and was refunded,
# the third was unconfirmed after a doubt until a late receipt came. Of another batch, the first message is in
# flight, the second is in doubt and the third is to be tried again.
BREAKS_SETTLED: Final = {
    "opt_out": """
        INSERT INTO opt_outs (account_id, number, source)
        SELECT id, '+263771200001', 'page' FROM accounts WHERE phone <> 'system'
        """,
    "reply": """
        INSERT INTO reply_parts (carrier_id, digest, number, destination, payload, reference, total, part,
                                 received_at, reply_id)
        VALUES (1, sha256('x'), '', '', '', 0, 1, 1, now(), gen_random_uuid())
        """,
    "place: claimed and still queued": """
        UPDATE messages SET status = 'queued' WHERE id IN (SELECT message_id FROM in_flight)
        """,
    "place: sending in the queue": """
        WITH landed AS (DELETE FROM in_flight RETURNING message_id)
        INSERT INTO queue (country, lane, turn, message_id) SELECT 'ZW', 0, 0, message_id FROM landed
        """,
    "sending: a hand-over that nobody ends": """
        UPDATE in_flight SET claimed_at = now() - interval '31 minutes';
        INSERT INTO workers (id, started_at) VALUES ('one', now() - interval '31 minutes')
            ON CONFLICT (id) DO UPDATE SET started_at = excluded.started_at, seen_at = now()
        """,
    "sending: a doubt that nobody ends": """
        UPDATE retries SET due_at = now() - interval '31 minutes' WHERE in_doubt;
        INSERT INTO workers (id, started_at) VALUES ('one', now() - interval '31 minutes')
            ON CONFLICT (id) DO UPDATE SET started_at = excluded.started_at, seen_at = now()
        """,
    "hand_over: a carrier's answer is lost": "DELETE FROM parts",
    "hand_over: nobody had a doubt": "UPDATE incidents SET kind = 'retry'",
    "refund_status": """
        UPDATE messages SET status = 'delivered' WHERE status = 'undelivered';
        UPDATE events SET type = 'message.delivered' WHERE type = 'message.undelivered';
        """,
    "event_sequence: a hole": "UPDATE events SET sequence = 9 WHERE sequence = 2",
    "event_sequence: a number twice": "UPDATE events SET sequence = 3 WHERE sequence = 4",
    "event_sequence: none at the end": "UPDATE event_counters SET last = last + 1",
    "event_sequence: without a counter": "DELETE FROM event_counters",
    "message_event: an end that nobody was told + event_sequence": """
        DELETE FROM events WHERE type = 'message.undelivered'
        """,
    "message_event: told twice": "UPDATE events SET type = 'message.delivered' WHERE sequence = 4",
    "message_event: unconfirmed twice": """
        INSERT INTO events
        SELECT id, account_id, 7, type, message_id, batch_id, at
          FROM events
         WHERE type = 'message.unconfirmed';
        UPDATE event_counters SET last = 7;
        """,
    "message_event: not settled yet": """
        UPDATE events
           SET message_id = in_flight.message_id, batch_id = messages.batch_id
          FROM in_flight JOIN messages ON messages.id = in_flight.message_id
         WHERE type = 'message.unconfirmed'
        """,
    "batch_event: not told + event_sequence": "DELETE FROM events WHERE type = 'batch.completed'",
    "batch_event: told twice": """
        INSERT INTO events
        SELECT id, account_id, 7, type, message_id, batch_id, at
          FROM events
         WHERE type = 'batch.completed';
        UPDATE event_counters SET last = 7;
        """,
    "batch_event: told too early": """
        INSERT INTO events
        SELECT event.id, event.account_id, 7, event.type, NULL, batches.id, event.at
          FROM events AS event, batches
         WHERE event.type = 'batch.completed'
           AND batches.completed_at IS NULL;
        UPDATE event_counters SET last = 7;
        """,
    "event_owner: of a message": """
        INSERT INTO accounts (id, phone, name, business) VALUES (gen_random_uuid(), '+263771299999', '', '');
        UPDATE events
           SET sequence = 1, account_id = (SELECT id FROM accounts WHERE phone = '+263771299999')
         WHERE sequence = 6;
        UPDATE event_counters SET last = 5;
        INSERT INTO event_counters SELECT id, 1 FROM accounts WHERE phone = '+263771299999';
        """,
    "event_owner: of another batch": """
        UPDATE events
           SET batch_id = (SELECT id FROM batches WHERE completed_at IS NULL)
         WHERE type = 'message.delivered'
        """,
}

# The same, where the money of a message and of a file is held.
BREAKS_SCHEDULED: Final = {
    "held: more than was moved": "UPDATE schedules SET held = held + 1, cost = cost + 1",
    "held: moved for nobody + balance": """
        INSERT INTO transfers (account_id, from_book, to_book, amount, schedule_id)
        SELECT id, 'customer', 'held', 1, gen_random_uuid() FROM accounts WHERE phone <> 'system'
        """,
    "held: released and still held": """
        WITH moved AS (INSERT INTO transfers (account_id, from_book, to_book, amount, schedule_id)
            SELECT account_id, 'held', 'customer', held, id FROM schedules RETURNING amount)
        UPDATE accounts SET balance = balance + (SELECT sum(amount) FROM moved) WHERE phone <> 'system'
        """,
    "held: other than was agreed": "UPDATE schedules SET cost = cost + 1",
    "held: after the end": """
        UPDATE schedules SET state = 'sent', ended_at = now() WHERE upload_id IS NOT NULL
        """,
    "held: for another account": """
        INSERT INTO accounts (id, phone, name, business) VALUES (gen_random_uuid(), '+263771299999', '', '');
        UPDATE schedules SET account_id = (SELECT id FROM accounts WHERE phone = '+263771299999')
        """,
    "schedule: sent as nothing + held": """
        UPDATE schedules SET state = 'sent', ended_at = now(), held = 0 WHERE upload_id IS NULL
        """,
    "schedule: of a file that is not kept for it": "UPDATE uploads SET state = 'checked'",
}

# The same, where money came in: a top-up of 5 was credited; one of 9 was taken back, of which 2 is owed; a
# voucher of ours for 20 was used; and two deposits of USDT came to 10.0000.
BREAKS_TOPPED_UP: Final = {
    "top_up: credited and no money came": """
        UPDATE top_ups SET state = 'credited', paid = 7, amount = 7, provider_reference = 'r7'
         WHERE state = 'pending'
        """,
    "top_up: money came and it is not credited": "UPDATE top_ups SET state = 'failed' WHERE asked = 5",
    "top_up: owed by one that was not taken back": "UPDATE top_ups SET owed = 1 WHERE asked = 5",
    "top_up: money went back that never came + balance": """
        ALTER TABLE transfers DISABLE TRIGGER USER;
        DELETE FROM transfers WHERE from_book = 'topup:paynow' AND amount = 9
        """,
    "top_up_transfer: of nobody's top-up + balance": """
        INSERT INTO transfers (account_id, from_book, to_book, amount, top_up_id)
        SELECT id, 'topup:paynow', 'customer', 1, gen_random_uuid() FROM accounts WHERE phone <> 'system'
        """,
    "top_up_transfer: of somebody else's": """
        INSERT INTO accounts (id, phone, name, business) VALUES (gen_random_uuid(), '+263771299999', '', '');
        UPDATE top_ups SET account_id = (SELECT id FROM accounts WHERE phone = '+263771299999')
         WHERE asked = 5
        """,
    "top_up_transfer: paid in another way": "UPDATE top_ups SET method = 'voucher' WHERE asked = 5",
    "top_up_transfer: without a top-up + balance + paper": """
        ALTER TABLE transfers DROP CONSTRAINT a_top_up_is_named;
        INSERT INTO transfers (account_id, from_book, to_book, amount)
        SELECT id, 'topup:paynow', 'customer', 1 FROM accounts WHERE phone <> 'system'
        """,
    "paper_number": "UPDATE paper_series SET last = 1 WHERE series = 'INV'",
    "paper: none": "DELETE FROM papers_due",
    "paper: of another amount + paper_number": """
        INSERT INTO papers (series, number, account_id, transfer_id, total, content)
        SELECT 'REC', 2, account_id, id, 1, '' FROM transfers WHERE amount = 9 AND to_book = 'customer';
        DELETE FROM papers_due
         WHERE transfer_id = (SELECT id FROM transfers WHERE amount = 9 AND to_book = 'customer')
        """,
    "statement: its movements are others": """
        INSERT INTO statements (account_id, month, first_id, next_id, movements, opening, closing, content)
        SELECT id, '2026-10-01', 0, 1, 0, 0, 0.01, '' FROM accounts WHERE phone <> 'system'
        """,
    "statement: it does not follow on": """
        INSERT INTO statements (account_id, month, first_id, next_id, movements, opening, closing, content)
        SELECT id, '2026-10-01', 0, 0, 0, 1, 1, '' FROM accounts WHERE phone <> 'system'
        """,
    "money_by_day": "INSERT INTO money_days VALUES (current_date, 'adjustment', 'customer', 1, 1)",
    "voucher: of another amount": "UPDATE vouchers SET amount = 25 WHERE top_up_id IS NOT NULL",
    "voucher: credited and still to be used": "UPDATE vouchers SET top_up_id = NULL",
    "deposit: of another amount": """
        UPDATE usdt_deposits SET units = units + 100000000000000 WHERE log_index = 0
        """,
    "deposit: credited by a top-up that is not": """
        UPDATE usdt_deposits SET state = 'credited', top_up_id = (SELECT id FROM top_ups
         WHERE state = 'pending') WHERE state = 'seen'
        """,
    "deposit: credited twice": """
        UPDATE usdt_deposits SET state = 'credited', top_up_id = (SELECT top_up_id FROM usdt_deposits
         WHERE state = 'credited' LIMIT 1) WHERE state = 'seen'
        """,
    "deposit: of another account": """
        INSERT INTO accounts (id, phone, name, business) VALUES (gen_random_uuid(), '+263771299999', '', '');
        UPDATE usdt_deposits SET account_id = (SELECT id FROM accounts WHERE phone = '+263771299999')
         WHERE log_index = 1
        """,
}

# The same, where the messages of three weeks ago have gone, and the events of two weeks ago too. `old` is a
# batch of two weeks ago, `recent` one of last week; `last` is the account's last number.
BREAKS_AGED: Final = {
    "batch_cost: an old batch is lost + debit_without_batch": "DELETE FROM batches WHERE id = '{old}'",
    "debit: of an old batch + batch_cost": "UPDATE batches SET total_cost = 9 WHERE id = '{old}'",
    "refund: of an old message + refunded": "UPDATE messages SET refunded_at = NULL WHERE batch_id = '{old}'",
    "refund: of a message that never was + balance": """
        INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id)
        SELECT account_id, 'revenue', 'customer', 1, id, id FROM batches WHERE id = '{old}'
        """,
    "waiting: for a message that has gone": """
        INSERT INTO retries (message_id, due_at) VALUES ('{gone}', now())
        """,
    "hand_over: of an old message": "DELETE FROM parts WHERE message_id < '{recent}'",
    "event_sequence: a hole": """
        DELETE FROM events WHERE sequence = {last};
        UPDATE events SET sequence = {last} WHERE sequence = {last} - 1
        """,
    "event_sequence: a number of the unsure time twice": """
        UPDATE events SET sequence = sequence - 1 WHERE sequence = {unsure} + 3
        """,
    "message_event: of a recent message": """
        UPDATE events SET message_id = NULL WHERE type = 'message.refunded' AND batch_id = '{recent}'
        """,
    "message_event: of a message that never was": """
        UPDATE events SET type = 'message.failed', message_id = '{recent}' WHERE sequence = {last}
        """,
    "message_event: of an old message, twice": """
        UPDATE events
           SET type = 'message.delivered',
               message_id = (SELECT id FROM messages WHERE batch_id = '{old}' LIMIT 1)
         WHERE sequence >= {last} - 1
        """,
    "batch_event: of a recent batch": """
        UPDATE events SET type = 'balance.low' WHERE type = 'batch.completed' AND batch_id = '{recent}'
        """,
    "idempotency": """
        INSERT INTO idempotency_keys (account_id, key, fingerprint, response, batch_id)
        SELECT id, 'another', sha256('x'), '', '{recent}' FROM accounts WHERE phone = 'system'
        """,
}

THREE = ("+263771200001", "+263771200002", "+263771200003")


def test_every_check_is_broken_by_some_row() -> None:
    names = [*BREAKS, *BREAKS_SETTLED, *BREAKS_SCHEDULED, *BREAKS_TOPPED_UP]
    found = {re.split(":| ", name)[0] for name in names}
    assert found == {check.name for check in CHECKS}


async def wait(url: str) -> Names:
    caller = await new_caller(url)
    async with open_batchers(url, 1) as batchers:
        call = send_call(caller, ["+263771200001", "+27821230002"], idempotency_key="audit-me")
        for one in (send_call(caller), call):
            assert isinstance(await batchers.batchers[0].ask(one), Answered)
    return {}


async def hand_over(connection: Connection, messages: Sequence[UUID]) -> None:
    """Let the first message be in flight, the second in doubt, and the third wait for another try."""
    first, second, third = messages
    await connection.execute("DELETE FROM queue WHERE message_id = ANY($1)", messages)
    await connection.execute(
        "UPDATE messages SET status = 'sending' WHERE id = ANY($1::uuid[])", [first, second]
    )
    await connection.execute(
        "INSERT INTO in_flight (message_id, worker, bind, carrier_id) VALUES ($1, 'w', '1', 1)", first
    )
    await connection.executemany(
        "INSERT INTO retries (message_id, due_at, in_doubt) VALUES ($1, now(), $2)",
        [(second, True), (third, False)],
    )


async def settle(connection: Connection, batch_id: UUID, messages: Sequence[UUID]) -> None:
    """Deliver the first message and, late, the third, and refund the second."""
    first, second, third = messages
    await connection.execute("DELETE FROM queue WHERE message_id = ANY($1)", messages)
    await connection.executemany(
        "INSERT INTO parts (message_id, number, attempt, carrier_id, carrier_ref, carrier_key, claimed_at,"
        " submitted_at, answered_at) VALUES ($1, 1, 0, 1, '1', '1', now(), now(), now())",
        [(first,), (second,)],
    )
    await connection.execute("INSERT INTO incidents (message_id, kind) VALUES ($1, 'doubt')", third)
    await connection.execute(
        "UPDATE messages SET status = 'delivered', delivered_at = now() WHERE id = ANY($1::uuid[])",
        [first, third],
    )
    await connection.execute(
        "UPDATE messages SET status = 'undelivered', refunded_at = now() WHERE id = $1", second
    )
    await connection.execute(
        "INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id)"
        " SELECT account_id, 'revenue', 'customer', cost, batch_id, id FROM messages WHERE id = $1",
        second,
    )
    await connection.execute(
        "UPDATE accounts SET balance = balance + (SELECT cost FROM messages WHERE id = $1)"
        " WHERE phone <> 'system'",
        second,
    )
    await connection.execute(
        "UPDATE batches SET pending = 0, status = 'completed', completed_at = now(),"
        " refunded = (SELECT cost FROM messages WHERE id = $2) WHERE id = $1",
        batch_id,
        second,
    )
    told = [
        ("message.delivered", first),
        ("message.undelivered", second),
        ("message.refunded", second),
        ("message.unconfirmed", third),
        ("batch.completed", None),
        ("message.delivered", third),
    ]
    await connection.executemany(
        "INSERT INTO events (id, account_id, sequence, type, message_id, batch_id, at)"
        " SELECT $1, account_id, $2, $3, $4, id, now() FROM batches WHERE id = $5",
        [
            (new_id(int(time.time() * 1000)), sequence, kind, message_id, batch_id)
            for sequence, (kind, message_id) in enumerate(told, start=1)
        ],
    )
    await connection.execute("INSERT INTO event_counters SELECT id, 6 FROM accounts WHERE phone <> 'system'")


async def settle_and_hand_over(url: str) -> Names:
    caller = await new_caller(url)
    async with open_batchers(url, 1) as batchers:
        for _ in range(2):
            assert isinstance(await batchers.batchers[0].ask(send_call(caller, THREE)), Answered)
    connection = await asyncpg.connect(url)
    settled, handed_over = await connection.fetch(
        "SELECT batch_id, array_agg(id ORDER BY id) AS ids FROM messages GROUP BY batch_id ORDER BY batch_id"
    )
    await settle(connection, settled["batch_id"], settled["ids"])
    await hand_over(connection, handed_over["ids"])
    await connection.close()
    return {}


# What a top-up of each kind leaves behind; the balance of a hundred dollars was spent but for 7 when the
# second was taken back.
TOP_UPS = """
WITH owner AS (SELECT id FROM accounts WHERE phone <> 'system'),
made (id, method, provider, state, currency, asked, paid, amount, owed, reference) AS (VALUES
    ('00000000-0000-7000-8000-000000000001'::uuid, 'paynow', 'ecocash', 'credited', 'USD', 5, 5, 5, 0, 'r1'),
    ('00000000-0000-7000-8000-000000000002', 'paynow', 'card', 'reversed', 'USD', 9, 9, 9, 2, 'r2'),
    ('00000000-0000-7000-8000-000000000003', 'voucher', 'own', 'credited', 'USD', 20, 20, 20, 0, 'r3'),
    ('00000000-0000-7000-8000-000000000004', 'usdt', 'bep20', 'credited', 'USDT', NULL, 10.00009, 10, 0,
     'r4'),
    ('00000000-0000-7000-8000-000000000005', 'paynow', 'ecocash', 'pending', 'USD', 7, NULL, NULL, 0, NULL),
    -- The operator's word is enough.
    ('00000000-0000-7000-8000-000000000006', 'usdt', 'bep20', 'credited', 'USDT', NULL, 3, 3, 0, 'r6'),
    ('00000000-0000-7000-8000-000000000007', 'voucher', 'own', 'credited', 'USD', 4, 4, 4, 0, 'r7')
), inserted AS (
    INSERT INTO top_ups (id, account_id, method, provider, state, currency, asked, paid, amount, owed,
                         provider_reference, resolved_by)
    SELECT made.id, owner.id, method, provider, state, currency, asked, paid, amount, owed, reference,
           CASE WHEN reference IN ('r6', 'r7') THEN 'operator' END
      FROM made, owner
), came AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, top_up_id)
    SELECT owner.id, 'topup:' || method, 'customer', amount, made.id FROM made, owner WHERE amount IS NOT NULL
), went AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, top_up_id)
    SELECT owner.id, 'customer', 'topup:' || method, amount - owed, made.id
      FROM made, owner WHERE state = 'reversed'
)
UPDATE accounts
   SET balance = balance + (SELECT sum(CASE state WHEN 'reversed' THEN owed ELSE amount END) FROM made)
 WHERE id IN (SELECT id FROM owner)
"""

MORE_OF_TOP_UPS = """
INSERT INTO vouchers (id, code_sha256, tail, amount, issued_by, top_up_id) VALUES
    (gen_random_uuid(), sha256('a'), 'AAAA', 20, 'operator', '00000000-0000-7000-8000-000000000003'),
    (gen_random_uuid(), sha256('b'), 'BBBB', 7, 'operator', NULL);
INSERT INTO usdt_addresses (address, account_id, key_sha256, place)
SELECT '0x' || repeat('a', 40), id, sha256('x'), 0 FROM accounts WHERE phone <> 'system';
INSERT INTO usdt_deposits (chain_id, tx_hash, log_index, account_id, address, sender, units, block_number,
                           block_hash, state, top_up_id)
SELECT 56, '0x' || repeat('1', 64), log_index, account_id, address, '0x', units, 1, '0x', state, top_up_id
  FROM usdt_addresses, (VALUES
       (0, 4000090000000000000, 'credited', '00000000-0000-7000-8000-000000000004'::uuid),
       (1, 6000000000000000000, 'credited', '00000000-0000-7000-8000-000000000004'),
       (2, 1000000000000000000, 'seen', NULL)
  ) AS made (log_index, units, state, top_up_id);
"""


async def top_up(url: str) -> Names:
    await new_caller(url)
    connection = await asyncpg.connect(url)
    await connection.execute(TOP_UPS)
    await connection.execute(MORE_OF_TOP_UPS)
    await connection.close()
    return {}


async def schedule_some(url: str) -> Names:
    caller = await new_caller(url)
    database = Database(url, connections_max=2)
    await schedule(database, caller.id, THREE)
    _upload_id, made = await check_and_schedule(database, caller.id, [f"{number},x" for number in THREE])
    assert isinstance(made, Scheduled)
    await database.close()
    return {}


async def grow_old(url: str) -> Names:
    caller = await new_caller(url)
    database = Database(url, connections_max=2)
    async with database.connection() as connection:
        await make_weeks(connection, 3)
        gone, old = [await add_batch(connection, caller.id, weeks) for weeks in (3, 2)]
        monday = await partitions.this_week(connection)
        border = monday - timedelta(weeks=1)
        # Two workers at the border: the one whose clock was behind got the later number.
        for at in (
            border + timedelta(minutes=1),
            border - timedelta(minutes=1),
            border + timedelta(minutes=1),
        ):
            await tell(connection, caller.id, at, [("balance.low", None, None)])
        unsure = await connection.fetchval("SELECT last - 2 FROM event_counters")
        recent = await add_batch(connection, caller.id, 1)
        await tell(connection, caller.id, monday, [("balance.low", None, None)] * 3)
        await connection.execute(
            "INSERT INTO idempotency_keys (account_id, key, fingerprint, response, batch_id)"
            " VALUES ($1, 'forgotten', sha256('x'), '', $2)",
            caller.id,
            gone.id,
        )
        last = await connection.fetchval("SELECT last FROM event_counters")
    assert await drop_old(database, RetentionKind.MESSAGES, 2) == 1
    assert await drop_old(database, RetentionKind.EVENTS, 1) == 2
    await database.close()
    return {"gone": gone.messages[0], "old": old.id, "recent": recent.id, "last": last, "unsure": unsure}


async def broken(connection: Connection) -> Sequence[str]:
    return sorted([check.name for check in CHECKS if (await runs.run_check(connection, check)).rows])


FILLED: Final = {
    "waiting": (BREAKS, wait),
    "settled": (BREAKS_SETTLED, settle_and_hand_over),
    "topped up": (BREAKS_TOPPED_UP, top_up),
    "scheduled": (BREAKS_SCHEDULED, schedule_some),
    "aged": (BREAKS_AGED, grow_old),
}


@pytest.mark.parametrize("filled", FILLED)
async def test_the_audit_sees_everything_that_is_broken(filled: str, database_url: str) -> None:
    breaks, fill = FILLED[filled]
    names = await fill(database_url)
    connection = await asyncpg.connect(database_url)
    assert await broken(connection) == []
    for name, statement in breaks.items():
        undone = connection.transaction()
        await undone.start()
        await connection.execute(statement.format(**names) if names else statement)
        found = await broken(connection)
        await undone.rollback()
        check, *also = name.split(" + ")
        assert found == sorted([check.partition(":")[0], *also]), name
    await connection.close()


async def test_twin_without_the_borders_the_audit_would_miss_what_has_gone(database_url: str) -> None:
    await grow_old(database_url)
    connection = await asyncpg.connect(database_url)
    await connection.execute("UPDATE kept_from SET id = $1, sure_from = $1", UUID(int=0))
    assert await broken(connection) == [
        "batch_event",
        "debit_without_batch",
        "event_sequence",
        "idempotency",
        "message_event",
        "refund",
    ]
    await connection.close()
