"""Log lines: JSON, one for each call, and without personal data.

A known text and known numbers go every way through a gateway whose parts all log at debug level, and meet all
kinds of error. Then every line of web, worker, simulator and PostgreSQL is searched for them.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import asyncpg
import httpx
import pytest
import structlog

from tests.dashboard.test_compose import hidden
from tests.support.chaos.node import until
from tests.support.identity.people import NAME, Person, code_to, goes_to, sign_up
from tests.support.mail.server import mail_server
from tests.support.postgres.databases import clone
from tests.support.processes.service import Caller, Service
from tests.support.processes.watched import watch_simulator, watch_web, watch_worker
from tests.support.webhooks.receivers import closed_port
from tumira.carriers.manage import add_carrier
from tumira.core import logging as logs
from tumira.identity.manage_accounts import credit
from tumira.webhooks import manage

# Words that nothing else says.
WORDS: Final = ("Marimba", "quartzite", "zephyrs")
TEXT: Final = f"Your {WORDS[0]} {WORDS[1]} code is 58-31-77 {WORDS[2]}."
ADVERT: Final = f"SALE! 50% off every {WORDS[0]} {WORDS[1]}, buy now and win {WORDS[2]}!"
NUMBER: Final = "+263771258313"
# What the simulator does not take, tries again, and says is not in use.
TROUBLED: Final = ("+263771259905", "+263771259907", "+263771259901")
POISONED: Final = "+263771258399"
NATIONAL: Final = [number[4:] for number in (NUMBER, *TROUBLED, POISONED)]
MAILBOX: Final = "nyasha.secret"
REQUEST_ID: Final = "my-request-7"
PAGE_REQUEST_ID: Final = "my-page-8"
WAIT_S: Final = 120

BREAK: Final = "ALTER TABLE messages ADD CONSTRAINT poisoned CHECK (recipient <> '{number}') NOT VALID"


@dataclass(frozen=True, slots=True)
class Said:
    """The lines of all parts, and what must not be in them."""

    lines: dict[str, str]
    secrets: Sequence[str]

    def events(self, part: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines[part].splitlines()]


@dataclass(frozen=True, slots=True)
class World:
    """A gateway with a customer."""

    service: Service
    caller: Caller
    person: Person
    folder: Path

    def send(self, *to: str, **fields: Any) -> httpx.Response:
        return self.service.send(self.caller, **({"to": list(to), "body": TEXT} | fields))


def drive(world: World) -> None:
    service, browser = world.service, world.person.browser
    with closed_port() as port:
        hook = f"http://127.0.0.1:{port}/hook"
        service.run(manage.add_endpoint, world.caller.id, hook, None, "", allow_private=True)
        service.run(add_carrier, "away", f"smpp://a:b@127.0.0.1:{port}", ["ZA"], 50)
        assert world.send(NUMBER, *TROUBLED).status_code == 202
        assert world.send("+27821231234").status_code == 202
        assert world.send(NUMBER, body=ADVERT).json()["error"]["code"] == "CONTENT_REJECTED"
        assert service.call(world.caller, "POST", "/messages", content=TEXT.encode()).status_code == 415
        review = browser.post(
            "/dashboard/compose", data={"recipients": NUMBER, "message": TEXT, "reference": ""}
        )
        browser.post("/dashboard/compose/confirm", data=hidden(review))
        browser.post("/dashboard/compose", data={"recipients": NUMBER, "message": ADVERT, "reference": ""})
        upload(browser)
        # Before a table is away: an outcome that can be recorded in no way is given up.
        until(lambda: are_settled(service), "some message is still under way", WAIT_S)
        poison(world)
        until(lambda: has_tried(service), "no event was tried", WAIT_S)


def upload(browser: httpx.Client) -> None:
    sheet = f"to,name\n{NUMBER},{WORDS[0]}\n".encode()
    files = {"file": ("people.csv", sheet, "text/csv")}
    path = goes_to(browser.post("/dashboard/upload", data={"message": f"{TEXT} {{name}}"}, files=files))
    assert path is not None
    agreed = re.search(r'name="agreed" value="([0-9.]+)"', browser.get(f"{path}/send").text)
    assert agreed is not None
    assert browser.post(f"{path}/send", data={"agreed": agreed[1]}).status_code == 303


def poison(world: World) -> None:
    """Let the database refuse rows, and say so with all that is in them; and let a page fail."""
    service = world.service
    service.sql(BREAK.format(number=POISONED))
    named = {"X-Request-Id": REQUEST_ID}
    assert world.service.send(world.caller, named, to=[POISONED], body=TEXT).status_code == 500
    many = [POISONED, *(f"+2637712{place:05}" for place in range(60))]
    assert world.send(*many).status_code == 500
    service.sql("ALTER TABLE traffic RENAME TO away")
    try:
        page = world.person.browser.get("/dashboard", headers={"X-Request-Id": PAGE_REQUEST_ID})
        assert (page.status_code, page.headers["x-request-id"]) == (500, PAGE_REQUEST_ID)
    finally:
        service.sql("ALTER TABLE away RENAME TO traffic")
    with pytest.raises(asyncpg.CheckViolationError, match="poisoned"):
        service.sql("UPDATE messages SET recipient = $1, body = $2", POISONED, TEXT)


def are_settled(service: Service) -> bool:
    waiting = "SELECT count(*) FROM messages WHERE country = 'ZW' AND status IN ('queued', 'sending', 'sent')"
    sent = "SELECT count(*) FROM uploads WHERE state = 'sending'"
    return bool(service.sql(waiting)[0][0] == service.sql(sent)[0][0] == 0)


def has_tried(service: Service) -> bool:
    return bool(service.sql("SELECT count(*) > 0 FROM webhook_attempts")[0][0])


@pytest.fixture(scope="module")
def said(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Said]:
    folder = tmp_path_factory.mktemp("logs")
    with ExitStack() as stack:
        url = stack.enter_context(clone(server_url))
        mail = stack.enter_context(mail_server())
        settings = {
            "TUMIRA_LOG_LEVEL": "debug",
            "TUMIRA_TRUSTED_PROXIES": "127.0.0.1",
            "TUMIRA_WEBHOOKS_ALLOW_PRIVATE": "1",
            "TUMIRA_SMTP_URL": mail.url,
        }
        port = stack.enter_context(
            watch_simulator(folder / "data", folder / "simulator.log", TUMIRA_LOG_LEVEL="debug")
        )
        _, service = stack.enter_context(watch_web(url, folder / "web.log", **settings))
        postgres = Path(service.sql("SELECT current_setting('data_directory')")[0][0]).parent / "postgres.log"
        before = postgres.stat().st_size
        service.run(add_carrier, "simulator", f"smpp://a:b@127.0.0.1:{port}?doubt_wait=2", ["ZW"], 100)
        with watch_worker(url, folder / "worker.log", **settings):
            person = sign_up(service, email=f"{MAILBOX}@example.org")
            caller = service.open_account()
            account = service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)[0][0]
            service.run(credit, account, Decimal(10), note="test", actor="test")
            drive(World(service, caller, person, folder))
            mail.wait_for(f"{MAILBOX}@example.org")
            secrets = [*WORDS, *NATIONAL, MAILBOX, code_to(service, person.phone), person.phone[3:], NAME]
        stack.pop_all().close()
        lines = {part: (folder / f"{part}.log").read_text(encoding="utf-8") for part in ("web", "worker")}
        lines["simulator"] = (folder / "simulator.log").read_text(encoding="utf-8")
        lines["postgres"] = postgres.read_bytes()[before:].decode()
        yield Said(lines, secrets)


@pytest.mark.parametrize("part", ["web", "worker", "simulator", "postgres"])
def test_no_line_holds_a_text_a_number_a_code_or_a_name(said: Said, part: str) -> None:
    found = {
        secret: line
        for line in said.lines[part].splitlines()
        for secret in said.secrets
        if secret.lower() in line.lower()
    }
    assert found == {}


def test_the_troubles_were_logged_all_the_same(said: Said) -> None:
    """Its twin: what was searched is not empty, and the errors are there."""
    web, worker = said.events("web"), said.events("worker")
    failed = [line for line in web if line["event"] == "call failed"]
    assert len(failed) == 2
    assert all('violates check constraint "poisoned"' in line["exception"] for line in failed)
    assert all("admit.py" in failed[0]["exception"] or "batcher.py" in one["exception"] for one in failed)
    assert {"carrier cannot be reached", "mail sent", "maintenance task done"} <= {
        line["event"] for line in worker
    }
    assert 'violates check constraint "poisoned"' in said.lines["postgres"]
    for line in [*web, *worker]:
        assert {"event", "level", "timestamp"} <= line.keys(), line


def test_the_lines_of_a_request_have_its_id(said: Said) -> None:
    web = said.events("web")
    assert [line["event"] for line in web if line.get("request_ids") == [REQUEST_ID]] == ["call failed"]
    failed = [line["request_ids"] for line in web if line["event"] == "call failed"]
    large = [one for ids in failed if ids != [REQUEST_ID] for one in ids]
    assert [one.startswith("req_") for one in large] == [True]
    page = [line for line in web if line.get("request_id") == PAGE_REQUEST_ID]
    assert "page failed" in {line["event"] for line in page}
    assert all("UndefinedTableError" in line["exception"] for line in page if "exception" in line)


def test_errors_are_told_without_what_they_quote(capsys: pytest.CaptureFixture[str]) -> None:
    log = structlog.get_logger()
    inner = asyncpg.DataError(f"invalid input for query argument $1: {TEXT!r:.40}... (a str is expected)")
    group = ExceptionGroup("some failed", [ValueError(f"bad: {TEXT!r}"), KeyError(TEXT)])
    with pytest.raises(ExceptionGroup) as raised:
        raise group from inner
    log.error("it failed", exc_info=raised.value, to=[NUMBER, {"number": NUMBER}])
    log.error("it failed", error=repr(inner))
    said = capsys.readouterr().err
    assert [word for word in (*WORDS, NATIONAL[0]) if word in said] == []
    first, second = (json.loads(line) for line in said.splitlines())
    assert first["to"] == ["+26377•••313", {"number": "+26377•••313"}]
    assert "ValueError: bad: '…'" in first["exception"]
    assert "DataError" in first["exception"]
    assert "KeyError" in first["exception"]
    assert "test_logging.py" in first["exception"]
    assert second["error"].startswith("DataError(")


def test_an_endless_chain_of_errors_has_an_end() -> None:
    error: Exception = ValueError("0")
    for place in range(100):
        following = ValueError(str(place))
        following.__cause__ = error
        error = following
    assert logs.describe(error).count("ValueError") == logs.ERRORS_MAX
