"""Commands for refused texts, templates and the classification of a text."""

import json
from typing import Final

import pytest

from tests.support.cli.commands import QuickCli
from tests.support.processes.programs import tumira
from tests.support.processes.service import Service

NOBODY: Final = "acc_" + "0" * 26
NO_TEMPLATE: Final = "tpl_" + "0" * 26
ADVERT: Final = "BIG SALE this weekend only! Get 50% off all shoes and bags. Shop now and save big!"
ORDER: Final = "Your order 1042 has been shipped and will arrive on Friday."
PARCEL: Final = "Your parcel {number} waits at {shop}."
TEMPLATE_KEYS: Final = "template_id account_id verdict template note created_at created_by"
REFUSAL_KEYS: Final = (
    "account_id last_at first_at count category score reasons text review_asked_at review_note"
)
VERDICT_KEYS: Final = ["label", "score", "category", "reasons", "drop"]


@pytest.fixture(scope="module")
def cli(service: Service) -> QuickCli:
    return QuickCli(service.url)


def test_a_refused_text_is_seen_allowed_and_then_passes(service: Service, cli: QuickCli) -> None:
    caller = service.open_account()
    mine = ("--account", caller.account_id)
    assert cli.json("refusal", "list", *mine) == []
    assert cli.text("refusal", "list", *mine) == "Nothing was refused in the last 30 days.\n"
    for _ in range(2):
        assert service.send(caller, body=ADVERT).status_code == 422
    assert service.send(caller, body=ADVERT, dry_run=True).status_code == 422

    (refused,) = cli.json("refusal", "list", *mine)
    assert " ".join(refused) == REFUSAL_KEYS
    assert (refused["account_id"], refused["count"], refused["text"]) == (caller.account_id, 2, None)
    assert all(reason["words"] in ADVERT for reason in refused["reasons"])
    told = cli.text("refusal", "list", *mine).splitlines()
    assert (
        " ".join(told[0].split())
        == "account id last at count category score reasons text review asked at review note"
    )
    assert refused["reasons"][0]["words"] in told[1]

    words = ("template", "add", ADVERT.replace("50", "{percent}"), *mine, "--note", "Asked by phone")
    added = cli.json(*words)
    assert " ".join(added) == TEMPLATE_KEYS
    assert added["template_id"].startswith("tpl_")
    assert (added["account_id"], added["verdict"]) == (caller.account_id, "allow")
    assert added["note"] == "Asked by phone"
    assert added["created_by"].startswith("cli:")
    assert service.send(caller, body=ADVERT).status_code == 202
    assert cli.json("template", "list", *mine) == [added]
    assert added["template_id"] in cli.text("template", "list", *mine)

    removed = cli.json("template", "remove", added["template_id"])
    assert removed == {**added, "removed": True}
    assert service.send(caller, body=ADVERT).status_code == 422
    assert cli.json("template", "list", *mine) == []
    assert "tumira template add" in cli.text("template", "list", *mine)


def test_a_form_of_text_is_blocked_for_everybody(service: Service, cli: QuickCli) -> None:
    caller = service.open_account()
    assert service.send(caller, body=ORDER).status_code == 202
    said = cli.text(
        "template", "add", "Your order {number} has been shipped and will arrive on {day}.", "--block"
    )
    assert said.startswith("Such texts are refused from now on.\n  template id  tpl_")
    assert service.send(caller, body=ORDER).status_code == 422
    (template,) = cli.json("template", "list")
    assert (template["account_id"], template["verdict"], template["note"]) == (None, "block", "")
    assert cli.json("template", "list", "--account", caller.account_id) == [template]
    cli.text("template", "remove", template["template_id"])
    assert service.send(caller, body=ORDER).status_code == 202


def test_texts_are_kept_with_consent_alone(service: Service, cli: QuickCli) -> None:
    caller = service.open_account()
    review = ("account", "review", caller.account_id)
    assert cli.json(*review, "--consent")["review_consent"] is True
    assert service.send(caller, body=ADVERT).status_code == 422
    assert cli.json("refusal", "list", "--limit", "1")[0]["text"] == ADVERT
    assert ADVERT[:50] in cli.text("refusal", "list")
    assert "erased" in cli.text(*review, "--no-consent")
    assert cli.json("refusal", "list", "--account", caller.account_id)[0]["text"] is None
    assert cli.json("account", "show", caller.account_id)["review_consent"] is False


def test_what_cannot_be_done_is_said_in_one_line(service: Service, cli: QuickCli) -> None:
    caller = service.open_account()
    no_account = "There is no such account; `tumira account list` shows them."
    cli.check_refused(
        (no_account, ["template", "add", PARCEL, "--account", NOBODY]),
        (no_account, ["template", "list", "--account", NOBODY]),
        (no_account, ["refusal", "list", "--account", NOBODY]),
        (no_account, ["account", "review", NOBODY, "--consent"]),
        ("Say what the account wants: --consent or", ["account", "review", caller.account_id]),
        ("This template does not exist", ["template", "remove", NO_TEMPLATE]),
        ("at least 10 letters outside placeholders", ["template", "add", "Hi {name}"]),
        ("Put text between placeholders", ["template", "add", "{first}{second} and more words"]),
        ("at least 10 letters outside placeholders", ["template", "add", ""]),
        ("are not text", ["template", "add", b"Your order {number} \xff is ready"]),
    )
    cli.check_misused(
        ("Missing argument 'TEXT'", ["template", "add"]),
        ("is not a template's id; `tumira template list` shows them.", ["template", "remove", "tpl_1"]),
        ("'--account'", ["template", "list", "--account", "me"]),
        ("'--limit'", ["refusal", "list", "--limit", "0"]),
    )


def test_a_text_is_classified_without_a_database() -> None:
    cli = QuickCli("postgresql://nobody@127.0.0.1:1/nothing")
    classified, order = (cli.json("screen", text) for text in (ADVERT, ORDER))
    assert list(classified) == list(order) == VERDICT_KEYS
    assert (classified["label"], classified["score"] >= 0.5) == ("promotional", True)
    for reason in classified["reasons"]:
        assert ADVERT[reason["start"] : reason["end"]] == reason["words"]
    assert (order["label"], order["score"] < 0.5) == ("transactional", True)
    assert (order["category"], order["reasons"], order["drop"]) == (None, [], [])
    # People read it in a block.
    lines = cli.text("screen", ADVERT).splitlines()
    assert [line.split()[0] for line in lines] == VERDICT_KEYS
    assert lines[0].split() == ["label", "promotional"]
    plain = cli.text("screen", ORDER).splitlines()
    assert [line.split() for line in plain[2:]] == [["category", "-"], ["reasons", "-"], ["drop", "-"]]


def test_many_texts_are_classified_a_line_each_in_their_order() -> None:
    # By a process of its own, whose input is no terminal.
    texts = [ADVERT, ORDER, "", ORDER, "é漢🙂", "\ud800", "a" * 5000, ADVERT]
    given = "\n\n".join(json.dumps({"text": text, "id": 7}) for text in texts)
    done = tumira("screen", given=given.encode() + b"\nBad\n" + given.encode())
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(texts)
    assert [list(line) for line in lines] == [VERDICT_KEYS] * len(texts)
    assert [line["label"] for line in lines[:2]] == ["promotional", "transactional"]
    assert lines[-1] == lines[0]
    assert done.returncode == 1
    assert done.stderr.startswith("Error: Line 16 is not a JSON object with a string `text`")
