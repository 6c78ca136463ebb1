"""USDT that is paid on a chain is credited once, whatever the chain, its providers and our process do."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import pytest
import pytest_asyncio

from tests.support.topups.chain import CHAIN_ID, USDT, run_chain
from tests.support.topups.chain_behaviours import (
    Behaviour,
    alters,
    alters_logs,
    answers,
    fails,
    hides,
    lags,
    limits_range,
    renames,
    tells_no_finality,
)
from tests.support.topups.usdt import DEEP, WAIT_S, World, build_world
from tumira.core.errors import OperatorError
from tumira.core.ids import AccountId
from tumira.core.settings.payments import Payments
from tumira.topups.start import start_usdt
from tumira.topups.states import TopUpState
from tumira.topups.usdt import deposits
from tumira.topups.usdt import store as usdt_store
from tumira.topups.usdt.chain import ChainError, WrongChainError, blocks_between, deposits_on_chain
from tumira.topups.usdt.deposit_rules import DepositState
from tumira.topups.usdt.node import TRANSFER
from tumira.topups.usdt.watcher import ChainWatcher

NOBODY: Final = "0x" + "42" * 20


@pytest_asyncio.fixture(scope="module")
async def shared(server_url: str) -> AsyncIterator[World]:
    with run_chain() as chain, build_world(chain, server_url) as world:
        yield world
        await world.close()


@pytest_asyncio.fixture
async def world(shared: World) -> AsyncIterator[World]:
    shared.lie()
    await shared.look()
    yield shared
    shared.lie()
    await shared.check()


async def test_what_is_paid_is_seen_at_once_and_credited_once_it_is_deep(
    world: World,
) -> None:
    customer, other = await world.customer(), await world.customer()
    # Neither another token, nor a payment that fails, nor one to somebody else, nor nothing.
    world.chain.pay(customer.address, 50 * USDT, token=world.chain.other_token)
    world.chain.fail_to_pay(customer.address, 50 * USDT)
    world.chain.pay(NOBODY, 50 * USDT)
    world.chain.pay(customer.address, 0)
    await world.look()
    assert await world.deposits(customer) == []
    tx_hash = world.chain.pay(customer.address, 7 * USDT)
    await world.look()
    (seen,) = await world.deposits(customer)
    assert (seen.state, seen.depth, seen.tx_hash) == (DepositState.SEEN, 1, tx_hash)
    assert seen.amount == 7
    world.chain.mine(DEEP - 2)
    await world.look()
    (seen,) = await world.deposits(customer)
    assert (seen.state, seen.depth) == (DepositState.SEEN, DEEP - 1)
    assert await world.balance(customer) == 0
    world.chain.mine()
    for _ in range(3):
        await world.look()
        assert await world.balance(customer) == 7
    (top_up,) = await world.top_ups(customer)
    assert (top_up.id, top_up.state) == (customer.top_up_id, TopUpState.CREDITED)
    assert top_up.paid == top_up.amount == 7
    assert top_up.provider_reference == f"{CHAIN_ID}:{tx_hash}:0"
    # The address stays; the next payment is a top-up of its own.
    again = await start_usdt(world.database, Payments(usdt=world.settings), customer.id)
    assert (again.address, again.top_up_id == customer.top_up_id) == (customer.address, False)
    # Both transfers of a contract in one transaction count.
    world.chain.pay_twice(customer.address, 3 * USDT, customer.address, 4 * USDT)
    world.chain.pay_twice(customer.address, 1 * USDT, other.address, 6 * USDT)
    world.chain.mine(DEEP)
    await world.look()
    found = await world.deposits(customer)
    assert sorted(one.facts.log_index for one in found) == [0, 0, 0, 1]
    assert {one.facts.sender for one in found} == {world.chain.payer, world.chain.purse}
    assert await world.balance(customer) == 15
    assert await world.balance(other) == 6


@pytest.mark.long
async def test_what_was_credited_is_not_touched_by_blocks_that_are_replaced(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    customer, other = await world.customer(), await world.customer()
    snapshot = world.chain.snapshot()
    tx_hash = world.chain.pay(customer.address, 9 * USDT)
    world.chain.mine(DEEP)
    await world.look()
    assert await world.balance(customer) == 9
    world.chain.revert(snapshot)
    world.chain.mine(DEEP + 1)
    await world.look()
    # The same transaction in another block, where its log has another number.
    with world.chain.one_block():
        assert world.chain.pay(customer.address, 9 * USDT) == tx_hash
        world.chain.pay(other.address, 6 * USDT, is_hasty=True)
    assert world.chain.ask("eth_getTransactionReceipt", tx_hash)["logs"][0]["logIndex"] == "0x1"
    world.chain.mine(DEEP)
    await world.look()
    assert await world.balance(customer) == 9
    assert await world.balance(other) == 6
    assert await world.states(customer) == [DepositState.CREDITED]
    told = capsys.readouterr()
    assert "credited deposit" in told.out + told.err


@pytest.mark.long
async def test_what_is_too_little_is_held_until_it_is_enough_and_rounded_down(world: World) -> None:
    customer = await world.customer()
    world.chain.pay(customer.address, 2 * USDT)
    world.chain.pay(customer.address, 1)
    world.chain.mine(DEEP)
    await world.look()
    async with world.database.connection() as connection:
        outstanding = await deposits.add_up(connection, CHAIN_ID, customer.id)
    assert outstanding.held == Decimal("2.000000000000000001")
    assert outstanding.missing == Decimal("2.999999999999999999")
    assert await world.states(customer) == [DepositState.FINAL] * 2
    # A unit less than five dollars, then that unit.
    world.chain.pay(customer.address, 3 * USDT - 2)
    world.chain.mine(DEEP)
    await world.look()
    assert await world.balance(customer) == 0
    world.chain.pay(customer.address, USDT // 10_000 + 1)
    world.chain.mine(DEEP)
    await world.look()
    assert await world.balance(customer) == Decimal("5.0001")
    (top_up,) = await world.top_ups(customer)
    assert top_up.paid == Decimal("5.0001")
    assert await world.states(customer) == [DepositState.CREDITED] * 4
    # What is below four decimals of a payment stays with it.
    world.chain.pay(customer.address, 6 * USDT + USDT // 10_000 - 1)
    world.chain.mine(DEEP)
    await world.look()
    assert await world.balance(customer) == Decimal("11.0001")


@pytest.mark.long
async def test_a_deposit_whose_block_is_replaced_vanishes_and_is_credited_where_it_comes_back(
    world: World,
) -> None:
    customer, other = await world.customer(), await world.customer()
    snapshot = world.chain.snapshot()
    tx_hash = world.chain.pay(customer.address, 9 * USDT)
    world.chain.mine(3)
    await world.look()
    assert await world.states(customer) == [DepositState.SEEN]
    world.chain.revert(snapshot)
    # The chain is shorter than what was read: that is waited out.
    await world.look()
    assert await world.states(customer) == [DepositState.SEEN]
    world.chain.mine(4)
    await world.look()
    assert await world.states(customer) == [DepositState.ORPHANED]
    assert world.chain.pay(customer.address, 9 * USDT) == tx_hash
    world.chain.pay(other.address, 8 * USDT)
    await world.look()
    assert await world.states(customer) == [DepositState.SEEN]
    world.chain.mine(DEEP)
    await world.look()
    assert await world.balance(customer) == 9
    assert await world.balance(other) == 8


async def test_a_watcher_that_ends_after_any_step_is_followed_by_one_that_goes_on(world: World) -> None:
    customer = await world.customer()
    world.chain.pay(customer.address, 5 * USDT)
    world.chain.mine(DEEP)
    for expected in (DepositState.SEEN, DepositState.FINAL, DepositState.CREDITED):
        async with world.watcher() as watcher:
            view = await watcher.see()
            if expected is DepositState.SEEN:
                await watcher.reader.read(view)
            elif expected is DepositState.FINAL:
                await watcher.reader.confirm(view)
            else:
                await watcher.credit()
        assert await world.states(customer) == [expected]
    assert await world.balance(customer) == 5


@pytest.mark.long
async def test_two_that_watch_at_once_credit_once(world: World) -> None:
    customer = await world.customer()
    world.chain.pay(customer.address, 5 * USDT)
    world.chain.mine(DEEP)
    async with world.watcher() as one, world.watcher() as other:
        # As where the lock was lost unnoticed.
        views = await asyncio.gather(one.see(), other.see())
        await asyncio.gather(one.reader.read(views[0]), other.reader.read(views[1]))
        await asyncio.gather(one.reader.confirm(views[0]), other.reader.confirm(views[1]))
        await asyncio.gather(*[one.credit(), other.credit()] * 5)
    assert await world.balance(customer) == 5
    assert len(await world.top_ups(customer)) == 1


@pytest.mark.long
async def test_one_watches_and_the_other_waits_until_it_is_gone(world: World) -> None:
    customer = await world.customer()
    async with world.watcher() as one, world.watcher() as other:
        await one.look()
        world.chain.pay(customer.address, 5 * USDT)
        assert await other.look() is False
        assert await world.deposits(customer) == []
        await one.look()
        assert await world.states(customer) == [DepositState.SEEN]
        await one.close()
        world.chain.mine(DEEP)
        async with asyncio.timeout(WAIT_S):
            # The server takes a moment to notice that somebody is gone.
            while await world.balance(customer) != 5:
                await other.look()


async def test_it_runs_by_itself_and_outlives_providers_that_fail(world: World) -> None:
    customer = await world.customer()
    watcher = ChainWatcher(world.database, world.settings)
    world.lie(first=[fails()], second=[fails(status=None)])
    world.chain.pay(customer.address, 5 * USDT)
    world.chain.mine(DEEP)
    world.first.asked.clear()
    running = asyncio.create_task(watcher.run())
    await asyncio.to_thread(world.first.wait_until_asked)
    world.lie()
    await world.wait_for_balance(customer, 5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()


@pytest.mark.long
async def test_the_lower_head_and_the_lower_final_block_count(world: World) -> None:
    customer = await world.customer()
    world.chain.pay(customer.address, 5 * USDT)
    world.lie(second=[lags(blocks=1)])
    await world.look()
    assert await world.deposits(customer) == []
    world.chain.mine(DEEP)
    world.lie(first=[lags(finalized=DEEP + 1)])
    await world.look()
    assert await world.states(customer) == [DepositState.SEEN]
    world.lie(first=[lags(finalized=DEEP)])
    await world.look()
    assert await world.balance(customer) == 5
    # One that has lost blocks is waited for.
    world.chain.pay(customer.address, 6 * USDT)
    world.lie()
    await world.look()
    world.lie(first=[lags(blocks=5)])
    world.chain.mine(2)
    await world.look()
    assert DepositState.SEEN in await world.states(customer)
    world.lie()
    world.chain.mine(DEEP)
    await world.look()
    assert await world.balance(customer) == 11


@pytest.mark.long
async def test_where_nobody_says_what_is_final_it_takes_sixty_blocks(world: World) -> None:
    customer = await world.customer()
    world.chain.pay(customer.address, 5 * USDT)
    world.chain.mine(58)
    world.lie(second=[tells_no_finality])
    await world.look_anew()
    assert await world.states(customer) == [DepositState.SEEN]
    # One that told what is final and does not any more has only failed.
    world.chain.mine()
    await world.look()
    assert await world.states(customer) == [DepositState.SEEN]
    await world.look_anew()
    assert await world.balance(customer) == 5


@pytest.mark.long
async def test_a_provider_that_answers_for_few_blocks_is_asked_for_few(world: World) -> None:
    customer = await world.customer()
    asked: list[int] = []
    world.lie(first=[limits_range(10, asked)])
    world.chain.mine(40)
    world.chain.pay(customer.address, 5 * USDT)
    world.chain.mine(40)
    await world.look()
    assert await world.balance(customer) == 5
    assert max(asked) > 10
    assert sum(wanted <= 10 for wanted in asked) >= 8


@pytest.mark.long
async def test_what_one_of_two_providers_does_not_tell_is_seen_and_neither_credited_nor_lost(
    world: World,
) -> None:
    customer = await world.customer()
    tx_hash = world.chain.pay(customer.address, 5 * USDT)
    world.chain.mine(DEEP)
    silent = (fails(), fails(status=None), fails(method="eth_getLogs"), fails(method="eth_blockNumber"))
    for behaviour in (*silent, hides(tx_hash)):
        world.lie(second=[behaviour])
        await world.look()
        assert await world.states(customer) == [DepositState.SEEN]
    world.lie(first=[hides(tx_hash)])
    await world.look()
    assert await world.states(customer) == [DepositState.SEEN]
    # Where there is only one, it counts.
    world.lie()
    await world.look(replace(world.settings, rpc_urls=(world.first.url,)))
    assert await world.balance(customer) == 5

    other = await world.customer()
    world.chain.pay(other.address, 5 * USDT)
    world.lie(first=[hides()], second=[fails(method="eth_getLogs")])
    # More than is read twice in any case.
    world.chain.mine(60)
    await world.look()
    assert await world.deposits(other) == []
    world.lie()
    await world.look()
    assert await world.balance(other) == 5


@pytest.mark.long
async def test_what_one_provider_invents_or_makes_more_of_is_never_credited(world: World) -> None:
    customer, other = await world.customer(), await world.customer()
    world.chain.pay(other.address, 5 * USDT)
    world.chain.mine(DEEP)
    number = world.chain.head() - DEEP + 1
    invented = {
        "address": world.chain.token,
        "topics": [TRANSFER, f"0x{'0' * 24}{NOBODY[2:]}", f"0x{'0' * 24}{customer.address[2:].lower()}"],
        "data": f"0x{5000 * USDT:064x}",
        "blockNumber": hex(number),
        "blockHash": world.chain.block(hex(number))["hash"],
        "transactionHash": "0x" + "ab" * 32,
        "logIndex": "0x0",
        "removed": False,
    }
    more = alters({"data": f"0x{500 * USDT:064x}"})
    world.lie(first=[more, alters_logs(lambda logs: [*logs, invented])])
    await world.look()
    await world.look()
    for one in (customer, other):
        assert await world.states(one) == [DepositState.SEEN]
        assert await world.balance(one) == 0
    world.lie()
    await world.look()
    assert await world.balance(customer) == 0
    assert await world.balance(other) == 5


WRONG_LOGS: Final[Sequence[Mapping[str, object]]] = (
    {"removed": True},
    {"address": NOBODY},
    {"topics": [TRANSFER]},
    {"topics": ["0x" + "11" * 32, f"0x{'0' * 64}", f"0x{'0' * 64}"]},
    {"topics": [TRANSFER, None, None]},
    {"topics": [TRANSFER, f"0x{'0' * 64}", f"0x{'0' * 24}{NOBODY[2:]}"]},
    {"blockHash": "0x" + "cd" * 32},
    {"blockNumber": "0x1"},
    {"blockNumber": None},
    {"data": "0x"},
    {"logIndex": None},
    {"transactionHash": "0xzz"},
)


@pytest.mark.long
async def test_a_wrong_log_is_not_taken_and_an_answer_that_is_none_is_no_answer(world: World) -> None:
    customer = await world.customer()
    world.chain.pay(customer.address, 5 * USDT)
    for fields in WRONG_LOGS:
        world.lie(first=[alters(fields)], second=[alters(fields)])
        with suppress(ChainError):
            await world.look()
        assert await world.deposits(customer) == [], fields
    for method, result in (
        ("eth_blockNumber", None),
        ("eth_blockNumber", 7),
        ("eth_blockNumber", "latest"),
        ("eth_getBlockByNumber", "0x1"),
        ("eth_getBlockByNumber", {"number": "0x1"}),
        ("eth_getLogs", None),
        ("eth_getLogs", {}),
        ("eth_getLogs", [None]),
    ):
        world.lie(first=[answers(method, result)], second=[answers(method, result)])
        with pytest.raises(ChainError, match="no provider answers"):
            await world.look()
        assert await world.deposits(customer) == []
    world.lie()
    await world.look()
    assert await world.states(customer) == [DepositState.SEEN]


@pytest.mark.long
async def test_a_block_that_providers_call_differently_is_waited_for(world: World) -> None:
    customer = await world.customer()
    world.chain.pay(customer.address, 5 * USDT)
    world.lie(second=[renames(world.chain.head())])
    with pytest.raises(ChainError, match="called differently"):
        await world.look()
    assert await world.deposits(customer) == []
    world.lie()
    await world.look()
    # When it is deep enough, too.
    world.chain.mine(DEEP)
    await world.look(replace(world.settings, confirmations=DEEP + 5))
    world.lie(second=[renames(world.chain.head() - DEEP)])
    with pytest.raises(ChainError, match="called differently"):
        await world.look()
    assert await world.states(customer) == [DepositState.SEEN]
    # That all call it otherwise for a while costs nothing either.
    renamed = renames(world.chain.head() - DEEP)
    world.lie(first=[renamed, hides()], second=[renamed, hides()])
    await world.look()
    assert await world.states(customer) == [DepositState.ORPHANED]
    world.lie()
    await world.look()
    await world.look()
    assert await world.balance(customer) == 5


async def test_another_chain_or_another_token_is_not_read(world: World) -> None:
    world.lie(second=[answers("eth_chainId", "0x61")])
    with pytest.raises(WrongChainError, match="on chain 97 and not on 56"):
        await world.look_anew()
    world.lie()
    with pytest.raises(WrongChainError, match="has 6 decimals"):
        await world.look_anew(replace(world.settings, contract=world.chain.six_decimals))
    async with world.database.connection() as connection:
        assert await usdt_store.find_cursor(connection, CHAIN_ID, world.chain.six_decimals) is None


async def test_what_came_before_the_chain_was_first_read_is_found(world: World) -> None:
    customer = await world.customer()
    token = world.chain.deploy("Token", 18)
    world.chain.pay(customer.address, 5 * USDT, token=token)
    world.chain.mine(50)
    await world.look_anew(replace(world.settings, contract=token))
    assert await world.balance(customer) == 5


@pytest.mark.long
async def test_the_chain_can_be_read_without_the_database(world: World) -> None:
    customer = await world.customer()
    before = world.chain.head()
    tx_hash = world.chain.pay_twice(customer.address, 5 * USDT, customer.address, 6 * USDT)
    world.chain.mine()
    found = await deposits_on_chain(world.settings, [customer.address.lower()], 0, before + 1000)
    assert [(one.tx_hash, one.log_index, one.units) for one in found] == [
        (tx_hash, 0, 5 * USDT),
        (tx_hash, 1, 6 * USDT),
    ]
    assert await deposits_on_chain(world.settings, [customer.address.lower()], 0, before) == []
    first, last = await blocks_between(
        world.settings, datetime.now(UTC) - timedelta(days=1), datetime.now(UTC) + timedelta(days=1)
    )
    assert (first, last) == (0, world.chain.head())
    world.lie(first=[fails()], second=[fails()])
    with pytest.raises(OperatorError, match="no provider answers"):
        await deposits_on_chain(world.settings, [], 0, before)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_every_payment_that_stays_is_credited_once(world: World, seed: int) -> None:
    dice = random.Random(seed)
    customers = [await world.customer() for _ in range(4)]
    kept: dict[AccountId, int] = {customer.id: 0 for customer in customers}
    behaviours: Sequence[Sequence[Behaviour]] = (
        [],
        [lags(blocks=3)],
        [lags(finalized=10)],
        [tells_no_finality],
        [limits_range(3)],
        [fails()],
        [fails(status=None)],
        [fails(method="eth_getLogs")],
        [hides()],
    )
    for _ in range(40):
        # What both hide is not there for anybody.
        hiding = dice.randrange(2)
        both = [dice.choice(behaviours[: len(behaviours) - (place != hiding)]) for place in range(2)]
        world.lie(first=both[0], second=both[1])
        watcher = ChainWatcher(world.database, world.settings)
        running = asyncio.create_task(watcher.run())
        snapshot = world.chain.snapshot()
        is_replaced = dice.random() < 0.3
        paid: dict[AccountId, int] = {}
        for _ in range(dice.randrange(3)):
            customer, units = dice.choice(customers), dice.randrange(1, 8 * USDT)
            world.chain.pay(customer.address, units)
            paid[customer.id] = paid.get(customer.id, 0) + units
            await asyncio.sleep(dice.random() * 0.1)
        # Never so many that what is replaced was final.
        world.chain.mine(dice.randrange(1, 5 if is_replaced else 12))
        await asyncio.sleep(dice.random() * 0.2)
        if is_replaced:
            world.chain.revert(snapshot)
            world.chain.mine(dice.randrange(1, 8))
        else:
            for account_id, units in paid.items():
                kept[account_id] += units
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    world.lie()
    world.chain.mine(80)
    await world.look()
    await world.look()
    for customer in customers:
        found = [one for one in await world.deposits(customer) if one.state is not DepositState.ORPHANED]
        assert sum(one.facts.units for one in found) == kept[customer.id]
        credited = [one.facts.units for one in found if one.state is DepositState.CREDITED]
        assert sum(credited) >= kept[customer.id] - 5 * USDT
        floors = [top_up.amount for top_up in await world.top_ups(customer) if top_up.amount is not None]
        assert await world.balance(customer) == sum(floors)
