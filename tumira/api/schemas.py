"""The requests and answers of the API; the OpenAPI document is made from these classes."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from tumira.core import money
from tumira.core.errors import RecipientCode
from tumira.core.ids import BATCH, write_id
from tumira.pricing.destinations import RECIPIENTS_MAX, Price, Rejected
from tumira.pricing.quote import ECHO_MAX, REFERENCE_MAX
from tumira.sending.batches import Batch, Message
from tumira.sending.types import Priced, Sent
from tumira.sending.views import (
    BatchIdText,
    BatchSummary,
    Channel,
    Country,
    Currency,
    MessageView,
    Money,
    Segments,
    view_batch,
    view_message,
)

# The most characters that fit into 5 segments; texts outside GSM-7 end sooner.
BODY_MAX: Final = 765


class SendRequest(Struct, forbid_unknown_fields=True):
    """One text to one or many recipients."""

    channel: Annotated[
        str,
        Meta(
            description="`sms`. `telegram` and `whatsapp` are reserved and not usable yet.",
            examples=["sms"],
            extra_json_schema={"x-extensible-enum": ["sms"]},
        ),
    ]
    to: Annotated[
        str | Annotated[list[str], Meta(min_length=1, max_length=RECIPIENTS_MAX)],
        Meta(
            description="Numbers in E.164, at most 1,000; a single string is a single recipient. White space "
            "around a number is ignored, and a number given twice is sent to once.",
            examples=["+263771200001", ["+263771200001", "+27821230002"]],
        ),
    ]
    body: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=BODY_MAX,
            description="The message text: at most 5 segments, which is 765 characters of GSM-7, or 335 "
            "UTF-16 units of any other text. Marketing is refused, and so is a text that shows nothing.",
            examples=["Your code is 493817. It is valid for 10 minutes."],
        ),
    ]
    reference: (
        Annotated[
            str,
            Meta(
                max_length=REFERENCE_MAX,
                description="Your label; returned when you look up the batch.",
                examples=["order-1042"],
            ),
        ]
        | UnsetType
    ) = UNSET
    dry_run: Annotated[
        bool | UnsetType,
        Meta(description="When true, the batch is priced but not sent or billed.", examples=[False]),
    ] = UNSET


class RejectedEntry(Struct):
    """A recipient that was not accepted; it is not sent to and not billed."""

    to: Annotated[
        str,
        Meta(
            max_length=ECHO_MAX,
            description="The number as you wrote it; if that is longer than 64 characters, without white "
            "space around it, and of what is still longer the first 63 and `…`.",
            examples=["+15550100"],
        ),
    ]
    code: RecipientCode


Accepted = Annotated[
    int, Meta(ge=0, le=RECIPIENTS_MAX, description="Distinct recipients accepted.", examples=[2])
]
RejectedList = Annotated[
    list[RejectedEntry], Meta(description="Recipients not accepted, in the order given; empty when none.")
]


class SendResponse(Struct):
    """A live send was accepted: it is stored, paid and waiting for a carrier."""

    batch_id: BatchIdText
    accepted: Accepted
    rejected: RejectedList
    segments: Segments
    total_cost: Annotated[Money, Meta(description="What was debited.")]
    currency: Currency
    balance_after: Annotated[Money, Meta(description="The balance after the debit.", examples=["99.9400"])]


class DryRunResponse(Struct):
    """What a live send would cost; nothing was stored or billed."""

    dry_run: Annotated[bool, Meta(description="Always true.", extra_json_schema={"const": True})]
    accepted: Accepted
    rejected: RejectedList
    segments: Segments
    total_cost: Annotated[Money, Meta(description="What a live send would debit.")]
    currency: Currency


class BatchView(BatchSummary):
    """A batch and every recipient's outcome."""

    messages: Annotated[list[MessageView], Meta(description="One entry per recipient, in the order given.")]


class BatchResponse(Struct):
    """The batch you looked up."""

    data: BatchView


class MessageResponse(Struct):
    """The message you looked up."""

    data: MessageView


class BalanceResponse(Struct):
    """What the account can spend."""

    balance: Annotated[Money, Meta(description="The balance now.", examples=["99.9400"])]
    currency: Currency


class PriceView(Struct):
    """The price of one segment to one country."""

    channel: Channel
    country: Country
    price_usd: Annotated[Money, Meta(description="US dollars per segment.", examples=["0.0400"])]
    status: Annotated[
        str,
        Meta(
            description="`active` is charged now; `coming_soon` is announced and not yet charged.",
            examples=["active"],
            extra_json_schema={"enum": ["active", "coming_soon"]},
        ),
    ]


class PricingResponse(Struct):
    """All prices, announced ones included."""

    data: Annotated[list[PriceView], Meta(description="One entry per channel, country and status.")]
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
    views = [view_message(message) for message in messages]
    return encode(BatchResponse(BatchView(**structs.asdict(view_batch(batch)), messages=views)))


def write_message(message: Message) -> bytes:
    return encode(MessageResponse(view_message(message)))


def write_balance(balance: Decimal) -> bytes:
    return encode(BalanceResponse(money.write(balance), money.CURRENCY))


def write_pricing(prices: Sequence[Price]) -> bytes:
    views = [
        PriceView(price.channel, price.country, money.write(price.price_usd), price.status)
        for price in prices
    ]
    return encode(PricingResponse(views, money.CURRENCY))
