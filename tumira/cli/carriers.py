"""How does the operator add, watch, try out and remove carriers?

A carrier's password comes in with its URL and never goes out again, not even in a complaint about what was
typed.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import click

from tumira.actions import operate_carriers
from tumira.actions.operate_carriers import PRIORITY_DEFAULT, PRIORITY_MAX, CarrierState
from tumira.carriers.trial import try_out
from tumira.cli.output import actor, json_option, show, show_all, with_database
from tumira.rules import carrier_urls
from tumira.store.carriers import BindState
from tumira.store.changes import Actor
from tumira.store.database import Database

_URL: Final = re.compile(r"smpps?://.*", re.IGNORECASE | re.DOTALL)


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
    added = await operate_carriers.add_carrier(database, name, url, listed, priority, actor=Actor(actor()))
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
    await operate_carriers.remove_carrier(database, name, actor=Actor(actor()))
    show({"name": name, "removed": True}, as_json=as_json, title="Carrier removed.")


@carrier.command("test")
@click.argument("name")
@json_option
@with_database
async def carrier_test(database: Database, *, name: str, as_json: bool) -> None:
    """Bind to a carrier from here, ask whether it is there, and unbind; nothing is sent."""
    found = await operate_carriers.get_carrier(database, name)
    tried = await try_out(found.settings)
    settings = found.settings
    place = {"host": settings.host, "port": settings.port, "tls": settings.tls}
    show({"name": name, **place, **asdict(tried)}, as_json=as_json, title="The carrier answers.")


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
