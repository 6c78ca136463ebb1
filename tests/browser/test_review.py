"""A refused text is appealed, allowed in the console and sent; texts near the line are read and decided."""

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.dashboard.test_compose import sign_in
from tests.support.browser import DESKTOP, PHONE, Opener, Viewport, bring_session, inspect, press
from tests.support.identity.operators import COOKIE, OperatorBrowser, new_operator
from tests.support.identity.people import run_behind_proxy
from tests.support.processes.service import Service, run_web
from tests.support.sending.owners import give_owner
from tumira.content import near_line
from tumira.content.near_line_store import MarkedSend
from tumira.identity import manage_accounts

COMPOSE: Final = "/dashboard/compose"
REFUSED: Final = (
    "Dear Tendai, get 20% off your next order with the code SAVE4417. Shop now, offer ends Sunday!"
)
SAME_FORM: Final = (
    "Dear Rudo, get 35% off your next order with the code SAVE8802. Shop now, offer ends Sunday!"
)
TEMPLATE: Final = (
    "Dear {name}, get {number}% off your next order with the code SAVE{number}. Shop now, offer ends Sunday!"
)
NEAR: Final = "Dear Tendai, the new library opens on Monday at 9. Bring your card."
OTHER: Final = "Hi Rudo, our kiosk has fresh bread from 6."
SCREENS: Final = pytest.mark.parametrize(
    ("viewport", "javascript"),
    [
        pytest.param(PHONE, False, id="phone without scripts"),
        pytest.param(DESKTOP, True, id="desk", marks=pytest.mark.long),
    ],
)


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        yield running


@pytest.fixture(scope="module")
def admin(service: Service) -> OperatorBrowser:
    return new_operator(service)


@pytest.mark.long
@SCREENS
def test_a_refused_text_is_appealed_allowed_and_sent_with_the_next_call_on_every_node(
    service: Service, admin: OperatorBrowser, open_page: Opener, viewport: Viewport, *, javascript: bool
) -> None:
    customer = sign_in(service)
    service.run(give_owner, customer.caller.id, "owner@example.com")
    business = f"Shop {viewport.width}"
    service.sql("UPDATE accounts SET business = $2 WHERE id = $1", customer.caller.id, business)
    with run_web(service.url) as other:
        for node in (service, other):
            assert node.send(customer.caller, body=SAME_FORM).status_code == 422

        page = open_page(service.base, viewport=viewport, javascript=javascript)
        bring_session(page, service.base, customer.token)
        page.goto(COMPOSE)
        page.get_by_label("Recipients").fill("0771200001")
        page.get_by_label("Message").fill(REFUSED)
        if not javascript:
            press(page, "Send")
        expect(page.locator(".send")).to_contain_text("The text is refused.")
        page.get_by_text("Ask for a review").click()
        page.get_by_label("Why do people need it?").fill("Members asked for it.")
        press(page, "Send for review")
        expect(page.get_by_role("status").first).to_contain_text("sent for review")

        desk = open_page(service.base, viewport=viewport, javascript=javascript)
        desk.context.add_cookies([{"name": COOKIE, "value": admin.cookie, "url": service.base}])
        desk.goto("/operator/content")
        desk.get_by_role("region", name="Review requests").get_by_role("row", name=business).get_by_role(
            "link"
        ).click()
        expect(desk.get_by_text("Members asked for it.")).to_be_visible()
        # Filled in from the text: only the decision is left.
        expect(desk.get_by_role("textbox", name="Template")).to_have_value(TEMPLATE)
        desk.get_by_label("Decision").select_option("Allow texts like this")
        desk.get_by_label("Note to the customer").fill("For members only.")
        press(desk, "Save template")
        expect(desk.get_by_role("status").first).to_contain_text("are now allowed")

        for node in (other, service):
            assert node.send(customer.caller, body=SAME_FORM).status_code == 202
    page.goto("/dashboard/settings")
    expect(page.get_by_text("For members only.").first).to_be_visible()


@pytest.mark.long
@SCREENS
def test_texts_near_the_line_are_read_and_decided(
    service: Service, admin: OperatorBrowser, open_page: Opener, viewport: Viewport, *, javascript: bool
) -> None:
    caller = service.open_account()
    business = f"Library {viewport.width}"
    service.sql("UPDATE accounts SET business = $2 WHERE id = $1", caller.id, business)
    service.run(manage_accounts.review, caller.id, consent=True)
    service.run(near_line.record, [MarkedSend(caller.id, 40, 0.31, text) for text in (NEAR, OTHER)])

    page = open_page(service.base, viewport=viewport, javascript=javascript)
    page.context.add_cookies([{"name": COOKIE, "value": admin.cookie, "url": service.base}])
    page.goto("/operator/content")
    page.get_by_role("link", name="Near the line").click()
    often = page.get_by_role("region", name="Accounts often near the line")
    expect(often.get_by_role("row", name=business)).to_contain_text("100%")
    texts = page.get_by_role("region", name="Texts to review")
    inspect(page, "console-near-line")
    texts.get_by_role("row", name=NEAR).get_by_role("link").click()
    press(page, "Fine")
    expect(page.get_by_role("status").first).to_contain_text("Recorded as a service message.")
    expect(texts.get_by_role("row", name=NEAR)).to_have_count(0)

    texts.get_by_role("row", name=business).get_by_role("link").click()
    expect(page.get_by_label("Template")).to_have_value("Hi {name}, our kiosk has fresh bread from {number}.")
    inspect(page, "console-near-line-text")
    press(page, "Refuse such texts")
    expect(page.get_by_role("status").first).to_contain_text("are now refused")
    assert service.send(caller, body=OTHER).status_code == 422

    often.get_by_role("link", name=business).click()
    expect(page.get_by_text("80 messages in 30 days, 100% of all")).to_be_visible()
