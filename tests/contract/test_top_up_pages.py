"""Do the pages of top-ups start each once, tell the truth about it, and give nothing away?"""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

import httpx
import pytest

from tests.support.customers import Customer, link, open_session
from tests.support.customers import words as read
from tests.support.gates import broken_promises
from tests.support.people import alert, at_once
from tests.support.postgres import clone
from tests.support.service import NO_TLS, Service, run_web
from tumira.actions import operate
from tumira.actions.issue_vouchers import issue_vouchers
from tumira.actions.settle_top_up import settle
from tumira.dashboard.top_up_words import REASONS
from tumira.ids import TOP_UP, TopUpId, new_id, read_id, write_id
from tumira.rules.deposit_addresses import with_checksum
from tumira.rules.sealing import Seal
from tumira.rules.top_ups import (
    Lapsed,
    News,
    Paid,
    Reason,
    Refused,
    TakenBack,
    Unclear,
    Waiting,
)
from tumira.rules.voucher_pins import Change, write_change

PLACE: Final = "/dashboard/top-up"
LEDGER: Final = "/dashboard/ledger"
WALLET: Final = PLACE + "/wallet"
USDT: Final = PLACE + "/usdt"
VOUCHER: Final = PLACE + "/voucher"

PAYNOW_URL: Final = "https://paynow.example"
SECRET: Final = "flash-secret"
PIN: Final = "1234567890123456"
HOSTILE: Final = "\"><script>alert(1)</script><img src=x onerror=alert(1)>{{ 99 * 99 * 99 }}'"
TX: Final = "0x" + "ab" * 32
# Of the phrase that all developers know; it guards nothing.
XPUB: Final = (
    "xpub6Ce9NcJvTk36xtLSrJLZqE7wtgA5deCeYs7rSQtreh4cj6ByPtrg9sD7V2FNFLPnf8heNP3FGkeV9qwfzvZNSd54JoNXVsXFY"
    "SYwHsnJxqP"
)
ENVIRONMENT: Final = {
    "TUMIRA_PAYNOW_URL": PAYNOW_URL,
    "TUMIRA_PAYNOW_ID": "1201",
    "TUMIRA_PAYNOW_KEY": "paynow-key",
    "TUMIRA_USDT_RPC_URLS": "https://rpc.example",
    "TUMIRA_USDT_XPUB": XPUB,
    "TUMIRA_VOUCHER_ONEVOUCHER_KEY": "consumer",
    "TUMIRA_VOUCHER_ONEVOUCHER_SECRET": SECRET,
    "TUMIRA_VOUCHER_ONEVOUCHER_ACCOUNT": "1234-5678-1234-5678",
    "TUMIRA_VOUCHER_OTT_USER": "user",
    "TUMIRA_VOUCHER_OTT_PASSWORD": "password",
    "TUMIRA_VOUCHER_OTT_KEY": "key",
    "TUMIRA_VOUCHER_OTT_VENDOR": "99",
    "TUMIRA_VOUCHER_ZAR_RATE": "18.50@2026-11-01",
}


@dataclass(frozen=True, slots=True)
class Payer(Customer):
    """A customer who pays."""

    def post(self, path: str, /, **fields: str) -> httpx.Response:
        """Send a form."""
        return httpx.post(
            self.service.base + path,
            content=urlencode(fields),
            headers={
                "Content-Type": "application/x-www-form-urlencoded",
                "Cookie": f"tumira_session={self.token}",
                "Sec-Fetch-Site": "same-origin",
            },
            timeout=30,
            trust_env=False,
            verify=NO_TLS,
        )

    def form(self, path: str) -> str:
        """Open a form, and return the id that it carries."""
        found = re.search(r'name="form" value="(top_\w+)"', self.page(path))
        assert found is not None
        return found[1]

    def start(self, wallet: str = "ecocash", amount: str = "10") -> TopUpId:
        """Start a top-up by a wallet."""
        # So few may wait for one number, and so few of one account, that each test would be in another's way.
        phone = f"+2637712{next(_numbers):05}"
        return started(self.post(WALLET, form=self.form(WALLET), amount=amount, wallet=wallet, phone=phone))

    def tell(self, top_up_id: TopUpId, news: News) -> None:
        """Let the provider say something."""
        self.service.run(settle, top_up_id, news)

    def said(self, top_up_id: TopUpId) -> str:
        """Return what the page of a top-up says, as it is read."""
        return words(self.page(path_of(top_up_id)))

    def rows(self) -> Sequence[Any]:
        """Return the top-ups of the account."""
        return self.service.sql(
            "SELECT * FROM top_ups WHERE account_id = $1 ORDER BY id DESC", self.caller.id
        )


_numbers: Final = iter(range(20_000, 30_000))


def path_of(top_up_id: UUID) -> str:
    return f"{PLACE}/{write_id(TOP_UP, top_up_id)}"


def started(answer: httpx.Response) -> TopUpId:
    assert answer.status_code == 303, answer.text
    top_up_id = read_id(TOP_UP, answer.headers["location"].removeprefix(PLACE + "/"))
    assert top_up_id is not None
    return TopUpId(top_up_id)


def words(page: str) -> str:
    return re.sub(r" (?=[.,;])", "", read(page))


def new_form_id(ago: timedelta = timedelta()) -> str:
    return write_id(TOP_UP, new_id(int((datetime.now(UTC) - ago).timestamp() * 1000)))


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a service at which one can pay in every way, and whose money adds up at the end."""
    with clone(server_url) as url, run_web(url, **ENVIRONMENT) as running:
        yield running
        assert running.run(broken_promises) == []


def sign_in(service: Service) -> Payer:
    caller = service.open_account("1")
    return Payer(service, caller, open_session(service, caller))


@pytest.fixture
def payer(service: Service) -> Payer:
    """Give somebody with a dollar."""
    return sign_in(service)


@pytest.fixture(scope="module")
def other(service: Service) -> Payer:
    """Give somebody else."""
    return sign_in(service)


def test_the_ways_that_are_set_up_are_offered(payer: Payer) -> None:
    page = payer.page(PLACE)
    assert link(page, "Pay by mobile money or card") == WALLET
    assert link(page, "Pay with USDT") == USDT
    assert link(page, "Redeem a voucher") == VOUCHER
    assert "The PIN of a 1Voucher or OTT voucher" in words(page)
    assert "set up no way" not in page


def test_what_is_not_set_up_is_not_there(server_url: str) -> None:
    with clone(server_url) as url, run_web(url, TUMIRA_PAYNOW_ID="1", TUMIRA_PAYNOW_KEY="key") as service:
        payer = sign_in(service)
        page = payer.page(PLACE)
        assert link(page, "Pay by mobile money or card") == WALLET
        assert (link(page, "Pay with USDT"), link(page, "Redeem a voucher")) == (None, None)
        for path in (USDT, USDT + "/deposits", VOUCHER):
            assert payer.ask(path).status_code == 404
        assert payer.post(VOUCHER, provider="ott", pin="123456789012").status_code == 404
        service.run(issue_vouchers, Decimal(5), 1, note="", last_day=None, actor="test")
        assert link(payer.page(PLACE), "Redeem a voucher") == VOUCHER
        shown = payer.page(VOUCHER)
        assert "Tumira voucher" in shown
        assert "Value in rand" not in shown


def test_a_form_is_filled_in_as_far_as_we_know(payer: Payer) -> None:
    page = payer.page(WALLET, amount="20")
    (row,) = payer.service.sql("SELECT phone FROM accounts WHERE id = $1", payer.caller.id)
    assert f'value="{row["phone"]}"' in page
    assert 'value="20"' in page
    assert "US$20.00 buys 500 messages to Zimbabwe or 1,000 messages to South Africa" in words(page)
    assert 'value="ecocash" checked' in page


def test_paying_starts_a_top_up_and_leads_to_it(payer: Payer) -> None:
    top_up_id = payer.start(amount="12.50")
    (row,) = payer.rows()
    assert (row["id"], row["provider"], row["asked"], row["phone"]) == (
        top_up_id,
        "ecocash",
        Decimal("12.50"),
        row["phone"],
    )
    said = payer.said(top_up_id)
    assert "US$12.50 by EcoCash" in said
    assert "We are asking Paynow." in said
    assert "Refresh this page" in said
    assert link(payer.page(path_of(top_up_id)), "Refresh") == path_of(top_up_id)


def test_one_form_starts_one_top_up_however_often_it_comes(payer: Payer) -> None:
    form = payer.form(WALLET)
    fields = {"form": form, "amount": "5", "wallet": "onemoney", "phone": "0771200001"}
    answers = at_once([lambda: payer.post(WALLET, **fields)] * 8)
    assert {started(answer) for answer in answers} == {read_id(TOP_UP, form)}
    # Somebody who went back and changed the form sees what became of it.
    again = payer.post(WALLET, **{**fields, "amount": "1"})
    assert started(again) == read_id(TOP_UP, form)
    assert len(payer.rows()) == 1


@pytest.mark.parametrize(
    "form",
    [
        "",
        "top_0",
        "bat_" + new_form_id()[4:],
        new_form_id(timedelta(hours=25)),
        new_form_id(-timedelta(minutes=5)),
        write_id(TOP_UP, UUID(int=0)),
        write_id(TOP_UP, UUID(int=(1 << 128) - 1)),
    ],
    # Ids of the moment would have other names in each process that runs tests.
    ids=["none", "short", "a batch's", "old", "of the future", "lowest", "highest"],
)
def test_a_form_with_an_id_that_we_would_not_give_starts_nothing(payer: Payer, form: str) -> None:
    for path, fields in (
        (WALLET, {"amount": "5", "wallet": "ecocash", "phone": "0771200001"}),
        (VOUCHER, {"provider": "onevoucher", "pin": PIN, "value": "150"}),
    ):
        answer = payer.post(path, form=form, **fields)
        assert answer.status_code == 409
        assert "Look at it once more, and press again" in alert(answer)
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
        assert "This cannot be started" in alert(answer)
    for way in ("", "/progress", "/receipt"):
        assert payer.ask(path_of(theirs) + way).status_code == 404
    assert payer.post(path_of(theirs) + "/noted").status_code == 404
    assert payer.rows() == []
    assert other.rows() == before
    # Their voucher is still good.
    assert payer.service.sql("SELECT top_up_id FROM vouchers ORDER BY id DESC LIMIT 1")[0][0] is None


@pytest.mark.parametrize(
    "name", ["top_0", "bat_06dkxr2j0e3z0", write_id(TOP_UP, UUID(int=7)), "%2e%2e", "top_"]
)
def test_an_unknown_top_up_is_not_there(payer: Payer, name: str) -> None:
    for way in ("", "/progress", "/receipt"):
        assert payer.ask(f"{PLACE}/{name}{way}").status_code == 404
    assert payer.post(f"{PLACE}/{name}/noted").status_code in {404, 405}


@pytest.mark.parametrize(
    ("fields", "field", "fault"),
    [
        ({"amount": ""}, "amount", "Give an amount in dollars and cents"),
        ({"amount": "ten"}, "amount", "Give an amount in dollars and cents"),
        ({"amount": "5.001"}, "amount", "Give an amount in whole cents"),
        ({"amount": "4.99"}, "amount", "Give an amount from US$5"),
        ({"amount": "1000000"}, "amount", "Give an amount from US$5"),
        ({"wallet": ""}, "wallet", "Choose one of these."),
        ({"wallet": HOSTILE}, "wallet", "Choose one of these."),
        ({"phone": "+27821230001"}, "phone", "Give the wallet's number in Zimbabwe"),
        ({"phone": HOSTILE}, "phone", "Give the wallet's number in Zimbabwe"),
    ],
)
def test_what_is_wrong_stands_beside_its_field(
    payer: Payer, fields: Mapping[str, str], field: str, fault: str
) -> None:
    given = {"amount": "10", "wallet": "ecocash", "phone": "0771200001", **fields}
    answer = payer.post(WALLET, form=payer.form(WALLET), **given)
    assert answer.status_code == 422
    assert fault in alert(answer)
    assert f'id="{field}-fault"' in answer.text
    assert "<script>alert" not in answer.text
    assert f'value="{html.escape(given["amount"], quote=True)}"' in answer.text or field == "amount"
    assert payer.rows() == []


def test_a_card_needs_no_number_and_leads_to_paynows_own_page_alone(payer: Payer) -> None:
    answer = payer.post(WALLET, form=payer.form(WALLET), amount="5", wallet="card", phone="")
    top_up_id = started(answer)
    for address in (
        "javascript:alert(1)",
        "https://paynow.example.evil.example/x",
        "http://paynow.example/x",
    ):
        payer.tell(top_up_id, Waiting(kept={"browser_url": address}))
        assert link(payer.page(path_of(top_up_id)), "Continue to the card page") is None
    payer.tell(top_up_id, Waiting(kept={"browser_url": f"{PAYNOW_URL}/Payment/1?a=1&b=2"}))
    page = payer.page(path_of(top_up_id))
    assert link(page, "Continue to the card page") == f"{PAYNOW_URL}/Payment/1?a=1&b=2"
    assert 'rel="noreferrer"' in page


def test_every_state_is_told_with_what_to_do(payer: Payer) -> None:
    top_up_id = payer.start()
    payer.tell(top_up_id, Waiting(kept={"instructions": "Dial *151#"}))
    local = "0" + payer.rows()[0]["phone"].removeprefix("+263")
    assert f"Confirm with your PIN on {local}." in payer.said(top_up_id)
    assert "Paynow says: Dial *151#" in payer.said(top_up_id)
    payer.tell(top_up_id, Unclear("a lost answer with SECRETS"))
    said = payer.said(top_up_id)
    assert (
        "We are asking Paynow what became of it; you do not have to do anything, and nothing is taken twice."
        in said
    )
    assert "SECRETS" not in said
    payer.tell(top_up_id, Unclear("gave up", is_last=True))
    assert "The operator will look into it" in payer.said(top_up_id)
    assert "Refresh" not in payer.said(top_up_id)
    payer.tell(top_up_id, Paid("9510", Decimal(10)))
    said = payer.said(top_up_id)
    assert "US$10.00 was added to your balance. Your balance US$11.00" in said
    assert link(payer.page(path_of(top_up_id)), "Receipt") == path_of(top_up_id) + "/receipt"
    payer.service.run(operate.credit, payer.caller.id, Decimal(-7), note="spent", actor="test")
    payer.tell(top_up_id, TakenBack("disputed"))
    said = payer.said(top_up_id)
    assert "US$4.00 was taken from your balance, and US$6.00 is still owed." in said
    assert "This account is suspended" in said


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_told_in_words_and_can_be_tried_again(payer: Payer, reason: Reason) -> None:
    top_up_id = payer.start(wallet="onemoney", amount="7.25")
    payer.tell(top_up_id, Refused(reason, "the operator's words"))
    said = payer.said(top_up_id)
    assert words(REASONS[reason]) in said
    assert "operator's words" not in said
    again = link(payer.page(path_of(top_up_id)), "Try again")
    assert again == f"{WALLET}?amount=7.25&wallet=onemoney"
    page = payer.page(WALLET, amount="7.25", wallet="onemoney")
    assert 'value="onemoney" checked' in page
    assert 'value="7.25"' in page


def test_what_was_not_paid_in_time_is_over(payer: Payer) -> None:
    top_up_id = payer.start()
    payer.tell(top_up_id, Lapsed())
    assert "It was not paid in time. Nothing was taken." in payer.said(top_up_id)


def test_a_code_is_shown_to_type_to_scan_and_to_open(payer: Payer) -> None:
    top_up_id = payer.start(wallet="innbucks")
    until = datetime(2026, 11, 16, 12, 30, tzinfo=UTC)
    payer.tell(top_up_id, Waiting(kept={"code": "70 123&4", "code_expires": until.isoformat()}))
    page = payer.page(path_of(top_up_id))
    assert "70 123&4" in words(page)
    assert 'aria-label="QR code with the code above"' in page
    address = link(page, "Open the InnBucks app")
    assert address == "schinn.wbpycode://innbucks.co.zw?pymInnCode=70%20123%264"
    assert "until 16 Nov 2026, 14:30:00" in words(page)
    payer.tell(top_up_id, Waiting(kept={"code": "x" * 500}))
    assert "x" * 500 not in payer.page(path_of(top_up_id))


def test_nothing_that_came_from_elsewhere_becomes_part_of_a_page(payer: Payer) -> None:
    kept = {"instructions": HOSTILE, "code": HOSTILE[:30], "browser_url": "javascript:" + HOSTILE}
    for wallet in ("ecocash", "innbucks", "card"):
        top_up_id = payer.start(wallet=wallet)
        payer.tell(top_up_id, Waiting(provider_reference=HOSTILE, kept=kept))
        for way in ("", "/progress"):
            page = payer.ask(path_of(top_up_id) + way).text
            assert "<script>alert" not in page
            assert "<img" not in page
            assert "javascript:" not in page
    payer.service.sql("UPDATE accounts SET business = $2 WHERE id = $1", payer.caller.id, HOSTILE)
    paid = payer.start()
    payer.tell(paid, Paid(HOSTILE, Decimal(10)))
    receipt = payer.page(path_of(paid) + "/receipt")
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
    page = payer.page(path_of(top_up_id) + "/receipt")
    said = words(page)
    for expected in (
        "Business Test",
        "Method InnBucks, through Paynow",
        f"Reference {write_id(TOP_UP, top_up_id)}",
        "Their reference PN-9518",
        "Paid US$10.00",
        "Credited US$10.00",
    ):
        assert expected in said, expected
    assert re.search(r"<button[^>]* hidden>Print</button>", page)


def test_the_latest_are_listed_and_older_ones_behind_them(payer: Payer, other: Payer) -> None:
    other.start()
    all_of_them = []
    for place in range(23):
        all_of_them.append(payer.start(amount=str(5 + place)))
        payer.tell(all_of_them[-1], Refused(Reason.CANCELLED, ""))
    page = payer.page(PLACE)
    listed = re.findall(r'href="/dashboard/top-up/(top_\w+)"', page)
    assert listed == [write_id(TOP_UP, one) for one in reversed(all_of_them)][:20]
    assert "EcoCash US$27.00 asked for nothing failed" in words(page)
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
    payer.tell(top_up_id, TakenBack("refunded"))
    page = payer.page(LEDGER)
    assert link(page, "Top-up by EcoCash") == path_of(top_up_id)
    assert link(page, "Top-up taken back, by EcoCash") == path_of(top_up_id)
    taken, came, _ = payer.table(LEDGER + ".csv")
    assert (taken["kind"], taken["paid_usd"], taken["note"]) == ("top-ups", "10.0000", "EcoCash")
    assert (came["kind"], came["received_usd"], came["note"]) == ("top-ups", "10.0000", "EcoCash")


def test_who_is_suspended_may_pay_and_who_has_closed_the_account_may_not(payer: Payer) -> None:
    payer.service.sql("UPDATE accounts SET suspended_at = now() WHERE id = $1", payer.caller.id)
    assert "You can pay all the same" in words(payer.page(PLACE))
    payer.start()
    form = payer.form(WALLET)
    payer.service.sql("UPDATE accounts SET closed_at = now() WHERE id = $1", payer.caller.id)
    answer = payer.post(WALLET, form=form, amount="5", wallet="ecocash", phone="0771200001")
    assert answer.headers["location"].startswith("/dashboard/sign-in")
    assert len(payer.rows()) == 1


def test_a_voucher_is_redeemed_at_the_rate_that_was_shown(payer: Payer) -> None:
    said = words(payer.page(VOUCHER))
    assert "R18.50 for US$1, since 1 Nov 2026" in said
    assert "Tumira voucher" in said or "1Voucher" in said
    top_up_id = started(
        payer.post(
            VOUCHER, form=payer.form(VOUCHER), provider="onevoucher", pin="1234 5678-9012 3456", value="150"
        )
    )
    assert "R150.00 by 1Voucher" in payer.said(top_up_id)
    payer.tell(top_up_id, Paid("T-1", Decimal(150)))
    receipt = words(payer.page(path_of(top_up_id) + "/receipt"))
    for expected in (
        "Method 1Voucher",
        "Their reference T-1",
        "Paid R150.00",
        "Rate R18.50 for US$1, since 1 Nov 2026",
        "Credited US$8.1081",
    ):
        assert expected in receipt, expected


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"pin": "12345678901234567"}, "pin"),
        ({"pin": "12345678901234AB"}, "pin"),
        ({"value": ""}, "value"),
        ({"value": "20"}, "value"),
        ({"provider": "blu"}, "provider"),
        ({"provider": ""}, "provider"),
        ({"provider": "ott", "pin": "123456789012", "phone": "+263771200001"}, "phone"),
    ],
)
def test_a_pin_is_never_shown_again(payer: Payer, fields: Mapping[str, str], field: str) -> None:
    given = {"provider": "onevoucher", "pin": "9876543210987654", "value": "150", "phone": "", **fields}
    answer = payer.post(VOUCHER, form=payer.form(VOUCHER), **given)
    assert answer.status_code == 422
    assert f'id="{field}-fault"' in answer.text
    assert given["pin"] not in answer.text
    assert re.search(r'<input id="pin"[^>]* value=""', answer.text)
    assert payer.rows() == []


def test_a_pin_is_in_no_line_of_the_log(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    with run_web(service.url, **ENVIRONMENT, TUMIRA_LOG_LEVEL="debug") as loud:
        payer = sign_in(loud)
        payer.post(
            VOUCHER, form=payer.form(VOUCHER), provider="onevoucher", pin="4444555566667777", value="150"
        )
        payer.post(
            VOUCHER, form=payer.form(VOUCHER), provider="onevoucher", pin="4444555566667777", value="1"
        )
        payer.post(VOUCHER, form="", provider="onevoucher", pin="4444555566667777", value="150")
    captured = capfd.readouterr()
    assert "4444555566667777" not in captured.out + captured.err


def test_a_voucher_of_the_operators_is_credited_at_once_and_once(payer: Payer) -> None:
    (voucher,) = payer.service.run(issue_vouchers, Decimal(20), 1, note="", last_day=None, actor="test")
    fields = {"form": payer.form(VOUCHER), "provider": "own", "pin": voucher.code.lower()}
    answers = at_once([lambda: payer.post(VOUCHER, **fields)] * 6)
    (top_up_id,) = {started(answer) for answer in answers}
    said = payer.said(top_up_id)
    assert "US$20.00 by Tumira voucher" in said
    assert "Your balance US$21.00" in said
    second = started(payer.post(VOUCHER, **{**fields, "form": payer.form(VOUCHER)}))
    assert "This voucher cannot be redeemed" in payer.said(second)
    assert link(payer.page(path_of(second)), "Try again") == f"{VOUCHER}?provider=own"
    assert payer.service.balance(payer.caller) == 21


def test_what_is_left_of_a_voucher_is_shown_until_it_is_noted(payer: Payer, other: Payer) -> None:
    top_up_id = started(
        payer.post(VOUCHER, form=payer.form(VOUCHER), provider="onevoucher", pin="7" * 16, value="150")
    )
    change = Change("8888777766665555", Decimal("50.00"), "2029-11-30")
    sealed = Seal(SECRET).close(write_change(change))
    payer.tell(top_up_id, Paid("T-2", Decimal(150), sealed_change=sealed))
    said = payer.said(top_up_id)
    assert "8888777766665555" in said
    assert "1Voucher, worth R50.00, until 2029-11-30" in said
    assert "8888777766665555" not in payer.page(path_of(top_up_id) + "/receipt")
    assert other.post(path_of(top_up_id) + "/noted").status_code == 404
    assert "8888777766665555" in payer.said(top_up_id)
    assert payer.post(path_of(top_up_id) + "/noted").headers["location"] == path_of(top_up_id)
    assert "8888777766665555" not in payer.said(top_up_id)
    assert payer.rows()[0]["sealed_change"] is None


def test_change_that_was_sealed_with_another_secret_is_not_forgotten(payer: Payer) -> None:
    top_up_id = started(
        payer.post(VOUCHER, form=payer.form(VOUCHER), provider="onevoucher", pin="6" * 16, value="150")
    )
    sealed = Seal("an older secret").close(write_change(Change("1" * 16, None)))
    payer.tell(top_up_id, Paid("T-3", Decimal(150), sealed_change=sealed))
    assert "It cannot be shown at the moment; please ask the operator." in payer.said(top_up_id)
    assert "I have noted it" not in payer.page(path_of(top_up_id))


def test_everybody_has_an_address_of_their_own_that_stays(payer: Payer, other: Payer) -> None:
    page = payer.page(USDT)
    (address,) = re.findall(r'<code id="address"[^>]*>(0x\w{40})</code>', page)
    assert address == with_checksum(address)
    assert address in payer.page(USDT)
    assert address not in other.page(USDT)
    assert len(payer.rows()) == 1
    said = words(page)
    for expected in (
        "BNB Smart Chain (BEP20)",
        "0x55d398326f99059fF775485246999027B3197955",
        "or as another token, is lost",
        "less is held until it comes to that",
        "Nothing yet.",
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
    payer.page(USDT)
    payer.service.sql(
        "INSERT INTO usdt_cursors VALUES (56, 'token', 103, 'x') ON CONFLICT (chain_id, contract) DO UPDATE"
        " SET block_number = 103"
    )
    place = int(payer.caller.id.int % 1_000_000)
    deposit(payer, place, 2 * 10**18 + 1, "seen")
    deposit(payer, place + 1, 10**18, "final")
    said = words(payer.ask(USDT + "/deposits").text)
    assert "2.000000000000000001 USDT seen, 4 of 15 confirmations" in said
    assert "1 USDT held until US$5" in said
    assert "1 USDT is held: with 1.999999999999999999 USDT more it comes to 5 USDT" in said
    assert TX in said


def test_a_receipt_in_usdt_names_its_transactions(payer: Payer) -> None:
    payer.page(USDT)
    (row,) = payer.rows()
    place = int(payer.caller.id.int % 1_000_000)
    payer.tell(row["id"], Paid(f"56:{TX}:{place}", Decimal("6.50000000000001")))
    deposit(payer, place, 65 * 10**17 + 10**4, "credited", row["id"])
    receipt = words(payer.page(path_of(row["id"]) + "/receipt"))
    for expected in (
        f"Transaction id {TX}",
        "Paid 6.50000000000001 USDT",
        "Rate 1 USDT for US$1",
        "Credited US$6.50",
    ):
        assert expected in receipt, expected
    page = payer.page(USDT)
    assert link(page, "Show it") == path_of(row["id"])
