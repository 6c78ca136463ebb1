"""The rule that a large send needs a second person, and the decisions about such sends.

A send is asked for by one person and approved by another. The approval is recorded before the send goes the
usual way, with a token that makes it happen once; a process that dies in between leaves it to be approved
again. Calls of the API need no approval: a key is its developer's responsibility (decision 0065).
"""

from collections.abc import Awaitable, Callable
from decimal import Decimal
from uuid import UUID

from tumira import audit_log
from tumira.accounts import message_settings
from tumira.approvals import store
from tumira.approvals.store import Approval, ApprovalState
from tumira.core import money
from tumira.core.errors import FieldError, Refusal
from tumira.core.ids import BatchId, UploadId, new_id
from tumira.core.translation import _
from tumira.identity import notify_owner
from tumira.identity.members import lock_as_owner
from tumira.identity.reauthenticate import PasswordCheck, Requester, confirm_password
from tumira.identity.roles import PERMISSIONS, Permission
from tumira.identity.store import people
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.sending.compose import Draft


class NotOpenError(Exception):
    """The approval was decided, withdrawn or has expired, or there is none."""


async def change_rule(
    database: Database, requester: Requester, above: Decimal | None, password: str
) -> PasswordCheck:
    """Let sends above an amount need an approval, or none; raises FieldError where nobody could approve."""
    check = await confirm_password(database, requester, password)
    if check is not PasswordCheck.RIGHT:
        return check
    async with database.transaction() as connection:
        await lock_as_owner(connection, requester)
        members = await people.list_members(connection, requester.account_id)
        senders = [one for one in members if Permission.SEND in PERMISSIONS[one.role]]
        if above is not None and len(senders) == 1:
            raise FieldError(
                "approval_above", _("Invite a second owner or sender first: nobody else could approve.")
            )
        await message_settings.set_approval_above(connection, requester.account_id, above)
        detail = "off" if above is None else f"above {money.write(above)} USD"
        await notify_owner.note_owners(
            connection, requester.account_id, requester.actor, "approval rule changed", detail
        )
    return check


async def needs_approval(database: Database, requester: Requester, cost: Decimal) -> bool:
    """Tell whether a send of the dashboard needs a second person."""
    async with database.connection() as connection:
        above = await message_settings.find_approval_above(connection, requester.account_id)
    return above is not None and cost > above


async def ask(
    database: Database,
    requester: Requester,
    *,
    token: str,
    count: int,
    cost: Decimal,
    draft: Draft | None = None,
    upload_id: UploadId | None = None,
) -> UUID:
    """Ask for an approval, once for each send, and return its id."""
    async with database.transaction() as connection:
        now = await clock.read_now(connection)
        approval_id, is_new = await store.insert(
            connection,
            new_id(int(now.timestamp() * 1000)),
            requester.account_id,
            token=token,
            draft=draft,
            upload_id=upload_id,
            count=count,
            cost=cost,
            asked_by=requester.principal.id,
        )
        if is_new:
            await _record(connection, requester, "approval asked for", count, cost)
    return approval_id


async def approve(
    database: Database,
    requester: Requester,
    approval_id: UUID,
    send: Callable[[Approval], Awaitable[BatchId | Refusal | None]],
) -> Refusal | None:
    """Approve a send and let it happen; return why it was refused, after which it waits again.

    `send` does so once, however often it is called for the same approval.
    """
    async with database.transaction() as connection:
        approval = await _lock_open(connection, requester, approval_id)
        await store.mark(connection, approval_id, ApprovalState.SENDING, decided_by=requester.principal.id)
    sent = await send(approval)
    async with database.transaction() as connection:
        approval = await store.lock(connection, requester.account_id, approval_id) or approval
        if approval.state is ApprovalState.APPROVED:
            # Another person approved it at the same time, and got the same batch.
            return None
        if isinstance(sent, Refusal):
            if approval.state is ApprovalState.SENDING:
                await store.mark(connection, approval_id, ApprovalState.WAITING)
            return sent
        await store.mark(
            connection,
            approval_id,
            ApprovalState.APPROVED,
            decided_by=requester.principal.id,
            batch_id=sent,
        )
        await _record(connection, requester, "send approved", approval.count, approval.cost)
    return None


async def decline(database: Database, requester: Requester, approval_id: UUID, note: str) -> None:
    async with database.transaction() as connection:
        approval = await _lock_open(connection, requester, approval_id)
        if approval.state is not ApprovalState.WAITING:
            raise NotOpenError
        await store.mark(
            connection, approval_id, ApprovalState.DECLINED, decided_by=requester.principal.id, note=note
        )
        await _record(connection, requester, "send declined", approval.count, approval.cost)


async def withdraw(database: Database, requester: Requester, approval_id: UUID) -> None:
    """Take a send back that its person asked for."""
    async with database.transaction() as connection:
        approval = await store.lock(connection, requester.account_id, approval_id)
        if (
            approval is None
            or approval.asked_by != requester.principal.id
            or approval.state is not ApprovalState.WAITING
        ):
            raise NotOpenError
        await store.mark(connection, approval_id, ApprovalState.WITHDRAWN)
        await _record(connection, requester, "send withdrawn", approval.count, approval.cost)


async def _lock_open(connection: Connection, requester: Requester, approval_id: UUID) -> Approval:
    """Lock an approval that this person may decide: not their own, and not over."""
    approval = await store.lock(connection, requester.account_id, approval_id)
    if approval is None or not approval.is_open or approval.asked_by == requester.principal.id:
        raise NotOpenError
    return approval


async def _record(connection: Connection, requester: Requester, what: str, count: int, cost: Decimal) -> None:
    detail = f"{count} messages, {money.write(cost)} USD"
    await audit_log.record(connection, requester.account_id, requester.actor, what, detail)
