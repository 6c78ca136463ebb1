"""Commands for opt-outs: the numbers that get no more messages from an account."""

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final

import click

from tumira.accounts import store as accounts
from tumira.cli.output import ACCOUNT_ID, actor, database_command, show, show_all
from tumira.core.errors import OperatorError
from tumira.core.ids import AccountId
from tumira.postgres.pool import Database
from tumira.pricing.destinations import Tariff
from tumira.pricing.phone_numbers import country_of, read_phone
from tumira.pricing.store import get_tariff
from tumira.replies import manage, opt_outs
from tumira.replies.manage import Added
from tumira.replies.opt_outs import OptOut, OptOutSource
from tumira.uploads.csv_file import CsvError
from tumira.uploads.workbooks.convert import ManySheets
from tumira.uploads.workbooks.reader import TableReader

LISTED_MAX: Final = 100_000
UNREADABLE_SHOWN: Final = 20

_account_option = click.option(
    "--account", "account_id", type=ACCOUNT_ID, required=True, help="Whose messages they get no more."
)


@click.group()
def optout() -> None:
    """List, add, import and remove the numbers that get no more messages from an account."""


@optout.command("add")
@_account_option
@click.option(
    "--number",
    "numbers",
    multiple=True,
    required=True,
    help="Like +2637712xxxxx, or without the code of the account's own country; may be given several times.",
)
@database_command
async def optout_add(database: Database, *, account_id: AccountId, numbers: tuple[str, ...]) -> None:
    """Send no more messages from an account to some numbers."""
    await _add(database, account_id, numbers, OptOutSource.PAGE)


@optout.command("import")
@click.argument("file", type=click.File("rb"))
@_account_option
@click.option("--sheet", help="Which sheet of a workbook, if several have rows.")
@database_command
async def optout_import(
    database: Database, *, file: BinaryIO, account_id: AccountId, sheet: str | None
) -> None:
    """Opt out the numbers of a workbook (.xlsx, .ods) or CSV file.

    They are in its column to, phone, number, mobile, cell or msisdn, or else in its first column. FILE may be
    - for standard input.
    """
    try:
        rows = await TableReader().read(account_id, file.read(), sheet)
    except CsvError as error:
        raise OperatorError(str(error)) from error
    if isinstance(rows, ManySheets):
        names = ", ".join(rows.names)
        raise OperatorError(f"Several sheets have rows: {names}. Choose one with --sheet.")
    column = rows.number_column
    written = [row.cells[column] for row in rows.rows if column < len(row.cells)]
    await _add(database, account_id, written, OptOutSource.IMPORT)


async def _add(
    database: Database, account_id: AccountId, written: Sequence[str], source: OptOutSource
) -> None:
    _tariff, home = await _find_home(database, account_id)
    added = await manage.opt_out(database, account_id, written, home, source=source, actor=actor())
    if added.added == added.known == 0:
        raise OperatorError(f"No number that we send to: {_few(added.unreadable)}.")
    show(_write_added(account_id, added), title="Opted out.")


def _few(unreadable: Sequence[str]) -> str:
    shown = ", ".join(repr(one) for one in unreadable[:UNREADABLE_SHOWN])
    return shown + (", …" if len(unreadable) > UNREADABLE_SHOWN else "")


def _write_added(account_id: AccountId, added: Added) -> Mapping[str, Any]:
    return {
        "account_id": account_id,
        "added": added.added,
        "known": added.known,
        "unreadable": list(added.unreadable),
    }


@optout.command("list")
@_account_option
@click.option("--limit", type=click.IntRange(1, LISTED_MAX), default=100, show_default=True)
@database_command
async def optout_list(database: Database, *, account_id: AccountId, limit: int) -> None:
    """List the opt-outs of an account, the newest first."""
    await _find_home(database, account_id)
    async with database.connection() as connection:
        found = await opt_outs.list_of_account(connection, account_id, opt_outs.LATEST, limit)
    show_all([_write(one) for one in found], empty="Nobody has opted out.")


def _write(one: OptOut) -> Mapping[str, Any]:
    return {"number": one.number, "source": one.source.value, "added_at": one.added_at}


@optout.command("remove")
@_account_option
@click.option("--number", "text", required=True, help="Like +2637712xxxxx.")
@database_command
async def optout_remove(database: Database, *, account_id: AccountId, text: str) -> None:
    """Let an account send to a number again; its owner must have asked for that."""
    tariff, home = await _find_home(database, account_id)
    number = read_phone(tariff, text, home) or text
    if not await manage.opt_in(database, account_id, number, actor=actor()):
        raise OperatorError(f"{text!r} has not opted out; `tumira optout list` shows who has.")
    show({"account_id": account_id, "number": number}, title="The account can send to this number again.")


async def _find_home(database: Database, account_id: AccountId) -> tuple[Tariff, str | None]:
    """Return the tariff, and the country whose numbers an account writes without its code."""
    async with database.connection() as connection:
        tariff = await get_tariff(connection)
        account = await accounts.find(connection, account_id)
    if account is None:
        raise OperatorError("There is no such account; `tumira account list` shows them.")
    return tariff, country_of(tariff, account.phone)
