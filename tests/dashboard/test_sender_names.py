"""A customer asks for a sender name, is warned while typing, and sees the decision."""

import html
import re
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest

from tests.support.full_service import account_of
from tests.support.identity.people import Person, alert, goes_to, run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tumira.audit_log import OWNER, Actor
from tumira.sender_names import manage
from tumira.sender_names.manage import NameRequest
from tumira.sender_names.name_rules import PAPER_BYTES_MAX
from tumira.sender_names.places import Place

NAMES: Final = "/dashboard/sender-names"
NOTE: Final = "We tell customers that their parcels are here."
ADMIN: Final = Actor("operator:Rudo Secret")
PDF: Final = ("paper.pdf", b"%PDF-1.7 registration", "application/pdf")


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        yield running


@pytest.fixture
def person(service: Service) -> Person:
    return sign_up(service)


def ask(person: Person, name: str = "Moyo Stores", **fields: Any) -> httpx.Response:
    data = {"name": name, "country": ["ZW", "ZA"], "note": NOTE} | fields
    paper = data.pop("paper", ("", b"", "application/octet-stream"))
    return person.browser.post(NAMES, data=data, files={"paper": paper})


def check(person: Person, name: str) -> str:
    return html.unescape(person.browser.post(NAMES + "/check", data={"name": name}).text)


def test_a_request_is_kept_with_its_paper_and_shown_with_its_state(service: Service, person: Person) -> None:
    assert goes_to(ask(person, paper=PDF)) == f"{NAMES}?done=asked"
    page = person.browser.get(f"{NAMES}?done=asked").text
    assert "We have your request." in page
    assert page.count("waiting</span>") == 2
    (row,) = service.sql("SELECT id, paper, paper_type FROM sender_names WHERE name = 'Moyo Stores'")
    assert (row["paper"], row["paper_type"]) == (PDF[1], "application/pdf")

    service.run(manage.grant, row["id"], Place("ZW"), note="Welcome", actor=ADMIN)
    service.run(manage.refuse, row["id"], Place("ZA"), note="Numbers only there", actor=ADMIN)
    page = html.unescape(person.browser.get(NAMES).text)
    assert "Zimbabwe, in use" in page
    assert "Numbers only there" in page
    # Who decided is not the customer's business.
    assert "by us" in page
    assert "Rudo Secret" not in page
    compose = html.unescape(person.browser.get("/dashboard/compose").text)
    assert "<strong>Moyo Stores</strong> (Zimbabwe)" in compose or "<strong>Moyo Stores</strong>" in compose


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "No_Such"}, "Only letters A to Z"),
        ({"name": "12345"}, "At least one letter"),
        ({"country": []}, "Choose at least one country"),
        ({"note": ""}, "Say what your business sends"),
        ({"paper": ("x.pdf", b"<script>", "application/pdf")}, "Choose a PDF, JPEG or PNG file"),
    ],
)
def test_what_is_wrong_is_said_and_what_was_typed_stays(
    person: Person, fields: dict[str, Any], words: str
) -> None:
    refused = ask(person, **fields)
    assert refused.status_code == 422
    assert words in alert(refused)
    if "name" not in fields:
        assert 'value="Moyo Stores"' in refused.text


def test_a_paper_that_is_too_large_is_refused(service: Service, person: Person) -> None:
    large = ("paper.pdf", b"%PDF-" + bytes(PAPER_BYTES_MAX), "application/pdf")
    refused = ask(person, "Large Paper", paper=large)
    assert refused.status_code == 413
    assert "larger than 2 MB" in alert(refused)
    assert service.sql("SELECT FROM sender_names WHERE name = 'Large Paper'") == []


def test_rules_and_look_alikes_are_told_while_typing(service: Service, person: Person) -> None:
    assert re.findall(r'<li class="(\w+)">', check(person, "")) == ["open"] * 4
    assert re.findall(r'<li class="(\w+)">', check(person, "a_")) == ["broken", "broken", "kept", "kept"]
    page = check(person, "EC0CASH")
    assert "This looks like <strong>EcoCash</strong>, the name of a mobile wallet" in page
    other = sign_up(service, business="Nyasha Traders")
    request = NameRequest("NyashaShop", ["ZW"], NOTE)
    service.run(manage.ask, account_of(service, other), request, Actor(OWNER))
    page = check(person, "Nyasha-Sh0p")
    assert "Another business has a name like this." in page
    # Nothing is said of the other account.
    assert "NyashaShop" not in page
    assert "Nyasha Traders" not in page
    assert "Another business" not in check(other, "NyashaShop")


def test_names_belong_to_their_account(service: Service, person: Person) -> None:
    ask(person, "Own Name")
    assert "Own Name" in person.browser.get(NAMES).text
    assert "Own Name" not in sign_up(service).browser.get(NAMES).text


def test_closing_the_account_ends_its_names(service: Service, person: Person) -> None:
    ask(person, "Bye Name", paper=PDF)
    (row,) = service.sql("SELECT id FROM sender_names WHERE name = 'Bye Name'")
    service.run(manage.grant, row["id"], Place("ZW"), note="", actor=ADMIN)
    closed = person.browser.post(
        "/dashboard/settings/close", data={"word": "CLOSE", "password_to_close": person.password}
    )
    assert closed.status_code in {200, 303}, closed.text
    assert [
        tuple(one)
        for one in service.sql(
            "SELECT state, in_use FROM sender_grants WHERE name_id = $1 ORDER BY country", row["id"]
        )
    ] == [("revoked", False), ("revoked", False)]
    assert service.sql("SELECT FROM sender_names WHERE id = $1 AND paper IS NOT NULL", row["id"]) == []
