"""A shop follows what it sent: live results, a resend to those that failed, and a file as one entry."""

import csv
import io
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import DESKTOP, PHONE, Opener, Viewport, bring_session, inspect, press
from tests.support.identity.people import SESSION, code_in, filled
from tests.support.postgres.embedded import wait_for
from tests.support.processes.programs import Node, new_home, running, tumira
from tests.support.processes.service import NO_TLS

BATCHES: Final = "/dashboard/batches"
TEXT: Final = "Your parcel is at the desk."
# The simulator's number that is not in use, and the one that it refuses at once.
UNKNOWN: Final = "+263771209901"
REFUSED: Final = "+263771209905"
GOOD: Final = "+263771208001"
LATE_MS: Final = 30_000

_phones: Final = count(7000)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with new_home() as home, running(home) as one:
        yield one


def sign_up(node: Node) -> httpx.Client:
    """Open an account with a balance; return its browser."""
    phone = f"+26377120{next(_phones)}"
    browser = httpx.Client(
        base_url=node.base,
        headers={"Sec-Fetch-Site": "same-origin"},
        trust_env=False,
        verify=NO_TLS,
        timeout=40,
        limits=httpx.Limits(max_keepalive_connections=0),
    )
    browser.post("/dashboard/sign-up", data=filled(phone))
    texts: list[str] = []

    def has_come() -> bool:
        texts[:] = [
            one["text"] for one in browser.get("/simulator/messages.json", params={"to": phone}).json()
        ]
        return bool(texts)

    wait_for(has_come)
    browser.post("/dashboard/verify", data={"code": code_in(texts[0])})
    accounts = json.loads(tumira("account", "list", "--json", **node.settings).stdout)
    account_id = next(one["account_id"] for one in accounts if one["phone"] == phone)
    assert not tumira("account", "credit", account_id, "5", "--note", "Cash", **node.settings).returncode
    return browser


def until(page: Page, text: str, *, javascript: bool) -> None:
    """Wait until the page says something, where its script does not run after it is loaded again."""
    main = page.locator("main")
    if not javascript:
        wait_for(lambda: bool(page.reload()) and text in main.inner_text())
    expect(main).to_contain_text(text, timeout=LATE_MS)


def entry(page: Page, name: str) -> str:
    return page.get_by_role("row").filter(has_text=name).inner_text()


@pytest.mark.parametrize(
    ("viewport", "javascript"),
    [
        pytest.param(PHONE, True, id="phone"),
        pytest.param(DESKTOP, False, id="desktop without scripts", marks=pytest.mark.long),
    ],
)
def test_results_come_in_and_the_failed_ones_are_sent_again(
    node: Node, open_page: Opener, viewport: Viewport, *, javascript: bool
) -> None:
    customer = sign_up(node)
    page = open_page(node.base, viewport=viewport, javascript=javascript)
    bring_session(page, node.base, customer.cookies[SESSION])
    page.goto("/dashboard")
    expect(page.get_by_role("heading", name="First steps")).to_be_visible()
    inspect(page, "first-steps")
    page.get_by_role("main").get_by_role("link", name="Send", exact=True).click()
    page.get_by_label("Recipients").fill(f"{UNKNOWN}, {REFUSED}, {GOOD}")
    page.get_by_label("Message").fill(TEXT)
    press(page, "Send")
    press(page, "Confirm")
    expect(page.locator("h1")).to_contain_text("Batch of")

    page.goto(BATCHES)
    until(page, "1 delivered · 2 failed", javascript=javascript)
    page.get_by_role("link", name=TEXT).click()
    page.get_by_role("link", name="Resend to 2 failed").click()
    expect(page.locator("h1")).to_have_text("Resend to 2 failed recipients?")
    expect(page.locator("main")).to_contain_text("US$0.08")
    inspect(page, "resend")
    first = page.url.removesuffix("/resend")
    press(page, "Resend")
    expect(page.locator("h1")).to_contain_text("Batch of")
    expect(page.locator("main")).to_contain_text("Recipients2")
    again = page.url
    assert again != first
    until(page, "2 of 2 messages done.", javascript=javascript)
    inspect(page, "resent")
    page.goto(first)
    page.get_by_role("link", name="see the new batch").click()
    expect(page).to_have_url(again)

    page.goto("/dashboard")
    expect(page.get_by_role("heading", name="Latest batches")).to_be_visible()
    press(page, "Hide these steps")
    expect(page.get_by_role("heading", name="First steps")).to_have_count(0)
    inspect(page, "overview")


@pytest.mark.parametrize(
    ("viewport", "javascript"),
    [
        pytest.param(DESKTOP, True, id="desktop"),
        pytest.param(PHONE, False, id="phone without scripts", marks=pytest.mark.long),
    ],
)
def test_a_file_is_one_entry_with_one_result(
    node: Node, open_page: Opener, tmp_path: Path, viewport: Viewport, *, javascript: bool
) -> None:
    customer = sign_up(node)
    sheet = f"to,name\n{GOOD},Anna\n{UNKNOWN},Ben\n12,Cara"
    checked = customer.post(
        "/dashboard/upload",
        data={"message": "Dear {name}, your parcel is at the desk."},
        files={"file": ("parcels.csv", sheet.encode(), "text/csv")},
    )
    page = open_page(node.base, viewport=viewport, javascript=javascript)
    bring_session(page, node.base, customer.cookies[SESSION])
    page.goto(checked.headers["location"] + "/send")
    press(page, "Confirm")
    expect(page.locator("h1")).to_have_text("parcels.csv")
    until(page, "2 of 2 messages sent, 2 done.", javascript=javascript)
    page.goto(checked.headers["location"])
    expect(page.get_by_role("row").filter(has_text=UNKNOWN)).to_contain_text("The number is not in use.")
    inspect(page, "file-result")
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Download CSV of all rows").click()
    saved = tmp_path / "rows.csv"
    downloading.value.save_as(saved)
    rows = list(csv.DictReader(io.StringIO(saved.read_text())))
    assert [(row["row"], row["status"]) for row in rows] == [
        ("2", "delivered"),
        ("3", "undelivered"),
        ("4", "not_sent"),
    ]

    page.goto(BATCHES)
    expect(page.get_by_role("row").filter(has_text="parcels.csv")).to_have_count(1)
    assert "1 delivered · 1 failed" in entry(page, "parcels.csv")
    page.get_by_role("link", name="parcels.csv").click()
    press(page, "Resend to 1 failed")
    expect(page.locator("h1")).to_have_text("Send 1 message?")
    expect(page.locator("main")).to_contain_text("US$0.04")
    press(page, "Confirm")
    until(page, "1 of 1 message sent, 1 done.", javascript=javascript)
    page.goto(checked.headers["location"])
    expect(page.get_by_role("link", name="see the result")).to_be_visible()
