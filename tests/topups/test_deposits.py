"""Every account gets one address, and every deposit is credited once."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Final
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from tests.support.processes.service import new_account
from tests.support.sending.batchers import broken_promises
from tests.topups.test_addresses import XPUB
from tumira.accounts import store as accounts
from tumira.audit_log import Actor
from tumira.core.errors import OperatorError
from tumira.core.ids import AccountId, TopUpId, new_id
from tumira.core.settings.payments import Payments, Usdt
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.start import (
    DepositAddress,
    assign_deposit_address,
    find_deposit_address,
    start_usdt,
)
from tumira.topups.states import TOP_UP_MIN, Currency, Method, TopUpState
from tumira.topups.store import NewTopUp, TopUpUpdate
from tumira.topups.usdt import deposits
from tumira.topups.usdt import store as usdt_store
from tumira.topups.usdt.addresses import derive_address, read_xpub, with_checksum
from tumira.topups.usdt.credit_deposits import UNPAID_FOR, Credited, credit_deposits, expire_unpaid
from tumira.topups.usdt.deposit_rules import ChainDeposit, Deposit, DepositState
from tumira.topups.usdt.store import ChainCursor

CHAIN: Final = 56
USDT: Final = 10**18
SETTINGS: Final = Usdt(
    rpc_urls=("http://127.0.0.1:1",), xpub=XPUB, contract="0x" + "11" * 20, chain_id=CHAIN, confirmations=15
)
PAYMENTS: Final = Payments(usdt=SETTINGS)

_numbers: Final = iter(range(1, 1_000_000))


@pytest_asyncio.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    yield database
    assert await broken_promises(database) == []
    await database.close()


async def started(database: Database) -> tuple[AccountId, DepositAddress]:
    account_id = await new_account(database)
    return account_id, await start_usdt(database, PAYMENTS, account_id)


def deposit_to(address: str, units: int, **fields: object) -> ChainDeposit:
    number = next(_numbers)
    made = ChainDeposit(
        tx_hash=f"0x{number:064x}",
        log_index=0,
        block_number=number,
        block_hash=f"0x{number + (1 << 200):064x}",
        sender="0x" + "22" * 20,
        address=address.lower(),
        units=units,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


async def record(database: Database, *found: ChainDeposit, final: bool = True, chain_id: int = CHAIN) -> int:
    async with database.transaction() as connection:
        news = await deposits.record(connection, chain_id, found)
        if final:
            await deposits.mark_final(connection, chain_id, found)
    return len(news)


async def states(database: Database, account_id: AccountId) -> list[DepositState]:
    async with database.connection() as connection:
        return [one.state for one in await deposits.list_of_account(connection, account_id, 100)]


async def balance(database: Database, account_id: AccountId) -> Decimal:
    async with database.connection() as connection:
        account = await accounts.find(connection, account_id)
    assert account is not None
    return account.balance


async def test_an_account_keeps_one_address_and_one_open_top_up(database: Database) -> None:
    account_id = await new_account(database)
    every = await asyncio.gather(*(start_usdt(database, PAYMENTS, account_id) for _ in range(8)))
    assert len(set(every)) == 1
    async with database.connection() as connection:
        top_up = await top_ups.find(connection, account_id, every[0].top_up_id)
    assert top_up is not None
    assert (top_up.state, top_up.provider, top_up.currency, top_up.due_at) == (
        TopUpState.PENDING,
        "bep20",
        Currency.USDT,
        None,
    )


async def test_accounts_that_start_at_once_get_addresses_of_their_own_from_the_key(
    database: Database,
) -> None:
    callers = [await new_account(database) for _ in range(6)]
    every = await asyncio.gather(*(start_usdt(database, PAYMENTS, one) for one in callers * 2))
    addresses = {one.address for one in every}
    assert len(addresses) == len(callers)
    key = read_xpub(XPUB)
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT address, place FROM usdt_addresses ORDER BY place")
    assert [row["place"] for row in rows] == list(range(len(rows)))
    assert [row["address"] for row in rows] == [derive_address(key, place) for place in range(len(rows))]
    assert addresses <= {with_checksum(row["address"]) for row in rows}


async def test_an_address_that_does_not_follow_from_the_key_is_not_given_out(database: Database) -> None:
    account_id, given = await started(database)
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE usdt_addresses SET address = $1 WHERE address = $2",
            "0x" + "66" * 20,
            given.address.lower(),
        )
    with pytest.raises(OperatorError, match="nothing may be paid there"):
        await start_usdt(database, PAYMENTS, account_id)
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE usdt_addresses SET address = $2 WHERE address = $1",
            "0x" + "66" * 20,
            given.address.lower(),
        )


async def test_what_is_not_set_up_or_unknown_is_said(database: Database) -> None:
    account_id, _ = await started(database)
    with pytest.raises(OperatorError, match="TUMIRA_USDT_XPUB do that"):
        await start_usdt(database, Payments(), account_id)
    with pytest.raises(OperatorError, match="keep it offline"):
        await start_usdt(database, Payments(usdt=replace(SETTINGS, xpub="xprv9s21")), account_id)
    with pytest.raises(OperatorError, match="no such account"):
        await start_usdt(database, PAYMENTS, AccountId(uuid4()))


async def test_what_is_recorded_twice_is_there_once_and_final_stays_final(database: Database) -> None:
    account_id, given = await started(database)
    found = deposit_to(given.address, USDT)
    assert await record(database, found) == 1
    assert await record(database, found, final=False) == 0
    assert await states(database, account_id) == [DepositState.FINAL]
    assert await record(database, deposit_to("0x" + "99" * 20, USDT)) == 0


@pytest.mark.parametrize("change", ["block", "units", "address", "nothing"])
async def test_what_comes_back_changed_before_it_is_credited_is_seen_again(
    database: Database, change: str
) -> None:
    _, given = await started(database)
    _, other = await started(database)
    found = deposit_to(given.address, 5 * USDT)
    assert await record(database, found, final=False) == 1
    changed = {
        "block": replace(found, block_hash="0x" + "ab" * 32),
        "units": replace(found, units=6 * USDT),
        "address": replace(found, address=other.address.lower()),
        "nothing": found,
    }[change]
    assert await record(database, changed, final=False) == (change != "nothing")
    async with database.connection() as connection:
        (row,) = await connection.fetch(
            "SELECT block_hash, units, address, state FROM usdt_deposits WHERE tx_hash = $1", found.tx_hash
        )
    assert tuple(row) == (changed.block_hash, changed.units, changed.address, "seen")


async def test_deposits_at_once_credit_once(database: Database) -> None:
    account_id, given = await started(database)
    await record(database, deposit_to(given.address, 2 * USDT), deposit_to(given.address, 4 * USDT + 123))
    credited = await asyncio.gather(*(credit_deposits(database, CHAIN, account_id) for _ in range(10)))
    assert [one for one in credited if one is not None] == [
        Credited(given.top_up_id, Decimal("6.0000"), deposits=2)
    ]
    assert await balance(database, account_id) == 6
    async with database.connection() as connection:
        assert len(await deposits.list_of_top_up(connection, given.top_up_id, 10)) == 2


async def test_a_start_and_a_credit_at_once_never_make_two_open_top_ups(database: Database) -> None:
    account_id, given = await started(database)
    for _ in range(5):
        await record(database, deposit_to(given.address, 5 * USDT))
        await asyncio.gather(
            credit_deposits(database, CHAIN, account_id),
            start_usdt(database, PAYMENTS, account_id),
            start_usdt(database, PAYMENTS, account_id),
        )
        async with database.connection() as connection:
            every = await top_ups.list_of_account(connection, account_id, 100)
        assert sum(top_up.state is TopUpState.PENDING for top_up in every) <= 1
    assert await balance(database, account_id) == 25


async def test_what_was_credited_is_neither_orphaned_nor_seen_again(database: Database) -> None:
    account_id, given = await started(database)
    found = deposit_to(given.address, 5 * USDT)
    await record(database, found)
    await credit_deposits(database, CHAIN, account_id)
    elsewhere = replace(found, block_hash="0x" + "77" * 32, log_index=3)
    assert await record(database, elsewhere, replace(elsewhere, log_index=0)) == 0
    # Nor in its own block, whatever a provider says of it by then.
    assert await record(database, replace(found, units=6 * USDT), final=False) == 0
    async with database.transaction() as connection:
        assert await deposits.mark_orphaned(connection, CHAIN, [found]) == 0
        assert await deposits.list_credited_elsewhere(connection, CHAIN, [found]) == []
        assert await deposits.list_credited_elsewhere(connection, CHAIN, [elsewhere]) == [found.tx_hash]
    assert await credit_deposits(database, CHAIN, account_id) is None
    assert await states(database, account_id) == [DepositState.CREDITED]


async def test_too_little_and_another_chain_are_not_credited(database: Database) -> None:
    account_id, given = await started(database)
    await record(database, deposit_to(given.address, 5 * USDT - 1))
    await record(database, deposit_to(given.address, 50 * USDT), chain_id=97)
    await record(database, coming := deposit_to(given.address, USDT), final=False)
    async with database.connection() as connection:
        assert account_id not in await deposits.list_accounts_with_enough(connection, CHAIN, 100)
        outstanding = await deposits.add_up(connection, CHAIN, account_id)
        cursor = ChainCursor(coming.block_number + 4, "0x" + "aa" * 32)
        await usdt_store.insert_cursor(connection, CHAIN, SETTINGS.contract, cursor)
        shown = await deposits.list_of_account(connection, account_id, 10)
    assert await credit_deposits(database, CHAIN, account_id) is None
    assert outstanding.held == Decimal("4.999999999999999999")
    assert outstanding.coming == 1
    assert outstanding.missing == 0
    # Depth is counted from what was read last.
    assert {one.facts: one.depth for one in shown}[coming] == 5


async def test_more_than_can_be_written_down_harms_nobody_else(database: Database) -> None:
    account_id, given = await started(database)
    other_id, other = await started(database)
    await record(database, deposit_to(given.address, 2**256 - 1), deposit_to(other.address, 5 * USDT))
    with pytest.raises((asyncpg.PostgresError, ArithmeticError)):
        await credit_deposits(database, CHAIN, account_id)
    assert await balance(database, account_id) == 0
    assert await states(database, account_id) == [DepositState.FINAL]
    assert await credit_deposits(database, CHAIN, other_id) is not None
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE usdt_deposits SET state = 'orphaned' WHERE account_id = $1", account_id
        )


async def test_a_top_up_that_nobody_pays_expires_and_the_address_stays(database: Database) -> None:
    account_id, given = await started(database)
    waiting_id, waiting = await started(database)
    _, young = await started(database)
    old = int((time.time() - (UNPAID_FOR + timedelta(minutes=1)).total_seconds()) * 1000)
    async with database.transaction() as connection:
        for one, address in ((account_id, given), (waiting_id, waiting)):
            await top_ups.mark(connection, address.top_up_id, TopUpUpdate(TopUpState.EXPIRED))
            new = NewTopUp(TopUpId(new_id(old)), one, Method.USDT, "bep20", Currency.USDT, is_due=False)
            await top_ups.insert(connection, new)
            await top_ups.mark(connection, new.id, TopUpUpdate(TopUpState.PENDING))
    await record(database, deposit_to(waiting.address, 5 * USDT), final=False)
    settled = await expire_unpaid(database)
    assert [(one.top_up.account_id, one.top_up.state) for one in settled] == [
        (account_id, TopUpState.EXPIRED)
    ]
    assert await expire_unpaid(database) == []
    async with database.connection() as connection:
        kept = await top_ups.find_any(connection, young.top_up_id)
    assert kept is not None
    assert kept.state is TopUpState.PENDING
    # What comes later is credited by a top-up of its own.
    await record(database, deposit_to(given.address, 6 * USDT))
    credited = await credit_deposits(database, CHAIN, account_id)
    assert credited is not None
    assert credited.top_up_id not in {one.top_up.id for one in settled}
    assert (await start_usdt(database, PAYMENTS, account_id)).address == given.address


async def test_a_cursor_is_moved_only_from_where_it_stands(database: Database) -> None:
    first, second, third = (ChainCursor(number, f"0x{number:064x}") for number in (5, 6, 7))
    async with database.connection() as connection:
        await usdt_store.insert_cursor(connection, 1, "0x1", first)
        await usdt_store.insert_cursor(connection, 1, "0x1", third)
        assert await usdt_store.find_cursor(connection, 1, "0x1") == first
        assert await usdt_store.move_cursor(connection, 1, "0x1", first, second)
        assert not await usdt_store.move_cursor(connection, 1, "0x1", first, third)
        assert not await usdt_store.move_cursor(
            connection, 1, "0x1", replace(second, block_hash="0x0"), third
        )
        assert await usdt_store.find_cursor(connection, 1, "0x1") == second


async def test_lists_are_of_one_chain_and_of_the_blocks_asked_for(database: Database) -> None:
    account_id, address = await started(database)
    # Blocks of their own, far above those of the other tests.
    made = [
        deposit_to(address.address, USDT, block_number=9_000_000 + place, log_index=index)
        for place, index in ((1, 0), (2, 1), (2, 0), (3, 0), (4, 0))
    ]
    first, second, before_second, third, orphan = made
    await record(database, *made, final=False)
    await record(database, deposit_to(address.address, USDT, block_number=9_000_002), chain_id=CHAIN + 1)
    async with database.transaction() as connection:
        await deposits.mark_final(connection, CHAIN, [third])
        await deposits.mark_orphaned(connection, CHAIN, [orphan])

        def facts(found: Sequence[Deposit]) -> list[ChainDeposit]:
            return [one.facts for one in found]

        since = facts(await deposits.list_since(connection, CHAIN, 9_000_002, 9))
        assert since == [before_second, second, third]
        assert facts(await deposits.list_since(connection, CHAIN, 9_000_001, 2)) == [first, before_second]
        seen = facts(await deposits.list_seen(connection, CHAIN, 9_000_001, 9_000_003, 9))
        assert seen == [before_second, second]
        assert facts(await deposits.list_seen(connection, CHAIN, 9_000_000, 9_000_002, 2)) == [
            first,
            before_second,
        ]
        assert facts(await deposits.list_seen(connection, CHAIN, 9_000_000, 9_000_001, 9)) == [first]
        between = facts(await deposits.list_between(connection, CHAIN, 9_000_002, 9_000_003))
        assert {one.tx_hash for one in between} == {one.tx_hash for one in (before_second, second, third)}
        outstanding = await deposits.add_up(connection, CHAIN, account_id)
        assert (outstanding.coming, outstanding.held) == (Decimal(3), Decimal(1))
        assert outstanding.missing == max(Decimal(0), TOP_UP_MIN - 4)


async def test_an_address_is_assigned_once_and_recorded_with_who_did_it(database: Database) -> None:
    account_id = await new_account(database)
    assert await find_deposit_address(database, PAYMENTS, account_id) is None
    for _ in range(2):
        await assign_deposit_address(database, PAYMENTS, account_id, Actor("Rudo"))
    address = await find_deposit_address(database, PAYMENTS, account_id)
    assert address is not None
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT actor, detail FROM changes WHERE account_id = $1 AND what = 'USDT address assigned'",
            account_id,
        )
    assert [tuple(row) for row in rows] == [("Rudo", address)]
    assert (await start_usdt(database, PAYMENTS, account_id)).address == address
    with pytest.raises(OperatorError, match="no such account"):
        await assign_deposit_address(database, PAYMENTS, AccountId(uuid4()), Actor("Rudo"))


async def test_a_deposit_is_marked_only_as_it_stands_in_its_own_block(database: Database) -> None:
    account_id, address = await started(database)
    made = deposit_to(address.address, USDT)
    await record(database, made, final=False)
    others = [
        replace(made, block_hash=f"0x{1:064x}"),
        replace(made, log_index=1),
        replace(made, tx_hash=f"0x{1:064x}"),
    ]
    async with database.transaction() as connection:
        for mark in (deposits.mark_final, deposits.mark_orphaned):
            assert await mark(connection, CHAIN, others) == 0
            assert await mark(connection, CHAIN + 1, [made]) == 0
        # Only what is final is credited.
        assert await deposits.mark_credited(connection, CHAIN, [made], TopUpId(uuid4())) == 0
        assert await deposits.mark_final(connection, CHAIN, [made]) == 1
        assert await deposits.mark_final(connection, CHAIN, [made]) == 0
        assert await deposits.mark_orphaned(connection, CHAIN, [made]) == 1
        assert await deposits.mark_orphaned(connection, CHAIN, [made]) == 0
    assert await states(database, account_id) == [DepositState.ORPHANED]
