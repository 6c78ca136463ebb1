"""Commands for opt-outs."""

from pathlib import Path
from typing import Final

import pytest

from tests.support.cli.commands import QuickCli
from tests.support.processes.service import Service
from tests.support.uploads.workbooks import pack, text_rows, xlsx_parts
from tumira.uploads.workbooks.write import write_xlsx

NOBODY: Final = "acc_" + "0" * 26
NUMBER: Final = "+263771200001"


@pytest.fixture(scope="module")
def cli(service: Service) -> QuickCli:
    return QuickCli(service.url)


def test_numbers_are_added_imported_listed_and_removed(
    service: Service, cli: QuickCli, tmp_path: Path
) -> None:
    caller = service.open_account()
    mine = ("--account", caller.account_id)
    assert cli.json("optout", "list", *mine) == []
    assert "Nobody has opted out" in cli.text("optout", "list", *mine)
    # A local number is one of the account's own country.
    added = cli.json("optout", "add", *mine, "--number", NUMBER, "--number", "077 120 0002", "--number", "12")
    assert added == {"account_id": caller.account_id, "added": 2, "known": 0, "unreadable": ["12"]}
    assert rejected(service, caller.key) == [NUMBER]

    file = tmp_path / "gone.xlsx"
    file.write_bytes(
        write_xlsx([("name", "phone"), ("Anna", NUMBER), ("Ben", "+27821230001"), ("Cara", "none")])
    )
    imported = cli.json("optout", "import", str(file), *mine)
    assert (imported["added"], imported["known"], imported["unreadable"]) == (1, 1, ["none"])
    listed = cli.json("optout", "list", *mine)
    assert {(one["number"], one["source"]) for one in listed} == {
        (NUMBER, "page"),
        ("+263771200002", "page"),
        ("+27821230001", "import"),
    }
    assert listed[0]["number"] == "+27821230001"
    assert len(cli.json("optout", "list", *mine, "--limit", "1")) == 1

    removed = cli.json("optout", "remove", *mine, "--number", "0771200001")
    assert removed == {"account_id": caller.account_id, "number": NUMBER}
    assert rejected(service, caller.key) == []
    changes = service.sql("SELECT actor, what FROM changes WHERE account_id = $1 ORDER BY id", caller.id)
    assert [row["what"] for row in changes][-3:] == [
        "numbers opted out",
        "numbers opted out",
        "opt-out removed",
    ]
    assert all(row["actor"].startswith("cli:") for row in changes[-3:])


def rejected(service: Service, key: str) -> list[str]:
    request = {"channel": "sms", "to": [NUMBER, "+263771200009"], "body": "Your parcel 1042 is ready."}
    answer = service.call(key, "POST", "/messages", json=request)
    assert answer.status_code == 202
    return [one["to"] for one in answer.json()["rejected"]]


@pytest.mark.long
def test_what_cannot_be_done_is_said_in_a_line(service: Service, cli: QuickCli, tmp_path: Path) -> None:
    mine = ("--account", service.open_account().account_id)
    document = tmp_path / "gone.pdf"
    document.write_bytes(b"%PDF-1.7")
    workbook = tmp_path / "gone.xlsx"
    workbook.write_bytes(pack(xlsx_parts({"A": text_rows([NUMBER]), "B": text_rows([NUMBER])})))
    cli.check_refused(
        (
            "No number that we send to: '12', '+14155550100'",
            ["optout", "add", *mine, *numbers("12", "+14155550100")],
        ),
        ("no such account", ["optout", "add", "--account", NOBODY, *numbers(NUMBER)]),
        ("no such account", ["optout", "list", "--account", NOBODY]),
        ("has not opted out", ["optout", "remove", *mine, *numbers(NUMBER)]),
        ("PDF", ["optout", "import", str(document), *mine]),
        (
            "Several sheets have rows: A, B. Choose one with --sheet.",
            ["optout", "import", str(workbook), *mine],
        ),
    )
    imported = cli.json("optout", "import", str(workbook), *mine, "--sheet", "B")
    assert imported["added"] == 1
    cli.check_misused(
        ("--number", ["optout", "add", *mine]),
        ("--account", ["optout", "list"]),
        ("No such file", ["optout", "import", str(tmp_path / "nowhere.csv"), *mine]),
    )


def numbers(*given: str) -> list[str]:
    return [word for one in given for word in ("--number", one)]
