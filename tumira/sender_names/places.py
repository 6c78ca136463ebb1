"""Places where a sender name may be used: a country, or one network of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tumira.core.errors import FieldError
from tumira.core.translation import _
from tumira.pricing.destinations import Tariff
from tumira.pricing.networks import list_networks, write_network


@dataclass(frozen=True, slots=True)
class Place:
    """A country, or one network of it; `network` is empty for all networks."""

    country: str
    network: str = ""

    def __str__(self) -> str:
        return f"{self.country}-{self.network}" if self.network else self.country


def read_place(text: str) -> Place:
    country, _dash, network = text.partition("-")
    return Place(country, network)


def list_places(tariff: Tariff) -> Sequence[Place]:
    """Return all countries that can be sent to, each before its networks."""
    return [Place(country, network) for country in tariff.names for network in ("", *list_networks(country))]


def check_place(place: Place, tariff: Tariff) -> None:
    if place not in list_places(tariff):
        known = ", ".join(map(str, list_places(tariff)))
        raise FieldError("place", _("Choose one of these places: {known}.").format(known=known))


def describe_place(place: Place, tariff: Tariff) -> str:
    country = tariff.names.get(place.country, place.country)
    return f"{country} ({write_network(place.network)})" if place.network else country
