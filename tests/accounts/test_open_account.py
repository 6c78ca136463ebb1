"""One number has one account, and one form opens one account."""

from decimal import Decimal
from typing import Final
from uuid import UUID

import pytest

from tumira.accounts import store as accounts
from tumira.accounts.api_keys import Scope
from tumira.accounts.open_account import open_account
from tumira.accounts.store import SYSTEM, Account
from tumira.core.errors import OperatorError
from tumira.core.ids import ACCOUNT, AccountId, new_id, write_id
from tumira.identity.manage_keys import create_key
from tumira.identity.store import logins, people
from tumira.postgres.pool import Database
from tumira.webhooks.manage import add_endpoint

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
        with pytest.raises(OperatorError, match=f"already has an account: {write_id(ACCOUNT, first.id)}."):
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


async def test_an_account_is_closed_with_its_keys_and_endpoints_and_no_other_is(database: Database) -> None:
    first, second = await opened(database), await opened(database, OTHER)
    made = []
    for account, name in ((first, "a"), (first, "b"), (second, "c")):
        url = f"https://{name}.example.com/"
        endpoint, _ = await add_endpoint(database, account.id, url, None, "", allow_private=True)
        made.append(endpoint)
    for account in (first, second):
        await create_key(database, account.id, "key", list(Scope))
    async with database.transaction() as connection:
        await connection.execute("UPDATE webhook_endpoints SET state = 'paused' WHERE id = $1", made[1].id)
        assert await accounts.close(connection, first.id) == [made[0].id]
        assert await accounts.close(connection, first.id) == []
        states = await connection.fetch("SELECT id, state FROM webhook_endpoints")
        assert {row["id"] for row in states if row["state"] == "paused"} == {made[0].id, made[1].id}
        keys = await connection.fetch("SELECT account_id FROM api_keys WHERE revoked_at IS NULL")
        assert [row["account_id"] for row in keys] == [second.id]
        found = [await accounts.find(connection, one.id) for one in (first, second)]
        assert [one is not None and one.closed_at is not None for one in found] == [True, False]
        assert (await accounts.lock(connection, first.id)).suspended
        assert not (await accounts.lock(connection, second.id)).suspended
        await accounts.set_names(connection, first.id, "Rudo", "Farm")
        renamed = [await accounts.find(connection, one.id) for one in (first, second)]
    assert [(one.name, one.business) for one in renamed if one is not None] == [
        ("Rudo", "Farm"),
        ("Tariro", "Moyo Stores"),
    ]


async def test_notices_go_to_owners_who_want_them_and_have_proved_their_phone(database: Database) -> None:
    first, second = await opened(database), await opened(database, OTHER)
    async with database.transaction() as connection:
        people_of = {one.id: (await people.list_owners(connection, one.id))[0] for one in (first, second)}

        async def contacts(*asked: Account) -> dict[AccountId, list[tuple[str, bool, str | None]]]:
            found = await accounts.list_notice_contacts(connection, [one.id for one in asked])
            return {
                account_id: [(one.phone, one.by_text, one.email) for one in own]
                for account_id, own in found.items()
            }

        # Without a login there is nobody who could turn them off.
        assert await contacts(first, second) == {}
        for owner in people_of.values():
            await logins.insert(connection, owner.principal, "a@example.com", "x", phone_proved=True)
        both = {first.id: [(PHONE, True, "a@example.com")], second.id: [(OTHER, True, "a@example.com")]}
        await logins.set_notices(connection, people_of[first.id].principal.id, by_mail=True, by_text=True)
        await logins.set_notices(connection, people_of[second.id].principal.id, by_mail=True, by_text=True)
        assert await contacts(first, second) == both
        assert await contacts(first) == {first.id: both[first.id]}
        await logins.set_notices(connection, people_of[first.id].principal.id, by_mail=False, by_text=True)
        assert await contacts(first) == {first.id: [(PHONE, True, None)]}
        await logins.set_notices(connection, people_of[first.id].principal.id, by_mail=True, by_text=False)
        assert await contacts(first) == {first.id: [(PHONE, False, "a@example.com")]}
        await logins.set_email(connection, people_of[first.id].principal.id, None)
        assert await contacts(first) == {}
        await connection.execute("UPDATE logins SET phone_proved_at = NULL WHERE person_id = $1", second.id)
        assert await contacts(second) == {}
        await connection.execute("UPDATE logins SET phone_proved_at = now() WHERE person_id = $1", second.id)
        await connection.execute("UPDATE members SET role = 'finance' WHERE account_id = $1", second.id)
        assert await contacts(second) == {}
        await connection.execute("UPDATE members SET role = 'owner' WHERE account_id = $1", second.id)
        assert await contacts(second) == {second.id: both[second.id]}
        await accounts.close(connection, second.id)
        assert await contacts(second) == {}
