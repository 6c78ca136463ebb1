"""Papers name both parties, the tax and their number, stay as they are, and belong to one account."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import pytest

from tests.papers.test_statements import move
from tests.support.identity.customers import link, open_session
from tests.support.papers import read_pdf
from tests.support.postgres.databases import clone
from tests.support.processes.service import Service, run_web
from tests.support.topups.payers import (
    ENVIRONMENT,
    HOSTILE,
    LEDGER,
    Payer,
    path_of,
    sign_in,
    words,
)
from tumira.core.days import local_midnight
from tumira.core.ids import TopUpId
from tumira.identity import manage_accounts
from tumira.papers.content import month_before, write_month
from tumira.papers.statements import month_of
from tumira.topups.states import Paid, Reversed

PAPERS: Final = "/dashboard/papers"
BILLING: Final = "/dashboard/settings/billing"
SELLER: Final = {
    "TUMIRA_SELLER_NAME": "Sanganai SMS & Sons (Pvt) Ltd",
    "TUMIRA_SELLER_ADDRESS": "12 Samora Machel Avenue, Harare",
    "TUMIRA_SELLER_TAX_NUMBER": "220012345",
    "TUMIRA_SELLER_TAX_RATE": "15.50",
}


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with clone(server_url) as url, run_web(url, **ENVIRONMENT, **SELLER) as running:
        yield running


@pytest.fixture
def payer(service: Service) -> Payer:
    return sign_in(service)


def pay(payer: Payer, reference: str) -> TopUpId:
    top_up_id = payer.start()
    payer.tell(top_up_id, Paid(reference, Decimal(10)))
    return top_up_id


def credit(payer: Payer, amount: str, note: str, *, is_payment: bool = True) -> int:
    """Let the operator credit an account, and return the number of the entry."""
    payer.service.run(
        manage_accounts.credit,
        payer.caller.id,
        Decimal(amount),
        note=note,
        actor="cli:root",
        is_payment=is_payment,
    )
    (row,) = payer.service.sql("SELECT max(id) FROM transfers WHERE account_id = $1", payer.caller.id)
    return int(row["max"])


def number_of(page: str) -> str:
    found = re.search(r"Number ((?:INV|REC|CN)-\d{6,}|\d{6,})", words(page))
    assert found is not None, page
    return found[1]


def test_a_paper_names_the_parties_and_the_vat_as_page_and_as_pdf(payer: Payer) -> None:
    page = payer.receipt(path_of(pay(payer, "PN-1")))
    said = words(page)
    for expected in (
        "Invoice From Sanganai SMS & Sons (Pvt) Ltd 12 Samora Machel Avenue, Harare",
        "Tax number: 220012345 http",
        "To Test Test +263",
        "Prepaid credit for SMS messages US$8.66 VAT 15.5% US$1.34 Total US$10.00",
        "Method EcoCash (Paynow) Amount paid US$10.00",
    ):
        assert expected in said, expected
    answer = payer.ask(f"{PAPERS}/{number_of(page)}.pdf")
    assert answer.headers["content-type"] == "application/pdf"
    assert answer.headers["content-disposition"] == f'attachment; filename="{number_of(page)}.pdf"'
    printed = " ".join(read_pdf(answer.content).split())
    for expected in ("Sanganai SMS & Sons (Pvt) Ltd", "VAT 15.5% US$1.34", "Total US$10.00", number_of(page)):
        assert expected in printed, expected


def test_a_paper_needs_no_settings_and_stays_when_they_come(payer: Payer) -> None:
    top_up_id = pay(payer, "PN-2")
    with run_web(payer.service.url, **ENVIRONMENT) as plain:
        page = Payer(plain, payer.caller, payer.token).receipt(path_of(top_up_id))
    said = words(page)
    assert "Receipt From Tumira http" in said
    assert "Prepaid credit for SMS messages US$10.00 Total US$10.00" in said
    for missing in ("VAT", "Tax number", "None"):
        assert missing not in said
    drawn = payer.ask(f"{PAPERS}/{number_of(page)}.pdf").content
    # The other process has a seller, and the customer details by now.
    payer.post(BILLING, billing_name="Changed", address="1 Road", tax_number="7", statement_email="")
    assert words(payer.receipt(path_of(top_up_id))) == said
    assert payer.ask(f"{PAPERS}/{number_of(page)}.pdf").content == drawn


def test_billing_details_stand_on_later_papers(payer: Payer) -> None:
    hostile = payer.post(
        BILLING, billing_name="x" * 101, address=HOSTILE, tax_number="7", statement_email="x"
    )
    assert hostile.status_code == 422
    assert "at most 100 characters" in hostile.text
    assert "<script>alert" not in hostile.text
    saved = payer.post(
        BILLING,
        billing_name="Tšhwane Traders",
        address=f"1 Church Street {HOSTILE}",
        tax_number="4010112345",
        statement_email="books@example.org",
    )
    assert saved.headers["location"] == f"{BILLING}?done=saved"
    page = payer.receipt(path_of(pay(payer, "PN-6")))
    assert "To Tšhwane Traders 1 Church Street" in words(page)
    assert "<script>alert" not in page
    assert "Tax number: 4010112345" in words(page)
    assert "Billing details changed" in words(payer.page("/dashboard/settings/changes"))


def test_a_payment_to_the_operator_has_a_paper_and_a_gift_has_none(payer: Payer) -> None:
    entry = credit(payer, "20.25", f"Cash at the desk {HOSTILE}")
    gift = credit(payer, "1", "Sorry", is_payment=False)
    path = link(payer.page(LEDGER), "Credit, with receipt")
    assert path == f"{LEDGER}/{entry}/receipt"
    page = payer.receipt(path.removesuffix("/receipt"))
    assert "<script>alert" not in page
    said = words(page)
    assert "US$17.53 VAT 15.5% US$2.72 Total US$20.25" in said
    assert "Method Credited manually Note Cash at the desk" in said
    assert payer.ask(f"{LEDGER}/{gift}/receipt").status_code == 404


def test_a_reversal_has_a_credit_note_that_its_paper_leads_to(payer: Payer) -> None:
    first, second = pay(payer, "PN-3"), pay(payer, "PN-4")
    before, after = (number_of(payer.receipt(path_of(one))) for one in (first, second))
    assert int(before.removeprefix("INV-")) < int(after.removeprefix("INV-"))
    payer.tell(first, Reversed("disputed"))
    page = payer.receipt(path_of(first))
    assert number_of(page) == before
    assert "This payment was reversed later" in words(page)
    found = re.search(r'href="(/dashboard/papers/CN-\d+)"', page)
    assert found is not None
    note = words(payer.page(found[1]))
    assert f"Corrects Invoice {before}" in note
    assert "VAT 15.5% US$1.34 Total US$10.00" in note
    listed = words(payer.page(PAPERS))
    for number in (before, after, found[1].rpartition("/")[2]):
        assert number in listed


def test_a_statement_is_a_page_a_pdf_and_a_csv(service: Service) -> None:
    caller = service.open_account("0")
    payer = Payer(service, caller, open_session(service, caller))
    month = month_before(month_of(datetime.now(UTC)))
    at = local_midnight(month) + timedelta(days=4)
    moves = [("top-up", Decimal("12.5"), at), ("send", Decimal("0.04"), at + timedelta(days=1))]
    payer.service.run(move, payer.caller.id, moves)
    base = f"{PAPERS}/statements/{write_month(month)}"
    assert link(payer.page(PAPERS), f"{month:%B %Y}") == base
    page = payer.page(base)
    said = words(page)
    assert "The movements add up to the closing balance" in said
    assert "This statement never changes." in said
    assert "Top-ups (1) +US$12.50" in said
    assert "Batches (1) \N{MINUS SIGN}US$0.04" in said
    assert link(page, f"{month + timedelta(days=5):%-d %b %Y}") == (
        f"{LEDGER}?from={month + timedelta(days=5)}&to={month + timedelta(days=5)}"
    )
    printed = " ".join(read_pdf(payer.ask(base + ".pdf").content).split())
    assert "Batches 1 -US$0.04" in printed
    rows = payer.table(base + ".csv")
    assert [rows[0]["kind"], rows[-1]["kind"]] == ["opening", "closing"]
    assert {"paid_usd": "0.0400", "kind": "sends"}.items() <= rows[-2].items()
    (stored,) = payer.service.sql(
        "SELECT closing FROM statements WHERE account_id = $1 AND month = $2", payer.caller.id, month
    )
    assert Decimal(rows[-1]["balance_after_usd"]) == stored["closing"]


def test_a_paper_belongs_to_one_account(payer: Payer) -> None:
    other = sign_in(payer.service)
    top_up_id, entry = pay(other, "PN-5"), credit(other, "3", "Cash")
    number = number_of(other.receipt(path_of(top_up_id)))
    assert other.ask(f"{LEDGER}/{entry}/receipt").status_code == 303
    deduction = credit(payer, "-0.5", "A mistake")
    payer.send()
    (sent,) = payer.service.sql(
        "SELECT max(id) FROM transfers WHERE account_id = $1 AND batch_id IS NOT NULL", payer.caller.id
    )
    for one in (entry, deduction, sent["max"], 0, 10**17, 10**18, "x", "-1", "1.0", "\u0663"):
        answer = payer.ask(f"{LEDGER}/{one}/receipt")
        assert answer.status_code == 404, one
    assert payer.ask(path_of(top_up_id) + "/receipt").status_code == 404
    for path in (
        f"/{number}",
        f"/{number}.pdf",
        "/INV-999999",
        "/x",
        "/x.pdf",
        "/statements/2001-01",
        "/statements/2026-13",
        "/statements/2099-01.pdf",
        "/statements/x.csv",
        "?before=x",
    ):
        assert payer.ask(PAPERS + path).status_code == 404, path
