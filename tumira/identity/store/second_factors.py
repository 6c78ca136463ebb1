"""Second factors and recovery codes, of accounts and of operators.

Both keep them alike: the secret and the last step used beside the password, and hashes of the recovery codes
in a table of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tumira.core.ids import AccountId
from tumira.identity.principal import Principal, PrincipalKind
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class Factor:
    """A second factor; `since` is None until its owner has entered a first code."""

    secret: bytes = field(repr=False)
    since: datetime | None
    last_step: int
    recovery_codes: int


class _Statements:
    """The statements for one kind of principal, which differ by the names of tables and columns."""

    def __init__(self, *, logins: str, key: str, since: str, codes: str, owner: str) -> None:
        self.lock = Statement(f"SELECT FROM {logins} WHERE {key} = %(id)s FOR NO KEY UPDATE")
        self.find = Statement(f"""
SELECT totp_secret, {since}, totp_last_step, (SELECT count(*) FROM {codes} WHERE {owner} = %(id)s)
  FROM {logins}
 WHERE {key} = %(id)s
   AND totp_secret IS NOT NULL
""")  # noqa: S608 - only constants are put in
        self.take_step = Statement(f"""
UPDATE {logins}
   SET totp_last_step = %(step)s
 WHERE {key} = %(id)s
   AND totp_last_step < %(step)s
RETURNING 1
""")  # noqa: S608 - only constants are put in
        self.insert_codes = Statement(
            f"INSERT INTO {codes} ({owner}, sha256) SELECT %(id)s, unnest(%(sha256s)s::bytea[])"
        )
        self.take_code = Statement(
            f"DELETE FROM {codes} WHERE {owner} = %(id)s AND sha256 = %(sha256)s RETURNING 1"  # noqa: S608
        )
        self.delete_codes = Statement(f"DELETE FROM {codes} WHERE {owner} = %(id)s")  # noqa: S608 - constants


_STATEMENTS: Final = {
    PrincipalKind.ACCOUNT: _Statements(
        logins="logins", key="account_id", since="totp_since", codes="recovery_codes", owner="account_id"
    ),
    # An operator's factor is in use once the one-time password was replaced.
    PrincipalKind.OPERATOR: _Statements(
        logins="operators",
        key="id",
        since="CASE WHEN one_time_until IS NULL THEN created_at END",
        codes="operator_recovery_codes",
        owner="operator_id",
    ),
}


async def lock(connection: Connection, principal: Principal) -> None:
    """Lock the password and the factor until the commit."""
    await _STATEMENTS[principal.kind].lock.rows(connection, id=principal.id)


async def find(connection: Connection, principal: Principal) -> Factor | None:
    """Return a factor that is in use or being set up."""
    row = await _STATEMENTS[principal.kind].find.row(connection, id=principal.id)
    return None if row is None else Factor(*row)


async def take_step(connection: Connection, principal: Principal, step: int) -> bool:
    """Use up the code of a step and of all before it; False if it was used before."""
    return (
        await _STATEMENTS[principal.kind].take_step.value(connection, id=principal.id, step=step) is not None
    )


async def take_recovery_code(connection: Connection, principal: Principal, sha256: bytes) -> bool:
    """Use up a recovery code; False if there is no such code."""
    taken = await _STATEMENTS[principal.kind].take_code.value(connection, id=principal.id, sha256=sha256)
    return taken is not None


async def insert_recovery_codes(
    connection: Connection, principal: Principal, sha256s: Sequence[bytes]
) -> None:
    await _STATEMENTS[principal.kind].insert_codes.rows(connection, id=principal.id, sha256s=sha256s)


async def delete_recovery_codes(connection: Connection, principal: Principal) -> None:
    await _STATEMENTS[principal.kind].delete_codes.rows(connection, id=principal.id)


# A factor in use stays: the device that has its secret would make codes in vain.
SQL_BEGIN: Final = Statement("""
UPDATE logins
   SET totp_secret = %(secret)s, totp_last_step = 0
 WHERE account_id = %(account_id)s
   AND totp_since IS NULL
""")


async def begin(connection: Connection, account_id: AccountId, secret: bytes) -> None:
    """Keep the secret of an account's factor that is not in use yet."""
    await SQL_BEGIN.rows(connection, account_id=account_id, secret=secret)


SQL_ACTIVATE: Final = Statement("""
UPDATE logins
   SET totp_since = clock_timestamp(), totp_last_step = %(step)s
 WHERE account_id = %(account_id)s
""")


async def activate(connection: Connection, account_id: AccountId, step: int) -> None:
    await SQL_ACTIVATE.rows(connection, account_id=account_id, step=step)


SQL_DELETE: Final = Statement("""
WITH deleted AS (
    UPDATE logins
       SET totp_secret = NULL, totp_since = NULL, totp_last_step = 0
     WHERE account_id = %(account_id)s
)
DELETE FROM recovery_codes WHERE account_id = %(account_id)s
""")


async def delete(connection: Connection, account_id: AccountId) -> None:
    """Delete an account's second factor with its recovery codes."""
    await SQL_DELETE.rows(connection, account_id=account_id)
