"""Example requests and answers; example refusals are made by the code that raises them."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from tumira.accounts.api_keys import Scope
from tumira.api import schemas
from tumira.api.envelope import refuse
from tumira.api.request import read_send
from tumira.content.check import reject
from tumira.content.verdict import Category, Label, Reason, Verdict
from tumira.core import errors, ids
from tumira.core.errors import RecipientCode, Refusal
from tumira.core.ids import read_id
from tumira.pricing.destinations import RECIPIENTS_MAX, Price, PriceStatus, Tariff
from tumira.pricing.quote import ValidRequest, quote
from tumira.sending.batches import Batch, Message
from tumira.sending.limits import daily_limit_reached
from tumira.sending.types import InvalidSend

Json = dict[str, Any]

BATCH_ID: Final = "bat_01m7f57pxve9nv59tdwh9edd1r"
REQUEST_ID: Final = "req_01m7f57pxvfmg952sf6c65rzyg"
MESSAGE_ID: Final = "msg_01m7f57pxve9nv59tdr0352ckg"
IDEMPOTENCY_KEY: Final = "order-1042-ready"

ACCEPTED_AT: Final = datetime(2026, 11, 15, 8, 30, 0, 123_000, tzinfo=UTC)
_ZW: Final = "+263771200001"
_ZA: Final = "+27821230002"
_ELSEWHERE: Final = "+15550100"
_PASSCODE: Final = "Your code is 493817. It is valid for 10 minutes."
_NOTICE: Final = "Your order 1042 is ready. Collect it at the counter before 17:00."


def _id(prefix: str, text: str) -> Any:
    identifier = read_id(prefix, text)
    assert identifier is not None
    return identifier


REQUESTS: Final[Json] = {
    "single": {
        "summary": "One recipient",
        "value": {"channel": "sms", "to": _ZW, "body": _PASSCODE},
    },
    "many": {
        "summary": "Several recipients, one of them out of reach",
        "value": {
            "channel": "sms",
            "to": [_ZW, _ZA, _ELSEWHERE],
            "body": _NOTICE,
            "reference": "order-1042",
        },
    },
    "dry_run": {
        "summary": "What would it cost?",
        "value": {"channel": "sms", "to": [_ZW, _ZA], "body": _NOTICE, "dry_run": True},
    },
}

_REJECTED: Final = [schemas.RejectedEntry(_ELSEWHERE, RecipientCode.UNSUPPORTED_DESTINATION)]
DELIVERED: Final = Message(
    id=_id(ids.MESSAGE, MESSAGE_ID),
    recipient=_ZW,
    country="ZW",
    status="delivered",
    segments=1,
    cost=Decimal("0.0400"),
    sent_at=ACCEPTED_AT + timedelta(milliseconds=222),
    delivered_at=ACCEPTED_AT + timedelta(milliseconds=2658),
    failure_reason=None,
    refunded_at=None,
)
_UNDELIVERED: Final = Message(
    id=_id(ids.MESSAGE, "msg_01m7f57pxve9nv59tdr0d6mej5"),
    recipient=_ZA,
    country="ZA",
    status="undelivered",
    segments=1,
    cost=Decimal("0.0200"),
    sent_at=ACCEPTED_AT + timedelta(milliseconds=228),
    delivered_at=None,
    failure_reason="ABSENT_SUBSCRIBER",
    refunded_at=ACCEPTED_AT + timedelta(minutes=4, milliseconds=9883),
)
BATCH: Final = Batch(
    id=_id(ids.BATCH, BATCH_ID),
    status="completed",
    channel="sms",
    reference="order-1042",
    recipients=2,
    segments=1,
    total_cost=Decimal("0.0600"),
    refunded=Decimal("0.0200"),
    created_at=ACCEPTED_AT,
    pending=0,
    completed_at=ACCEPTED_AT,
)
_PRICES: Final = [
    Price("sms", "ZW", Decimal("0.0400"), PriceStatus.ACTIVE),
    Price("sms", "ZW", Decimal("0.0190"), PriceStatus.COMING_SOON),
    Price("sms", "ZA", Decimal("0.0200"), PriceStatus.ACTIVE),
]


def _example(summary: str, answer: bytes) -> Json:
    return {"summary": summary, "value": json.loads(answer)}


# By operation and status, each written by the code that writes real answers.
ANSWERS: Final[Mapping[tuple[str, int], Json]] = {
    ("sendMessages", 202): {
        "single": _example(
            "One recipient",
            schemas.encode(schemas.SendResponse(BATCH_ID, 1, [], 1, "0.0400", "USD", "99.9600")),
        ),
        "many": _example(
            "Two accepted, one rejected",
            schemas.encode(schemas.SendResponse(BATCH_ID, 2, _REJECTED, 1, "0.0600", "USD", "99.9400")),
        ),
    },
    ("sendMessages", 200): {
        "dry_run": _example(
            "The price of two recipients",
            schemas.encode(schemas.DryRunResponse(True, 2, [], 1, "0.0600", "USD")),  # noqa: FBT003 - a field
        )
    },
    ("getMessage", 200): {
        "delivered": _example("Delivered", schemas.write_message(DELIVERED)),
        "undelivered": _example("Not delivered, and refunded", schemas.write_message(_UNDELIVERED)),
    },
    ("getBatch", 200): {
        "completed": _example("Completed", schemas.write_batch(BATCH, [DELIVERED, _UNDELIVERED]))
    },
    ("getBalance", 200): {"balance": _example("A balance", schemas.write_balance(Decimal("99.9400")))},
    ("getPricing", 200): {"prices": _example("The list", schemas.write_pricing(_PRICES))},
}


def example_refusal(refusal: type[Refusal]) -> Any:
    return json.loads(refuse(_SPECIFIC.get(refusal) or refusal(), REQUEST_ID).body)


def _read(fields: Mapping[str, Any]) -> Refusal:
    send = read_send("application/json", None, [], json.dumps(fields).encode())
    assert isinstance(send, InvalidSend)
    return send.refusal


def _quote(**fields: Any) -> Refusal:
    request = ValidRequest(
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
    errors.SpendLimitReached: daily_limit_reached(
        Decimal("0.0600"), Decimal("9.9800"), Decimal("10.0000"), ACCEPTED_AT
    ),
    errors.TooManyRecipients: _quote(to=[_ZW] * (RECIPIENTS_MAX + 1)),
    errors.TooManySegments: _quote(body=(_NOTICE + " 😀 ") * 6),
    errors.ValidationFailed: _read({"channel": "sms", "body": "", "dryrun": True}),
}
