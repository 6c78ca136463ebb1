"""A handset replies on its page, and its owner's words reach the customer and stop further messages."""

from collections.abc import Iterator
from typing import Final

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_journey import begin, credit, go_to, prove, texts_of
from tests.support.browser import PHONE, Opener, inspect, press
from tests.support.identity.people import code_in
from tests.support.postgres.embedded import wait_for
from tests.support.processes.programs import Node, new_home, running
from tests.support.processes.service import NO_TLS

OWNER: Final = "+263771208001"
RECIPIENT: Final = "+263771208002"
TEXT: Final = "Your order 1042 is ready at our counter."
LATE_MS: Final = 15_000


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with new_home() as home, running(home) as one:
        yield one


def reply(node: Node, text: str) -> None:
    def is_taken() -> bool:
        asked = {"from": RECIPIENT, "to": "Tumira", "text": text}
        answer = httpx.post(
            node.base + "/simulator/replies", json=asked, trust_env=False, verify=NO_TLS, timeout=40
        )
        return answer.status_code == 202

    wait_for(is_taken)


def until_shown(page: Page, path: str, text: str) -> None:
    """Load a page until the worker has handled what it shows."""

    def is_shown() -> bool:
        page.goto(path)
        return text in page.inner_text("main").replace("\xa0", " ")

    wait_for(is_shown)


def write(page: Page, text: str) -> None:
    go_to(page, "Compose")
    page.get_by_label("Recipients").fill(RECIPIENT)
    page.get_by_label("Message").fill(text)


@pytest.mark.long
def test_a_reply_reaches_the_customer_and_stop_is_honoured(node: Node, open_page: Opener) -> None:
    page = open_page(node.base, viewport=PHONE)
    begin(page, OWNER)
    wait_for(lambda: texts_of(node, OWNER) != [])
    prove(page, code_in(texts_of(node, OWNER)[-1]))
    credit(node, OWNER, "5")
    go_to(page, "Replies")
    expect(page.get_by_text("No replies yet.")).to_be_visible()
    write(page, TEXT)
    press(page, "Send")
    press(page, "Confirm")
    wait_for(lambda: texts_of(node, RECIPIENT) == [TEXT])

    handsets = open_page(node.base, viewport=PHONE)
    handsets.goto("/simulator")
    box = handsets.get_by_label(f"Reply from {RECIPIENT} to Tumira")
    box.fill("Thanks, I am coming")
    # A text that comes meanwhile does not take away what is being written.
    reply(node, "Wait")
    write(page, "Your order 1043 is ready at our counter.")
    press(page, "Send")
    press(page, "Confirm")
    expect(handsets.get_by_text("order 1043")).to_be_visible(timeout=LATE_MS)
    expect(box).to_have_value("Thanks, I am coming")
    inspect(handsets, "simulator-reply")
    box.press("Enter")
    expect(box).to_have_value("")

    until_shown(page, "/dashboard/replies", "Thanks, I am coming")
    page.get_by_role("link", name="+263 77 120 8002").first.click()
    expect(page.locator(".theirs").last).to_contain_text("Thanks, I am coming")
    expect(page.locator(".ours").first).to_contain_text(TEXT)
    inspect(page, "conversation")
    reply(node, "Stop.")
    until_shown(page, "/dashboard/opt-outs", "+263 77 120 8002")
    inspect(page, "opt-outs")
    write(page, TEXT)
    expect(page.locator("main")).to_contain_text("opted out of your messages", timeout=LATE_MS)
    page.goto("/dashboard/opt-outs")
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("You can send to this number again.")).to_be_visible()
