"""Output of commands: for people by default, one JSON value with `--json`."""

import asyncio
import functools
import getpass
import json
import os
import sys
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from enum import StrEnum
from typing import Any, Concatenate, Final, NoReturn, ParamSpec, TypeVar
from uuid import UUID

import asyncpg
import click

from tumira.audit_log import Actor
from tumira.core import ids, money
from tumira.core import settings as config
from tumira.core.errors import OperatorError
from tumira.core.ids import read_id, write_id
from tumira.core.settings import Settings
from tumira.postgres.pool import Database
from tumira.runtime import open_database, prepare

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_AS_JSON: Final = "tumira.as_json"
# How an id is written, by the name under which it is shown.
_PREFIXES: Final[Mapping[str, str]] = {
    "account_id": ids.ACCOUNT,
    "batch_id": ids.BATCH,
    "endpoint_id": ids.ENDPOINT,
    "event_id": ids.EVENT,
    "key_id": ids.KEY,
    "message_id": ids.MESSAGE,
    "operator_id": ids.OPERATOR,
    "sender_name_id": ids.SENDER_NAME,
    "template_id": ids.TEMPLATE,
    "top_up_id": ids.TOP_UP,
    "topup_id": ids.TOP_UP,
    "voucher_id": ids.VOUCHER,
}


def _note_json(context: click.Context, _option: click.Parameter, value: bool) -> None:  # noqa: FBT001 - as click calls it
    context.meta[_AS_JSON] = value


_json_option = click.option(
    "--json", is_flag=True, expose_value=False, callback=_note_json, help="Print JSON."
)


def wants_json() -> bool:
    return bool(click.get_current_context().meta.get(_AS_JSON))


def tell(line: str) -> None:
    """Print a line for the person at the terminal, beside the command's own output."""
    # A node goes on when nobody can hear it, as when its output goes to a disk that is full.
    with suppress(OSError):
        click.echo(line, err=True)


def fail(problem: str, exit_code: int = 1) -> NoReturn:
    """End with one line on standard error."""
    click.echo(f"Error: {problem}", err=True)
    sys.exit(exit_code)


def plain_command(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Give a command `--json`, and end it with one line that says what is wrong, instead of a traceback."""

    @_json_option
    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
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

    return run


def in_database(
    function: Callable[Concatenate[Database, Parameters], Awaitable[Result]],
) -> Callable[Parameters, Result]:
    """Open the database, with the current schema, around a function."""

    async def run(url: str, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        await prepare(url, tell)
        async with connected(url, 2) as database:
            return await function(database, *args, **kwargs)

    @functools.wraps(function)
    def opened(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with open_database(load_settings(), tell) as url:
            return asyncio.run(run(url, *args, **kwargs))

    return opened


def database_command(
    command: Callable[Concatenate[Database, Parameters], Awaitable[Result]],
) -> Callable[Parameters, Result]:
    return plain_command(in_database(command))


@asynccontextmanager
async def connected(url: str, connections_max: int = 1) -> AsyncIterator[Database]:
    database = Database(url, connections_max=connections_max)
    try:
        yield database
    finally:
        await database.close()


def show(value: Mapping[str, Any], title: str = "") -> None:
    value = _write("", value)
    if wants_json():
        click.echo(_json(value))
        return
    if title:
        click.echo(title)
    width = max(len(name) for name in value)
    for name, item in value.items():
        click.echo(f"  {name.replace('_', ' '):<{width}}  {_plain(item)}")


def show_all(
    values: Sequence[Mapping[str, Any]],
    *,
    empty: str = "",
    columns: str = "",
    for_people: Mapping[str, Callable[[Any], Any]] | None = None,
) -> None:
    """Print a list of objects; for people as a table, with the columns that fit on a line."""
    values = _write("", values)
    if wants_json():
        click.echo(_json(values))
        return
    if not values:
        click.echo(empty)
        return
    names = columns.split() or list(values[0])
    rows = [[name.replace("_", " ") for name in names]]
    for value in values:
        told = {**value, **{name: write(value[name]) for name, write in (for_people or {}).items()}}
        rows.append([_plain(told[name]) for name in names])
    widths = [max(_width(row[place]) for row in rows) for place in range(len(names))]
    for row in rows:
        cells = (cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _write(name: str, item: Any) -> Any:
    """Write ids by the name under which they are shown, and amounts with four decimals."""
    if isinstance(item, Mapping):
        return {key: _write(key, part) for key, part in item.items()}
    if isinstance(item, list | tuple):
        return [_write(name, part) for part in item]
    if isinstance(item, UUID):
        return write_id(_PREFIXES[name], item)
    return money.write(item) if isinstance(item, Decimal) else item


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


def actor() -> Actor:
    """Return the user at the command line, for the audit log."""
    try:
        return Actor(f"cli:{getpass.getuser()}")
    except (KeyError, OSError):
        return Actor(f"cli:{os.geteuid()}")


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


def choice(kind: type[StrEnum]) -> click.Choice[str]:
    return click.Choice([one.value for one in kind])


class IdType(click.ParamType[UUID]):
    """An id of one kind, such as `acc_…`."""

    def __init__(self, prefix: str, noun: str, hint: str) -> None:
        self.name = f"{prefix}…"
        self._prefix = prefix
        self._problem = f"is not {noun}'s id; {hint}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> UUID:
        identifier = read_id(self._prefix, value)
        if identifier is None:
            self.fail(f"{value!r} {self._problem}", param, ctx)
        return identifier


ACCOUNT_ID: Final = IdType(ids.ACCOUNT, "an account", "`tumira account list` shows them.")


class DayType(click.ParamType[date]):
    name = "day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        try:
            return datetime.strptime(value, "%Y-%m-%d").date()  # noqa: DTZ007 - a day has no time zone
        except ValueError:
            self.fail(f"{value!r} is not a day, such as 2027-01-31.", param, ctx)


class TimeType(click.ParamType[datetime]):
    """A time as ISO 8601 writes it, in a default zone where it names none."""

    def __init__(self, name: str, zone: tzinfo, problem: str) -> None:
        self.name = name
        self._zone = zone
        self._problem = problem

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            at = datetime.fromisoformat(value)
            return (at.replace(tzinfo=self._zone) if at.tzinfo is None else at).astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} {self._problem}", param, ctx)
