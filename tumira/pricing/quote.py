"""What would a send cost, and whom would it reach?"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from msgspec import Struct

from tumira.core.errors import Refusal, TooManyRecipients, TooManySegments
from tumira.pricing.destinations import RECIPIENTS_MAX, Rejected, Tariff, sort_recipients
from tumira.pricing.segments import SEGMENTS_MAX, measure, ucs2_characters

REFERENCE_MAX: Final = 64
# The longest entry that is given back whole in `rejected`; a number has at most 16 characters.
ECHO_MAX: Final = 64
# What sends that cost nothing may store for an account in a day.
UNBILLED_OCTETS_MAX: Final = 10_000_000
# What each of them takes beside its text: its rows with their indexes, and each entry of `rejected`.
_CALL_OCTETS: Final = 1_000
_ENTRY_OCTETS: Final = 50


class SendRequest(Struct, frozen=True):
    """What a caller wants sent; every field is of the right form."""

    channel: str
    to: Sequence[str]
    body: str
    reference: str | None
    dry_run: bool


class Leg(Struct, frozen=True):
    """The messages of a batch that go to one country: they cost the same and share a flow."""

    country: str
    cost: Decimal
    count: int


class Quote(Struct, frozen=True):
    """A priced send: who is accepted, in the order given, and on which leg each travels."""

    numbers: Sequence[str]
    leg_of: Sequence[int]
    legs: Sequence[Leg]
    rejected: Sequence[Rejected]
    segments: int
    total_cost: Decimal
    tariff_version: int


def quote(tariff: Tariff, request: SendRequest) -> Quote | Refusal:
    """Price a send by this tariff, or say why it cannot be sent at all."""
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
    recipients = sort_recipients(tariff, request.channel, request.to)
    size = measure(request.body)
    if size.segments > SEGMENTS_MAX:
        return _too_long(request.body)
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
    )


def _echo(entry: Rejected) -> Rejected:
    """Cut an entry that is far too long for a number: it is stored with the answer, for nothing."""
    text = entry.to.strip()
    return Rejected(text if len(text) <= ECHO_MAX else text[: ECHO_MAX - 1] + "…", entry.code)


def unbilled_octets(request: SendRequest, priced: Quote) -> int:
    """Return about how much a send stores that nobody pays for; nothing if it costs anything."""
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
