"""The commands `tumira erase` and `tumira export`: a recipient's number, erased or shown on request."""

import time
from collections.abc import Mapping
from typing import Any, Final

import click

from tumira.cli.output import actor, database_command, show, tell, wants_json
from tumira.core.ids import ACCOUNT, write_id
from tumira.operations import export_number
from tumira.operations.erasure import erase as erase_number
from tumira.operations.erasure.requests import Erasure
from tumira.operations.erasure.steps import OTHERS, Owners, find_owners
from tumira.postgres.pool import Database

PROGRESS_EVERY_S: Final = 2.0


class _Progress:
    def __init__(self) -> None:
        self._told_at = time.monotonic()

    def tell(self, erasure: Erasure) -> None:
        if time.monotonic() - self._told_at >= PROGRESS_EVERY_S:
            self._told_at = time.monotonic()
            tell(f"Looking through {erasure.stage}: {erasure.messages} messages erased so far.")


@click.command()
@click.option("--number", "text", required=True, help="Whose number, with its country code.")
@click.option("--note", default="", help="Who asked, and when; without the number itself.")
@click.option("--dry-run", is_flag=True, help="Only say what would be erased.")
@database_command
async def erase(database: Database, *, text: str, note: str, dry_run: bool) -> None:
    """Forget a recipient's number, in the messages of all accounts and wherever else it stands.

    Ids, amounts, countries, statuses and times stay. What is under way ends first: the worker erases it then.
    """
    subject = await erase_number.read_number(database, text)
    async with database.connection() as connection:
        owners = await find_owners(connection, subject.number)
    if dry_run:
        erasure = await erase_number.rehearse(database, subject)
    else:
        erasure = await erase_number.erase_number(
            database, subject, note=note, actor=actor(), tell=_Progress().tell
        )
    show(_shown(erasure, owners, dry_run=dry_run), title=_title(erasure, dry_run=dry_run))
    if not wants_json():
        for line in _left(erasure, owners, dry_run=dry_run):
            click.echo(line)


@click.command()
@click.option("--number", "text", required=True, help="Whose number, with its country code.")
@database_command
async def export(database: Database, *, text: str) -> None:
    """Show what is stored about a recipient's number, in the data of all accounts.

    Without --json it only counts. The operators' history records the export, with the last digits.
    """
    subject = await erase_number.read_number(database, text)
    found = await export_number.export_number(database, subject, actor())
    async with database.connection() as connection:
        owners = await find_owners(connection, subject.number)
    found = {**found, "account_id": owners.account_id}
    if wants_json():
        show(found)
        return
    counts = {name: len(rows) for name, rows in found.items() if isinstance(rows, list)}
    show(counts, title=f"Stored about {subject.number}:")
    click.echo("The data itself: repeat the command with --json.")


def _shown(erasure: Erasure, owners: Owners, *, dry_run: bool) -> Mapping[str, Any]:
    return {
        "request_id": None if dry_run else erasure.id,
        "dry_run": dry_run,
        "messages": erasure.messages,
        **{name: erasure.others.get(name, 0) for name in OTHERS},
        "accounts": len(erasure.accounts),
        "waiting": erasure.waiting,
        "finished": erasure.finished_at is not None,
        "account_id": owners.account_id,
    }


def _title(erasure: Erasure, *, dry_run: bool) -> str:
    if dry_run:
        return "Nothing was erased. This is what would be:"
    if erasure.finished_at is None:
        return "Erased, but for what is still under way."
    return "Erased."


def _left(erasure: Erasure, owners: Owners, *, dry_run: bool) -> list[str]:
    left = []
    if erasure.waiting:
        needs = "needs" if erasure.waiting == 1 else "need"
        count = (
            f"{erasure.waiting} {'message or row' if erasure.waiting == 1 else 'messages or rows'} of a file"
        )
        when = "would erase" if dry_run else "erases"
        left.append(f"{count} still {needs} the number; a worker {when} it as soon as that is over.")
    if owners.account_id is not None:
        left.append(
            f"Account {write_id(ACCOUNT, owners.account_id)} signs in with this number and keeps it: its "
            "owner closes the account in the dashboard, under Settings."
        )
    if owners.is_operator:
        left.append("An operator signs in with this number and keeps it: `tumira operator remove` ends that.")
    return left
