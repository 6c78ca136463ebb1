"""A business owner with nothing but a browser, from the front page to a delivered message."""

import re
from collections.abc import Iterator
from itertools import count
from typing import Final

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import (
    DESKTOP,
    PHONE,
    Opener,
    Viewport,
    inspect,
    screenshot,
)
from tests.support.browser_node import credit, get, run_node, texts_of
from tests.support.identity.operators import create, read_secret
from tests.support.identity.people import PASSWORD, code_in
from tests.support.mail.server import MailServer, mail_server
from tests.support.postgres.embedded import wait_for
from tests.support.processes.service import NO_TLS, Service
from tumira.identity import totp

TEXT: Final = "Your order 1042 is on its way."
LATE_MS: Final = 15_000

_numbers: Final = count(1)


@pytest.fixture(scope="module")
def mails() -> Iterator[MailServer]:
    with mail_server() as server:
        yield server


@pytest.fixture(scope="module")
def node(server_url: str, mails: MailServer) -> Iterator[Service]:
    settings = {"TUMIRA_SMTP_URL": mails.url, "TUMIRA_MAIL_FROM": "no-reply@tumira.example"}
    with run_node(server_url, **settings) as one:
        yield one


def new_number() -> str:
    return f"+26377120{next(_numbers):04}"


def dialled(number: str) -> str:
    """Write a number as it is dialled in Zimbabwe."""
    return f"0{number[4:6]} {number[6:9]} {number[9:]}"


def go_to(page: Page, name: str) -> None:
    """Follow a link of the navigation, which is behind a button on a phone."""
    menu = page.get_by_role("button", name="Menu")
    if menu.is_visible():
        menu.click()
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)


def begin(page: Page, phone: str, email: str = "") -> None:
    page.goto("/")
    page.get_by_role("link", name="Sign up").click()
    page.get_by_label("Full name").fill("Tariro Moyo")
    page.get_by_label("Business name").fill("Moyo Stores")
    page.get_by_label("Phone number").fill(dialled(phone))
    page.get_by_label("Email (optional)").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("button", name="Verify")).to_be_visible()


def prove(page: Page, code: str) -> None:
    page.get_by_label("Verification code").fill(code)
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


def compose(page: Page, recipients: str, *, javascript: bool) -> None:
    go_to(page, "Compose")
    page.get_by_label("Recipients").fill(recipients)
    page.get_by_label("Message").fill(TEXT)
    page.get_by_label("Reference (optional)").fill("order-1042")
    if javascript:
        expect(page.get_by_text("1 segment", exact=True)).to_be_visible()
        expect(page.get_by_text("GSM-7", exact=True)).to_be_visible()
        expect(page.locator("main")).to_contain_text("US$0.10")


def confirm(page: Page) -> None:
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("button", name="Confirm")).to_be_visible()
    expect(page.locator("main")).to_contain_text("US$0.10")
    expect(page.locator("main")).to_contain_text("+14155550100")
    inspect(page, "confirm")
    page.get_by_role("button", name="Confirm").click()
    expect(page.locator("main")).to_contain_text("order-1042")


def follow(page: Page, node: Service, recipient: str, *, javascript: bool) -> None:
    wait_for(lambda: texts_of(node, recipient) == [TEXT])
    row = page.get_by_role("row").filter(has_text=recipient)
    if not javascript:
        wait_for(lambda: bool(page.reload()) and "delivered" in row.inner_text())
    expect(row).to_contain_text("delivered", timeout=LATE_MS)
    expect(page.locator("#progress .told .badge")).to_have_text("completed")
    page.get_by_role("link", name=recipient).click()
    expect(page.locator("main")).to_contain_text(re.compile("delivered", re.IGNORECASE))
    go_to(page, "Batches")
    # The search is folded on a phone.
    if not page.get_by_label("Number").is_visible():
        page.get_by_text("Search", exact=True).first.click()
    page.get_by_label("Number").fill(dialled(recipient))
    page.get_by_role("button", name="Search").click()
    expect(page.locator("main")).to_contain_text("order-1042")


def make_key(page: Page) -> str:
    go_to(page, "API keys")
    page.get_by_label("Key name").fill("web shop")
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Create API key").click()
    key = page.get_by_text(re.compile(r"^tmr_[0-9a-z]{26}_[0-9a-z]{32}$")).inner_text()
    inspect(page, "key")
    go_to(page, "API keys")
    assert key not in page.content()
    return key


@pytest.mark.parametrize(
    ("viewport", "javascript"),
    [
        pytest.param(PHONE, True, id="phone"),
        pytest.param(DESKTOP, False, id="desktop without scripts", marks=pytest.mark.long),
    ],
)
def test_from_the_front_page_to_a_delivered_message(
    node: Service, open_page: Opener, viewport: Viewport, *, javascript: bool
) -> None:
    page = open_page(node.base, viewport=viewport, javascript=javascript, dark=not javascript)
    phone, first, second = new_number(), new_number(), new_number()

    begin(page, phone)
    wait_for(lambda: len(texts_of(node, phone)) == 1)
    prove(page, code_in(texts_of(node, phone)[0]))
    # The simulator is the only carrier of this node.
    trial = "Test mode: messages to South Africa and Zimbabwe go to a simulator"
    expect(page.get_by_text(trial)).to_be_visible()
    credit(node, phone, "5")
    compose(page, f"{dialled(first)}, {second};+27821230009\n+14155550100", javascript=javascript)
    confirm(page)
    follow(page, node, second, javascript=javascript)
    go_to(page, "Overview")
    expect(page.locator("main")).to_contain_text("US$4.90")
    key = make_key(page)
    balance = get(node, "/api/v1/balance", headers={"Authorization": f"Bearer {key}"})
    assert balance.json() == {"balance": "4.9000", "currency": "USD"}

    if viewport is PHONE:
        page.get_by_role("button", name="Menu").click()
        screenshot(page, "menu")
    page.get_by_role("button", name="Sign out").click()
    page.goto("/dashboard/keys")
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()


@pytest.mark.long
def test_the_simulated_handsets_can_be_read(node: Service, open_page: Opener) -> None:
    page = open_page(node.base, viewport=PHONE)
    page.goto("/simulator")
    expect(page.get_by_text("New messages appear automatically.")).to_be_visible()
    inspect(page, "simulator")
    page = open_page(node.base, viewport=PHONE, javascript=False)
    page.goto("/simulator")
    # Playwright leaves this element out where it looks for texts.
    assert page.locator("noscript").inner_text() == "Reload the page to see new messages."


@pytest.mark.long
def test_the_code_comes_by_mail_as_well(node: Service, mails: MailServer, open_page: Opener) -> None:
    page = open_page(node.base, viewport=PHONE)
    phone = new_number()
    begin(page, phone, "tariro@example.com")
    mail = mails.wait_for("tariro@example.com")
    wait_for(lambda: len(texts_of(node, phone)) == 1)
    assert code_in(mail.body) != code_in(texts_of(node, phone)[0])
    prove(page, code_in(mail.body))
    # It lets its reader look around; the code of the text opens the rest.
    page.goto("/dashboard/keys")
    page.get_by_label("Name").fill("shop")
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Create API key").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Verify your number")
    kept = page.context.cookies()
    page.context.clear_cookies(name="tumira_verification")
    page.goto("/dashboard")
    page.get_by_role("link", name="Enter the code from your phone").click()
    expect(page.get_by_role("button", name="Send me a code by SMS")).to_be_visible()
    inspect(page, "confirm-number")
    page.context.add_cookies(kept)  # type: ignore[arg-type]
    page.goto("/dashboard/verify")
    prove(page, code_in(texts_of(node, phone)[0]))
    expect(page.get_by_text("Verify your phone number to top up")).to_have_count(0)


def enter_console(node: Service, open_page: Opener) -> Page:
    """Create an operator, and sign in for the first time."""
    phone, password = create(node, name="Rudo Admin")
    page = open_page(node.base, viewport=DESKTOP)
    page.goto("/operator")
    page.get_by_label("Phone number").fill(phone)
    page.get_by_label("Password").fill(password)
    page.keyboard.press("Enter")
    expect(page.locator("#secret")).to_be_visible()
    code = totp.authenticator(read_secret(page.content())).now()
    page.get_by_label("Password").fill(PASSWORD)
    page.locator("#code").fill(code)
    page.locator("main form button").last.click()
    page.get_by_role("link", name="I have saved them").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Start")
    return page


def ask_for_name(page: Page) -> None:
    go_to(page, "Sender names")
    page.get_by_label("Name", exact=True).fill("Chipo Shop")
    page.get_by_label("What do you send").fill("Chipo Shop: your parcel is ready. It is our registered name.")
    page.get_by_role("button", name="Ask for this name").click()
    expect(page.get_by_text("We have your request.")).to_be_visible()


def sender_of(node: Service, number: str) -> list[str]:
    return [one["from"] for one in get(node, "/simulator/messages.json", params={"to": number}).json()]


def send_by_api(node: Service, key: str, number: str) -> None:
    sent = httpx.post(
        node.base + "/api/v1/messages",
        headers={"Authorization": f"Bearer {key}"},
        json={"channel": "sms", "to": number, "body": TEXT},
        trust_env=False,
        verify=NO_TLS,
        timeout=40,
    )
    assert sent.status_code == 202, sent.text


@pytest.mark.long
def test_a_customer_sends_under_the_name_that_an_operator_granted(node: Service, open_page: Opener) -> None:
    page = open_page(node.base, viewport=PHONE)
    phone, first, second, third = (new_number() for _ in range(4))
    begin(page, phone)
    wait_for(lambda: len(texts_of(node, phone)) == 1)
    prove(page, code_in(texts_of(node, phone)[0]))
    credit(node, phone, "5")
    ask_for_name(page)

    console = enter_console(node, open_page)
    console.get_by_role("link", name="sender name waits for a decision").click()
    console.get_by_role("link", name="Chipo Shop").first.click()
    grant = console.get_by_role("region", name="Grant")
    grant.get_by_label("Where").select_option("ZW")
    grant.get_by_role("button", name="Grant").click()
    expect(console.get_by_text("Name granted.")).to_be_visible()

    go_to(page, "Compose")
    expect(page.locator(".from")).to_contain_text("Chipo Shop (Zimbabwe)")
    page.get_by_label("Recipients").fill(dialled(first))
    page.get_by_label("Message").fill(TEXT)
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Confirm").click()
    wait_for(lambda: sender_of(node, first) == ["Chipo Shop"])
    key = make_key(page)
    send_by_api(node, key, second)
    wait_for(lambda: sender_of(node, second) == ["Chipo Shop"])

    revoke = console.get_by_role("region", name="Revoke")
    revoke.get_by_label("Where").select_option("ZW")
    revoke.get_by_label("Note to the customer").fill("The network asked for it")
    revoke.get_by_role("button", name="Revoke").click()
    expect(console.get_by_text("Name revoked.")).to_be_visible()
    send_by_api(node, key, third)
    wait_for(lambda: sender_of(node, third) == ["Tumira"])
    wait_for(lambda: any("was revoked" in text for text in texts_of(node, phone)))
