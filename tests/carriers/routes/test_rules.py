"""Which carrier serves a queue, at what cost, and which one takes messages that another left in doubt."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tumira.carriers.routes.rules import CarrierRoute, Routes, SegmentCost, list_losing, rank_carriers
from tumira.carriers.store import Carrier
from tumira.carriers.url import parse
from tumira.pricing.destinations import Price, PriceStatus

COUNTRIES = ("ZW", "ZA")


def carrier(identifier: int, priority: int, countries: tuple[str, ...] | None = None) -> Carrier:
    settings = parse("smpp://tester:secret@127.0.0.1:2775")
    return Carrier(identifier, f"carrier-{identifier}", settings, countries, priority, datetime.now(UTC))


FIRST, SECOND, THIRD = carrier(1, 10), carrier(2, 20), carrier(3, 30)
TWIN = carrier(4, 10)
ELSEWHERE = carrier(5, 1, ("ZA",))


def routes(*carriers: Carrier, well: set[int], avoided: set[tuple[str, int]]) -> Routes:
    found = Routes()
    found.renew(carriers, well, COUNTRIES, avoided)
    return found


def test_the_next_carrier_that_is_well_takes_what_the_first_left_in_doubt() -> None:
    found = routes(FIRST, SECOND, THIRD, well={1, 2, 3}, avoided={("ZW", 1)})
    assert found.is_avoided(FIRST, "ZW")
    assert found.queues_relieved(SECOND) == ("ZW",)
    assert found.queues_relieved(THIRD) == ()
    # It serves nothing else there.
    assert found.queues_of(SECOND, trying=False) == []
    assert found.queues_of(FIRST, trying=False) == ["ZW", "ZA"]


def test_the_carrier_after_it_does_so_while_the_next_is_not_well() -> None:
    found = routes(FIRST, SECOND, THIRD, well={1, 3}, avoided={("ZW", 1)})
    assert found.queues_relieved(SECOND) == ()
    assert found.queues_relieved(THIRD) == ("ZW",)


def test_a_carrier_that_serves_the_country_anyway_needs_no_word_for_it() -> None:
    found = routes(FIRST, TWIN, SECOND, well={1, 2, 4}, avoided={("ZW", 1)})
    assert found.is_avoided(FIRST, "ZW")
    assert found.queues_relieved(TWIN) == ()
    assert found.queues_relieved(SECOND) == ()


@pytest.mark.parametrize("others", [(), (SECOND,), (ELSEWHERE,)], ids=["alone", "away", "elsewhere"])
def test_without_another_that_is_well_a_message_goes_where_it_was_in_doubt(
    others: tuple[Carrier, ...],
) -> None:
    found = routes(FIRST, *others, well={1, ELSEWHERE.id}, avoided={("ZW", 1)})
    assert not found.is_avoided(FIRST, "ZW")


def test_nothing_is_taken_over_where_nothing_waits() -> None:
    found = routes(FIRST, SECOND, well={1, 2}, avoided=set())
    assert found.queues_relieved(SECOND) == ()


def route(
    carrier: Carrier, network: str | None, priority: int, cost: str | None = None, rate: str = "1"
) -> CarrierRoute:
    amount = None if cost is None else Decimal(cost)
    currency = "USD" if rate == "1" else "ZAR"
    return CarrierRoute(carrier.id, carrier.name, "ZW", network, priority, amount, currency, Decimal(rate))


def served(
    *given: CarrierRoute, well: Sequence[Carrier], carriers: Sequence[Carrier] = ()
) -> dict[str, set[int]]:
    """Return which carriers serve which queue of Zimbabwe."""
    found = Routes()
    every = carriers or (FIRST, SECOND, THIRD)
    found.renew(every, {one.id for one in well}, ["ZW"], (), given)
    queues: dict[str, set[int]] = {}
    for one in every:
        for queue in found.queues_of(one, trying=False):
            queues.setdefault(queue, set()).add(one.id)
    return queues


ALL: Final = (FIRST, SECOND, THIRD)


def test_a_route_to_a_network_comes_before_all_others_and_falls_back_to_the_country() -> None:
    econet = route(THIRD, "econet", 999)
    assert served(econet, well=ALL) == {"ZW": {1}, "ZW-econet": {3}}
    # Without its carrier the country's carriers take it, by their own priorities.
    assert served(econet, well=(FIRST, SECOND)) == {"ZW": {1}, "ZW-econet": {1}}
    assert served(econet, well=(SECOND,)) == {"ZW": {2}, "ZW-econet": {2}}
    # With none that is well each may try what it may serve; the third serves this network alone.
    assert served(econet, well=()) == {"ZW": {1, 2}, "ZW-econet": {1, 2, 3}}


def test_the_lowest_cost_counts_inside_a_priority() -> None:
    cheap, dear = route(SECOND, None, 10, "0.011"), route(THIRD, None, 10, "0.012")
    assert served(cheap, dear, route(FIRST, None, 10), well=ALL) == {"ZW": {2}}
    assert served(cheap, dear, route(FIRST, None, 10), well=(FIRST, THIRD)) == {"ZW": {3}}
    # A priority comes first, whatever it costs, and equal routes share.
    assert served(cheap, dear, route(FIRST, None, 5, "0.9"), well=ALL) == {"ZW": {1}}
    assert served(cheap, route(THIRD, None, 10, "0.011"), route(FIRST, None, 11), well=ALL) == {"ZW": {2, 3}}
    # Costs are compared in US dollars: 0.2 rand is less than 0.011 dollars.
    assert served(cheap, route(THIRD, None, 10, "0.2", "0.05"), route(FIRST, None, 99), well=ALL) == {
        "ZW": {3}
    }


def test_a_carrier_with_routes_to_a_country_serves_only_those() -> None:
    assert served(route(FIRST, "econet", 1), well=(FIRST,), carriers=(FIRST,)) == {"ZW-econet": {1}}
    both = (route(FIRST, "econet", 1), route(SECOND, "netone", 1))
    ranked = rank_carriers((FIRST, SECOND), ["ZW", "ZA"], both)
    # Nobody takes messages to the other networks of Zimbabwe, and both those to South Africa as before.
    assert ranked["ZW"] == []
    assert {carrier.id for _, carrier in ranked["ZA"]} == {1, 2}


def test_a_route_outside_the_countries_of_its_carrier_leads_nowhere() -> None:
    econet = route(ELSEWHERE, "econet", 1)
    assert served(econet, well=(FIRST, ELSEWHERE), carriers=(FIRST, ELSEWHERE)) == {
        "ZW": {1},
        "ZW-econet": {1},
    }


def test_the_cost_of_a_segment_is_that_of_the_route_it_took() -> None:
    found = Routes()
    assert found.cost_of(FIRST, "ZW", "econet") is None
    given = [
        route(FIRST, "econet", 1, "0.2", "0.05"),
        route(FIRST, None, 1, "0.03"),
        route(SECOND, "econet", 1),
    ]
    found.renew(ALL, {1}, ["ZW"], (), given)
    assert found.cost_of(FIRST, "ZW", "econet") == SegmentCost(Decimal("0.2"), "ZAR", Decimal("0.05"))
    assert found.cost_of(FIRST, "ZW", "netone") == SegmentCost(Decimal("0.03"), "USD", Decimal(1))
    assert found.cost_of(FIRST, "ZW", None) == SegmentCost(Decimal("0.03"), "USD", Decimal(1))
    assert found.cost_of(SECOND, "ZW", "econet") == SegmentCost(None, "USD", Decimal(1))
    assert found.cost_of(SECOND, "ZW", "netone") is None
    assert found.cost_of(FIRST, "ZA", "mtn") is None


def test_what_an_answer_says_of_the_cost_counts_in_the_currency_of_the_route() -> None:
    rand = SegmentCost(Decimal("0.2"), "ZAR", Decimal("0.05"))
    assert rand.add_up(3, None) == (Decimal("0.6"), "ZAR", Decimal("0.030000"))
    assert rand.add_up(3, (Decimal("0.5"), "ZAR")) == (Decimal("0.5"), "ZAR", Decimal("0.025000"))
    # Credits, or nobody knows what.
    for told in ((Decimal(3), "CREDITS"), (Decimal(3), "")):
        assert rand.add_up(3, told) == (Decimal("0.6"), "ZAR", Decimal("0.030000"))
    unknown = SegmentCost(None, "ZAR", Decimal("0.05"))
    assert unknown.add_up(1, None) is None
    assert unknown.add_up(1, (Decimal("0.4"), "ZAR")) == (Decimal("0.4"), "ZAR", Decimal("0.020000"))


def test_a_route_loses_money_when_its_cost_exceeds_the_price() -> None:
    prices = [
        Price("sms", "ZW", Decimal("0.0400"), PriceStatus.ACTIVE),
        Price("sms", "ZW", Decimal("0.0100"), PriceStatus.COMING_SOON),
    ]
    equal, above = route(FIRST, None, 1, "0.04"), route(SECOND, "econet", 1, "0.040001")
    unknown = route(THIRD, None, 1)
    assert list_losing([equal, above, unknown], prices) == [(above, Decimal("0.0400"))]
    assert list_losing([above], []) == []


carriers_st = st.lists(
    st.sampled_from([FIRST, SECOND, THIRD, TWIN]), min_size=1, unique_by=lambda one: one.id
)
routes_st = st.lists(
    st.builds(
        route,
        st.sampled_from([FIRST, SECOND, THIRD, TWIN]),
        st.sampled_from([None, "econet", "netone"]),
        st.integers(0, 2),
        st.sampled_from([None, "0.01", "0.02"]),
    ),
    max_size=8,
    unique_by=lambda one: (one.carrier_id, one.network),
)


@given(carriers_st, routes_st, st.sets(st.sampled_from([1, 2, 3, 4])))
def test_whatever_the_routes_a_queue_is_served_by_the_best_that_are_well(
    carriers: Sequence[Carrier], given_routes: Sequence[CarrierRoute], well: set[int]
) -> None:
    ranked = rank_carriers(carriers, ["ZW"], given_routes)
    found = served(*given_routes, well=[one for one in carriers if one.id in well], carriers=carriers)
    for queue, able in ranked.items():
        ids = [carrier.id for _, carrier in able]
        assert len(ids) == len(set(ids))
        healthy = [(rank, carrier.id) for rank, carrier in able if carrier.id in well]
        expected = {one for rank, one in healthy if rank == min(healthy)[0]} if healthy else set(ids)
        assert found.get(queue, set()) == expected
        # Whoever serves the whole country is there for each of its networks.
        assert {carrier.id for _, carrier in ranked["ZW"]} <= set(ids)


def test_before_routes_are_known_a_carrier_serves_nothing() -> None:
    found = Routes()
    assert not found.has_routes
    assert [found.queues_of(FIRST, trying=trying) for trying in (True, False)] == [(), ()]
    assert not found.is_avoided(FIRST, "ZW")
    assert found.queues_relieved(FIRST) == ()
    assert found.cost_of(FIRST, "ZW", "econet") is None
    assert found.sender_of(FIRST, "ZW", "econet") is None


def test_a_route_to_a_network_names_its_own_sender_before_that_of_the_country() -> None:
    found = Routes()
    named = [
        structs.replace(route(FIRST, "econet", 1), sender="Econet name"),
        structs.replace(route(FIRST, None, 1), sender="Country name"),
        structs.replace(route(SECOND, "econet", 1), sender="Only one"),
        route(THIRD, None, 1),
    ]
    found.renew([FIRST, SECOND, THIRD], {1, 2, 3}, COUNTRIES, routes=named)
    assert found.has_routes
    senders = [found.sender_of(FIRST, "ZW", name) for name in ("econet", "netone", None)]
    assert senders == ["Econet name", "Country name", "Country name"]
    assert found.sender_of(FIRST, "ZA", "econet") is None
    assert [found.sender_of(SECOND, "ZW", name) for name in ("econet", "netone")] == ["Only one", None]
    assert found.sender_of(THIRD, "ZW", "econet") is None
