"""A batch is cut by network, and each leg has its own price, length and queue."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from tumira.pricing.legs import NewLeg, split_by_network
from tumira.pricing.quote import Leg, Quote

ECONET, ECONET2, NETONE, VODACOM = "+263771200001", "+263781200001", "+263712000001", "+27821230001"
PRICE: Final = Decimal("0.04")
ROUTED: Final = frozenset({"ZW-netone"})


def quoted(*numbers: str, routed: frozenset[str] = frozenset()) -> Quote:
    countries = list(dict.fromkeys("ZW" if number.startswith("+263") else "ZA" for number in numbers))
    leg_of = [countries.index("ZW" if number.startswith("+263") else "ZA") for number in numbers]
    legs = [Leg(country, PRICE, leg_of.count(place)) for place, country in enumerate(countries)]
    return Quote(numbers, leg_of, legs, [], 2, PRICE * len(numbers), 1, routed)


def split(
    quote: Quote, leg_segments: Sequence[int] | None = None, ported: Mapping[str, str] | None = None
) -> tuple[list[tuple[str, str, str, int, int]], list[int]]:
    legs, leg_of = split_by_network(quote, leg_segments, ported or {})
    assert {leg.cost for leg in legs} == {PRICE}
    return [(leg.country, leg.network, leg.queue, leg.segments, leg.count) for leg in legs], list(leg_of)


def test_a_single_number_is_in_its_network_or_in_the_one_it_was_ported_to() -> None:
    assert split(quoted(NETONE)) == ([("ZW", "netone", "ZW", 2, 1)], [0])
    assert split(quoted(NETONE, routed=ROUTED)) == ([("ZW", "netone", "ZW-netone", 2, 1)], [0])
    assert split(quoted(VODACOM), ported={VODACOM: "mtn"}) == ([("ZA", "mtn", "ZA", 2, 1)], [0])
    assert split(quoted(VODACOM), [3], {"+27821230002": "mtn"}) == ([("ZA", "vodacom", "ZA", 3, 1)], [0])


def test_numbers_of_a_network_share_a_leg() -> None:
    numbers = (VODACOM, ECONET, NETONE, ECONET2, ECONET, "+27821230002")
    expected = [
        ("ZA", "vodacom", "ZA", 5, 2),
        ("ZW", "econet", "ZW", 1, 3),
        ("ZW", "netone", "ZW-netone", 1, 1),
    ]
    found = split(quoted(*numbers, routed=ROUTED), [5, 1])
    assert found == (expected, [0, 1, 2, 1, 1, 0])


def test_a_ported_number_is_apart_from_those_that_begin_like_it() -> None:
    before, ported, after = "+27821230001", "+27821230002", "+27821230003"
    found = split(quoted(before, ported, after), ported={ported: "cellc"})
    assert found == ([("ZA", "vodacom", "ZA", 2, 2), ("ZA", "cellc", "ZA", 2, 1)], [0, 1, 0])
    found = split(quoted(ported, before), ported={ported: "cellc"})
    assert found == ([("ZA", "cellc", "ZA", 2, 1), ("ZA", "vodacom", "ZA", 2, 1)], [0, 1])


def test_a_leg_has_the_price_of_its_country() -> None:
    quote = quoted(ECONET, VODACOM)
    legs = [Leg("ZW", PRICE, 1), Leg("ZA", PRICE / 2, 1)]
    found, _ = split_by_network(Quote(quote.numbers, quote.leg_of, legs, [], 1, PRICE, 1), None, {})
    assert list(found) == [
        NewLeg("ZW", "econet", "ZW", PRICE, 1, 1),
        NewLeg("ZA", "vodacom", "ZA", PRICE / 2, 1, 1),
    ]
