"""A voucher of ours is credited once, to the first who redeems it, and guessing reveals nothing."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import asyncpg
import pytest
import pytest_asyncio

from tests.support.postgres.databases import clone
from tests.support.processes.service import new_account
from tests.support.sending.batchers import broken_promises
from tests.support.topups.voucher_world import tables_with
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import VOUCHER, AccountId, TopUpId, VoucherId, new_id, write_id
from tumira.core.settings.payments import Payments
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement
from tumira.topups import store as top_ups
from tumira.topups import vouchers
from tumira.topups.issue_vouchers import Issued, issue_vouchers, void_voucher
from tumira.topups.start import list_issuers, start_voucher
from tumira.topups.states import FailureReason, TopUp, TopUpState
from tumira.topups.voucher_pins import Issuer, VoucherState, hash_code, new_code, write_code

NONE_SET_UP: Final = Payments()
AT_ONCE: Final = 10
TEN: Final = Decimal(10)


@pytest_asyncio.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = Database(url, connections_max=20)
    yield database
    assert await broken_promises(database) == []
    await database.close()


async def issue(database: Database, count: int = 1, last_day: date | None = None) -> Sequence[Issued]:
    return await issue_vouchers(database, TEN, count, note="Shop", last_day=last_day, actor="test")


async def redeem(database: Database, account_id: AccountId, code: str) -> TopUp:
    top_up_id = await start_voucher(database, NONE_SET_UP, account_id, Issuer.OWN, code)
    return await find(database, top_up_id)


async def find(database: Database, top_up_id: TopUpId) -> TopUp:
    async with database.connection() as connection:
        found = await top_ups.find_any(connection, top_up_id)
    assert found is not None
    return found


async def rows(database: Database, statement: str, *arguments: Any) -> list[asyncpg.Record]:
    async with database.connection() as connection:
        return await connection.fetch(statement, *arguments)


async def balance_of(database: Database, account_id: AccountId) -> Decimal:
    found = await rows(database, "SELECT balance FROM accounts WHERE id = $1", account_id)
    return Decimal(found[0]["balance"])


async def test_a_voucher_is_used_and_credited_at_once(database: Database) -> None:
    # The first test of the file: there is none yet.
    async with database.connection() as connection:
        assert list(await list_issuers(connection, NONE_SET_UP)) == []
    (voucher,) = await issue(database)
    async with database.connection() as connection:
        assert list(await list_issuers(connection, NONE_SET_UP)) == [Issuer.OWN]
    account_id = await new_account(database)
    top_up = await redeem(database, account_id, voucher.code.lower().replace("-", " "))
    assert (top_up.state, top_up.paid, top_up.amount) == (TopUpState.CREDITED, TEN, TEN)
    assert (top_up.provider, top_up.provider_reference) == ("own", write_id(VOUCHER, voucher.id))
    assert (top_up.due_at, top_up.sealed_pin) == (None, None)
    assert await balance_of(database, account_id) == TEN
    async with database.connection() as connection:
        (listed,) = await vouchers.list_latest(connection, 1)
    assert (listed.state, listed.top_up_id, listed.account_id) == (VoucherState.USED, top_up.id, account_id)


async def test_every_code_that_is_no_good_is_told_the_same(database: Database) -> None:
    used, void, expired = await issue(database, 3)
    await redeem(database, await new_account(database), used.code)
    await void_voucher(database, void.id, note="Lost", actor="test")
    await rows(
        database, "UPDATE vouchers SET expires_at = now() - interval '1 second' WHERE id = $1", expired.id
    )
    account_id = await new_account(database)
    for code in (write_code(new_code()), used.code, void.code, expired.code):
        top_up = await redeem(database, account_id, code)
        assert (top_up.state, top_up.reason) == (TopUpState.FAILED, FailureReason.VOUCHER_NOT_VALID)
        assert (top_up.asked, top_up.amount, top_up.due_at) == (None, None, None)
    assert await balance_of(database, account_id) == 0


async def test_codes_are_kept_nowhere(database: Database) -> None:
    (voucher,) = await issue(database)
    await redeem(database, await new_account(database), voucher.code)
    code = voucher.code.removeprefix("TMR-").replace("-", "")
    assert await tables_with(database, [code, voucher.code]) == []
    assert code not in repr(voucher)
    assert voucher.code not in repr(voucher)


async def test_guessing_ends_after_five_tries_and_a_good_code_waits_too(database: Database) -> None:
    account_id = await new_account(database)
    (voucher,) = await issue(database)
    outcomes = await asyncio.gather(
        *(redeem(database, account_id, write_code(new_code())) for _ in range(10)), return_exceptions=True
    )
    assert sum(isinstance(one, TopUp) for one in outcomes) == 5
    assert {type(one) for one in outcomes} == {TopUp, FieldError}
    with pytest.raises(FieldError, match="Try again in"):
        await redeem(database, account_id, voucher.code)
    with pytest.raises(FieldError, match="TMR-XXXX"):
        await redeem(database, account_id, "TMR-1234")
    assert (await redeem(database, await new_account(database), voucher.code)).state is TopUpState.CREDITED


async def race(database: Database) -> tuple[int, Decimal]:
    """Let ten accounts redeem one voucher at once; return how many were credited, and with how much."""
    (voucher,) = await issue(database)
    found = await asyncio.gather(*(new_account(database) for _ in range(AT_ONCE)))
    outcomes = await asyncio.gather(
        *(redeem(database, account_id, voucher.code) for account_id in found), return_exceptions=True
    )
    credited = [one for one in outcomes if isinstance(one, TopUp) and one.state is TopUpState.CREDITED]
    total = await rows(
        database, "SELECT sum(balance) AS total FROM accounts WHERE id = ANY($1::uuid[])", list(found)
    )
    return len(credited), total[0]["total"]


async def test_those_who_redeem_one_voucher_at_once_get_it_once(database: Database) -> None:
    assert await race(database) == (1, TEN)


async def test_without_the_guards_one_voucher_is_credited_more_than_once(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        vouchers, "SQL_LOCK_BY_CODE", vouchers._select("WHERE v.code_sha256 = %(code_sha256)s")
    )
    monkeypatch.setattr(
        vouchers,
        "SQL_MARK_USED",
        Statement("UPDATE vouchers SET top_up_id = %(top_up_id)s WHERE id = %(voucher_id)s RETURNING 1"),
    )
    with clone(server_url) as url:
        database = Database(url, connections_max=20)
        await rows(database, "DROP INDEX top_ups_credited_once")
        credited, total = await race(database)
        assert credited > 1
        assert total == credited * TEN
        assert "voucher" in await broken_promises(database)
        await database.close()


# Each fails at the end of one statement of a redemption, as if the server had died there: when the top-up is
# written, the voucher is used, the top-up is credited, the balance has moved, and the transfer is written.
STEPS: Final = (
    ("top_ups", "INSERT"),
    ("vouchers", "UPDATE"),
    ("top_ups", "UPDATE"),
    ("accounts", "UPDATE"),
    ("transfers", "INSERT"),
)


async def test_a_redemption_that_breaks_off_leaves_nothing(database: Database) -> None:
    await rows(
        database,
        "CREATE OR REPLACE FUNCTION break_off() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'broken off'; END $$",
    )
    (voucher,) = await issue(database)
    account_id = await new_account(database)
    for table, event in STEPS:
        trigger = f"AFTER {event} ON {table} FOR EACH STATEMENT EXECUTE FUNCTION break_off()"
        await rows(database, f"CREATE TRIGGER breaks {trigger}")
        try:
            with pytest.raises(asyncpg.RaiseError, match="broken off"):
                await redeem(database, account_id, voucher.code)
        finally:
            await rows(database, f"DROP TRIGGER breaks ON {table}")
        assert await rows(database, "SELECT FROM top_ups WHERE account_id = $1", account_id) == []
        assert await balance_of(database, account_id) == 0
        async with database.connection() as connection:
            found = await vouchers.find(connection, voucher.id)
        assert found is not None
        assert found.state is VoucherState.UNUSED, table
    assert (await redeem(database, account_id, voucher.code)).state is TopUpState.CREDITED


async def test_making_void_and_redeeming_at_once_is_one_or_the_other(database: Database) -> None:
    issued = await issue(database, 6)
    found = [await new_account(database) for _ in issued]
    await asyncio.gather(
        *(redeem(database, who, one.code) for who, one in zip(found, issued, strict=True)),
        *(void_voucher(database, one.id, note="Race", actor="test") for one in issued),
        return_exceptions=True,
    )
    async with database.connection() as connection:
        after = [await vouchers.find(connection, one.id) for one in issued]
    for who, voucher in zip(found, after, strict=True):
        assert voucher is not None
        expected = {VoucherState.USED: TEN, VoucherState.VOID: Decimal(0)}[voucher.state]
        assert await balance_of(database, who) == expected


async def test_a_voucher_is_good_to_the_end_of_its_last_day(database: Database) -> None:
    today = (datetime.now(UTC) + timedelta(hours=2)).date()
    (voucher,) = await issue(database, last_day=today)
    assert voucher.expires_at is not None
    assert timedelta(0) < voucher.expires_at - datetime.now(UTC) <= timedelta(days=1)
    # Midnight in Harare and Johannesburg.
    assert (voucher.expires_at.hour, voucher.expires_at.minute) == (22, 0)
    assert (await redeem(database, await new_account(database), voucher.code)).state is TopUpState.CREDITED


async def test_vouchers_are_listed_in_the_order_in_which_they_were_issued(database: Database) -> None:
    issued = await issue(database, 20)
    async with database.connection() as connection:
        listed = await vouchers.list_latest(connection, 20)
    assert [one.id for one in listed] == [one.id for one in reversed(issued)]
    assert [one.tail for one in listed] == [one.code[-4:] for one in reversed(issued)]
    assert {one.state for one in listed} == {VoucherState.UNUSED}
    code = issued[7].code.removeprefix("TMR-").replace("-", "")
    async with database.transaction() as connection:
        found = await vouchers.lock_by_code(connection, hash_code(code))
    assert found == listed[-8]


async def test_what_cannot_be_issued_or_made_void_is_said(database: Database) -> None:
    async def refusal(
        amount: str = "10", count: int = 1, note: str = "", last_day: date | None = None
    ) -> str:
        with pytest.raises(FieldError) as refused:
            await issue_vouchers(database, Decimal(amount), count, note=note, last_day=last_day, actor="test")
        return refused.value.field

    for amount in ("4.99", "10001", "10.005"):
        assert await refusal(amount) == "amount"
    for count in (0, 1_001):
        assert await refusal(count=count) == "count"
    assert await refusal(note="x" * 201) == "note"
    for day in (date(2020, 1, 1), date.max):
        assert await refusal(last_day=day) == "expires"
    (voucher,) = await issue(database)
    with pytest.raises(FieldError, match="Enter a reason"):
        await void_voucher(database, voucher.id, note=" ", actor="test")
    with pytest.raises(OperatorError, match="no such voucher"):
        await void_voucher(database, VoucherId(new_id(1)), note="Lost", actor="test")
    made_void = await void_voucher(database, voucher.id, note="Lost", actor="test")
    assert (made_void.state, made_void.void_note, made_void.voided_by) == (VoucherState.VOID, "Lost", "test")
    with pytest.raises(OperatorError, match="already void"):
        await void_voucher(database, voucher.id, note="Lost", actor="test")
    (used,) = await issue(database)
    await redeem(database, await new_account(database), used.code)
    with pytest.raises(OperatorError, match="already used"):
        await void_voucher(database, used.id, note="Lost", actor="test")
