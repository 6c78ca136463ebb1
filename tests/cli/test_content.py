"""Commands for refused texts, templates and the classification of a text."""

import json
from typing import Any, Final

import pytest

from tests.support.processes.programs import Cli, tumira
from tests.support.processes.service import Service

NOBODY: Final = "acc_" + "0" * 26
NO_TEMPLATE: Final = "tpl_" + "0" * 26
ADVERT: Final = "BIG SALE this weekend only! Get 50% off all shoes and bags. Shop now and save big!"
ORDER: Final = "Your order 1042 has been shipped and will arrive on Friday."
PARCEL: Final = "Your parcel {number} waits at {shop}."
TEMPLATE_KEYS: Final = [
    "template_id",
    "account_id",
    "verdict",
    "template",
    "note",
    "created_at",
    "created_by",
]
REFUSAL_KEYS: Final = [
    "account_id",
    "last_at",
    "first_at",
    "count",
    "category",
    "score",
    "reasons",
    "text",
    "review_asked_at",
    "review_note",
]
VERDICT_KEYS: Final = ["label", "score", "category", "reasons", "drop"]
NOWHERE: Final[dict[str, Any]] = {"database_url": "postgresql://nobody@127.0.0.1:1/nothing"}


@pytest.fixture(scope="module")
def cli(service: Service) -> Cli:
    return Cli(service.url)


def test_a_refused_text_is_seen_allowed_and_then_passes(service: Service, cli: Cli) -> None:
    caller = service.open_account()
    mine = ("--account", caller.account_id)
    assert cli.json("refusal", "list", *mine) == []
    assert cli.text("refusal", "list", *mine) == "Nothing was refused in the last 30 days.\n"
    for _ in range(2):
        assert service.send(caller, body=ADVERT).status_code == 422
    assert service.send(caller, body=ADVERT, dry_run=True).status_code == 422

    (refused,) = cli.json("refusal", "list", *mine)
    assert list(refused) == REFUSAL_KEYS
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
    assert list(added) == TEMPLATE_KEYS
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


def test_a_form_of_text_is_blocked_for_everybody(service: Service, cli: Cli) -> None:
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


def test_texts_are_kept_with_consent_alone(service: Service, cli: Cli) -> None:
    caller = service.open_account()
    review = ("account", "review", caller.account_id)
    assert cli.json(*review, "--consent")["review_consent"] is True
    assert service.send(caller, body=ADVERT).status_code == 422
    assert cli.json("refusal", "list", "--limit", "1")[0]["text"] == ADVERT
    assert ADVERT[:50] in cli.text("refusal", "list")
    assert "erased" in cli.text(*review, "--no-consent")
    assert cli.json("refusal", "list", "--account", caller.account_id)[0]["text"] is None
    assert cli.json("account", "show", caller.account_id)["review_consent"] is False


def test_what_cannot_be_done_is_said_in_one_line(service: Service, cli: Cli) -> None:
    caller = service.open_account()
    assert (
        cli.all_refused(
            ["template", "add", PARCEL, "--account", NOBODY],
            ["template", "list", "--account", NOBODY],
            ["refusal", "list", "--account", NOBODY],
            ["account", "review", NOBODY, "--consent"],
        )
        == ["Error: There is no such account; `tumira account list` shows them."] * 4
    )
    said = cli.all_refused(
        ["account", "review", caller.account_id],
        ["template", "remove", NO_TEMPLATE],
        ["template", "add", "Hi {name}"],
        ["template", "add", "{first}{second} and more words"],
        ["template", "add", ""],
    )
    assert [line.partition(";")[0] for line in said] == [
        "Error: Say what the account wants: --consent or --no-consent.",
        "Error: There is no such template",
        "Error: The template has 2 letters outside its places",
        "Error: Two places touch each other",
        "Error: The template has 0 letters outside its places",
    ]
    wrong = cli.misused(
        ["template", "add"],
        ["template", "remove", "tpl_1"],
        ["template", "list", "--account", "me"],
        ["refusal", "list", "--limit", "0"],
    )
    assert "Missing argument 'TEXT'" in wrong[0]
    assert "is not a template's id; `tumira template list` shows them." in wrong[1]


def test_a_template_of_bytes_that_are_no_text_is_refused(cli: Cli) -> None:
    assert "is not text" in cli.refused("template", "add", b"Your order {number} \xff is ready")


def test_a_text_is_classified_without_a_database() -> None:
    advert, order = (tumira("screen", "--json", text, **NOWHERE) for text in (ADVERT, ORDER))
    for done in (advert, order):
        assert (done.returncode, done.stderr) == (0, "")
        assert list(json.loads(done.stdout)) == VERDICT_KEYS
    classified = json.loads(advert.stdout)
    assert (classified["label"], classified["score"] >= 0.5) == ("promotional", True)
    for reason in classified["reasons"]:
        assert ADVERT[reason["start"] : reason["end"]] == reason["words"]
    classified = json.loads(order.stdout)
    assert (classified["label"], classified["score"] < 0.5) == ("transactional", True)
    assert (classified["category"], classified["reasons"], classified["drop"]) == (None, [], [])


def test_people_read_a_verdict_in_a_block() -> None:
    lines = tumira("screen", ADVERT, **NOWHERE).stdout.splitlines()
    assert [line.split()[0] for line in lines] == VERDICT_KEYS
    assert lines[0].split() == ["label", "promotional"]
    plain = tumira("screen", ORDER, **NOWHERE).stdout.splitlines()
    assert [line.split() for line in plain[2:]] == [["category", "-"], ["reasons", "-"], ["drop", "-"]]


def test_many_texts_are_classified_a_line_each_in_their_order() -> None:
    texts = [ADVERT, ORDER, "", ORDER, "é漢🙂", "\ud800", "a" * 5000, ADVERT]
    given = "\n\n".join(json.dumps({"text": text, "id": 7}) for text in texts)
    done = tumira("screen", given=given.encode(), **NOWHERE)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(texts)
    assert [list(line) for line in lines] == [VERDICT_KEYS] * len(texts)
    assert [line["label"] for line in lines[:2]] == ["promotional", "transactional"]
    assert lines[-1] == lines[0]


def test_a_bad_line_is_named_after_the_good_ones_were_classified() -> None:
    done = tumira("screen", given=b'{"text": "Hi"}\n\n{"body": "Hi"}\n{"text": "Hi"}\n', **NOWHERE)
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 1)
    assert done.stderr.startswith("Error: Line 3 is not a JSON object with a string `text`")
