"""Statements, invoices and tax rates from the command line."""

import csv
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.cli.commands import QuickCli
from tests.support.papers import pay, read_pdf
from tests.support.postgres.databases import complete
from tests.support.processes.service import Caller, new_caller, run_on
from tumira.papers.content import write_month
from tumira.papers.statements import month_of

NOBODY: Final = "acc_" + "0" * 26


@pytest.fixture
def cli(url: str) -> QuickCli:
    return QuickCli(url, seller_name="Sanganai", seller_tax_number="4", seller_country="ZA")


@pytest.fixture
def caller(url: str) -> Caller:
    return complete(new_caller(url, "1"))


def answer(cli: QuickCli, *words: str) -> Any:
    done = cli.run(*words, "--json")
    assert (done.returncode, done.stderr) == (0, ""), done
    return json.loads(done.stdout)


def test_a_statement_is_shown_and_written_to_files(
    cli: QuickCli, url: str, caller: Caller, tmp_path: Path
) -> None:
    run_on(url, pay, caller, Decimal("12.5"))
    month = write_month(month_of(datetime.now(UTC)))
    files = {"--pdf": tmp_path / "a.pdf", "--csv": tmp_path / "a.csv"}
    words = [str(word) for pair in files.items() for word in pair]
    shown = answer(cli, "statement", "--account", caller.account_id, "--month", month, *words)
    assert shown == {
        "account_id": caller.account_id,
        "month": month,
        "opening": "0.0000",
        "top_ups": "12.5000",
        "adjustments": "1.0000",
        "closing": "13.5000",
        "movements": 2,
        "is_final": False,
    }
    assert "Closing balance US$13.50" in " ".join(read_pdf(files["--pdf"].read_bytes()).split())
    with files["--csv"].open(newline="") as file:
        assert [row["balance_after_usd"] for row in csv.DictReader(file)][-1] == "13.5000"
    for_people = cli.run("statement", "--account", caller.account_id, "--month", month)
    assert "closing" in for_people.stdout
    cli.check_refused(
        ("is not a month", ["statement", "--account", caller.account_id, "--month", "2026-13"]),
        ("was not open in this month", ["statement", "--account", caller.account_id, "--month", "2001-01"]),
        ("There is no such account", ["statement", "--account", NOBODY, "--month", month]),
    )


def test_papers_are_listed_and_shown(cli: QuickCli, url: str, caller: Caller, tmp_path: Path) -> None:
    run_on(url, pay, caller, Decimal("11.5"))
    (listed,) = answer(cli, "invoice", "list", "--account", caller.account_id)
    assert (listed["heading"], listed["total"], listed["tax"]) == ("Tax invoice", "11.5000", "1.5000")
    assert listed["number"] in [one["number"] for one in answer(cli, "invoice", "list")]
    file = tmp_path / "paper.pdf"
    shown = answer(cli, "invoice", "show", listed["number"], "--pdf", str(file))
    assert (shown["tax_rate"], shown["seller"], shown["buyer"]) == ("15", "Sanganai", "Test")
    assert listed["number"] in read_pdf(file.read_bytes())
    cli.check_refused(
        ("There is no paper INV-999999", ["invoice", "show", "INV-999999"]),
        ("There is no paper x", ["invoice", "show", "x"]),
    )


def test_tax_rates_are_set_listed_and_removed(cli: QuickCli) -> None:
    made = answer(cli, "tax", "set", "ZW", "15", "--from", "2030-01-01", "--heading", "Fiscal tax invoice")
    assert made["rate"] == "15"
    assert made["heading"] == "Fiscal tax invoice"
    assert [(one["from"], one["rate"]) for one in answer(cli, "tax", "list") if one["country"] == "ZW"] == [
        ("2030-01-01", "15"),
        ("2026-01-01", "15.5"),
    ]
    answer(cli, "tax", "remove", "ZW", "--from", "2030-01-01")
    cli.check_refused(
        ("There is no such tax rate", ["tax", "remove", "ZW", "--from", "2030-01-01"]),
        ("is not a percentage", ["tax", "set", "ZW", "100", "--from", "2030-01-01"]),
        ("is not a country", ["tax", "set", "Zim", "15", "--from", "2030-01-01"]),
        ("one line of at most", ["tax", "set", "ZW", "15", "--from", "2030-01-01", "--heading", " "]),
    )


def test_a_gift_has_no_paper(cli: QuickCli, caller: Caller) -> None:
    answer(cli, "account", "credit", caller.account_id, "5", "--note", "Sorry", "--gift")
    assert answer(cli, "invoice", "list", "--account", caller.account_id) == []
    answer(cli, "account", "credit", caller.account_id, "5", "--note", "Cash")
    assert len(answer(cli, "invoice", "list", "--account", caller.account_id)) == 1
