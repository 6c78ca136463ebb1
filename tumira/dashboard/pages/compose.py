"""Compose: write a message, see its price, confirm and send."""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any, Final

from markupsafe import Markup
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tumira.content import template_store
from tumira.content.check import check_text, classify_early
from tumira.core.errors import (
    ContentRejected,
    FieldCode,
    IdempotencyConflict,
    IdempotencyInProgress,
    InternalError,
    Refusal,
    ServiceUnavailable,
    TooManyRecipients,
    TooManySegments,
    ValidationFailed,
)
from tumira.core.translation import _
from tumira.dashboard.refusal_words import say_refusal
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import Form, FormId, TextField, new_form_id
from tumira.html.page import HEADERS, PRIVATE, write_cost, write_count, write_plural
from tumira.html.redirect import redirect
from tumira.pricing import gsm7, segments
from tumira.pricing.destinations import MOBILE_STARTS, RECIPIENTS_MAX, PriceStatus, Tariff
from tumira.pricing.phone_numbers import CHANNEL, EXPLANATIONS, country_of
from tumira.pricing.quote import REFERENCE_MAX
from tumira.pricing.segments import SEGMENTS_MAX
from tumira.pricing.store import get_tariff
from tumira.sending import compose
from tumira.sending.compose import Draft, Review

COMPOSE: Final = "/dashboard/compose"
CONFIRM: Final = COMPOSE + "/confirm"
VERDICT: Final = COMPOSE + "/verdict"

# A shorter text says too little to be judged while it is being typed.
JUDGED_MIN: Final = 10
FORM: Final = "frm_"
CHARACTERS_SHOWN: Final = 8
_UNIT: Final = Decimal("0.0001")

_FAULTS: Final = {
    ("to", FieldCode.EMPTY): ("recipients", "Give at least one number."),
    ("to", FieldCode.INVALID_VALUE): ("recipients", "None of these can be sent to; see below why."),
    ("body", FieldCode.EMPTY): ("message", "Write the message."),
    ("reference", FieldCode.TOO_LONG): ("reference", f"At most {REFERENCE_MAX} characters."),
}
# Whether it was sent is not known, but the same token never sends twice.
_UNANSWERED: Final = (
    "No answer came in time, so this may not have been sent. Press Confirm again: however often you press, "
    "it is sent once and paid for once."
)
_CHANGED: Final = (
    "Something has changed since you pressed Send, such as a price. Nothing was sent: look at it again, and "
    "confirm if you agree."
)
_USED: Final = (
    "This page has sent another message before. Nothing was sent now: confirm if you want this one sent."
)
# In a page, no text may end the script element that it stands in, and nobody wants to look for a character
# that cannot be seen.
_HIDDEN: Final = re.compile(
    "[<>&\x7f-\xa0\xad\u061c\u200b-\u200f\u2028-\u202f\u205f-\u206f\ufe00-\ufe0f\ufeff]"
)


class DraftForm(Form):
    recipients = TextField(clean=str)
    message = TextField(clean=str)
    reference = TextField()
    edit = TextField()

    @property
    def draft(self) -> Draft:
        return Draft(self.recipients.data, self.message.data, self.reference.data)


class DraftConfirmForm(DraftForm):
    token = FormId(FORM)
    terms = TextField()


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, COMPOSE, show_form),
        private(services, COMPOSE, look_over, "POST"),
        private(services, CONFIRM, begin_again),
        private(services, CONFIRM, confirm, "POST"),
        private(services, VERDICT, judge, "POST"),
    ]


async def show_form(session: CustomerSession) -> Response:
    return await _fresh_form(session, Draft("", "", ""))


async def begin_again(_session: CustomerSession) -> Response:
    """Lead who comes without a message, after signing in again perhaps, to the form."""
    return redirect(COMPOSE)


async def _fresh_form(session: CustomerSession, draft: Draft) -> Response:
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
    entries = await compose.read_aside(tariff, draft.recipients, session.customer.phone)
    return _form(session, draft, Review(tariff, entries, None, ()))


async def look_over(session: CustomerSession) -> Response:
    """Say what is wrong with a message, or ask for confirmation; or show it again to who went back."""
    form = await DraftForm.read(session.request)
    draft = form.draft
    if form.edit.data:
        return await _fresh_form(session, draft)
    customer = session.customer
    review = await compose.review(
        session.database,
        session.services.batcher,
        customer.account_id,
        draft,
        balance=customer.balance,
        suspended=customer.suspended,
    )
    if review.refusals:
        return _form(session, draft, review)
    return _confirmation(session, draft, review, new_form_id(FORM))


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
    decided: str | Refusal = ValidationFailed()
    if form_id is not None:
        # What is not as it was shown may be so because it was sent already, by the first of two presses.
        decided = await (
            compose.send(batcher, account_id, str(form_id), draft, review)
            if agreed
            else compose.find_sent(batcher, account_id, str(form_id), draft)
        )
    if isinstance(decided, str):
        return redirect(f"/dashboard/batches/{decided}")
    return _not_sent(session, draft, review, form.token.typed, decided)


def _not_sent(
    session: CustomerSession, draft: Draft, review: Review, token: str, refusal: Refusal
) -> Response:
    if review.refusals or review.quote is None:
        return _form(session, draft, review)
    match refusal:
        case ServiceUnavailable() | IdempotencyInProgress():
            return _confirmation(session, draft, review, token, 503, _UNANSWERED)
        case InternalError():
            return _confirmation(session, draft, review, token, 500, refusal.message)
        case IdempotencyConflict():
            return _confirmation(session, draft, review, new_form_id(FORM), 409, _USED)
        case ValidationFailed():
            return _confirmation(session, draft, review, new_form_id(FORM), 409, _CHANGED)
        case _:
            return _form(session, draft, Review(review.tariff, review.entries, review.quote, [refusal]))


async def judge(session: CustomerSession) -> Response:
    """Tell the script of the form whether a text could be sent, and if not, which words weighed."""
    message = (await DraftForm.read(session.request)).message.data
    verdict = classify_early(message)
    answer: Mapping[str, Any] = {"refused": False}
    if verdict is not None:
        async with session.database.connection() as connection:
            policy = await template_store.get_policy(connection)
        rejected = check_text(policy, session.account_id, message, verdict)
        if rejected is not None:
            answer = {"refused": True, "message": _say(rejected), **_offence(message, rejected)}
    return JSONResponse(answer, headers={**HEADERS, **PRIVATE})


def _form(session: CustomerSession, draft: Draft, review: Review) -> Response:
    content = next((one for one in review.refusals if isinstance(one, ContentRejected)), None)
    return session.page(
        "compose.html.jinja",
        _status(review.refusals),
        draft=draft,
        faults=_faults(review.refusals),
        offence=None if content is None else _offence(draft.message, content),
        advice=_advice(draft.message, review.segment_cost),
        rejected=review.rejected,
        destinations=review.tariff.destinations,
        prices=_active(review.tariff),
        data=_data(review.tariff, session.customer.phone),
    )


def _status(refusals: Sequence[Refusal]) -> int:
    """Return the status that says most: that of the only refusal, or that several things are wrong."""
    if not refusals:
        return 200
    return refusals[0].status if len(refusals) == 1 else ValidationFailed.status


def _confirmation(
    session: CustomerSession,
    draft: Draft,
    review: Review,
    token: str,
    status: int = 200,
    notice: str | None = None,
) -> Response:
    assert review.quote is not None
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
        balance_after=session.customer.balance - review.quote.total_cost,
        repeated=len(review.entries) - len(review.quote.numbers) - len(review.quote.rejected),
    )


def _faults(refusals: Sequence[Refusal]) -> Mapping[str, str]:
    """Say in words what is wrong, by the field that it is about."""
    faults: dict[str, str] = {}
    for refusal in refusals:
        match refusal:
            case ValidationFailed():
                faults |= dict(_FAULTS[one["field"], one["code"]] for one in refusal.details)
            case TooManyRecipients():
                faults["recipients"] = _say(refusal)
            case TooManySegments() | ContentRejected():
                faults["message"] = _say(refusal)
            case _:
                faults[""] = " ".join(filter(None, [faults.get("", ""), _say(refusal)]))
    return faults


def _say(refusal: Refusal) -> str:
    detail = refusal.details[0] if refusal.details else {}
    match refusal:
        case TooManyRecipients():
            given = detail["recipients"]
            return (
                f"These are {write_count(given)} numbers, {write_count(given - RECIPIENTS_MAX)} more than "
                f"can be sent to at once. Send to {write_count(RECIPIENTS_MAX)} now and to the others after."
            )
        case TooManySegments():
            return _say_too_long(detail)
        case ContentRejected():
            if detail["category"] == ContentRejected.BLOCKED:
                return refusal.message
            if detail["drop"]:
                return (
                    "Part of this is marketing, which we do not carry. Leave that part out and send the rest."
                )
            return (
                "This is marketing, which we do not carry. Send only what people asked for or have to know."
            )
        case ServiceUnavailable():
            return "The service cannot answer right now. Nothing was sent; press Send again in a moment."
    return say_refusal(refusal)


def _say_too_long(detail: Mapping[str, Any]) -> str:
    size = f"{detail['segments']} segments in {detail['encoding']}"
    words = f"This takes {size}; at most {SEGMENTS_MAX} can be sent."
    forced = detail["ucs2_characters"]
    if not forced:
        return f"{words} Shorten it."
    return f"{words} Shorten it, or leave out what makes a segment so short: {_named(forced)}"


def _named(characters: Sequence[str]) -> str:
    more = ["…"] if len(characters) > CHARACTERS_SHOWN else []
    return " ".join([*(gsm7.name(one) for one in characters[:CHARACTERS_SHOWN]), *more])


def _advice(text: str, segment_cost: Decimal) -> Mapping[str, str] | None:
    """Say how a text could be shorter; the same as the script says, so that nothing jumps when it comes.

    `left` are the characters that make it long and have no plain spelling.
    """
    forced = segments.ucs2_characters(text)
    if not forced:
        return None
    respelt = gsm7.respell(text)
    pairs = [f"{gsm7.name(one)} → {gsm7.name(other)}" for one, other in respelt.replaced]
    fewer = segments.measure(text).segments - segments.measure(respelt.text).segments
    saving = "saves no segment yet, but leaves more room"
    if fewer > 0:
        saving = f"saves {write_plural(fewer, 'segment')}"
        saving += f", {write_cost(segment_cost * fewer)} for these recipients" if segment_cost else ""
    return {
        "forced": _named(forced),
        "pairs": ", ".join(pairs[:CHARACTERS_SHOWN]),
        "saving": saving,
        "left": _named(respelt.left),
    }


def _offence(text: str, rejected: ContentRejected) -> Mapping[str, Any]:
    """Say why a text is refused: its pieces, those that weighed marked, and what to leave out."""
    pieces: list[tuple[str, bool]] = []
    end = 0
    for reason in sorted(rejected.detail["reasons"], key=lambda one: int(one["start"])):
        # What overlaps was marked with the one before.
        start = max(end, reason["start"])
        if reason["end"] > start:
            pieces += [(text[end:start], False), (text[start : reason["end"]], True)]
            end = reason["end"]
    pieces.append((text[end:], False))
    return {
        "pieces": [(piece, marked) for piece, marked in pieces if piece],
        "drop": rejected.detail["drop"],
    }


def _active(tariff: Tariff) -> Mapping[str, Decimal]:
    return {
        one.country: one.price_usd
        for one in tariff.prices
        if one.channel == CHANNEL and one.status == PriceStatus.ACTIVE
    }


def _data(tariff: Tariff, phone: str) -> Markup:
    """Write what the script of the form has to know, as JSON that can stand inside a page."""
    active = _active(tariff)
    destinations = [
        {
            "country": one.country,
            "name": one.name,
            "calling_code": one.calling_code,
            "national_lengths": one.national_lengths,
            "mobile": MOBILE_STARTS.get(one.calling_code),
            # In ten-thousandths of a dollar, because the script's numbers are floats.
            "price": int(active[one.country] / _UNIT) if one.country in active else None,
        }
        for one in tariff.destinations
    ]
    limits = {
        "recipients": RECIPIENTS_MAX,
        "segments": SEGMENTS_MAX,
        "reference": REFERENCE_MAX,
        "judged_min": JUDGED_MIN,
    }
    data = _write(
        {
            "destinations": destinations,
            "country": country_of(tariff, phone),
            "explanations": {name: _(text) for name, text in EXPLANATIONS.items()},
            "limits": limits,
            "verdict": VERDICT,
        }
    )
    return Markup(f'{data[:-1]},"alphabet":{_alphabet()}}}')  # noqa: S704 - Nothing in it can end the element.


@cache
def _alphabet() -> str:
    return _write(gsm7.alphabet())


def _write(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
