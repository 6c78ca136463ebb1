"""Commands for refused texts, templates and the classification of a text."""

import json
from pathlib import Path
from typing import Final

import pytest

from tests.support.cli.commands import QuickCli
from tests.support.processes.programs import tumira
from tests.support.processes.service import Caller, Service
from tumira.audit_log import Actor
from tumira.content import near_line
from tumira.content import review as content_review
from tumira.content.near_line_store import MarkedSend
from tumira.content.store import digest_of
from tumira.content.templates import TemplateVerdict
from tumira.postgres.pool import Database

TESTER: Final = Actor("test")
NOBODY: Final = "acc_" + "0" * 26
NO_TEMPLATE: Final = "tpl_" + "0" * 26
ADVERT: Final = "BIG SALE this weekend only! Get 50% off all shoes and bags. Shop now and save big!"
ORDER: Final = "Your order 1042 has been shipped and will arrive on Friday."
BUS: Final = "Your bus leaves from bay 7 at nine."
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


@pytest.mark.long
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


def test_texts_near_the_line_are_listed_apart(service: Service, cli: QuickCli) -> None:
    caller = service.open_account()
    near = ("refusal", "list", "--near", "--account", caller.account_id)
    assert cli.text(*near) == "No text near the line was kept in the last 30 days.\n"
    cli.json("account", "review", caller.account_id, "--consent")
    service.run(near_line.record, [MarkedSend(caller.id, 4, 0.3, BUS)])
    (listed,) = cli.json(*near)
    assert " ".join(listed) == "account_id last_at first_at count score text review"
    assert (listed["count"], listed["text"], listed["review"]) == (4, BUS, None)
    assert BUS in cli.text(*near)
    cli.check_refused(
        ("There is no such account", ["refusal", "list", "--near", "--account", NOBODY]),
    )


@pytest.mark.long
def test_texts_are_exported_with_consent_and_labelled_by_their_reviews(
    service: Service, cli: QuickCli, tmp_path: Path
) -> None:
    quiet, caller = service.open_account(), service.open_account()
    cli.json("account", "review", caller.account_id, "--consent")
    adverts = [ADVERT, f"Hi Rudo, {ADVERT} Call 0771200001.", f"{ADVERT} Mail me@shop.example."]
    for text in adverts:
        assert service.send(caller, body=text).status_code == 422
    assert service.send(quiet, body="Quiet " + ADVERT).status_code == 422
    # An owner who only asks for a review has not consented to more.
    assert service.run(ask, quiet, "Quiet " + ADVERT)
    assert service.run(ask, caller, adverts[1])
    service.run(content_review.dismiss, caller.id, digest_of(adverts[1]), answer="", actor=TESTER)
    cli.json("template", "add", adverts[2].replace("me@", "{who}@"), "--account", caller.account_id)
    fine, unread, blocked = f"{ORDER} Fine.", f"{ORDER} Unread.", f"{ORDER} Blocked."
    service.run(near_line.record, [MarkedSend(caller.id, 1, 0.3, text) for text in (fine, unread, blocked)])
    service.run(content_review.confirm_near_line, caller.id, digest_of(fine), actor=TESTER)
    service.run(
        content_review.add_template,
        blocked,
        caller.id,
        TemplateVerdict.BLOCK,
        note="",
        actor=TESTER,
        answers=digest_of(blocked),
    )

    file = tmp_path / "texts.jsonl"
    told = cli.json("refusal", "export", "--output", str(file))
    exported = [json.loads(line) for line in file.read_text().splitlines()]
    mine = {one["text"]: one for one in exported if ADVERT in one["text"] or one["text"].startswith(ORDER)}
    assert {text: one["label"] for text, one in mine.items()} == {
        ADVERT: None,
        f"Hi Tariro, {ADVERT} Call 0000000000.": "promotional",
        f"{ADVERT} Mail name@example.com.": "transactional",
        fine: "transactional",
        unread: None,
        blocked: "promotional",
    }
    assert " ".join(mine[ADVERT]) == "text label category score first_on last_on count"
    assert caller.account_id not in file.read_text()
    assert "Quiet" not in file.read_text()
    assert (told["file"], told["texts"]) == (str(file), len(exported))
    assert file.stat().st_mode & 0o777 == 0o600
    # An edited file is not overwritten.
    cli.check_refused(("File exists", ["refusal", "export", "--output", str(file)]))
    assert cli.json("refusal", "export") == exported
    assert [json.loads(line) for line in cli.text("refusal", "export").splitlines()] == exported
    assert cli.json("refusal", "export", "--since", "2999-01-01") == []
    (noted,) = service.sql("SELECT detail FROM operator_changes WHERE what LIKE 'texts exported%' LIMIT 1")
    assert noted["detail"].startswith(f"{len(exported)} texts since ")

    cli.text("account", "review", caller.account_id, "--no-consent")
    left = cli.text("refusal", "export")
    assert ADVERT not in left
    assert fine not in left


async def ask(database: Database, caller: Caller, text: str) -> bool:
    return await content_review.ask_review(database, caller.id, digest_of(text), text, "Why?", TESTER)
