"""Pages that send a batch again to the recipients whose messages failed, after its price was confirmed."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from msgspec import structs
from starlette.responses import Response
from starlette.routing import Route

from tumira.core.errors import (
    IdempotencyConflict,
    IdempotencyInProgress,
    InsufficientBalance,
    ServiceUnavailable,
    ValidationFailed,
)
from tumira.core.translation import _, mark
from tumira.dashboard.pages.batches import BATCHES, batch_path, find_batch
from tumira.dashboard.refusal_words import say_refusal
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import Form, TextField
from tumira.html.redirect import redirect
from tumira.sending import compose, resend
from tumira.sending.batches import BatchDetails
from tumira.sending.compose import Draft, Review

RESEND: Final = BATCHES + "/{id}/resend"

_CHANGED: Final = mark(
    "The price has changed since this page was shown. Nothing was sent. Check it and confirm."
)
_UNANSWERED: Final = mark(
    "We do not know yet whether this was sent. Press Resend again: it is sent and charged only once."
)


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, RESEND, ask_resend),
        private(services, RESEND, confirm_resend, "POST"),
    ]


class ResendForm(Form):
    terms = TextField()


async def ask_resend(session: CustomerSession) -> Response:
    """Show what it costs to send a batch again to the recipients whose messages failed."""
    batch, draft = await _find_resend(session)
    if draft is None:
        return redirect(batch_path(batch.id))
    customer = session.customer
    review = await compose.review(
        session.database,
        session.services.batcher,
        customer.account_id,
        draft,
        balance=customer.balance,
        suspended=customer.suspended,
    )
    return _page(session, batch, draft, review)


async def confirm_resend(session: CustomerSession) -> Response:
    """Send it, once, if it costs what was shown."""
    terms = (await ResendForm.read(session.request)).terms.data
    batch, draft = await _find_resend(session)
    if draft is None:
        return redirect(batch_path(batch.id))
    review = await compose.examine(session.database, session.account_id, draft)
    if review.refusals or review.quote is None:
        return _page(session, batch, draft, review)
    if terms != compose.write_terms(review.quote):
        return _page(session, batch, draft, review, 409, _(_CHANGED))
    token = resend.resend_token(batch.id)
    sent = await compose.send(session.services.batcher, session.account_id, token, draft, review)
    match sent:
        case str():
            return redirect(f"{BATCHES}/{sent}")
        case IdempotencyConflict():
            # It was sent before, when other messages had failed.
            return redirect(batch_path(batch.id))
        case ValidationFailed():
            return _page(session, batch, draft, review, 409, _(_CHANGED))
        case ServiceUnavailable() | IdempotencyInProgress():
            return _page(session, batch, draft, review, 503, _(_UNANSWERED))
    return _page(session, batch, draft, structs.replace(review, refusals=[sent]))


async def _find_resend(session: CustomerSession) -> tuple[BatchDetails, Draft | None]:
    """Return a batch and what can be sent again of it; nothing if that was done before."""
    async with session.database.connection() as connection:
        batch = await find_batch(session, connection)
        if await resend.find_resent(connection, session.account_id, batch.id) is not None:
            return batch, None
        return batch, await resend.find_draft(connection, session.account_id, batch)


def _page(
    session: CustomerSession,
    batch: BatchDetails,
    draft: Draft,
    review: Review,
    status: int = 200,
    notice: str | None = None,
) -> Response:
    short = next((one for one in review.refusals if isinstance(one, InsufficientBalance)), None)
    return session.page(
        "resend.html.jinja",
        review.refusals[0].status if review.refusals else status,
        batch_path=batch_path(batch.id),
        draft=draft,
        quote=review.quote,
        terms=None if review.quote is None else compose.write_terms(review.quote),
        country_names=review.tariff.names,
        problems=[say_refusal(one) for one in review.refusals],
        shortfall=None if short is None else Decimal(short.details[0]["shortfall"]),
        notice=notice,
    )
