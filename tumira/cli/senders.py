"""Commands for sender names: the requests of customers, and the operator's decisions."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from tumira.cli.output import ACCOUNT_ID, IdType, actor, database_command, show, show_all, wants_json
from tumira.core.ids import SENDER_NAME, AccountId, SenderNameId
from tumira.postgres.pool import Database
from tumira.sender_names import manage, store
from tumira.sender_names.places import Place
from tumira.sender_names.store import SenderName

NAME_ID: Final = IdType(SENDER_NAME, "a sender name", "`tumira sender list` shows them.")
LISTED_MAX: Final = 1_000

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def sender() -> None:
    """Grant, refuse and revoke the sender names that customers ask for."""


@sender.command("list")
@click.option("--account", "account_id", type=ACCOUNT_ID, help="Only this account's.")
@click.option("--waiting", is_flag=True, help="Only those that wait for a decision.")
@click.option("--limit", type=click.IntRange(1, LISTED_MAX), default=100, show_default=True)
@database_command
async def sender_list(database: Database, *, account_id: AccountId | None, waiting: bool, limit: int) -> None:
    """List sender names with their state in each place, the newest first."""
    async with database.connection() as connection:
        if account_id is not None:
            names = await store.list_of_account(connection, account_id)
        elif waiting:
            names = await store.list_waiting(connection, limit)
        else:
            names = await store.list_before(connection, limit)
    show_all(
        [_write(one) for one in names if one.is_waiting or not waiting],
        empty="No names yet: customers ask for them in the dashboard.",
        columns="sender_name_id account_id name places note",
        for_people={"places": _write_places},
    )


def _decision(command: Command) -> Command:
    """Give a command the name and the place that it decides about."""
    for decorate in (
        click.argument("name_id", type=NAME_ID),
        click.option("--country", required=True, help="Such as ZW."),
        click.option(
            "--network", default="", help="One network of the country, such as econet; all without it."
        ),
    ):
        command = decorate(command)
    return command


@sender.command("grant")
@_decision
@click.option("--note", default="", help="For the customer.")
@click.option("--use", "use_it", is_flag=True, help="Use it instead of the name in use there.")
@click.option(
    "--look-alike-reason", default="", help="How you know that a name that looks like another is theirs."
)
@database_command
async def sender_grant(
    database: Database,
    *,
    name_id: SenderNameId,
    country: str,
    network: str,
    note: str,
    use_it: bool,
    look_alike_reason: str,
) -> None:
    """Grant a name in a country or network; it is used from the next message on."""
    granted = await manage.grant(
        database,
        name_id,
        Place(country, network),
        note=note,
        actor=actor(),
        use=use_it,
        look_alike_reason=look_alike_reason,
    )
    _show(granted, "Name granted.")


@sender.command("refuse")
@_decision
@click.option("--note", required=True, help="Why; the customer can read it.")
@database_command
async def sender_refuse(
    database: Database, *, name_id: SenderNameId, country: str, network: str, note: str
) -> None:
    """Refuse a name in a country or network."""
    refused = await manage.refuse(database, name_id, Place(country, network), note=note, actor=actor())
    _show(refused, "Name refused.")


@sender.command("revoke")
@_decision
@click.option("--note", required=True, help="Why; the customer can read it.")
@database_command
async def sender_revoke(
    database: Database, *, name_id: SenderNameId, country: str, network: str, note: str
) -> None:
    """Revoke a granted name; the next message goes out under the carrier's own sender."""
    revoked = await manage.revoke(database, name_id, Place(country, network), note=note, actor=actor())
    _show(revoked, "Name revoked.")


@sender.command("use")
@_decision
@database_command
async def sender_use(database: Database, *, name_id: SenderNameId, country: str, network: str) -> None:
    """Use a granted name in a country or network, instead of another name of the account."""
    used = await manage.use(database, name_id, Place(country, network), actor=actor())
    _show(used, "Name in use.")


def _show(one: SenderName, title: str) -> None:
    written = _write(one)
    show(written if wants_json() else {**written, "places": _write_places(written["places"])}, title)


def _write(one: SenderName) -> Mapping[str, Any]:
    return {
        "sender_name_id": one.id,
        "account_id": one.account_id,
        "business": one.business,
        "name": one.name,
        "note": one.note,
        "paper": one.paper_type,
        "created_at": one.created_at,
        "places": [
            {
                "country": grant.place.country,
                "network": grant.place.network or None,
                "state": grant.state.value,
                "in_use": grant.in_use,
                "note": grant.note,
                "changed_at": grant.changed_at,
            }
            for grant in one.grants
        ],
    }


def _write_places(places: list[Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{Place(one['country'], one['network'] or '')} {one['state']}"
        + (" (in use)" if one["in_use"] else "")
        for one in places
    )
