"""The frame of every page: balance, notices, support contacts; and the public pages."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import httpx
import pytest

from tests.support.identity.customers import Customer, link, open_session, words
from tests.support.identity.people import run_behind_proxy
from tests.support.processes.service import NO_TLS, Service
from tumira.audit_log import OPERATOR
from tumira.core.settings.payments import Payments, Paynow
from tumira.core.settings.seller import NO_SELLER, Seller
from tumira.core.settings.support import NO_SUPPORT, Support
from tumira.dashboard.pages.landing import payment_methods
from tumira.dashboard.session import NAVIGATION
from tumira.identity import manage_accounts
from tumira.postgres.pool import Database
from tumira.pricing.actions import set_price
from tumira.pricing.destinations import Price, PriceStatus
from tumira.topups.voucher_pins import Issuer
from tumira.web import Web

CONTACTS: Final = {
    "TUMIRA_SUPPORT_PHONE": "+263 77 120 0001",
    "TUMIRA_SUPPORT_EMAIL": "help@sms.example",
    "TUMIRA_SUPPORT_WHATSAPP": "+27 82 123 0001",
}
LINKS: Final = {
    "+263 77 120 0001": "tel:+263771200001",
    "help@sms.example": "mailto:help@sms.example",
    "WhatsApp +27 82 123 0001": "https://wa.me/27821230001",
}
TOP_UP: Final = "Top up US$5.00 or more"


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url, **CONTACTS) as running:
        yield running


def customer_with(service: Service, balance: str) -> Customer:
    caller = service.open_account(balance)
    return Customer(service, caller, open_session(service, caller))


@pytest.mark.long
def test_without_balance_every_page_leads_to_the_top_up_with_an_amount(service: Service) -> None:
    customer = customer_with(service, "0.0199")
    # The settings need a login, which this account has not.
    for item in NAVIGATION[:-1]:
        page = customer.page(item.path)
        expected = None if item.path == "/dashboard/top-up" else "/dashboard/top-up?amount=5"
        assert link(page, TOP_UP) == expected, item.path
        assert link(page, "Balance US$0.01") == "/dashboard/top-up"
    assert re.search(r'<input id="amount" [^>]*value="5.00"', customer.page("/dashboard/top-up", amount="5"))
    # It buys one segment to the cheapest country.
    assert link(customer_with(service, "0.02").page("/dashboard"), TOP_UP) is None


def test_the_balance_of_now_is_told_to_its_owner_alone(service: Service) -> None:
    customer = customer_with(service, "7.5678")
    answer = customer.ask("/dashboard/balance/now")
    assert answer.json() == {"balance": "US$7.56", "is_too_low": False}
    assert answer.headers["cache-control"] == "no-store"
    assert customer_with(service, "0").ask("/dashboard/balance/now").json() == {
        "balance": "US$0.00",
        "is_too_low": True,
    }
    stranger = httpx.get(service.base + "/dashboard/balance/now", trust_env=False, verify=NO_TLS, timeout=30)
    assert stranger.status_code == 303


def test_who_is_suspended_finds_out_whom_to_ask(service: Service) -> None:
    customer = customer_with(service, "5")
    page = customer.page("/dashboard")
    assert {name: link(page, name) for name in LINKS} == LINKS
    service.run(manage_accounts.suspend, customer.caller.id, suspended=True)
    suspended = words(customer.page("/dashboard"))
    said = "Your account is suspended. You can look around, but nothing is sent. Contact support: "
    assert said + "+263 77 120 0001 , help@sms.example or WhatsApp +27 82 123 0001" in suspended


def front_page(service: Service) -> str:
    return httpx.get(service.base + "/", trust_env=False, verify=NO_TLS, timeout=30).text


def test_the_front_page_says_what_it_is_and_what_it_costs_by_the_prices_of_now(service: Service) -> None:
    page = front_page(service)
    said = words(page)
    for expected in (
        "to Zimbabwe and South Africa",
        "Zimbabwe US$0.04 per segment US$5.00 pays for 125 messages",
        "South Africa US$0.02 per segment US$5.00 pays for 250 messages",
        "Zimbabwe US$0.019 planned, not charged yet",
        "No monthly fee",
        "No set-up fee",
        "No minimum volume",
        "Prepaid in US dollars",
        "No free credit",
        # Nothing is set up here, so all of them are possible.
        "EcoCash OneMoney Visa or Mastercard USDT (BEP20) Vouchers Not every method may be available yet.",
    ):
        assert expected in said, expected
    assert [link(page, name) for name in ("Sign up", "Sign in", "Docs")] == [
        "/dashboard/sign-up",
        "/dashboard/sign-in",
        "/docs",
    ]
    described = re.findall(r'<meta (?:name|property)="([a-z:_]+)" content="([^"]+)">', page)
    assert {"description", "og:title", "og:description", "og:url", "og:type"} <= {
        name for name, _ in described
    }
    service.run(set_price, Price("sms", "ZA", Decimal("0.025"), PriceStatus.ACTIVE), OPERATOR)
    try:
        assert "South Africa US$0.025 per segment US$5.00 pays for 200 messages" in words(front_page(service))
    finally:
        service.run(set_price, Price("sms", "ZA", Decimal("0.02"), PriceStatus.ACTIVE), OPERATOR)


def test_the_front_page_names_the_ways_to_pay_that_are_set_up() -> None:
    paynow = Paynow("https://paynow.example", "1201", "key", None)
    assert payment_methods(Payments(paynow=paynow), [Issuer.ONE_VOUCHER]) == [
        "EcoCash",
        "OneMoney",
        "InnBucks",
        "Visa or Mastercard",
        Issuer.ONE_VOUCHER.title,
    ]
    assert payment_methods(Payments(), []) == []


async def get(path: str, support: Support = NO_SUPPORT, seller: Seller = NO_SELLER) -> httpx.Response:
    """Ask for a page that needs no database."""
    web = Web(Database("postgresql://nowhere"), support=support, seller=seller, keep_weeks=52)
    transport = httpx.ASGITransport(web)
    async with httpx.AsyncClient(transport=transport, base_url="http://tumira.example") as browser:
        return await browser.get(path)


@pytest.mark.parametrize("path", ["/contact", "/terms", "/privacy", "/nothing-here"])
async def test_a_public_page_says_how_to_reach_the_operator(path: str) -> None:
    reached = (await get(path, Support("+263 77 120 0001", "help@sms.example", "+27 82 123 0001"))).text
    assert {name: link(reached, name) for name in LINKS} == LINKS
    assert [link(reached, name) for name in ("Contact", "Terms", "Privacy")] == [
        "/contact",
        "/terms",
        "/privacy",
    ]
    silent = (await get(path)).text
    assert "Contact support (the business that runs this Tumira service)" in words(
        silent[silent.index("<footer") :]
    )


@pytest.mark.parametrize("path", ["/contact", "/terms", "/privacy"])
async def test_a_public_page_names_the_business(path: str) -> None:
    said = words((await get(path, seller=Seller("Moyo <Telecom>", "1 Samora Machel Ave, Harare"))).text)
    assert "Moyo <Telecom>" in said
    assert "1 Samora Machel Ave, Harare" in said


async def test_the_privacy_page_has_the_times_of_this_gateway() -> None:
    said = words((await get("/privacy")).text)
    for expected in (
        "Text of a message 7 days after the batch is completed",
        "Number of the recipient 90 days, then only the country and the last 3 digits",
        "Status, time and cost of a message 52 weeks",
    ):
        assert expected in said


async def test_a_missing_page_says_what_to_do() -> None:
    missing = await get("/nothing-here")
    assert missing.status_code == 404
    assert "Page not found There is no page at this address." in words(missing.text)
    assert link(missing.text, "Go to your dashboard") == "/dashboard"
    # What support needs to find it in the log.
    assert missing.headers["x-request-id"] in missing.text
    assert link((await get("/operator/nothing-here")).text, "Go to the console") == "/operator"
