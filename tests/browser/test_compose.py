"""The compose form counts, prices and warns while typing as the server does, and works without scripts."""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from random import Random
from typing import Any, Final

import pytest
from playwright.sync_api import Page, Request, expect

from tests.dashboard.test_compose import Writer, sign_in
from tests.support.browser import PHONE, Opener, bring_session, check_accessibility, overflows, press
from tests.support.postgres.databases import clone
from tests.support.processes.service import Service, run_web
from tumira.audit_log import OPERATOR
from tumira.html.page import write_usd
from tumira.postgres.pool import Database
from tumira.pricing.actions import add_destination, set_price
from tumira.pricing.destinations import Destination, Price, PriceStatus, Tariff
from tumira.pricing.phone_numbers import Entry, read_recipients
from tumira.pricing.quote import Quote, ValidRequest, quote
from tumira.pricing.store import get_tariff
from tumira.sending.compose import Review

COMPOSE: Final = "/dashboard/compose"
ORDER: Final = "Your order 1042 has been shipped and will arrive on Friday."
OFFER: Final = "Get 20% off your next order with the code SAVE20!"
MANY: Final = "+263 77 120 0001, 00263771200002; +27821230001\n077120003 +447700900123"
GENERATED: Final = 100

WRITTEN: Final = (
    MANY,
    "",
    " ,;\n\t\r\n",
    "+263771200001 2",
    "+26377120000\n1",
    "+263 (77) 120-0001;+263.77.120.0002",
    "\u202a+263 77 120 0001\u202c\ufeff+27\xa082\u2009123\u202f0001\x85+27821230002\u2028x",
    "+260 97 120 001, +260971200012 +26097120001",
    "+2609712 0 0 1 2 3",
    "+2601 971200, +260971200001",
    "077 120 0001 263 77 120 0001 263771200001",
    "0771200001 77-120-0002, (0)77/120.0003; 27821230001 +27 (0)82 123 0001",
    "0242 000 000, 0821230001, +27 11 000 0000, 2630771200001 123 1234567",
    "+263771200001 +263771200001 00263771200001",
    "Anna <b>, \u0663\u0664, +\uff12\uff16\uff13771200001, \U0001f600 + 1",
    "+ 263 77 120 0001 00 27 82 123 0001",
    "+12345678901234567890 00 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9",
)
PIECES: Final = (
    *("+263", "+27", "+260", "00263", "77", "120", "0001", "771200001", "821230001", "97120001"),
    *("0", "1", "00", "+", "x", " ", " ", ",", ";", "\n", "\t", "-", "(", ")", "\xa0", "\u200f"),
)
READ: Final = """(texts) => {
  const data = JSON.parse(document.getElementById("compose-data").textContent);
  const compose = Tumira.compose;
  const tariff = compose.prepare(data);
  return texts.map((text) => {
    const entries = compose.read(text, tariff);
    const sorted = compose.sort(entries, tariff);
    return [entries.map((one) => [one.written, one.number]), Array.from(sorted.counts), sorted.rejected];
  });
}"""


def texts() -> Sequence[str]:
    """Give texts that look like lists of numbers, the same in each run."""
    random = Random(16)
    return [*WRITTEN, *("".join(random.choices(PIECES, k=random.randrange(30))) for _ in range(GENERATED))]


@pytest.fixture(scope="module")
def dashboard(server_url: str) -> Iterator[Service]:
    with clone(server_url) as url, run_web(url) as running:
        running.run(add_destination, Destination("ZM", "260", "Zambia", (8, 9)), OPERATOR)
        running.run(set_price, Price("sms", "ZM", Decimal("0.0123"), PriceStatus.ACTIVE), OPERATOR)
        running.run(add_destination, Destination("BW", "2601", "Botswana", (8,)), OPERATOR)
        running.run(set_price, Price("sms", "BW", Decimal("0.03"), PriceStatus.COMING_SOON), OPERATOR)
        yield running


async def _tariff(database: Database) -> Tariff:
    async with database.connection() as connection:
        return await get_tariff(connection)


def visit(customer: Writer, page: Page) -> Page:
    bring_session(page, customer.service.base, customer.token)
    page.goto(COMPOSE)
    return page


def write(page: Page, recipients: str, message: str) -> None:
    page.get_by_label("Recipients").fill(recipients)
    page.get_by_label("Message").fill(message)


def _server_reads(tariff: Tariff, text: str) -> list[Any]:
    entries: Sequence[Entry] = read_recipients(tariff, text, "ZW")
    priced = quote(tariff, ValidRequest("sms", [one.number for one in entries], "", None, dry_run=False))
    assert isinstance(priced, Quote)
    return [
        [[one.written, one.number] for one in entries],
        [[leg.country, leg.count] for leg in priced.legs],
        [list(pair) for pair in Review(tariff, entries, priced, ()).rejected],
    ]


def test_the_browser_reads_numbers_and_writes_amounts_as_the_server_does(
    dashboard: Service, open_page: Opener
) -> None:
    page = visit(sign_in(dashboard), open_page(dashboard.base))
    tariff = dashboard.run(_tariff)
    for text, read in zip(texts(), page.evaluate(READ, texts()), strict=True):
        assert read == _server_reads(tariff, text), text
    amounts = [0, 1, 10, 99, 100, 123, 400, 9999, 10_000, 10_001, 12_345_600, 99_999_999_900]
    written = page.evaluate("(amounts) => amounts.map(Tumira.compose.usd)", amounts)
    assert written == [write_usd(Decimal(amount) / 10_000) for amount in amounts]


def test_segments_encoding_room_and_prices_are_shown_while_typing(
    dashboard: Service, open_page: Opener
) -> None:
    page = visit(sign_in(dashboard), open_page(dashboard.base))
    write(page, MANY, "a" * 160)
    size = page.locator("#size")
    expect(size).to_have_text("1 segmentGSM-70 characters left")
    expect(page.locator("tr[data-country=ZW]")).to_contain_text("2US$0.08")
    expect(page.locator("tr[data-country=ZA]")).to_contain_text("1US$0.02")
    expect(page.locator("#total")).to_have_text("US$0.10")
    expect(page.locator("#rejected li")).to_have_count(2)
    page.get_by_label("Message").press_sequentially("b")
    expect(page.get_by_text("2 segments", exact=True)).to_be_visible()
    expect(size).to_contain_text("145 characters left")
    expect(page.locator("#total")).to_have_text("US$0.20")
    page.get_by_label("Message").fill("a" * 766)
    expect(size).to_contain_text("6 segments")
    expect(size).to_contain_text("at most 5")
    # Said once, after a rest.
    expect(page.locator("#spoken")).to_contain_text("Segments: 6")
    # What is shown while typing is what is confirmed.
    write(page, "+260971200001, +26097120001 " + MANY, f"{ORDER}\n\n{ORDER} []\u20ac\U0001f600{ORDER}")
    total = page.locator("#total").inner_text()
    segments = page.locator("#size strong").inner_text()
    encoding = page.locator("#size .badge").inner_text()
    press(page, "Send")
    expect(page.locator("h1")).to_have_text("Send this message?")
    expect(page.locator("#total strong")).to_have_text(total)
    expect(page.locator(".size strong")).to_have_text(segments)
    expect(page.locator(".size .badge")).to_have_text(encoding)


def test_what_forces_ucs_2_is_named_and_can_be_spelt_plainly(dashboard: Service, open_page: Opener) -> None:
    page = visit(sign_in(dashboard), open_page(dashboard.base))
    write(page, MANY, "a" * 75 + "\u2019\u200b")
    expect(page.get_by_text("UCS-2", exact=True)).to_be_visible()
    spelling = page.locator("#spelling")
    expect(spelling).to_contain_text("\u2019 zero-width space (U+200B)")
    expect(spelling).to_contain_text("saves 1 segment, US$0.10 for these recipients")
    press(page, "Use GSM-7 spelling")
    expect(page.get_by_label("Message")).to_have_value("a" * 75 + "'")
    expect(page.get_by_text("GSM-7", exact=True)).to_be_visible()
    expect(spelling).to_be_empty()
    page.keyboard.press("Control+z")
    expect(page.get_by_label("Message")).to_have_value("a" * 75 + "\u2019\u200b")
    page.get_by_label("Message").fill("\u4f60\u2019")
    expect(spelling).to_contain_text("There is no plain spelling for \u4f60")
    expect(page.get_by_role("button", name="Use GSM-7 spelling")).to_have_count(0)


@pytest.mark.long
def test_the_verdict_is_asked_for_after_a_rest_and_shows_the_words(
    dashboard: Service, open_page: Opener
) -> None:
    customer = sign_in(dashboard)
    page = visit(customer, open_page(dashboard.base, viewport=PHONE, dark=True))
    asked: list[Request] = []

    def note(request: Request) -> None:
        if request.resource_type == "fetch":
            asked.append(request)

    page.on("request", note)
    message = page.get_by_label("Message")
    message.press_sequentially(f"{ORDER} {OFFER}")
    verdict = page.locator("#verdict")
    expect(verdict.locator("mark").first).to_be_visible()
    expect(verdict).to_contain_text(f"“{OFFER}”")
    assert overflows(page) == []
    check_accessibility(page)
    # A machine that is busy may type with pauses, but never so that each key would be worth a request.
    assert len(asked) < len(ORDER) / 4
    assert {request.url for request in asked} == {dashboard.base + COMPOSE + "/verdict"}
    message.fill(ORDER)
    expect(verdict).to_have_text("The text was checked: it can be sent.")
    message.fill("Short")
    expect(verdict).to_contain_text("No marketing")
    # Who is signed out while typing is told before anything is lost.
    dashboard.sql("DELETE FROM sessions WHERE account_id = $1", customer.caller.id)
    message.fill(ORDER)
    expect(verdict).to_contain_text("You are signed out.")


@pytest.mark.parametrize("javascript", [True, False], ids=["scripts", "no scripts"])
def test_a_message_is_composed_confirmed_and_sent(
    dashboard: Service, open_page: Opener, *, javascript: bool
) -> None:
    customer = sign_in(dashboard)
    page = visit(customer, open_page(dashboard.base, viewport=PHONE, javascript=javascript))
    write(page, MANY, f"{ORDER}\n{OFFER}")
    press(page, "Send")
    expect(page.get_by_role("alert")).to_contain_text("marketing")
    expect(page.locator("#verdict mark").first).to_be_visible()
    expect(page.get_by_label("Message")).to_have_value(f"{ORDER}\n{OFFER}")
    page.get_by_label("Message").fill(f"{ORDER}\nThank you.")
    page.get_by_label("Reference (optional)").fill("order-1042")
    press(page, "Send")
    press(page, "Back")
    expect(page.get_by_label("Recipients")).to_have_value(MANY)
    expect(page.get_by_label("Message")).to_have_value(f"{ORDER}\nThank you.")
    expect(page.get_by_label("Reference (optional)")).to_have_value("order-1042")
    press(page, "Send")
    expect(page.locator("#total")).to_contain_text("US$0.10")
    page.get_by_role("button", name="Confirm", exact=True).dblclick()
    page.wait_for_url(re.compile("/dashboard/batches/bat_"))
    (batch,) = customer.batches()
    assert tuple(batch.values()) == (f"{ORDER}\nThank you.", "order-1042", 3, Decimal("0.1000"))
