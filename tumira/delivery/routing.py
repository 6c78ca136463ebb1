"""Routing: each country is served by the healthy carriers of the best priority.

The simulator serves only the countries that no other carrier covers, healthy or not.
"""

from collections.abc import Collection, Mapping, Sequence

from tumira.delivery.store.carriers import Carrier


class Routes:
    def __init__(self) -> None:
        self._serving: Mapping[int, Sequence[str]] = {}
        self._covering: Mapping[int, Sequence[str]] = {}
        # Countries with another healthy carrier, and those with messages that another carrier left in doubt.
        self._relieved: Mapping[int, Collection[str]] = {}
        self._relieving: Mapping[int, Sequence[str]] = {}

    def countries_of(self, carrier: Carrier, *, trying: bool) -> Sequence[str]:
        return (self._covering if trying else self._serving).get(carrier.id, ())

    def is_avoided(self, carrier: Carrier, country: str) -> bool:
        """Tell whether a message that was in doubt at a carrier is left to another, healthy one."""
        return country in self._relieved.get(carrier.id, ())

    def countries_relieved(self, carrier: Carrier) -> Sequence[str]:
        """Return the countries in which a carrier takes only messages that others left in doubt."""
        return self._relieving.get(carrier.id, ())

    def renew(
        self,
        carriers: Sequence[Carrier],
        well: Collection[int],
        destinations: Sequence[str],
        avoided: Collection[tuple[str, int]] = (),
    ) -> None:
        """Divide the destinations among the carriers, of which these are healthy.

        `avoided` says in which countries messages wait that avoid which carriers.
        """
        relieved: dict[int, set[str]] = {carrier.id: set() for carrier in carriers}
        relieving: dict[int, dict[str, None]] = {carrier.id: {} for carrier in carriers}
        covering: dict[int, list[str]] = {carrier.id: [] for carrier in carriers}
        serving: dict[int, list[str]] = {carrier.id: [] for carrier in carriers}
        for country in destinations:
            able = [carrier for carrier in carriers if carrier.covers(country)]
            able = [carrier for carrier in able if not carrier.simulator] or able
            # While none is healthy, each may try what it covers.
            first = min((carrier.priority for carrier in able if carrier.id in well), default=None)
            for carrier in able:
                covering[carrier.id].append(country)
                if first is None or (carrier.priority == first and carrier.id in well):
                    serving[carrier.id].append(country)
            for carrier in able:
                others = [one for one in able if one.id in well and one.id != carrier.id]
                if not others:
                    continue
                relieved[carrier.id].add(country)
                if (country, carrier.id) in avoided:
                    next_best = min(one.priority for one in others)
                    for one in others:
                        if one.priority == next_best and country not in serving[one.id]:
                            relieving[one.id][country] = None
        self._covering, self._serving = covering, serving
        self._relieved = relieved
        self._relieving = {carrier_id: tuple(own) for carrier_id, own in relieving.items()}
