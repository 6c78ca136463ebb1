"""What do requests and answers look like? The OpenAPI document is made from these classes."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from tumira.actions.calls import Priced, Sent
from tumira.errors import RecipientCode
from tumira.ids import BATCH, MESSAGE, write_id
from tumira.rules import money
from tumira.rules.destinations import Price, Rejected
from tumira.store.batches import Batch, Message

REFERENCE_MAX: Final = 64

Money = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,10}\.[0-9]{4}$", description="US dollars with four decimals.", examples=["0.0800"]
    ),
]
Currency = Annotated[str, Meta(description="Always USD.", examples=["USD"])]
Time = Annotated[
    str,
    Meta(
        description="ISO 8601, UTC, with milliseconds and offset.",
        examples=["2026-11-15T08:30:00.000+00:00"],
        extra_json_schema={"format": "date-time"},
    ),
]
BatchIdText = Annotated[str, Meta(pattern="^bat_[0-9a-z]{26}$", examples=["bat_01k9xq4b8jf2r6zj3m5n7p9t1v"])]
MessageIdText = Annotated[
    str, Meta(pattern="^msg_[0-9a-z]{26}$", examples=["msg_01k9xq4b8jf2r6zj00h4k8w3ez"])
]
Country = Annotated[
    str, Meta(pattern="^[A-Z]{2}$", description="Two-letter destination code.", examples=["ZW", "ZA"])
]
Segments = Annotated[int, Meta(ge=1, le=5)]


class SendRequest(Struct, forbid_unknown_fields=True):
    """One text to one or many recipients."""

    channel: Annotated[
        str,
        Meta(
            description="`sms`. `telegram` and `whatsapp` are reserved and not usable.",
            examples=["sms"],
            extra_json_schema={"enum": ["sms", "telegram", "whatsapp"]},
        ),
    ]
    to: Annotated[
        str | Annotated[list[str], Meta(min_length=1, max_length=1000)],
        Meta(
            description="E.164 numbers, at most 1,000; a single string is a single recipient.",
            examples=["+263771200001", ["+263771200001", "+27821230002"]],
        ),
    ]
    body: Annotated[
        str,
        Meta(
            min_length=1,
            description="Message text; at most 5 segments.",
            examples=["Your code is 493817. It is valid for 10 minutes."],
        ),
    ]
    reference: Annotated[
        str | UnsetType,
        Meta(
            max_length=REFERENCE_MAX,
            description="Your label; returned on batch lookups.",
            examples=["order-1042"],
        ),
    ] = UNSET
    dry_run: Annotated[
        bool | UnsetType, Meta(description="When true, the batch is priced but not sent or billed.")
    ] = UNSET


class RejectedEntry(Struct):
    """A recipient that was not accepted; it is not sent to and not billed."""

    to: Annotated[str, Meta(description="The number as you wrote it.", examples=["+15550100"])]
    code: RecipientCode


class SendResponse(Struct):
    """A live send was accepted: it is stored, paid and waiting for a carrier."""

    batch_id: BatchIdText
    accepted: Annotated[int, Meta(ge=0, le=1000, description="Distinct recipients accepted.", examples=[2])]
    rejected: list[RejectedEntry]
    segments: Segments
    total_cost: Money
    currency: Currency
    balance_after: Money


class DryRunResponse(Struct):
    """What a live send would cost; nothing was stored or billed."""

    dry_run: Annotated[bool, Meta(description="Always true.", extra_json_schema={"const": True})]
    accepted: Annotated[int, Meta(ge=0, le=1000, description="Distinct recipients accepted.", examples=[2])]
    rejected: list[RejectedEntry]
    segments: Segments
    total_cost: Money
    currency: Currency


class MessageView(Struct):
    """One recipient's outcome."""

    message_id: MessageIdText
    to: Annotated[str, Meta(description="Recipient number, E.164.", examples=["+263771200001"])]
    country: Country
    status: Annotated[
        str,
        Meta(
            description="Where the message stands; only `unconfirmed` may still change once final.",
            examples=["queued"],
            extra_json_schema={
                "enum": [
                    "queued",
                    "sending",
                    "sent",
                    "delivered",
                    "undelivered",
                    "expired",
                    "unconfirmed",
                    "failed",
                ]
            },
        ),
    ]
    segments: Segments
    cost: Annotated[Money, Meta(description="Not lowered by a refund.")]
    sent_at: Time | None
    delivered_at: Time | None
    failure_reason: Annotated[
        str | UnsetType, Meta(description="Present only when set.", examples=["ABSENT_SUBSCRIBER"])
    ] = UNSET
    refunded_at: Annotated[Time | UnsetType, Meta(description="Present only when set.")] = UNSET


class BatchView(Struct):
    """A batch and every recipient's outcome."""

    batch_id: BatchIdText
    status: Annotated[
        str,
        Meta(
            description="`completed` when every message is final.",
            examples=["queued"],
            extra_json_schema={"enum": ["queued", "processing", "completed"]},
        ),
    ]
    channel: Annotated[str, Meta(examples=["sms"])]
    reference: Annotated[str | None, Meta(description="Your label, as sent.", examples=["order-1042"])]
    recipients: Annotated[int, Meta(ge=0, le=1000, examples=[2])]
    segments: Segments
    total_cost: Annotated[Money, Meta(description="Not lowered by refunds.")]
    refunded: Money
    currency: Currency
    created_at: Time
    messages: Annotated[list[MessageView], Meta(description="One entry per recipient, in the order given.")]


class BatchResponse(Struct):
    """The batch you looked up."""

    data: BatchView


class MessageResponse(Struct):
    """The message you looked up."""

    data: MessageView


class BalanceResponse(Struct):
    """What the account can spend."""

    balance: Money
    currency: Currency


class PriceView(Struct):
    """The price of one segment to one country."""

    channel: Annotated[str, Meta(examples=["sms"])]
    country: Country
    price_usd: Money
    status: Annotated[str, Meta(examples=["active"], extra_json_schema={"enum": ["active", "coming_soon"]})]


class PricingResponse(Struct):
    """All prices, announced ones included."""

    data: list[PriceView]
    currency: Currency


encode: Final = msgspec.json.Encoder().encode


def write_sent(sent: Sent) -> bytes:
    """Write the answer to a live send; it is stored and replayed byte for byte."""
    quote = sent.quote
    return encode(
        SendResponse(
            batch_id=write_id(BATCH, sent.batch_id),
            accepted=len(quote.numbers),
            rejected=_rejected(quote.rejected),
            segments=quote.segments,
            total_cost=money.write(quote.total_cost),
            currency=money.CURRENCY,
            balance_after=money.write(sent.balance_after),
        )
    )


def write_priced(priced: Priced) -> bytes:
    """Write the answer to a dry run."""
    quote = priced.quote
    return encode(
        DryRunResponse(
            dry_run=True,
            accepted=len(quote.numbers),
            rejected=_rejected(quote.rejected),
            segments=quote.segments,
            total_cost=money.write(quote.total_cost),
            currency=money.CURRENCY,
        )
    )


def _rejected(rejected: Sequence[Rejected]) -> list[RejectedEntry]:
    return [RejectedEntry(entry.to, entry.code) for entry in rejected]


def write_batch(batch: Batch, messages: Sequence[Message]) -> bytes:
    """Write a batch with its messages."""
    return encode(
        BatchResponse(
            BatchView(
                batch_id=write_id(BATCH, batch.id),
                status=batch.status,
                channel=batch.channel,
                reference=batch.reference,
                recipients=batch.recipients,
                segments=batch.segments,
                total_cost=money.write(batch.total_cost),
                refunded=money.write(batch.refunded),
                currency=money.CURRENCY,
                created_at=_time(batch.created_at),
                messages=[_message(message) for message in messages],
            )
        )
    )


def write_message(message: Message) -> bytes:
    """Write one message."""
    return encode(MessageResponse(_message(message)))


def _message(message: Message) -> MessageView:
    return MessageView(
        message_id=write_id(MESSAGE, message.id),
        to=message.recipient,
        country=message.country,
        status=message.status,
        segments=message.segments,
        cost=money.write(message.cost),
        sent_at=None if message.sent_at is None else _time(message.sent_at),
        delivered_at=None if message.delivered_at is None else _time(message.delivered_at),
        failure_reason=UNSET if message.failure_reason is None else message.failure_reason,
        refunded_at=UNSET if message.refunded_at is None else _time(message.refunded_at),
    )


def write_balance(balance: Decimal) -> bytes:
    """Write what the account can spend."""
    return encode(BalanceResponse(money.write(balance), money.CURRENCY))


def write_pricing(prices: Sequence[Price]) -> bytes:
    """Write the price list."""
    views = [
        PriceView(price.channel, price.country, money.write(price.price_usd), price.status)
        for price in prices
    ]
    return encode(PricingResponse(views, money.CURRENCY))


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds")
