"""The guide and the descriptions of the operations, for the OpenAPI document and the page."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tumira.accounts.rate_limit import WINDOW_S
from tumira.api.docs.errors import ADVICE, FIELD_CODES, RECIPIENT_CODES
from tumira.api.request import BODY_BYTES_MAX
from tumira.core import errors
from tumira.core.errors import Refusal, all_refusals
from tumira.events import MEANINGS
from tumira.pricing.destinations import RECIPIENTS_MAX
from tumira.pricing.quote import REFERENCE_MAX
from tumira.pricing.segments import SEGMENTS_MAX
from tumira.sending.lifecycle import BATCH_STATUSES, FAILURE_REASONS, MESSAGE_STATUSES
from tumira.sending.lookups import IDEMPOTENCY_HOURS

TAGS: Final = {
    "Messages": "Send messages and look up their status.",
    "Account": "The balance of the account, and the price list.",
    "Webhooks": "Events that we send to your endpoint. You do not call these.",
}

_ANY_CALL: Final = (
    errors.MalformedRequest,
    errors.MissingApiKey,
    errors.InvalidApiKey,
    errors.ApiKeyRevoked,
    errors.InsufficientScope,
    errors.MethodNotAllowed,
    errors.RequestTimeout,
    errors.RateLimited,
    errors.HeadersTooLarge,
    errors.InternalError,
    errors.ServiceUnavailable,
)
_LOOKUP: Final = (*_ANY_CALL, errors.NotFound)
_SEND: Final = (
    *_ANY_CALL,
    errors.InvalidIdempotencyKey,
    errors.InsufficientBalance,
    errors.AccountSuspended,
    errors.IdempotencyConflict,
    errors.IdempotencyInProgress,
    errors.PayloadTooLarge,
    errors.UnsupportedMediaType,
    errors.ValidationFailed,
    errors.ChannelNotAvailable,
    errors.TooManyRecipients,
    errors.TooManySegments,
    errors.ContentRejected,
    errors.SpendLimitReached,
)


@dataclass(frozen=True, slots=True)
class Operation:
    """The description of an endpoint in the reference."""

    tag: str
    description: str
    refusals: Sequence[type[Refusal]]

    def statuses(self) -> Mapping[int, Sequence[type[Refusal]]]:
        """Return the refusals by status, ascending."""
        ordered = sorted(self.refusals, key=lambda refusal: (refusal.status, refusal.code))
        return {
            status: [refusal for refusal in ordered if refusal.status == status]
            for status in dict.fromkeys(refusal.status for refusal in ordered)
        }


OPERATIONS: Final = {
    "sendMessages": Operation(
        "Messages",
        "Each call creates one batch: one debit, one `batch_id`, and one message for each recipient. The 202 "
        "comes when all of it is stored on disk.\n\n"
        "Numbers that we cannot send to are listed in `rejected` and not billed; the others are sent. If all "
        "numbers are rejected, the response is still a 202, with `accepted` 0 and a cost of `0.0000`.\n\n"
        "We do not send marketing: a promotional text is refused with `CONTENT_REJECTED`, and nothing is "
        "sent or billed.\n\n"
        "With `dry_run` the response is a 200 with the price of the real call. Nothing is stored, the "
        "balance is not checked, and a valid `Idempotency-Key` is ignored.",
        _SEND,
    ),
    "getMessage": Operation(
        "Messages",
        "Returns the status of one message. `failure_reason` and `refunded_at` are present only when set.",
        _LOOKUP,
    ),
    "getBatch": Operation(
        "Messages",
        "Returns the status of a batch and of the message to each recipient, in the order of the request.",
        _LOOKUP,
    ),
    "getBalance": Operation("Account", "Returns the balance that the account can spend now.", _ANY_CALL),
    "getPricing": Operation(
        "Account",
        "Returns the price per segment for each channel and country. Entries with the status `coming_soon` "
        "are planned and not charged yet.",
        _ANY_CALL,
    ),
}


_TEMPLATE: Final = "guide.md.jinja"
_HEADING: Final = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the guide; `text` is Markdown."""

    title: str
    text: str

    @property
    def slug(self) -> str:
        """Return the section's anchor on a page."""
        return self.title.split()[0].lower()


def guide() -> str:
    """Return the whole guide as Markdown."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - Markdown, from constants only; HTML is made of it elsewhere, escaped
    )
    return environment.get_template(_TEMPLATE).render(
        events=MEANINGS,
        message_statuses=MESSAGE_STATUSES,
        batch_statuses=BATCH_STATUSES,
        failure_reasons=FAILURE_REASONS,
        refusals=all_refusals(),
        advice=ADVICE,
        field_codes=FIELD_CODES,
        recipient_codes=RECIPIENT_CODES,
        body_bytes_max=BODY_BYTES_MAX,
        idempotency_hours=IDEMPOTENCY_HOURS,
        recipients_max=RECIPIENTS_MAX,
        reference_max=REFERENCE_MAX,
        segments_max=SEGMENTS_MAX,
        window_s=WINDOW_S,
    )


def sections(text: str) -> Sequence[Section]:
    _, *parts = _HEADING.split(text)
    return [Section(title, body.strip()) for title, body in zip(parts[::2], parts[1::2], strict=True)]
