"""How does the operator add, watch, try out and remove carriers?

A carrier's password comes in with its URL and never goes out again, not even in a complaint about what was
typed.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from tumira.actions import operate_carriers
from tumira.actions.operate_carriers import PRIORITY_DEFAULT, PRIORITY_MAX, CarrierState
from tumira.carriers.smpp.pdu import Command
from tumira.carriers.smpp.session import Address, BindRefusedError, connect
from tumira.cli.output import json_option, show, show_all, with_database
from tumira.errors import Trouble
from tumira.rules import carrier_urls
from tumira.rules.answers import Status
from tumira.rules.carrier_urls import CarrierSettings
from tumira.rules.receipts import Receipt
from tumira.store.carriers import BindState
from tumira.store.database import Database

_URL: Final = re.compile(r"smpps?://.*", re.IGNORECASE | re.DOTALL)

_ADVICE: Final[Mapping[int, str]] = {
    Status.RINVPASWD: "the password is wrong",
    Status.RINVSYSID: "it does not know this user",
    Status.RBINDFAIL: "it does not let this user in; the user or the password may be wrong",
    Status.RALYBND: "it takes no further bind beside those that are open; ask it how many you may have",
}


class _Discreet(click.Group):
    """Commands whose misuse is explained without repeating a URL."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was typed."""
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
@json_option
@with_database
async def carrier_add(
    database: Database, *, name: str, url: str, countries: str | None, priority: int, as_json: bool
) -> None:
    """Add a carrier, or change the one of this name; it may be away meanwhile.

    The URL is smpp://user:password@host:2775?window=64&tps=200&bind=transceiver|pair&binds=1&source=Tumira
    &in_doubt=resend|hold&doubt_wait=30&refund=failed,expired,undelivered&tls=0, in quotes; what is left out
    is as in this example, and smpps:// is the same as tls=1.
    """
    listed = None if countries is None else [one.strip().upper() for one in countries.split(",")]
    added = await operate_carriers.add_carrier(database, name, url, listed, priority)
    states = await operate_carriers.list_carriers(database)
    shown = next((_carrier(one, as_json=as_json) for one in states if one.carrier.name == name), {})
    title = "Carrier added." if added else "Carrier changed; the workers follow in a moment."
    show({**shown, "added": added}, as_json=as_json, title=title)


@carrier.command("list")
@json_option
@with_database
async def carrier_list(database: Database, *, as_json: bool) -> None:
    """List the carriers, those used first in front, and how each is."""
    states = await operate_carriers.list_carriers(database)
    show_all(
        [_carrier(one, as_json=as_json) for one in states],
        as_json=as_json,
        empty="No carriers: `tumira carrier add` adds one.",
    )


@carrier.command("remove")
@click.argument("name")
@json_option
@with_database
async def carrier_remove(database: Database, *, name: str, as_json: bool) -> None:
    """Take a carrier out of use; its receipts still count when it is added again."""
    await operate_carriers.remove_carrier(database, name)
    show({"name": name, "removed": True}, as_json=as_json, title="Carrier removed.")


@carrier.command("test")
@click.argument("name")
@json_option
@with_database
async def carrier_test(database: Database, *, name: str, as_json: bool) -> None:
    """Bind to a carrier from here, ask whether it is there, and unbind; nothing is sent."""
    found = await operate_carriers.get_carrier(database, name)
    tried = await _try_out(found.settings)
    show({"name": name, **tried}, as_json=as_json, title="The carrier answers.")


def _carrier(state: CarrierState, *, as_json: bool) -> Mapping[str, Any]:
    countries = state.carrier.countries
    return {
        "name": state.carrier.name,
        "url": carrier_urls.write(state.carrier.settings),
        "countries": "all" if countries is None and not as_json else countries,
        "priority": state.carrier.priority,
        "health": str(state.health),
        "bound": sum(bind.state == BindState.BOUND for bind in state.binds),
        "binds": state.carrier.settings.binds,
        "outstanding": sum(bind.outstanding for bind in state.binds),
        "pace": _pace(state),
        "problem": next((bind.problem for bind in state.binds if bind.problem), None),
    }


def _pace(state: CarrierState) -> int | None:
    """Return the messages a second over all binds; None for no limit, or nobody there to keep one."""
    paces = [bind.pace for bind in state.binds]
    known = [pace for pace in paces if pace is not None]
    return sum(known) if known and len(known) == len(paces) else None


class _Deaf:
    """Hears a session and does nothing.

    A receipt that comes meanwhile is not acknowledged, so the carrier delivers it again, to a worker.
    """

    def answered(self, tag: object, status: int, carrier_ref: str) -> None: ...

    def unanswered(self, tag: object) -> None: ...

    def received(self, receipt: Receipt, token: object) -> None: ...

    def settled(self) -> None: ...

    def ended(self, unanswered: Sequence[object], problem: str) -> None: ...


async def _try_out(settings: CarrierSettings) -> Mapping[str, Any]:
    """Bind, ask, unbind, and say how long each took."""
    address = Address(settings.host, settings.port, settings.tls, settings.system_id, settings.password)
    command = Command.BIND_TRANSMITTER if settings.bind_mode == "pair" else Command.BIND_TRANSCEIVER
    clock: Callable[[], float] = asyncio.get_running_loop().time
    began = clock()
    try:
        session = await connect(address, command, _Deaf())
        bind_s = clock() - began
        try:
            enquire_s = await session.enquire()
        finally:
            await session.close(0)
    except BindRefusedError as error:
        advice = _ADVICE.get(error.status, "ask the carrier what that means")
        raise Trouble(f"{_place(settings)} refuses the bind with {error.words}: {advice}.") from None
    except OSError as error:
        raise Trouble(_explain(error, settings)) from None
    return {
        "host": settings.host,
        "port": settings.port,
        "tls": settings.tls,
        "system_id": session.peer_system_id,
        "bind_ms": round(bind_s * 1000, 1),
        "enquire_link_ms": round(enquire_s * 1000, 1),
    }


def _explain(error: OSError, settings: CarrierSettings) -> str:
    place = _place(settings)
    match error:
        case ssl.SSLCertVerificationError():
            return f"The certificate of {place} is not trusted: {error.verify_message}."
        case ssl.SSLError():
            return (
                f"{place} does not speak our TLS ({error.reason}); without TLS, write smpp:// and no tls=1."
            )
        case socket.gaierror():
            return f"The host {settings.host} is not known ({error.strerror}); check the URL."
        case ConnectionRefusedError():
            return f"Nobody listens on {place}; check host and port, and that the carrier is up."
        case TimeoutError():
            return f"{place} did not answer in time; check host and port, and that it expects this address."
        case _:
            reason = " ".join(str(error).split()) or type(error).__name__
            hint = (
                "does not want TLS, write smpp:// and no tls=1"
                if settings.tls
                else "wants TLS, write smpps://"
            )
            return f"The line to {place} broke ({reason}); where the carrier {hint}."


def _place(settings: CarrierSettings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{host}:{settings.port}"
