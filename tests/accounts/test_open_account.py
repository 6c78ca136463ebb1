"""One number has one account, and one form opens one account."""

from decimal import Decimal
from typing import Final
from uuid import UUID

import pytest

from tumira.accounts import store as accounts
from tumira.accounts.open_account import open_account
from tumira.accounts.store import SYSTEM, Account
from tumira.core.errors import OperatorError
from tumira.core.ids import AccountId, new_id
from tumira.postgres.pool import Database

PHONE: Final = "+263771200001"
OTHER: Final = "+27821230001"


async def opened(
    database: Database, phone: str = PHONE, press: UUID | None = None, balance: str = "5"
) -> Account:
    return await open_account(
        database,
        phone=phone,
        name="Tariro",
        business="Moyo Stores",
        balance=Decimal(balance),
        rate_limit=60,
        actor="operator",
        press=press,
    )


async def test_a_form_that_is_posted_again_returns_what_it_opened_and_credits_nothing(
    database: Database,
) -> None:
    press = new_id(1)
    first = await opened(database, press=press)
    assert (first.id, first.balance, first.phone) == (press, Decimal(5), PHONE)
    again = await opened(database, press=press)
    assert (again.id, again.balance) == (first.id, Decimal(5))


async def test_a_number_that_has_an_account_gets_no_other(database: Database) -> None:
    first = await opened(database)
    for press in (None, new_id(2)):
        with pytest.raises(OperatorError, match="already has an account"):
            await opened(database, press=press)
    async with database.connection() as connection:
        found = await accounts.find_by_phone(connection, PHONE)
        assert found is not None
        assert (found.id, found.balance) == (first.id, Decimal(5))
        assert await accounts.find_by_phone(connection, OTHER) is None
        rows = await connection.fetch("SELECT what, detail FROM operator_changes")
    assert [tuple(row) for row in rows] == [("account opened", "5.0000 USD: Opening balance")]


@pytest.mark.parametrize("phone", ["+1555", f" {PHONE}", f"{PHONE} ", "0771200001", "+15551234567"])
async def test_only_a_mobile_number_that_we_send_to_gets_an_account(database: Database, phone: str) -> None:
    with pytest.raises(OperatorError, match="is not a mobile number"):
        await opened(database, phone)


async def test_customers_are_listed_in_order_without_the_gateways_own_account(database: Database) -> None:
    first, second = await opened(database), await opened(database, OTHER, balance="0")
    assert second.balance == 0
    async with database.connection() as connection:
        start = AccountId(UUID(int=0))
        assert await accounts.list_after(connection, start, 9) == [first, second]
        assert await accounts.list_after(connection, start, 1) == [first]
        assert await accounts.list_after(connection, first.id, 9) == [second]
        assert await accounts.find(connection, SYSTEM) is not None


async def test_limits_are_changed_one_by_one_and_for_one_account(database: Database) -> None:
    first, second = await opened(database), await opened(database, OTHER)
    async with database.transaction() as connection:
        await accounts.set_limits(connection, first.id, daily_limit=Decimal(7), change_daily=True)
        await accounts.set_limits(connection, first.id, call_limit=Decimal(3), change_call=True)
        await accounts.set_limits(connection, first.id, rate_limit=600, weight=2, low_balance=Decimal(4))
        await accounts.set_limits(connection, first.id, daily_limit=Decimal(9), call_limit=Decimal(9))
        await accounts.set_review_consent(connection, first.id, consent=True)
        await accounts.mark_suspended(connection, first.id, suspended=True)
        changed = await accounts.find(connection, first.id)
        assert changed is not None
        assert (changed.daily_limit, changed.call_limit) == (Decimal(7), Decimal(3))
        assert (changed.rate_limit, changed.weight, changed.low_balance) == (600, 2, Decimal(4))
        assert changed.review_consent
        assert changed.suspended_at is not None
        await accounts.set_limits(connection, first.id, change_daily=True, change_call=True)
        await accounts.mark_suspended(connection, first.id, suspended=False)
        changed = await accounts.find(connection, first.id)
        assert changed is not None
        assert (changed.daily_limit, changed.call_limit, changed.suspended_at) == (None, None, None)
        assert await accounts.find(connection, second.id) == second
