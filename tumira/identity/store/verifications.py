"""Verifications: numbers that are being proved, and the codes that were sent for that."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

import asyncpg

from tumira.identity.code_rules import LIFETIME, TRIES_MAX
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

HOURS_KEPT: Final = 24


class Purpose(StrEnum):
    SIGN_UP = "sign_up"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Applicant:
    """The details of a new account, besides its number."""

    name: str
    business: str
    email: str | None
    password_hash: str


@dataclass(frozen=True, slots=True)
class Verification:
    """A number that is being proved; `applicant` is None where the account is there already."""

    id: UUID
    purpose: Purpose
    phone: str
    applicant: Applicant | None


SQL_LOCK_CODES: Final = Statement("SELECT pg_advisory_xact_lock(hashtextextended('tumira codes', 0))")


async def lock_codes(connection: Connection) -> None:
    """Let one transaction at a time count codes and add one, so that no limit is exceeded."""
    await SQL_LOCK_CODES.value(connection)


SQL_INSERT: Final = Statement("""
INSERT INTO verifications (id, token_sha256, purpose, phone, name, business, email, password_hash)
VALUES (%(verification_id)s, %(token_sha256)s, %(purpose)s, %(phone)s, %(name)s, %(business)s, %(email)s,
        %(password_hash)s)
""")


async def insert(connection: Connection, verification: Verification, token_sha256: bytes) -> None:
    applicant = verification.applicant
    await SQL_INSERT.rows(
        connection,
        verification_id=verification.id,
        token_sha256=token_sha256,
        purpose=verification.purpose.value,
        phone=verification.phone,
        **{one.name: applicant and getattr(applicant, one.name) for one in fields(Applicant)},
    )


_VERIFICATION: Final = f"""
SELECT id, purpose, phone, name, business, email, password_hash
  FROM verifications
 WHERE done_at IS NULL
   AND created_at > clock_timestamp() - interval '{HOURS_KEPT} hours'
"""  # noqa: S608 - only constants are put in

SQL_FIND: Final = Statement(_VERIFICATION + "AND token_sha256 = %(token_sha256)s")
SQL_LOCK: Final = Statement(_VERIFICATION + "AND token_sha256 = %(token_sha256)s FOR NO KEY UPDATE")
SQL_FIND_LATEST: Final = Statement(
    _VERIFICATION + "AND phone = %(phone)s AND purpose = 'sign_up' ORDER BY created_at DESC LIMIT 1"
)


async def find(connection: Connection, token_sha256: bytes) -> Verification | None:
    """Return the unfinished verification of this token."""
    return _verification(await SQL_FIND.row(connection, token_sha256=token_sha256))


async def lock(connection: Connection, token_sha256: bytes) -> Verification | None:
    """Find a verification, and keep others from finishing it at the same time."""
    return _verification(await SQL_LOCK.row(connection, token_sha256=token_sha256))


async def find_latest_sign_up(connection: Connection, phone: str) -> Verification | None:
    """Return the latest sign-up for a number that was not finished."""
    return _verification(await SQL_FIND_LATEST.row(connection, phone=phone))


def _verification(row: asyncpg.Record | None) -> Verification | None:
    if row is None:
        return None
    verification_id, purpose, phone, *details = row
    applicant = Applicant(*details) if purpose == Purpose.SIGN_UP else None
    return Verification(verification_id, Purpose(purpose), phone, applicant)


SQL_CHANGE: Final = Statement("""
UPDATE verifications
   SET name = %(name)s, business = %(business)s, email = %(email)s, password_hash = %(password_hash)s
 WHERE id = %(verification_id)s
""")


async def change(connection: Connection, verification_id: UUID, applicant: Applicant) -> None:
    await SQL_CHANGE.rows(connection, verification_id=verification_id, **asdict(applicant))


SQL_FORGET_EMAIL: Final = Statement(
    "UPDATE verifications SET email = NULL WHERE id = %(verification_id)s AND done_at IS NULL"
)


async def forget_email(connection: Connection, verification_id: UUID) -> None:
    """Record that the e-mail address was proved; from now on only a code sent to the phone counts."""
    await SQL_FORGET_EMAIL.rows(connection, verification_id=verification_id)


SQL_SET_TOKEN: Final = Statement(
    "UPDATE verifications SET token_sha256 = %(token_sha256)s WHERE id = %(verification_id)s"
)


async def set_token(connection: Connection, verification_id: UUID, token_sha256: bytes) -> None:
    """Move a verification to another browser."""
    await SQL_SET_TOKEN.rows(connection, verification_id=verification_id, token_sha256=token_sha256)


SQL_MARK_DONE: Final = Statement(
    "UPDATE verifications SET done_at = clock_timestamp() WHERE id = %(verification_id)s AND done_at IS NULL"
)


async def mark_done(connection: Connection, verification_id: UUID) -> None:
    await SQL_MARK_DONE.rows(connection, verification_id=verification_id)


SQL_INSERT_CODE: Final = Statement("""
INSERT INTO codes (id, verification_id, phone, address, device_sha256, code_hash, email_hash, sent)
VALUES (%(code_id)s, %(verification_id)s, %(phone)s, %(address)s, %(device)s, %(code_hash)s, %(email_hash)s,
        %(sent)s)
""")


async def insert_code(
    connection: Connection,
    code_id: UUID,
    verification: Verification,
    *,
    address: str,
    device: bytes | None,
    code_hash: str | None,
    email_hash: str | None,
    sent: bool,
) -> None:
    """Record that a code was asked for, and whether a text was sent."""
    await SQL_INSERT_CODE.rows(
        connection,
        code_id=code_id,
        verification_id=verification.id,
        phone=verification.phone,
        address=address,
        device=device,
        code_hash=code_hash,
        email_hash=email_hash,
        sent=sent,
    )


@dataclass(frozen=True, slots=True)
class AskedCodes:
    """When codes for a number were asked for in the last day, and how many by all in the last hour."""

    now: datetime
    here: Sequence[datetime]
    everywhere: Sequence[datetime]
    of_address: int
    of_address_since: datetime | None
    sent: int
    sent_since: datetime | None


# The codes of a known browser count apart from those of strangers: they are limited by its own waits. So do
# codes that were never sent, but only strangers ask for those: a number without an account has no known
# browser.
SQL_READ_ASKED: Final = Statement("""
WITH of_phone AS MATERIALIZED (
    SELECT c.sent_at, c.address
      FROM codes c
      JOIN verifications v ON v.id = c.verification_id
     WHERE c.phone = %(phone)s
       AND c.sent_at > clock_timestamp() - interval '1 day'
       AND v.purpose = %(purpose)s
       AND c.device_sha256 IS NOT DISTINCT FROM %(device)s
), of_address AS (
    SELECT count(*) AS of_address, min(sent_at) AS of_address_since
      FROM codes
     WHERE address = %(address)s
       AND sent_at > clock_timestamp() - interval '1 hour'
), of_all AS (
    SELECT count(*) AS sent, min(c.sent_at) AS sent_since
      FROM codes c
      JOIN verifications v ON v.id = c.verification_id
     WHERE c.sent_at > clock_timestamp() - interval '1 hour'
       AND c.sent
       AND c.device_sha256 IS NULL
       AND v.purpose = %(purpose)s
)
SELECT clock_timestamp() AS now,
       ARRAY(SELECT sent_at FROM of_phone WHERE address = %(address)s ORDER BY sent_at) AS here,
       ARRAY(SELECT sent_at FROM of_phone ORDER BY sent_at) AS everywhere,
       of_address.*, of_all.*
  FROM of_address, of_all
""")


async def read_asked(
    connection: Connection, purpose: Purpose, phone: str, address: str, device: bytes | None
) -> AskedCodes:
    row = await SQL_READ_ASKED.row(
        connection, purpose=purpose.value, phone=phone, address=address, device=device
    )
    assert row is not None
    return AskedCodes(**row)


# Committed before the code is compared, so that parallel attempts cannot make a sixth.
SQL_TAKE_TRY: Final = Statement("""
UPDATE codes
   SET tries = tries + 1
 WHERE id = (SELECT id FROM codes WHERE verification_id = %(verification_id)s ORDER BY sent_at DESC LIMIT 1)
   AND tries < %(tries_max)s
   AND sent_at > clock_timestamp() - %(lifetime)s::interval
RETURNING code_hash, email_hash, tries
""")


@dataclass(frozen=True, slots=True)
class CodeAttempt:
    """An attempt at a code: the hashes to compare with, and the attempts left after it."""

    code_hash: str | None
    email_hash: str | None
    left: int


async def take_attempt(connection: Connection, verification_id: UUID) -> CodeAttempt | None:
    """Count an attempt at the newest code; None if that is too old or was tried too often."""
    row = await SQL_TAKE_TRY.row(
        connection, verification_id=verification_id, tries_max=TRIES_MAX, lifetime=LIFETIME
    )
    return None if row is None else CodeAttempt(row["code_hash"], row["email_hash"], TRIES_MAX - row["tries"])
