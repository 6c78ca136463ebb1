"""The top-up worker: claims due top-ups, calls their providers and records the answers.

That a provider may have been called is committed before the call. After a crash in between, the provider is
polled for the outcome, and never asked for the money again.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from tumira.core import metrics
from tumira.core.ids import TOP_UP, write_id
from tumira.core.loops import forever, log_failure
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.providers import Provider
from tumira.topups.settle import Settled, settle
from tumira.topups.states import (
    FailureReason,
    Method,
    NotPaid,
    PaymentInDoubt,
    ProviderAnswer,
    TopUp,
    TopUpState,
    Unreachable,
)
from tumira.topups.store import ClaimedTopUp
from tumira.topups.voucher_pins import Issuer

POLL_S: Final = 1.0
# Of each provider, so that one that hangs delays only itself.
CALLS_MAX: Final = 8
# Limits a call to a provider, including the one before it for an access token.
CALL_S: Final = 45.0
# Longer than a call and recording its answer, so that no other worker calls meanwhile.
LEASE_S: Final = 90.0
DRAIN_S: Final = 5.0

_RECORD_TRIES_MAX: Final = 20
_RECORD_PAUSE_S: Final = 1.0

# All providers, also those that are not configured here. Our own vouchers need no call.
_PROVIDER_KEYS: Final[Sequence[str]] = [Method.PAYNOW, *(one for one in Issuer if one is not Issuer.OWN)]

_log: Final = structlog.get_logger()


def provider_key(top_up: TopUp) -> str:
    """Return the name of a top-up's provider: a voucher's issuer, or the method."""
    return top_up.provider if top_up.method is Method.VOUCHER else top_up.method


class TopUpWorker:
    def __init__(self, database: Database, providers: Mapping[str, Provider]) -> None:
        self._database = database
        self._providers = providers
        # The calls that are running, and the provider of each.
        self._calls: dict[asyncio.Task[None], str] = {}
        self._slot_freed = asyncio.Event()

    async def run(self) -> None:
        try:
            await forever("claim due top-ups", self._claim, POLL_S, wake=self._slot_freed)
        finally:
            await self._stop()

    async def _claim(self) -> None:
        busy = Counter(self._calls.values())
        slots = {key: CALLS_MAX - busy[key] for key in _PROVIDER_KEYS}
        start_before = asyncio.get_running_loop().time() + LEASE_S / 2
        async with self._database.transaction() as connection:
            claimed = await top_ups.claim_due(connection, slots, LEASE_S)
        for one in claimed:
            task = asyncio.create_task(self._handle(one, start_before))
            self._calls[task] = provider_key(one.top_up)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        # More may be due than there were slots.
        if CALLS_MAX in Counter(self._calls.values()).values():
            self._slot_freed.set()
        del self._calls[task]

    async def _handle(self, claimed: ClaimedTopUp, start_before: float) -> None:
        name = write_id(TOP_UP, claimed.top_up.id)
        try:
            answer = await self._call(claimed, start_before)
        except Exception as error:  # noqa: BLE001 - our own bug; the call may have been made, so it is in doubt
            _log.error("top-up failed", top_up=name, exc_info=error)
            answer = PaymentInDoubt(f"asking failed here: {type(error).__name__}")
        for _ in range(_RECORD_TRIES_MAX):
            try:
                settled = await settle(
                    self._database, claimed.top_up.id, answer, leased_until=claimed.top_up.due_at
                )
            except Exception as error:  # noqa: BLE001 - at worst the provider is polled again after the lease
                log_failure("could not record a top-up", error)
                await asyncio.sleep(_RECORD_PAUSE_S)
            else:
                log_settled(settled)
                return

    async def _call(self, claimed: ClaimedTopUp, start_before: float) -> ProviderAnswer:
        key = provider_key(claimed.top_up)
        provider = self._providers.get(key)
        if provider is None:
            problem = f"{key} is not set up here"
            return (
                PaymentInDoubt(problem)
                if claimed.was_asked
                else NotPaid(FailureReason.NOT_CONFIGURED, problem)
            )
        if not claimed.was_asked and asyncio.get_running_loop().time() > start_before:
            # This process was suspended: another worker may poll it as lost, so the money is not asked for.
            return Unreachable("it was not asked for in time")
        try:
            async with asyncio.timeout(CALL_S):
                if claimed.was_asked:
                    return await provider.poll(claimed.top_up, self._database.clock.now())
                return await provider.start(claimed.top_up)
        except TimeoutError:
            return PaymentInDoubt(f"no answer within {CALL_S:.0f} seconds")

    async def _stop(self) -> None:
        calls = list(self._calls)
        if calls:
            await asyncio.wait(calls, timeout=DRAIN_S)
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        for provider in self._providers.values():
            await provider.close()


def log_settled(settled: Settled) -> None:
    """Log what a top-up became, as a warning or error where a person has to look."""
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
        _log.error("top-up reversed, account suspended", owed=str(top_up.owed), **facts)
    elif top_up.state is TopUpState.DOUBT:
        _log.warning("top-up in doubt", **facts)
    else:
        _log.info("top-up moved", **facts)
