"""Compares the top-ups of a period with the records of providers and chain; changes nothing.

A top-up belongs to the day on which it was started, a USDT deposit to the day of its block.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tumira.core.errors import OperatorError
from tumira.core.ids import AccountId, first_id
from tumira.core.settings.payments import Payments, Usdt
from tumira.postgres.pool import Database
from tumira.topups import lists, vouchers
from tumira.topups import store as top_ups
from tumira.topups.providers import Provider
from tumira.topups.reconcile_rules import (
    Difference,
    Moved,
    Unanswered,
    compare_with_chain,
    compare_with_deposits,
    compare_with_provider,
    compare_with_transfers,
    compare_with_voucher,
)
from tumira.topups.states import Method, PaymentInDoubt, ProviderAnswer, TopUp, TopUpState, Unreachable
from tumira.topups.usdt import deposits
from tumira.topups.usdt import store as usdt_store
from tumira.topups.usdt.chain import blocks_between, deposits_on_chain
from tumira.topups.worker import CALL_S, provider_key

CALLS_MAX: Final = 4
PAGE: Final = 200
ADDRESSES_PAGE: Final = 1_000
# Blocks between two progress lines.
SPAN: Final = 20_000
# After this many failures in a row a provider is skipped.
FAILURES_MAX: Final = 20
# The worker lags a little behind the chain; a longer lag is reported.
BEHIND_MAX: Final = 1_000

# Providers whose poll never takes money.
_POLLABLE: Final = frozenset({"paynow", "ott"})
_OWN: Final = "own"

Progress = Callable[[str], None]


@dataclass(slots=True)
class ReconcileReport:
    """What was compared, what differs, what could not be checked now, and what never can be."""

    top_ups: int = 0
    asked: int = 0
    deposits: int = 0
    differences: list[Difference] = field(default_factory=list)
    unknown: list[Unanswered] = field(default_factory=list)
    # Number of top-ups that cannot be checked, by reason.
    unchecked: Counter[str] = field(default_factory=Counter)

    def add(self, found: Iterable[Difference | None]) -> None:
        self.differences.extend(one for one in found if one is not None)


class Reconciler:
    def __init__(
        self,
        database: Database,
        payments: Payments,
        providers: Mapping[str, Provider],
        progress: Progress,
    ) -> None:
        self._database = database
        self._payments = payments
        self._providers = providers
        self._progress = progress
        self._slots = asyncio.Semaphore(CALLS_MAX)
        # Failures in a row, by provider.
        self._failures: Counter[str] = Counter()

    async def compare(self, since: datetime, until: datetime, methods: Collection[Method]) -> ReconcileReport:
        """Compare the top-ups and deposits of a period, whose end is not part of it."""
        report = ReconcileReport()
        before = first_id(_ms(until))
        while True:
            async with self._database.connection() as connection:
                page = await top_ups.list_latest(
                    connection,
                    PAGE,
                    methods=list(methods),
                    since=first_id(_ms(since)),
                    before=before,
                )
            if not page:
                break
            before = page[-1].id
            report.top_ups += len(page)
            await self._compare_books(report, page)
            await self._compare_with_providers(report, page)
        self._report_skipped(report)
        if Method.USDT in methods:
            await self._compare_chain(report, since, until)
        return report

    async def _compare_books(self, report: ReconcileReport, page: Sequence[TopUp]) -> None:
        """Compare top-ups with our own transfers, vouchers and deposits."""
        ids = [top_up.id for top_up in page]
        async with self._database.connection() as connection:
            moved = await lists.list_moved(connection, ids)
            used = await vouchers.list_amounts(connection, ids)
            units = await deposits.list_units(connection, ids)
        for top_up in page:
            report.add([compare_with_transfers(top_up, moved.get(top_up.id, Moved()))])
            if top_up.method is Method.USDT:
                report.add([compare_with_deposits(top_up, units.get(top_up.id, 0))])
            elif provider_key(top_up) == _OWN:
                report.add([compare_with_voucher(top_up, used.get(top_up.id))])

    async def _compare_with_providers(self, report: ReconcileReport, page: Sequence[TopUp]) -> None:
        """Poll the providers of top-ups that they may have been asked for."""
        asked = [top_up for top_up in page if top_up.asked_at is not None and provider_key(top_up) != _OWN]
        askable: list[TopUp] = []
        for top_up in asked:
            key = provider_key(top_up)
            if key in _POLLABLE and key in self._providers:
                askable.append(top_up)
            elif key in _POLLABLE:
                self._failures[key] += 1
            elif top_up.method is not Method.USDT:
                report.unchecked[f"{key} cannot be asked what became of a voucher"] += 1
        if not askable:
            return
        answers = await asyncio.gather(*(self._poll_once(top_up) for top_up in askable))
        for top_up, answer in zip(askable, answers, strict=True):
            if answer is None:
                continue
            report.asked += 1
            found = compare_with_provider(top_up, answer)
            if not isinstance(found, Unanswered):
                report.add([found])
            elif _may_be_unknown(top_up):
                report.unchecked[f"{provider_key(top_up)} does not say plainly what it refused"] += 1
            else:
                report.unknown.append(found)
        self._progress(
            f"Asked about {report.asked} top-ups, back to {page[-1].created_at:%Y-%m-%d %H:%M} UTC …"
        )

    async def _poll_once(self, top_up: TopUp) -> ProviderAnswer | None:
        """Poll about one top-up; None where its provider has failed so often that it is skipped."""
        key = provider_key(top_up)
        async with self._slots:
            if self._failures[key] >= FAILURES_MAX:
                self._failures[key] += 1
                return None
            answer = await _poll(self._providers[key], top_up, self._database.clock.now())
        if not isinstance(answer, PaymentInDoubt | Unreachable):
            self._failures[key] = 0
        elif not _may_be_unknown(top_up):
            self._failures[key] += 1
        return answer

    def _report_skipped(self, report: ReconcileReport) -> None:
        """Report how many top-ups were skipped because their provider is away or not configured."""
        for key, count in self._failures.items():
            if key not in self._providers:
                report.unknown.append(
                    Unanswered(None, f"{key} is not set up here, and has {count} top-ups of the period")
                )
            elif count > FAILURES_MAX:
                problem = (
                    f"{key} gave no answer {FAILURES_MAX} times in a row; {count - FAILURES_MAX} are left"
                )
                report.unknown.append(Unanswered(None, problem))

    async def _compare_chain(self, report: ReconcileReport, since: datetime, until: datetime) -> None:
        """Compare our deposits with those on the chain, as far as a worker has read it."""
        owners = await self._addresses()
        if not owners:
            return
        usdt = self._payments.usdt
        if usdt is None:
            problem = f"USDT is not set up here, and {len(owners)} addresses were given to accounts"
            report.unknown.append(Unanswered(None, problem))
            return
        async with self._database.connection() as connection:
            cursor = await usdt_store.find_cursor(connection, usdt.chain_id, usdt.contract)
        if cursor is None:
            report.unknown.append(Unanswered(None, "no worker has read the chain yet"))
            return
        try:
            first, last = await blocks_between(usdt, since, until)
            read = cursor.block_number
            if last - read > BEHIND_MAX:
                problem = (
                    f"a worker has read the chain up to block {read} of {last}; the rest is not compared"
                )
                report.unknown.append(Unanswered(None, problem))
            # Newer blocks may still be replaced.
            last = min(last, read - usdt.confirmations)
            for start in range(first, last + 1, SPAN):
                await self._compare_blocks(report, usdt, owners, (start, min(last, start + SPAN - 1)))
                self._progress(f"Read the chain up to block {min(last, start + SPAN - 1)} of {last} …")
        except OperatorError as error:
            report.unknown.append(Unanswered(None, str(error)))

    async def _compare_blocks(
        self, report: ReconcileReport, usdt: Usdt, owners: Mapping[str, AccountId], blocks: tuple[int, int]
    ) -> None:
        theirs = await deposits_on_chain(usdt, list(owners), *blocks)
        async with self._database.connection() as connection:
            ours = await deposits.list_between(connection, usdt.chain_id, *blocks)
        report.deposits += len(theirs)
        report.add(compare_with_chain(ours, theirs, owners))

    async def _addresses(self) -> Mapping[str, AccountId]:
        found: dict[str, AccountId] = {}
        after = ""
        while True:
            async with self._database.connection() as connection:
                page = await usdt_store.list_owners(connection, after, ADDRESSES_PAGE)
            if not page:
                return found
            found |= page
            after = max(page)


async def _poll(provider: Provider, top_up: TopUp, now: datetime) -> ProviderAnswer:
    try:
        async with asyncio.timeout(CALL_S):
            return await provider.poll(top_up, now)
    except TimeoutError:
        return Unreachable(f"no answer within {CALL_S:.0f} seconds")
    except Exception as error:  # noqa: BLE001 - a fault of ours; the others are compared all the same
        return Unreachable(f"asking failed here: {type(error).__name__}")


def _may_be_unknown(top_up: TopUp) -> bool:
    """Progress whether a provider may know nothing: issuers keep no record of what they refused."""
    return top_up.method is Method.VOUCHER and top_up.state in {TopUpState.FAILED, TopUpState.EXPIRED}


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
