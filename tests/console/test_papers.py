"""Operators see the seller, tax rates and numbers, and every account's papers; gifts have none."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import httpx
import pytest

from tests.papers.test_statements import move
from tests.support.console.operators import NASTY, hidden
from tests.support.full_service import add_top_up, paid
from tests.support.identity.customers import link, words
from tests.support.papers import read_pdf
from tests.support.processes.service import Caller, Service
from tumira.core.days import local_midnight
from tumira.papers.content import month_before, write_month
from tumira.papers.statements import month_of

PAPERS: Final = "/operator/papers"


@pytest.fixture(scope="module")
def caller(service: Service) -> Caller:
    return service.open_account("0")


def test_an_accounts_papers_are_shown_and_downloaded(
    service: Service, viewer: httpx.Client, caller: Caller
) -> None:
    month = month_before(month_of(datetime.now(UTC)))
    at = local_midnight(month) + timedelta(days=1)
    service.run(move, caller.id, [("send", Decimal("0.04"), at)])
    service.sql("UPDATE accounts SET business = $2 WHERE id = $1", caller.id, NASTY)
    add_top_up(service, caller.id, paid())
    base = f"/operator/accounts/{caller.account_id}"
    assert link(viewer.get(base).text, "Statements and invoices") == base + "/papers"
    page = viewer.get(base + "/papers")
    assert NASTY not in page.text
    paper = link(page.text, "Receipt REC-000001")
    assert paper == f"{PAPERS}/REC-000001"
    assert "Total US$5.00" in words(viewer.get(paper).text)
    assert "Total US$5.00" in " ".join(read_pdf(viewer.get(paper + ".pdf").content).split())
    statement = f"{base}/papers/{write_month(month)}"
    assert link(page.text, f"{month:%B %Y}") == statement
    assert "The movements add up" in words(viewer.get(statement).text)
    assert "Closing balance" in read_pdf(viewer.get(statement + ".pdf").content)
    assert viewer.get(statement + ".csv").text.count("\r\n") >= 4
    for path in (
        PAPERS + "/INV-000009",
        PAPERS + "/x",
        PAPERS + "/x.pdf",
        base + "/papers/2001-01",
        base + "/papers/x.csv",
        f"/operator/accounts/acc_{'0' * 26}/papers",
    ):
        assert viewer.get(path).status_code == 404, path


def test_the_page_of_papers_shows_who_sells_and_at_which_tax(viewer: httpx.Client) -> None:
    said = words(viewer.get(PAPERS).text)
    assert "No seller is set" in said
    assert "ZA 15% 1 Jan 2026 Tax invoice tumira" in said
    assert "ZW 15.5% 1 Jan 2026 Invoice tumira" in said


def test_a_credit_that_nobody_paid_for_has_no_paper(
    service: Service, admin: httpx.Client, caller: Caller
) -> None:
    base = f"/operator/accounts/{caller.account_id}"
    before = service.sql("SELECT count(*) FROM papers_due")[0][0]
    for direction, said, more in (
        ("gift", "Invoice or receipt no", 0),
        ("credit", "Invoice or receipt yes", 1),
    ):
        form = {"direction": direction, "amount": "2.5", "credit_note": "Because"}
        confirm = admin.post(base + "/credit", data=form)
        assert said in words(confirm.text)
        assert admin.post(base + "/credit/confirm", data=hidden(confirm)).status_code == 303
        assert service.sql("SELECT count(*) FROM papers_due")[0][0] == before + more
