"""Which carrier serves a country, and which one takes messages that another left in doubt."""

from datetime import UTC, datetime

import pytest

from tumira.delivery.carrier_url import parse
from tumira.delivery.routing import Routes
from tumira.delivery.store.carriers import Carrier

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
    assert found.countries_relieved(SECOND) == ("ZW",)
    assert found.countries_relieved(THIRD) == ()
    # It serves nothing else there.
    assert found.countries_of(SECOND, trying=False) == []
    assert found.countries_of(FIRST, trying=False) == ["ZW", "ZA"]


def test_the_carrier_after_it_does_so_while_the_next_is_not_well() -> None:
    found = routes(FIRST, SECOND, THIRD, well={1, 3}, avoided={("ZW", 1)})
    assert found.countries_relieved(SECOND) == ()
    assert found.countries_relieved(THIRD) == ("ZW",)


def test_a_carrier_that_serves_the_country_anyway_needs_no_word_for_it() -> None:
    found = routes(FIRST, TWIN, SECOND, well={1, 2, 4}, avoided={("ZW", 1)})
    assert found.is_avoided(FIRST, "ZW")
    assert found.countries_relieved(TWIN) == ()
    assert found.countries_relieved(SECOND) == ()


@pytest.mark.parametrize("others", [(), (SECOND,), (ELSEWHERE,)], ids=["alone", "away", "elsewhere"])
def test_without_another_that_is_well_a_message_goes_where_it_was_in_doubt(
    others: tuple[Carrier, ...],
) -> None:
    found = routes(FIRST, *others, well={1, ELSEWHERE.id}, avoided={("ZW", 1)})
    assert not found.is_avoided(FIRST, "ZW")


def test_nothing_is_taken_over_where_nothing_waits() -> None:
    found = routes(FIRST, SECOND, well={1, 2}, avoided=set())
    assert found.countries_relieved(SECOND) == ()
