"""What must not go on as it stood in a database that was brought back to an earlier moment?

What waited then may have been handed over since; who was signed in may have signed out; an address that was
given away since is not known any more. Nothing of that is in the database, so it is assumed.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from tumira.accounts.store import SYSTEM
from tumira.operations.backup.dump import LONG_S
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

PLACES_LEFT_FREE: Final = 1000

# They stand in `retries`, where no worker ever finds them due. Those under way name their carrier; for the
# others it is the one that would have been asked first, so that a receipt that is still to come can be
# matched by its number.
SQL_PARK: Final = Statement("""
WITH waiting AS MATERIALIZED (
    SELECT message_id, NULL::integer AS carrier_id FROM queue
     UNION ALL
    SELECT message_id, carrier_id FROM in_flight
     UNION ALL
    SELECT message_id, carrier_id FROM retries WHERE due_at < 'infinity'
), parked AS (
    UPDATE messages
       SET status = 'sending'
      FROM waiting
     WHERE messages.id = waiting.message_id
       AND messages.status IN ('queued', 'sending')
 RETURNING messages.id, messages.batch_id, messages.recipient,
           coalesce(waiting.carrier_id,
                    (SELECT carriers.id FROM carriers
                      WHERE removed_at IS NULL
                        AND (countries IS NULL OR messages.country = ANY(countries))
                      ORDER BY priority, carriers.id
                      LIMIT 1)) AS carrier_id
), emptied_queue AS (
    DELETE FROM queue
), emptied_flight AS (
    DELETE FROM in_flight
), started AS (
    UPDATE batches
       SET status = 'processing'
     WHERE id IN (SELECT batch_id FROM parked)
       AND status = 'queued'
), noted AS (
    INSERT INTO incidents (message_id, kind, carrier_id, recipient, detail)
    SELECT id, 'doubt', carrier_id, ltrim(recipient, '+'), %(detail)s
      FROM parked
)
INSERT INTO retries (message_id, due_at, in_doubt, carrier_id)
SELECT id, 'infinity', true, carrier_id
  FROM parked
    ON CONFLICT (message_id) DO UPDATE
   SET due_at = excluded.due_at, in_doubt = true, carrier_id = excluded.carrier_id
""")


async def park_waiting(connection: Connection, detail: str) -> None:
    """Put all that waits or is under way in doubt, and where no worker takes it up."""
    await connection.execute(SQL_PARK.text, detail, timeout=LONG_S)


SQL_LIST_PARKED: Final = Statement("""
SELECT message_id
  FROM retries
 WHERE due_at = 'infinity'
 ORDER BY message_id
 LIMIT %(count_max)s
""")


async def list_parked(connection: Connection, count_max: int) -> Sequence[UUID]:
    """Return messages that were parked."""
    return [row["message_id"] for row in await SQL_LIST_PARKED.rows(connection, count_max=count_max)]


SQL_COUNT_PARKED: Final = Statement("SELECT count(*) FROM retries WHERE due_at = 'infinity'")


async def count_parked(connection: Connection) -> int:
    """Count the messages that were parked."""
    found = await SQL_COUNT_PARKED.value(connection)
    assert isinstance(found, int)
    return found


SQL_UNPARK: Final = Statement("DELETE FROM retries WHERE message_id = ANY(%(ids)s::uuid[])")


async def unpark(connection: Connection, ids: Sequence[UUID]) -> None:
    """Take parked messages, which the caller holds, out of `retries`."""
    await SQL_UNPARK.rows(connection, ids=ids)


# Workers are found dead by the next one that starts, and what they had claimed with them.
SQL_FORGET_PROCESSES: Final = Statement("""
WITH forgotten_binds AS (
    DELETE FROM binds
), forgotten_nodes AS (
    DELETE FROM nodes
), freed AS (
    UPDATE webhook_endpoints SET worker = NULL, leased_until = NULL WHERE worker IS NOT NULL
)
UPDATE workers SET seen_at = timestamptz 'epoch'
""")


async def forget_processes(connection: Connection) -> None:
    """Take for dead whoever was at work in the restored database."""
    await SQL_FORGET_PROCESSES.rows(connection)


SQL_SIGN_OUT: Final = Statement("""
WITH of_customers AS (
    DELETE FROM sessions
), half_way AS (
    DELETE FROM half_sessions
), of_operators AS (
    DELETE FROM operator_sessions
), known_browsers AS (
    DELETE FROM devices
)
DELETE FROM verifications
""")


async def sign_everybody_out(connection: Connection) -> None:
    """End all sessions: one that was ended since would be good again."""
    await SQL_SIGN_OUT.rows(connection)


SQL_STOP_UPLOADS: Final = Statement("""
UPDATE uploads SET state = 'stopped', problem = %(problem)s WHERE state = 'sending' RETURNING 1
""")


async def stop_uploads(connection: Connection, problem: str) -> int:
    """Stop files that were being sent, and return how many: their rest may have been sent since."""
    return len(await SQL_STOP_UPLOADS.rows(connection, problem=problem))


# A provider that bears the mark is asked what became of the top-up, and never for the money again.
SQL_MARK_ASKED: Final = Statement("""
UPDATE top_ups
   SET asked_at = clock_timestamp()
 WHERE asked_at IS NULL
   AND state = 'started'
   AND method <> 'usdt'
RETURNING 1
""")


async def mark_top_ups_asked(connection: Connection) -> int:
    """Note that providers may have been asked for the money of open top-ups, and return how many."""
    return len(await SQL_MARK_ASKED.rows(connection))


# Addresses are derived one after the other. Those that were given away since the backup must not be given to
# somebody else, so a row of our own account, whose address is nobody's, stands some places further on.
SQL_SKIP_PLACES: Final = Statement("""
INSERT INTO usdt_addresses (address, account_id, key_sha256, place)
SELECT '0x' || left(encode(sha256(key_sha256 || convert_to('skipped', 'UTF8')), 'hex'), 40), %(account_id)s,
       key_sha256, max(place) + %(places)s
  FROM usdt_addresses
 GROUP BY key_sha256
    ON CONFLICT (account_id, key_sha256) DO UPDATE SET place = excluded.place
""")


async def skip_places(connection: Connection) -> None:
    """Leave the addresses out that may have been shown to somebody since."""
    await SQL_SKIP_PLACES.rows(connection, account_id=SYSTEM, places=PLACES_LEFT_FREE)
