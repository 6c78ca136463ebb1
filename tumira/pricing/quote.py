"""The price of a send: who is accepted, at what cost, or why it is refused."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from msgspec import Struct

from tumira.core.errors import RecipientCode, Refusal, TooManyRecipients, TooManySegments
from tumira.pricing.destinations import NOBODY, RECIPIENTS_MAX, Rejected, Tariff, sort_recipients
from tumira.pricing.segments import SEGMENTS_MAX, measure, ucs2_characters

REFERENCE_MAX: Final = 64
# The longest entry that `rejected` repeats in full; a number has at most 16 characters.
ECHO_MAX: Final = 64
# Storage per account and day for sends that cost nothing.
UNBILLED_OCTETS_MAX: Final = 10_000_000
# Beside its text each of them stores rows with indexes, and each entry of `rejected`.
_CALL_OCTETS: Final = 1_000
_ENTRY_OCTETS: Final = 50


class ValidRequest(Struct, frozen=True):
    """A send whose fields are all valid."""

    channel: str
    to: Sequence[str]
    body: str
    reference: str | None
    dry_run: bool


class Leg(Struct, frozen=True):
    """The messages of a batch to one country: they cost the same."""

    country: str
    cost: Decimal
    count: int


class Quote(Struct, frozen=True):
    """A priced send: the accepted numbers in the order given, and the leg of each."""

    numbers: Sequence[str]
    leg_of: Sequence[int]
    legs: Sequence[Leg]
    rejected: Sequence[Rejected]
    segments: int
    total_cost: Decimal
    tariff_version: int
    # The networks with queues of their own, by the same tariff.
    routed: frozenset[str] = frozenset()


def quote(
    tariff: Tariff, request: ValidRequest, barred: Mapping[str, RecipientCode] = NOBODY
) -> Quote | Refusal:
    """Price a send by this tariff, or refuse it; `barred` are numbers that it may not go to."""
    if len(request.to) > RECIPIENTS_MAX:
        return TooManyRecipients(
            f"The call names {len(request.to)} numbers; split them over calls of at most {RECIPIENTS_MAX}.",
            details=[
                {
                    "field": "to",
                    "code": TooManyRecipients.code,
                    "message": f"At most {RECIPIENTS_MAX} numbers.",
                    "recipients": len(request.to),
                    "recipients_max": RECIPIENTS_MAX,
                }
            ],
        )
    recipients = sort_recipients(tariff, request.channel, request.to, barred)
    size = measure(request.body)
    if size.segments > SEGMENTS_MAX:
        return _too_long(request.body)
    if len(recipients.accepted) == 1 and not recipients.rejected:
        # Nearly every call; it costs a third of the general case.
        only = recipients.accepted[0]
        cost = only.price_usd * size.segments
        legs = [Leg(only.country, cost, 1)]
        return Quote([only.number], [0], legs, [], size.segments, cost, tariff.version, tariff.routed)
    places: dict[str, int] = {}
    prices: list[Decimal] = []
    leg_of: list[int] = []
    for recipient in recipients.accepted:
        place = places.get(recipient.country)
        if place is None:
            place = places[recipient.country] = len(prices)
            prices.append(recipient.price_usd)
        leg_of.append(place)
    legs = [
        Leg(country, prices[place] * size.segments, leg_of.count(place)) for country, place in places.items()
    ]
    return Quote(
        numbers=[recipient.number for recipient in recipients.accepted],
        leg_of=leg_of,
        legs=legs,
        rejected=[_echo(entry) if len(entry.to) > ECHO_MAX else entry for entry in recipients.rejected],
        segments=size.segments,
        total_cost=sum((leg.cost * leg.count for leg in legs), Decimal(0)),
        tariff_version=tariff.version,
        routed=tariff.routed,
    )


def _echo(entry: Rejected) -> Rejected:
    """Shorten an entry that is far too long for a number; it is stored with the answer."""
    text = entry.to.strip()
    return Rejected(text if len(text) <= ECHO_MAX else text[: ECHO_MAX - 1] + "…", entry.code)


def unbilled_octets(request: ValidRequest, priced: Quote) -> int:
    """Estimate what a send stores without being paid for; 0 if it costs anything."""
    if priced.total_cost:
        return 0
    rejected = sum(len(entry.to.encode()) + _ENTRY_OCTETS for entry in priced.rejected)
    return _CALL_OCTETS + len(request.body.encode()) + rejected


def _too_long(body: str) -> TooManySegments:
    size = measure(body)
    return TooManySegments(
        f"The text needs {size.segments} segments in {size.encoding}; shorten it to {SEGMENTS_MAX}.",
        details=[
            {
                "field": "body",
                "code": TooManySegments.code,
                "message": f"At most {SEGMENTS_MAX} segments.",
                "segments": size.segments,
                "segments_max": SEGMENTS_MAX,
                "encoding": size.encoding,
                "ucs2_characters": ucs2_characters(body),
            }
        ],
    )
