"""Messages and batches as their owner sees them, in API answers and events, with the types of fields."""

from datetime import UTC, datetime
from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from tumira.core import money
from tumira.core.ids import BATCH, MESSAGE, write_id
from tumira.pricing.destinations import RECIPIENTS_MAX
from tumira.pricing.segments import SEGMENTS_MAX
from tumira.sending.batches import Batch, Message
from tumira.sending.lifecycle import BATCH_STATUSES, FAILURE_REASONS, MESSAGE_STATUSES

# The digits of `tumira.core.ids`: 130 bits, of which the first two are always zero.
ID_DIGITS: Final = "[0-7][0-9a-hjkmnp-tv-z]{25}"

Money = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,10}\.[0-9]{4}$",
        description="US dollars with four decimals, as a string.",
        examples=["0.0800"],
    ),
]
Currency = Annotated[str, Meta(pattern="^[A-Z]{3}$", description="Always `USD`.", examples=["USD"])]
Time = Annotated[
    str,
    Meta(
        description="ISO 8601, UTC, with milliseconds and offset.",
        examples=["2026-11-15T08:30:00.123+00:00"],
        extra_json_schema={"format": "date-time"},
    ),
]
BatchIdText = Annotated[
    str,
    Meta(
        pattern=f"^bat_{ID_DIGITS}$",
        description="The batch's id; ids sort by age.",
        examples=["bat_01m7f57pxve9nv59tdwh9edd1r"],
    ),
]
MessageIdText = Annotated[
    str,
    Meta(
        pattern=f"^msg_{ID_DIGITS}$",
        description="The message's id; the ids of a batch sort in the order of its recipients.",
        examples=["msg_01m7f57pxve9nv59tdr0352ckg"],
    ),
]
ReplyIdText = Annotated[
    str,
    Meta(
        pattern=f"^rpl_{ID_DIGITS}$",
        description="The reply's id; ids sort by age.",
        examples=["rpl_01m7f5bq3he4x9b0t2w6n8kzr5"],
    ),
]
Number = Annotated[
    str,
    Meta(
        pattern=r"^\+[1-9](?:[0-9]{6,14}|[0-9]{0,3}(?:•erased|•{6}[0-9]{3}))$",
        description="The recipient's number, in E.164. After 90 days its country and its last three digits "
        "are left of it, and after its owner asked to be forgotten its country.",
        examples=["+263771200001"],
    ),
]
# New countries and channels are added as values, so these are strings that tools must not close.
Country = Annotated[
    str,
    Meta(
        pattern="^[A-Z]{2}$",
        description="Two-letter code of the destination. New values appear as destinations are added.",
        examples=["ZW", "ZA"],
        extra_json_schema={"x-extensible-enum": ["ZW", "ZA"]},
    ),
]
Channel = Annotated[
    str,
    Meta(
        pattern="^[a-z]+$",
        description="How the messages travel. New values appear as channels are added.",
        examples=["sms"],
        extra_json_schema={"x-extensible-enum": ["sms"]},
    ),
]
Segments = Annotated[
    int, Meta(ge=1, le=SEGMENTS_MAX, description="Segments that the text takes.", examples=[1])
]


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
    """Write a time in UTC, with milliseconds and offset."""
    # By place and not by name, which takes twice as long.
    return at.astimezone(UTC).isoformat("T", "milliseconds")


def write_time_or_none(at: datetime | None) -> str | None:
    return None if at is None else write_time(at)
