"""Watches the chain for USDT deposits and credits them. One worker at a time does this.

After any crash nothing is lost and nothing is credited twice: deposits stay on the chain, the cursor moves in
the same transaction as the deposits, and every step can run again.
"""

import asyncio
from typing import Final

import asyncpg
import structlog

from tumira.core.database_errors import is_unavailable
from tumira.core.ids import ACCOUNT, TOP_UP, AccountId, write_id
from tumira.core.loops import forever
from tumira.core.settings.payments import Usdt
from tumira.postgres.pool import Database
from tumira.topups.usdt import deposits
from tumira.topups.usdt import store as usdt_store
from tumira.topups.usdt.chain import Chain, ChainError, View, WrongChainError
from tumira.topups.usdt.credit_deposits import credit_deposits, expire_unpaid
from tumira.topups.usdt.reader import ChainReader
from tumira.topups.worker import log_settled

POLL_S: Final = 2.0
# After a mistake that only the operator can correct.
WRONG_S: Final = 30.0
CREDITED_PER_ROUND_MAX: Final = 100
EXPIRE_EVERY_S: Final = 600.0

_log: Final = structlog.get_logger()


class ChainWatcher:
    def __init__(self, database: Database, settings: Usdt) -> None:
        self._database = database
        self._settings = settings
        self._chain = Chain(settings)
        self.reader = ChainReader(database, settings, self._chain)
        self._lock: asyncpg.Connection[asyncpg.Record] | None = None
        self._told: dict[str, str] = {}
        self._expires_at = 0.0

    async def run(self) -> None:
        try:
            await forever("read the chain", self._step, POLL_S)
        finally:
            await self.close()

    async def close(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.terminate()
        await self._chain.close()

    async def _step(self) -> float | None:
        try:
            return 0.0 if await self.look() else None
        except WrongChainError as error:
            _log.error("could not read the chain", problem=str(error))
            return WRONG_S
        except ChainError as error:
            _log.warning("could not read the chain", problem=str(error), providers=dict(self._chain.problems))
            return None

    async def look(self) -> bool:
        """Read new blocks, mark final deposits and credit them; tell whether there is more to read."""
        if not await self._hold_lock():
            return False
        view = await self.see()
        is_behind = await self.reader.read(view)
        await self.reader.confirm(view)
        await self.credit()
        self._tell_problems()
        return is_behind

    async def see(self) -> View:
        self._chain.problems.clear()
        return await self._chain.look()

    async def _hold_lock(self) -> bool:
        """Become or stay the reader of the chain; writes are also safe without this lock."""
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
        """Credit accounts whose deposits are enough, and periodically expire unpaid top-ups."""
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
            # A failure of one account must not delay the others.
            _log.error("could not credit deposits", account=account, exc_info=error)
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
        """Log what is wrong with a provider, once for as long as it lasts."""
        problems = dict(self._chain.problems)
        for name in problems.keys() - self._told.keys():
            _log.warning("chain provider fails", provider=name, problem=problems[name])
        for name in self._told.keys() - problems.keys():
            _log.info("chain provider works again", provider=name)
        self._told = problems
