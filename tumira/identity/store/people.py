"""People, and the accounts that each belongs to."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg

from tumira.core.ids import AccountId
from tumira.identity.principal import Principal, PrincipalKind
from tumira.identity.roles import MemberRole
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class Member:
    """A person with a role in an account."""

    person_id: UUID
    phone: str
    name: str
    role: MemberRole
    since: datetime
    # When they were last signed in to this account.
    seen_at: datetime | None
    # Since when they have a second factor.
    factor_since: datetime | None

    @property
    def principal(self) -> Principal:
        return Principal(PrincipalKind.CUSTOMER, self.person_id, self.phone)


@dataclass(frozen=True, slots=True)
class Membership:
    """An account that a person belongs to."""

    account_id: AccountId
    business: str
    role: MemberRole


_MEMBER: Final = """
SELECT p.id AS person_id, p.phone, p.name, m.role, m.since,
       (SELECT max(seen_at) FROM sessions s WHERE s.member_of = m.account_id AND s.person_id = p.id)
       AS seen_at, l.totp_since AS factor_since
  FROM members m
  JOIN people p ON p.id = m.person_id
  LEFT JOIN logins l ON l.person_id = p.id
 WHERE m.account_id = %(account_id)s
"""

# More than an account may have.
_LISTED_MAX: Final = 200


def _member(row: asyncpg.Record) -> Member:
    return Member(**{**dict(row), "role": MemberRole(row["role"])})


SQL_LIST: Final = Statement(_MEMBER + f"ORDER BY m.role <> 'owner', m.since, p.id LIMIT {_LISTED_MAX}")


async def list_members(connection: Connection, account_id: AccountId) -> Sequence[Member]:
    """Return the people of an account, owners first."""
    return [_member(row) for row in await SQL_LIST.rows(connection, account_id=account_id)]


SQL_LIST_OWNERS: Final = Statement(
    _MEMBER + f"AND m.role = 'owner' ORDER BY m.since, p.id LIMIT {_LISTED_MAX}"
)


async def list_owners(connection: Connection, account_id: AccountId) -> Sequence[Member]:
    return [_member(row) for row in await SQL_LIST_OWNERS.rows(connection, account_id=account_id)]


SQL_FIND: Final = Statement(_MEMBER + "AND m.person_id = %(person_id)s")


async def find_member(connection: Connection, account_id: AccountId, person_id: UUID) -> Member | None:
    row = await SQL_FIND.row(connection, account_id=account_id, person_id=person_id)
    return None if row is None else _member(row)


# All of them, in one order: of two owners who demote each other, the second finds that it is no owner.
SQL_LOCK: Final = Statement("""
SELECT person_id
  FROM members
 WHERE account_id = %(account_id)s
 ORDER BY person_id
   FOR UPDATE
""")


async def lock_members(connection: Connection, account_id: AccountId) -> None:
    """Let one transaction at a time change who is in an account; read the members after this."""
    await SQL_LOCK.rows(connection, account_id=account_id)


SQL_INSERT: Final = Statement("""
INSERT INTO members (account_id, person_id, role, used_at)
VALUES (%(account_id)s, %(person_id)s, %(role)s, clock_timestamp())
    ON CONFLICT DO NOTHING
RETURNING 1
""")


async def insert_member(
    connection: Connection, account_id: AccountId, person_id: UUID, role: MemberRole
) -> bool:
    """Add a person to an account, which becomes the one they used last; False if they are in it already."""
    added = await SQL_INSERT.value(connection, account_id=account_id, person_id=person_id, role=role)
    return added is not None


SQL_SET_ROLE: Final = Statement("""
UPDATE members SET role = %(role)s WHERE account_id = %(account_id)s AND person_id = %(person_id)s
""")


async def set_role(connection: Connection, account_id: AccountId, person_id: UUID, role: MemberRole) -> None:
    await SQL_SET_ROLE.rows(connection, account_id=account_id, person_id=person_id, role=role)


# The number of an account is an owner's. If it was this person's, it becomes that of the first owner whose
# number is no other account's, so that the person may open another account.
SQL_DELETE: Final = Statement("""
WITH gone AS (
    DELETE FROM members WHERE account_id = %(account_id)s AND person_id = %(person_id)s
), successor AS (
    SELECT p.phone
      FROM members m
      JOIN people p ON p.id = m.person_id
     WHERE m.account_id = %(account_id)s
       AND m.person_id <> %(person_id)s
       AND m.role = 'owner'
       AND NOT EXISTS (SELECT FROM accounts a WHERE a.phone = p.phone)
     ORDER BY m.since, p.id
     LIMIT 1
)
UPDATE accounts a
   SET phone = successor.phone
  FROM successor, people p
 WHERE a.id = %(account_id)s
   AND p.id = %(person_id)s
   AND a.phone = p.phone
""")


async def delete_member(connection: Connection, account_id: AccountId, person_id: UUID) -> None:
    """Remove a person from an account; their login stays, for other accounts."""
    await SQL_DELETE.rows(connection, account_id=account_id, person_id=person_id)


SQL_LIST_ACCOUNTS: Final = Statement(f"""
SELECT a.id, a.business, m.role
  FROM members m
  JOIN accounts a ON a.id = m.account_id
 WHERE m.person_id = %(person_id)s
   AND a.closed_at IS NULL
 ORDER BY a.business, a.id
 LIMIT {_LISTED_MAX}
""")  # noqa: S608 - only constants are put in


async def list_accounts(connection: Connection, person_id: UUID) -> Sequence[Membership]:
    """Return the open accounts of a person."""
    rows = await SQL_LIST_ACCOUNTS.rows(connection, person_id=person_id)
    return [Membership(AccountId(id_), business, MemberRole(role)) for id_, business, role in rows]


SQL_FIND_ACCOUNT_OF: Final = Statement("""
SELECT m.account_id
  FROM people p
  JOIN members m ON m.person_id = p.id
 WHERE p.phone = %(phone)s
 ORDER BY m.since
 LIMIT 1
""")


async def find_account_of(connection: Connection, phone: str) -> AccountId | None:
    """Return the first account that the person of a number belongs to."""
    account_id = await SQL_FIND_ACCOUNT_OF.value(connection, phone=phone)
    return None if account_id is None else AccountId(account_id)


# The name of one who has a login is theirs to change.
SQL_INSERT_PERSON: Final = Statement("""
INSERT INTO people (id, phone, name)
VALUES (%(person_id)s, %(phone)s, %(name)s)
    ON CONFLICT (phone) DO UPDATE SET name = excluded.name
RETURNING id
""")


async def insert_person(connection: Connection, person_id: UUID, phone: str, name: str) -> UUID:
    """Add a person, or name the one of this number, and return their id."""
    found: UUID = await SQL_INSERT_PERSON.value(connection, person_id=person_id, phone=phone, name=name)
    return found


SQL_SET_NAME: Final = Statement("UPDATE people SET name = %(name)s WHERE id = %(person_id)s")


async def set_name(connection: Connection, person_id: UUID, name: str) -> None:
    await SQL_SET_NAME.rows(connection, person_id=person_id, name=name)
