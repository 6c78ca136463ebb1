"""Customers pay by wallet or card, and follow the payment."""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

import pytest

from tests.support.identity.customers import link
from tests.support.identity.people import alert, at_once
from tests.support.postgres.databases import clone
from tests.support.processes.service import Service, run_web
from tests.support.topups.payers import (
    HOSTILE,
    LEDGER,
    PAYNOW_URL,
    PIN,
    PLACE,
    USDT,
    VOUCHER,
    WALLET,
    Payer,
    new_form_id,
    path_of,
    run_paid,
    sign_in,
    started,
    words,
)
from tumira.core.ids import TOP_UP, AccountId, TopUpId, new_id, read_id, write_id
from tumira.html.top_up_words import REASONS
from tumira.identity import manage_accounts
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import write_phone
from tumira.topups import store as top_ups
from tumira.topups.issue_vouchers import issue_vouchers
from tumira.topups.states import (
    Currency,
    Expired,
    FailureReason,
    Method,
    NotPaid,
    Paid,
    PaymentInDoubt,
    Reversed,
    StillPending,
    TopUpState,
)
from tumira.topups.store import NewTopUp, TopUpUpdate

NOTHING: Final = write_id(TOP_UP, UUID(int=7))


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


def buttons(page: str) -> dict[str, str]:
    """Return the ways to pay by the texts of their buttons, and where each leads."""
    return {text: path for path, text in re.findall(r'<button formaction="([^"]+)">([^<]+)</button>', page)}


def test_the_ways_that_are_set_up_are_offered(payer: Payer) -> None:
    page = payer.page(PLACE, amount="12.50")
    assert buttons(page) == {
        "Pay with mobile money or card": WALLET,
        "Pay with USDT": USDT,
        "Redeem a voucher": VOUCHER,
    }
    said = words(page)
    assert "EcoCash, OneMoney, InnBucks or card" in said
    assert "1Voucher or OTT voucher" in said
    assert "You cannot pay online" not in said
    # The form hands its amount over to the way that is chosen.
    assert f'<form method="get" action="{WALLET}">' in page
    assert re.search(r'<input id="amount" name="amount"[^>]* value="12.50"', page)


def test_what_is_not_set_up_is_not_there(server_url: str) -> None:
    with clone(server_url) as url, run_web(url, TUMIRA_PAYNOW_ID="1", TUMIRA_PAYNOW_KEY="key") as service:
        payer = sign_in(service)
        page = payer.page(PLACE)
        assert buttons(page) == {"Pay with mobile money or card": WALLET}
        for path in (USDT, USDT + "/deposits", VOUCHER):
            assert payer.ask(path).status_code == 404
        assert payer.post(VOUCHER, provider="ott", pin="123456789012").status_code == 404
        service.run(issue_vouchers, Decimal(5), 1, note="", last_day=None, actor="test")
        assert buttons(payer.page(PLACE))["Redeem a voucher"] == VOUCHER
        shown = payer.page(VOUCHER)
        assert "Tumira voucher" in shown
        assert "Value in rand" not in shown


def test_a_form_is_filled_in_as_far_as_we_know(payer: Payer) -> None:
    page = payer.page(WALLET, amount="20")
    (row,) = payer.service.sql("SELECT phone FROM accounts WHERE id = $1", payer.caller.id)
    assert f'value="{row["phone"]}"' in page
    assert 'value="20.00"' in page
    assert "Zimbabwe US$0.04 500 South Africa US$0.02 1,000" in words(page)
    # What is missing may be less than can be paid.
    assert 'value="5.00"' in payer.page(WALLET, amount="0.0312")
    assert 'value="ecocash" checked' in page


def test_one_form_starts_one_top_up_however_often_it_comes(payer: Payer) -> None:
    form = payer.form(WALLET)
    fields = {"form": form, "amount": "5", "wallet": "onemoney", "phone": "0771200001"}
    answers = at_once([lambda: payer.post(WALLET, **fields)] * 8)
    assert {started(answer) for answer in answers} == {read_id(TOP_UP, form)}
    # Somebody who went back and changed the form sees what became of it.
    again = payer.post(WALLET, **{**fields, "amount": "1"})
    assert started(again) == read_id(TOP_UP, form)
    assert len(payer.rows()) == 1


def test_a_form_with_an_id_that_we_would_not_give_starts_nothing(payer: Payer) -> None:
    for form in ("", "bat_" + new_form_id()[4:], new_form_id(timedelta(hours=25)), NOTHING):
        for path, fields in (
            (WALLET, {"amount": "5", "wallet": "ecocash", "phone": "0771200001"}),
            (VOUCHER, {"provider": "onevoucher", "pin": PIN, "value": "150"}),
        ):
            answer = payer.post(path, form=form, **fields)
            assert answer.status_code == 409, form
            assert "Check your entries and send the form again" in alert(answer)
            assert PIN not in answer.text
    assert payer.rows() == []


def test_the_id_of_somebody_elses_top_up_opens_nothing(payer: Payer, other: Payer) -> None:
    theirs = other.start()
    before = other.rows()
    code = payer.service.run(issue_vouchers, Decimal(5), 1, note="", last_day=None, actor="test")[0].code
    form = write_id(TOP_UP, theirs)
    for path, fields in (
        (WALLET, {"amount": "5", "wallet": "ecocash", "phone": "0771200001"}),
        (VOUCHER, {"provider": "onevoucher", "pin": PIN, "value": "150"}),
        (VOUCHER, {"provider": "own", "pin": code}),
    ):
        answer = payer.post(path, form=form, **fields)
        assert answer.status_code == 422
        assert "This payment could not be started" in alert(answer)
    for name in (form, NOTHING, "top_0", "bat_06dkxr2j0e3z0"):
        for way in ("", "/progress", "/receipt"):
            assert payer.ask(f"{PLACE}/{name}{way}").status_code == 404
        assert payer.post(f"{PLACE}/{name}/noted").status_code == 404
    assert payer.rows() == []
    assert other.rows() == before
    # Their voucher is still good.
    assert payer.service.sql("SELECT top_up_id FROM vouchers ORDER BY id DESC LIMIT 1")[0][0] is None


def test_what_is_wrong_stands_beside_its_field(payer: Payer) -> None:
    for field, value, fault in (
        ("amount", "", "Enter an amount in US dollars"),
        ("amount", "4.99", "Enter an amount from US$5 to US$10,000."),
        ("wallet", HOSTILE, "Choose how to pay."),
        ("phone", HOSTILE, "Enter the wallet's number in Zimbabwe"),
    ):
        given = {"amount": "10", "wallet": "ecocash", "phone": "0771200001", field: value}
        answer = payer.post(WALLET, form=payer.form(WALLET), **given)
        assert answer.status_code == 422
        assert fault in alert(answer)
        assert f'id="{field}-fault"' in answer.text
        assert "<script>alert" not in answer.text
        assert f'value="{given["amount"]}"' in answer.text
    assert payer.rows() == []


def test_a_wallet_is_named_as_its_number_is_dialled(payer: Payer) -> None:
    for place, text in enumerate(
        ("077 121 970{}", "77-121-970{}", "00263 77 121 970{}", "+263 (0)77121970{}")
    ):
        number = text.format(place)
        payer.post(WALLET, form=payer.form(WALLET), amount="5", wallet="ecocash", phone=number)
        assert payer.rows()[0]["phone"] == f"+26377121970{place}", number
    for wrong in ("024 270 0000", "082 123 0001", "+27821230001", "0" * 40, "٠٧٧١٢٠٠٠٠١"):
        answer = payer.post(WALLET, form=payer.form(WALLET), amount="5", wallet="ecocash", phone=wrong)
        assert answer.status_code == 422, wrong
        assert 'id="phone-fault"' in answer.text


def test_a_card_needs_no_number_and_leads_to_paynows_own_page_alone(payer: Payer) -> None:
    answer = payer.post(WALLET, form=payer.form(WALLET), amount="5", wallet="card", phone="")
    top_up_id = started(answer)
    for address in (
        "javascript:alert(1)",
        "https://paynow.example.evil.example/x",
        "http://paynow.example/x",
    ):
        payer.tell(top_up_id, StillPending(kept={"browser_url": address}))
        assert link(payer.page(path_of(top_up_id)), "Continue to the card page") is None
    payer.tell(top_up_id, StillPending(kept={"browser_url": f"{PAYNOW_URL}/Payment/1?a=1&b=2"}))
    page = payer.page(path_of(top_up_id))
    assert link(page, "Continue to the card page") == f"{PAYNOW_URL}/Payment/1?a=1&b=2"
    assert 'rel="noreferrer"' in page


def test_a_payment_whose_answer_was_lost_can_be_started_again(payer: Payer) -> None:
    for wallet, needed in (("card", "its card page"), ("innbucks", "the code")):
        top_up_id = payer.start(wallet=wallet, amount="7.25")
        # In doubt, or found by its trace: nobody knows what to pay with.
        for answer in (PaymentInDoubt("no answer"), StillPending()):
            payer.tell(top_up_id, answer)
            page = payer.page(path_of(top_up_id))
            lost = f"Paynow did not send us {needed} for this payment. You were not charged"
            assert lost in words(page)
            assert link(page, "Try again") == f"{WALLET}?amount=7.25&wallet={wallet}"
    assert "not started" in payer.page(PLACE)


def test_every_state_is_told_with_what_to_do(payer: Payer) -> None:
    top_up_id = payer.start()
    payer.tell(top_up_id, StillPending(kept={"instructions": "Dial *151#"}))
    number = write_phone(payer.rows()[0]["phone"]).replace("\xa0", " ")
    assert f"Enter your PIN on {number} to confirm the payment." in payer.said(top_up_id)
    assert "Paynow says: Dial *151#" in payer.said(top_up_id)
    payer.tell(top_up_id, PaymentInDoubt("a lost answer with SECRETS"))
    said = payer.said(top_up_id)
    assert (
        "We are checking this payment with Paynow. You do not have to do anything, and you cannot be charged"
        " twice." in said
    )
    assert "SECRETS" not in said
    payer.tell(top_up_id, PaymentInDoubt("gave up", is_last=True))
    assert "Do not pay it again. Contact support" in payer.said(top_up_id)
    assert "Refresh" not in payer.said(top_up_id)
    payer.tell(top_up_id, Paid("9510", Decimal(10)))
    said = payer.said(top_up_id)
    assert "US$10.00 was added to your balance. Your balance US$11.00" in said
    assert link(payer.page(path_of(top_up_id)), "Receipt or invoice") == path_of(top_up_id) + "/receipt"
    payer.service.run(manage_accounts.credit, payer.caller.id, Decimal(-7), note="spent", actor="test")
    payer.tell(top_up_id, Reversed("disputed"))
    said = payer.said(top_up_id)
    assert "US$4.00 was taken from your balance and US$6.00 is still owed." in said
    assert "Your account is suspended" in said
    expired = payer.start()
    payer.tell(expired, Expired())
    assert "This payment was not completed in time. You were not charged." in payer.said(expired)


def test_every_reason_has_a_text_and_a_failed_payment_can_be_tried_again(payer: Payer) -> None:
    assert set(REASONS) == set(FailureReason)
    top_up_id = payer.start(wallet="onemoney", amount="7.25")
    payer.tell(top_up_id, NotPaid(FailureReason.DECLINED, "the operator's words"))
    said = payer.said(top_up_id)
    assert words(REASONS[FailureReason.DECLINED]) in said
    assert "operator's words" not in said
    again = link(payer.page(path_of(top_up_id)), "Try again")
    assert again == f"{WALLET}?amount=7.25&wallet=onemoney"
    page = payer.page(WALLET, amount="7.25", wallet="onemoney")
    assert 'value="onemoney" checked' in page
    assert 'value="7.25"' in page


def test_a_code_is_shown_to_type_to_scan_and_to_open(payer: Payer) -> None:
    top_up_id = payer.start(wallet="innbucks")
    until = datetime(2026, 11, 16, 12, 30, tzinfo=UTC)
    payer.tell(top_up_id, StillPending(kept={"code": "70 123&4", "code_expires": until.isoformat()}))
    page = payer.page(path_of(top_up_id))
    assert "70 123&4" in words(page)
    assert 'aria-label="QR code of the code above"' in page
    address = link(page, "Open the InnBucks app")
    assert address == "schinn.wbpycode://innbucks.co.zw?pymInnCode=70%20123%264"
    assert "until 16 Nov 2026, 14:30:00" in words(page)
    payer.tell(top_up_id, StillPending(kept={"code": "x" * 500}))
    assert "x" * 500 not in payer.page(path_of(top_up_id))


def test_nothing_that_came_from_elsewhere_becomes_part_of_a_page(payer: Payer) -> None:
    kept = {"instructions": HOSTILE, "code": HOSTILE[:30], "browser_url": "javascript:" + HOSTILE}
    for wallet in ("ecocash", "innbucks", "card"):
        top_up_id = payer.start(wallet=wallet)
        payer.tell(top_up_id, StillPending(provider_reference=HOSTILE, kept=kept))
        for way in ("", "/progress"):
            page = payer.ask(path_of(top_up_id) + way).text
            assert "<script>alert" not in page
            assert "<img" not in page
            assert "javascript:" not in page
    payer.service.sql("UPDATE accounts SET business = $2 WHERE id = $1", payer.caller.id, HOSTILE)
    paid = payer.start()
    payer.tell(paid, Paid(HOSTILE, Decimal(10)))
    receipt = payer.receipt(path_of(paid))
    assert "<script>alert" not in receipt
    assert words(HOSTILE.partition("<")[0]) in words(receipt)
    assert "970299" not in receipt


def test_progress_is_given_to_the_script_alone_and_in_part(payer: Payer) -> None:
    top_up_id = payer.start()
    answer = payer.ask(path_of(top_up_id) + "/progress")
    assert answer.status_code == 200
    assert 'id="progress"' in answer.text
    assert 'data-part="open"' in answer.text
    assert "<html" not in answer.text
    assert answer.headers["cache-control"] == "no-store"
    payer.tell(top_up_id, Paid("9517", Decimal(10)))
    after = payer.ask(path_of(top_up_id) + "/progress").text
    assert 'data-part="ended"' in after
    assert 'data-balance="US$11.00"' in after


def test_a_receipt_says_all_and_is_there_once_something_was_credited(payer: Payer) -> None:
    top_up_id = payer.start(wallet="innbucks")
    assert payer.ask(path_of(top_up_id) + "/receipt").status_code == 404
    payer.tell(top_up_id, Paid("PN-9518", Decimal(10)))
    page = payer.receipt(path_of(top_up_id))
    said = words(page)
    for expected in (
        "To Test",
        "Method InnBucks (Paynow)",
        f"Payment reference {write_id(TOP_UP, top_up_id)}",
        "Provider reference PN-9518",
        "Amount paid US$10.00",
        "Total US$10.00",
    ):
        assert expected in said, expected
    assert re.search(r"<button[^>]* hidden>Print</button>", page)


async def insert_many(database: Database, account_id: AccountId, count: int) -> list[TopUpId]:
    ids = sorted(TopUpId(new_id(time.time_ns() // 1_000_000)) for _ in range(count))
    async with database.transaction() as connection:
        for place, one in enumerate(ids):
            new = NewTopUp(one, account_id, Method.PAYNOW, "ecocash", Currency.USD, Decimal(5 + place))
            await top_ups.insert(connection, new)
            await top_ups.mark(connection, one, TopUpUpdate(TopUpState.FAILED))
    return ids


def test_the_latest_are_listed_and_older_ones_behind_them(payer: Payer, other: Payer) -> None:
    other.start()
    all_of_them = payer.service.run(insert_many, payer.caller.id, 23)
    page = payer.page(PLACE)
    listed = re.findall(r'href="/dashboard/top-up/(top_\w+)"', page)
    assert listed == [write_id(TOP_UP, one) for one in reversed(all_of_them)][:20]
    assert re.search(r"EcoCash \d+ \w+ \d{4}, [\d:]+ US\$27\.00 failed", words(page))
    older = link(page, "Older")
    assert older is not None
    rest = payer.ask(older.partition("#")[0]).text
    assert (
        re.findall(r'href="/dashboard/top-up/(top_\w+)"', rest)
        == [write_id(TOP_UP, one) for one in reversed(all_of_them)][20:]
    )
    assert link(rest, "Newest") == PLACE + "#latest"
    assert payer.ask(PLACE, before="top_x").status_code == 404


def test_the_ledger_leads_to_the_top_up_of_an_entry(payer: Payer) -> None:
    top_up_id = payer.start()
    payer.tell(top_up_id, Paid("9520", Decimal(10)))
    payer.tell(top_up_id, Reversed("refunded"))
    page = payer.page(LEDGER)
    assert link(page, "Top-up with EcoCash") == path_of(top_up_id)
    assert link(page, "Reversed top-up with EcoCash") == path_of(top_up_id)
    taken, came, _ = payer.table(LEDGER + ".csv")
    assert (taken["kind"], taken["paid_usd"], taken["note"]) == ("top-ups", "10.0000", "EcoCash")
    assert (came["kind"], came["received_usd"], came["note"]) == ("top-ups", "10.0000", "EcoCash")


def test_who_is_suspended_may_pay_and_who_has_closed_the_account_may_not(payer: Payer) -> None:
    payer.service.sql("UPDATE accounts SET suspended_at = now() WHERE id = $1", payer.caller.id)
    assert "You can still top up." in words(payer.page(PLACE))
    payer.start()
    form = payer.form(WALLET)
    payer.service.sql("UPDATE accounts SET closed_at = now() WHERE id = $1", payer.caller.id)
    answer = payer.post(WALLET, form=form, amount="5", wallet="ecocash", phone="0771200001")
    assert answer.headers["location"].startswith("/dashboard/sign-in")
    assert len(payer.rows()) == 1
