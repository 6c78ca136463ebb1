"""Payloads of webhooks, written from the current rows when an event is sent.

An event is sent again for days and replayed for weeks, and its rows may change meanwhile. Every attempt sends
the same bytes, so a message is shown as it was when the event happened:

- The status is that of the event's type. A refund comes with `failed`, `expired` or `undelivered`, which are
  final, so `message.refunded` takes the status of the row.
- Of the other statuses with an event only `sent` and `unconfirmed` change later. The columns set then
  (`delivered_at`, `failure_reason`, `refunded_at`) are left out of `message.sent` and `message.unconfirmed`.
- A message that did not arrive is refunded in the same transaction, or later, or never. Its event shows a
  refund of the same moment or an earlier one; a later one has an event of its own.
- `sent_at` is set when the message becomes `sent` and never after that, nor after any final status, so the
  row still has it.
- Number, country, segments, cost, batch and reference never change. The text is never included.

A reply is shown as it is stored. Its text is erased after a week; from then on its events have none.

Of a completed batch only `refunded` can still grow, by a late receipt; the current value is sent.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, Generic, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, Struct

from tumira.core import money
from tumira.core.ids import BATCH, MESSAGE, REPLY, BatchId, read_id, write_id
from tumira.events import EVENT_TYPES, REPLY_EVENTS, Event
from tumira.replies.store import Reply
from tumira.sending.batches import Batch, Message
from tumira.sending.low_balance import LowBalance
from tumira.sending.views import (
    BatchIdText,
    BatchSummary,
    MessageIdText,
    MessageView,
    ReplyIdText,
    Time,
    view_batch,
    write_time,
    write_time_or_none,
)

_CACHED: Final = 256
_MESSAGE_PREFIX: Final = "message."
_REFUNDED: Final = "message.refunded"
_DELIVERED: Final = "message.delivered"
# The message did not arrive, and stays so.
_UNDONE: Final = frozenset({"message.undelivered", "message.expired", "message.failed", _REFUNDED})

Data = TypeVar("Data")


class MessageNews(MessageView, kw_only=True):
    """The message as it was when the event happened; never its text."""

    batch_id: BatchIdText
    reference: Annotated[
        str | None,
        Meta(description="The batch's label, as sent; null when none was given.", examples=["order-1042"]),
    ]


class ReplyNews(Struct):
    """A reply of a recipient."""

    reply_id: ReplyIdText
    from_: Annotated[
        str,
        Meta(
            description="Who sent it: a number in E.164, or as the carrier wrote it where that is unknown.",
            examples=["+263771200001"],
        ),
    ] = msgspec.field(name="from")
    to: Annotated[str, Meta(description="The number or short code that it was sent to.", examples=["33123"])]
    text: Annotated[
        str | None,
        Meta(description="What it says; null once the text is erased.", examples=["Yes, I will be there."]),
    ]
    complete: Annotated[
        bool, Meta(description="False if parts of a long reply never arrived.", examples=[True])
    ]
    received_at: Annotated[Time, Meta(description="When its last part arrived.")]
    message_id: Annotated[
        MessageIdText | None, Meta(description="The message that was last sent to this number.")
    ]


class WebhookTest(Struct):
    """A greeting."""

    message: Annotated[
        str,
        Meta(
            description="A sentence for people; its wording may change.",
            examples=["This is a test of your webhook endpoint."],
        ),
    ]


class Payload(Struct, Generic[Data]):
    """The body of a webhook."""

    type: Annotated[
        str,
        Meta(
            description="What happened. New types may be added; answer 2xx to those you do not know.",
            examples=["message.delivered"],
        ),
    ]
    timestamp: Annotated[Time, Meta(description="When it happened; the same on every try.")]
    sequence: Annotated[
        int,
        Meta(
            ge=0,
            description="Numbers the account's events from 1 without holes. A `webhook.test` has 0.",
            examples=[4711],
        ),
    ]
    data: Data


class MessageEvent(Payload[MessageNews]):
    """Something happened to a message."""


class BatchEvent(Payload[BatchSummary]):
    """Something happened to a batch."""


class ReplyEvent(Payload[ReplyNews]):
    """A recipient replied."""


class BalanceEvent(Payload[LowBalance]):
    """Something happened to the balance."""


class WebhookTestEvent(Payload[WebhookTest]):
    """A test of the endpoint."""


_OTHERS: Final[Mapping[str, type[Payload[Any]]]] = {
    "batch.completed": BatchEvent,
    **dict.fromkeys(REPLY_EVENTS, ReplyEvent),
    "balance.low": BalanceEvent,
    "webhook.test": WebhookTestEvent,
}
# What the body of each type of event looks like.
PAYLOADS: Final[Mapping[str, type[Payload[Any]]]] = {
    type_: MessageEvent if type_.startswith(_MESSAGE_PREFIX) else _OTHERS[type_] for type_ in EVENT_TYPES
}

_encode: Final = msgspec.json.Encoder().encode

# The messages of a batch have the same batch, and most of them the same cost.
_write_cost: Final = lru_cache(_CACHED)(money.write)


@lru_cache(_CACHED)
def _write_batch_id(batch_id: BatchId) -> str:
    return write_id(BATCH, batch_id)


def reply_of(event: Event) -> UUID | None:
    """Return the reply that an event tells of."""
    if event.type not in REPLY_EVENTS:
        return None
    return read_id(REPLY, msgspec.json.decode(event.data or "{}", type=_ReplyName).reply_id)


class _ReplyName(Struct):
    reply_id: str = ""


def write_payload(
    event: Event, message: Message | None, batch: Batch | None, reply: Reply | None = None
) -> bytes:
    """Write what an event says, the same bytes whenever it is asked.

    An event of a message needs the message and its batch, one of a batch the batch, one of a reply the reply.
    """
    data: MessageNews | BatchSummary | ReplyNews | Raw
    if event.type.startswith(_MESSAGE_PREFIX):
        assert message is not None
        assert batch is not None
        data = _news(event, message, batch)
    elif event.type == "batch.completed":
        assert batch is not None
        data = view_batch(batch)
        data.status = "completed"
    elif event.type in REPLY_EVENTS:
        assert reply is not None
        data = _reply_news(reply)
    else:
        assert event.data is not None
        data = Raw(event.data)
    return _encode(Payload(event.type, write_time(event.at), event.sequence, data))


def _news(event: Event, message: Message, batch: Batch) -> MessageNews:
    undone = event.type in _UNDONE
    refunded_at = message.refunded_at
    shows_refund = undone and refunded_at is not None and (event.type == _REFUNDED or refunded_at <= event.at)
    return MessageNews(
        message_id=write_id(MESSAGE, message.id),
        to=message.recipient,
        country=message.country,
        status=message.status if event.type == _REFUNDED else event.type.removeprefix(_MESSAGE_PREFIX),
        segments=message.segments,
        cost=_write_cost(message.cost),
        sent_at=write_time_or_none(message.sent_at),
        delivered_at=write_time_or_none(message.delivered_at) if event.type == _DELIVERED else None,
        failure_reason=message.failure_reason if undone and message.failure_reason is not None else UNSET,
        refunded_at=write_time(refunded_at) if shows_refund and refunded_at is not None else UNSET,
        batch_id=_write_batch_id(batch.id),
        reference=batch.reference,
    )


def _reply_news(reply: Reply) -> ReplyNews:
    return ReplyNews(
        reply_id=write_id(REPLY, reply.id),
        from_=reply.number,
        to=reply.destination,
        text=reply.text,
        complete=reply.is_complete,
        received_at=write_time(reply.received_at),
        message_id=None if reply.message_id is None else write_id(MESSAGE, reply.message_id),
    )


def webhook_test_data() -> str:
    """Write the data of `webhook.test`, which is stored with the event."""
    return _encode(WebhookTest("This is a test of your webhook endpoint.")).decode()
