"""The price of a checked file: of the unsent rest, and of each chunk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from tumira.postgres.connection import Connection
from tumira.pricing.destinations import PriceStatus, Tariff, sort_recipients
from tumira.pricing.phone_numbers import CHANNEL
from tumira.pricing.quote import Leg, Quote
from tumira.pricing.segments import measure
from tumira.pricing.store import get_tariff
from tumira.uploads import chunks
from tumira.uploads.chunks import Chunk
from tumira.uploads.store import Upload


@dataclass(frozen=True, slots=True)
class CountryCost:
    """The messages to one country, with their segments in all and their cost."""

    country: str
    count: int = 0
    segments: int = 0
    cost: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class UploadOffer:
    """The cost of the rest of a file; `unreachable` of its numbers cannot be sent to any more."""

    parts: Sequence[CountryCost]
    count: int
    total_cost: Decimal
    unreachable: int
    costs: Mapping[int, Decimal]


@dataclass(frozen=True, slots=True)
class PricedChunk:
    """A chunk, priced; messages of one leg have the same country and length."""

    quote: Quote
    leg_segments: Sequence[int]
    unreachable: int


async def price_rest(connection: Connection, upload: Upload) -> UploadOffer:
    """Price the unsent rest of a file by the current tariff."""
    tariff = await get_tariff(connection)
    active = {
        price.country: price.price_usd
        for price in tariff.prices
        if price.channel == CHANNEL and price.status is PriceStatus.ACTIVE
    }
    parts: dict[str, CountryCost] = {}
    costs: dict[int, Decimal] = {}
    unreachable = 0
    for number, legs in (await chunks.list_unsent_legs(connection, upload.id)).items():
        costs[number] = Decimal(0)
        for country, segments, count in legs:
            price_usd = active.get(country)
            if price_usd is None:
                unreachable += count
                continue
            cost = count * segments * price_usd
            costs[number] += cost
            part = parts.get(country, CountryCost(country))
            parts[country] = CountryCost(
                country, part.count + count, part.segments + count * segments, part.cost + cost
            )
    count = sum(part.count for part in parts.values())
    return UploadOffer([*parts.values()], count, sum(costs.values(), Decimal(0)), unreachable, costs)


def price_chunk(tariff: Tariff, message: str, chunk: Chunk) -> PricedChunk:
    reached = {one.number: one for one in sort_recipients(tariff, CHANNEL, chunk.recipients).accepted}
    texts = chunk.bodies or [message] * len(chunk.recipients)
    lengths = {text: measure(text).segments for text in set(texts)}
    places: dict[tuple[str, int], int] = {}
    prices_usd: list[Decimal] = []
    numbers: list[str] = []
    leg_of: list[int] = []
    for number, text in zip(chunk.recipients, texts, strict=True):
        recipient = reached.get(number)
        if recipient is None:
            continue
        leg = places.setdefault((recipient.country, lengths[text]), len(places))
        if leg == len(prices_usd):
            prices_usd.append(recipient.price_usd)
        numbers.append(number)
        leg_of.append(leg)
    counts = [0] * len(places)
    for leg in leg_of:
        counts[leg] += 1
    legs = [
        Leg(country, prices_usd[leg] * segments, counts[leg]) for (country, segments), leg in places.items()
    ]
    leg_segments = [segments for _, segments in places]
    return PricedChunk(
        Quote(
            numbers=numbers,
            leg_of=leg_of,
            legs=legs,
            rejected=[],
            segments=max(leg_segments, default=1),
            total_cost=sum((leg.cost * leg.count for leg in legs), Decimal(0)),
            tariff_version=tariff.version,
            routed=tariff.routed,
        ),
        leg_segments,
        len(chunk.recipients) - len(numbers),
    )
