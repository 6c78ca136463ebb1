"""Who reads the chain for payments in USDT, and credits them? One worker at a time.

Whatever happens to it, nothing is lost and nothing is credited twice: deposits wait on the chain, how far it
was read is noted with what was found there, and every step can be done again.
"""

import asyncio
from typing import Final

import asyncpg
import structlog

from tumira.core.database_errors import is_unavailable
from tumira.core.ids import ACCOUNT, TOP_UP, AccountId, write_id
from tumira.core.loops import say_unavailable
from tumira.core.settings.payments import Usdt
from tumira.postgres.pool import Database
from tumira.topups.usdt import deposits
from tumira.topups.usdt import store as usdt_store
from tumira.topups.usdt.chain import Chain, ChainError, View, WrongChainError
from tumira.topups.usdt.credit_deposits import credit_deposits, expire_unpaid
from tumira.topups.usdt.reader import ChainReader
from tumira.topups.worker import log_settled

LOOK_S: Final = 2.0
# After what only the operator can put right.
WRONG_S: Final = 30.0
CREDITED_PER_ROUND_MAX: Final = 100
EXPIRE_EVERY_S: Final = 600.0

_log: Final = structlog.get_logger()


class ChainWatcher:
    """Watches one token on one chain, for all accounts."""

    def __init__(self, database: Database, settings: Usdt) -> None:
        self._database = database
        self._settings = settings
        self._chain = Chain(settings)
        self.reader = ChainReader(database, settings, self._chain)
        self._lock: asyncpg.Connection[asyncpg.Record] | None = None
        self._told: dict[str, str] = {}
        self._expires_at = 0.0

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                wait_s = await self._round()
                await asyncio.sleep(wait_s)
        finally:
            await self.close()

    async def close(self) -> None:
        """Leave the chain to another worker."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.terminate()
        await self._chain.close()

    async def _round(self) -> float:
        """Look once, and return after how long to look again."""
        try:
            return 0.0 if await self.look() else LOOK_S
        except WrongChainError as error:
            _log.error("chain not read", problem=str(error))
            return WRONG_S
        except ChainError as error:
            _log.warning("chain not read", problem=str(error), providers=dict(self._chain.problems))
        except Exception as error:  # noqa: BLE001 - nothing is lost that stands on the chain
            if is_unavailable(error):
                say_unavailable("chain not read", error)
            else:
                _log.error("chain not read", exc_info=error)
        return LOOK_S

    async def look(self) -> bool:
        """Read what is new, check what is deep enough and credit it; tell whether there is more to read."""
        if not await self._hold_lock():
            return False
        view = await self.see()
        is_behind = await self.reader.read(view)
        await self.reader.confirm(view)
        await self.credit()
        self._tell_problems()
        return is_behind

    async def see(self) -> View:
        """Ask the providers how far the chain is."""
        self._chain.problems.clear()
        return await self._chain.look()

    async def _hold_lock(self) -> bool:
        """Become who reads the chain, or stay it; what is written is guarded without that, too."""
        if self._lock is not None and not self._lock.is_closed():
            return True
        connection = await self._database.connect(usdt_store.NOTICED_SOON)
        self._lock = None
        try:
            if await usdt_store.try_lock_chain(connection, self._settings.chain_id):
                self._lock = connection
        finally:
            if self._lock is None:
                connection.terminate()
        return self._lock is not None

    async def credit(self) -> None:
        """Credit the accounts whose deposits are enough, and now and then end top-ups that nobody paid."""
        async with self._database.connection() as connection:
            enough = await deposits.list_accounts_with_enough(
                connection, self._settings.chain_id, CREDITED_PER_ROUND_MAX
            )
        for account_id in enough:
            await self._credit(account_id)
        now = asyncio.get_running_loop().time()
        if now >= self._expires_at:
            self._expires_at = now + EXPIRE_EVERY_S
            for settled in await expire_unpaid(self._database):
                log_settled(settled)

    async def _credit(self, account_id: AccountId) -> None:
        account = write_id(ACCOUNT, account_id)
        try:
            credited = await credit_deposits(self._database, self._settings.chain_id, account_id)
        except Exception as error:
            if is_unavailable(error):
                raise
            # One account must not hold up the others.
            _log.error("deposits not credited", account=account, exc_info=error)
            return
        if credited is not None:
            _log.info(
                "deposits credited",
                account=account,
                top_up=write_id(TOP_UP, credited.top_up_id),
                amount=str(credited.amount),
                count=credited.deposits,
            )

    def _tell_problems(self) -> None:
        """Write into the log what is wrong with a provider, once for as long as it stays so."""
        problems = dict(self._chain.problems)
        for name in problems.keys() - self._told.keys():
            _log.warning("provider of the chain fails", provider=name, problem=problems[name])
        for name in self._told.keys() - problems.keys():
            _log.info("provider of the chain is well again", provider=name)
        self._told = problems
