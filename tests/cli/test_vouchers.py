"""Vouchers are issued, listed and voided from the command line."""

from decimal import Decimal
from typing import Final

from tests.support.cli.commands import QuickCli
from tests.support.postgres.databases import complete
from tests.support.processes.service import new_caller
from tumira.core.ids import TOP_UP, AccountId, write_id
from tumira.core.settings.payments import Payments
from tumira.postgres.pool import Database
from tumira.topups.start import start_voucher
from tumira.topups.voucher_pins import Issuer, read_pin

NO_VOUCHER: Final = "vch_" + "0" * 26
KEYS: Final = (
    "voucher_id tail amount state top_up_id account_id note expires_at issued_by created_at "
    "voided_at voided_by void_note"
)


async def redeem(url: str, account_id: AccountId, code: str) -> str:
    database = Database(url, connections_max=1)
    try:
        top_up_id = await start_voucher(database, Payments(), account_id, Issuer.OWN, code)
    finally:
        await database.close()
    return write_id(TOP_UP, top_up_id)


def test_vouchers_are_issued_used_and_made_void(url: str, cli: QuickCli) -> None:
    assert cli.json("voucher", "list") == []
    assert "tumira voucher issue" in cli.text("voucher", "list")
    words = ("--amount", "10", "--count", "3", "--note", "Shop in Harare", "--expires", "2099-01-31")
    issued = cli.json("voucher", "issue", *words)
    assert [list(one) for one in issued] == [["voucher_id", "code", "amount", "expires_at"]] * 3
    assert {(one["amount"], one["expires_at"]) for one in issued} == {
        ("10.0000", "2099-01-31T22:00:00.000+00:00")
    }
    assert all(read_pin(Issuer.OWN, one["code"]) for one in issued)

    caller = complete(new_caller(url, balance="0"))
    top_up_id = complete(redeem(url, caller.id, issued[1]["code"]))
    void = cli.json("voucher", "void", issued[2]["voucher_id"], "--note", "Sent to the wrong shop")
    assert (void["state"], void["void_note"]) == ("void", "Sent to the wrong shop")
    assert void["voided_by"].startswith("cli:")

    listed = cli.json("voucher", "list")
    assert {" ".join(one) for one in listed} == {KEYS}
    assert [one["voucher_id"] for one in reversed(listed)] == [one["voucher_id"] for one in issued]
    assert [one["state"] for one in reversed(listed)] == ["unused", "used", "void"]
    assert (listed[1]["top_up_id"], listed[1]["account_id"]) == (top_up_id, caller.account_id)
    assert [one["tail"] for one in listed] == [one["code"][-4:] for one in reversed(issued)]
    assert {one["note"] for one in listed} == {"Shop in Harare"}
    shown = cli.text("voucher", "list")
    assert top_up_id in shown
    assert not [one for one in issued if one["code"] in shown + str(listed)]
    assert Decimal(cli.json("account", "show", caller.account_id)["balance"]) == 10
    assert cli.json("voucher", "list", "--limit", "1") == listed[:1]


def test_codes_are_shown_once_to_people_too(cli: QuickCli) -> None:
    said = cli.text("voucher", "issue", "--amount", "5").splitlines()
    assert said[0] == "Copy the codes now: they are not shown again."
    assert said[1].split() == ["voucher", "id", "code", "amount", "expires", "at"]
    voucher_id, code, amount, expires = said[2].split()
    assert read_pin(Issuer.OWN, code) is not None
    assert (amount, expires) == ("5.0000", "-")
    told = cli.text("voucher", "void", voucher_id, "--note", "Printed badly")
    assert told.startswith("The voucher is void.\n")


def test_what_cannot_be_done_is_said_in_one_line(cli: QuickCli) -> None:
    issue = ["voucher", "issue", "--amount"]
    cli.check_refused(
        ("Enter an amount from US$5 to US$10,000.", [*issue, "4.99"]),
        ("Enter an amount in whole cents, such as 12.50.", [*issue, "7.005"]),
        ("Choose today or a later day.", [*issue, "10", "--expires", "2020-01-31"]),
        ("characters that cannot be shown", [*issue, "5", "--note", b"\xff"]),
        (
            "There is no such voucher.",
            ["voucher", "void", NO_VOUCHER, "--note", "Lost"],
        ),
        ("Enter a reason, such as", ["voucher", "void", NO_VOUCHER, "--note", " "]),
    )
    cli.check_misused(
        ("1001 is not in the range 1<=x<=1000", [*issue, "10", "--count", "1001"]),
        ("is not a day, such as 2027-01-31.", [*issue, "10", "--expires", "tomorrow"]),
        ("is not a voucher's id; `tumira voucher list`", ["voucher", "void", "vch_1", "--note", "Lost"]),
        ("Missing option '--note'", ["voucher", "void", NO_VOUCHER]),
        ("Missing option '--amount'", ["voucher", "issue"]),
    )
