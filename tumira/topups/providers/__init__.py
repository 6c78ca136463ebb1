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
    """A top-up as its provider needs it."""

    id: TopUpId
    # The wallet, or the issuer of the voucher.
    provider: str
    # In the provider's currency; None to take all that a voucher holds.
    asked: Decimal | None
    # Units of that currency per US dollar.
    rate: Decimal
    phone: str | None
    email: str | None
    sealed_pin: bytes | None = field(repr=False)
    # What the provider gave us earlier.
    kept: Mapping[str, str]
    # Since the provider was, or may have been, asked for the money.
    age: timedelta


class Provider(Protocol):
    """One way to pay. Whatever fails at the provider or on the network is an answer, and never raised."""

    async def start(self, order: Order) -> ProviderAnswer:
        """Ask for the money. Called once for an order; a lost answer is `InDoubt`."""

    async def poll(self, order: Order) -> ProviderAnswer:
        """Poll for the outcome; however often it is called, no money is taken twice."""

    async def close(self) -> None: ...
