"""Who asks the providers for the money of top-ups? Each worker takes some that are due.

That a provider may have been asked is committed before it is. A worker that dies in between leaves a top-up
whose provider is asked what became of it, and never for the money again.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import structlog

from tumira.core import metrics
from tumira.core.database_errors import is_unavailable
from tumira.core.ids import TOP_UP, write_id
from tumira.core.loops import say_unavailable
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.providers import Order, Provider
from tumira.topups.settle import Settled, settle
from tumira.topups.states import (
    FailureReason,
    InDoubt,
    Method,
    NotPaid,
    ProviderAnswer,
    TopUp,
    TopUpState,
    Unreachable,
)
from tumira.topups.store import ClaimedTopUp
from tumira.topups.voucher_pins import Issuer

LOOK_S: Final = 1.0
# Of each provider, so that one that hangs delays only itself.
ASKING_MAX: Final = 8
# No call to a provider takes longer, the one for access before it included.
CALL_S: Final = 45.0
# Longer than a call and writing down what came of it, so that nobody else asks meanwhile.
LEASE_S: Final = 90.0
DRAIN_S: Final = 5.0

_RECORD_TRIES_MAX: Final = 20
_RECORD_PAUSE_S: Final = 1.0

_log: Final = structlog.get_logger()


def order_of(top_up: TopUp, now: datetime) -> Order:
    """Return a top-up as its provider needs to know it, by the database's clock."""
    return Order(
        id=top_up.id,
        provider=top_up.provider,
        asked=top_up.asked,
        rate=top_up.rate,
        phone=top_up.phone,
        email=top_up.kept.get("email"),
        sealed_pin=top_up.sealed_pin,
        kept=top_up.kept,
        age=now - (top_up.asked_at or now),
    )


# Every provider, also those to which this node has no access. Our own vouchers are redeemed without asking.
PROVIDER_KEYS: Final[Sequence[str]] = [Method.PAYNOW, *(one for one in Issuer if one is not Issuer.OWN)]


def provider_key(top_up: TopUp) -> str:
    """Return under which name the provider of a top-up is known: a voucher's issuer, or the method."""
    return top_up.provider if top_up.method is Method.VOUCHER else top_up.method


class TopUpWorker:
    """Asks the providers of one worker."""

    def __init__(self, database: Database, providers: Mapping[str, Provider]) -> None:
        self._database = database
        self._providers = providers
        # What is being asked, and whom.
        self._asking: dict[asyncio.Task[None], str] = {}

    async def run(self) -> None:
        """Ask until cancelled; what is under way then is given a moment to end."""
        try:
            while True:
                await self._pause(may_have_more=await self._look())
        finally:
            await self._stop()

    async def _look(self) -> bool:
        """Begin to ask for what is due, and tell whether more may be due than there was room for."""
        busy = Counter(self._asking.values())
        rooms = {desk: ASKING_MAX - busy[desk] for desk in PROVIDER_KEYS}
        until = asyncio.get_running_loop().time() + LEASE_S / 2
        try:
            async with self._database.transaction() as connection:
                claimed = await top_ups.claim_due(connection, rooms, LEASE_S)
        except Exception as error:  # noqa: BLE001 - looked for again in a second
            _log_failure(error, "top-ups not looked for")
            return False
        for one in claimed:
            task = asyncio.create_task(self._handle(one, until))
            self._asking[task] = provider_key(one.top_up)
            task.add_done_callback(self._asking.pop)
        return ASKING_MAX in Counter(self._asking.values()).values()

    async def _pause(self, *, may_have_more: bool) -> None:
        if may_have_more and self._asking:
            await asyncio.wait(self._asking, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(LOOK_S)

    async def _handle(self, claimed: ClaimedTopUp, until: float) -> None:
        name = write_id(TOP_UP, claimed.top_up.id)
        try:
            news = await self._ask(claimed, until)
        except Exception as error:  # noqa: BLE001 - a fault of ours; it may have been asked, so it is in doubt
            _log.error("top-up failed", top_up=name, exc_info=error)
            news = InDoubt(f"asking failed here: {type(error).__name__}")
        for _ in range(_RECORD_TRIES_MAX):
            try:
                settled = await settle(
                    self._database, claimed.top_up.id, news, leased_until=claimed.top_up.due_at
                )
            except Exception as error:  # noqa: BLE001 - at worst the provider is asked again after the lease
                _log_failure(error, "top-up not recorded yet")
                await asyncio.sleep(_RECORD_PAUSE_S)
            else:
                log_settled(settled)
                return

    async def _ask(self, claimed: ClaimedTopUp, until: float) -> ProviderAnswer:
        provider = self._providers.get(provider_key(claimed.top_up))
        if provider is None:
            problem = f"{provider_key(claimed.top_up)} is not set up here"
            return InDoubt(problem) if claimed.was_asked else NotPaid(FailureReason.NOT_CONFIGURED, problem)
        if not claimed.was_asked and asyncio.get_running_loop().time() > until:
            # We were away for long: others may have given it up for lost. It is asked what became of it.
            return Unreachable("it was not asked for in time")
        order = order_of(claimed.top_up, self._database.clock.now())
        try:
            async with asyncio.timeout(CALL_S):
                return await (provider.look(order) if claimed.was_asked else provider.start(order))
        except TimeoutError:
            return InDoubt(f"no answer within {CALL_S:.0f} seconds")

    async def _stop(self) -> None:
        asking = list(self._asking)
        if asking:
            await asyncio.wait(asking, timeout=DRAIN_S)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        for provider in self._providers.values():
            await provider.close()


def log_settled(settled: Settled) -> None:
    """Write into the log what a top-up became, loudly where a person has to look."""
    if not settled.moved:
        return
    top_up = settled.top_up
    metrics.TOP_UPS_MOVED.labels(top_up.method.value, top_up.state.value).inc()
    facts = {
        "top_up": write_id(TOP_UP, top_up.id),
        "method": top_up.method.value,
        "provider": top_up.provider,
        "state": top_up.state.value,
        "problem": top_up.problem,
    }
    if top_up.state is TopUpState.REVERSED:
        _log.error("top-up taken back; account suspended", owed=str(top_up.owed), **facts)
    elif top_up.state is TopUpState.DOUBT:
        _log.warning("top-up in doubt", **facts)
    else:
        _log.info("top-up moved", **facts)


def _log_failure(error: Exception, words: str) -> None:
    if is_unavailable(error):
        say_unavailable(words, error)
    else:
        _log.error(words, exc_info=error)
