"""Account search: every match once, by an index."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import asyncpg
import pytest

from tests.postgres.test_statements import generic_plan, nodes
from tests.support.postgres.databases import clone
from tumira.accounts import search as account_search
from tumira.accounts import store as accounts
from tumira.accounts.search import FIRST, LAST, FoundAccount, list_by_phone, list_by_words, phone_beginnings
from tumira.core.ids import AccountId
from tumira.postgres.pool import PLANNED_ONCE
from tumira.postgres.statement import Statement
from tumira.topups import lists as top_up_lists
from tumira.topups.store import LAST as LAST_TOP_UP

MANY: Final = 10_000
CODES: Final = ("263", "27")
PAGE: Final = 50

# One account in a hundred is a bakery, and three are what the tests look for. Nobody analysed the tables.
FILL: Final = f"""
    INSERT INTO accounts (id, phone, name, business)
    SELECT uuidv7(), '+2637712' || lpad(n::text, 5, '0'), 'Person ' || n,
           CASE WHEN n % 100 = 0 THEN 'Moyo Bakery ' || n ELSE 'Dube Shop ' || n END
      FROM generate_series(1, {MANY}) AS n;
    INSERT INTO accounts (id, phone, name, business) VALUES
        (uuidv7(), '+27821230001', 'Élise O''Brien', 'Café & Co., Harare'),
        (uuidv7(), '+27821230002', 'Moyo Moyola', 'Moyo-Bakers'),
        (uuidv7(), '+27821230003', '99365', '77024/7 %_ shop');
    INSERT INTO top_ups (id, account_id, method, provider, state, currency, problem)
    SELECT uuidv7(), a.id, 'paynow', 'ecocash', CASE WHEN n % 500 = 0 THEN 'doubt' ELSE 'failed' END, 'USD',
           CASE WHEN n % 700 = 0 THEN 'r: 5 USD was paid after it had failed' ELSE 'refused' END
      FROM (SELECT id, row_number() OVER () AS n FROM accounts) AS a;
"""


@pytest.fixture(scope="module")
def url(server_url: str) -> Iterator[str]:
    """Give a database with many accounts that the tests of this file share."""
    with clone(server_url) as made:
        asyncio.run(_fill(made))
        yield made


async def _fill(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(FILL)
    await connection.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(url, server_settings=dict(PLANNED_ONCE))
    try:
        yield connection
    finally:
        await connection.close()


async def by_words(url: str, text: str, look_max: int = account_search.LOOK_MAX) -> Sequence[FoundAccount]:
    found: list[FoundAccount] = []
    after = None
    async with connected(url) as connection:
        for _ in range(MANY):
            results = await list_by_words(connection, text, PAGE, after, look_max)
            found.extend(results.accounts)
            after = results.following
            if after is None:
                return found
    raise AssertionError("the search has no end")


FOUND: Final[Sequence[tuple[str, Sequence[str]]]] = [
    ("elise", []),
    ("Élise", ["+27821230001"]),
    ("ÉLI", ["+27821230001"]),
    ("O'Brien", ["+27821230001"]),
    ("brien caf", ["+27821230001"]),
    ("co harare", ["+27821230001"]),
    ("moyol", ["+27821230002"]),
    ("BAKERS moyo", ["+27821230002"]),
    ("99365", ["+27821230003"]),
    ("%_ 77024", ["+27821230003"]),
    ("%", []),
    ("", []),
    ("moyo nobody", []),
]


async def test_names_are_found_by_how_their_words_begin(url: str) -> None:
    for text, phones in FOUND:
        assert [one.phone for one in await by_words(url, text)] == phones, text


async def test_every_account_that_fits_is_found_once_over_all_pages(url: str) -> None:
    found = await by_words(url, "moyo")
    assert len(found) == len({one.id for one in found}) == MANY // 100 + 1
    # Most people that are looked at have no bakery: the search stops on its way, and goes on from there.
    narrow = await by_words(url, "person bak", look_max=500)
    assert {one.id for one in narrow} == {one.id for one in found if one.phone.startswith("+263")}
    async with connected(url) as connection:
        first = await list_by_words(connection, "person bak", PAGE, None, look_max=500)
    assert first.is_cut
    assert len(first.accounts) < PAGE


async def test_a_new_name_is_found_and_the_old_one_is_not(url: str) -> None:
    (one,) = await by_words(url, "moyola")
    async with connected(url) as connection:
        await accounts.set_names(connection, one.id, "Rudo Zvobgo", "Zvobgo Zvobgo")
    assert await by_words(url, "moyola") == []
    assert [found.id for found in await by_words(url, "zvobgo")] == [one.id]
    async with connected(url) as connection:
        await accounts.set_names(connection, one.id, one.name, one.business)


@pytest.mark.parametrize(
    ("text", "beginnings"),
    [
        ("+263 77 120-0001", ["+263771200001"]),
        ("00263771200001", ["+263771200001"]),
        ("0771200001", ["+263771200001", "+27771200001"]),
        ("263771", ["+263263771", "+263771", "+27263771"]),
        ("7712", ["+2637712", "+277712", "+7712"]),
        ("270", ["+263270", "+270", "+27270"]),
        ("26", []),
        ("+2", []),
        ("Moyo 24", []),
        ("24/7 shop", []),
        ("1" * 60, []),
    ],
)
def test_a_number_is_read_as_people_type_it(text: str, beginnings: Sequence[str]) -> None:
    assert list(phone_beginnings(text, CODES)) == beginnings


async def test_numbers_are_found_by_how_they_begin(url: str) -> None:
    async with connected(url) as connection:
        found, has_more = await list_by_phone(connection, phone_beginnings("0821230002", CODES), PAGE)
        assert [one.phone for one in found] == ["+27821230002"]
        assert not has_more
        found, has_more = await list_by_phone(connection, ["+26377120"], PAGE)
        assert has_more
        following, _ = await list_by_phone(connection, ["+26377120"], PAGE, found[-1].phone)
        assert following[0].phone > found[-1].phone
        assert await list_by_phone(connection, [], PAGE) == ([], False)


async def test_the_newest_come_first_and_the_gateways_own_account_never(url: str) -> None:
    seen: list[AccountId] = []
    before = LAST
    async with connected(url) as connection:
        for _ in range(MANY):
            found, has_more = await account_search.list_newest(connection, 5_000, before)
            seen.extend(one.id for one in found)
            before = found[-1].id
            if not has_more:
                break
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == MANY + 3
    assert accounts.SYSTEM not in seen


WAYS: Final[dict[str, tuple[Statement, dict[str, object], int]]] = {
    "newest": (account_search.SQL_NEWEST, {"before": LAST, "count_max": PAGE}, PAGE),
    "phone": (
        account_search.SQL_PHONES,
        {"beginnings": ["+26377120"], "nines": "9" * 15, "after": "+", "count_max": PAGE},
        PAGE,
    ),
    "a word that all have": (
        account_search.SQL_BY_WORD,
        {
            "beginning": "person",
            "others": ["shop"],
            "word": "person",
            "after": FIRST,
            "look_max": account_search.LOOK_MAX,
            "count_max": PAGE,
        },
        # One in a hundred is passed over; each is looked at for its word, its account and the other word.
        4 * PAGE,
    ),
    "all top-ups": (top_up_lists.SQL_ALL, {"before": LAST_TOP_UP, "count_max": PAGE}, PAGE),
    "top-ups in doubt": (
        top_up_lists.SQL_OF_STATE,
        {"state": "doubt", "before": LAST_TOP_UP, "count_max": PAGE},
        PAGE,
    ),
    "top-ups paid late": (top_up_lists.SQL_PAID_LATE, {"before": LAST_TOP_UP, "count_max": PAGE}, PAGE),
}


# The server may gather statistics whenever it likes, so each is tried as the tables are, and then with them.
@pytest.mark.parametrize("analysed", [False, True], ids=["as it is", "analysed"])
@pytest.mark.parametrize("name", WAYS)
async def test_a_page_reads_little_more_than_it_shows(url: str, name: str, *, analysed: bool) -> None:
    statement, values, rows_max = WAYS[name]
    async with connected(url) as connection:
        if analysed:
            await connection.execute("ANALYZE accounts, account_words, top_ups")
        plan = list(nodes(await generic_plan(connection, statement, values)))
    scanned = [node for node in plan if "Relation Name" in node]
    assert scanned
    assert "Seq Scan" not in {node["Node Type"] for node in scanned}
    assert "Sort" not in {node["Node Type"] for node in plan if node["Actual Rows"] > 2 * PAGE}
    for node in scanned:
        assert node["Actual Rows"] * node["Actual Loops"] <= rows_max, node
        assert node.get("Rows Removed by Filter", 0) <= PAGE, node
