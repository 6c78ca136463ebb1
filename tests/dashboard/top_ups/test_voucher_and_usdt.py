"""Customers pay by voucher and with USDT, and no secret is shown twice."""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final
from uuid import UUID

import pytest

from tests.support.identity.customers import link
from tests.support.identity.people import at_once
from tests.support.processes.service import Service, run_web
from tests.support.topups.payers import (
    ENVIRONMENT,
    HOSTILE,
    PLACE,
    SECRET,
    USDT,
    VOUCHER,
    Payer,
    path_of,
    run_paid,
    sign_in,
    started,
    words,
)
from tumira.core.ids import TopUpId
from tumira.core.settings.payments import read_payments
from tumira.topups.issue_vouchers import issue_vouchers
from tumira.topups.start import start_usdt
from tumira.topups.states import Paid
from tumira.topups.usdt.addresses import with_checksum
from tumira.topups.voucher_pins import ChangeVoucher, Seal, write_change

TX: Final = "0x" + "ab" * 32
PAYMENTS: Final = read_payments(ENVIRONMENT)


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_paid(server_url) as running:
        yield running


@pytest.fixture
def payer(service: Service) -> Payer:
    return sign_in(service)


@pytest.fixture(scope="module")
def other(service: Service) -> Payer:
    return sign_in(service)


def test_a_voucher_is_redeemed_at_the_rate_that_was_shown(payer: Payer) -> None:
    said = words(payer.page(VOUCHER))
    assert "R18.50 per US$1 (rate of 1 Nov 2026)" in said
    assert "Tumira voucher" in said or "1Voucher" in said
    top_up_id = started(
        payer.post(
            VOUCHER, form=payer.form(VOUCHER), provider="onevoucher", pin="1234 5678-9012 3456", value="150"
        )
    )
    assert "R150.00 with 1Voucher" in payer.said(top_up_id)
    payer.tell(top_up_id, Paid("T-1", Decimal(150)))
    receipt = words(payer.receipt(path_of(top_up_id)))
    for expected in (
        "Method 1Voucher",
        "Provider reference T-1",
        "Amount paid R150.00",
        "Exchange rate R18.50 per US$1 (rate of 1 Nov 2026)",
        "Total US$8.1081",
    ):
        assert expected in receipt, expected


def test_a_pin_is_never_shown_again(payer: Payer) -> None:
    cases: Sequence[tuple[str, Mapping[str, str]]] = (
        ("pin", {"pin": "12345678901234567"}),
        ("value", {"value": "20"}),
        ("provider", {"provider": "blu"}),
        ("phone", {"provider": "ott", "pin": "123456789012", "phone": "+263771200001"}),
    )
    for field, fields in cases:
        given = {"provider": "onevoucher", "pin": "9876543210987654", "value": "150", "phone": "", **fields}
        answer = payer.post(VOUCHER, form=payer.form(VOUCHER), **given)
        assert answer.status_code == 422
        assert f'id="{field}-fault"' in answer.text
        assert given["pin"] not in answer.text
        assert re.search(r'<input id="pin"[^>]* value=""', answer.text)
    assert payer.rows() == []


@pytest.mark.long
def test_a_pin_is_in_no_line_of_the_log(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    with run_web(service.url, **ENVIRONMENT, TUMIRA_LOG_LEVEL="debug") as loud:
        payer = sign_in(loud)
        for form, value in ((payer.form(VOUCHER), "150"), (payer.form(VOUCHER), "1"), ("", "150")):
            payer.post(VOUCHER, form=form, provider="onevoucher", pin="4444555566667777", value=value)
    captured = capfd.readouterr()
    assert "4444555566667777" not in captured.out + captured.err


def test_a_voucher_of_the_operators_is_credited_at_once_and_once(payer: Payer) -> None:
    (voucher,) = payer.service.run(issue_vouchers, Decimal(20), 1, note="", last_day=None, actor="test")
    fields = {"form": payer.form(VOUCHER), "provider": "own", "pin": voucher.code.lower()}
    answers = at_once([lambda: payer.post(VOUCHER, **fields)] * 6)
    (top_up_id,) = {started(answer) for answer in answers}
    said = payer.said(top_up_id)
    assert "US$20.00 with Tumira voucher" in said
    assert "Your balance US$21.00" in said
    second = started(payer.post(VOUCHER, **{**fields, "form": payer.form(VOUCHER)}))
    assert "This voucher was not accepted" in payer.said(second)
    assert link(payer.page(path_of(second)), "Try again") == f"{VOUCHER}?provider=own"
    assert payer.service.balance(payer.caller) == 21


def redeem(payer: Payer, pin: str, secret: str) -> TopUpId:
    """Redeem a voucher that leaves another, encrypted with a secret."""
    fields = {"provider": "onevoucher", "pin": pin, "value": "150"}
    top_up_id = started(payer.post(VOUCHER, form=payer.form(VOUCHER), **fields))
    change = write_change(ChangeVoucher("8888777766665555", Decimal("50.00"), "2029-11-30"))
    payer.tell(top_up_id, Paid(f"T-{pin}", Decimal(150), sealed_change=Seal(secret).close(change)))
    return top_up_id


def test_what_is_left_of_a_voucher_is_shown_until_it_is_noted(payer: Payer, other: Payer) -> None:
    top_up_id = redeem(payer, "7" * 16, SECRET)
    said = payer.said(top_up_id)
    assert "8888777766665555" in said
    assert "1Voucher, worth R50.00, valid until 2029-11-30" in said
    assert "8888777766665555" not in payer.receipt(path_of(top_up_id))
    assert other.post(path_of(top_up_id) + "/noted").status_code == 404
    assert "8888777766665555" in payer.said(top_up_id)
    assert payer.post(path_of(top_up_id) + "/noted").headers["location"] == path_of(top_up_id)
    assert "8888777766665555" not in payer.said(top_up_id)
    assert payer.rows()[0]["sealed_change"] is None
    # What was encrypted with another secret is not forgotten.
    older = redeem(payer, "6" * 16, "an older secret")
    assert "a new voucher that we cannot show at the moment. Contact support" in payer.said(older)
    assert "I have written it down" not in payer.page(path_of(older))


def written(payer: Payer) -> Sequence[int]:
    """Return how much is in the tables that a payment in USDT writes to."""
    tables = ("top_ups", "usdt_addresses", "transfers")
    return [payer.service.sql(f"SELECT count(*) FROM {table}")[0][0] for table in tables]


def show_address(payer: Payer) -> str:
    """Press the button that gives the account its address, and return that."""
    answer = payer.post(USDT, amount="12.50")
    assert (answer.status_code, answer.headers["location"]) == (303, USDT + "?amount=12.50")
    (address,) = re.findall(r'<code id="address"[^>]*>(0x\w{40})</code>', payer.page(USDT))
    assert isinstance(address, str)
    return address


def test_opening_the_page_for_usdt_writes_nothing(payer: Payer) -> None:
    before = written(payer)
    for query in ({}, {"amount": "12.50"}, {"amount": HOSTILE}):
        page = payer.page(USDT, **query)
        assert "Show my deposit address</button>" in page
        assert "0x" not in page
        assert "<script>alert" not in page
    payer.ask(USDT + "/deposits")
    assert written(payer) == before
    assert {one.status_code for one in at_once([lambda: payer.post(USDT)] * 4)} == {303}
    after = [before[0], before[1] + 1, *before[2:]]
    assert written(payer) == after
    assert "Show my deposit address" not in payer.page(USDT)
    payer.page(PLACE)
    assert written(payer) == after
    assert payer.post(USDT).headers["location"] == USDT


def test_everybody_has_an_address_of_their_own_that_stays(payer: Payer, other: Payer) -> None:
    address = show_address(payer)
    page = payer.page(USDT)
    assert address == with_checksum(address)
    assert show_address(payer) == address
    assert show_address(other) != address
    assert payer.rows() == []
    said = words(page)
    for expected in (
        "BNB Smart Chain (BEP20)",
        "0x55d398326f99059fF775485246999027B3197955",
        "are lost and cannot be recovered",
        "Smaller deposits are kept until they add up to it.",
        "No deposits yet.",
    ):
        assert expected in said, expected
    assert link(page, "Open my wallet") == (
        f"ethereum:0x55d398326f99059fF775485246999027B3197955@56/transfer?address={address}"
    )
    chosen = payer.page(USDT, amount="12.5")
    assert str(link(chosen, "Open my wallet with 12.5 USDT")).endswith("&uint256=12500000000000000000")
    assert chosen.count('class="qr"') == 2
    for wrong in ("x", "0", "4.9", "10001", HOSTILE):
        answer = payer.ask(USDT, amount=wrong)
        assert answer.status_code == 422
        assert "<script>alert" not in answer.text
        assert address in answer.text


def deposit(payer: Payer, place: int, units: int, state: str, top_up_id: UUID | None = None) -> None:
    payer.service.sql(
        "INSERT INTO usdt_deposits (chain_id, tx_hash, log_index, account_id, address, sender, units,"
        " block_number, block_hash, state, top_up_id)"
        " SELECT 56, $2, $3, $1, address, $4, $5, 100, 'x', $6, $7 FROM usdt_addresses WHERE account_id = $1",
        payer.caller.id,
        TX,
        place,
        "0x" + "1" * 40,
        Decimal(units),
        state,
        top_up_id,
    )


def test_deposits_are_shown_with_what_they_wait_for(payer: Payer) -> None:
    show_address(payer)
    payer.service.sql(
        "INSERT INTO usdt_cursors VALUES (56, 'token', 103, 'x') ON CONFLICT (chain_id, contract) DO UPDATE"
        " SET block_number = 103"
    )
    place = int(payer.caller.id.int % 1_000_000)
    deposit(payer, place, 2 * 10**18 + 1, "seen")
    deposit(payer, place + 1, 10**18, "final")
    said = words(payer.ask(USDT + "/deposits").text)
    assert re.search(r"2\.000000000000000001 USDT \d.* 4 of 15 confirmations", said)
    assert re.search(r" 1 USDT \d+ \w+ \d{4}, [\d:]+ held until US\$5", said)
    assert "We are holding 1 USDT. Send 1.999999999999999999 USDT more to reach the minimum of 5 USDT" in said
    assert TX in said


def test_a_receipt_in_usdt_names_its_transactions(payer: Payer) -> None:
    show_address(payer)
    payer.service.run(start_usdt, PAYMENTS, payer.caller.id)
    (row,) = payer.rows()
    place = int(payer.caller.id.int % 1_000_000)
    payer.tell(row["id"], Paid(f"56:{TX}:{place}", Decimal("6.50000000000001")))
    deposit(payer, place, 65 * 10**17 + 10**4, "credited", row["id"])
    receipt = words(payer.receipt(path_of(row["id"])))
    for expected in (
        f"Transaction {TX}",
        "Amount paid 6.50000000000001 USDT",
        "Exchange rate 1 USDT = US$1.00",
        "Total US$6.50",
    ):
        assert expected in receipt, expected
    page = payer.page(USDT)
    assert link(page, "Payment") == path_of(row["id"])
