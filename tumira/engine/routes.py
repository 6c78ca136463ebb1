"""Which carrier serves which country now? The first that is well, and its equals in priority."""

from collections.abc import Collection, Mapping, Sequence

from tumira.store.carriers import Carrier


class Routes:
    """What this worker knows of carriers and their health; renewed every second."""

    def __init__(self) -> None:
        self._serving: Mapping[int, Sequence[str]] = {}
        self._covering: Mapping[int, Sequence[str]] = {}

    def countries_of(self, carrier: Carrier, *, trying: bool) -> Sequence[str]:
        """Return the countries to claim for; a carrier that is being tried out may claim for all it has."""
        return (self._covering if trying else self._serving).get(carrier.id, ())

    def renew(self, carriers: Sequence[Carrier], well: Collection[int], destinations: Sequence[str]) -> None:
        """Divide the destinations anew among the carriers, of which these are well."""
        covering: dict[int, list[str]] = {carrier.id: [] for carrier in carriers}
        serving: dict[int, list[str]] = {carrier.id: [] for carrier in carriers}
        for country in destinations:
            able = [carrier for carrier in carriers if covers(carrier, country)]
            # While none is well, each may try what it can.
            first = min((carrier.priority for carrier in able if carrier.id in well), default=None)
            for carrier in able:
                covering[carrier.id].append(country)
                if first is None or (carrier.priority == first and carrier.id in well):
                    serving[carrier.id].append(country)
        self._covering, self._serving = covering, serving


def covers(carrier: Carrier, country: str) -> bool:
    """Tell whether a carrier may be used for a country."""
    return carrier.countries is None or country in carrier.countries
