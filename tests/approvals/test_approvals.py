"""A send above the limit waits for a second person, is charged by nobody meanwhile, and is sent once."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Final

import httpx
import pytest

from tests.support.identity.members import add
from tests.support.identity.people import (
    PASSWORD,
    Person,
    alert,
    at_once,
    count,
    goes_to,
    run_behind_proxy,
    sign_up,
)
from tests.support.processes.service import Service
from tumira.core.ids import AccountId
from tumira.identity import manage_accounts
from tumira.identity.roles import MemberRole

APPROVALS: Final = "/dashboard/approvals"
ORDER: Final = "Your order 1042 has been shipped and will arrive on Friday."
# Three messages to Zimbabwe cost US$0.12.
THREE: Final = "+263771200001 +263771200002 +263771200003"
ABOVE: Final = "0.10"


@dataclass(frozen=True, slots=True)
class Office:
    service: Service
    account_id: AccountId
    owner: Person
    sender: Person

    @property
    def batches(self) -> int:
        return count(self.service, "SELECT count(*) FROM batches WHERE account_id = $1", self.account_id)

    @property
    def balance(self) -> Decimal:
        (row,) = self.service.sql("SELECT balance FROM accounts WHERE id = $1", self.account_id)
        return Decimal(row["balance"])

    def compose(self, person: Person, recipients: str = THREE, message: str = ORDER) -> httpx.Response:
        fields = {"recipients": recipients, "message": message, "reference": ""}
        page = person.browser.post("/dashboard/compose", data=fields)
        assert page.status_code == 200, alert(page)
        return person.browser.post("/dashboard/compose/confirm", data=hidden(page))

    def ask(self) -> str:
        """Let the sender ask for a send, and return the path of its approval."""
        path = goes_to(self.compose(self.sender))
        assert path is not None
        assert path.startswith(APPROVALS)
        return path


def hidden(page: httpx.Response) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text)
    return {name: html.unescape(value) for name, value in found}


def approve(person: Person, path: str, terms: str | None = None) -> httpx.Response:
    if terms is None:
        terms = hidden(person.browser.get(path)).get("terms", "")
    return person.browser.post(f"{path}/approve", data={"terms": terms})


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        yield running


@pytest.fixture
def office(service: Service) -> Office:
    owner = sign_up(service)
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", owner.phone)
    account_id = AccountId(row["id"])
    service.run(manage_accounts.credit, account_id, Decimal(10), note="Cash", actor="test")
    sender = add(service, owner, MemberRole.SENDER)
    set_rule(owner)
    return Office(service, account_id, owner, sender)


def set_rule(owner: Person, above: str = ABOVE) -> None:
    saved = owner.browser.post(APPROVALS, data={"approval_above": above, "password": PASSWORD})
    assert goes_to(saved) == f"{APPROVALS}?done=rule", alert(saved)


def test_a_large_message_waits_for_a_second_person_and_is_sent_once(office: Office) -> None:
    viewer = add(office.service, office.owner, MemberRole.VIEWER)
    # A small one goes at once.
    assert str(goes_to(office.compose(office.sender, "+263771200001"))).startswith("/dashboard/batches/")
    path = office.ask()
    assert (office.batches, office.balance) == (1, Decimal("9.96"))
    assert "1 send needs approval" in office.owner.browser.get("/dashboard").text
    page = office.owner.browser.get(path).text
    assert ORDER in page
    assert "US$0.12" in page
    # Not by whoever asked, and not by whoever may not send.
    terms = hidden(office.owner.browser.get(path))["terms"]
    assert "Approve and send" not in office.sender.browser.get(path).text
    assert approve(office.sender, path, terms).status_code == 404
    assert approve(viewer, path, terms).status_code == 403
    assert approve(office.owner, path, "0.0000").status_code == 422
    assert office.batches == 1

    assert goes_to(approve(office.owner, path, terms)) == f"{path}?done=approved"
    assert (office.batches, office.balance) == (2, Decimal("9.84"))
    assert approve(office.owner, path, terms).status_code == 404
    assert "See the batch" in office.sender.browser.get(path).text
    # The draft is not kept twice.
    (row,) = office.service.sql(
        "SELECT recipients, message FROM approvals WHERE account_id = $1", office.account_id
    )
    assert tuple(row) == (None, None)
    rows = office.service.sql(
        "SELECT actor, what FROM changes WHERE account_id = $1 ORDER BY id DESC LIMIT 2", office.account_id
    )
    assert [tuple(one) for one in rows] == [
        ("Tariro Moyo", "send approved"),
        ("Rudo Dube", "approval asked for"),
    ]


def test_of_two_who_approve_at_once_one_batch_is_sent(office: Office) -> None:
    second = add(office.service, office.owner, MemberRole.SENDER)
    path = office.ask()
    terms = hidden(office.owner.browser.get(path))["terms"]
    at_once([partial(approve, person, path, terms) for person in (office.owner, second) * 2])
    assert (office.batches, office.balance) == (1, Decimal("9.88"))


def test_a_process_that_died_after_the_send_leaves_it_to_be_approved_again(office: Office) -> None:
    path = office.ask()
    terms = hidden(office.owner.browser.get(path))["terms"]
    approve(office.owner, path, terms)
    office.service.sql(
        "UPDATE approvals SET state = 'sending', batch_id = NULL, recipients = $2, message = $3"
        " WHERE account_id = $1",
        office.account_id,
        THREE,
        ORDER,
    )
    # Nobody takes back or declines what may have been sent.
    assert office.sender.browser.post(f"{path}/withdraw", data={"": ""}).status_code == 404
    assert office.owner.browser.post(f"{path}/decline", data={"note": "no"}).status_code == 404
    assert goes_to(approve(office.owner, path, "anything")) == f"{path}?done=approved"
    assert (office.batches, office.balance) == (1, Decimal("9.88"))


def test_a_declined_message_says_why_and_can_be_edited(office: Office) -> None:
    path = office.ask()
    assert office.owner.browser.post(f"{path}/decline", data={"note": ""}).status_code == 422
    declined = office.owner.browser.post(f"{path}/decline", data={"note": "Wrong order number"})
    assert goes_to(declined) == f"{path}?done=declined"
    page = office.sender.browser.get(path)
    assert "Wrong order number" in page.text
    form = {**hidden(page), "edit": "1"}
    assert ORDER in office.sender.browser.post("/dashboard/compose", data=form).text
    assert (office.batches, office.balance) == (0, Decimal(10))
    withdrawn = office.ask()
    assert office.owner.browser.post(f"{withdrawn}/withdraw", data={"": ""}).status_code == 404
    taken = office.sender.browser.post(f"{withdrawn}/withdraw", data={"": ""})
    assert goes_to(taken) == f"{APPROVALS}?done=withdrawn"
    assert approve(office.owner, withdrawn, "x").status_code == 404


def test_content_opt_outs_and_balance_are_checked_again(office: Office) -> None:
    path = office.ask()
    terms = hidden(office.owner.browser.get(path))["terms"]
    office.owner.browser.post("/dashboard/opt-outs", data={"numbers": "+263771200003"})
    changed = approve(office.owner, path, terms)
    assert (changed.status_code, "has changed" in alert(changed)) == (422, True)
    terms = hidden(office.owner.browser.get(path))["terms"]
    office.service.run(
        manage_accounts.credit, office.account_id, Decimal("-9.95"), note="Moved", actor="test"
    )
    poor = approve(office.owner, path, terms)
    assert (poor.status_code, office.batches) == (402, 0)
    office.service.run(manage_accounts.credit, office.account_id, Decimal(1), note="Cash", actor="test")
    assert goes_to(approve(office.owner, path)) == f"{path}?done=approved"
    assert office.balance == Decimal("0.97")


def test_an_approval_expires(office: Office) -> None:
    path = office.ask()
    terms = hidden(office.owner.browser.get(path))["terms"]
    office.service.sql(
        "UPDATE approvals SET asked_at = asked_at - interval '49 hours' WHERE account_id = $1",
        office.account_id,
    )
    assert "expired" in office.owner.browser.get(path).text
    assert approve(office.owner, path, terms).status_code == 404
    assert office.batches == 0


def test_a_large_file_waits_too(office: Office) -> None:
    rows = "\n".join(["to,name", *(f"+2637712{place:05},Person {place}" for place in range(3))])
    checked = office.sender.browser.post(
        "/dashboard/upload",
        data={"message": "Dear {name}, your parcel is here."},
        files={"file": ("p.csv", rows.encode(), "text/csv")},
    )
    file = goes_to(checked)
    assert file is not None
    form = hidden(office.sender.browser.get(f"{file}/send"))
    path = goes_to(office.sender.browser.post(f"{file}/send", data=form))
    assert path is not None
    assert path.startswith(APPROVALS)
    # Pressed again, it is the same one; and a price that was never shown sends nothing.
    assert goes_to(office.sender.browser.post(f"{file}/send", data=form)) == path
    assert goes_to(office.sender.browser.get(f"{file}/send")) == path
    assert office.sender.browser.post(f"{file}/send", data={"agreed": "0.01"}).status_code == 409
    page = office.owner.browser.get(path).text
    assert "Dear Person 0, your parcel is here." in page
    state = "SELECT state FROM uploads WHERE account_id = $1"
    assert office.service.sql(state, office.account_id)[0]["state"] == "checked"
    assert goes_to(approve(office.owner, path)) == f"{path}?done=approved"
    assert office.service.sql(state, office.account_id)[0]["state"] in {"sending", "sent"}


def test_the_rule_needs_a_second_person_and_the_password(service: Service) -> None:
    owner = sign_up(service)
    alone = owner.browser.post(APPROVALS, data={"approval_above": "5", "password": PASSWORD})
    assert "Invite a second owner or sender" in alert(alone)
    add(service, owner, MemberRole.SENDER)
    assert "Wrong password" in alert(owner.browser.post(APPROVALS, data={"approval_above": "5"}))
    set_rule(owner, "5")
    assert "more than US$5.00 waits" in owner.browser.get(APPROVALS).text
    set_rule(owner, "")
    assert "need no approval" in owner.browser.get(APPROVALS).text


def test_the_api_needs_no_approval_and_other_accounts_see_nothing(office: Office) -> None:
    form = {"name": "shop", "scope": ["messages:send"], "password": PASSWORD}
    made = office.owner.browser.post("/dashboard/keys", data=form)
    key = re.search(r"tmr_\w{26}_\w{32}", made.text)
    assert key is not None
    sent = office.service.call(
        key[0], "POST", "/messages", json={"channel": "sms", "to": THREE.split(), "body": ORDER}
    )
    assert sent.status_code == 202
    path = office.ask()
    terms = hidden(office.owner.browser.get(path))["terms"]
    stranger = sign_up(office.service)
    assert stranger.browser.get(path).status_code == 404
    assert approve(stranger, path, terms).status_code == 404
    assert stranger.browser.post(f"{path}/decline", data={"note": "x"}).status_code == 404


def schedule(office: Office) -> str:
    """Let the sender schedule a large message, and return the path of its page."""
    at = datetime.now(UTC) + timedelta(days=2)
    fields = {
        "recipients": THREE,
        "message": ORDER,
        "reference": "",
        "day": f"{at:%Y-%m-%d}",
        "clock": "08:00",
    }
    page = office.sender.browser.post("/dashboard/compose", data=fields)
    path = str(goes_to(office.sender.browser.post("/dashboard/compose/confirm", data=hidden(page))))
    path = path.partition("?")[0]
    assert path.startswith("/dashboard/scheduled/")
    return path


def test_a_scheduled_send_is_declined_with_a_reason(office: Office) -> None:
    path = schedule(office)
    assert (f"{path}/decline" in office.sender.browser.get(path).text) is False
    assert f"{path}/decline" in office.owner.browser.get(path).text
    refused = office.owner.browser.post(f"{path}/decline", data={"note": " "})
    assert (refused.status_code, "Enter a reason." in alert(refused)) == (422, True)
    own = office.sender.browser.post(f"{path}/decline", data={"note": "Mine"})
    assert own.status_code == 409
    assert office.balance == Decimal("9.88")
    declined = office.owner.browser.post(f"{path}/decline", data={"note": "Not on a Sunday"})
    assert goes_to(declined) == f"{path}?done=declined"
    assert office.balance == 10
    assert "Tariro Moyo declined it: Not on a Sunday" in office.sender.browser.get(path).text
    assert "was not made" in office.sender.browser.get("/dashboard").text
    (change,) = office.service.sql(
        "SELECT actor, what FROM changes WHERE account_id = $1 ORDER BY id DESC LIMIT 1", office.account_id
    )
    assert tuple(change) == ("Tariro Moyo", "scheduled send declined")


def test_a_scheduled_send_waits_for_a_second_person(office: Office) -> None:
    path = schedule(office)
    assert path in office.owner.browser.get(APPROVALS).text
    own, other = office.sender.browser.get(path).text, office.owner.browser.get(path).text
    assert "A second person has to approve" in own
    assert (f"{path}/approve" in own, f"{path}/approve" in other) == (False, True)
    assert office.sender.browser.post(f"{path}/approve", data={"": ""}).status_code == 409
    assert goes_to(office.owner.browser.post(f"{path}/approve", data={"": ""})) == f"{path}?done=approved"
    assert "A second person has to approve" not in office.sender.browser.get(path).text
