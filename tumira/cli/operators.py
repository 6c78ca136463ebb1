"""Commands for operators' access to the console."""

from collections.abc import Mapping
from typing import Any, Final

import click

from tumira.cli.output import actor, choice, database_command, load_settings, show, show_all, wants_json
from tumira.identity import operators as operator_access
from tumira.identity.store import operators
from tumira.identity.store.operators import Operator, Role
from tumira.postgres.pool import Database

OPERATORS_MAX: Final = 1_000

phone_option = click.option("--phone", required=True, help="The number to sign in with, like +2637712xxxxx.")


@click.group()
def operator() -> None:
    """Grant and revoke access to the operator's console."""


@operator.command("create")
@phone_option
@click.option("--name", required=True, help="Who it is.")
@click.option(
    "--role",
    type=choice(Role),
    default=Role.ADMIN.value,
    show_default=True,
    help="A viewer looks at everything and changes nothing.",
)
@database_command
async def operator_create(database: Database, *, phone: str, name: str, role: str) -> None:
    """Add an operator and print their one-time password, which is kept nowhere."""
    password = await operator_access.create(database, phone=phone, name=name, role=Role(role), actor=actor())
    _show_password(await _find(database, phone), password, "Operator added.")


@operator.command("list")
@database_command
async def operator_list(database: Database) -> None:
    """List operators, also removed ones."""
    async with database.connection() as connection:
        found = await operators.list_all(connection, OPERATORS_MAX)
    show_all(
        [_listed(one) for one in found],
        empty="No operators yet: `tumira operator create` adds one.",
        columns="phone name role second_factor seen_at created_at removed_at",
    )


@operator.command("reset")
@phone_option
@database_command
async def operator_reset(database: Database, *, phone: str) -> None:
    """Give an operator a new one-time password; their sessions and second factor end."""
    password = await operator_access.reset(database, phone=phone, actor=actor())
    _show_password(await _find(database, phone), password, "Password reset.")


@operator.command("remove")
@phone_option
@database_command
async def operator_remove(database: Database, *, phone: str) -> None:
    """Revoke an operator's access; their sessions end immediately."""
    removed = await _find(database, phone)
    await operator_access.remove(database, phone=phone, actor=actor())
    show({**_operator(removed), "removed": True}, title="Operator removed.")


async def _find(database: Database, phone: str) -> Operator:
    async with database.connection() as connection:
        return await operator_access.get_operator(connection, phone)


def _show_password(found: Operator, password: str, title: str) -> None:
    show({**_operator(found), "password": password}, title=title)
    if not wants_json():
        hours = int(operator_access.ONE_TIME_FOR.total_seconds()) // 3600
        click.echo(
            f"The password is valid once, within {hours} hours, at {load_settings().public_url}/operator: it "
            "leads to a password of their own and a second factor."
        )


def _operator(one: Operator) -> Mapping[str, Any]:
    return {
        "operator_id": one.id,
        "phone": one.phone,
        "name": one.name,
        "role": one.role,
    }


def _listed(one: Operator) -> Mapping[str, Any]:
    return {
        **_operator(one),
        "second_factor": one.one_time_until is None and one.has_secret,
        "seen_at": one.seen_at,
        "created_at": one.created_at,
        "removed_at": one.removed_at,
    }
