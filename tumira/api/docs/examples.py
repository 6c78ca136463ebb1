"""Example requests and answers; example refusals are made by the code that raises them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from tumira.accounts.api_keys import Scope
from tumira.api import schemas
from tumira.api.envelope import refuse
from tumira.api.request import read_send
from tumira.content.check import reject
from tumira.content.verdict import Category, Label, Reason, Verdict
from tumira.core import errors
from tumira.core.errors import RecipientCode, Refusal
from tumira.pricing.destinations import RECIPIENTS_MAX, Tariff
from tumira.pricing.quote import SendRequest, quote
from tumira.sending.types import InvalidSend
from tumira.sending.views import MessageView

BATCH_ID: Final = "bat_01m7f57pxve9nv59tdwh9edd1r"
MESSAGE_IDS: Final = ("msg_01m7f57pxve9nv59tdr0352ckg", "msg_01m7f57pxve9nv59tdr0d6mej5")
REQUEST_ID: Final = "req_01m7f57pxvfmg952sf6c65rzyg"
IDEMPOTENCY_KEY: Final = "order-1042-ready"

_ZW: Final = "+263771200001"
_ZA: Final = "+27821230002"
_ELSEWHERE: Final = "+15550100"
_PASSCODE: Final = "Your code is 493817. It is valid for 10 minutes."
_NOTICE: Final = "Your order 1042 is ready. Collect it at the counter before 17:00."


@dataclass(frozen=True, slots=True)
class Example:
    """A named example; `value` is JSON."""

    summary: str
    value: Any


REQUESTS: Final[Mapping[str, Example]] = {
    "single": Example("One recipient", {"channel": "sms", "to": _ZW, "body": _PASSCODE}),
    "many": Example(
        "Several recipients, one of them out of reach",
        {
            "channel": "sms",
            "to": [_ZW, _ZA, _ELSEWHERE],
            "body": _NOTICE,
            "reference": "order-1042",
        },
    ),
    "dry_run": Example(
        "What would it cost?", {"channel": "sms", "to": [_ZW, _ZA], "body": _NOTICE, "dry_run": True}
    ),
}

_REJECTED: Final = [schemas.RejectedEntry(_ELSEWHERE, RecipientCode.UNSUPPORTED_DESTINATION)]
_DELIVERED: Final = MessageView(
    message_id=MESSAGE_IDS[0],
    to=_ZW,
    country="ZW",
    status="delivered",
    segments=1,
    cost="0.0400",
    sent_at="2026-11-15T08:30:00.345+00:00",
    delivered_at="2026-11-15T08:30:02.781+00:00",
)
_UNDELIVERED: Final = MessageView(
    message_id=MESSAGE_IDS[1],
    to=_ZA,
    country="ZA",
    status="undelivered",
    segments=1,
    cost="0.0200",
    sent_at="2026-11-15T08:30:00.351+00:00",
    delivered_at=None,
    failure_reason="ABSENT_SUBSCRIBER",
    refunded_at="2026-11-15T08:34:10.006+00:00",
)
_BATCH: Final = schemas.BatchView(
    batch_id=BATCH_ID,
    status="completed",
    channel="sms",
    reference="order-1042",
    recipients=2,
    segments=1,
    total_cost="0.0600",
    refunded="0.0200",
    currency="USD",
    created_at="2026-11-15T08:30:00.123+00:00",
    messages=[_DELIVERED, _UNDELIVERED],
)
_PRICES: Final = [
    schemas.PriceView("sms", "ZW", "0.0400", "active"),
    schemas.PriceView("sms", "ZW", "0.0190", "coming_soon"),
    schemas.PriceView("sms", "ZA", "0.0200", "active"),
]


def _json(value: object) -> Any:
    return json.loads(schemas.encode(value))


ANSWERS: Final[Mapping[tuple[str, int], Mapping[str, Example]]] = {
    ("sendMessages", 202): {
        "single": Example(
            "One recipient",
            _json(schemas.SendResponse(BATCH_ID, 1, [], 1, "0.0400", "USD", "99.9600")),
        ),
        "many": Example(
            "Two accepted, one rejected",
            _json(schemas.SendResponse(BATCH_ID, 2, _REJECTED, 1, "0.0600", "USD", "99.9400")),
        ),
    },
    ("sendMessages", 200): {
        "dry_run": Example(
            "The price of two recipients",
            _json(schemas.DryRunResponse(True, 2, [], 1, "0.0600", "USD")),  # noqa: FBT003 - a field's value
        )
    },
    ("getMessage", 200): {
        "delivered": Example("Delivered", _json(schemas.MessageResponse(_DELIVERED))),
        "undelivered": Example("Not delivered, and refunded", _json(schemas.MessageResponse(_UNDELIVERED))),
    },
    ("getBatch", 200): {"completed": Example("Completed", _json(schemas.BatchResponse(_BATCH)))},
    ("getBalance", 200): {"balance": Example("A balance", _json(schemas.BalanceResponse("99.9400", "USD")))},
    ("getPricing", 200): {"prices": Example("The list", _json(schemas.PricingResponse(_PRICES, "USD")))},
}


def example_refusal(refusal: type[Refusal]) -> Any:
    return json.loads(refuse(_SPECIFIC.get(refusal) or refusal(), REQUEST_ID).body)


def _read(fields: Mapping[str, Any]) -> Refusal:
    send = read_send("application/json", None, [], json.dumps(fields).encode())
    assert isinstance(send, InvalidSend)
    return send.refusal


def _quote(**fields: Any) -> Refusal:
    request = SendRequest(
        **{"channel": "sms", "to": [_ZW], "body": _NOTICE, "reference": None, "dry_run": False, **fields}
    )
    quoted = quote(Tariff(1, [], []), request)
    assert isinstance(quoted, Refusal)
    return quoted


def _judged(text: str, sentence: str, *words: str) -> Refusal:
    """Refuse a text for these words; made by hand, so that new weights do not change the page."""
    reasons = [
        Reason(Category.MARKETING, one, text.index(one), text.index(one) + len(one), 1.0) for one in words
    ]
    return reject(Verdict(Label.PROMOTIONAL, 0.97, Category.MARKETING, reasons, [sentence]))


_ADVERT: Final = "Get 20% off your next order!"

# Refusals of which every instance has its own figures or words.
_SPECIFIC: Final[Mapping[type[Refusal], Refusal]] = {
    errors.ChannelNotAvailable: _read({"channel": "whatsapp", "to": _ZW, "body": _PASSCODE}),
    errors.ContentRejected: _judged(
        f"Your order 1042 is on its way. {_ADVERT}", _ADVERT, "20% off", "next order"
    ),
    errors.InsufficientBalance: errors.InsufficientBalance.of(Decimal("0.0600"), Decimal("0.0200")),
    errors.InsufficientScope: errors.InsufficientScope(
        f"The API key lacks the scope {Scope.SEND}; use a key that has it."
    ),
    errors.MalformedRequest: errors.MalformedRequest(
        "The body is not JSON: Expecting ',' delimiter at line 3, column 5."
    ),
    errors.NotFound: errors.NotFound("You have nothing with this id."),
    errors.RateLimited: errors.RateLimited(
        "The account has made its 60 calls of the last 60 seconds; this one was not processed. "
        "Try again in 12 s."
    ),
    errors.SpendLimitReached: errors.SpendLimitReached(
        "The batch costs 0.0600 USD, 9.9800 USD were spent today and the account's daily limit is "
        "10.0000 USD; nothing was sent or debited.",
        details=[
            {
                "code": errors.SpendLimitReached.code,
                "message": "The day ends at midnight, UTC+02:00.",
                "required": "0.0600",
                "spent_today": "9.9800",
                "daily_limit": "10.0000",
            }
        ],
    ),
    errors.TooManyRecipients: _quote(to=[_ZW] * (RECIPIENTS_MAX + 1)),
    errors.TooManySegments: _quote(body=(_NOTICE + " 😀 ") * 6),
    errors.ValidationFailed: _read({"channel": "sms", "body": "", "dryrun": True}),
}
