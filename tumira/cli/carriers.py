"""Commands for carriers: add, list, show, test and remove.

A carrier's password comes with its URL, from a file or from the terminal, and is never printed, not even in
an error about what was typed. So are the secrets of carriers over HTTP.
"""

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from tumira.carriers import manage as manage_carriers
from tumira.carriers import url as carrier_url
from tumira.carriers.manage import PRIORITY_DEFAULT, PRIORITY_MAX, SIMULATOR
from tumira.carriers.store import HttpAccess
from tumira.cli import http_carriers
from tumira.cli.output import (
    actor,
    database_command,
    in_database,
    plain_command,
    show,
    show_all,
    tell,
    wants_json,
)
from tumira.core.errors import OperatorError
from tumira.delivery.carrier_health import CarrierState, list_carriers
from tumira.delivery.smpp.bind_check import check_bind
from tumira.delivery.store.binds import BindState
from tumira.postgres.pool import Database

PASSWORD_BYTES_MAX: Final = 1024
STANDARD_INPUT: Final = "-"

_URL: Final = re.compile(r"smpps?://.*", re.IGNORECASE | re.DOTALL)


class _Discreet(click.Group):
    """A group whose usage errors do not repeat a URL."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            said = error.format_message()
            if not _URL.search(said):
                raise
            raise click.UsageError(_URL.sub("smpp://***", said), error.ctx) from None


@click.group(cls=_Discreet)
def carrier() -> None:
    """Add, list, try out and remove carriers."""


@carrier.command("add")
@click.argument("name")
@click.argument("url")
@click.option("--countries", help="Such as ZW,ZA; every country when left out.")
@click.option(
    "--priority",
    type=click.IntRange(0, PRIORITY_MAX),
    default=PRIORITY_DEFAULT,
    show_default=True,
    help="The lowest is used first.",
)
@click.option(
    "--password-file",
    metavar="FILE",
    help="Read the password from the first line of FILE, or of standard input if it is -.",
)
@click.option("--profile", metavar="PROFILE", help="A carrier over HTTP: a profile, or a file NAME.toml.")
@click.option("--set", "given", metavar="KEY=VALUE", multiple=True, help="A setting of a carrier over HTTP.")
@click.option(
    "--secrets-file",
    metavar="FILE",
    help="Read secrets, as lines KEY=VALUE, from FILE instead of standard input.",
)
@plain_command
def carrier_add(
    *,
    name: str,
    url: str,
    countries: str | None,
    priority: int,
    password_file: str | None,
    profile: str | None,
    given: Sequence[str],
    secrets_file: str | None,
) -> None:
    """Add a carrier, or change the one of this name; it may be away meanwhile.

    The URL is smpp://user:password@host:2775?window=64&tps=200&bind=transceiver|pair&binds=1&source=Tumira
    &in_doubt=resend|hold&doubt_wait=30&refund=failed,expired,undelivered
    &sender_fallback=0&alphabet=gsm7|latin1|ascii&tls=0, in quotes; what is left out is as in this
    example, and smpps:// is the same as tls=1.

    Other users of this machine can read a command line. Leave the password out of the URL, as in
    smpp://user@host:2775, and it is asked for at the terminal, or give --password-file.

    A carrier over HTTP has the https:// address of its API and --profile; `tumira carrier profiles` lists
    them with their settings and secrets. --set also takes window, tps, source, in_doubt, doubt_wait, refund.
    Secrets are asked for at the terminal, or read as lines KEY=VALUE from standard input.
    """
    listed = None if countries is None else [one.strip().upper() for one in countries.split(",")]
    if profile is None:
        if given or secrets_file is not None:
            raise OperatorError("--set and --secrets-file are for carriers over HTTP: give --profile too.")
        password = _read_password(url, password_file)
        _add(name=name, url=url, countries=listed, priority=priority, password=password)
    elif password_file is not None:
        raise OperatorError("--password-file is for SMPP: give --secrets-file, or secrets on standard input.")
    else:
        access = http_carriers.read_access(url, profile, given, secrets_file)
        _add(name=name, url=url, countries=listed, priority=priority, access=access)


def _read_password(url: str, password_file: str | None) -> str | None:
    """Return the password that is not in the URL; None if it is."""
    if password_file is not None:
        return _read_line(password_file)
    if not carrier_url.lacks_password(url):
        return None
    if not sys.stdin.isatty():
        raise OperatorError(
            "The URL has no password: give --password-file FILE, or --password-file - for standard input."
        )
    return str(click.prompt("Password", hide_input=True, default="", show_default=False, err=True))


def _read_line(password_file: str) -> str:
    try:
        if password_file == STANDARD_INPUT:
            line = sys.stdin.buffer.readline(PASSWORD_BYTES_MAX)
        else:
            with Path(password_file).open("rb") as file:
                line = file.readline(PASSWORD_BYTES_MAX)
        return line.decode().removesuffix("\n").removesuffix("\r")
    except (OSError, ValueError) as error:
        # Neither the error nor the name: one quotes what it read, and the other may be the password itself.
        reason = getattr(error, "strerror", None) or "it is not text"
        raise OperatorError(f"The file of --password-file cannot be read ({reason}).") from None


@in_database
async def _add(
    database: Database,
    *,
    name: str,
    url: str,
    countries: Sequence[str] | None,
    priority: int,
    password: str | None = None,
    access: HttpAccess | None = None,
) -> None:
    simulated = await manage_carriers.list_simulated(database)
    if access is None:
        added = await manage_carriers.add_carrier(
            database, name, url, countries, priority, actor=actor(), password=password
        )
    else:
        added = await manage_carriers.add_http_carrier(
            database, name, access, countries, priority, actor=actor()
        )
    _tell_simulated(simulated, await manage_carriers.list_simulated(database))
    title = "Carrier added." if added else "Carrier changed; the workers follow in a moment."
    show({**await _describe(database, name), "added": added}, title=title)


@carrier.command("list")
@database_command
async def carrier_list(database: Database) -> None:
    """List the carriers, those used first in front, and how each is."""
    states = await list_carriers(database)
    show_all(
        [_carrier(one) for one in states],
        empty="No carriers: `tumira carrier add` adds one.",
    )


@carrier.command("show")
@click.argument("name")
@database_command
async def carrier_show(database: Database, *, name: str) -> None:
    """Show a carrier, and for one over HTTP the address that the provider calls."""
    await manage_carriers.get_carrier(database, name)
    show(await _describe(database, name))


async def _describe(database: Database, name: str) -> Mapping[str, Any]:
    for state in await list_carriers(database):
        if state.carrier.name == name:
            return {**_carrier(state), **await http_carriers.describe(database, state.carrier)}
    return {}


@carrier.command("profiles")
@plain_command
def carrier_profiles() -> None:
    """List the profiles of carriers over HTTP, with their settings and secrets."""
    show_all(http_carriers.list_profiles())


@carrier.command("remove")
@click.argument("name")
@database_command
async def carrier_remove(database: Database, *, name: str) -> None:
    """Take a carrier out of use; its receipts still count when it is added again."""
    simulated = await manage_carriers.list_simulated(database)
    await manage_carriers.remove_carrier(database, name, actor=actor())
    _tell_simulated(simulated, await manage_carriers.list_simulated(database))
    show({"name": name, "removed": True}, title="Carrier removed.")


@carrier.command("test")
@click.argument("name")
@click.option(
    "--to", metavar="NUMBER", help="Send a message to NUMBER, over HTTP only, and wait for its receipt."
)
@click.option("--text", help="The text of that message.")
@click.option("--wait", "wait_s", type=click.FloatRange(0, 3600), default=120, show_default=True)
@database_command
async def carrier_test(
    database: Database, *, name: str, to: str | None, text: str | None, wait_s: float
) -> None:
    """Bind to a carrier from here, ask whether it is there, and unbind; nothing is sent.

    A carrier over HTTP is asked for the credit left. With --to it gets a message, which no account is charged
    for; the command waits for its receipt, at most --wait seconds.
    """
    found = await manage_carriers.get_carrier(database, name)
    if found.http is not None:
        title, shown = await http_carriers.try_carrier(database, found, to, text, wait_s)
        show(shown, title=title)
        return
    if to is not None:
        raise OperatorError("--to is for carriers over HTTP; over SMPP the test binds and sends nothing.")
    tried = await check_bind(found.settings)
    settings = found.settings
    place = {"host": settings.host, "port": settings.port, "tls": settings.tls}
    show({"name": name, **place, **asdict(tried)}, title="The carrier answers.")


def _tell_simulated(before: Collection[str], after: Collection[str]) -> None:
    """Print for which countries the simulator is no longer used, or is used from now on."""
    if taken := [country for country in before if country not in after]:
        tell(
            f"The simulator gets no more messages to {', '.join(taken)}, not even while other carriers are "
            f"away. `tumira carrier remove {SIMULATOR}` removes it and empties its handsets."
        )
    if given := [country for country in after if country not in before]:
        tell(
            f"The simulator is now the only carrier for {', '.join(given)}: messages there, also those that "
            "wait, reach no real phone, and are billed."
        )


def _carrier(state: CarrierState) -> Mapping[str, Any]:
    countries = state.carrier.countries
    return {
        "name": state.carrier.name,
        "url": manage_carriers.write_address(state.carrier),
        "countries": "all" if countries is None and not wants_json() else countries,
        "priority": state.carrier.priority,
        "health": str(state.health),
        "bound": sum(bind.state == BindState.BOUND for bind in state.binds),
        "binds": state.carrier.settings.binds,
        "outstanding": sum(bind.outstanding for bind in state.binds),
        "pace": _pace(state),
        "problem": next((bind.problem for bind in state.binds if bind.problem), None),
    }


def _pace(state: CarrierState) -> int | None:
    """Return the messages a second over all binds; None for no limit, or without a worker."""
    paces = [bind.pace for bind in state.binds]
    known = [pace for pace in paces if pace is not None]
    return sum(known) if known and len(known) == len(paces) else None
