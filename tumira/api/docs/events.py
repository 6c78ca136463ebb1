"""Webhooks in the OpenAPI document: event types, headers, example payloads and answers."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from msgspec.structs import replace

from tumira.api.docs.examples import ACCEPTED_AT, BATCH, DELIVERED
from tumira.core.ids import EVENT, REPLY, AccountId, EventId, ReplyId, new_id, read_id
from tumira.events import EVENT_TYPES, MEANINGS, REPLY_EVENTS, Event
from tumira.replies.store import Reply
from tumira.sending.batches import Message
from tumira.sending.lifecycle import RECEIPT_WAIT, VALIDITY
from tumira.sending.low_balance import low_balance_data
from tumira.sending.views import ID_DIGITS
from tumira.webhooks.payload import PAYLOADS, webhook_test_data, write_payload
from tumira.webhooks.signature import SECRET_BYTES, sign

Json = dict[str, Any]

EVENT_ID: Final = "evt_01m7f57sgxe8ds5vvberxnctn8"

_REF: Final = "#/components/{kind}/{name}"
_SEQUENCE: Final = 4711
_ATTEMPTED_AT_S: Final = 1_794_731_403
# For examples whose signatures can be checked; no endpoint has this secret.
_SECRET: Final = bytes(range(SECRET_BYTES))

SUMMARIES: Final[Mapping[str, str]] = {
    "message.sent": "A message was sent",
    "message.delivered": "A message was delivered",
    "message.undelivered": "A message was not delivered",
    "message.expired": "A message expired",
    "message.failed": "A message failed",
    "message.unconfirmed": "A message stayed unconfirmed",
    "message.refunded": "A message was refunded",
    "batch.completed": "A batch was completed",
    "reply.received": "A recipient replied",
    "recipient.opted_out": "A recipient opted out",
    "recipient.opted_in": "A recipient opted in again",
    "balance.low": "The balance is low",
    "webhook.test": "A test of the endpoint",
}


def example(type_: str) -> Any:
    return json.loads(example_body(type_))


def example_body(type_: str) -> bytes:
    """Return an example payload, written by the code that writes real payloads."""
    event = Event(
        id=EventId(read_id(EVENT, EVENT_ID) or new_id(0)),
        account_id=AccountId(new_id(0)),
        sequence=0 if type_ == "webhook.test" else _SEQUENCE,
        type=type_,
        message_id=None,
        batch_id=None,
        at=_at(type_),
        data=_DATA.get(type_),
    )
    return write_payload(event, _message(type_), BATCH, replace(_REPLY, text=_REPLIES.get(type_)))


def _at(type_: str) -> datetime:
    at = _REPLY.received_at if type_ in REPLY_EVENTS else _TIMES.get(type_, DELIVERED.delivered_at)
    assert at is not None
    return at


def _message(type_: str) -> Message:
    status, reason = _OUTCOMES.get(type_, ("delivered", None))
    return replace(
        DELIVERED,
        status=status,
        sent_at=None if status in {"failed", "expired"} else DELIVERED.sent_at,
        delivered_at=_at(type_) if status == "delivered" else None,
        failure_reason=reason,
        refunded_at=None if reason is None else _at(type_),
    )


_TIMES: Final = {
    "message.sent": DELIVERED.sent_at,
    "message.expired": ACCEPTED_AT + VALIDITY,
    "message.unconfirmed": ACCEPTED_AT + RECEIPT_WAIT,
}
_OUTCOMES: Final[Mapping[str, tuple[str, str | None]]] = {
    "message.undelivered": ("undelivered", "ABSENT_SUBSCRIBER"),
    "message.refunded": ("undelivered", "ABSENT_SUBSCRIBER"),
    "message.expired": ("expired", "CARRIER_UNAVAILABLE"),
    "message.failed": ("failed", "NO_ROUTE"),
    "message.unconfirmed": ("unconfirmed", None),
}
_REPLIES: Final = {
    "reply.received": "Yes, I will be there.",
    "recipient.opted_out": "STOP",
    "recipient.opted_in": "Start",
}
_REPLY: Final = Reply(
    id=ReplyId(read_id(REPLY, "rpl_01m7f5bq3he4x9b0t2w6n8kzr5") or new_id(0)),
    account_id=None,
    carrier_id=0,
    number=DELIVERED.recipient,
    destination="33123",
    text=None,
    parts=1,
    total=1,
    message_id=DELIVERED.id,
    meaning=None,
    received_at=ACCEPTED_AT + timedelta(minutes=12),
)
_DATA: Final = {
    "balance.low": low_balance_data(Decimal("0.9600"), Decimal("1.0000")),
    "webhook.test": webhook_test_data(),
}

HEADERS: Final[Mapping[str, Json]] = {
    "webhook-id": {
        "description": "The event's id. It is the same on every try and replay: an id that you have handled "
        "needs no more than a 2xx.",
        "schema": {"type": "string", "pattern": f"^evt_{ID_DIGITS}$"},
        "example": EVENT_ID,
    },
    "webhook-timestamp": {
        "description": "When this try was made, in seconds since 1970. Refuse a request whose time is "
        "more than five minutes from your clock.",
        "schema": {"type": "integer", "minimum": 0},
        "example": _ATTEMPTED_AT_S,
    },
    "webhook-signature": {
        "description": "One or more signatures separated by spaces, each `v1,` and the base64 of the "
        "HMAC-SHA-256 of id, timestamp and body, joined by full stops. One match is enough; there are "
        "two for 24 hours after the secret was changed.",
        "schema": {"type": "string", "pattern": "^v1,[A-Za-z0-9+/]{43}=( v1,[A-Za-z0-9+/]{43}=)*$"},
        "example": sign([_SECRET], EVENT_ID, _ATTEMPTED_AT_S, example_body("message.delivered")),
    },
}

ANSWERS: Final[Mapping[str, str]] = {
    "2XX": "The event is yours. Answer within 15 seconds, and before you do any long work.",
    "410": "The endpoint is disabled, and gets no more events until it is resumed.",
    "default": "The event is tried again, also after a redirect, which is not followed. `Retry-After` is "
    "honoured, up to a day.",
}


def webhooks() -> Json:
    return {type_: {"post": _operation(type_)} for type_ in EVENT_TYPES}


def _operation(type_: str) -> Json:
    return {
        "operationId": _camel(type_),
        "summary": SUMMARIES[type_],
        "description": MEANINGS[type_],
        "tags": ["Webhooks"],
        # Our signature authenticates it, not an API key.
        "security": [],
        "parameters": [{"$ref": _REF.format(kind="parameters", name=name)} for name in HEADERS],
        "requestBody": {
            "description": "What happened.",
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": _REF.format(kind="schemas", name=schema_name(type_))},
                    "examples": {type_: {"summary": SUMMARIES[type_], "value": example(type_)}},
                }
            },
        },
        "responses": {status: {"description": meaning} for status, meaning in ANSWERS.items()},
    }


def parameters() -> Json:
    """Return the headers of a webhook as shared parameters."""
    return {
        name: {"name": name, "in": "header", "required": True, **header} for name, header in HEADERS.items()
    }


def schema_name(type_: str) -> str:
    camel = _camel(type_)
    return f"{camel[0].upper()}{camel[1:]}Event"


def schemas(components: Mapping[str, Json]) -> Json:
    """Return a schema for each type, so that tools can distinguish them by `type`."""
    return {schema_name(type_): _narrowed(type_, components) for type_ in EVENT_TYPES}


def _narrowed(type_: str, components: Mapping[str, Json]) -> Json:
    kind = components[PAYLOADS[type_].__name__]
    properties = kind["properties"]
    return {
        **kind,
        "title": schema_name(type_),
        "description": MEANINGS[type_],
        "properties": {**properties, "type": {**properties["type"], "const": type_, "examples": [type_]}},
    }


def _camel(type_: str) -> str:
    first, second = type_.split(".")
    return first + second.capitalize()


KINDS: Final[Sequence[type]] = tuple(dict.fromkeys(PAYLOADS.values()))
