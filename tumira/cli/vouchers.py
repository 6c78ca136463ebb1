"""The `tumira voucher` commands."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from decimal import Decimal
from typing import Any, Final

import click

from tumira.cli.output import AmountType, DayType, IdType, actor, database_command, show, show_all, wants_json
from tumira.core.ids import VOUCHER, VoucherId
from tumira.postgres.pool import Database
from tumira.topups import vouchers
from tumira.topups.issue_vouchers import COUNT_MAX, Issued, issue_vouchers, void_voucher
from tumira.topups.vouchers import Voucher

LIST_MAX: Final = 10_000
VOUCHER_ID: Final = IdType(VOUCHER, "a voucher", "`tumira voucher list` shows them.")


@click.group()
def voucher() -> None:
    """Issue, list and void vouchers with which customers top up."""


@voucher.command("issue")
@click.option("--amount", type=AmountType(), required=True, help="What each is worth, USD; at least 5.")
@click.option("--count", type=click.IntRange(1, COUNT_MAX), default=1, show_default=True, help="How many.")
@click.option("--note", default="", help="Its purpose; customers never see it.")
@click.option(
    "--expires",
    "last_day",
    type=DayType(),
    help="The last valid day, like 2027-01-31; unlimited by default.",
)
@database_command
async def voucher_issue(
    database: Database, *, amount: Decimal, count: int, note: str, last_day: date | None
) -> None:
    """Issue vouchers; their codes are shown once."""
    issued = await issue_vouchers(database, amount, count, note=note, last_day=last_day, actor=actor().name)
    if not wants_json():
        click.echo("Copy the codes now: they are not shown again.")
    show_all([_with_id(one) for one in issued])


@voucher.command("list")
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=1_000, show_default=True)
@database_command
async def voucher_list(database: Database, *, limit: int) -> None:
    """List vouchers, newest first, with the last characters of their codes."""
    async with database.connection() as connection:
        found = await vouchers.list_latest(connection, limit)
    show_all(
        [_with_id(one) for one in found],
        empty="No vouchers yet: `tumira voucher issue` makes some.",
        columns="voucher_id tail amount state top_up_id note expires_at",
    )


@voucher.command("void")
@click.argument("voucher_id", type=VOUCHER_ID)
@click.option("--note", required=True, help="Why.")
@database_command
async def voucher_void(database: Database, *, voucher_id: VoucherId, note: str) -> None:
    """Void an unused voucher."""
    found = await void_voucher(database, voucher_id, note=note, actor=actor().name)
    show(_with_id(found), title="The voucher is void.")


def _with_id(one: Voucher | Issued) -> Mapping[str, Any]:
    values = asdict(one)
    return {"voucher_id": values.pop("id"), **values}
