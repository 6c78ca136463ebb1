"""Credits from before there were papers keep the receipts that they had."""

import time
from decimal import Decimal

import pytest

from tests.support.papers import ISSUER
from tests.support.postgres.databases import drop, execute
from tumira.core.ids import AccountId, new_id
from tumira.papers import store
from tumira.papers.issue import issue_due
from tumira.postgres import migrate
from tumira.postgres.migrate import known
from tumira.postgres.pool import Database


@pytest.mark.long
async def test_old_credits_are_numbered_by_their_entries(server_url: str) -> None:
    drop(server_url, "tumira_before_papers")
    execute(server_url, "CREATE DATABASE tumira_before_papers TEMPLATE template0")
    database = Database(server_url.replace("/tumira?", "/tumira_before_papers?"))
    (papers,) = (step for step in known() if step.name.endswith("papers_pre"))
    await migrate.migrate(database, [step for step in known() if step.number < papers.number])
    account_id = AccountId(new_id(time.time_ns() // 1_000_000))
    async with database.transaction() as connection:
        await connection.execute(
            "INSERT INTO accounts (id, phone, name, business, balance)"
            " VALUES ($1, '+263771200001', 'n', 'b', 4)",
            account_id,
        )
        await connection.execute(
            "INSERT INTO transfers (account_id, from_book, to_book, amount, top_up_id, note, actor)"
            " VALUES ($1, 'topup:paynow', 'customer', 3, gen_random_uuid(), NULL, NULL),"
            "        ($1, 'adjustment', 'customer', 2, NULL, 'Cash', 'test'),"
            "        ($1, 'customer', 'adjustment', 1, NULL, 'Taken back', 'test')",
            account_id,
        )
    await migrate.migrate(database)
    await issue_due(database, ISSUER)
    async with database.connection() as connection:
        found = await store.list_of_account(connection, account_id, 10)
    assert [(paper.number, paper.content.total) for paper in found] == [
        (f"{paper.transfer_id:06}", total)
        for paper, total in zip(found, (Decimal(2), Decimal(3)), strict=True)
    ]
    assert found[0].content.heading == "Receipt"
    await database.close()
    drop(server_url, "tumira_before_papers")
