"""Vouchers are issued, listed and voided from the command line."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import pytest

from tests.support.postgres.databases import clone, complete
from tests.support.processes.programs import Cli
from tests.support.processes.service import new_caller
from tumira.core.ids import TOP_UP, AccountId, write_id
from tumira.core.settings.payments import Payments
from tumira.postgres.pool import Database
from tumira.topups.start import start_voucher
from tumira.topups.voucher_pins import Issuer, read_pin

NO_VOUCHER: Final = "vch_" + "0" * 26
KEYS: Final = [
    "voucher_id",
    "tail",
    "amount",
    "state",
    "top_up_id",
    "account_id",
    "note",
    "expires_at",
    "issued_by",
    "created_at",
    "voided_at",
    "voided_by",
    "void_note",
]


@pytest.fixture(scope="module")
def url(server_url: str) -> Iterator[str]:
    with clone(server_url) as url:
        yield url


@pytest.fixture(scope="module")
def cli(url: str) -> Cli:
    return Cli(url)


async def redeem(url: str, account_id: AccountId, code: str) -> str:
    database = Database(url, connections_max=1)
    try:
        top_up_id = await start_voucher(database, Payments(), account_id, Issuer.OWN, code)
    finally:
        await database.close()
    return write_id(TOP_UP, top_up_id)


def test_vouchers_are_issued_used_and_made_void(url: str, cli: Cli) -> None:
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
    assert [list(one) for one in listed] == [KEYS] * 3
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


def test_codes_are_shown_once_to_people_too(cli: Cli) -> None:
    said = cli.text("voucher", "issue", "--amount", "5").splitlines()
    assert said[0] == "Copy the codes now: they are not shown again."
    assert said[1].split() == ["voucher", "id", "code", "amount", "expires", "at"]
    voucher_id, code, amount, expires = said[2].split()
    assert read_pin(Issuer.OWN, code) is not None
    assert (amount, expires) == ("5.0000", "-")
    told = cli.text("voucher", "void", voucher_id, "--note", "Printed badly")
    assert told.startswith("The voucher is void.\n")


def test_what_cannot_be_done_is_said_in_one_line(cli: Cli) -> None:
    assert cli.all_refused(
        ["voucher", "issue", "--amount", "4.99"],
        ["voucher", "issue", "--amount", "7.005"],
        ["voucher", "issue", "--amount", "10", "--expires", "2020-01-31"],
        ["voucher", "void", NO_VOUCHER, "--note", "Lost"],
        ["voucher", "void", NO_VOUCHER, "--note", " "],
    ) == [
        "Error: Give an amount from US$5 to US$10,000.",
        "Error: Give an amount in whole cents, like 12.50.",
        "Error: Give a day that is not over.",
        "Error: There is no such voucher; `tumira voucher list` shows them.",
        "Error: Say why, as in --note 'Sent to the wrong shop'.",
    ]
    assert "is not text" in cli.refused("voucher", "issue", "--amount", "5", "--note", b"\xff")
    wrong = cli.misused(
        ["voucher", "issue", "--amount", "10", "--count", "1001"],
        ["voucher", "issue", "--amount", "10", "--expires", "tomorrow"],
        ["voucher", "void", "vch_1", "--note", "Lost"],
        ["voucher", "void", NO_VOUCHER],
        ["voucher", "issue"],
    )
    assert "1001 is not in the range 1<=x<=1000" in wrong[0]
    assert "is not a day, such as 2027-01-31." in wrong[1]
    assert "is not a voucher's id; `tumira voucher list` shows them." in wrong[2]
    assert "Missing option '--note'" in wrong[3]
    assert "Missing option '--amount'" in wrong[4]
