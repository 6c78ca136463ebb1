"""Money is held for one schedule, from its own account, and comes back once."""

from decimal import Decimal
from uuid import UUID

from tests.support.delivery.engine import Engine, numbers
from tests.support.schedules.sends import balance_of, check_and_schedule, get, schedule
from tumira.accounts import holds
from tumira.core.ids import AccountId, UploadId
from tumira.schedules.manage import Scheduled


async def test_a_hold_takes_from_one_account_for_one_schedule_and_never_more_than_there_is(
    engine: Engine,
) -> None:
    own, other = (await engine.open_account("1")).id, (await engine.open_account("1")).id
    database = engine.database
    first, second = [await schedule(database, own, numbers(1)) for _ in range(2)]
    foreign = await schedule(database, other, numbers(1))

    async def held() -> list[Decimal]:
        return [
            (await get(database, account_id, one)).held
            for account_id, one in ((own, first), (own, second), (other, foreign))
        ]

    async def balances() -> list[Decimal]:
        return [await balance_of(database, one) for one in (own, other)]

    price = Decimal("0.04")
    assert (await held(), await balances()) == ([price] * 3, [1 - 2 * price, 1 - price])
    async with database.transaction() as connection:
        assert await holds.hold(connection, own, first, Decimal("0.92"))
        # All of it is held now.
        assert not await holds.hold(connection, own, second, Decimal("0.0001"))
        assert await holds.hold(connection, own, second, Decimal(0))
    assert (await held(), await balances()) == ([Decimal("0.96"), price, price], [0, 1 - price])
    async with database.transaction() as connection:
        assert await holds.release(connection, first, Decimal("0.5")) == Decimal("0.5")
    assert (await held(), await balances()) == ([Decimal("0.46"), price, price], [Decimal("0.5"), 1 - price])
    async with database.transaction() as connection:
        assert await holds.release(connection, first) == Decimal("0.46")
        assert await holds.release(connection, first) == 0
        transfers = await connection.fetch(
            "SELECT from_book, to_book, amount FROM transfers WHERE schedule_id = $1 ORDER BY id", first
        )
    assert [tuple(row) for row in transfers] == [
        ("customer", "held", price),
        ("customer", "held", Decimal("0.92")),
        ("held", "customer", Decimal("0.5")),
        ("held", "customer", Decimal("0.46")),
    ]
    assert (await held(), await balances()) == ([0, price, price], [Decimal("0.96"), 1 - price])
    # So that the books of the schedules agree with what they cost.
    async with database.transaction() as connection:
        assert await holds.hold(connection, own, first, price)


async def test_the_hold_of_a_file_is_found_while_there_is_one(engine: Engine) -> None:
    own = (await engine.open_account("1")).id
    found: list[tuple[AccountId, UploadId, Scheduled]] = []
    for place in range(2):
        upload_id, scheduled = await check_and_schedule(engine.database, own, [f"{numbers(2)[place]},Rudo"])
        assert isinstance(scheduled, Scheduled)
        found.append((own, upload_id, scheduled))
    async with engine.database.transaction() as connection:
        for _, upload_id, scheduled in found:
            assert await holds.find_of_file(connection, upload_id) == (scheduled.id, Decimal("0.04"))
        assert await holds.find_of_file(connection, UploadId(UUID(int=1))) is None
        await holds.release(connection, found[0][2].id)
        assert await holds.find_of_file(connection, found[0][1]) is None
        assert await holds.hold(connection, own, found[0][2].id, Decimal("0.04"))
