"""Changes of who is in an account: roles, removal and leaving.

An account always has an owner, also when two owners demote each other at the same time: every change locks
all members first, and reads who its actor is under that lock.
"""

from uuid import UUID

from tumira.core.errors import FieldError
from tumira.core.ids import AccountId
from tumira.core.translation import _
from tumira.identity import notify_owner
from tumira.identity.reauthenticate import PasswordCheck, Requester, confirm_password
from tumira.identity.roles import MemberRole
from tumira.identity.store import invites, people, sessions
from tumira.identity.store.people import Member
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database


class NoMemberError(Exception):
    """The person is not in the account."""


async def change_role(
    database: Database, requester: Requester, person_id: UUID, role: MemberRole, password: str
) -> PasswordCheck:
    """Give a person of the account another role, from their next request on."""
    check = await confirm_password(database, requester, password)
    if check is not PasswordCheck.RIGHT:
        return check
    async with database.transaction() as connection:
        await lock_as_owner(connection, requester)
        member = await _get(connection, requester.account_id, person_id)
        if member.role is role:
            return check
        await _take_role(connection, requester.account_id, member)
        await people.set_role(connection, requester.account_id, person_id, role)
        detail = f"{member.name}: {member.role} to {role}"
        await notify_owner.note_owners(
            connection, requester.account_id, requester.actor, "role changed", detail
        )
    return check


async def remove(database: Database, requester: Requester, person_id: UUID, password: str) -> PasswordCheck:
    """Remove a person from the account; their sessions in it end at once."""
    check = await confirm_password(database, requester, password)
    if check is not PasswordCheck.RIGHT:
        return check
    async with database.transaction() as connection:
        await lock_as_owner(connection, requester)
        await _remove(connection, requester, person_id, "person removed")
    return check


async def leave(database: Database, requester: Requester, password: str) -> PasswordCheck:
    """Leave the account; the last owner cannot."""
    check = await confirm_password(database, requester, password)
    if check is not PasswordCheck.RIGHT:
        return check
    async with database.transaction() as connection:
        await people.lock_members(connection, requester.account_id)
        await _remove(connection, requester, requester.principal.id, "person left")
    return check


async def lock_as_owner(connection: Connection, requester: Requester) -> None:
    """Lock the members of an account for a change by an owner; raise for one who is an owner no longer."""
    await people.lock_members(connection, requester.account_id)
    actor = await people.find_member(connection, requester.account_id, requester.principal.id)
    if actor is None or actor.role is not MemberRole.OWNER:
        raise FieldError("", _("You are no longer an owner of this account. Nothing was changed."))


async def _get(connection: Connection, account_id: AccountId, person_id: UUID) -> Member:
    member = await people.find_member(connection, account_id, person_id)
    if member is None:
        raise NoMemberError
    return member


async def _remove(connection: Connection, requester: Requester, person_id: UUID, what: str) -> None:
    account_id = requester.account_id
    member = await _get(connection, account_id, person_id)
    await _take_role(connection, account_id, member)
    await people.delete_member(connection, account_id, person_id)
    await sessions.delete_in_account(connection, account_id, person_id)
    detail = f"{member.name}, {member.role}"
    await notify_owner.note_owners(connection, account_id, requester.actor, what, detail)


async def _take_role(connection: Connection, account_id: AccountId, member: Member) -> None:
    """Check that the account keeps an owner, and revoke what the person has invited."""
    if member.role is MemberRole.OWNER and len(await people.list_owners(connection, account_id)) == 1:
        raise FieldError("", _("An account needs an owner. Make another person an owner first."))
    await invites.revoke_by(connection, account_id, member.person_id)


async def switch_account(
    database: Database, person_id: UUID, session_id: UUID, account_id: AccountId
) -> bool:
    """Move a session to another account of its person; False if they are not in that account."""
    async with database.transaction() as connection:
        return await sessions.switch(connection, person_id, session_id, account_id)
