"""Counts of passcodes are deleted when they count no more, and a number is forgotten on request."""

from typing import Final

from tests.support.delivery.engine import Engine
from tumira.accounts.passcode_limits import PasscodeLimits
from tumira.core.ids import AccountId
from tumira.identity.manage_accounts import set_passcode_limits
from tumira.sending import code_stops

NUMBER: Final = "+263771200001"
OTHER: Final = "+27821230001"


async def send_too_many(engine: Engine) -> AccountId:
    """Send two codes to each of two numbers, of which the second is stopped."""
    caller = await engine.open_account()
    limits = PasscodeLimits(is_on=True, number=1)
    await set_passcode_limits(engine.database, caller.id, lambda _: limits)
    for number in (NUMBER, NUMBER, OTHER, OTHER):
        await engine.send(caller, [number])
    return caller.id


async def test_old_counts_and_records_are_deleted_and_lifted_ranges_stay(engine: Engine) -> None:
    account_id = await send_too_many(engine)
    async with engine.database.transaction() as connection:
        assert await code_stops.delete_old_ranges(connection, 10) == 0
        assert await code_stops.delete_old_stops(connection, 10) == 0
        await connection.execute("UPDATE code_ranges SET last_on = last_on - 4")
        await connection.execute("UPDATE code_stops SET day = day - 32")
        await connection.execute("UPDATE code_ranges SET lifted_at = now() WHERE prefix = '+2782123'")
        assert await code_stops.delete_old_ranges(connection, 10) == 1
        assert await code_stops.delete_old_stops(connection, 1) == 1
        assert await code_stops.delete_old_stops(connection, 10) == 1
        (left,) = await code_stops.list_ranges(connection, account_id, 10)
    assert left.prefix == "+2782123"


async def test_an_erased_number_is_in_no_count_and_no_record(engine: Engine) -> None:
    account_id = await send_too_many(engine)
    async with engine.database.transaction() as connection:
        await code_stops.erase_number(connection, NUMBER)
        assert [one.prefix for one in await code_stops.list_stops(connection, account_id, 10)] == [OTHER]
        rows = await connection.fetch("SELECT prefix FROM code_ranges WHERE codes <> ''")
    assert [row["prefix"] for row in rows] == ["+2782123"]
