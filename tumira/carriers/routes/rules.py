"""Routing: each queue is served by the healthy carriers of the best route.

A route to a network comes before one to its country, then the lowest priority counts, then the lowest cost;
carriers with equal routes share. A carrier without a route to a country serves all of it by its own countries
and priority. The simulator serves only the countries that no other carrier covers, healthy or not.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final

from msgspec import Struct

from tumira.carriers.store import Carrier
from tumira.pricing.destinations import Price, PriceStatus

# Where the cost of a route is not known it counts as the dearest.
_DEAREST: Final = Decimal("Infinity")

# Lower comes first: network before country, then priority, then cost in US dollars.
Rank = tuple[int, int, Decimal]


# Costs are kept in millionths of a dollar.
MICRO: Final = Decimal("0.000001")


class SegmentCost(Struct, frozen=True):
    """What a carrier takes for a segment, if known; `rate` is what its currency is worth in USD."""

    amount: Decimal | None
    currency: str
    rate: Decimal

    def add_up(self, segments: int, told: tuple[Decimal, str] | None) -> tuple[Decimal, str, Decimal] | None:
        """Return the cost of some segments, its currency, and the same in US dollars; None if not known.

        `told` is what the carrier's answer says. It counts if it is in the same currency: some carriers count
        in credits, or do not say in what.
        """
        amount = None if self.amount is None else self.amount * segments
        if told is not None and told[1] == self.currency:
            amount = told[0]
        return None if amount is None else (amount, self.currency, (amount * self.rate).quantize(MICRO))


class CarrierRoute(Struct, frozen=True):
    """A route to a network, or without one to a country; `rate` is what its currency is worth in USD."""

    carrier_id: int
    carrier: str
    country: str
    network: str | None
    priority: int
    cost: Decimal | None
    currency: str
    rate: Decimal
    # What recipients see where the account has no name of its own; None for the carrier's own sender.
    sender: str | None = None

    @property
    def queue(self) -> str:
        return self.country if self.network is None else f"{self.country}-{self.network}"

    @property
    def cost_usd(self) -> Decimal | None:
        return None if self.cost is None else (self.cost * self.rate).quantize(MICRO)


# The carriers that may take the messages of a queue, each with the rank of its route.
Ranked = Sequence[tuple[Rank, Carrier]]


def rank_carriers(
    carriers: Sequence[Carrier], destinations: Sequence[str], routes: Sequence[CarrierRoute]
) -> Mapping[str, Ranked]:
    """Return for each queue the carriers that may serve it, healthy or not."""
    own = {(one.carrier_id, one.queue): one for one in routes}
    narrowed = {(one.carrier_id, one.country) for one in routes}
    found: dict[str, Ranked] = {}
    for country in destinations:
        covering = [one for one in carriers if one.covers(country)]
        covering = [one for one in covering if not one.simulator] or covering
        # Who serves the whole country, by a route of its own or without any.
        whole: list[tuple[Rank, Carrier]] = []
        for carrier in covering:
            route = own.get((carrier.id, country))
            if route is not None:
                whole.append((_rank(1, route), carrier))
            elif (carrier.id, country) not in narrowed:
                whole.append(((1, carrier.priority, _DEAREST), carrier))
        found[country] = whole
        for queue in sorted({one.queue for one in routes if one.country == country and one.network}):
            direct = [
                (_rank(0, route), carrier)
                for carrier in covering
                if (route := own.get((carrier.id, queue))) is not None
            ]
            ids = {carrier.id for _, carrier in direct}
            found[queue] = [*direct, *(one for one in whole if one[1].id not in ids)]
    return found


def _rank(step: int, route: CarrierRoute) -> Rank:
    cost = route.cost_usd
    return step, route.priority, _DEAREST if cost is None else cost


# By carrier and queue.
Costs = Mapping[tuple[int, str], SegmentCost]


def list_costs(routes: Sequence[CarrierRoute]) -> Costs:
    return {(one.carrier_id, one.queue): SegmentCost(one.cost, one.currency, one.rate) for one in routes}


def find_cost(costs: Costs, carrier_id: int, country: str, network: str | None) -> SegmentCost | None:
    """Return what a carrier takes for a segment to a network; None without a route."""
    return costs.get((carrier_id, f"{country}-{network}")) or costs.get((carrier_id, country))


def list_losing(
    routes: Sequence[CarrierRoute], prices: Iterable[Price]
) -> Sequence[tuple[CarrierRoute, Decimal]]:
    """Return the routes whose cost exceeds the price of their country, each with that price."""
    active = {one.country: one.price_usd for one in prices if one.status is PriceStatus.ACTIVE}
    return [
        (one, active[one.country])
        for one in routes
        if one.cost_usd is not None and one.country in active and one.cost_usd > active[one.country]
    ]


class Routes:
    def __init__(self) -> None:
        self._serving: Mapping[int, Sequence[str]] = {}
        self._covering: Mapping[int, Sequence[str]] = {}
        # Queues with another healthy carrier, and those with messages that another carrier left in doubt.
        self._relieved: Mapping[int, Collection[str]] = {}
        self._relieving: Mapping[int, Sequence[str]] = {}
        # Without any, no costs and senders need to be looked up.
        self.has_routes = False
        self._costs: Costs = {}
        self._senders: Mapping[tuple[int, str], str] = {}

    def queues_of(self, carrier: Carrier, *, trying: bool) -> Sequence[str]:
        return (self._covering if trying else self._serving).get(carrier.id, ())

    def is_avoided(self, carrier: Carrier, queue: str) -> bool:
        """Tell whether a message that was in doubt at a carrier is left to another, healthy one."""
        return queue in self._relieved.get(carrier.id, ())

    def queues_relieved(self, carrier: Carrier) -> Sequence[str]:
        """Return the queues from which a carrier takes only messages that others left in doubt."""
        return self._relieving.get(carrier.id, ())

    def cost_of(self, carrier: Carrier, country: str, network: str | None) -> SegmentCost | None:
        return find_cost(self._costs, carrier.id, country, network)

    def sender_of(self, carrier: Carrier, country: str, network: str | None) -> str | None:
        """Return the sender that a route to a network has; None if it has none."""
        direct = self._senders.get((carrier.id, f"{country}-{network}"))
        return direct or self._senders.get((carrier.id, country))

    def renew(
        self,
        carriers: Sequence[Carrier],
        well: Collection[int],
        destinations: Sequence[str],
        avoided: Collection[tuple[str, int]] = (),
        routes: Sequence[CarrierRoute] = (),
    ) -> None:
        """Divide the queues of the destinations among the carriers, of which these are healthy.

        `avoided` says in which queues messages wait that avoid which carriers.
        """
        relieved: dict[int, set[str]] = {carrier.id: set() for carrier in carriers}
        relieving: dict[int, dict[str, None]] = {carrier.id: {} for carrier in carriers}
        covering: dict[int, list[str]] = {carrier.id: [] for carrier in carriers}
        serving: dict[int, list[str]] = {carrier.id: [] for carrier in carriers}
        for queue, able in rank_carriers(carriers, destinations, routes).items():
            # While none is healthy, each may try what it covers.
            first = min((rank for rank, carrier in able if carrier.id in well), default=None)
            for rank, carrier in able:
                covering[carrier.id].append(queue)
                if first is None or (rank == first and carrier.id in well):
                    serving[carrier.id].append(queue)
            for _, carrier in able:
                others = [one for one in able if one[1].id in well and one[1].id != carrier.id]
                if not others:
                    continue
                relieved[carrier.id].add(queue)
                if (queue, carrier.id) in avoided:
                    next_best = min(rank for rank, _ in others)
                    for rank, one in others:
                        if rank == next_best and queue not in serving[one.id]:
                            relieving[one.id][queue] = None
        self._covering, self._serving = covering, serving
        self._relieved = relieved
        self._relieving = {carrier_id: tuple(own) for carrier_id, own in relieving.items()}
        self.has_routes = bool(routes)
        self._costs = list_costs(routes)
        self._senders = {(one.carrier_id, one.queue): one.sender for one in routes if one.sender is not None}
