"""How does an account's owner prove who they are, and where else can they be written to?"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tumira.core.ids import AccountId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class Login:
    """An account's password, hashed; None until its owner has chosen one."""

    account_id: AccountId
    password_hash: str | None
    # Whether its owner has closed the account, so that nobody signs in any more.
    closed: bool
    # Whether a code that was sent to the phone was entered; an operator vouches for an account they opened.
    phone_proved: bool


SQL_FIND: Final = Statement("""
SELECT a.id, l.password_hash, a.closed_at IS NOT NULL, l.account_id IS NULL OR l.phone_proved_at IS NOT NULL
  FROM accounts a
  LEFT JOIN logins l ON l.account_id = a.id
 WHERE a.phone = %(phone)s
""")


async def find(connection: Connection, phone: str) -> Login | None:
    """Return the login of a number's account; None when there is no account."""
    row = await SQL_FIND.row(connection, phone=phone)
    return None if row is None else Login(*row)


SQL_HOLD: Final = Statement(
    "SELECT password_hash FROM logins WHERE account_id = %(account_id)s FOR NO KEY UPDATE"
)


async def hold(connection: Connection, account_id: AccountId) -> str | None:
    """Return an account's hashed password as it is now, and keep others from changing it meanwhile."""
    password_hash: str | None = await SQL_HOLD.value(connection, account_id=account_id)
    return password_hash


SQL_INSERT: Final = Statement("""
INSERT INTO logins (account_id, email, password_hash, phone_proved_at)
VALUES (%(account_id)s, %(email)s, %(password_hash)s,
        CASE WHEN %(phone_proved)s::boolean THEN clock_timestamp() END)
""")


async def insert(
    connection: Connection,
    account_id: AccountId,
    email: str | None,
    password_hash: str,
    *,
    phone_proved: bool,
) -> None:
    """Add the login of a new account."""
    await SQL_INSERT.rows(
        connection,
        account_id=account_id,
        email=email,
        password_hash=password_hash,
        phone_proved=phone_proved,
    )


SQL_MARK_PROVED: Final = Statement(
    "UPDATE logins SET phone_proved_at = clock_timestamp() WHERE account_id = %(account_id)s"
)


async def mark_proved(connection: Connection, account_id: AccountId) -> None:
    """Note that a code that was sent to the phone was entered."""
    await SQL_MARK_PROVED.rows(connection, account_id=account_id)


SQL_SET_PASSWORD: Final = Statement("""
INSERT INTO logins (account_id, password_hash)
VALUES (%(account_id)s, %(password_hash)s)
    ON CONFLICT (account_id) DO UPDATE
   SET password_hash = excluded.password_hash, changed_at = clock_timestamp()
""")


async def set_password(connection: Connection, account_id: AccountId, password_hash: str) -> None:
    """Set an account's password, its first one or another."""
    await SQL_SET_PASSWORD.rows(connection, account_id=account_id, password_hash=password_hash)


@dataclass(frozen=True, slots=True)
class Contact:
    """Where an owner is written to, and about what."""

    email: str | None
    low_balance_mail: bool


SQL_GET_CONTACT: Final = Statement(
    "SELECT email, low_balance_mail FROM logins WHERE account_id = %(account_id)s"
)


async def get_contact(connection: Connection, account_id: AccountId) -> Contact:
    """Return where an account's owner, who has signed in before, is written to."""
    row = await SQL_GET_CONTACT.row(connection, account_id=account_id)
    assert row is not None, "who signs in has a login"
    return Contact(*row)


SQL_EXISTS: Final = Statement("SELECT EXISTS (SELECT FROM logins WHERE account_id = %(account_id)s)")


async def exists(connection: Connection, account_id: AccountId) -> bool:
    """Tell whether the owner of an account can sign in to the dashboard."""
    return bool(await SQL_EXISTS.value(connection, account_id=account_id))


SQL_FIND_EMAIL: Final = Statement("SELECT email FROM logins WHERE account_id = %(account_id)s")


async def find_email(connection: Connection, account_id: AccountId) -> str | None:
    """Return where an account's owner is written to; None where nobody said, or nobody ever signed in."""
    email: str | None = await SQL_FIND_EMAIL.value(connection, account_id=account_id)
    return email


SQL_SET_EMAIL: Final = Statement("UPDATE logins SET email = %(email)s WHERE account_id = %(account_id)s")


async def set_email(connection: Connection, account_id: AccountId, email: str | None) -> None:
    """Set where an account's owner is written to."""
    await SQL_SET_EMAIL.rows(connection, account_id=account_id, email=email)


SQL_SET_LOW_BALANCE_MAIL: Final = Statement(
    "UPDATE logins SET low_balance_mail = %(wanted)s WHERE account_id = %(account_id)s"
)


async def set_low_balance_mail(connection: Connection, account_id: AccountId, *, wanted: bool) -> None:
    """Set whether an owner is written to when the balance is low."""
    await SQL_SET_LOW_BALANCE_MAIL.rows(connection, account_id=account_id, wanted=wanted)


@dataclass(frozen=True, slots=True)
class Factor:
    """A second factor; `since` is None until its owner has shown that their device has the secret."""

    secret: bytes = field(repr=False)
    since: datetime | None
    last_step: int
    recovery_codes: int


SQL_FIND_FACTOR: Final = Statement("""
SELECT totp_secret, totp_since, totp_last_step,
       (SELECT count(*) FROM recovery_codes c WHERE c.account_id = l.account_id)
  FROM logins l
 WHERE account_id = %(account_id)s
   AND totp_secret IS NOT NULL
""")


async def find_factor(connection: Connection, account_id: AccountId) -> Factor | None:
    """Return an account's second factor, begun or in use; None if there is none."""
    row = await SQL_FIND_FACTOR.row(connection, account_id=account_id)
    return None if row is None else Factor(*row)


# One that is in use stays: a device that has its secret would make codes in vain.
SQL_BEGIN_FACTOR: Final = Statement("""
UPDATE logins
   SET totp_secret = %(secret)s, totp_last_step = 0
 WHERE account_id = %(account_id)s
   AND totp_since IS NULL
RETURNING 1
""")


async def begin_factor(connection: Connection, account_id: AccountId, secret: bytes) -> bool:
    """Keep the secret of a factor that is not in use yet; False when there is one in use."""
    return await SQL_BEGIN_FACTOR.value(connection, account_id=account_id, secret=secret) is not None


SQL_USE_FACTOR: Final = Statement("""
WITH used AS (
    UPDATE logins
       SET totp_since = clock_timestamp(), totp_last_step = %(step)s
     WHERE account_id = %(account_id)s
)
INSERT INTO recovery_codes (account_id, sha256)
SELECT %(account_id)s, unnest(%(sha256s)s::bytea[])
""")


async def use_factor(
    connection: Connection, account_id: AccountId, step: int, recovery_sha256s: Sequence[bytes]
) -> None:
    """Ask for the factor from now on, or for one of the recovery codes in its place."""
    await SQL_USE_FACTOR.rows(connection, account_id=account_id, step=step, sha256s=recovery_sha256s)


SQL_TAKE_STEP: Final = Statement("""
UPDATE logins
   SET totp_last_step = %(step)s
 WHERE account_id = %(account_id)s
   AND totp_last_step < %(step)s
RETURNING 1
""")


async def take_step(connection: Connection, account_id: AccountId, step: int) -> bool:
    """Use up the code of a step and of all before it; False if it was used before."""
    return await SQL_TAKE_STEP.value(connection, account_id=account_id, step=step) is not None


SQL_TAKE_RECOVERY_CODE: Final = Statement("""
DELETE FROM recovery_codes WHERE account_id = %(account_id)s AND sha256 = %(sha256)s RETURNING 1
""")


async def take_recovery_code(connection: Connection, account_id: AccountId, sha256: bytes) -> bool:
    """Use up a recovery code; False if there is none such."""
    return await SQL_TAKE_RECOVERY_CODE.value(connection, account_id=account_id, sha256=sha256) is not None


SQL_DROP_FACTOR: Final = Statement("""
WITH dropped AS (
    UPDATE logins
       SET totp_secret = NULL, totp_since = NULL, totp_last_step = 0
     WHERE account_id = %(account_id)s
)
DELETE FROM recovery_codes WHERE account_id = %(account_id)s
""")


async def drop_factor(connection: Connection, account_id: AccountId) -> None:
    """Forget an account's second factor and its recovery codes."""
    await SQL_DROP_FACTOR.rows(connection, account_id=account_id)
