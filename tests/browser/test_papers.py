"""Journeys through statements, invoices and billing details."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from playwright.sync_api import expect

from tests.papers.test_statements import move
from tests.support.browser import Opener, bring_session
from tests.support.full_service import add_top_up, paid
from tests.support.hand import Hand, Way, ways
from tests.support.identity.customers import open_session
from tests.support.papers import read_pdf
from tests.support.processes.service import Service
from tumira.core.days import local_midnight
from tumira.papers.content import month_before
from tumira.papers.statements import month_of


@ways("phone by mouse")
def test_details_are_saved_and_stand_on_an_invoice_and_a_statement_is_read(
    service: Service, open_page: Opener, way: Way
) -> None:
    caller = service.open_account("0")
    month = month_before(month_of(datetime.now(UTC)))
    at = local_midnight(month) + timedelta(days=8)
    service.run(move, caller.id, [("send", Decimal("0.04"), at), ("refund", Decimal("0.04"), at)])
    hand = Hand.open(open_page, service.base, way)
    page = hand.page
    bring_session(page, service.base, open_session(service, caller))
    page.goto("/dashboard/papers")
    hand.link("billing details")
    hand.fill("Name on invoices (optional)", "Tšhwane Traders")
    hand.fill("Address (optional)", "1 Church Street, Pretoria")
    hand.fill("Tax number (optional)", "4010112345")
    hand.fill("Email the monthly statement to (optional)", "books@example.org")
    hand.button("Save")
    expect(page.get_by_text("Saved. Invoices and statements from now on show it.")).to_be_visible()
    hand.inspect("billing")

    add_top_up(service, caller.id, paid())
    hand.go_to("Statements")
    hand.inspect("papers")
    hand.press(page.get_by_role("link", name=re.compile(r"^Receipt REC-\d{6}$")))
    hand.expect_heading("Receipt")
    expect(page.get_by_text("Tšhwane Traders")).to_be_visible()
    expect(page.get_by_text("Tax number: 4010112345")).to_be_visible()
    expect(page.get_by_role("button", name="Print")).to_be_visible(visible=way.javascript)
    hand.inspect("paper")
    downloaded = hand.download(page.get_by_role("link", name="Download PDF"))
    assert "Tšhwane Traders" in read_pdf(downloaded.read_bytes())

    hand.go_to("Statements")
    hand.link(f"{month:%B %Y}")
    hand.expect_heading(f"Statement, {month:%B %Y}")
    expect(page.get_by_text("The movements add up to the closing balance")).to_be_visible()
    hand.inspect("statement")
    printed = read_pdf(hand.download(page.get_by_role("link", name="Download PDF")).read_bytes())
    assert "Closing balance" in printed
    listed = hand.download(page.get_by_role("link", name="Download CSV")).read_text()
    assert ",sends," in listed
    hand.link(f"{month + timedelta(days=8):%-d %b %Y}")
    hand.expect_heading("Ledger")
    expect(page.locator("tbody tr")).to_have_count(2)
