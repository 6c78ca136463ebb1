"""The ledger shows every entry with the balance after it, and whether they add up."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

import pytest

from tests.support.identity.customers import ONE, Customer, link, open_session
from tests.support.identity.customers import words as read
from tests.support.postgres.databases import clone
from tests.support.processes.service import Service, run_web
from tumira.audit_log import OPERATOR
from tumira.core import money
from tumira.core.ids import BATCH, MESSAGE, read_id, write_id
from tumira.identity import manage_accounts
from tumira.operations.audit import runs
from tumira.operations.audit.checks import CHECKS
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.postgres.pool import Database
from tumira.pricing.actions import add_destination, set_price
from tumira.pricing.destinations import Destination, Price, PriceStatus
from tumira.pricing.phone_numbers import write_phone

LEDGER: Final = "/dashboard/ledger"
TOP_UP: Final = "/dashboard/top-up"
SHOWN: Final = write_phone(ONE).replace("\xa0", " ")
LOCAL_TIME: Final = timedelta(hours=2)
SOUND: Final = "Your entries add up to your balance of"
BROKEN: Final = "Your entries do not add up to your balance."
ADD_UP: Final = next(task for task in MAINTENANCE_TASKS if task.name == "add up ledgers")

_ROW: Final = re.compile(r"<tr>\s*<td>(.*?)</tr>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Owner(Customer):
    """A customer who looks at their money."""

    def lines(self, **query: str) -> Sequence[str]:
        return [words(row) for row in _ROW.findall(self.page(LEDGER, **query))]

    def rows(self, **query: str) -> Sequence[Mapping[str, str]]:
        return self.table(LEDGER + ".csv", **query)

    def refund(self, batch_id: str, reason: str | None) -> str:
        """Let the only message of a batch fail and be paid back, and return it."""
        (row,) = self.service.sql("SELECT id FROM messages WHERE batch_id = $1", read_id(BATCH, batch_id))
        self.service.sql(
            "WITH ended AS (UPDATE messages SET status = 'undelivered', refunded_at = now(),"
            " failure_reason = $2 WHERE id = $1 RETURNING *), paid AS (UPDATE accounts SET balance = balance"
            " + (SELECT cost FROM ended) WHERE id = (SELECT account_id FROM ended))"
            " INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id)"
            " SELECT account_id, 'revenue', 'customer', cost, batch_id, id FROM ended",
            row["id"],
            reason,
        )
        return write_id(MESSAGE, row["id"])

    def credit(self, amount: str, note: str) -> None:
        self.service.run(manage_accounts.credit, self.caller.id, Decimal(amount), note=note, actor="test")

    def top_up(self, amount: str) -> None:
        self.service.sql(
            "WITH paid AS (UPDATE accounts SET balance = balance + $2 WHERE id = $1)"
            " INSERT INTO transfers (account_id, from_book, to_book, amount, top_up_id)"
            " VALUES ($1, 'topup:paynow', 'customer', $2, gen_random_uuid())",
            self.caller.id,
            Decimal(amount),
        )

    def fill(self, count: int) -> None:
        """Let many debits of a cent be there, beside the money for them, a minute apart until now."""
        self.credit(str(count), "for many")
        self.service.sql(
            "WITH paid AS (UPDATE accounts SET balance = balance - 0.01 * $2 WHERE id = $1)"
            " INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id)"
            " SELECT $1, 'customer', 'revenue', 0.01, gen_random_uuid() FROM generate_series(1, $2::integer)",
            self.caller.id,
            count,
        )


@pytest.fixture
def customer(service: Service) -> Owner:
    return sign_in(service)


@pytest.fixture(scope="module")
def own_service(server_url: str) -> Iterator[Service]:
    with clone(server_url) as url, run_web(url) as running:
        yield running


def sign_in(service: Service, balance: str = "100") -> Owner:
    caller = service.open_account(balance)
    return Owner(service, caller, open_session(service, caller))


def words(page: str) -> str:
    """Return what of a page is read, with no blank before the end of a sentence."""
    return re.sub(r" (?=[.,])", "", read(page))


def test_every_movement_is_told_in_words_with_the_balance_after_it(customer: Owner) -> None:
    batch_id = customer.send(ONE, "+27821230001", reference="order-7")
    failed = customer.send()
    message_id = customer.refund(failed, "ABSENT_SUBSCRIBER")
    customer.top_up("5")
    customer.credit("-1.5", "Paid twice")
    lines = [re.sub(r"^\d+ \w+ \d{4}, [\d:]+ ", "", line) for line in customer.lines()]
    assert lines == [
        "Deduction Paid twice \u2212US$1.50 US$103.44",
        "Top-up with Paynow +US$5.00 US$104.94",
        (f"Refund for {SHOWN} The phone was off or out of coverage. +US$0.04 US$99.94"),
        "Batch to 1 recipient \u2212US$0.04 US$99.90",
        "Batch to 2 recipients order-7 \u2212US$0.06 US$99.94",
        "Credit Opening balance +US$100.00 US$100.00",
    ]
    page = customer.page(LEDGER)
    assert link(page, "Batch to 2 recipients") == f"/dashboard/batches/{batch_id}"
    assert link(page, f"Refund for {SHOWN}") == f"/dashboard/messages/{message_id}"
    assert f"{SOUND} US$103.44." in words(page)
    assert " style=" not in page


def test_what_has_no_reason_or_is_no_longer_kept_is_said_to_be_so(customer: Owner) -> None:
    customer.refund(customer.send(), None)
    assert "The carrier reported that it was not delivered." in customer.lines()[0]
    customer.fill(1)
    (row,) = customer.service.sql(
        "SELECT batch_id FROM transfers WHERE account_id = $1 ORDER BY id DESC LIMIT 1", customer.caller.id
    )
    name = write_id(BATCH, row["batch_id"])
    assert f"Batch (no longer stored) {name}" in customer.lines()[0]
    assert f"/dashboard/batches/{name}" not in customer.page(LEDGER)


def test_movements_come_twenty_a_page_with_their_balances(customer: Owner) -> None:
    customer.fill(120)
    shown: list[str] = []
    path: str | None = LEDGER
    for _ in range(10):
        if path is None:
            break
        page = customer.page(path)
        lines = [words(row) for row in _ROW.findall(page)]
        assert len(lines) <= 20
        shown.extend(line.rpartition(" ")[2] for line in lines)
        path = link(page, "Older")
    expected = [Decimal(220) - place * Decimal("0.01") for place in range(121)]
    assert shown == [f"US${amount:,.2f}" for amount in [*expected[::-1], Decimal(100)]]
    assert link(customer.page(LEDGER, before="1"), "Newest") == LEDGER
    assert "There is nothing older." in words(customer.page(LEDGER, before="1"))


def test_filters_show_the_running_balance_of_all_movements(customer: Owner) -> None:
    customer.send()
    customer.top_up("5")
    customer.send()
    customer.refund(customer.send(), "NO_ROUTE")
    customer.credit("2", "Thank you")
    today = (datetime.now(UTC) + LOCAL_TIME).date()
    yesterday, tomorrow = str(today - timedelta(days=1)), str(today + timedelta(days=1))
    for query, expected in (
        ({"kind": "all"}, ["106.92", "104.92", "104.88", "104.92", "104.96", "99.96", "100.00"]),
        ({"kind": "sends"}, ["104.88", "104.92", "99.96"]),
        ({"kind": "refunds"}, ["104.92"]),
        ({"kind": "top-ups"}, ["104.96"]),
        ({"kind": "adjustments"}, ["106.92", "100.00"]),
        ({"kind": "top-ups", "from": str(today), "to": str(today)}, ["104.96"]),
        ({"from": tomorrow}, []),
        ({"to": yesterday}, []),
        ({"kind": "refunds", "from": yesterday, "to": tomorrow}, ["104.92"]),
    ):
        shown = [line.rpartition(" ")[2] for line in customer.lines(**query)]
        assert shown == [f"US${amount}" for amount in expected], query
    page = customer.page(LEDGER, kind="top-ups", to=yesterday)
    assert "No entries match this filter." in words(page)
    assert link(page, "Clear") == LEDGER
    assert '<option value="top-ups" selected>' in page
    assert SOUND in words(page)


def test_whatever_is_in_the_address_the_page_answers_and_says_why_beside_the_field(customer: Owner) -> None:
    for query, name in (
        ({"kind": "gifts"}, "kind"),
        ({"from": "16.11.2026"}, "from"),
        ({"from": "2026-11-16", "to": "2026-11-15"}, "to"),
    ):
        response = customer.ask(LEDGER, **query)
        assert response.status_code == 422
        assert response.text.count('role="alert"') == 1
        assert f'href="#{name}"' in response.text
        assert f'id="{name}-fault"' in response.text
        assert not _ROW.findall(response.text)
        assert customer.ask(LEDGER + ".csv", **query).status_code == 422
    for text in ("kind=%00", "kind=&kind=x", "from=%ff", "%", "before=0", "before=" + "9" * 18):
        assert customer.ask(f"{LEDGER}?{text}").status_code in {200, 422}, text
    for text in ("before=", "before=x", "before=-1", "before=%D9%A3", "before=" + "9" * 19):
        assert customer.ask(f"{LEDGER}?{text}").status_code == 404, text


def test_nobody_sees_the_movements_of_others(customer: Owner) -> None:
    stranger = sign_in(customer.service)
    stranger.send(reference="theirs")
    assert len(customer.lines()) == 1
    assert len(customer.rows()) == 1
    nobody = Customer(customer.service, customer.caller, "x" * 43)
    for path in (LEDGER, LEDGER + ".csv", TOP_UP):
        response = nobody.ask(path)
        assert (response.status_code, response.text) == (303, "")
        assert response.headers["location"].startswith("/dashboard/sign-in?next=")


def test_who_has_no_movements_is_told_where_money_comes_from(service: Service) -> None:
    page = sign_in(service, "0").page(LEDGER)
    assert "No entries yet. Top up to start sending." in words(page)
    assert link(page, "Top up") == TOP_UP
    assert f"{SOUND} US$0.00." in words(page)


def test_movements_are_downloaded_with_their_balances_piece_by_piece(customer: Owner) -> None:
    batch_id = customer.send(reference="order-7")
    message_id = customer.refund(batch_id, "NO_ROUTE")
    customer.top_up("5")
    customer.fill(300)
    rows = customer.rows()
    assert len({row["entry"] for row in rows}) == len(rows) == 305
    balance = Decimal(0)
    for row in reversed(rows):
        balance += Decimal(row["received_usd"] or 0) - Decimal(row["paid_usd"] or 0)
        assert row["balance_after_usd"] == money.write(balance)
        assert datetime.fromisoformat(row["at_utc"]).utcoffset() == timedelta()
    _, sent, returned, topped_up = rows[::-1][:4]
    assert (sent["kind"], sent["batch_id"], sent["reference"]) == ("sends", batch_id, "order-7")
    assert (sent["paid_usd"], sent["received_usd"]) == ("0.0400", "")
    assert (returned["kind"], returned["message_id"], returned["number"]) == ("refunds", message_id, ONE)
    assert returned["reason"] == "No carrier serves this country."
    assert (topped_up["kind"], topped_up["note"]) == ("top-ups", "Paynow")
    filtered = customer.rows(kind="adjustments")
    assert [row["note"] for row in filtered] == ["for many", "Opening balance"]
    assert [row["balance_after_usd"] for row in filtered] == ["", ""]
    response = customer.ask(LEDGER + ".csv", "HEAD")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["cache-control"] == "no-store"


async def accounts_that_do_not_add_up(database: Database) -> set[UUID]:
    (check,) = [one for one in CHECKS if one.name == "balance"]
    async with runs.snapshot(database) as connection:
        return {row["account_id"] for row in (await runs.run_check(connection, check)).rows}


def proof(customer: Owner) -> str:
    return re.sub(r"(\d+ \w+ \d{4}, )?\d\d:\d\d(?=: )", "TIME", words(customer.page(LEDGER)))


@pytest.mark.long
def test_the_page_says_what_was_proved_and_when(own_service: Service) -> None:
    customer = sign_in(own_service)
    customer.fill(2500)
    assert f"{SOUND} US$2,575.00." in proof(customer)
    assert "Last full check" not in proof(customer)
    own_service.run(run_task, ADD_UP)
    customer.send()
    assert f"{SOUND} US$2,574.96. Last full check TIME: 2,502 entries, correct." in proof(customer)
    own_service.sql(
        "UPDATE ledger_proofs SET proved_at = '2026-01-31 20:04Z', proved_entries = 1 WHERE account_id = $1",
        customer.caller.id,
    )
    assert "Last full check 31 Jan 2026, 22:04: 1 entry, correct." in words(customer.page(LEDGER))


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        "SELECT $1::uuid",
        "UPDATE accounts SET balance = balance + 0.0001 WHERE id = $1",
        "DELETE FROM transfers WHERE note = 'for many' AND account_id = $1",
    ],
)
def test_the_page_equals_the_audit_on_good_and_on_broken_books(own_service: Service, change: str) -> None:
    customer, neighbour = sign_in(own_service), sign_in(own_service)
    for one in (customer, neighbour):
        one.fill(1200)
    own_service.sql("ALTER TABLE transfers DISABLE TRIGGER USER")
    own_service.sql(change, customer.caller.id)
    for is_marked in (False, True):
        if is_marked:
            own_service.sql("UPDATE ledger_proofs SET due_at = now()")
            own_service.run(run_task, ADD_UP)
        found = own_service.run(accounts_that_do_not_add_up)
        is_broken = customer.caller.id in found
        assert is_broken == (not change.startswith("SELECT"))
        page = customer.page(LEDGER)
        assert (BROKEN in words(page), SOUND in words(page)) == (is_broken, not is_broken)
        # A balance that is unknown is not shown.
        assert words(page).count("unknown") == (20 if is_broken else 0)
        assert page.count('role="alert"') == is_broken
        cells = {row["balance_after_usd"] for row in customer.rows()}
        assert (cells == {""}) == is_broken
        assert neighbour.caller.id not in found
        assert SOUND in words(neighbour.page(LEDGER))
        assert "unknown" not in words(neighbour.page(LEDGER))


@pytest.mark.long
def test_a_wrong_mark_shows_no_balance_and_the_operator_is_informed(
    server_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with clone(server_url) as url, run_web(url) as service:
        customer = sign_in(service)
        customer.fill(2500)
        service.run(run_task, ADD_UP)
        service.sql(
            "UPDATE ledger_marks SET balance = balance + 1"
            " WHERE transfer_id = (SELECT min(transfer_id) FROM ledger_marks)"
        )
        # Nothing on the first page is read from it.
        page = customer.page(LEDGER)
        assert SOUND in words(page)
        assert "unknown" not in words(page)
        assert "does not add up" not in "".join(capfd.readouterr())
        (row,) = service.sql("SELECT min(transfer_id) AS id FROM ledger_marks")
        page = customer.page(LEDGER, before=str(row["id"] + 10))
        assert f"{BROKEN} A subtotal does not match the entries on this page." in words(page)
        assert words(page).count("unknown") == 20
        said = "".join(capfd.readouterr())
        assert "ledger does not add up" in said
        assert customer.caller.account_id in said
        service.sql("UPDATE ledger_proofs SET due_at = now()")
        service.run(run_task, ADD_UP)
        assert BROKEN in words(customer.page(LEDGER))
        assert "The last correct full check was on" in words(customer.page(LEDGER))


def test_topping_up_says_what_amounts_buy_and_whom_to_ask(customer: Owner) -> None:
    (row,) = customer.service.sql("SELECT phone FROM accounts WHERE id = $1", customer.caller.id)
    page = customer.page(TOP_UP)
    said = words(page)
    for expected in (
        "From US$5.00 to US$10,000.00.",
        "Zimbabwe US$0.04 \u2013 South Africa US$0.02 \u2013",
        "You cannot pay online here yet.",
        "To arrange a payment, contact support",
        f"Tell us the phone number of your account: {write_phone(row['phone'])}".replace("\xa0", " "),
    ):
        assert expected in said, expected
    assert link(page, "US$20") == TOP_UP + "?amount=20"
    assert "Zimbabwe US$0.04 500 South Africa US$0.02 1,000" in words(customer.page(TOP_UP, amount="20"))


def test_a_missing_amount_is_filled_in_as_one_that_can_be_paid(customer: Owner) -> None:
    for given, filled in (
        (" 12.50 ", "12.50"),
        ("12.3401", "12.35"),
        ("0.08", "5.00"),
        ("0", "5.00"),
        ("20000", "10000.00"),
    ):
        assert re.search(rf'<input id="amount"[^>]* value="{filled}"', customer.page(TOP_UP, amount=given)), (
            given
        )
    for wrong in ("12,50", "-5", "five", "1e3"):
        response = customer.ask(TOP_UP, amount=wrong)
        assert response.status_code == 422
        assert response.text.count("Enter an amount in US dollars, such as 5 or 12.50.") == 2
        assert 'id="amount-fault"' in response.text
        assert f'value="{wrong}"' in response.text


def test_a_new_country_is_offered_and_one_that_is_only_announced_is_not(own_service: Service) -> None:
    own_service.run(add_destination, Destination("ZM", "260", "Zambia", (9,)), OPERATOR)
    own_service.run(set_price, Price("sms", "ZM", Decimal("0.03"), PriceStatus.ACTIVE), OPERATOR)
    own_service.run(add_destination, Destination("BW", "267", "Botswana", (8,)), OPERATOR)
    own_service.run(set_price, Price("sms", "BW", Decimal("0.03"), PriceStatus.COMING_SOON), OPERATOR)
    said = words(sign_in(own_service).page(TOP_UP, amount="5"))
    assert "Zambia US$0.03 166" in said
    assert "Botswana" not in said
