"""An account that tops up through Paynow: a stand-in server, a worker's steps, and hooks that listen."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import httpx
import uvicorn
from starlette.applications import Starlette

from tests.support.chaos.node import until
from tests.support.processes.service import NO_TLS, Caller
from tests.support.sending.batchers import broken_promises
from tests.support.topups.paynow_server import Payment, PaynowServer
from tumira.accounts import store as accounts
from tumira.core.ids import TOP_UP, TopUpId, write_id
from tumira.core.settings.payments import Payments
from tumira.dashboard.pages.paynow_notice import routes
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.providers.paynow import PaynowProvider
from tumira.topups.providers.paynow_messages import Wallet, local_phone
from tumira.topups.start import start_paynow
from tumira.topups.states import TopUp, TopUpState
from tumira.topups.worker import TopUpWorker

PHONE: Final = "+263771200001"
FIVE: Final = Decimal(5)


@dataclass(frozen=True, slots=True)
class PaynowWorld:
    database: Database
    paynow: PaynowServer
    provider: PaynowProvider
    public_url: str
    caller: Caller
    # Of this test alone: few payments may be open on one phone.
    phone: str

    @property
    def local(self) -> str:
        return local_phone(self.phone)

    async def start(self, wallet: Wallet = Wallet.ECOCASH, amount: Decimal = FIVE) -> TopUpId:
        payments = Payments(paynow=self.paynow.access)
        return await start_paynow(self.database, payments, self.caller.id, wallet, amount, self.phone)

    async def work(self, top_up_id: TopUpId) -> TopUp:
        async with self.database.connection() as connection:
            await connection.execute(
                "UPDATE top_ups SET due_at = clock_timestamp() WHERE id = $1 AND due_at IS NOT NULL",
                top_up_id,
            )
        return await self.look(top_up_id)

    async def look(self, top_up_id: TopUpId) -> TopUp:
        worker = TopUpWorker(self.database, {"paynow": self.provider})
        await worker._claim()
        await asyncio.gather(*worker._calls)
        return await self.find(top_up_id)

    async def find(self, top_up_id: TopUpId) -> TopUp:
        async with self.database.connection() as connection:
            found = await top_ups.find_any(connection, top_up_id)
        assert found is not None
        return found

    def payment(self, top_up_id: TopUpId) -> Payment:
        (payment,) = self.paynow.of(write_id(TOP_UP, top_up_id))
        return payment

    async def begun(self, wallet: Wallet = Wallet.ECOCASH) -> tuple[TopUpId, Payment]:
        top_up_id = await self.start(wallet)
        assert (await self.work(top_up_id)).state is TopUpState.PENDING
        return top_up_id, self.payment(top_up_id)

    async def tell(self, top_up_id: TopUpId | str, body: bytes) -> int:
        name = top_up_id if isinstance(top_up_id, str) else write_id(TOP_UP, top_up_id)
        return await post(f"{self.public_url}/hooks/paynow/{name}", body)

    async def balance(self) -> Decimal:
        """Return the account's balance, after checking it against its transfers and the audit."""
        assert await broken_promises(self.database) == []
        async with self.database.connection() as connection:
            account = await accounts.find(connection, self.caller.id)
            moved = await connection.fetchval(
                "SELECT coalesce(sum(CASE WHEN to_book = 'customer' THEN amount ELSE -amount END), 0)"
                "  FROM transfers WHERE account_id = $1",
                self.caller.id,
            )
        assert account is not None
        assert account.balance == moved
        return account.balance


async def post(url: str, body: bytes) -> int:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    async with httpx.AsyncClient(trust_env=False, verify=NO_TLS) as client:
        return (await client.post(url, content=body, headers=headers)).status_code


@contextmanager
def listening_hooks(url: str, payments: Payments) -> Iterator[str]:
    """Run the hooks of a web process in a thread, and give their address."""
    database = Database(url, connections_max=4)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        await database.close()

    app = Starlette(routes=list(routes(database, payments)), lifespan=lifespan)
    serving = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_config=None, access_log=False))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serving.run, args=([listening],))
        thread.start()
        until(lambda: serving.started, "the hooks do not listen")
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        serving.should_exit = True
        thread.join()
