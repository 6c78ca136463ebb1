"""How are a message and a batch shown to their owner? The same in answers of the API and in events."""

from datetime import UTC, datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from tumira.core import money
from tumira.core.ids import BATCH, MESSAGE, write_id
from tumira.pricing.destinations import RECIPIENTS_MAX
from tumira.sending.batches import Batch, Message
from tumira.sending.fields import (
    BatchIdText,
    Channel,
    Country,
    Currency,
    MessageIdText,
    Money,
    Number,
    Segments,
    Time,
)
from tumira.sending.lifecycle import BATCH_STATUSES, FAILURE_REASONS, MESSAGE_STATUSES


class MessageView(Struct):
    """One recipient's outcome."""

    message_id: MessageIdText
    to: Number
    country: Country
    status: Annotated[
        str,
        Meta(
            description="Where the message stands; only `unconfirmed` may still change once final.",
            examples=["queued"],
            extra_json_schema={"enum": list(MESSAGE_STATUSES)},
        ),
    ]
    segments: Segments
    cost: Annotated[Money, Meta(description="What this message cost; not lowered by a refund.")]
    sent_at: Annotated[Time | None, Meta(description="When a carrier took it; null until then.")]
    delivered_at: Annotated[Time | None, Meta(description="When the handset had it; null until known.")]
    failure_reason: Annotated[
        str | UnsetType,
        Meta(
            description="Why it did not arrive; present only when set. New values may be added.",
            examples=["ABSENT_SUBSCRIBER"],
            extra_json_schema={"x-extensible-enum": list(FAILURE_REASONS)},
        ),
    ] = UNSET
    refunded_at: (
        Annotated[Time, Meta(description="When its cost was given back; present only when set.")] | UnsetType
    ) = UNSET


class BatchSummary(Struct):
    """A batch without its messages."""

    batch_id: BatchIdText
    status: Annotated[
        str,
        Meta(
            description="`completed` when every message is final.",
            examples=["queued"],
            extra_json_schema={"enum": list(BATCH_STATUSES)},
        ),
    ]
    channel: Channel
    reference: Annotated[
        str | None,
        Meta(description="Your label, as sent; null when none was given.", examples=["order-1042"]),
    ]
    recipients: Annotated[
        int, Meta(ge=0, le=RECIPIENTS_MAX, description="Recipients accepted into the batch.", examples=[2])
    ]
    segments: Segments
    total_cost: Annotated[Money, Meta(description="What was debited; not lowered by refunds.")]
    refunded: Annotated[Money, Meta(description="What was given back so far.", examples=["0.0000"])]
    currency: Currency
    created_at: Time


def view_message(message: Message) -> MessageView:
    """Show a message as it stands."""
    return MessageView(
        message_id=write_id(MESSAGE, message.id),
        to=message.recipient,
        country=message.country,
        status=message.status,
        segments=message.segments,
        cost=money.write(message.cost),
        sent_at=write_time_or_none(message.sent_at),
        delivered_at=write_time_or_none(message.delivered_at),
        failure_reason=UNSET if message.failure_reason is None else message.failure_reason,
        refunded_at=UNSET if message.refunded_at is None else write_time(message.refunded_at),
    )


def view_batch(batch: Batch) -> BatchSummary:
    """Show a batch as it stands."""
    return BatchSummary(
        batch_id=write_id(BATCH, batch.id),
        status=batch.status,
        channel=batch.channel,
        reference=batch.reference,
        recipients=batch.recipients,
        segments=batch.segments,
        total_cost=money.write(batch.total_cost),
        refunded=money.write(batch.refunded),
        currency=money.CURRENCY,
        created_at=write_time(batch.created_at),
    )


def write_time(at: datetime) -> str:
    """Write a moment as all of them are written: UTC, with milliseconds and offset."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds")


def write_time_or_none(at: datetime | None) -> str | None:
    """Write a moment that may not have come yet."""
    return None if at is None else write_time(at)
