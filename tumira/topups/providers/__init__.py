"""The interface of a payment provider: it is asked for money once, and then polled for the outcome."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Protocol

from tumira.core.ids import TopUpId
from tumira.topups.states import ProviderAnswer


@dataclass(frozen=True, slots=True)
class Order:
    """A top-up as its provider needs to know it."""

    id: TopUpId
    # The wallet, or who issued the voucher.
    provider: str
    # In the provider's currency; None for all that a voucher holds.
    asked: Decimal | None
    # How many of that currency make a US dollar.
    rate: Decimal
    phone: str | None
    email: str | None
    sealed_pin: bytes | None = field(repr=False)
    # What the provider gave us before.
    kept: Mapping[str, str]
    # Since it was asked for the money, or may have been.
    age: timedelta


class Provider(Protocol):
    """One way by which money comes in; whatever the other end or the line does is news, and never raised."""

    async def start(self, order: Order) -> ProviderAnswer:
        """Ask for the money. It is called once for an order; a lost answer is `Unclear`."""

    async def look(self, order: Order) -> ProviderAnswer:
        """Find out what became of an order; however often it is called, no money is taken twice."""

    async def close(self) -> None:
        """End the connections."""
