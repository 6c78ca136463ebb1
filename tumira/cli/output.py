"""Output of commands: for people by default, one JSON value with `--json`."""

import asyncio
import functools
import getpass
import json
import os
import sys
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import asyncpg
import click

from tumira.core import money
from tumira.core import settings as config
from tumira.core.errors import OperatorError
from tumira.core.ids import ACCOUNT, KEY, AccountId, KeyId, read_id
from tumira.core.settings import Settings
from tumira.postgres.pool import Database
from tumira.runtime import open_database, prepare

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def tell(line: str) -> None:
    """Print a line for the person at the terminal, beside the command's own output."""
    # A node goes on when nobody can hear it, as when its output goes to a disk that is full.
    with suppress(OSError):
        click.echo(line, err=True)


def fail(problem: str, exit_code: int = 1) -> NoReturn:
    """End with one line on standard error."""
    click.echo(f"Error: {problem}", err=True)
    sys.exit(exit_code)


def plainly(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """End a command with one line that says what is wrong, instead of a traceback."""

    @functools.wraps(command)
    def said_plainly(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return command(*args, **kwargs)
        except OperatorError as error:
            fail(str(error))
        except BrokenPipeError:
            # Whoever read our output, such as `head`, has seen enough. Not an ordinary exit, which would
            # try once more to write the rest.
            os._exit(1)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            fail(f"{type(error).__name__}: {' '.join(str(error).split())}")

    return said_plainly


def with_database(
    command: Callable[Concatenate[Database, Parameters], Awaitable[Result]],
) -> Callable[Parameters, Result]:
    """Open the database, with the current schema, around a command."""

    @functools.wraps(command)
    def opened(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        settings = config.load()
        with open_database(settings, tell) as url:
            return asyncio.run(_run(url, *args, **kwargs))

    async def _run(url: str, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        await prepare(url, tell)
        database = Database(url, connections_max=2)
        try:
            return await command(database, *args, **kwargs)
        finally:
            await database.close()

    return plainly(opened)


def show(value: Mapping[str, Any], *, as_json: bool, title: str = "") -> None:
    if as_json:
        click.echo(_json(value))
        return
    if title:
        click.echo(title)
    width = max(len(name) for name in value)
    for name, item in value.items():
        click.echo(f"  {name.replace('_', ' '):<{width}}  {_plain(item)}")


def show_all(
    values: Sequence[Mapping[str, Any]], *, as_json: bool, empty: str, left_out: Collection[str] = ()
) -> None:
    """Print a list of objects; for people as a table without the columns that would make it too wide."""
    if as_json:
        click.echo(_json(values))
        return
    if not values:
        click.echo(empty)
        return
    names = [name for name in values[0] if name not in left_out]
    rows = [[name.replace("_", " ") for name in names]]
    rows.extend([_plain(value[name]) for name in names] for value in values)
    widths = [max(_width(row[place]) for row in rows) for place in range(len(names))]
    for row in rows:
        cells = (cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_json_time)


def _json_time(item: Any) -> str:
    assert isinstance(item, datetime)
    return item.isoformat(timespec="milliseconds")


def _plain(item: Any) -> str:
    if item is None:
        return "-"
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, datetime):
        return f"{item:%Y-%m-%d %H:%M} UTC"
    if isinstance(item, list | tuple):
        return ",".join(_plain(part) for part in item)
    # A name with a line break would leave the table, and one with an escape would command the terminal.
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in str(item))


def _width(text: str) -> int:
    """Return the number of columns that a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "FW" else 1
        for letter in text
    )


def actor() -> str:
    """Return the name of the user at the command line, for the audit log."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"cli:{os.geteuid()}"


def load_settings() -> Settings:
    return config.load()


class AmountType(click.ParamType[Decimal]):
    """US dollars with at most four decimals."""

    name = "amount"

    def __init__(self, *, signed: bool = False) -> None:
        self._signed = signed

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        if isinstance(value, Decimal):
            return value
        minus = self._signed and value.startswith("-")
        amount = money.parse(value[1:] if minus else value)
        if amount is None:
            self.fail(f"{value!r} is not an amount in US dollars, such as 5 or 0.0190.", param, ctx)
        return -amount if minus else amount


class AccountIdType(click.ParamType[AccountId]):
    name = "acc_…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> AccountId:
        identifier = read_id(ACCOUNT, value)
        if identifier is None:
            self.fail(f"{value!r} is not an account's id; `tumira account list` shows them.", param, ctx)
        return AccountId(identifier)


class KeyIdType(click.ParamType[KeyId]):
    name = "key_…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> KeyId:
        identifier = read_id(KEY, value)
        if identifier is None:
            self.fail(f"{value!r} is not a key's id; `tumira key list` shows them.", param, ctx)
        return KeyId(identifier)
