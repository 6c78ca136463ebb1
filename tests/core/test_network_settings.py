"""Where the networks of numbers are looked up; an error repeats neither the address nor the key."""

from collections.abc import Mapping

import pytest

from tumira.core.errors import OperatorError
from tumira.core.settings.networks import NetworkLookup, read_network_lookup

URL = "https://lookup.example/v1/{number}?key=hush"


def test_nothing_is_looked_up_unless_an_address_is_set() -> None:
    assert read_network_lookup({}) is None
    assert read_network_lookup({"TUMIRA_NETWORK_LOOKUP_HEADER": "X-Key: hush"}) is None


def test_the_address_and_the_header_are_read_and_not_shown() -> None:
    assert read_network_lookup({"TUMIRA_NETWORK_LOOKUP_URL": URL}) == NetworkLookup(URL)
    found = read_network_lookup(
        {"TUMIRA_NETWORK_LOOKUP_URL": URL, "TUMIRA_NETWORK_LOOKUP_HEADER": "Authorization: Bearer hush"}
    )
    assert found == NetworkLookup(URL, ("Authorization", "Bearer hush"))
    assert "hush" not in repr(found)


@pytest.mark.parametrize(
    "values",
    [
        {"TUMIRA_NETWORK_LOOKUP_URL": "https://lookup.example/hush"},
        {"TUMIRA_NETWORK_LOOKUP_URL": "ftp://lookup.example/{number}/hush"},
        {"TUMIRA_NETWORK_LOOKUP_URL": "hush/{number}"},
        {"TUMIRA_NETWORK_LOOKUP_URL": URL, "TUMIRA_NETWORK_LOOKUP_HEADER": "hush"},
        {"TUMIRA_NETWORK_LOOKUP_URL": URL, "TUMIRA_NETWORK_LOOKUP_HEADER": "X-Key: hush\nX: y"},
    ],
)
def test_what_cannot_be_is_refused_without_repeating_it(values: Mapping[str, str]) -> None:
    with pytest.raises(OperatorError) as refused:
        read_network_lookup(values)
    assert "TUMIRA_NETWORK_LOOKUP_" in str(refused.value)
    assert "hush" not in str(refused.value)
