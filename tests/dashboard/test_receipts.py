"""Receipts name the seller, the tax and their number, and belong to one account."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import pytest

from tests.support.identity.customers import link
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
from tumira.core.ids import TopUpId
from tumira.identity import manage_accounts
from tumira.topups.states import Paid, Reversed

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


def credit(payer: Payer, amount: str, note: str) -> int:
    """Let the operator credit an account, and return the number of the entry."""
    payer.service.run(manage_accounts.credit, payer.caller.id, Decimal(amount), note=note, actor="cli:root")
    (row,) = payer.service.sql("SELECT max(id) FROM transfers WHERE account_id = $1", payer.caller.id)
    return int(row["max"])


def receipt_of(payer: Payer, top_up_id: TopUpId) -> str:
    return words(payer.page(path_of(top_up_id) + "/receipt"))


def number_of(said: str) -> int:
    found = re.search(r"Receipt number (\d{6,})", said)
    assert found is not None, said
    return int(found[1])


def test_a_receipt_names_the_seller_and_the_vat(payer: Payer) -> None:
    said = receipt_of(payer, pay(payer, "PN-1"))
    for expected in (
        "Sanganai SMS & Sons (Pvt) Ltd 12 Samora Machel Avenue, Harare Tax number: 220012345 http",
        "Customer Test",
        "Prepaid credit for SMS messages US$8.66 VAT 15.5% US$1.34 Total US$10.00",
        "Method EcoCash (Paynow) Amount paid US$10.00",
    ):
        assert expected in said, expected


def test_a_receipt_needs_no_settings(payer: Payer) -> None:
    top_up_id = pay(payer, "PN-2")
    with run_web(payer.service.url, **ENVIRONMENT) as plain:
        said = receipt_of(Payer(plain, payer.caller, payer.token), top_up_id)
    assert "Receipt Tumira http" in said
    assert "Prepaid credit for SMS messages US$10.00 Total US$10.00" in said
    assert "VAT" not in said
    assert "Tax number" not in said
    assert "None" not in said


def test_a_credit_of_the_operator_has_a_receipt_too(payer: Payer) -> None:
    entry = credit(payer, "20.25", f"Cash at the desk {HOSTILE}")
    page = payer.page(LEDGER)
    path = link(page, f"Credit, receipt {entry:06}")
    assert path == f"{LEDGER}/{entry}/receipt"
    receipt = payer.page(path)
    assert "<script>alert" not in receipt
    said = words(receipt)
    assert number_of(said) == entry
    assert "US$17.53 VAT 15.5% US$2.72 Total US$20.25" in said
    assert "Method Credited manually Note Cash at the desk" in said
    assert link(receipt, "Back") == LEDGER


def test_numbers_ascend_and_stay(payer: Payer) -> None:
    first, second = pay(payer, "PN-3"), pay(payer, "PN-4")
    before = receipt_of(payer, first)
    assert number_of(before) < number_of(receipt_of(payer, second)) < credit(payer, "1", "Cash")
    date = re.search(r"Date (\d+ \w+ \d{4}, [\d:]+)", before)
    assert date is not None
    payer.tell(first, Reversed("disputed"))
    after = receipt_of(payer, first)
    assert (number_of(after), date[0] in after) == (number_of(before), True)
    assert "This payment was reversed later" in after
    # The number is that of the ledger's entry, which leads to the same receipt.
    answer = payer.ask(f"{LEDGER}/{number_of(before)}/receipt")
    assert answer.headers["location"] == path_of(first) + "/receipt"
    assert str(number_of(before)) in [row["entry"] for row in payer.table(LEDGER + ".csv")]


def test_a_receipt_belongs_to_one_account_and_to_a_credit(payer: Payer) -> None:
    other = sign_in(payer.service)
    top_up_id, entry = pay(other, "PN-5"), credit(other, "3", "Cash")
    top_up_entry = number_of(receipt_of(other, top_up_id))
    assert other.ask(f"{LEDGER}/{entry}/receipt").status_code == 200
    deduction = credit(payer, "-0.5", "A mistake")
    payer.send()
    (sent,) = payer.service.sql(
        "SELECT max(id) FROM transfers WHERE account_id = $1 AND batch_id IS NOT NULL", payer.caller.id
    )
    for number in (entry, top_up_entry, deduction, sent["max"], 0, 10**17, 10**18, "x", "-1", "1.0", "٣"):
        answer = payer.ask(f"{LEDGER}/{number}/receipt")
        assert answer.status_code == 404, number
    assert payer.ask(path_of(top_up_id) + "/receipt").status_code == 404
