"""Invitations to an account, each for one number."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg

from tumira.core.ids import AccountId
from tumira.identity.code_rules import TRIES_MAX
from tumira.identity.roles import MemberRole
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

LIFETIME: Final = timedelta(days=3)
# Ended ones are kept for the limits, which look back for a day.
DAYS_KEPT: Final = 30


@dataclass(frozen=True, slots=True)
class Invite:
    """An invitation that was neither accepted nor revoked."""

    id: UUID
    account_id: AccountId
    business: str
    phone: str
    role: MemberRole
    invited_by: UUID
    inviter: str
    sent_at: datetime
    is_expired: bool


_INVITE: Final = f"""
SELECT i.id, i.account_id, a.business, i.phone, i.role, i.invited_by, p.name AS inviter,
       i.sent_at[cardinality(i.sent_at)] AS sent_at,
       i.sent_at[cardinality(i.sent_at)] < clock_timestamp() - interval '{LIFETIME.days} days' AS is_expired
  FROM invites i
  JOIN accounts a ON a.id = i.account_id
  JOIN people p ON p.id = i.invited_by
 WHERE i.state = 'open'
   AND a.closed_at IS NULL
"""  # noqa: S608 - only constants are put in


def _invite(row: asyncpg.Record) -> Invite:
    return Invite(**{**dict(row), "role": MemberRole(row["role"])})


SQL_LIST: Final = Statement(_INVITE + "AND i.account_id = %(account_id)s ORDER BY i.id LIMIT 200")


async def list_open(connection: Connection, account_id: AccountId) -> Sequence[Invite]:
    return [_invite(row) for row in await SQL_LIST.rows(connection, account_id=account_id)]


SQL_FIND: Final = Statement(_INVITE + "AND i.account_id = %(account_id)s AND i.id = %(invite_id)s")


async def find(connection: Connection, account_id: AccountId, invite_id: UUID) -> Invite | None:
    row = await SQL_FIND.row(connection, account_id=account_id, invite_id=invite_id)
    return None if row is None else _invite(row)


SQL_FIND_BY_TOKEN: Final = Statement(_INVITE + "AND i.token_sha256 = %(token_sha256)s")


async def find_by_token(connection: Connection, token_sha256: bytes) -> Invite | None:
    """Return the invitation of a link; None once it has expired."""
    row = await SQL_FIND_BY_TOKEN.row(connection, token_sha256=token_sha256)
    return None if row is None or row["is_expired"] else _invite(row)


SQL_LOCK: Final = Statement("SELECT pg_advisory_xact_lock(hashtextextended('tumira invites', 0))")


async def lock_invites(connection: Connection) -> None:
    """Let one transaction at a time count invitations and add one, so that no limit is exceeded."""
    await SQL_LOCK.value(connection)


@dataclass(frozen=True, slots=True)
class SentTexts:
    """The invitations that were sent in the last day: for an account, and to a number by all accounts."""

    of_account: int
    of_number: int
    # When the last one went to the number from this account.
    last_at: datetime | None
    now: datetime


SQL_READ_SENT: Final = Statement("""
WITH sent AS MATERIALIZED (
    SELECT i.account_id, i.phone, at
      FROM invites i, unnest(i.sent_at) at
     WHERE (i.account_id = %(account_id)s OR i.phone = %(phone)s)
       AND i.created_at > clock_timestamp() - interval '31 days'
       AND at > clock_timestamp() - interval '1 day'
)
SELECT count(*) FILTER (WHERE account_id = %(account_id)s) AS of_account,
       count(*) FILTER (WHERE phone = %(phone)s) AS of_number,
       max(at) FILTER (WHERE account_id = %(account_id)s AND phone = %(phone)s) AS last_at,
       clock_timestamp() AS now
  FROM sent
""")


async def read_sent(connection: Connection, account_id: AccountId, phone: str) -> SentTexts:
    row = await SQL_READ_SENT.row(connection, account_id=account_id, phone=phone)
    assert row is not None
    return SentTexts(**row)


SQL_INSERT: Final = Statement("""
INSERT INTO invites (id, account_id, phone, role, token_sha256, code_hash, invited_by)
VALUES (%(invite_id)s, %(account_id)s, %(phone)s, %(role)s, %(token_sha256)s, %(code_hash)s, %(invited_by)s)
""")


async def insert(
    connection: Connection,
    invite_id: UUID,
    account_id: AccountId,
    *,
    phone: str,
    role: MemberRole,
    token_sha256: bytes,
    code_hash: str,
    invited_by: UUID,
) -> None:
    await SQL_INSERT.rows(
        connection,
        invite_id=invite_id,
        account_id=account_id,
        phone=phone,
        role=role,
        token_sha256=token_sha256,
        code_hash=code_hash,
        invited_by=invited_by,
    )


# The link and the code of the text before no longer work.
SQL_RENEW: Final = Statement("""
UPDATE invites
   SET token_sha256 = %(token_sha256)s, code_hash = %(code_hash)s, tries = 0, invited_by = %(invited_by)s,
       sent_at = array_append(sent_at, clock_timestamp())
 WHERE id = %(invite_id)s
   AND state = 'open'
""")


async def renew(
    connection: Connection, invite_id: UUID, *, token_sha256: bytes, code_hash: str, invited_by: UUID
) -> None:
    """Record that an invitation is sent again, with another link and code."""
    await SQL_RENEW.rows(
        connection, invite_id=invite_id, token_sha256=token_sha256, code_hash=code_hash, invited_by=invited_by
    )


# Committed before the code is compared, so that parallel attempts cannot make a sixth.
SQL_TAKE_TRY: Final = Statement("""
UPDATE invites
   SET tries = tries + 1
 WHERE id = %(invite_id)s
   AND state = 'open'
   AND tries < %(tries_max)s
RETURNING code_hash, tries
""")


async def take_attempt(connection: Connection, invite_id: UUID) -> tuple[str, int] | None:
    """Count an attempt at the code, and return its hash and the attempts left; None if it had too many."""
    row = await SQL_TAKE_TRY.row(connection, invite_id=invite_id, tries_max=TRIES_MAX)
    return None if row is None else (row["code_hash"], TRIES_MAX - row["tries"])


SQL_END: Final = Statement("""
UPDATE invites
   SET state = %(state)s, ended_at = clock_timestamp()
 WHERE id = %(invite_id)s
   AND state = 'open'
RETURNING 1
""")


async def mark_accepted(connection: Connection, invite_id: UUID) -> bool:
    """Use up an invitation; False if it was accepted or revoked before."""
    return await SQL_END.value(connection, invite_id=invite_id, state="accepted") is not None


async def mark_revoked(connection: Connection, invite_id: UUID) -> bool:
    """Revoke an invitation; False if it was accepted or revoked before."""
    return await SQL_END.value(connection, invite_id=invite_id, state="revoked") is not None


SQL_REVOKE_BY: Final = Statement("""
UPDATE invites
   SET state = 'revoked', ended_at = clock_timestamp()
 WHERE account_id = %(account_id)s
   AND invited_by = %(person_id)s
   AND state = 'open'
""")


async def revoke_by(connection: Connection, account_id: AccountId, person_id: UUID) -> None:
    """Revoke what a person has invited who may no longer do so."""
    await SQL_REVOKE_BY.rows(connection, account_id=account_id, person_id=person_id)
