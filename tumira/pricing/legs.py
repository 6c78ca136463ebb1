"""Legs of a batch: its messages by network, each with one price, one length and one queue."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from msgspec import Struct

from tumira.pricing.networks import START, find_network, knows_start, queue_of
from tumira.pricing.quote import Quote


class NewLeg(Struct, frozen=True):
    """The messages of a batch to one network: they cost the same, have one length and share a flow."""

    country: str
    network: str
    queue: str
    cost: Decimal
    segments: int
    count: int


def split_by_network(
    quote: Quote, leg_segments: Sequence[int] | None, ported: Mapping[str, str]
) -> tuple[Sequence[NewLeg], Sequence[int]]:
    """Return the legs of a quote cut into networks, and the leg of each number.

    `ported` are the numbers that are known to be in another network than their prefix says.
    """
    if len(quote.numbers) == 1:
        # Nearly every call; it costs a third of the general case.
        number = quote.numbers[0]
        return [_new_leg(quote, leg_segments, 0, ported.get(number) or find_network(number), 1)], quote.leg_of
    places: dict[tuple[int, str], int] = {}
    # By leg of the quote: numbers that begin alike are in one network, unless they are ported.
    by_start: Sequence[dict[str, int]] = [{} for _ in quote.legs]
    leg_of: list[int] = []
    for number, leg in zip(quote.numbers, quote.leg_of, strict=True):
        start = number[:START]
        place = by_start[leg].get(start)
        if place is None:
            network = ported.get(number) or find_network(number)
            place = places.setdefault((leg, network), len(places))
            if not ported and knows_start(start):
                by_start[leg][start] = place
        leg_of.append(place)
    legs = [
        _new_leg(quote, leg_segments, leg, network, leg_of.count(place))
        for place, (leg, network) in enumerate(places)
    ]
    return legs, leg_of


def _new_leg(
    quote: Quote, leg_segments: Sequence[int] | None, place: int, network: str, count: int
) -> NewLeg:
    leg = quote.legs[place]
    segments = quote.segments if leg_segments is None else leg_segments[place]
    return NewLeg(
        leg.country, network, queue_of(leg.country, network, quote.routed), leg.cost, segments, count
    )
