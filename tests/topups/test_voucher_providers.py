"""What an issuer takes for a voucher is credited once, whatever happens to its answers; a bad one fails."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pytest
import pytest_asyncio
import structlog
from structlog.testing import CapturingLogger

from tests.support.processes.ports import free_port
from tests.support.topups.voucher_issuer import SPARED_CENTS, Answer, Twist
from tests.support.topups.voucher_servers import run_issuers
from tests.support.topups.voucher_world import (
    FOREIGN,
    LOOKS_MAX,
    RATE,
    SOUTH_AFRICAN,
    VoucherWorld,
    open_world,
    tables_with,
)
from tumira.audit_log import Actor
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import AccountId
from tumira.core.settings.payments import Payments
from tumira.topups import store as top_ups
from tumira.topups import worker as top_up_worker
from tumira.topups.providers import Provider
from tumira.topups.providers.blu import BluProvider
from tumira.topups.providers.onevoucher import OneVoucherProvider
from tumira.topups.providers.ott import OttProvider
from tumira.topups.settle import resolve
from tumira.topups.start import list_issuers, start_voucher
from tumira.topups.states import FailureReason, TopUp, TopUpState
from tumira.topups.voucher_pins import Issuer
from tumira.topups.worker import LEASE_S, TopUpWorker

TAKEN_WITHOUT_ANSWER: Final = (Twist.CUT, Twist.ERROR, Twist.NONSENSE, Twist.UNSURE)
NOT_TAKEN: Final = (Twist.CUT_BEFORE, Twist.ERROR_BEFORE, Twist.UNSURE_BEFORE)


@pytest_asyncio.fixture
async def world(url: str) -> AsyncIterator[VoucherWorld]:
    with run_issuers() as issuers:
        async with open_world(url, issuers) as world:
            yield world


@pytest.mark.parametrize("issuer", FOREIGN)
async def test_a_good_voucher_is_taken_whole_and_credited_at_the_rate_of_the_day(
    world: VoucherWorld, issuer: Issuer
) -> None:
    pin = world.server_of(issuer).issue("1,234.50".replace(",", ""))
    seen = await world.redeem(issuer, f" {pin[:4]} {pin[4:]}", "1234.50")
    last = seen[-1]
    assert TopUpState.DOUBT not in {one.state for one in seen}
    assert (last.state, last.paid, last.amount) == (
        TopUpState.CREDITED,
        Decimal("1234.50"),
        Decimal("66.7297"),
    )
    assert (last.rate, str(last.rate_on)) == (RATE, "2026-11-01")
    assert last.provider_reference == world.server_of(issuer).redemptions[0].number
    assert (last.sealed_pin, last.sealed_change) == (None, None)
    await world.check_money(last, world.server_of(issuer).taken(pin))


async def test_a_voucher_that_is_not_good_fails_and_nothing_is_credited(world: VoucherWorld) -> None:
    for twist, reason in (
        (Twist.USED, FailureReason.VOUCHER_NOT_VALID),
        (Twist.CANCELLED, FailureReason.VOUCHER_NOT_VALID),
        (Twist.EXPIRED, FailureReason.VOUCHER_EXPIRED),
        (None, FailureReason.VOUCHER_NOT_VALID),
    ):
        for issuer in FOREIGN:
            pin = "9" * issuer.pin_length if twist is None else world.server_of(issuer).issue(twist=twist)
            last = (await world.redeem(issuer, pin))[-1]
            # OTT does not publish what its codes mean.
            expected = FailureReason.VOUCHER_NOT_VALID if issuer is Issuer.OTT else reason
            assert (last.state, last.reason, last.sealed_pin) == (TopUpState.FAILED, expected, None)
            await world.check_money(last, Decimal(0))


@pytest.mark.parametrize("issuer", FOREIGN)
async def test_the_amount_taken_is_credited_and_the_rest_returned(
    world: VoucherWorld, issuer: Issuer
) -> None:
    server = world.server_of(issuer)
    pin = server.issue("150.00", Twist.PARTIAL)
    last = (await world.redeem(issuer, pin))[-1]
    assert server.taken(pin) == Decimal("150.00") - Decimal(SPARED_CENTS) / 100
    assert (last.state, last.paid) == (TopUpState.CREDITED, Decimal("100.00"))
    await world.check_money(last, server.taken(pin))
    change = world.change_of(last)
    if issuer is Issuer.OTT:
        # It sends the change to the customer's phone.
        assert change is None
    else:
        assert change is not None
        assert change.amount == Decimal("50.00")
        assert change.expires == ("2029-11-30" if issuer is Issuer.ONE_VOUCHER else None)
        assert server.vouchers[change.pin].cents == SPARED_CENTS
    async with world.database.transaction() as connection:
        await top_ups.forget_change(connection, last.account_id, last.id)
    assert (await world.find(last.id)).sealed_change is None


async def test_a_1voucher_gives_change_for_more_than_was_said_and_is_not_taken_for_less(
    world: VoucherWorld,
) -> None:
    pin = world.issuers.one_voucher.issue("500.00")
    last = (await world.redeem(Issuer.ONE_VOUCHER, pin, "120.50"))[-1]
    change = world.change_of(last)
    assert (last.state, last.paid) == (TopUpState.CREDITED, Decimal("120.50"))
    assert change is not None
    assert change.amount == Decimal("379.50")
    less = (await world.redeem(Issuer.ONE_VOUCHER, change.pin, "400"))[-1]
    assert (less.state, less.reason) == (TopUpState.FAILED, FailureReason.VALUE_DIFFERS)
    again = (await world.redeem(Issuer.ONE_VOUCHER, change.pin, "379.50"))[-1]
    assert again.state is TopUpState.CREDITED
    await world.check_money(again, Decimal("379.50"))


async def test_a_voucher_that_is_worth_too_little_or_too_much_is_left_whole(world: VoucherWorld) -> None:
    for issuer in (Issuer.OTT, Issuer.BLU):
        server = world.server_of(issuer)
        for value, reason in (
            ("92.49", FailureReason.VALUE_TOO_SMALL),
            ("185000.50", FailureReason.VALUE_TOO_LARGE),
        ):
            last = (await world.redeem(issuer, server.issue(value)))[-1]
            assert (last.state, last.reason) == (TopUpState.FAILED, reason)
        assert server.taken_in_all == 0
        assert (await world.redeem(issuer, server.issue("92.50")))[-1].amount == Decimal("5.0000")
    # Nor is a part of a cent taken.
    world.issuers.ott.whole_cents = False
    last = (await world.redeem(Issuer.OTT, world.issuers.ott.issue()))[-1]
    assert (last.state, last.reason) == (TopUpState.FAILED, FailureReason.DECLINED)


async def test_one_token_serves_many_and_one_that_ended_early_is_replaced(world: VoucherWorld) -> None:
    server = world.issuers.one_voucher
    for _ in range(2):
        assert (await world.redeem(Issuer.ONE_VOUCHER, server.issue()))[-1].state is TopUpState.CREDITED
    assert server.count("/token") == 1
    server.tokens.clear()
    seen = await world.redeem(Issuer.ONE_VOUCHER, server.issue())
    assert [one.state for one in seen] == [TopUpState.CREDITED]
    assert server.count("/token") == 2
    # Without a token nothing was asked for.
    for answer in (Answer(500, b""), Answer(200, b"{}"), Answer(200, b'{"access_token": 1}')):
        server.tokens.clear()
        server.token_answer = answer
        last = (await world.redeem(Issuer.ONE_VOUCHER, server.issue()))[-1]
        assert (last.state, last.reason) == (TopUpState.FAILED, FailureReason.NEVER_ARRIVED)
    assert server.taken_in_all == 3 * 150


async def test_an_issuer_that_is_away_or_refuses_us_has_taken_nothing(
    world: VoucherWorld,
) -> None:
    payments = world.payments
    assert payments.one_voucher
    assert payments.ott
    assert payments.blu
    away = f"http://127.0.0.1:{free_port()}"
    providers: Sequence[tuple[Issuer, Provider]] = [
        (Issuer.ONE_VOUCHER, OneVoucherProvider(replace(payments.one_voucher, url=away))),
        (Issuer.OTT, OttProvider(replace(payments.ott, url=away))),
        (Issuer.BLU, BluProvider(replace(payments.blu, url=away))),
        (Issuer.ONE_VOUCHER, OneVoucherProvider(replace(payments.one_voucher, consumer_key="nobody"))),
        (Issuer.OTT, OttProvider(replace(payments.ott, user="nobody"))),
        (Issuer.BLU, BluProvider(replace(payments.blu, user="nobody"))),
        # The PIN was encrypted with other credentials.
        (Issuer.ONE_VOUCHER, OneVoucherProvider(replace(payments.one_voucher, consumer_secret="new"))),
        (Issuer.OTT, OttProvider(replace(payments.ott, password="new"))),
        (Issuer.BLU, BluProvider(replace(payments.blu, password="new"))),
    ]
    for issuer, provider in providers:
        top_up_id = await world.start(await world.new_account(), issuer, world.server_of(issuer).issue())
        worker = TopUpWorker(world.database, {issuer: provider})
        last = await replace(world, worker=worker).look(top_up_id)
        assert (last.state, last.reason) == (TopUpState.FAILED, FailureReason.NEVER_ARRIVED), issuer
        await provider.close()
    assert sum(server.taken_in_all for server in world.issuers.each) == 0


@pytest.mark.long
async def test_a_pin_stands_in_no_row_and_in_no_line_of_the_log(
    world: VoucherWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines = CapturingLogger()
    log = structlog.wrap_logger(
        lines, processors=[structlog.processors.JSONRenderer()], wrapper_class=structlog.BoundLogger
    )
    monkeypatch.setattr(top_up_worker, "_log", log)
    pins: list[str] = []
    for issuer in FOREIGN:
        server = world.server_of(issuer)
        for twist in (Twist.USED, Twist.LOST, Twist.PARTIAL):
            pins.append(server.issue("150.00", twist))
            await world.start(await world.new_account(), issuer, pins[-1])
    assert await tables_with(world.database, pins) == []
    for _ in range(LOOKS_MAX):
        await world.rows("UPDATE top_ups SET due_at = now() WHERE due_at IS NOT NULL")
        await world.worker._claim()
        await asyncio.gather(*world.worker._calls)
    secrets = [pin for server in world.issuers.each for pin in server.vouchers]
    assert len(secrets) > len(pins)
    assert await tables_with(world.database, secrets) == []
    assert len(lines.calls) > len(pins)
    told = repr(lines.calls) + caplog.text
    assert not [pin for pin in secrets if pin in told]


async def test_what_is_given_wrongly_is_said_beside_its_field(world: VoucherWorld) -> None:
    account_id = await world.new_account()

    async def refusal(issuer: Issuer, pin: str, value: str | None = None, phone: str | None = None) -> Any:
        given = None if value is None else Decimal(value)
        with pytest.raises(FieldError) as refused:
            await start_voucher(
                world.database, world.payments, account_id, issuer, pin, value=given, phone=phone
            )
        assert pin not in str(refused.value)
        return refused.value.field

    good = "1234567890123456"
    for issuer in FOREIGN:
        assert await refusal(issuer, "12345", "150", SOUTH_AFRICAN) == "pin"
    for value in (None, "0", "-150", "150.001", "NaN", "1e40", "92.49", "185001"):
        assert await refusal(Issuer.ONE_VOUCHER, good, value) == "value"
    # The account's own number is in Zimbabwe.
    for phone in (None, "", "+263771200001", "nonsense"):
        assert await refusal(Issuer.OTT, "123456789012", None, phone) == "phone"
    for issuer in FOREIGN:
        with pytest.raises(FieldError) as refused:
            await start_voucher(world.database, Payments(), account_id, issuer, good, value=Decimal(150))
        assert refused.value.field == "provider"
    nobody = AccountId((await world.find(await world.start(account_id, Issuer.BLU, good))).id)
    with pytest.raises(OperatorError, match="no such account"):
        await world.start(nobody, Issuer.BLU, "6543210987654321")
    await world.start(account_id, Issuer.OTT, "123456789012")
    number = await world.rows(
        "SELECT phone FROM top_ups WHERE provider = 'ott' AND account_id = $1", account_id
    )
    assert [row["phone"] for row in number] == [SOUTH_AFRICAN]
    async with world.database.connection() as connection:
        assert list(await list_issuers(connection, world.payments)) == list(FOREIGN)
        assert list(await list_issuers(connection, Payments())) == []


async def test_one_pin_is_tried_by_one_at_a_time(world: VoucherWorld) -> None:
    pin = world.issuers.blu.issue()
    accounts = [await world.new_account() for _ in range(4)]
    outcomes = await asyncio.gather(
        *(world.start(account_id, Issuer.BLU, pin) for account_id in accounts), return_exceptions=True
    )
    (top_up_id,) = [one for one in outcomes if not isinstance(one, BaseException)]
    assert {type(one) for one in outcomes if isinstance(one, BaseException)} == {FieldError}
    assert (await world.decide(top_up_id))[-1].state is TopUpState.CREDITED
    # A PIN that ended may be tried again; its issuer says what it thinks of it.
    assert (await world.redeem(Issuer.BLU, pin))[-1].state is TopUpState.FAILED


async def test_an_account_tries_five_in_an_hour_that_are_not_good(world: VoucherWorld) -> None:
    account_id = await world.new_account()
    good = await world.start(account_id, Issuer.OTT, world.issuers.ott.issue())
    assert (await world.decide(good))[-1].state is TopUpState.CREDITED
    bad = [str(number) for number in range(100_000_000_000, 100_000_000_010)]
    outcomes = await asyncio.gather(
        *(world.start(account_id, Issuer.OTT, pin) for pin in bad), return_exceptions=True
    )
    ids = [one for one in outcomes if not isinstance(one, BaseException)]
    assert len(ids) == 5
    assert {type(one) for one in outcomes if isinstance(one, BaseException)} == {FieldError}
    for top_up_id in ids:
        assert (await world.decide(top_up_id))[-1].state is TopUpState.FAILED
    with pytest.raises(FieldError, match=r"Try again in (59|60) minutes\."):
        await world.start(account_id, Issuer.OTT, "999999999999")
    await world.pass_time(ids[0], "59 minutes 30 seconds")
    with pytest.raises(FieldError, match=r"Try again in 1 minute\."):
        await world.start(account_id, Issuer.OTT, "999999999999")
    await world.pass_time(ids[0], "1 minute")
    await world.start(account_id, Issuer.OTT, "999999999999")
    # Somebody else is not held up.
    await world.start(await world.new_account(), Issuer.OTT, "999999999998")


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


@pytest.mark.parametrize("issuer", [Issuer.ONE_VOUCHER, Issuer.BLU])
async def test_a_call_that_never_arrived_is_repeated_by_the_poll(world: VoucherWorld, issuer: Issuer) -> None:
    server = world.server_of(issuer)
    # Nor is an answer for another reference believed.
    for twist in (*NOT_TAKEN, Twist.MIXED_UP):
        seen = await world.redeem(issuer, server.issue("150.00", twist))
        assert decided(seen) == [TopUpState.DOUBT, TopUpState.CREDITED], twist
        await world.check_money(seen[-1], Decimal("150.00"))
    # An issuer that does not give the same answer again: our own call may have spent it.
    server.replays = False
    last = (await world.redeem(issuer, server.issue("150.00", Twist.CUT)))[-1]
    assert last.state is TopUpState.DOUBT
    await world.check_money(last, Decimal(0))


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
    with pytest.raises(FieldError, match="already being redeemed"):
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
