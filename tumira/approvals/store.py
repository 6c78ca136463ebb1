"""Sends that wait for a second person's approval, and their outcomes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import asyncpg

from tumira.core.ids import AccountId, BatchId, UploadId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.sending.compose import Draft

# Shorter than the life of an Idempotency-Key: a send that is approved again is the same send.
LIFETIME: Final = timedelta(hours=48)
DAYS_KEPT: Final = 30


class ApprovalState(StrEnum):
    WAITING = "waiting"
    SENDING = "sending"
    APPROVED = "approved"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"


# May still be approved.
OPEN: Final = frozenset({ApprovalState.WAITING, ApprovalState.SENDING})


@dataclass(frozen=True, slots=True)
class Approval:
    id: UUID
    account_id: AccountId
    token: str
    # None for a file, and once the message is erased.
    draft: Draft | None
    upload_id: UploadId | None
    count: int
    cost: Decimal
    asked_by: UUID
    asker: str
    asked_at: datetime
    state: ApprovalState
    decider: str | None
    decided_at: datetime | None
    note: str
    batch_id: BatchId | None

    @property
    def is_open(self) -> bool:
        return self.state in OPEN


_APPROVAL: Final = f"""
SELECT r.id, r.account_id, r.token, r.recipients, r.message, r.reference, r.upload_id, r.count,
       r.cost, r.asked_by, a.name AS asker, r.asked_at,
       CASE WHEN r.state IN ('waiting', 'sending')
             AND r.asked_at < clock_timestamp() - interval '{LIFETIME.total_seconds():.0f} seconds'
            THEN 'expired' ELSE r.state END AS state,
       d.name AS decider, r.decided_at, r.note, r.batch_id
  FROM approvals r
  JOIN people a ON a.id = r.asked_by
  LEFT JOIN people d ON d.id = r.decided_by
 WHERE r.account_id = %(account_id)s
"""  # noqa: S608 - only constants are put in


def _approval(row: asyncpg.Record) -> Approval:
    fields = dict(row)
    recipients, message, reference = (fields.pop(name) for name in ("recipients", "message", "reference"))
    draft = None if recipients is None else Draft(recipients, message, reference or "")
    return Approval(**{**fields, "draft": draft, "state": ApprovalState(row["state"])})


SQL_LIST: Final = Statement(
    _APPROVAL + "ORDER BY r.state NOT IN ('waiting', 'sending'), r.id DESC LIMIT %(count_max)s"
)


async def list_approvals(connection: Connection, account_id: AccountId, count_max: int) -> Sequence[Approval]:
    """Return those that wait first, then the latest."""
    rows = await SQL_LIST.rows(connection, account_id=account_id, count_max=count_max)
    return [_approval(row) for row in rows]


SQL_FIND: Final = Statement(_APPROVAL + "AND r.id = %(approval_id)s")
SQL_LOCK: Final = Statement(_APPROVAL + "AND r.id = %(approval_id)s FOR NO KEY UPDATE OF r")


async def find(connection: Connection, account_id: AccountId, approval_id: UUID) -> Approval | None:
    row = await SQL_FIND.row(connection, account_id=account_id, approval_id=approval_id)
    return None if row is None else _approval(row)


async def lock(connection: Connection, account_id: AccountId, approval_id: UUID) -> Approval | None:
    row = await SQL_LOCK.row(connection, account_id=account_id, approval_id=approval_id)
    return None if row is None else _approval(row)


SQL_FIND_OF_UPLOAD: Final = Statement(
    _APPROVAL + "AND r.upload_id = %(upload_id)s AND r.state IN ('waiting', 'sending') LIMIT 1"
)


async def find_of_upload(
    connection: Connection, account_id: AccountId, upload_id: UploadId
) -> Approval | None:
    """Return the approval that a file waits for."""
    row = await SQL_FIND_OF_UPLOAD.row(connection, account_id=account_id, upload_id=upload_id)
    approval = None if row is None else _approval(row)
    return approval if approval is not None and approval.is_open else None


SQL_COUNT_WAITING: Final = Statement(f"""
SELECT count(*)
  FROM approvals
 WHERE account_id = %(account_id)s
   AND state IN ('waiting', 'sending')
   AND asked_at > clock_timestamp() - interval '{LIFETIME.total_seconds():.0f} seconds'
""")  # noqa: S608 - only constants are put in


async def count_waiting(connection: Connection, account_id: AccountId) -> int:
    return int(await SQL_COUNT_WAITING.value(connection, account_id=account_id))


# One that has expired makes room for another with the same token.
SQL_EXPIRE: Final = Statement(f"""
UPDATE approvals
   SET state = 'expired', recipients = NULL, message = NULL, reference = NULL
 WHERE account_id = %(account_id)s
   AND state IN ('waiting', 'sending')
   AND asked_at < clock_timestamp() - interval '{LIFETIME.total_seconds():.0f} seconds'
""")  # noqa: S608 - only constants are put in
SQL_INSERT: Final = Statement("""
INSERT INTO approvals (id, account_id, token, recipients, message, reference, upload_id, count, cost,
                       asked_by)
VALUES (%(approval_id)s, %(account_id)s, %(token)s, %(recipients)s, %(message)s, %(reference)s, %(upload_id)s,
        %(count)s, %(cost)s, %(asked_by)s)
    ON CONFLICT (account_id, token) WHERE state IN ('waiting', 'sending') DO NOTHING
RETURNING id
""")
SQL_FIND_BY_TOKEN: Final = Statement("""
SELECT id
  FROM approvals
 WHERE account_id = %(account_id)s
   AND token = %(token)s
   AND state IN ('waiting', 'sending')
""")


async def insert(
    connection: Connection,
    approval_id: UUID,
    account_id: AccountId,
    *,
    token: str,
    draft: Draft | None,
    upload_id: UploadId | None,
    count: int,
    cost: Decimal,
    asked_by: UUID,
) -> tuple[UUID, bool]:
    """Ask for an approval; return its id, or that of an earlier one for the same send, and if it is new."""
    await SQL_EXPIRE.rows(connection, account_id=account_id)
    made = await SQL_INSERT.value(
        connection,
        approval_id=approval_id,
        account_id=account_id,
        token=token,
        recipients=None if draft is None else draft.recipients,
        message=None if draft is None else draft.message,
        reference=None if draft is None else draft.reference,
        upload_id=upload_id,
        count=count,
        cost=cost,
        asked_by=asked_by,
    )
    if made is not None:
        return made, True
    earlier: UUID = await SQL_FIND_BY_TOKEN.value(connection, account_id=account_id, token=token)
    return earlier, False


# Once it is over, the batch has the text and the numbers. What was declined can be corrected.
SQL_MARK: Final = Statement("""
UPDATE approvals
   SET state = %(state)s, decided_by = coalesce(%(decided_by)s, decided_by), decided_at = clock_timestamp(),
       note = %(note)s, batch_id = coalesce(%(batch_id)s, batch_id),
       recipients = CASE WHEN %(is_erased)s THEN NULL ELSE recipients END,
       message = CASE WHEN %(is_erased)s THEN NULL ELSE message END
 WHERE id = %(approval_id)s
""")


async def mark(
    connection: Connection,
    approval_id: UUID,
    state: ApprovalState,
    *,
    decided_by: UUID | None = None,
    note: str = "",
    batch_id: BatchId | None = None,
) -> None:
    await SQL_MARK.rows(
        connection,
        approval_id=approval_id,
        state=state,
        decided_by=decided_by,
        note=note,
        batch_id=batch_id,
        is_erased=state in {ApprovalState.APPROVED, ApprovalState.WITHDRAWN},
    )


# A number can be written in a draft in many ways, so what is over goes as a whole.
SQL_ERASE: Final = Statement("""
UPDATE approvals
   SET recipients = NULL, message = NULL, reference = NULL,
       state = CASE WHEN state IN ('waiting', 'sending') THEN 'expired' ELSE state END
 WHERE recipients IS NOT NULL
   AND asked_at < %(before)s
   AND (state NOT IN ('waiting', 'sending')
        OR regexp_replace(recipients, '[^0-9]', '', 'g') LIKE '%' || %(national)s::text || '%')
""")


async def erase_number(connection: Connection, national: str, before: datetime) -> None:
    """Erase drafts that hold a number, and all that are decided."""
    await SQL_ERASE.rows(connection, national=national, before=before)


SQL_LIST_TO: Final = Statement("""
SELECT account_id, asked_at, state, message
  FROM approvals
 WHERE recipients IS NOT NULL
   AND regexp_replace(recipients, '[^0-9]', '', 'g') LIKE '%' || %(national)s::text || '%'
 ORDER BY asked_at
 LIMIT %(count_max)s
""")


async def list_to(connection: Connection, national: str, count_max: int) -> Sequence[Mapping[str, Any]]:
    """Return the drafts of all accounts that hold a number."""
    return [dict(row) for row in await SQL_LIST_TO.rows(connection, national=national, count_max=count_max)]


SQL_DELETE_OLD: Final = Statement(f"""
WITH old AS MATERIALIZED (
    SELECT id
      FROM approvals
     WHERE asked_at < clock_timestamp() - interval '{DAYS_KEPT} days'
     ORDER BY asked_at
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM approvals WHERE id = ANY(ARRAY(SELECT id FROM old))
)
SELECT count(*) FROM old
""")  # noqa: S608 - only constants are put in


async def delete_old(connection: Connection, count_max: int) -> int:
    """Delete approvals of more than a month ago, and return how many."""
    return int(await SQL_DELETE_OLD.value(connection, count_max=count_max))
