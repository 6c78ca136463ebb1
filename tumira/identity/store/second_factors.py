"""Second factors and recovery codes, of people and of operators.

Both keep them alike: the secret and the last step used beside the password, and hashes of the recovery codes
in a table of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

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

    def __init__(
        self, *, logins: str, key: str, since: str, on: str, off: str, codes: str, owner: str
    ) -> None:
        self.find = Statement(f"""
SELECT totp_secret, {since}, totp_last_step, (SELECT count(*) FROM {codes} WHERE {owner} = %(id)s)
  FROM {logins}
 WHERE {key} = %(id)s
   AND totp_secret IS NOT NULL
""")  # noqa: S608 - only constants are put in
        # A factor in use stays: the device that has its secret would make codes in vain.
        self.begin = Statement(f"""
UPDATE {logins}
   SET totp_secret = %(secret)s, totp_last_step = 0
 WHERE {key} = %(id)s
   AND {since} IS NULL
""")  # noqa: S608 - only constants are put in
        self.activate = Statement(f"""
WITH codes AS (
    INSERT INTO {codes} ({owner}, sha256) SELECT %(id)s, unnest(%(sha256s)s::bytea[])
)
UPDATE {logins} SET {on}totp_last_step = %(step)s WHERE {key} = %(id)s
""")  # noqa: S608 - only constants are put in
        self.take_step = Statement(f"""
UPDATE {logins}
   SET totp_last_step = %(step)s
 WHERE {key} = %(id)s
   AND totp_last_step < %(step)s
RETURNING 1
""")  # noqa: S608 - only constants are put in
        self.take_code = Statement(
            f"DELETE FROM {codes} WHERE {owner} = %(id)s AND sha256 = %(sha256)s RETURNING 1"  # noqa: S608
        )
        self.delete = Statement(f"""
WITH deleted AS (
    UPDATE {logins} SET {off}totp_secret = NULL, totp_last_step = 0 WHERE {key} = %(id)s
)
DELETE FROM {codes} WHERE {owner} = %(id)s
""")  # noqa: S608 - only constants are put in


_STATEMENTS: Final = {
    PrincipalKind.CUSTOMER: _Statements(
        logins="logins",
        key="person_id",
        since="totp_since",
        on="totp_since = clock_timestamp(), ",
        off="totp_since = NULL, ",
        codes="recovery_codes",
        owner="person_id",
    ),
    # An operator's factor is in use once the one-time password was replaced.
    PrincipalKind.OPERATOR: _Statements(
        logins="operators",
        key="id",
        since="CASE WHEN one_time_until IS NULL THEN created_at END",
        on="",
        off="",
        codes="operator_recovery_codes",
        owner="operator_id",
    ),
}


async def find(connection: Connection, principal: Principal) -> Factor | None:
    """Return a factor that is in use or being set up."""
    row = await _STATEMENTS[principal.kind].find.row(connection, id=principal.id)
    return None if row is None else Factor(*row)


async def begin(connection: Connection, principal: Principal, secret: bytes) -> None:
    """Keep the secret of a factor that is not in use yet."""
    await _STATEMENTS[principal.kind].begin.rows(connection, id=principal.id, secret=secret)


async def activate(connection: Connection, principal: Principal, step: int, sha256s: Sequence[bytes]) -> None:
    """Record the step of the first code, and the hashes of the recovery codes."""
    await _STATEMENTS[principal.kind].activate.rows(connection, id=principal.id, step=step, sha256s=sha256s)


async def take_step(connection: Connection, principal: Principal, step: int) -> bool:
    """Use up the code of a step and of all before it; False if it was used before."""
    taken = await _STATEMENTS[principal.kind].take_step.value(connection, id=principal.id, step=step)
    return taken is not None


async def take_recovery_code(connection: Connection, principal: Principal, sha256: bytes) -> bool:
    """Use up a recovery code; False if there is no such code."""
    taken = await _STATEMENTS[principal.kind].take_code.value(connection, id=principal.id, sha256=sha256)
    return taken is not None


async def delete(connection: Connection, principal: Principal) -> None:
    """Delete a second factor with its recovery codes."""
    await _STATEMENTS[principal.kind].delete.rows(connection, id=principal.id)
