"""A payment from a wallet is started once for each form, to a Zimbabwean number, and few at a time."""

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Final

import msgspec
import pytest
import pytest_asyncio

from tests.support.processes.service import Caller, new_caller
from tumira.audit_log import Actor
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import TOP_UP, AccountId, TopUpId, new_id, write_id
from tumira.core.settings.payments import Ott, Payments, Paynow, ZarRate
from tumira.identity.store import logins, people
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.providers.paynow_messages import Wallet
from tumira.topups.start import (
    OPEN_OF_ACCOUNT_MAX,
    OPEN_OF_PHONE_MAX,
    _check_value,
    check_amount,
    start_paynow,
    start_voucher,
)
from tumira.topups.states import TOP_UP_MAX, TOP_UP_MIN, TopUp, TopUpState
from tumira.topups.store import TopUpUpdate
from tumira.topups.voucher_pins import Issuer

FIVE: Final = Decimal(5)
CENT: Final = Decimal("0.01")
RAND: Final = ZarRate(Decimal(20), None)
OTT: Final = Ott("http://127.0.0.1:1", "user", "password", "key", "vendor")
PAYMENTS: Final = Payments(paynow=Paynow("http://127.0.0.1:1", "1201", "key", None))


@pytest_asyncio.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    yield database
    await database.close()


@pytest_asyncio.fixture
async def caller(url: str) -> Caller:
    return await new_caller(url)


async def start(
    database: Database,
    account_id: AccountId,
    phone: str | None = "0771200001",
    wallet: Wallet = Wallet.ECOCASH,
    top_up_id: TopUpId | None = None,
) -> TopUp:
    made = await start_paynow(database, PAYMENTS, account_id, wallet, FIVE, phone, top_up_id=top_up_id)
    async with database.connection() as connection:
        found = await top_ups.find(connection, account_id, made)
    assert found is not None
    return found


async def test_a_form_that_is_posted_again_is_the_same_payment(database: Database, caller: Caller) -> None:
    top_up_id = TopUpId(new_id(1))
    first = await start(database, caller.id, top_up_id=top_up_id)
    assert (first.id, first.state, first.asked) == (top_up_id, TopUpState.STARTED, FIVE)
    assert (first.phone, first.provider) == ("+263771200001", "ecocash")
    assert (await start(database, caller.id, "0771200002", top_up_id=top_up_id)).phone == "+263771200001"
    other = await new_caller(database.url)
    with pytest.raises(OperatorError, match="could not be started"):
        await start(database, other.id, top_up_id=top_up_id)
    assert (await start(database, caller.id)).id != top_up_id


@pytest.mark.parametrize("phone", ["+27821230001", "12", "x"])
async def test_a_wallet_has_a_number_in_zimbabwe(database: Database, caller: Caller, phone: str) -> None:
    with pytest.raises(FieldError, match="number in Zimbabwe"):
        await start(database, caller.id, phone)
    assert (await start(database, caller.id, phone, Wallet.CARD)).phone is None


async def test_few_payments_wait_for_one_phone_and_for_one_account(
    database: Database, caller: Caller
) -> None:
    phone = "0771200005"
    for _ in range(OPEN_OF_PHONE_MAX):
        last = await start(database, caller.id, phone)
    with pytest.raises(FieldError, match="Several payments"):
        await start(database, caller.id, phone)
    other = await new_caller(database.url)
    with pytest.raises(FieldError, match="Several payments"):
        await start(database, other.id, phone)
    for _ in range(OPEN_OF_ACCOUNT_MAX - OPEN_OF_PHONE_MAX):
        await start(database, caller.id, None, Wallet.CARD)
    with pytest.raises(FieldError, match="Several payments"):
        await start(database, caller.id, None, Wallet.CARD)
    await start(database, other.id, "0771200009")
    # One that has ended makes room.
    async with database.transaction() as connection:
        await top_ups.mark(connection, last.id, TopUpUpdate(TopUpState.EXPIRED))
    await start(database, caller.id, phone)


async def test_a_start_keeps_the_owners_mail_and_records_who_did_it(
    database: Database, caller: Caller
) -> None:
    async def kept(top_up_id: TopUpId) -> object:
        async with database.connection() as connection:
            return msgspec.json.decode(
                await connection.fetchval("SELECT kept::text FROM top_ups WHERE id = $1", top_up_id)
            )

    phone = "0771200011"
    assert await kept((await start(database, caller.id, phone)).id) == {}
    async with database.transaction() as connection:
        (owner,) = await people.list_owners(connection, caller.id)
        await logins.insert(connection, owner.principal, "ann@example.com", "x", phone_proved=True)
    by = Actor("Rudo")
    made = await start_paynow(database, PAYMENTS, caller.id, Wallet.ECOCASH, FIVE, phone, by=by)
    assert await kept(made) == {"email": "ann@example.com"}
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT actor, detail FROM changes WHERE account_id = $1 AND what = 'top-up started'", caller.id
        )
    assert [tuple(row) for row in rows] == [("Rudo", f"{write_id(TOP_UP, made)}: ecocash, 5.0000 USD")]


async def test_without_access_or_account_nothing_is_started(database: Database, caller: Caller) -> None:
    with pytest.raises(OperatorError, match="not set up"):
        await start_paynow(database, Payments(), caller.id, Wallet.CARD, FIVE, None)
    with pytest.raises(OperatorError, match="no such account"):
        await start(database, AccountId(new_id(2)))


def test_an_amount_is_in_whole_cents_and_within_the_bounds() -> None:
    for amount in (TOP_UP_MIN, TOP_UP_MAX, Decimal("12.50")):
        assert check_amount(amount) == amount
    for wrong in (None, Decimal("nan"), TOP_UP_MIN - CENT, TOP_UP_MAX + CENT, Decimal("12.505")):
        with pytest.raises(FieldError):
            check_amount(wrong)


def test_the_value_of_a_voucher_is_in_whole_cents_and_worth_what_can_be_topped_up() -> None:
    rate = Decimal(20)
    for text in (None, "NaN", "Infinity", "0", "-1", "100.001", "1000000000"):
        with pytest.raises(FieldError, match="Enter the value of the voucher"):
            _check_value(None if text is None else Decimal(text), rate)
    for text in ("99.99", "200000.01", "999999999.99"):
        with pytest.raises(FieldError, match=r"must be worth US.5 to US.10,000, which is at least R100\.00"):
            _check_value(Decimal(text), rate)
    for text in ("100", "200000"):
        assert _check_value(Decimal(text), rate) == Decimal(text)


@pytest.mark.parametrize("payments", [Payments(zar_rate=RAND), Payments(ott=OTT), Payments()])
async def test_a_voucher_of_an_issuer_that_is_not_set_up_is_not_taken(
    database: Database, caller: Caller, payments: Payments
) -> None:
    with pytest.raises(FieldError, match="is not accepted here"):
        await start_voucher(database, payments, caller.id, Issuer.OTT, "123456789012", phone="0821230001")
    async with database.connection() as connection:
        assert await connection.fetch("SELECT FROM top_ups WHERE account_id = $1", caller.id) == []
