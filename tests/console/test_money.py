"""The money page adds up with the ledger, by day and by method."""

import csv
import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

import httpx
import pytest

from tests.support.full_service import add_top_up, paid
from tests.support.identity.customers import words
from tests.support.maintenance import run_named
from tests.support.processes.service import Caller, Service
from tests.support.schedules.sends import ACTOR, schedule
from tumira.core.days import local_day
from tumira.identity import manage_accounts
from tumira.schedules.manage import cancel
from tumira.topups.states import Reversed

MONEY: Final = "/operator/money"
ADD_UP: Final = "add up money by day"
BOOKS: Final = """
SELECT (created_at AT TIME ZONE 'Africa/Harare')::date AS day,
       sum(amount) FILTER (WHERE from_book = 'topup:paynow') AS taken_paynow_usd,
       sum(amount) FILTER (WHERE from_book = 'topup:usdt') AS taken_usdt_usd,
       sum(amount) FILTER (WHERE from_book = 'topup:voucher') AS taken_voucher_usd,
       sum(amount) FILTER (WHERE from_book LIKE 'topup:%') AS taken_usd,
       sum(amount) FILTER (WHERE to_book LIKE 'topup:%') AS taken_back_usd,
       sum(amount) FILTER (WHERE from_book = 'adjustment') AS credited_usd,
       sum(amount) FILTER (WHERE to_book = 'adjustment') AS debited_usd,
       sum(amount) FILTER (WHERE to_book = 'revenue') AS spent_usd,
       sum(amount) FILTER (WHERE from_book = 'revenue') AS refunded_usd,
       sum(amount) FILTER (WHERE to_book = 'held') AS held_usd,
       sum(amount) FILTER (WHERE from_book = 'held') AS released_usd
  FROM transfers GROUP BY 1
"""


def today() -> date:
    return local_day(datetime.now(UTC))


@pytest.fixture(scope="module")
def caller(service: Service) -> Caller:
    """Give an account with a movement of every kind, today and some days ago."""
    caller = service.open_account(balance="100")
    for _ in range(2):
        assert service.send(caller, to=["+263771200001", "+27821230001"]).status_code == 202
    cancelled, _waiting = [service.run(schedule, caller.id, ["+263771200001"]) for _ in range(2)]
    assert service.run(cancel, caller.id, cancelled, ACTOR)
    add_top_up(service, caller.id, paid())
    add_top_up(service, caller.id, paid(), Reversed("the bank took it back"))
    service.run(manage_accounts.credit, caller.id, Decimal("-1.5"), note="A correction", actor="test")
    service.sql(
        "WITH moved AS (INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id)"
        " SELECT account_id, 'revenue', 'customer', cost, batch_id, id FROM messages ORDER BY id LIMIT 1"
        " RETURNING account_id, amount)"
        " UPDATE accounts SET balance = balance + moved.amount FROM moved WHERE id = moved.account_id"
    )
    service.sql(
        "WITH moved AS (INSERT INTO transfers (account_id, from_book, to_book, amount, top_up_id, created_at)"
        " SELECT $1, 'topup:usdt', 'customer', 7.1234, gen_random_uuid(), now() - n * interval '3 days'"
        " FROM generate_series(1, 4) AS n RETURNING amount)"
        " UPDATE accounts SET balance = balance + (SELECT sum(amount) FROM moved) WHERE id = $1",
        caller.id,
    )
    return caller


def table(browser: httpx.Client, **query: str) -> list[dict[str, str]]:
    answer = browser.get(MONEY + ".csv", params=query)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8", answer.text
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_every_sum_is_the_ledgers(service: Service, viewer: httpx.Client, caller: Caller) -> None:
    assert caller
    rows = table(viewer)
    assert [row["day"] for row in rows] == [str(today() - timedelta(days=back)) for back in range(29, -1, -1)]
    ledger = {str(row["day"]): row for row in service.sql(BOOKS)}
    for row in rows:
        for name in row.keys() - {"day", "owed_usd"}:
            expected = (ledger[row["day"]][name] if row["day"] in ledger else None) or 0
            assert Decimal(row[name]) == expected, (row["day"], name)
    (owed,) = service.sql("SELECT sum(balance) + (SELECT sum(held) FROM schedules) FROM accounts")
    assert Decimal(rows[-1]["owed_usd"]) == owed[0]
    # Each day begins with what was owed the day before.
    before = Decimal(0)
    for row in rows:
        one = {name: Decimal(value) for name, value in row.items() if name != "day"}
        before += one["taken_usd"] - one["taken_back_usd"] + one["credited_usd"] - one["debited_usd"]
        before += one["refunded_usd"] - one["spent_usd"]
        assert one["owed_usd"] == before, row["day"]
    said = words(viewer.get(MONEY).text)
    for part in (
        "Owed to customers",
        "Paynow",
        "USDT",
        "Vouchers",
        "By day",
        "Taken in US$38.49",
        "Of it held US$0.04",
    ):
        assert part in said, part


def test_a_shorter_time_begins_with_what_was_owed_before(
    service: Service, admin: httpx.Client, caller: Caller
) -> None:
    assert caller
    whole = table(admin)
    first, last = str(today() - timedelta(days=7)), str(today() - timedelta(days=4))
    part = table(admin, **{"from": first, "to": last})
    assert part == [row for row in whole if first <= row["day"] <= last]
    page = words(admin.get(MONEY, params={"from": first, "to": last}).text)
    assert "all balances after the last day" in page
    (row,) = [row for row in part if row["day"] == last]
    assert f"US${Decimal(row['owed_usd']):.2f}" in page
    # The same once the worker has added it up.
    for _ in range(3):
        service.run(run_named, ADD_UP)
    assert table(admin) == whole


def test_a_time_that_cannot_be_is_refused(admin: httpx.Client) -> None:
    soon = str(today() + timedelta(days=1))
    for query, field in (
        ({"from": "x"}, "from"),
        ({"to": "2026-02-30"}, "to"),
        ({"from": "2026-02-02", "to": "2026-02-01"}, "to"),
        ({"from": "2020-01-01"}, "from"),
        ({"from": soon}, "from"),
    ):
        for path in (MONEY, MONEY + ".csv"):
            refused = admin.get(path, params=query)
            assert (refused.status_code, f'href="#{field}"' in refused.text) == (422, True), query
    assert "No money was moved" in admin.get(MONEY, params={"from": "2020-01-01", "to": "2020-01-31"}).text
