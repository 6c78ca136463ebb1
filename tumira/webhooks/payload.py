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

Of a completed batch only `refunded` can still grow, by a late receipt; the current value is sent.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct

from tumira.core import money
from tumira.core.ids import BATCH, MESSAGE, BatchId, write_id
from tumira.events import EVENT_TYPES, Event
from tumira.sending.batches import Batch, Message
from tumira.sending.low_balance import LowBalance
from tumira.sending.views import (
    BatchIdText,
    BatchSummary,
    MessageView,
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


class BalanceEvent(Payload[LowBalance]):
    """Something happened to the balance."""


class WebhookTestEvent(Payload[WebhookTest]):
    """A test of the endpoint."""


_OTHERS: Final[Mapping[str, type[Payload[Any]]]] = {
    "batch.completed": BatchEvent,
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


def write_payload(event: Event, message: Message | None, batch: Batch | None) -> bytes:
    """Write what an event says, the same bytes whenever it is asked.

    An event of a message needs the message and its batch, one of a batch the batch, any other neither.
    """
    data: MessageNews | BatchSummary | Raw
    if event.type.startswith(_MESSAGE_PREFIX):
        assert message is not None
        assert batch is not None
        data = _news(event, message, batch)
    elif event.type == "batch.completed":
        assert batch is not None
        data = view_batch(batch)
        data.status = "completed"
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


def webhook_test_data() -> str:
    """Write the data of `webhook.test`, which is stored with the event."""
    return _encode(WebhookTest("This is a test of your webhook endpoint.")).decode()
