"""Sends of the dashboard that need a second person: asking for it, and sending what was approved."""

from decimal import Decimal
from typing import Final
from uuid import UUID

from starlette.responses import Response

from tumira.approvals import manage
from tumira.approvals.store import Approval, ApprovalState
from tumira.core import money
from tumira.core.errors import Refusal, ValidationFailed
from tumira.core.ids import BATCH, BatchId, UploadId, read_id, write_id
from tumira.dashboard.session import CustomerSession
from tumira.html.forms import Form, NoteField
from tumira.html.redirect import redirect
from tumira.sending import compose
from tumira.sending.compose import Draft, Review
from tumira.uploads import send
from tumira.uploads.send import Begun

APPROVALS: Final = "/dashboard/approvals"
APPROVAL: Final = "apr_"


class DeclineForm(Form):
    note = NoteField()


def approval_path(approval_id: UUID) -> str:
    return f"{APPROVALS}/{write_id(APPROVAL, approval_id)}"


async def ask_for_message(
    session: CustomerSession, token: str, draft: Draft, review: Review
) -> Response | None:
    """Ask for the approval of a composed message, if it needs one, and lead to its page."""
    assert review.quote is not None
    cost = review.quote.total_cost
    if not await manage.needs_approval(session.database, session.requester, cost):
        return None
    count = len(review.quote.numbers)
    approval_id = await manage.ask(
        session.database, session.requester, token=token, count=count, cost=cost, draft=draft
    )
    return redirect(approval_path(approval_id))


async def ask_for_file(
    session: CustomerSession, upload_id: UploadId, count: int, cost: Decimal
) -> Response | None:
    """Ask for the approval of a checked file, if it needs one, and lead to its page."""
    if not await manage.needs_approval(session.database, session.requester, cost):
        return None
    token = f"file:{upload_id}"
    approval_id = await manage.ask(
        session.database, session.requester, token=token, count=count, cost=cost, upload_id=upload_id
    )
    return redirect(approval_path(approval_id))


async def send_approved(session: CustomerSession, approval: Approval, terms: str) -> BatchId | Refusal | None:
    """Send what was approved, once, if it costs what the second person saw."""
    if approval.upload_id is not None:
        return await _send_file(session, approval.upload_id, terms)
    assert approval.draft is not None
    return await _send_message(session, approval, approval.draft, terms)


async def _send_message(
    session: CustomerSession, approval: Approval, draft: Draft, terms: str
) -> BatchId | Refusal:
    batcher, account_id, token = session.services.batcher, session.account_id, approval.token
    decided: str | Refusal = ValidationFailed()
    if approval.state is ApprovalState.SENDING:
        # It may have been sent before a process died.
        decided = await compose.find_sent(batcher, account_id, token, draft)
    if not isinstance(decided, str):
        review = await compose.examine(session.database, account_id, draft)
        if review.refusals or review.quote is None:
            return review.refusals[0] if review.refusals else ValidationFailed()
        if terms != compose.write_terms(review.quote):
            return ValidationFailed()
        decided = await compose.send(batcher, account_id, token, draft, review)
    if isinstance(decided, Refusal):
        return decided
    batch_id = read_id(BATCH, decided)
    assert batch_id is not None
    return BatchId(batch_id)


async def _send_file(session: CustomerSession, upload_id: UploadId, terms: str) -> Refusal | None:
    agreed = money.parse(terms)
    if agreed is None:
        return ValidationFailed()
    decided = await send.confirm(session.database, session.account_id, upload_id, agreed)
    if isinstance(decided, Begun):
        return None
    return decided if isinstance(decided, Refusal) else ValidationFailed()
