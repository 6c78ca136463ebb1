"""A customer who tops up by voucher while servers die, and a check of what was acknowledged."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from decimal import Decimal
from threading import Event
from typing import Any, Final

from tests.support.chaos.node import PATIENCE_S, Rows
from tests.support.postgres.databases import complete
from tests.support.processes.programs import tumira
from tests.support.processes.service import new_caller
from tumira.core.database_errors import is_unavailable
from tumira.core.ids import TopUpId, new_id
from tumira.core.settings.payments import Payments
from tumira.postgres.pool import Database
from tumira.topups.start import start_voucher
from tumira.topups.voucher_pins import Issuer

AMOUNT: Final = Decimal(5)
PAUSE_S: Final = 0.3


class Payer:
    """Redeems vouchers one after another, and repeats each until it is acknowledged."""

    def __init__(self, vouchers: int = 900, **settings: Any) -> None:
        self._url: Final = settings["database_url"]
        self.account_id: Final = complete(new_caller(self._url, "0")).id
        done = tumira(
            *("voucher", "issue", "--amount", str(AMOUNT), "--count", str(vouchers), "--json"), **settings
        )
        assert done.returncode == 0, done.stderr
        self._codes: Final[Sequence[str]] = [one["code"] for one in json.loads(done.stdout)]
        self.acknowledged: list[TopUpId] = []
        self._stop = Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(1) as pool:
            paying = pool.submit(asyncio.run, self._run())
            try:
                yield
            finally:
                self._stop.set()
            paying.result(PATIENCE_S)

    async def _run(self) -> None:
        async with _opened(self._url) as database:
            for code in self._codes:
                if self._stop.is_set():
                    return
                await self._redeem(database, code)
                await asyncio.sleep(PAUSE_S)
        raise AssertionError("there are no more vouchers")

    async def _redeem(self, database: Database, code: str) -> None:
        top_up_id = TopUpId(new_id(time.time_ns() // 1_000_000))
        while not self._stop.is_set():
            try:
                await start_voucher(
                    database, Payments(), self.account_id, Issuer.OWN, code, top_up_id=top_up_id
                )
            except Exception as error:
                if not is_unavailable(error):
                    raise
                await asyncio.sleep(PAUSE_S)
            else:
                self.acknowledged.append(top_up_id)
                return

    def check(self, rows: Rows) -> None:
        """Check that every top-up that was acknowledged is credited once, and nothing else is."""
        credited = [
            row["top_up_id"]
            for row in rows("SELECT top_up_id FROM transfers WHERE account_id = $1", self.account_id)
        ]
        lost = set(self.acknowledged) - set(credited)
        assert not lost, f"acknowledged and not there: {lost}"
        assert len(credited) == len(set(credited)), "credited twice"
        # At most one was under way, without an answer, when the customer stopped.
        assert len(credited) <= len(self.acknowledged) + 1
        (account,) = rows("SELECT balance FROM accounts WHERE id = $1", self.account_id)
        assert account["balance"] == AMOUNT * len(credited)


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Database]:
    database = Database(url, connections_max=1)
    try:
        yield database
    finally:
        await database.close()
