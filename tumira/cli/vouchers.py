"""The `tumira voucher` commands."""

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import click

from tumira.cli.output import AmountType, actor, json_option, show, show_all, with_database
from tumira.core import money
from tumira.core.ids import ACCOUNT, TOP_UP, VOUCHER, VoucherId, read_id, write_id
from tumira.postgres.pool import Database
from tumira.topups import vouchers
from tumira.topups.issue_vouchers import COUNT_MAX, issue_vouchers, void_voucher
from tumira.topups.vouchers import Voucher

LIST_MAX: Final = 10_000


class VoucherIdType(click.ParamType[VoucherId]):
    name = "vch_…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> VoucherId:
        identifier = read_id(VOUCHER, value)
        if identifier is None:
            self.fail(f"{value!r} is not a voucher's id; `tumira voucher list` shows them.", param, ctx)
        return VoucherId(identifier)


class DayType(click.ParamType[date]):
    name = "day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        try:
            return datetime.strptime(value, "%Y-%m-%d").date()  # noqa: DTZ007 - a day has no time zone
        except ValueError:
            self.fail(f"{value!r} is not a day, such as 2027-01-31.", param, ctx)


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
@json_option
@with_database
async def voucher_issue(
    database: Database, *, amount: Decimal, count: int, note: str, last_day: date | None, as_json: bool
) -> None:
    """Issue vouchers; their codes are shown once."""
    issued = await issue_vouchers(database, amount, count, note=note, last_day=last_day, actor=actor())
    rows = [
        {
            "voucher_id": write_id(VOUCHER, one.id),
            "code": one.code,
            "amount": money.write(one.amount),
            "expires_at": one.expires_at,
        }
        for one in issued
    ]
    if not as_json:
        click.echo("Copy the codes now: they are not shown again.")
    show_all(rows, as_json=as_json, empty="")


@voucher.command("list")
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=1_000, show_default=True)
@json_option
@with_database
async def voucher_list(database: Database, *, limit: int, as_json: bool) -> None:
    """List vouchers, newest first, with the last characters of their codes."""
    async with database.connection() as connection:
        found = await vouchers.list_latest(connection, limit)
    show_all(
        [_voucher(one) for one in found],
        as_json=as_json,
        empty="No vouchers yet: `tumira voucher issue` makes some.",
        left_out=("issued_by", "created_at", "account_id", "voided_at", "voided_by", "void_note"),
    )


@voucher.command("void")
@click.argument("voucher_id", type=VoucherIdType())
@click.option("--note", required=True, help="Why.")
@json_option
@with_database
async def voucher_void(database: Database, *, voucher_id: VoucherId, note: str, as_json: bool) -> None:
    """Void an unused voucher."""
    found = await void_voucher(database, voucher_id, note=note, actor=actor())
    show(_voucher(found), as_json=as_json, title="The voucher is void.")


def _voucher(one: Voucher) -> Mapping[str, Any]:
    return {
        "voucher_id": write_id(VOUCHER, one.id),
        "tail": one.tail,
        "amount": money.write(one.amount),
        "state": one.state.value,
        "top_up_id": None if one.top_up_id is None else write_id(TOP_UP, one.top_up_id),
        "account_id": None if one.account_id is None else write_id(ACCOUNT, one.account_id),
        "note": one.note,
        "expires_at": one.expires_at,
        "issued_by": one.issued_by,
        "created_at": one.created_at,
        "voided_at": one.voided_at,
        "voided_by": one.voided_by,
        "void_note": one.void_note,
    }
