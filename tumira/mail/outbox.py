"""The outbox: mails that wait to be sent; a row is deleted once its mail is sent or has expired."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class Mail:
    """A claimed mail, with the number of tries and the seconds until it expires."""

    id: UUID
    recipient: str = field(repr=False)
    subject: str = field(repr=False)
    body: str = field(repr=False)
    tries: int
    left_s: float
    # A PDF, and the name of its file.
    attachment: bytes | None = field(default=None, repr=False)
    attachment_name: str | None = None


SQL_INSERT: Final = Statement("""
INSERT INTO mails (id, recipient, subject, body, expires_at, attachment, attachment_name)
VALUES (%(mail_id)s, %(recipient)s, %(subject)s, %(body)s, %(expires_at)s, %(attachment)s,
        %(attachment_name)s)
""")


async def insert(
    connection: Connection,
    mail_id: UUID,
    recipient: str,
    subject: str,
    body: str,
    expires_at: datetime,
    *,
    attachment: tuple[str, bytes] | None = None,
) -> None:
    """Queue a mail, to be sent after the commit and before `expires_at`; a PDF is attached with its name."""
    name, content = attachment or (None, None)
    await SQL_INSERT.rows(
        connection,
        mail_id=mail_id,
        recipient=recipient,
        subject=subject,
        body=body,
        expires_at=expires_at,
        attachment=content,
        attachment_name=name,
    )


# When a worker dies, another one claims its mails after the lease. So the try is counted here, and not at
# its end, which may never come.
SQL_CLAIM_DUE: Final = Statement("""
WITH due AS MATERIALIZED (
    SELECT id
      FROM mails
     WHERE due_at <= statement_timestamp()
       AND expires_at > clock_timestamp()
     ORDER BY due_at
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
)
UPDATE mails m
   SET due_at = clock_timestamp() + %(lease)s::interval,
       tries = least(m.tries + 1, 32767)
  FROM due
 WHERE m.id = due.id
RETURNING m.id, m.recipient, m.subject, m.body, m.tries,
          extract(epoch FROM m.expires_at - clock_timestamp())::double precision AS left_s,
          m.attachment, m.attachment_name
""")


async def claim_due(connection: Connection, count_max: int, lease_s: float) -> Sequence[Mail]:
    """Claim due mails, longest waiting first; no other worker gets them during the lease."""
    rows = await SQL_CLAIM_DUE.rows(connection, count_max=count_max, lease=timedelta(seconds=lease_s))
    return [Mail(*row) for row in rows]


SQL_DELETE: Final = Statement("DELETE FROM mails WHERE id = %(mail_id)s")


async def delete(connection: Connection, mail_id: UUID) -> None:
    await SQL_DELETE.rows(connection, mail_id=mail_id)


SQL_PUT_OFF: Final = Statement("""
UPDATE mails
   SET due_at = clock_timestamp() + %(wait)s::interval
 WHERE id = %(mail_id)s
""")


async def put_off(connection: Connection, mail_id: UUID, wait_s: float) -> None:
    await SQL_PUT_OFF.rows(connection, mail_id=mail_id, wait=timedelta(seconds=wait_s))


# The table holds the mails of some minutes, so a full scan is cheap. Rows that are being claimed are left
# for the next run.
SQL_DELETE_EXPIRED: Final = Statement("""
WITH expired AS MATERIALIZED (
    SELECT id
      FROM mails
     WHERE expires_at <= clock_timestamp()
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
)
DELETE FROM mails
 WHERE id IN (SELECT id FROM expired)
RETURNING 1
""")


async def delete_expired(connection: Connection, count_max: int) -> int:
    return len(await SQL_DELETE_EXPIRED.rows(connection, count_max=count_max))
