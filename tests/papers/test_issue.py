"""Papers are made once, numbered without gaps, and never change."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from tests.support.chaos.mortal import KILLED, Mortal, fork_and_die
from tests.support.papers import ISSUER, PUBLIC_URL, SELLER, broken_papers, pay, read_pdf, start
from tests.support.processes.service import Caller, new_caller
from tumira.audit_log import Actor
from tumira.core.days import local_day
from tumira.core.ids import AccountId
from tumira.core.settings.seller import NO_SELLER, Seller
from tumira.identity import manage_accounts
from tumira.identity.principal import Principal, PrincipalKind
from tumira.identity.reauthenticate import Requester
from tumira.papers import details, pdf, store, tax
from tumira.papers.content import PaperSeries
from tumira.papers.details import BillingDetails
from tumira.papers.fonts import load_wide
from tumira.papers.issue import PaperIssuer, find_or_issue, issue_due
from tumira.papers.store import DuePaper, Paper
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.topups.settle import settle
from tumira.topups.states import Paid, Reversed

TEN = Decimal(10)


async def papers_of(database: Database, account_id: AccountId) -> list[Paper]:
    """Return an account's papers, oldest first."""
    async with database.connection() as connection:
        return list(await store.list_of_account(connection, account_id, 1_000))[::-1]


async def all_numbers(database: Database, series: str) -> list[int]:
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT number FROM papers WHERE series = $1 ORDER BY transfer_id", series
        )
    return [row["number"] for row in rows]


def requester(caller: Caller) -> Requester:
    person = Principal(PrincipalKind.CUSTOMER, caller.id, "+263771200001")
    return Requester(person, caller.id, "Test", "127.0.0.1")


async def test_a_top_up_gets_an_invoice_with_both_parties_and_the_tax(
    database: Database, caller: Caller
) -> None:
    wanted = BillingDetails("Tšhwane Traders (Pty) Ltd", "1 Church Street, Pretoria", "4010112345")
    await details.change_details(database, requester(caller), wanted, date(2026, 10, 1))
    await pay(database, caller)
    assert await issue_due(database, ISSUER) == 1
    assert await issue_due(database, ISSUER) == 0
    (paper,) = await papers_of(database, caller.id)
    content = paper.content
    assert (paper.number, content.heading, content.total) == ("INV-000001", "Invoice", TEN)
    assert (content.written_rate, content.tax, content.net) == ("15.5", Decimal("1.34"), Decimal("8.66"))
    assert content.seller.name == SELLER.name
    assert content.buyer.name == wanted.name
    said = " ".join(read_pdf(pdf.draw_paper(content)).split())
    for expected in (
        "INV-000001",
        "Sanganai SMS (Pvt) Ltd",
        "Tšhwane Traders (Pty) Ltd",
        "1 Church Street, Pretoria",
        "Tax number: 220012345",
        "Tax number: 4010112345",
        "VAT 15.5% US$1.34",
        "Total US$10.00",
        "EcoCash (Paynow)",
    ):
        assert expected in said, expected


async def test_names_of_the_country_keep_their_letters(database: Database, caller: Caller) -> None:
    if not load_wide():
        pytest.skip("DejaVu Sans is missing: install fonts-dejavu-core")
    # Every letter of Venda, a Polish name, and one word of a script that no font here has.
    name = "Makhaḓo Ṱhohoyanḓou Ḽivhuwani Ṅala ṋ & Wójcik-Źródło \N{CJK UNIFIED IDEOGRAPH-5317}"
    wanted = BillingDetails(name, "Tshiṱaraṱa tsha Ḓuvha 1, Tšhwane", "")
    await details.change_details(database, requester(caller), wanted, date(2026, 10, 1))
    await pay(database, caller)
    await issue_due(database, ISSUER)
    (paper,) = await papers_of(database, caller.id)
    content = pdf.draw_paper(paper.content)
    said = " ".join(read_pdf(content).split())
    assert "Makhaḓo Ṱhohoyanḓou Ḽivhuwani" in said
    assert "Ṅala ṋ & Wójcik-Źródło ?" in said
    assert "Tshiṱaraṱa tsha Ḓuvha 1, Tšhwane" in said
    # The same bytes, and only the letters that are used are in the file.
    assert pdf.draw_paper(paper.content) == content
    assert len(content) < 60_000


async def test_a_seller_without_a_tax_number_gives_receipts(database: Database, caller: Caller) -> None:
    await pay(database, caller)
    plain = PaperIssuer(NO_SELLER, PUBLIC_URL)
    await issue_due(database, plain)
    (paper,) = await papers_of(database, caller.id)
    assert (paper.number, paper.content.heading, paper.content.tax) == ("REC-000001", "Receipt", None)
    assert paper.content.seller.name == "Tumira"
    assert "VAT" not in read_pdf(pdf.draw_paper(paper.content))


async def test_the_rate_is_that_of_the_country_on_the_day(database: Database, caller: Caller) -> None:
    today = local_day(datetime.now(UTC))
    issuer = PaperIssuer(Seller("Sanganai", tax_number="4", country="ZA"), PUBLIC_URL)
    for rate, days in (("16", 0), ("17", 1)):
        await tax.set_rate(
            database,
            country="ZA",
            from_day=today + timedelta(days=days),
            rate=Decimal(rate),
            heading="Tax invoice",
            actor=Actor("test"),
        )
    await pay(database, caller)
    await issue_due(database, issuer)
    # A country without a rate has receipts.
    await pay(database, caller)
    await issue_due(database, PaperIssuer(Seller("Sanganai", tax_number="4", country="BW"), PUBLIC_URL))
    first, second = await papers_of(database, caller.id)
    assert (first.number, first.content.heading, first.content.written_rate) == (
        "INV-000001",
        "Tax invoice",
        "16",
    )
    assert (second.number, second.content.tax_rate) == ("REC-000001", None)


async def test_what_was_made_never_changes(database: Database, caller: Caller) -> None:
    await pay(database, caller)
    await issue_due(database, ISSUER)
    (before,) = await papers_of(database, caller.id)
    drawn = pdf.draw_paper(before.content)
    changed = BillingDetails("Another name", "Elsewhere", "1")
    await details.change_details(database, requester(caller), changed, date(2026, 10, 1))
    async with database.connection() as connection:
        await connection.execute("UPDATE accounts SET business = 'X', name = 'Y' WHERE id = $1", caller.id)
        await connection.execute("UPDATE top_ups SET provider_reference = 'other'")
        for statement in ("UPDATE papers SET total = 1", "DELETE FROM papers"):
            with pytest.raises(asyncpg.RaiseError, match="never changed"):
                await connection.execute(statement)
    other = PaperIssuer(Seller("Another seller", "There", "9", Decimal(1)), "https://other.example")
    found = await find_or_issue(database, other, caller.id, before.transfer_id)
    assert found == before
    assert pdf.draw_paper(found.content) == drawn
    await pay(database, caller)
    await issue_due(database, other)
    assert (await papers_of(database, caller.id))[-1].content.buyer.name == "Another name"


async def test_a_reversal_gets_a_credit_note_for_what_was_taken_back(
    database: Database, caller: Caller
) -> None:
    top_up_id = await pay(database, caller)
    await settle(database, top_up_id, Reversed("disputed"))
    await issue_due(database, ISSUER)
    invoice, note = await papers_of(database, caller.id)
    assert (note.number, note.content.corrects) == ("CN-000001", invoice.number)
    assert (note.content.total, note.content.tax) == (TEN, Decimal("1.34"))
    assert ("Corrects", "Invoice INV-000001") in note.content.facts


async def test_the_operators_payments_have_papers_and_gifts_have_none(
    database: Database, caller: Caller
) -> None:
    for amount, is_payment in ((5, True), (6, False), (-1, True)):
        await manage_accounts.credit(
            database, caller.id, Decimal(amount), note="Cash", actor="test", is_payment=is_payment
        )
    await issue_due(database, ISSUER)
    (paper,) = await papers_of(database, caller.id)
    assert paper.content.total == 5
    assert ("Note", "Cash") in paper.content.facts


async def test_credits_before_papers_keep_the_number_of_their_entry(
    database: Database, caller: Caller
) -> None:
    await pay(database, caller)
    async with database.connection() as connection:
        (row,) = await connection.fetch("UPDATE papers_due SET by_entry = true RETURNING transfer_id")
    entry = row["transfer_id"]
    # A later one that gets a number does not wait for it.
    await pay(database, caller)
    found = await find_or_issue(database, ISSUER, caller.id, entry)
    assert found is not None
    assert (found.number, found.content.heading) == (f"{entry:06}", "Receipt")
    await issue_due(database, ISSUER)
    assert [paper.number for paper in await papers_of(database, caller.id)] == [found.number, "INV-000001"]


async def race(database: Database, caller: Caller) -> None:
    """Credit at once, some in vain, while four others make papers."""

    async def credit(number: int) -> None:
        top_up_id = await start(database, caller)
        if number % 4:
            await settle(database, top_up_id, Paid(f"race-{number}", TEN))
            return
        with suppress(ConnectionAbortedError):
            async with database.transaction() as connection:
                await connection.execute(
                    "INSERT INTO transfers (account_id, from_book, to_book, amount, top_up_id)"
                    " VALUES ($1, 'topup:paynow', 'customer', 1, $2)",
                    caller.id,
                    top_up_id,
                )
                raise ConnectionAbortedError

    async def issue() -> None:
        for _ in range(6):
            await issue_due(database, ISSUER)

    await asyncio.gather(*(credit(number) for number in range(24)), *(issue() for _ in range(4)))
    while await issue_due(database, ISSUER):
        pass


async def test_numbers_have_no_gap_whoever_makes_papers_at_once(database: Database, caller: Caller) -> None:
    await race(database, caller)
    assert sorted(await all_numbers(database, "INV")) == list(range(1, 19))


async def test_without_the_lock_two_give_the_same_number(
    database: Database, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, list_due = asyncio.Barrier(2), store.list_due

    async def read_series(connection: Connection) -> dict[PaperSeries, int]:
        rows = await connection.fetch("SELECT series, last FROM paper_series")
        return {PaperSeries(row["series"]): row["last"] for row in rows}

    async def list_together(connection: Connection, *bounds: Any) -> Sequence[DuePaper]:
        found = await list_due(connection, *bounds)
        await both.wait()
        return found

    await pay(database, caller)
    monkeypatch.setattr(store, "lock_series", read_series)
    monkeypatch.setattr(store, "list_due", list_together)
    with pytest.raises(asyncpg.UniqueViolationError):
        await asyncio.gather(*(issue_due(database, ISSUER) for _ in range(2)))


async def test_a_rolled_back_number_is_given_again(database: Database, caller: Caller) -> None:
    await pay(database, caller)

    @asynccontextmanager
    async def rolled_back() -> AsyncIterator[Connection]:
        with suppress(ConnectionAbortedError):
            async with database.transaction() as connection:
                yield connection
                raise ConnectionAbortedError

    async with rolled_back() as connection:
        last = await store.lock_series(connection)
        (due,) = await store.list_due(connection, 10)
        assert last[PaperSeries.INVOICE] == 0
        await connection.execute("UPDATE paper_series SET last = 7")
        assert due.account_id == caller.id
    await issue_due(database, ISSUER)
    assert await all_numbers(database, "INV") == [1]


@pytest.mark.long
def test_a_process_that_is_killed_at_any_step_leaves_no_gap(database_url: str) -> None:
    async def credit() -> None:
        database = Database(database_url)
        caller = await new_caller(database_url)
        await pay(database, caller)
        await database.close()

    async def issue(mortal: Mortal) -> None:
        database = Database(database_url)
        async with database.connection():
            mortal.is_counting = True
        await issue_due(database, ISSUER)
        mortal.is_counting = False
        await database.close()

    async def check() -> None:
        database = Database(database_url)
        await issue_due(database, ISSUER)
        numbers = await all_numbers(database, "INV")
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
        assert await broken_papers(database) == []
        await database.close()

    for step in range(1, 200):
        asyncio.run(credit())
        code = fork_and_die(step, issue)
        asyncio.run(check())
        if code == 0:
            break
        assert code == KILLED
    else:
        pytest.fail("it never came to an end")
