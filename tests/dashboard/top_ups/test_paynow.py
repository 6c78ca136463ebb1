"""Paynow's notices lead to a poll and to nothing else, and the worker credits what the poll confirms."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

import httpx
import pytest
import pytest_asyncio

from tests.support.chaos.node import first_true
from tests.support.postgres.databases import clone
from tests.support.processes.service import NO_TLS, new_caller
from tests.support.topups.paynow_server import (
    INTEGRATION_ID,
    KEY,
    Call,
    Fault,
    Outcome,
    PaynowServer,
)
from tests.support.topups.paynow_world import FIVE, PaynowWorld, listening_hooks, post
from tests.support.topups.voucher_servers import run_issuers
from tumira.core.ids import TOP_UP, TopUpId, new_id, write_id
from tumira.core.settings.payments import Payments, Paynow
from tumira.dashboard.pages.paynow_notice import BODY_BYTES_MAX
from tumira.html.top_up_words import cannot_be_paid
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.providers.ott import OttProvider
from tumira.topups.providers.paynow import PaynowProvider
from tumira.topups.providers.paynow_messages import Wallet
from tumira.topups.start import start_paynow, start_voucher
from tumira.topups.states import Currency, Method, TopUp, TopUpState
from tumira.topups.store import NewTopUp
from tumira.topups.voucher_pins import Issuer
from tumira.topups.worker import CALL_S, CALLS_MAX, LEASE_S, TopUpWorker

_numbers: Final = itertools.count(10_001, 100)


@pytest.fixture(scope="module")
def shared_url(server_url: str) -> Iterator[str]:
    with clone(server_url) as url:
        yield url


@pytest.fixture(scope="module")
def hooks_url(shared_url: str) -> Iterator[str]:
    access = Paynow("https://paynow.example", INTEGRATION_ID, KEY, None)
    with listening_hooks(shared_url, Payments(paynow=access)) as url:
        yield url


@pytest_asyncio.fixture
async def world(shared_url: str, hooks_url: str, paynow: PaynowServer) -> AsyncIterator[PaynowWorld]:
    database = Database(shared_url, connections_max=8)
    provider = PaynowProvider(paynow.access, hooks_url)
    # The last digit is never a zero, which could go over to an amount and not change it.
    number = next(_numbers)
    paynow.numbers = itertools.count(number)
    caller = await new_caller(shared_url, "0")
    yield PaynowWorld(database, paynow, provider, hooks_url, caller, f"+2637712{number:05}")
    await provider.close()
    async with database.connection() as connection:
        # What a test leaves open must not be looked at by the next.
        await connection.execute("UPDATE top_ups SET due_at = NULL")
    await database.close()


async def test_a_top_up_is_credited_once_when_its_notice_comes(world: PaynowWorld) -> None:
    world.paynow.tells = True
    working = asyncio.create_task(TopUpWorker(world.database, {"paynow": world.provider}).run())
    top_up_id = await world.start()
    name = write_id(TOP_UP, top_up_id)
    payment = await asyncio.to_thread(world.paynow.wait_for_payment, name)
    world.paynow.move(payment, "Paid")

    async def is_credited() -> bool:
        return (await world.find(top_up_id)).state is TopUpState.CREDITED

    await first_true(is_credited, "it was not credited")
    notice = await asyncio.to_thread(world.paynow.wait_for_notice, name, "Paid")
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    assert notice.answer == 200
    assert (payment.phone, world.paynow.charged(name)) == (world.local, FIVE)
    assert await world.balance() == FIVE
    found = await world.find(top_up_id)
    assert (found.amount, found.paid, found.provider_reference) == (FIVE, FIVE, str(payment.number))
    # The loop has closed it.
    assert world.paynow.count(Call.START) == 1


async def test_a_good_notice_makes_its_top_up_due_and_does_nothing_else(world: PaynowWorld) -> None:
    top_up_id, payment = await world.begun()
    before = await world.find(top_up_id)
    assert await world.tell(top_up_id, world.paynow.notice(payment, "Paid")) == 200
    found = await world.find(top_up_id)
    assert before.due_at is not None
    assert found.due_at is not None
    assert found.due_at < before.due_at
    assert replace(found, due_at=before.due_at) == before
    # Paynow itself says that nothing was paid.
    assert (await world.look(top_up_id)).state is TopUpState.PENDING
    assert await world.balance() == 0
    # Nor is anything else in it believed.
    foreign = f"http://localhost:{world.paynow.port}/Interface/CheckPayment/?guid={payment.guid}"
    told = world.paynow.notice(payment, "Paid", amount="5000.00", pollurl=foreign, paynowreference="1")
    assert await world.tell(top_up_id, told) == 200
    world.paynow.move(payment, "Paid")
    found = await world.look(top_up_id)
    credited = (TopUpState.CREDITED, FIVE, str(payment.number))
    assert (found.state, found.amount, found.provider_reference) == credited
    assert await world.balance() == FIVE


async def test_forged_notices_are_refused_and_change_nothing(world: PaynowWorld) -> None:
    top_up_id, payment = await world.begun()
    other_id, other = await world.begun()
    world.paynow.move(payment, "Paid")
    before = [await world.find(top_up_id), await world.find(other_id)]
    good = world.paynow.notice(payment)
    forged = {
        "another key": world.paynow.notice(payment, key="another"),
        "no hash": good.partition(b"&hash=")[0],
        "changed": good.replace(b"amount=5.00", b"amount=50.00"),
        "a field more": good + b"&status=Paid",
        "another order": b"&".join(reversed(good.split(b"&"))),
        "another payment": world.paynow.notice(other),
        "no reference": world.paynow.notice(payment, reference=""),
        "nothing": b"",
        "no form": b"\xff\xfe",
        "JSON": b'{"status": "Paid"}',
    }
    assert {what: await world.tell(top_up_id, body) for what, body in forged.items()} == dict.fromkeys(
        forged, 400
    )
    assert await world.tell(top_up_id, good + b"&" + b"x" * BODY_BYTES_MAX) == 413
    assert [await world.find(top_up_id), await world.find(other_id)] == before
    assert await world.balance() == 0


async def test_a_notice_for_what_is_not_there_is_not_found(world: PaynowWorld) -> None:
    top_up_id, payment = await world.begun()
    good = world.paynow.notice(payment)
    voucher_id = TopUpId(new_id(1_700_000_000_000))
    async with world.database.connection() as connection:
        await top_ups.insert(
            connection,
            NewTopUp(voucher_id, world.caller.id, Method.VOUCHER, "own", Currency.USD, is_due=False),
        )
    unknown = TopUpId(new_id(1_700_000_000_000))
    assert await world.tell(unknown, good) == 404
    assert await world.tell(voucher_id, good) == 404
    assert await world.tell("top_x", good) == 404
    with listening_hooks(world.database.url, Payments()) as public_url:
        assert await post(f"{public_url}/hooks/paynow/{write_id(TOP_UP, top_up_id)}", good) == 404
    async with httpx.AsyncClient(trust_env=False, verify=NO_TLS) as client:
        assert (await client.get(f"{world.public_url}/hooks/paynow/top_x")).status_code == 405


async def test_repeated_reordered_and_late_notices_change_nothing(world: PaynowWorld) -> None:
    top_up_id, payment = await world.begun()
    told = [world.paynow.notice(payment, status) for status in ("Created", "Sent", "Cancelled", "Paid")]
    world.paynow.move(payment, "Paid")
    assert (await world.work(top_up_id)).state is TopUpState.CREDITED
    for body in [*reversed(told), *told, *told]:
        assert await world.tell(top_up_id, body) == 200
        assert (await world.look(top_up_id)).state is TopUpState.CREDITED
    assert await world.balance() == FIVE
    assert (await world.find(top_up_id)).due_at is None


async def poll_that_hangs(world: PaynowWorld, top_up_id: TopUpId) -> "asyncio.Task[TopUp]":
    """Have a top-up polled whose answer is written and held back until `release`."""
    world.paynow.misbehave(Call.POLL, Fault.HANG)
    before = world.paynow.count(Call.POLL)
    polling = asyncio.create_task(world.work(top_up_id))
    await asyncio.to_thread(world.paynow.wait_for_call, Call.POLL, before + 1)
    return polling


async def test_a_notice_during_a_poll_leads_to_another_poll(
    world: PaynowWorld,
) -> None:
    top_up_id, payment = await world.begun()
    polling = await poll_that_hangs(world, top_up_id)
    world.paynow.move(payment, "Paid")
    assert await world.tell(top_up_id, world.paynow.notice(payment)) == 200
    world.paynow.release()
    # The answer was written before the money came.
    assert (await polling).state is TopUpState.PENDING
    assert (await world.look(top_up_id)).state is TopUpState.CREDITED
    assert await world.balance() == FIVE


async def test_a_refund_during_a_poll_is_noticed(world: PaynowWorld) -> None:
    top_up_id, payment = await world.begun()
    world.paynow.move(payment, "Paid")
    polling = await poll_that_hangs(world, top_up_id)
    world.paynow.move(payment, "Refunded")
    assert await world.tell(top_up_id, world.paynow.notice(payment)) == 200
    world.paynow.release()
    assert (await polling).state is TopUpState.CREDITED
    assert (await world.look(top_up_id)).state is TopUpState.REVERSED
    assert await world.balance() == 0


async def test_an_old_answer_leaves_the_lease_of_whoever_asked_after_the_notice(world: PaynowWorld) -> None:
    top_up_id, payment = await world.begun()
    first = await poll_that_hangs(world, top_up_id)
    assert await world.tell(top_up_id, world.paynow.notice(payment)) == 200
    async with world.database.transaction() as connection:
        # Somebody takes it up after the notice, and dies.
        (claimed,) = await top_ups.claim_due(connection, {"paynow": 1}, LEASE_S)
    world.paynow.release()
    assert (await first).due_at == claimed.top_up.due_at


@pytest.mark.long
async def test_a_provider_that_hangs_delays_only_itself(world: PaynowWorld) -> None:
    world.paynow.misbehave(Call.START, Fault.HANG, CALLS_MAX + 1)
    for place in range(CALLS_MAX + 1):
        owner = (await new_caller(world.database.url, "0")).id
        access = Payments(paynow=world.paynow.access)
        await start_paynow(world.database, access, owner, Wallet.ECOCASH, FIVE, f"+26377129{place:04}")
    with run_issuers() as issuers:
        assert issuers.payments.ott is not None
        ott = OttProvider(issuers.payments.ott)
        # Longer than the voucher is waited for.
        hanging = PaynowProvider(world.paynow.access, world.public_url, answer_s=CALL_S)
        working = asyncio.create_task(TopUpWorker(world.database, {"paynow": hanging, Issuer.OTT: ott}).run())
        await asyncio.to_thread(world.paynow.wait_for_call, Call.START, CALLS_MAX)
        voucher_id = await start_voucher(
            world.database,
            issuers.payments,
            world.caller.id,
            Issuer.OTT,
            issuers.ott.issue("185.00"),
            value=None,
            phone="+27821230001",
        )

        async def is_credited() -> bool:
            return (await world.find(voucher_id)).state is TopUpState.CREDITED

        await first_true(is_credited, "it waited for Paynow")
        world.paynow.release()
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
    assert await world.balance() == 10


async def test_a_start_whose_answer_was_lost_with_the_way_to_pay_can_be_started_again(
    world: PaynowWorld,
) -> None:
    wallet = Wallet.CARD
    world.paynow.misbehave(Call.START, Fault.NO_ANSWER)
    lost = await world.start(wallet)
    # In doubt at first, then found by its trace: neither tells what to pay with.
    assert cannot_be_paid(await world.work(lost))
    assert cannot_be_paid(await world.work(lost))
    again, payment = await world.begun(wallet)
    assert not cannot_be_paid(await world.find(again))
    world.paynow.move(payment, "Paid")
    assert (await world.work(again)).state is TopUpState.CREDITED
    assert await world.balance() == FIVE
    # Should the first be paid all the same, it is credited too.
    world.paynow.move(world.payment(lost), "Paid")
    assert (await world.work(lost)).state is TopUpState.CREDITED
    assert await world.balance() == 2 * FIVE


async def test_a_start_that_timed_out_after_paynow_took_the_money_is_credited_once_and_not_asked_again(
    world: PaynowWorld,
) -> None:
    world.paynow.outcomes[world.local] = Outcome("Paid")
    world.paynow.misbehave(Call.START, Fault.NO_ANSWER)
    top_up_id = await world.start()
    assert (await world.work(top_up_id)).state is TopUpState.DOUBT
    assert (await world.work(top_up_id)).state is TopUpState.CREDITED
    assert await world.balance() == FIVE
    assert world.paynow.charged(write_id(TOP_UP, top_up_id)) == FIVE
    assert world.paynow.count(Call.START) == 1
