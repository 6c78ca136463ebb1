"""Sends that wait for a second person: list, look, approve or decline; and the rule that asks for it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.accounts import message_settings
from tumira.approvals import manage, store
from tumira.approvals.manage import NotOpenError
from tumira.approvals.store import Approval, ApprovalState
from tumira.core import money
from tumira.core.errors import FieldError, Refusal, ServiceUnavailable, ValidationFailed
from tumira.core.translation import _, mark
from tumira.dashboard.approving import APPROVAL, APPROVALS, DeclineForm, approval_path, send_approved
from tumira.dashboard.drafts import review_draft
from tumira.dashboard.pages.settings import fault_of_password
from tumira.dashboard.refusal_words import say_refusal
from tumira.dashboard.send_later import path_of
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.form_body import read_fields
from tumira.html.forms import Amount, Faults, Form, Secret, TextField, read_path_id
from tumira.html.guards import or_404
from tumira.html.redirect import redirect
from tumira.identity.person_rules import PASSWORD_MAX
from tumira.identity.reauthenticate import PasswordCheck
from tumira.schedules import store as schedules
from tumira.schedules.times import write_start
from tumira.sending import compose
from tumira.uploads import chunks
from tumira.uploads import store as uploads
from tumira.uploads.price import price_rest
from tumira.uploads.store import CHECKED

SHOWN: Final = 50
SAMPLES: Final = 3
_NONE: Final = mark("This send does not wait for approval. They are deleted after 30 days")
_CHANGED: Final = mark(
    "Something has changed since this page was shown, such as a price. Nothing was sent. Look again, then "
    "approve."
)
_BUSY: Final = mark(
    "No answer came in time, so it may not have been sent. Press Approve again. It is sent and charged only "
    "once."
)
STATES: Final = {
    ApprovalState.WAITING: (mark("needs approval"), "unconfirmed"),
    ApprovalState.SENDING: (mark("needs approval"), "unconfirmed"),
    ApprovalState.APPROVED: (mark("approved"), "completed"),
    ApprovalState.DECLINED: (mark("declined"), "failed"),
    ApprovalState.WITHDRAWN: (mark("withdrawn"), "failed"),
    ApprovalState.EXPIRED: (mark("expired"), "failed"),
}
DONE: Final = {
    "rule": mark("Rule saved. It applies to sends from now on."),
    "approved": mark("Approved. The messages are on their way."),
    "declined": mark("Declined. Nothing was sent or charged."),
    "withdrawn": mark("Withdrawn. Nothing was sent or charged."),
}


class ApproveForm(Form):
    terms = TextField()


class RuleForm(Form):
    approval_above = Amount()
    password = Secret(cut=PASSWORD_MAX)


def routes(services: Services) -> Sequence[Route]:
    one = APPROVALS + "/{id}"
    return [
        private(services, APPROVALS, show_all),
        private(services, APPROVALS, change_rule, "POST"),
        private(services, one, show),
        private(services, one + "/approve", approve, "POST"),
        private(services, one + "/decline", decline, "POST"),
        private(services, one + "/withdraw", withdraw, "POST"),
    ]


async def show_all(session: CustomerSession) -> Response:
    return await _list_page(session, {}, done=DONE.get(session.request.query_params.get("done", "")))


async def _list_page(
    session: CustomerSession,
    faults: Faults,
    status: int = 200,
    *,
    done: str | None = None,
    above: str | None = None,
) -> Response:
    async with session.database.connection() as connection:
        found = await store.list_approvals(connection, session.account_id, SHOWN)
        rule = await message_settings.find_approval_above(connection, session.account_id)
        later = await schedules.list_unapproved(connection, session.account_id)
    return session.page(
        "approvals.html.jinja",
        status,
        approvals=[(approval_path(one.id), one) for one in found],
        scheduled=[(path_of(one.id), write_start(one.start_at), one) for one in later],
        states=STATES,
        rule=rule,
        above=above if above is not None else "" if rule is None else f"{rule.normalize():f}",
        faults=faults,
        done=done,
    )


async def change_rule(session: CustomerSession) -> Response:
    form = await RuleForm.read(session.request)
    above = form.approval_above.typed
    if form.faults:
        return await _list_page(session, form.faults, 422, above=above)
    try:
        check = await manage.change_rule(
            session.database, session.requester, form.approval_above.data, form.password.data
        )
    except FieldError as error:
        return await _list_page(session, {error.field: str(error)}, 422, above=above)
    if check is not PasswordCheck.RIGHT:
        fault, status = fault_of_password(check)
        return await _list_page(session, {"password": fault}, status, above=above)
    return redirect(f"{APPROVALS}?done=rule")


async def show(session: CustomerSession) -> Response:
    return await _page(session, await _find(session), {})


async def _find(session: CustomerSession) -> Approval:
    approval_id = read_path_id(session.request, APPROVAL, _(_NONE))
    async with session.database.connection() as connection:
        found = await store.find(connection, session.account_id, approval_id)
    return or_404(found, _(_NONE))


async def _page(session: CustomerSession, approval: Approval, faults: Faults, status: int = 200) -> Response:
    done = DONE.get(session.request.query_params.get("done", ""))
    values = await _offer(session, approval) if approval.is_open else _NO_OFFER
    return session.page(
        "approval.html.jinja",
        status,
        approval=approval,
        path=approval_path(approval.id),
        state=STATES[approval.state],
        is_own=approval.asked_by == session.customer.person_id,
        faults=faults,
        done=done,
        **values,
    )


_NO_OFFER: Final[Mapping[str, Any]] = {
    "cost": None,
    "terms": None,
    "count": 0,
    "numbers": [],
    "problems": [],
    "samples": [],
    "message": None,
}


async def _offer(session: CustomerSession, approval: Approval) -> Mapping[str, Any]:
    """Return what would be sent now, and what it costs."""
    if approval.upload_id is not None:
        return await _file_offer(session, approval)
    if approval.draft is None:
        return _NO_OFFER
    review = await review_draft(session, approval.draft)
    quote = review.quote
    return {
        **_NO_OFFER,
        "cost": None if quote is None else quote.total_cost,
        "terms": None if quote is None or review.refusals else compose.write_terms(quote),
        "count": 0 if quote is None else len(quote.numbers),
        "numbers": [] if quote is None else quote.numbers,
        "problems": [say_refusal(one) for one in review.refusals],
        "message": approval.draft.message,
    }


async def _file_offer(session: CustomerSession, approval: Approval) -> Mapping[str, Any]:
    assert approval.upload_id is not None
    async with session.database.connection() as connection:
        upload = await uploads.find(connection, session.account_id, approval.upload_id)
        if upload is None or upload.state != CHECKED:
            return {**_NO_OFFER, "problems": [_("The file is no longer here. Upload it again.")]}
        offer = await price_rest(connection, upload)
        first = await chunks.find_next_good(connection, upload.id, 0)
        samples = await chunks.list_good(connection, upload.id, first or 0, SAMPLES)
    return {
        **_NO_OFFER,
        "cost": offer.total_cost,
        "terms": None if offer.unreachable else money.write(offer.total_cost),
        "count": offer.count,
        "samples": [(one.recipient, upload.message if one.body is None else one.body) for one in samples],
        "problems": [_("We can no longer send to some of these numbers. Check the file again.")]
        if offer.unreachable
        else [],
    }


async def approve(session: CustomerSession) -> Response:
    """Send what the second person saw, once."""
    terms = (await ApproveForm.read(session.request)).terms.data
    approval = await _find(session)

    async def send(locked: Approval) -> Any:
        return await send_approved(session, locked, terms)

    try:
        refused = await manage.approve(session.database, session.requester, approval.id, send)
    except NotOpenError:
        raise HTTPException(404, _(_NONE)) from None
    if refused is not None:
        return await _page(session, await _find(session), {"": _say(refused)}, refused.status)
    return redirect(f"{approval_path(approval.id)}?done=approved")


def _say(refusal: Refusal) -> str:
    match refusal:
        case ValidationFailed():
            return _(_CHANGED)
        case ServiceUnavailable():
            return _(_BUSY)
    return say_refusal(refusal)


async def decline(session: CustomerSession) -> Response:
    form = await DeclineForm.read(session.request)
    approval = await _find(session)
    if form.faults:
        return await _page(session, approval, form.faults, 422)
    try:
        await manage.decline(session.database, session.requester, approval.id, form.note.data)
    except NotOpenError:
        raise HTTPException(404, _(_NONE)) from None
    return redirect(f"{approval_path(approval.id)}?done=declined")


async def withdraw(session: CustomerSession) -> Response:
    await read_fields(session.request)
    approval = await _find(session)
    try:
        await manage.withdraw(session.database, session.requester, approval.id)
    except NotOpenError:
        raise HTTPException(404, _(_NONE)) from None
    return redirect(f"{APPROVALS}?done=withdrawn")
