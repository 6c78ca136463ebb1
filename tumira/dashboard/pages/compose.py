"""Compose: write a message, see its price, confirm and send; or send a refused text for review."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import structs
from starlette.responses import Response
from starlette.routing import Route

from tumira.carriers.manage import list_senders
from tumira.content.review import REVIEW_NOTE_MAX
from tumira.core.errors import (
    ContentRejected,
    FieldCode,
    FieldError,
    IdempotencyConflict,
    IdempotencyInProgress,
    InternalError,
    Refusal,
    ServiceUnavailable,
    TooManyRecipients,
    TooManySegments,
    ValidationFailed,
)
from tumira.core.ids import ScheduleId
from tumira.core.translation import _, mark
from tumira.dashboard.approving import ask_for_message
from tumira.dashboard.check_upload import start_check
from tumira.dashboard.draft_view import say
from tumira.dashboard.drafts import describe_draft, examine_pattern, review_draft, send_for_review
from tumira.dashboard.pages.contacts.choose import ContactChoices, find_message, keep_file, list_choices
from tumira.dashboard.send_later import NOW, Later, LaterForm, describe_later, find_held, path_of, write_typed
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.form_body import read_fields
from tumira.html.forms import FormId, FormRefused, TextField, new_form_id
from tumira.html.redirect import redirect
from tumira.pricing import segments
from tumira.pricing.quote import REFERENCE_MAX
from tumira.pricing.segments import SEGMENTS_MAX
from tumira.schedules import manage
from tumira.schedules.manage import NotWaiting, Scheduled
from tumira.sending import compose
from tumira.sending.compose import Draft, Review
from tumira.topups.states import TOP_UP_MIN
from tumira.uploads.places import MessageError, read_places

COMPOSE: Final = "/dashboard/compose"
CHECK: Final = COMPOSE + "/check"
REVIEW: Final = COMPOSE + "/review"
# The page for files has a form of another kind.
UPLOAD_REVIEW: Final = "/dashboard/upload/review"
TEXT_REVIEW: Final = "/dashboard/texts/review"
CONFIRM: Final = COMPOSE + "/confirm"
FORM: Final = "frm_"

_FAULTS: Final = {
    ("to", FieldCode.EMPTY): ("recipients", mark("Enter at least one phone number.")),
    ("to", FieldCode.INVALID_VALUE): (
        "recipients",
        mark("We cannot send to any of these numbers. The reasons are below."),
    ),
    ("body", FieldCode.EMPTY): ("message", mark("Enter a message.")),
    ("reference", FieldCode.TOO_LONG): (
        "reference",
        mark("Enter a reference of at most {most} characters."),
    ),
}
# Where to ask for the review of a message with places, by the kind of its form.
_PATTERN_REVIEWS: Final = {"upload": UPLOAD_REVIEW, "text": TEXT_REVIEW}
# Whether it was sent is not known, but the same token never sends twice.
_UNANSWERED: Final = mark(
    "No answer came in time, so the message may not have been sent. Press Confirm again. It is sent and "
    "charged only once, however often you press."
)
_CHANGED: Final = mark(
    "Something has changed since you pressed Send, such as a price. Nothing was sent. Check the message "
    "again, then confirm."
)
_USED: Final = mark(
    "This page has already sent another message. Nothing was sent now. Confirm to send this one too."
)


class DraftForm(LaterForm):
    recipients = TextField(clean=str)
    message = TextField(clean=str)
    reference = TextField()
    edit = TextField()
    kind = TextField()
    # A saved text to insert, and the part of long lists that is sent.
    insert = TextField()
    text = TextField()
    part = TextField()

    @property
    def draft(self) -> Draft:
        return Draft(self.recipients.data, self.message.data, self.reference.data)


class DraftConfirmForm(DraftForm):
    token = FormId(FORM)
    terms = TextField()


class DraftReviewForm(DraftForm):
    note = TextField(cut=REVIEW_NOTE_MAX)


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, COMPOSE, show_form),
        private(services, COMPOSE, look_over, "POST"),
        private(services, CONFIRM, begin_again),
        private(services, CONFIRM, confirm, "POST"),
        private(services, CHECK, check, "POST"),
        private(services, REVIEW, begin_again),
        private(services, REVIEW, ask_review, "POST"),
    ]


async def show_form(session: CustomerSession) -> Response:
    """Show the form, empty or with a saved text and a list."""
    query = session.request.query_params
    message = await find_message(session, query.get("text", "")) or ""
    choices = await list_choices(session, query.getlist("list"))
    return await show_draft(session, Draft("", message, ""), choices=choices)


async def begin_again(_session: CustomerSession) -> Response:
    """Lead who comes without a message, after signing in again perhaps, to the form."""
    return redirect(COMPOSE)


async def show_draft(
    session: CustomerSession,
    draft: Draft,
    faults: Mapping[str, str] | None = None,
    status: int = 200,
    *,
    choices: ContactChoices | None = None,
    later: Later = NOW,
) -> Response:
    """Show the form with a draft that was written before."""
    review = await _examine(session, draft, choices)
    return await _form(session, draft, review, faults or {}, status, choices=choices, later=later)


async def _examine(session: CustomerSession, draft: Draft, choices: ContactChoices | None) -> Review:
    """Collect what is wrong with a draft itself; one to lists has places."""
    if choices is None or not choices.chosen:
        return await compose.examine(session.database, session.account_id, draft)
    return await examine_pattern(session, draft.message)


async def look_over(session: CustomerSession) -> Response:
    """Say what is wrong with a message, or ask for confirmation; or show it again to who went back."""
    body = await read_fields(session.request)
    form, chosen = DraftForm.parse(body), body.getlist("list")
    draft = form.draft
    later = form.later
    if form.insert.data:
        message = await find_message(session, form.text.data)
        draft = draft if message is None else structs.replace(draft, message=message)
        choices = await list_choices(session, chosen, form.part.data)
        return await show_draft(session, draft, choices=choices, later=later)
    if form.edit.data:
        return await show_draft(session, draft, later=later)
    if chosen:
        return await _check_lists(session, form, chosen)
    held = await find_held(session, later.schedule_id)
    review = await review_draft(session, draft, is_later=form.is_later, held=held)
    faults = form.find_faults(session.database.clock.now())
    if review.refusals or faults:
        return await _refused(session, draft, review, later, faults)
    return await _confirmation(session, draft, review, new_form_id(FORM), later=later)


async def _check_lists(session: CustomerSession, form: DraftForm, chosen: Sequence[str]) -> Response:
    """Make a file of lists and have it checked: its page shows who gets what, and asks for confirmation."""
    draft, later = form.draft, form.later
    choices = await list_choices(session, chosen, form.part.data)
    try:
        start_at = form.find_start(session.database.clock.now())
        kept = await keep_file(session, draft, choices, start_at, later.schedule_id)
        return await start_check(session, *kept)
    except FieldError as error:
        faults, status = {error.field: str(error)}, ValidationFailed.status
    except FormRefused as refused:
        faults = {"lists" if name == "file" else name: said for name, said in refused.faults.items()}
        status = refused.status
    return await show_draft(session, draft, faults, status, choices=choices, later=later)


async def confirm(session: CustomerSession) -> Response:
    """Send what was shown, once, if it is still so."""
    form = await DraftConfirmForm.read(session.request)
    draft, form_id = form.draft, form.token.data
    batcher, account_id = session.services.batcher, session.account_id
    review = await compose.examine(session.database, account_id, draft)
    agreed = (
        not review.refusals
        and review.quote is not None
        and form.terms.data == compose.write_terms(review.quote)
    )
    if form.is_later:
        return await _schedule(session, form, review, is_agreed=agreed)
    if agreed and form_id is not None:
        waiting = await ask_for_message(session, str(form_id), draft, review)
        if waiting is not None:
            return waiting
    decided: str | Refusal = ValidationFailed()
    if form_id is not None:
        # What is not as it was shown may be so because it was sent already, by the first of two presses.
        decided = await (
            compose.send(batcher, account_id, str(form_id), draft, review, session.actor)
            if agreed
            else compose.find_sent(batcher, account_id, str(form_id), draft)
        )
    if isinstance(decided, str):
        return redirect(f"/dashboard/batches/{decided}")
    return await _not_sent(session, draft, review, form.token.typed, decided)


async def _schedule(
    session: CustomerSession, form: DraftConfirmForm, review: Review, *, is_agreed: bool
) -> Response:
    """Schedule what was shown, once, or change what was scheduled, if it is still so."""
    draft, later, form_id = form.draft, form.later, form.token.data
    decided: Scheduled | NotWaiting | Refusal = ValidationFailed()
    # The id of the form is that of the schedule, so a form that is posted twice makes one.
    schedule_id = later.schedule_id or (None if form_id is None else ScheduleId(form_id))
    try:
        if is_agreed and schedule_id is not None:
            start_at = form.read_start(session.database.clock.now())
            act = manage.schedule_message if later.schedule_id is None else manage.change_message
            decided = await act(
                session.database, session.account_id, schedule_id, draft, review, start_at, session.actor
            )
    except FieldError as error:
        return await _refused(session, draft, review, later, {error.field: str(error)})
    match decided:
        case Scheduled():
            return redirect(f"{path_of(decided.id)}?done=scheduled")
        case NotWaiting():
            assert schedule_id is not None
            return redirect(path_of(schedule_id))
    return await _not_sent(session, draft, review, form.token.typed, decided, later)


async def _not_sent(
    session: CustomerSession, draft: Draft, review: Review, token: str, refusal: Refusal, later: Later = NOW
) -> Response:
    if review.refusals or review.quote is None:
        return await _refused(session, draft, review, later)

    async def ask_again(token: str, status: int, notice: str) -> Response:
        return await _confirmation(session, draft, review, token, status, notice, later=later)

    match refusal:
        case ServiceUnavailable() | IdempotencyInProgress():
            return await ask_again(token, 503, _(_UNANSWERED))
        case InternalError():
            return await ask_again(token, 500, refusal.message)
        case IdempotencyConflict():
            return await ask_again(new_form_id(FORM), 409, _(_USED))
        case ValidationFailed():
            return await ask_again(new_form_id(FORM), 409, _(_CHANGED))
        case _:
            return await _refused(session, draft, structs.replace(review, refusals=[refusal]), later)


async def check(session: CustomerSession) -> Response:
    """Tell the script of a form whom a draft reaches, what it costs, and whether it could be sent."""
    body = await read_fields(session.request)
    form = DraftForm.parse(body)
    kind, choices = form.kind.data, None
    if kind in _PATTERN_REVIEWS:
        path, review = _PATTERN_REVIEWS[kind], await examine_pattern(session, form.message.data)
    else:
        choices = await list_choices(session, body.getlist("list"))
        path, review = REVIEW, await _examine(session, form.draft, choices)
    found = await describe_draft(session, form.draft, review)
    listed = 0 if choices is None else choices.selection.contacts
    return session.services.templates.page(
        "compose_checked.html.jinja", found={**found, "listed": listed}, review_path=path
    )


async def ask_review(session: CustomerSession) -> Response:
    """Keep a refused text for the operator to review, and show the draft again."""
    body = await read_fields(session.request)
    form = DraftReviewForm.parse(body)
    draft, note = form.draft, form.note.data
    choices = await list_choices(session, body.getlist("list"), form.part.data)
    review = await _examine(session, draft, choices)
    answer = await send_for_review(session, draft, review, note)
    # What was typed beside the button is kept for another attempt.
    note = note if answer.faults else ""
    return await _form(
        session,
        draft,
        review,
        answer.faults,
        answer.status,
        answer.said,
        note=note,
        choices=choices,
        later=form.later,
    )


async def _refused(
    session: CustomerSession,
    draft: Draft,
    review: Review,
    later: Later = NOW,
    late_faults: Mapping[str, str] = MappingProxyType({}),
) -> Response:
    faults = {**_faults(review.refusals), **late_faults}
    return await _form(session, draft, review, faults, _status(review.refusals), later=later)


async def _form(
    session: CustomerSession,
    draft: Draft,
    review: Review,
    faults: Mapping[str, str],
    status: int,
    said: str | None = None,
    *,
    note: str = "",
    choices: ContactChoices | None = None,
    later: Later = NOW,
) -> Response:
    choices = choices or await list_choices(session)
    found = await describe_draft(session, draft, review, note)
    return session.page(
        "compose.html.jinja",
        status,
        draft=draft,
        faults=faults,
        said=said,
        found={**found, "listed": choices.selection.contacts},
        choices=choices,
        review_path=REVIEW,
        home=next((one for one in review.tariff.destinations if one.country == review.country), None),
        senders=await list_senders(session.database, session.account_id),
        segments_max=SEGMENTS_MAX,
        top_up_min=TOP_UP_MIN,
        later=await describe_later(session, later),
    )


def _status(refusals: Sequence[Refusal]) -> int:
    """Return the status that says most: that of the only refusal, or that several things are wrong."""
    return refusals[0].status if len(refusals) == 1 else ValidationFailed.status


async def _confirmation(
    session: CustomerSession,
    draft: Draft,
    review: Review,
    token: str,
    status: int = 200,
    notice: str | None = None,
    *,
    later: Later = NOW,
) -> Response:
    assert review.quote is not None
    held = await find_held(session, later.schedule_id)
    return session.page(
        "confirm.html.jinja",
        status,
        draft=draft,
        token=token,
        notice=notice,
        terms=compose.write_terms(review.quote),
        quote=review.quote,
        country_names=review.tariff.names,
        rejected=review.rejected,
        parts=segments.parts(draft.message),
        encoding=segments.measure(draft.message).encoding,
        balance_after=session.customer.balance + held - review.quote.total_cost,
        later=await describe_later(session, later) if later != NOW else None,
        start=write_typed(later),
        repeated=len(review.entries) - len(review.quote.numbers) - len(review.quote.rejected),
        senders=await list_senders(session.database, session.account_id),
        has_braces=_has_places(draft.message),
    )


def _has_places(message: str) -> bool:
    """Tell whether a message has what would be places in a file or for a list; here it is sent as written."""
    try:
        return bool(read_places(message).names)
    except MessageError:
        return False


def _faults(refusals: Sequence[Refusal]) -> Mapping[str, str]:
    """Say in words what is wrong, by the field that it is about."""
    faults: dict[str, str] = {}
    for refusal in refusals:
        match refusal:
            case ValidationFailed():
                found = [_FAULTS[one["field"], one["code"]] for one in refusal.details]
                faults |= {field: _(words).format(most=REFERENCE_MAX) for field, words in found}
            case TooManyRecipients():
                faults["recipients"] = say(refusal)
            case TooManySegments() | ContentRejected():
                faults["message"] = say(refusal)
            case _:
                faults[""] = " ".join(filter(None, [faults.get("", ""), say(refusal)]))
    return faults
