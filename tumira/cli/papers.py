"""The `tumira statement`, `tumira invoice` and `tumira tax` commands."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import click

from tumira.accounts import store as accounts
from tumira.cli.output import ACCOUNT_ID, DayType, actor, database_command, load_settings, show, show_all
from tumira.core.errors import OperatorError
from tumira.core.ids import AccountId
from tumira.papers import pdf, statements, store
from tumira.papers import tax as tax_rates
from tumira.papers.content import read_month, read_number, write_month
from tumira.papers.issue import PaperIssuer, issue_due
from tumira.papers.store import Paper
from tumira.papers.tax import DEFAULT_HEADING, TaxRate
from tumira.postgres.pool import Database

LIST_MAX: Final = 10_000
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


def _issuer() -> PaperIssuer:
    settings = load_settings()
    return PaperIssuer(settings.seller, settings.public_url)


@click.command()
@click.option("--account", "account_id", type=ACCOUNT_ID, required=True)
@click.option("--month", required=True, help="As in 2026-10, UTC+02:00.")
@click.option("--pdf", "pdf_file", type=_FILE, help="Write the statement as PDF to this file.")
@click.option("--csv", "csv_file", type=_FILE, help="Write all movements as CSV to this file.")
@database_command
async def statement(
    database: Database, *, account_id: AccountId, month: str, pdf_file: Path | None, csv_file: Path | None
) -> None:
    """Show an account's statement of a month, and write it to files."""
    asked = read_month(month)
    if asked is None:
        raise OperatorError(f"{month!r} is not a month, such as 2026-10.")
    async with database.connection() as connection:
        if await accounts.find(connection, account_id) is None:
            raise OperatorError("There is no such account; `tumira account list` shows them.")
    found = await statements.find_statement(database, _issuer(), account_id, asked)
    if found is None:
        raise OperatorError("The account was not open in this month, or it has not begun.")
    if not found.adds_up:
        raise OperatorError("This month does not add up to the ledger; `tumira audit` says more.")
    made = found.statement
    if pdf_file is not None:
        _save(pdf_file, pdf.draw_statement(made, await statements.list_lines(database, made)))
    if csv_file is not None:
        with csv_file.open("wb") as file:
            async for piece in statements.write_csv(database, made):
                file.write(piece)
    shown = {
        "account_id": account_id,
        "month": write_month(made.month),
        "opening": made.opening,
        **{kind.value.replace("-", "_"): amount for kind, amount, _count in statements.totals_by_kind(made)},
        "closing": made.closing,
        "movements": made.movements,
        "is_final": made.closed_at is not None,
    }
    show(shown)


@click.group()
def invoice() -> None:
    """List and show invoices, receipts and credit notes."""


@invoice.command("list")
@click.option("--account", "account_id", type=ACCOUNT_ID, help="Only this account's.")
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=100, show_default=True)
@database_command
async def invoice_list(database: Database, *, account_id: AccountId | None, limit: int) -> None:
    """List papers, newest first."""
    await issue_due(database, _issuer())
    async with database.connection() as connection:
        if account_id is None:
            found = await store.list_latest(connection, limit)
        else:
            found = await store.list_of_account(connection, account_id, limit)
    show_all([_paper(one) for one in found], empty="No papers yet.")


@invoice.command("show")
@click.argument("number")
@click.option("--pdf", "pdf_file", type=_FILE, help="Write it as PDF to this file.")
@database_command
async def invoice_show(database: Database, *, number: str, pdf_file: Path | None) -> None:
    """Show a paper by its number, such as INV-000001."""
    read = read_number(number)
    async with database.connection() as connection:
        found = None if read is None else await store.find_any(connection, *read)
    if found is None:
        raise OperatorError(f"There is no paper {number}; `tumira invoice list` shows them.")
    if pdf_file is not None:
        _save(pdf_file, pdf.draw_paper(found.content))
    content = found.content
    shown = {
        **_paper(found),
        "tax_rate": None if content.tax_rate is None else content.written_rate,
        "seller": content.seller.name,
        "seller_address": content.seller.address,
        "seller_tax_number": content.seller.tax_number,
        "buyer": content.buyer.name,
        "buyer_address": content.buyer.address,
        "buyer_tax_number": content.buyer.tax_number,
        "corrects": content.corrects,
        "issued_at": found.issued_at,
    }
    show(shown)


@click.group()
def tax() -> None:
    """Set, list and remove tax rates by country of the seller."""


@tax.command("set")
@click.argument("country")
@click.argument("rate")
@click.option("--from", "from_day", type=DayType(), required=True, help="The first day, as in 2027-01-01.")
@click.option(
    "--heading", default=DEFAULT_HEADING, show_default=True, help="What papers with this tax are called."
)
@database_command
async def tax_set(database: Database, *, country: str, rate: str, from_day: date, heading: str) -> None:
    """Set a country's rate, in percent, from a day on; papers that were made keep theirs."""
    made = await tax_rates.set_rate(
        database,
        country=country,
        from_day=from_day,
        rate=tax_rates.read_rate(rate),
        heading=heading,
        actor=actor(),
    )
    show(_rate(made), title="Tax rate set.")


@tax.command("list")
@database_command
async def tax_list(database: Database) -> None:
    """List the rates by country, newest first."""
    async with database.connection() as connection:
        found: Sequence[TaxRate] = await tax_rates.list_rates(connection)
    show_all([_rate(one) for one in found], empty="No tax rates.")


@tax.command("remove")
@click.argument("country")
@click.option("--from", "from_day", type=DayType(), required=True, help="The first day of the rate.")
@database_command
async def tax_remove(database: Database, *, country: str, from_day: date) -> None:
    """Remove a rate, so that the one before it goes on."""
    await tax_rates.remove_rate(database, country, from_day, actor())
    show({"country": country, "from": str(from_day), "removed": True}, title="Tax rate removed.")


def _save(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def _paper(found: Paper) -> Mapping[str, Any]:
    content = found.content
    return {
        "number": found.number,
        "heading": content.heading,
        "account_id": found.account_id,
        "at": content.at,
        "total": content.total,
        "tax": content.tax,
    }


def _rate(one: TaxRate) -> Mapping[str, Any]:
    return {
        "country": one.country,
        "from": str(one.from_day),
        "rate": f"{one.rate.normalize():f}",
        "heading": one.heading,
        "set_by": one.set_by,
    }
