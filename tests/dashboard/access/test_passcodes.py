"""The customer sees what the passcode guard stopped, changes its limits, and lets numbers through."""

import html
import re
from decimal import Decimal
from typing import Final

import httpx
import pytest

from tests.support.identity.customers import words
from tests.support.identity.people import Person, alert, goes_to, sign_up, texts_to
from tests.support.processes.service import Caller, Service
from tumira.accounts.api_keys import Scope
from tumira.accounts.passcode_limits import PasscodeLimits
from tumira.core.ids import KEY, AccountId, write_id
from tumira.identity.manage_accounts import credit, set_passcode_limits
from tumira.identity.manage_keys import create_key

PAGE: Final = "/dashboard/settings/passcodes"
RANGE: Final = "+26377120"
LIMITS: Final = PasscodeLimits(is_on=True, number=2, number_day=3, range=4)


@pytest.fixture
def person(service: Service) -> Person:
    return sign_up(service)


def number(place: int) -> str:
    return f"{RANGE}{place:04}"


def account_of(service: Service, person: Person) -> AccountId:
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)
    return AccountId(row["id"])


def guarded(service: Service, person: Person, limits: PasscodeLimits = LIMITS) -> Caller:
    account_id = account_of(service, person)
    service.run(credit, account_id, Decimal(10), note="Cash", actor="test")
    service.run(set_passcode_limits, account_id, lambda _: limits)
    key_id, key = service.run(create_key, account_id, "test", list(Scope))
    return Caller(account_id, "", write_id(KEY, key_id), key)


def rejected(answer: httpx.Response) -> int:
    return len(answer.json()["rejected"])


def post(person: Person, path: str = "", **fields: str) -> httpx.Response:
    return person.browser.post(PAGE + path, data=fields)


def show(person: Person) -> str:
    return words(person.browser.get(PAGE).text)


def test_what_was_stopped_is_told_shown_and_let_through(service: Service, person: Person) -> None:
    caller = guarded(service, person)
    assert "Nothing is stopped." in show(person)
    assert [rejected(service.send(caller, to=number(place))) for place in range(6)] == [0] * 4 + [1] * 2

    page = show(person)
    assert "+263 77 120 •••• " in page
    assert "No passcode was stopped." not in page
    notices = [text for text in texts_to(service, person.phone) if "passcodes" in text]
    assert len(notices) == 1
    assert RANGE in notices[0]

    assert goes_to(post(person, "/lift", prefix=RANGE)) == f"{PAGE}?done=lifted"
    assert rejected(service.send(caller, to=number(9))) == 0
    assert "Nothing is stopped." in show(person)

    assert goes_to(post(person, "/guard", prefix=RANGE)) == f"{PAGE}?done=guarded"
    assert [rejected(service.send(caller, to=number(place))) for place in range(5)] == [0] * 4 + [1]
    whats = [
        row["what"]
        for row in service.sql("SELECT what FROM changes WHERE account_id = $1 ORDER BY id", caller.id)
    ]
    assert whats[-2:] == ["passcode guard lifted", "passcode guard set again"]


def test_a_number_that_is_named_lifts_its_range(service: Service, person: Person) -> None:
    caller = guarded(service, person)
    assert "Enter one of the numbers" in alert(post(person, "/lift", phone="12"))
    assert goes_to(post(person, "/lift", phone="+263 77 120 0001")) == f"{PAGE}?done=lifted"
    for place in range(6):
        assert rejected(service.send(caller, to=number(place))) == 0
    assert service.sql("SELECT FROM code_stops WHERE account_id = $1", caller.id) == []


@pytest.mark.parametrize("prefix", ["+", "+2637712000012345", "26377120", "+26377'; --", "\x00"])
def test_what_is_no_range_is_not_lifted(service: Service, person: Person, prefix: str) -> None:
    post(person, "/lift", prefix=prefix)
    account_id = account_of(service, person)
    assert service.sql("SELECT FROM code_ranges WHERE account_id = $1", account_id) == []


def test_the_owner_changes_the_limits_but_not_whether_they_apply(service: Service, person: Person) -> None:
    caller = guarded(service, person, PasscodeLimits(is_on=False))
    assert "The guard is off for your account." in show(person)
    assert goes_to(post(person, number="7", number_day="", range="1000")) == f"{PAGE}?done=limits"
    (row,) = service.sql("SELECT * FROM accounts WHERE id = $1", caller.id)
    found = (row["code_guard"], row["number_codes_max"], row["number_codes_day_max"], row["range_codes_max"])
    assert found == (False, 7, None, 1000)
    answer = post(person, number="0", number_day="x", range="")
    assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert "from 1 to 100" in alert(answer)


def test_the_composer_leaves_out_a_stopped_number(service: Service, person: Person) -> None:
    caller = guarded(service, person)
    for _ in range(2):
        service.send(caller, to=number(1))
    draft = {"recipients": f"{number(1)}\n+27821230001", "message": "Your code is 493817.", "reference": ""}
    answer = person.browser.post("/dashboard/compose", data=draft)
    assert answer.status_code == httpx.codes.OK, answer.text
    assert "Too many passcodes went to this number" in words(answer.text)
    sent = person.browser.post("/dashboard/compose/confirm", data={**draft, **hidden_fields(answer)})
    assert (goes_to(sent) or "").startswith("/dashboard/batches/"), sent.text
    (row,) = service.sql(
        "SELECT array_agg(recipient) FROM messages m JOIN batches b ON b.id = m.batch_id"
        " WHERE b.account_id = $1 AND b.body = $2 AND b.recipients = 1 AND m.country = 'ZA'",
        caller.id,
        draft["message"],
    )
    assert row[0] == ["+27821230001"]


def hidden_fields(page: httpx.Response) -> dict[str, str]:
    return {
        name: html.unescape(value)
        for name, value in re.findall(r'<input type="hidden" name="(terms|token)" value="([^"]*)"', page.text)
    }
