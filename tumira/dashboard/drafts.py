"""Drafts of the customer who is signed in: their review, and requests to have a refused text reviewed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from msgspec import structs

from tumira.content import review as content_review
from tumira.content import store as content_store
from tumira.content.store import digest_of
from tumira.content.templates import LETTERS_MIN, count_letters
from tumira.core.errors import ContentRejected, OperatorError, ValidationFailed
from tumira.core.translation import _
from tumira.dashboard.draft_view import describe
from tumira.dashboard.session import CustomerSession
from tumira.html.forms import Faults
from tumira.sending import compose
from tumira.sending.compose import Draft, Review

_OK: Final = 200


async def review_draft(
    session: CustomerSession, draft: Draft, *, is_later: bool = False, held: Decimal = Decimal(0)
) -> Review:
    """Collect every refusal of a draft for this account and its balance, and price it if possible.

    `held` is the money of a scheduled message that the draft replaces.
    """
    customer = session.customer
    return await compose.review(
        session.database,
        session.services.batcher,
        customer.account_id,
        draft,
        balance=customer.balance + held,
        suspended=customer.suspended,
        is_later=is_later,
    )


async def examine_pattern(session: CustomerSession, message: str) -> Review:
    """Collect what is wrong with the message of a file, whose rows put values into it.

    With few letters of its own, it says nothing about its texts.
    """
    draft = Draft("", message, "")
    review = await compose.examine(session.database, session.account_id, draft)
    if count_letters(message) >= LETTERS_MIN:
        return review
    others = [one for one in review.refusals if not isinstance(one, ContentRejected)]
    return structs.replace(review, refusals=others)


async def describe_draft(
    session: CustomerSession, draft: Draft, review: Review, note: str = ""
) -> Mapping[str, Any]:
    """Return what `compose_live.html.jinja` shows, with when a refused text was sent for review."""
    asked_at: datetime | None = None
    if find_content(review) is not None:
        async with session.database.connection() as connection:
            known = await content_store.find(connection, session.account_id, digest_of(draft.message))
        asked_at = None if known is None else known.review_asked_at
    return describe(draft, review, session.customer.balance, asked_at, note)


def find_content(review: Review) -> ContentRejected | None:
    return next((one for one in review.refusals if isinstance(one, ContentRejected)), None)


@dataclass(frozen=True, slots=True)
class ReviewAnswer:
    """What a page says to a customer who asked for the review of a text, or why that was not possible."""

    said: str | None
    faults: Faults
    status: int = _OK


async def send_for_review(session: CustomerSession, draft: Draft, review: Review, note: str) -> ReviewAnswer:
    """Keep a refused text for the operator to review."""
    rejected = find_content(review)
    if rejected is None:
        return ReviewAnswer(_("This text can be sent as it is. No review is needed."), {})
    try:
        await content_review.submit_refused(
            session.database, session.account_id, draft.message, rejected, note, session.actor
        )
    except OperatorError as error:
        return ReviewAnswer(None, {"message": str(error)}, ValidationFailed.status)
    return ReviewAnswer(
        _("Your text was sent for review. You will find the answer in Settings, under Refused texts."), {}
    )
