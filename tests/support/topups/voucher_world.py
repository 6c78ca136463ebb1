"""Accounts that redeem vouchers: stand-ins for the issuers, and a worker whose every step the test makes."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal
from typing import Any, Final

import asyncpg

from tests.support.processes.service import new_account
from tests.support.sending.batchers import broken_promises
from tests.support.topups.voucher_issuer import IssuerServer
from tests.support.topups.voucher_servers import Issuers
from tumira.core.ids import AccountId, TopUpId
from tumira.core.settings.payments import Payments
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.providers import Provider
from tumira.topups.providers.blu import BluProvider
from tumira.topups.providers.onevoucher import OneVoucherProvider
from tumira.topups.providers.ott import OttProvider
from tumira.topups.start import start_voucher
from tumira.topups.states import TopUp
from tumira.topups.voucher_pins import ChangeVoucher, Issuer, Seal, read_change
from tumira.topups.worker import TopUpWorker

RATE: Final = Decimal("18.50")
SOUTH_AFRICAN: Final = "+27821230001"
FOREIGN: Final = (Issuer.ONE_VOUCHER, Issuer.OTT, Issuer.BLU)
# Long enough for a machine that is busy.
ANSWER_S: Final = 10.0
# A top-up that is not decided after so many looks will not be.
LOOKS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class VoucherWorld:
    database: Database
    issuers: Issuers
    providers: Mapping[str, Provider]
    worker: TopUpWorker

    @property
    def payments(self) -> Payments:
        return self.issuers.payments

    def server_of(self, issuer: Issuer) -> IssuerServer:
        return {
            Issuer.ONE_VOUCHER: self.issuers.one_voucher,
            Issuer.OTT: self.issuers.ott,
            Issuer.BLU: self.issuers.blu,
        }[issuer]

    async def new_account(self) -> AccountId:
        return await new_account(self.database)

    async def start(
        self, account_id: AccountId, issuer: Issuer, pin: str, value: str | None = None
    ) -> TopUpId:
        given = Decimal(value or "150.00") if issuer.needs_value else None
        return await start_voucher(
            self.database, self.payments, account_id, issuer, pin, value=given, phone=SOUTH_AFRICAN
        )

    async def look(self, top_up_id: TopUpId) -> TopUp:
        await self.rows("UPDATE top_ups SET due_at = now() WHERE id = $1 AND due_at IS NOT NULL", top_up_id)
        await self.worker._claim()
        await asyncio.gather(*self.worker._calls)
        return await self.find(top_up_id)

    async def decide(self, top_up_id: TopUpId) -> Sequence[TopUp]:
        """Poll until it is decided, and return the top-up after each poll."""
        seen: list[TopUp] = []
        while len(seen) < LOOKS_MAX and (not seen or seen[-1].due_at is not None):
            seen.append(await self.look(top_up_id))
        return seen

    async def redeem(self, issuer: Issuer, pin: str, value: str | None = None) -> Sequence[TopUp]:
        """Redeem a voucher for a new account, and return the top-up after each poll."""
        return await self.decide(await self.start(await self.new_account(), issuer, pin, value))

    async def find(self, top_up_id: TopUpId) -> TopUp:
        async with self.database.connection() as connection:
            found = await top_ups.find_any(connection, top_up_id)
        assert found is not None
        return found

    async def rows(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        async with self.database.connection() as connection:
            return await connection.fetch(statement, *arguments)

    async def pass_time(self, top_up_id: TopUpId, interval: str) -> None:
        await self.rows(
            "UPDATE top_ups SET asked_at = asked_at - $2::text::interval,"
            " created_at = created_at - $2::text::interval, due_at = due_at - $2::text::interval"
            " WHERE id = $1",
            top_up_id,
            interval,
        )

    def change_of(self, top_up: TopUp) -> ChangeVoucher | None:
        settings = {"onevoucher": self.payments.one_voucher, "blu": self.payments.blu}.get(top_up.provider)
        if top_up.sealed_change is None or settings is None:
            return None
        text = Seal(settings.secret).open(top_up.sealed_change)
        assert text is not None
        return read_change(text)

    async def check_money(self, top_up: TopUp, taken: Decimal) -> None:
        """Compare the balance with what the issuer took from the account's only voucher."""
        balance = (await self.rows("SELECT balance FROM accounts WHERE id = $1", top_up.account_id))[0][0]
        assert balance == (taken / RATE).quantize(Decimal("0.0001"), ROUND_DOWN)


@asynccontextmanager
async def open_world(url: str, issuers: Issuers, answer_s: float = ANSWER_S) -> AsyncIterator[VoucherWorld]:
    payments = issuers.payments
    assert payments.one_voucher
    assert payments.ott
    assert payments.blu
    providers: dict[str, Provider] = {
        Issuer.ONE_VOUCHER: OneVoucherProvider(payments.one_voucher, answer_s=answer_s),
        Issuer.OTT: OttProvider(payments.ott, answer_s=answer_s),
        Issuer.BLU: BluProvider(payments.blu, answer_s=answer_s),
    }
    database = Database(url, connections_max=8)
    world = VoucherWorld(database, issuers, providers, TopUpWorker(database, providers))
    await world.rows("UPDATE top_ups SET due_at = NULL")
    yield world
    assert await broken_promises(database) == []
    for provider in providers.values():
        await provider.close()
    await database.close()


async def tables_with(database: Database, secrets: Sequence[str]) -> Sequence[str]:
    """Return the tables that hold one of the secrets, as text or as octets."""
    patterns = [f"%{one}%" for secret in secrets for one in (secret, secret.encode().hex())]
    async with database.connection() as connection:
        tables = await connection.fetch(
            "SELECT oid::regclass::text FROM pg_class"
            " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition"
        )
        return [
            table
            for (table,) in tables
            if await connection.fetch(f"SELECT FROM {table} t WHERE t::text ILIKE ANY($1)", patterns)
        ]
