"""A voucher is credited once whatever happens to the answers, and never where the outcome is unknown."""

from collections.abc import AsyncIterator, Iterator, Sequence
from decimal import Decimal
from typing import Final

import pytest
import pytest_asyncio

from tests.support.postgres.databases import clone
from tests.support.topups.voucher_issuer import Twist
from tests.support.topups.voucher_servers import run_issuers
from tests.support.topups.voucher_world import FOREIGN, LOOKS_MAX, VoucherWorld, open_world
from tumira.audit_log import Actor
from tumira.core.errors import FieldError
from tumira.topups import store as top_ups
from tumira.topups.settle import resolve
from tumira.topups.states import FailureReason, TopUp, TopUpState
from tumira.topups.voucher_pins import Issuer
from tumira.topups.worker import LEASE_S

TAKEN_WITHOUT_ANSWER: Final = (Twist.CUT, Twist.ERROR, Twist.NONSENSE, Twist.UNSURE)
NOT_TAKEN: Final = (Twist.CUT_BEFORE, Twist.ERROR_BEFORE, Twist.UNSURE_BEFORE)


@pytest.fixture(scope="module")
def url(server_url: str) -> Iterator[str]:
    with clone(server_url) as url:
        yield url


@pytest_asyncio.fixture
async def world(url: str) -> AsyncIterator[VoucherWorld]:
    with run_issuers() as issuers:
        async with open_world(url, issuers) as world:
            yield world


@pytest.mark.parametrize("issuer", FOREIGN)
async def test_a_lost_answer_is_in_doubt_and_resolved_by_polling(world: VoucherWorld, issuer: Issuer) -> None:
    server = world.server_of(issuer)
    for twist in TAKEN_WITHOUT_ANSWER:
        pin = server.issue("150.00", twist)
        seen = await world.redeem(issuer, pin)
        assert decided(seen) == [TopUpState.DOUBT, TopUpState.CREDITED], twist
        assert server.taken(pin) == Decimal("150.00")
        await world.check_money(seen[-1], server.taken(pin))
    assert issuer is not Issuer.OTT or server.count("/RemitVoucher") == len(TAKEN_WITHOUT_ANSWER)


def decided(seen: Sequence[TopUp]) -> Sequence[TopUpState]:
    return [one.state for one in seen if one.state is not TopUpState.PENDING]


async def test_silence_after_taking_is_a_doubt_too(url: str) -> None:
    with run_issuers() as issuers:
        async with open_world(url, issuers, answer_s=2.0) as world:
            account_id = await world.new_account()
            ids = [
                await world.start(account_id, issuer, world.server_of(issuer).issue("150.00", Twist.SILENT))
                for issuer in FOREIGN
            ]
            states: set[TopUpState] = set()
            for _ in range(LOOKS_MAX):
                await world.rows("UPDATE top_ups SET due_at = now() WHERE due_at IS NOT NULL")
                states |= {(await world.look(one)).state for one in ids}
            assert TopUpState.DOUBT in states
            assert {(await world.find(one)).state for one in ids} == {TopUpState.CREDITED}
            balance = (await world.rows("SELECT balance FROM accounts WHERE id = $1", account_id))[0][0]
            assert balance == 3 * Decimal("8.1081")
            assert sum(server.taken_in_all for server in issuers.each) == Decimal("450.00")


@pytest.mark.parametrize("issuer", [Issuer.ONE_VOUCHER, Issuer.BLU])
async def test_a_call_that_never_arrived_is_repeated_by_the_poll(world: VoucherWorld, issuer: Issuer) -> None:
    for twist in NOT_TAKEN:
        seen = await world.redeem(issuer, world.server_of(issuer).issue("150.00", twist))
        assert decided(seen) == [TopUpState.DOUBT, TopUpState.CREDITED], twist
        await world.check_money(seen[-1], Decimal("150.00"))


async def test_ott_is_never_asked_twice_and_a_whole_voucher_was_not_taken(
    world: VoucherWorld,
) -> None:
    for place, twist in enumerate(NOT_TAKEN):
        pin = world.issuers.ott.issue("150.00", twist)
        seen = await world.redeem(Issuer.OTT, pin)
        assert {one.state for one in seen} == {TopUpState.DOUBT}
        await world.pass_time(seen[-1].id, "11 minutes")
        last = await world.look(seen[-1].id)
        assert (last.state, last.reason) == (TopUpState.FAILED, FailureReason.NEVER_ARRIVED)
        assert world.issuers.ott.count("/RemitVoucher") == 2 * place + 1
        await world.check_money(last, Decimal(0))
        assert (await world.redeem(Issuer.OTT, pin))[-1].state is TopUpState.CREDITED


@pytest.mark.parametrize(
    ("issuer", "time"),
    [(Issuer.ONE_VOUCHER, "31 minutes"), (Issuer.OTT, "25 hours"), (Issuer.BLU, "31 minutes")],
)
async def test_a_doubt_that_nobody_can_resolve_stays_one_until_the_operator_decides(
    world: VoucherWorld, issuer: Issuer, time: str
) -> None:
    server = world.server_of(issuer)
    pin = server.issue("150.00", Twist.LOST)
    last = (await world.redeem(issuer, pin))[-1]
    assert last.state is TopUpState.DOUBT
    assert last.sealed_pin is not None
    await world.pass_time(last.id, time)
    last = await world.look(last.id)
    assert (last.state, last.due_at, last.sealed_pin) == (TopUpState.DOUBT, None, None)
    with pytest.raises(FieldError, match="being redeemed already"):
        await world.start(await world.new_account(), issuer, pin)
    await world.check_money(last, Decimal(0))
    settled = await resolve(
        world.database,
        last.id,
        paid=server.taken(pin),
        provider_reference=None,
        note="Seen in the issuer's statement",
        actor=Actor("operator"),
    )
    assert settled.top_up.state is TopUpState.CREDITED
    await world.check_money(last, Decimal("150.00"))


async def test_a_blu_voucher_that_is_whole_after_half_an_hour_was_not_taken(world: VoucherWorld) -> None:
    pin = world.issuers.blu.issue("150.00", Twist.ERROR_BEFORE)
    top_up_id = await world.start(await world.new_account(), Issuer.BLU, pin)
    assert (await world.look(top_up_id)).state is TopUpState.PENDING
    assert (await world.look(top_up_id)).state is TopUpState.DOUBT
    await world.pass_time(top_up_id, "31 minutes")
    last = await world.look(top_up_id)
    assert (last.state, last.reason) == (TopUpState.FAILED, FailureReason.NEVER_ARRIVED)
    await world.check_money(last, Decimal(0))


@pytest.mark.parametrize("issuer", [Issuer.ONE_VOUCHER, Issuer.BLU])
async def test_an_answer_for_another_reference_is_not_believed(world: VoucherWorld, issuer: Issuer) -> None:
    pin = world.server_of(issuer).issue("150.00", Twist.MIXED_UP)
    seen = await world.redeem(issuer, pin)
    assert decided(seen) == [TopUpState.DOUBT, TopUpState.CREDITED]
    await world.check_money(seen[-1], Decimal("150.00"))


@pytest.mark.parametrize("issuer", [Issuer.ONE_VOUCHER, Issuer.BLU])
async def test_a_voucher_that_is_spent_when_it_is_asked_for_again_may_have_been_spent_by_us(
    world: VoucherWorld, issuer: Issuer
) -> None:
    server = world.server_of(issuer)
    # An issuer that does not keep to giving the same answer again.
    server.replays = False
    pin = server.issue("150.00", Twist.CUT)
    last = (await world.redeem(issuer, pin))[-1]
    assert last.state is TopUpState.DOUBT
    await world.check_money(last, Decimal(0))


@pytest.mark.parametrize("issuer", FOREIGN)
async def test_a_worker_that_dies_at_any_step_neither_loses_nor_doubles_anything(
    world: VoucherWorld, issuer: Issuer
) -> None:
    server = world.server_of(issuer)
    # It died before it asked; or after it had asked once or twice, before it wrote the answer down.
    for asked in range(3):
        pin = server.issue()
        top_up_id = await world.start(await world.new_account(), issuer, pin)
        for turn in range(asked + 1):
            await world.rows("UPDATE top_ups SET due_at = now() WHERE id = $1", top_up_id)
            async with world.database.transaction() as connection:
                (claimed,) = await top_ups.claim_due(connection, {issuer: 1}, LEASE_S)
            if turn < asked:
                provider = world.providers[issuer]
                if claimed.was_asked:
                    await provider.poll(claimed.top_up, world.database.clock.now())
                else:
                    await provider.start(claimed.top_up)
        seen = await world.decide(top_up_id)
        if issuer is Issuer.OTT and asked == 0:
            # It is not asked twice, and so never was.
            assert {one.state for one in seen} == {TopUpState.DOUBT}
            await world.pass_time(top_up_id, "11 minutes")
            assert (await world.look(top_up_id)).state is TopUpState.FAILED
        else:
            assert seen[-1].state is TopUpState.CREDITED
        await world.check_money(seen[-1], server.taken(pin))
