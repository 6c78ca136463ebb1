"""The interface of a payment provider: it is asked for money once, and then polled for the outcome."""

from datetime import datetime
from typing import Protocol

from tumira.topups.states import ProviderAnswer, TopUp


class Provider(Protocol):
    """One way to pay. Whatever fails at the provider or on the network is an answer, and never raised."""

    async def start(self, top_up: TopUp) -> ProviderAnswer:
        """Ask for the money. Called once for a top-up; a lost answer is `InDoubt`."""

    async def poll(self, top_up: TopUp, now: datetime) -> ProviderAnswer:
        """Poll for the outcome; however often it is called, no money is taken twice."""

    async def close(self) -> None: ...
