"""Where else is a number quoted, and how is it taken out of there?"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.core.ids import AccountId, EndpointId
from tumira.operations.erasure.statements import HOLDS
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.phone_numbers import Subject


class Reply(Struct, frozen=True):
    """An answer that is kept to be repeated; `response` is None unless the number may be quoted in it."""

    account_id: AccountId
    key: str
    response: bytes | None


# Nearly all answers reject nobody, and are not looked into.
SQL_LIST_REPLIES: Final = Statement(f"""
SELECT account_id, key,
       CASE WHEN position(convert_to('"rejected":[]', 'UTF8') IN response) > 0 THEN NULL
            WHEN {HOLDS.format("convert_from(response, 'UTF8')")} THEN response
       END
  FROM idempotency_keys
 WHERE (account_id, key) > (%(after_account)s, %(after_key)s)
 ORDER BY account_id, key
 LIMIT %(count_max)s
""")  # noqa: S608 - only constants are put in


async def list_replies(
    connection: Connection, subject: Subject, after: tuple[UUID, str], count_max: int
) -> Sequence[Reply]:
    """Return answers to everybody's calls, in the order of their keys."""
    rows = await SQL_LIST_REPLIES.rows(
        connection,
        national=subject.national,
        after_account=after[0],
        after_key=after[1],
        count_max=count_max,
    )
    return [Reply(*row) for row in rows]


# The row itself stays: it is what keeps the call from being billed twice.
SQL_SET_REPLY: Final = Statement("""
UPDATE idempotency_keys
   SET response = %(response)s
 WHERE account_id = %(account_id)s
   AND key = %(key)s
""")


async def set_reply(connection: Connection, reply: Reply) -> None:
    """Change an answer that is kept to be repeated."""
    await SQL_SET_REPLY.rows(connection, account_id=reply.account_id, key=reply.key, response=reply.response)


SQL_NEXT_ENDPOINT: Final = Statement("""
SELECT id
  FROM webhook_endpoints
 WHERE account_id = ANY(%(account_ids)s::uuid[])
   AND id > %(after)s
 ORDER BY id
 LIMIT 1
""")


async def next_endpoint(
    connection: Connection, account_ids: Sequence[AccountId], after: UUID
) -> EndpointId | None:
    """Return the first endpoint of these accounts behind one."""
    found: EndpointId | None = await SQL_NEXT_ENDPOINT.value(connection, account_ids=account_ids, after=after)
    return found


class Attempt(Struct, frozen=True):
    """A try to tell of an event; `holds` tells whether the answer of the customer's server has the number."""

    id: UUID
    holds: bool


SQL_LIST_ATTEMPTS: Final = Statement("""
SELECT id, strpos(answer, %(national)s) > 0 AS holds
  FROM webhook_attempts
 WHERE endpoint_id = %(endpoint_id)s
   AND id > %(after)s
   AND id < %(until)s
 ORDER BY id
 LIMIT %(count_max)s
""")


async def list_attempts(
    connection: Connection,
    subject: Subject,
    endpoint_id: EndpointId,
    after: UUID,
    until: UUID,
    count_max: int,
) -> Sequence[Attempt]:
    """Return tries at an endpoint, in their order."""
    rows = await SQL_LIST_ATTEMPTS.rows(
        connection,
        national=subject.national,
        endpoint_id=endpoint_id,
        after=after,
        until=until,
        count_max=count_max,
    )
    return [Attempt(*row) for row in rows]


SQL_ERASE_ANSWER: Final = Statement("""
UPDATE webhook_attempts
   SET answer = ''
 WHERE endpoint_id = %(endpoint_id)s
   AND id = %(attempt_id)s
""")


async def erase_answers(connection: Connection, endpoint_id: EndpointId, attempts: Sequence[Attempt]) -> None:
    """Forget what a customer's server answered."""
    await SQL_ERASE_ANSWER.each(
        connection, [{"endpoint_id": endpoint_id, "attempt_id": one.id} for one in attempts]
    )


SQL_DELETE_PROOFS: Final = Statement("""
WITH proofs AS (
    DELETE FROM verifications WHERE phone = %(number)s AND created_at < %(before)s RETURNING 1
), tries AS (
    DELETE FROM attempts WHERE phone = %(number)s AND at < %(before)s RETURNING 1
), browsers AS (
    DELETE FROM devices WHERE phone = %(number)s AND created_at < %(before)s RETURNING 1
)
SELECT (SELECT count(*) FROM proofs) + (SELECT count(*) FROM tries) + (SELECT count(*) FROM browsers)
""")


async def delete_proofs(connection: Connection, number: str, before: datetime) -> int:
    """Forget that somebody said the number is theirs, with the codes and tries; return how often."""
    return int(await SQL_DELETE_PROOFS.value(connection, number=number, before=before))


# Only in full, with or without the zeros of a call abroad: without its country it may be somebody else's.
SQL_DELETE_RECEIPTS: Final = Statement("""
DELETE FROM unmatched_receipts
 WHERE id = ANY(ARRAY(
       SELECT id
         FROM unmatched_receipts
        WHERE recipient IN (%(digits)s, '00' || %(digits)s)
          AND received_at < %(before)s
          AND id > %(after)s
        ORDER BY id
        LIMIT %(count_max)s
          FOR UPDATE SKIP LOCKED))
RETURNING id
""")


async def delete_receipts(
    connection: Connection, digits: str, before: datetime, after: int, count_max: int
) -> Sequence[int]:
    """Forget receipts for the number that matched nothing, and return which."""
    rows = await SQL_DELETE_RECEIPTS.rows(
        connection, digits=digits, before=before, after=after, count_max=count_max
    )
    return [row["id"] for row in rows]
