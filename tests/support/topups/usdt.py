"""A chain, two providers of it and a database, in which tests pay USDT and watch it."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from tests.support.postgres.databases import clone
from tests.support.processes.service import new_account
from tests.support.sending.batchers import broken_promises
from tests.support.topups.chain import CHAIN_ID, LocalChain
from tests.support.topups.chain_behaviours import Behaviour, FakeProvider, run_provider
from tests.topups.test_addresses import XPUB
from tumira.accounts import store as accounts
from tumira.core.ids import AccountId, TopUpId
from tumira.core.settings.payments import Payments, Usdt
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.start import start_usdt
from tumira.topups.states import TopUp
from tumira.topups.usdt import deposits
from tumira.topups.usdt.deposit_rules import Deposit, DepositState
from tumira.topups.usdt.watcher import ChainWatcher

DEEP: Final = 15
WAIT_S: Final = 30
ROUNDS_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class Customer:
    id: AccountId
    address: str
    top_up_id: TopUpId


@dataclass(frozen=True, slots=True)
class World:
    chain: LocalChain
    first: FakeProvider
    second: FakeProvider
    database: Database
    settings: Usdt
    watchers: dict[Usdt, ChainWatcher] = field(default_factory=dict)

    async def customer(self) -> Customer:
        account_id = await new_account(self.database)
        started = await start_usdt(self.database, Payments(usdt=self.settings), account_id)
        return Customer(account_id, started.address, started.top_up_id)

    @asynccontextmanager
    async def watcher(self, settings: Usdt | None = None) -> AsyncIterator[ChainWatcher]:
        watcher = ChainWatcher(self.database, settings or self.settings)
        try:
            yield watcher
        finally:
            await watcher.close()

    async def look(self, settings: Usdt | None = None) -> None:
        """Watch until there is nothing more to read now."""
        wanted = settings or self.settings
        if wanted not in self.watchers:
            self.watchers[wanted] = ChainWatcher(self.database, wanted)
        await watch(self.watchers[wanted])

    async def look_anew(self, settings: Usdt | None = None) -> None:
        async with self.watcher(settings) as watcher:
            await watch(watcher)

    async def deposits(self, customer: Customer) -> Sequence[Deposit]:
        async with self.database.connection() as connection:
            return await deposits.list_of_account(connection, customer.id, 100)

    async def states(self, customer: Customer) -> Sequence[DepositState]:
        return [one.state for one in await self.deposits(customer)]

    async def balance(self, customer: Customer) -> Decimal:
        async with self.database.connection() as connection:
            account = await accounts.find(connection, customer.id)
        assert account is not None
        return account.balance

    async def wait_for_balance(self, customer: Customer, amount: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while await self.balance(customer) != amount:  # noqa: ASYNC110 - another process would do the same
                await asyncio.sleep(0.05)

    async def top_ups(self, customer: Customer) -> Sequence[TopUp]:
        async with self.database.connection() as connection:
            return await top_ups.list_of_account(connection, customer.id, 100)

    def lie(self, *, first: Sequence[Behaviour] = (), second: Sequence[Behaviour] = ()) -> None:
        self.first.behaviours[:] = first
        self.second.behaviours[:] = second

    async def check(self) -> None:
        assert await broken_promises(self.database) == []

    async def close(self) -> None:
        for watcher in self.watchers.values():
            await watcher.close()
        await self.database.close()


async def watch(watcher: ChainWatcher) -> None:
    """Do what a watcher does, without its lock, until there is nothing more to read."""
    for _ in range(ROUNDS_MAX):
        view = await watcher.see()
        is_behind = await watcher.reader.read(view)
        await watcher.reader.confirm(view)
        await watcher.credit()
        if not is_behind:
            return
    raise AssertionError("there is always more")


@contextmanager
def build_world(chain: LocalChain, server_url: str) -> Iterator[World]:
    with clone(server_url) as url, run_provider(chain) as first, run_provider(chain) as second:
        settings = Usdt(
            rpc_urls=(first.url, second.url),
            xpub=XPUB,
            contract=chain.token,
            chain_id=CHAIN_ID,
            confirmations=DEEP,
        )
        yield World(chain, first, second, Database(url, connections_max=8), settings)
