"""What people do in the dashboard stands in the account's history, with the person who did it."""

import html
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import httpx
import pytest

from tests.support.full_service import account_of
from tests.support.identity.members import add
from tests.support.identity.people import NAME, Person, at_once, goes_to, run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tumira.core.ids import AccountId
from tumira.identity import manage_accounts
from tumira.identity.roles import MemberRole
from tumira.topups.issue_vouchers import issue_vouchers

ORDER: Final = "Your order 1042 has been shipped and will arrive on Friday."
SENDER: Final = "Rudo Dube"
FINANCE: Final = "Thabo Dlamini"


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        yield running


def hidden(page: httpx.Response) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text)
    return {name: html.unescape(value) for name, value in found}


def history(service: Service, account_id: AccountId) -> list[tuple[str, str, str]]:
    """Return who did what, since the people joined; ids are cut to their kind."""
    rows = service.sql(
        "SELECT actor, what, detail, person_id FROM changes WHERE account_id = $1"
        " AND what NOT LIKE 'person%' AND actor <> 'test' ORDER BY id",
        account_id,
    )
    assert all(row["person_id"] is not None for row in rows)
    return [(row["actor"], row["what"], re.sub(r"\b([a-z]{3})_\w{26}", r"\1", row["detail"])) for row in rows]


def send(person: Person, recipients: str) -> None:
    fields = {"recipients": recipients, "message": ORDER, "reference": ""}
    page = person.browser.post("/dashboard/compose", data=fields)
    fields = hidden(page)
    # However often it is pressed, it is one send and one line.
    answers = at_once([lambda: person.browser.post("/dashboard/compose/confirm", data=fields)] * 2)
    assert {str(goes_to(answer)).rpartition("/")[0] for answer in answers} == {"/dashboard/batches"}


def test_sends_of_all_kinds_name_their_sender(service: Service) -> None:
    owner = sign_up(service)
    account_id = account_of(service, owner)
    service.run(manage_accounts.credit, account_id, Decimal(10), note="Cash", actor="test")
    sender = add(service, owner, MemberRole.SENDER, SENDER)
    send(owner, "+263771200001")
    send(sender, " ".join(f"+2637712{place:05}" for place in range(60)))
    file = {"file": ("people.csv", b"to,name\n+263771200001,Ada\n+263771200002,Ben\n", "text/csv")}
    checked = sender.browser.post("/dashboard/upload", data={"message": ORDER}, files=file)
    path = str(goes_to(checked))
    agreed = hidden(sender.browser.get(f"{path}/send"))["agreed"]
    for _ in range(2):
        assert goes_to(sender.browser.post(f"{path}/send", data={"agreed": agreed})) == path
    assert history(service, account_id) == [
        (NAME, "message sent", "bat: 1 messages, 0.0400 USD"),
        (SENDER, "message sent", "bat: 60 messages, 2.4000 USD"),
        (SENDER, "file sent", "people.csv: 2 messages, 0.0800 USD"),
    ]
    page = owner.browser.get("/dashboard/settings/changes").text
    assert "Message sent" in page
    assert SENDER in page


def test_contacts_and_payments_name_who_changed_and_paid(service: Service) -> None:
    owner = sign_up(service)
    account_id = account_of(service, owner)
    finance = add(service, owner, MemberRole.FINANCE, FINANCE)
    made = owner.browser.post("/dashboard/lists", data={"name": "Members"})
    path = str(goes_to(made)).partition("?")[0]
    for below, fields in (
        ("contacts", {"number": "+263771200001", "cell": "Ada"}),
        ("contacts/263771200001", {"number": "+263771200002", "cell": "Ada"}),
        ("contacts/263771200002/remove", {}),
    ):
        assert goes_to(owner.browser.post(f"{path}/{below}", data=fields)) is not None, below
    (voucher,) = service.run(
        issue_vouchers, Decimal(5), 1, note="For a shop", last_day=None, actor="cli:root"
    )
    form = hidden(finance.browser.get("/dashboard/top-up/voucher"))
    for _ in range(2):
        paid = finance.browser.post(
            "/dashboard/top-up/voucher", data={**form, "provider": "own", "pin": voucher.code}
        )
        assert str(goes_to(paid)).startswith("/dashboard/top-up/top_")
    assert history(service, account_id) == [
        (NAME, "list created", "Members"),
        (NAME, "contact added", "Members: number ending in 001"),
        (NAME, "contact changed", "Members: number ending in 002"),
        (NAME, "contact removed", "Members: number ending in 002"),
        (FINANCE, "top-up started", "top: own, 5.0000 USD"),
    ]
