"""Customers pay in every way, on a phone and at a desk, and see it credited by waiting."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.browser import (
    PHONE,
    Opener,
    bring_session,
    inspect,
    press,
    screenshot,
    take_faults,
)
from tests.support.hand import Hand, Way, ways
from tests.support.identity.customers import open_session
from tests.support.postgres.databases import clone
from tests.support.processes.service import Caller, Service, run_web
from tests.support.sending.batchers import broken_promises
from tests.support.topups.paynow_server import Outcome, PaynowServer, paynow_server
from tests.support.topups.voucher_servers import Issuers, run_issuers
from tests.topups.test_addresses import XPUB
from tumira.postgres.pool import Database
from tumira.topups.usdt import deposits
from tumira.topups.usdt import store as usdt_store
from tumira.topups.usdt.credit_deposits import credit_deposits
from tumira.topups.usdt.deposit_rules import ChainDeposit
from tumira.topups.usdt.store import ChainCursor

PLACE: Final = "/dashboard/top-up"
SHIFT_MAX: Final = 0.1
CREDITED_MS: Final = 40_000
CHAIN_ID: Final = 56


@dataclass(frozen=True, slots=True)
class World:
    service: Service
    paynow: PaynowServer
    issuers: Issuers


@contextmanager
def run_worker(service: Service, environment: Mapping[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tumira", "worker", "--quiet"],
        env={
            **os.environ,
            "TUMIRA_DATABASE_URL": service.url,
            "TUMIRA_PUBLIC_URL": service.base,
            "TUMIRA_LOG_LEVEL": "error",
            **environment,
        },
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@pytest.fixture(scope="module")
def world(server_url: str) -> Iterator[World]:
    with ExitStack() as stack:
        url = stack.enter_context(clone(server_url))
        paynow = stack.enter_context(paynow_server())
        issuers = stack.enter_context(run_issuers())
        environment = {**paynow.environment, **issuers.environment}
        # No worker watches a chain here: the USDT test records deposits itself.
        usdt = {"TUMIRA_USDT_RPC_URLS": paynow.url, "TUMIRA_USDT_XPUB": XPUB}
        service = stack.enter_context(run_web(url, **environment, **usdt))
        stack.enter_context(run_worker(service, environment))
        yield World(service, paynow, issuers)
        assert service.run(broken_promises) == []


@pytest.fixture
def caller(world: World) -> Iterator[Caller]:
    caller = world.service.open_account("1")
    yield caller
    (row,) = world.service.sql(
        "SELECT sum(CASE WHEN to_book = 'customer' THEN amount ELSE -amount END) FROM transfers"
        " WHERE account_id = $1",
        caller.id,
    )
    assert row["sum"] == world.service.balance(caller)


def visit(page: Page, world: World, caller: Caller, path: str = PLACE) -> Page:
    bring_session(page, world.service.base, open_session(world.service, caller))
    page.goto(path)
    return page


def follow(page: Page, name: str) -> None:
    page.get_by_role("link", name=name, exact=True).click()


def stay(page: Page) -> None:
    page.evaluate("document.documentElement.dataset.stayed = 'yes'")


def expect_stayed(page: Page) -> None:
    expect(page.locator("html")).to_have_attribute("data-stayed", "yes")


def expect_credited(page: Page, amount: str, balance: str) -> None:
    told = page.get_by_text(f"{amount} was added to your balance.", exact=True)
    expect(told).to_be_visible(timeout=CREDITED_MS)
    expect(page.locator(".bar .balance strong")).to_have_text(balance)


def amount_of(page: Page) -> Locator:
    return page.get_by_label("Amount in US dollars")


def fill_wallet(page: Page, wallet: str, amount: str = "10") -> None:
    amount_of(page).fill(amount)
    press(page, "Pay with mobile money or card")
    expect(amount_of(page)).to_have_value(f"{amount}.00")
    page.get_by_role("radio", name=wallet, exact=True).check()


def top_up_of(page: Page) -> str:
    page.wait_for_url(re.compile(r"/top-up/top_\w+$"))
    return page.url.rpartition("/")[2]


@pytest.mark.long
def test_mobile_money_is_credited_while_somebody_looks(
    world: World, caller: Caller, open_page: Opener
) -> None:
    page = visit(open_page(world.service.base, viewport=PHONE), world, caller)
    follow(page, "US$20")
    expect(amount_of(page)).to_have_value("20")
    expect(page.locator("[data-price]").first).to_have_text("500")
    inspect(page, "top-up", SHIFT_MAX)
    press(page, "Pay with mobile money or card")
    expect(amount_of(page)).to_have_value("20.00")
    amount_of(page).fill("10")
    expect(page.locator("[data-price]").first).to_have_text("250")
    amount_of(page).fill("4")
    expect(page.locator("[data-price]").first).to_have_text("\u2013")
    press(page, "Pay")
    expect(page.get_by_role("alert")).to_contain_text("Amount in US dollars: Enter an amount from US$5")
    take_faults(page)
    amount_of(page).fill("10")
    # People write their number as they dial it.
    page.get_by_label("Phone number").fill("077 120 0001")
    page.get_by_role("button", name="Pay", exact=True).dblclick()
    reference = top_up_of(page)
    stay(page)
    expect(
        page.get_by_text("Enter your PIN on +263\xa077\xa0120\xa00001 to confirm the payment.")
    ).to_be_visible()
    expect(page.get_by_text("Dial *151*2*4# and enter your PIN.")).to_be_visible()
    inspect(page, "top-up-waiting", SHIFT_MAX)
    world.paynow.move(world.paynow.wait_for_payment(reference), "Paid")
    expect_credited(page, "US$10.00", "US$11.00")
    expect_stayed(page)
    inspect(page, "top-up-credited", SHIFT_MAX)
    assert world.paynow.charged(reference) == Decimal(10)
    follow(page, "Receipt or invoice")
    expect(page.get_by_role("button", name="Print", exact=True)).to_be_visible()
    expect(page.get_by_text("EcoCash (Paynow)")).to_be_visible()
    page.emulate_media(media="print")
    expect(page.locator(".bar")).to_be_hidden()
    expect(page.get_by_role("button", name="Print", exact=True)).to_be_hidden()
    expect(page.locator(".back")).to_be_hidden()
    screenshot(page, "top-up-receipt-paper")
    page.emulate_media(media="screen")
    page.goto(PLACE)
    expect(page.locator(".wide tbody tr").first).to_contain_text("credited")


@pytest.mark.long
def test_a_card_is_paid_on_paynows_page_and_the_way_back_is_found(
    world: World, caller: Caller, open_page: Opener
) -> None:
    page = visit(open_page(world.service.base, viewport=PHONE, also=[world.paynow.url]), world, caller)
    fill_wallet(page, "Card")
    expect(page.get_by_label("Phone number")).to_be_hidden()
    press(page, "Pay")
    reference = top_up_of(page)
    expect(page.get_by_role("link", name="Continue to the card page")).to_be_visible()
    follow(page, "Continue to the card page")
    press(page, "Faked success")
    assert top_up_of(page) == reference
    expect_credited(page, "US$10.00", "US$11.00")


@ways()
def test_a_wallet_is_chosen_charged_and_its_receipt_read(
    world: World, caller: Caller, open_page: Opener, way: Way
) -> None:
    hand = Hand.open(open_page, world.service.base, way)
    page = visit(hand.page, world, caller)
    hand.link("US$10")
    hand.button("Pay with mobile money or card")
    hand.link("US$5")
    expect(amount_of(page)).to_have_value(re.compile(r"^5(\.00)?$"))
    expect(page.locator("[data-price]").first).to_have_text("125")
    hand.choose(page.get_by_role("radio", name="OneMoney"))
    hand.fill("Phone number", "0771200002")
    world.paynow.outcomes["0771200002"] = Outcome("Paid")
    hand.button("Pay")
    top_up_of(page)
    told = page.get_by_text("US$5.00 was added to your balance.", exact=True)
    if not way.javascript:
        for _ in range(60):
            if told.is_visible():
                break
            hand.link("Refresh")
    expect(told).to_be_visible(timeout=CREDITED_MS)
    hand.link("Receipt or invoice")
    expect(page.get_by_text("Total")).to_be_visible()
    expect(page.get_by_role("button", name="Print", exact=True)).to_be_visible(visible=way.javascript)


@pytest.mark.long
def test_a_voucher_is_redeemed_and_what_is_left_is_handed_over(
    world: World, caller: Caller, open_page: Opener
) -> None:
    pin = world.issuers.one_voucher.issue("150.00")
    page = visit(open_page(world.service.base, viewport=PHONE), world, caller)
    press(page, "Redeem a voucher")
    page.get_by_role("radio", name="OTT voucher").check()
    expect(page.get_by_label("Value in rand")).to_be_hidden()
    page.get_by_role("radio", name="1Voucher").check()
    page.get_by_label("PIN", exact=True).fill("12")
    page.get_by_label("Value in rand").fill("100")
    expect(page.get_by_text("Adds US$5.40 to your balance.")).to_be_visible()
    press(page, "Redeem")
    expect(page.get_by_role("alert")).to_contain_text("PIN: Enter the 16 digits of the 1Voucher PIN.")
    expect(page.get_by_label("PIN", exact=True)).to_have_value("")
    take_faults(page)
    page.get_by_label("PIN", exact=True).fill(f"{pin[:4]} {pin[4:8]}-{pin[8:]}")
    press(page, "Redeem")
    expect_credited(page, "US$5.40", "US$6.40")
    expect(page.get_by_text("worth R50.00")).to_be_visible()
    inspect(page, "top-up-change", SHIFT_MAX)
    press(page, "I have written it down")
    expect(page.get_by_text("worth R50.00")).to_be_hidden()
    follow(page, "Receipt or invoice")
    expect(page.get_by_text("R18.50 per US$1 (rate of 1 Nov 2026)")).to_be_visible()
    assert world.issuers.one_voucher.taken(pin) == 100


async def deposit(database: Database, caller: Caller, address: str, place: int, *, final: bool) -> str:
    """Record a deposit of three USDT as the chain watcher does; credit it once it is final."""
    found = ChainDeposit(
        tx_hash=f"0x{caller.id.hex}{place:032x}",
        log_index=0,
        block_number=1,
        block_hash="0x" + "1" * 64,
        sender="0x" + "2" * 40,
        address=address.lower(),
        units=3 * 10**18,
    )
    async with database.transaction() as connection:
        await usdt_store.insert_cursor(connection, CHAIN_ID, "0x0", ChainCursor(1, found.block_hash))
        await deposits.record(connection, CHAIN_ID, [found])
        if final:
            await deposits.mark_final(connection, CHAIN_ID, [found])
    await credit_deposits(database, CHAIN_ID, caller.id)
    return found.tx_hash


@pytest.mark.long
def test_usdt_is_seen_held_and_credited_while_the_page_is_open(
    world: World, caller: Caller, open_page: Opener
) -> None:
    page = visit(open_page(world.service.base, viewport=PHONE), world, caller)
    press(page, "Pay with USDT")
    press(page, "Show my deposit address")
    address = page.locator("#address").inner_text()
    page.get_by_label("Amount (optional)").fill("7.5")
    press(page, "Update the link")
    link = page.get_by_role("link", name="Open my wallet with 7.5 USDT")
    expect(link).to_have_attribute("href", re.compile(rf"{address}&uint256=7500000000000000000$"))
    stay(page)
    world.service.run(deposit, caller, address, 1, final=False)
    expect(page.get_by_text("1 of 15 confirmations")).to_be_visible(timeout=CREDITED_MS)
    world.service.run(deposit, caller, address, 1, final=True)
    expect(page.get_by_text("held until US$5")).to_be_visible(timeout=CREDITED_MS)
    inspect(page, "top-up-usdt-held", SHIFT_MAX)
    tx_hash = world.service.run(deposit, caller, address, 2, final=True)
    expect(page.locator(".bar .balance strong")).to_have_text("US$7.00", timeout=CREDITED_MS)
    expect_stayed(page)
    page.get_by_role("link", name="Payment", exact=True).first.click()
    expect(page.get_by_text("US$6.00 was added to your balance.")).to_be_visible()
    follow(page, "Receipt or invoice")
    expect(page.get_by_text(tx_hash)).to_be_visible()


@ways()
def test_the_address_for_usdt_is_given_by_a_button(
    world: World, caller: Caller, open_page: Opener, way: Way
) -> None:
    hand = Hand.open(open_page, world.service.base, way)
    page = visit(hand.page, world, caller, PLACE + "?amount=7.5")
    hand.button("Pay with USDT")
    expect(page).to_have_url(re.compile(r"/usdt\?amount=7\.50$"))
    page.reload()
    hand.inspect("top-up-usdt-none", SHIFT_MAX)
    rows = "SELECT id::text FROM top_ups WHERE account_id = $1 UNION ALL SELECT address FROM usdt_addresses"
    before = world.service.sql(rows, caller.id)
    hand.button("Show my deposit address")
    expect(page.locator("#address")).to_have_text(re.compile(r"^0x\w{40}$"))
    expect(page.get_by_role("link", name="Open my wallet with 7.5 USDT")).to_be_visible()
    assert len(world.service.sql(rows, caller.id)) == len(before) + 1
    hand.inspect("top-up-usdt", SHIFT_MAX)
