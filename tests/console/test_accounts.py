"""Operators find accounts and change them once, with a record of who and why."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import httpx
import pytest

from tests.support.identity.customers import link, words
from tests.support.identity.operators import OperatorBrowser, new_operator
from tests.support.identity.people import alert, at_once, goes_to, new_phone, run_behind_proxy, sign_up
from tests.support.processes.service import Caller, Service
from tumira.accounts.store import SYSTEM
from tumira.audit_log import Actor
from tumira.core.ids import ACCOUNT, write_id
from tumira.identity import manage_accounts
from tumira.identity.store.operators import Role

ACCOUNTS: Final = "/operator/accounts"
NAME: Final = "operator:Rudo Operator"
NOTE: Final = "Paid in cash at the office"


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        yield running


@pytest.fixture(scope="module")
def admin(service: Service) -> httpx.Client:
    return new_operator(service).browser


@pytest.fixture(scope="module")
def viewer(service: Service) -> OperatorBrowser:
    return new_operator(service, role=Role.VIEWER, name="Tendai Viewer")


def path(caller: Caller, form: str = "") -> str:
    return f"{ACCOUNTS}/{caller.account_id}{form}"


def hidden(page: str) -> dict[str, str]:
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))


def changed(service: Service, caller: Caller) -> list[tuple[Any, ...]]:
    rows = service.sql(
        "SELECT actor, what, detail, address IS NOT NULL FROM operator_changes WHERE account_id = $1"
        " ORDER BY id DESC",
        caller.id,
    )
    return [tuple(row) for row in rows]


def owner_sees(service: Service, caller: Caller) -> list[tuple[Any, ...]]:
    """Return the latest changes as the account's owner reads them, but for the making of its key."""
    rows = service.sql(
        "SELECT actor, what, detail, address FROM changes WHERE account_id = $1 AND what <> 'key created'"
        " ORDER BY id DESC",
        caller.id,
    )
    return [tuple(row) for row in rows]


def test_accounts_are_found_by_number_name_business_and_id(service: Service, admin: httpx.Client) -> None:
    phone = new_phone()
    sign_up(service, phone, name="Chipo Nyathi", business="Nyathi Pharmacy")
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", phone)
    one = f"{ACCOUNTS}/{write_id(ACCOUNT, row['id'])}"
    for text in (phone, phone.replace("+27", "0"), phone[:-2], "nyathi", "PHARM chip", "chipo"):
        page = admin.get(ACCOUNTS, params={"q": text}).text
        assert link(page, "Nyathi Pharmacy") == one, text
    assert goes_to(admin.get(ACCOUNTS, params={"q": write_id(ACCOUNT, row["id"])})) == one
    newest = admin.get(ACCOUNTS).text
    assert link(newest, "Nyathi Pharmacy") == one
    assert newest.count("<h1") == 1


@pytest.mark.parametrize(
    "text", ["nobody's", "%%%", "'; --", "+2637799", "acc_" + "0" * 26, "x" * 500, "\x00"]
)
def test_a_search_that_finds_nothing_says_so(admin: httpx.Client, text: str) -> None:
    page = admin.get(ACCOUNTS, params={"q": text})
    assert page.status_code == 200
    assert "No account fits" in words(page.text) or text == "\x00"


def test_a_long_list_is_turned_page_by_page(service: Service, admin: httpx.Client) -> None:
    service.sql(
        "INSERT INTO accounts (id, phone, name, business)"
        " SELECT uuidv7(), '+2637712' || n, 'Paged Person', 'Paged & Sons ' || n"
        " FROM generate_series(10001, 10120) AS n"
    )
    for query in ("paged", "+2637712101", ""):
        seen: list[str] = []
        where: str | None = f"{ACCOUNTS}?q={query.replace('+', '%2B')}"
        for _ in range(10):
            assert where is not None
            page = admin.get(where).text
            seen += re.findall(r"Paged &amp; Sons (\d+)", page)
            where = link(page, "More" if query else "Older")
            if where is None:
                break
        assert len(seen) == len(set(seen)) == (21 if query.startswith("+") else 120), query
    service.sql("DELETE FROM accounts WHERE name = 'Paged Person'")


@pytest.mark.parametrize(
    "query", [{"after": "x"}, {"q": "a", "word": "\uffff", "after": "acc_1"}, {"q": "077", "phone": "zz"}]
)
def test_a_place_that_we_would_not_write_leads_nowhere(admin: httpx.Client, query: dict[str, str]) -> None:
    assert admin.get(ACCOUNTS, params=query).status_code == 200


def test_one_account_shows_what_it_has(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    service.send(caller)
    service.sql(
        "INSERT INTO traffic (account_id, day, country, delivered, failed)"
        " VALUES ($1, current_date, 'ZW', 9, 1)",
        caller.id,
    )
    service.sql(
        "INSERT INTO content_refusals"
        " (account_id, digest, first_at, last_at, count, category, score, reasons)"
        " VALUES ($1, sha256('a'), now(), now(), 3, 'offer', 0.99, '[]')",
        caller.id,
    )
    service.sql(
        "INSERT INTO webhook_endpoints (id, account_id, url, secret, position)"
        " VALUES (uuidv7(), $1, 'https://example.com/<hook>', sha256('a'), 0)",
        caller.id,
    )
    service.sql(
        "INSERT INTO top_ups (id, account_id, method, provider, currency, asked, state)"
        " VALUES (uuidv7(), $1, 'paynow', 'ecocash', 'USD', 5, 'pending')",
        caller.id,
    )
    page = admin.get(path(caller))
    assert page.status_code == 200
    assert page.text.count("<h1") == 1
    said = words(page.text)
    for part in (
        caller.account_id,
        "US$99.96",
        "600",
        "1 text, 3 times",
        "0 sessions",
        "90.0 % of what has ended was delivered",
        caller.key_id,
        "in use",
        "https://example.com/<hook>",
        "Opening balance",
        "Paynow, EcoCash",
        "pending",
    ):
        assert part in said, part
    assert caller.key not in page.text


@pytest.mark.parametrize("name", ["acc_" + "0" * 26, "nothing", write_id(ACCOUNT, SYSTEM)])
def test_an_account_that_is_not_there_is_not_found(admin: httpx.Client, name: str) -> None:
    assert admin.get(f"{ACCOUNTS}/{name}").status_code == 404
    answer = admin.post(f"{ACCOUNTS}/{name}/suspension", data={"what": "suspend", "suspend_note": NOTE})
    assert answer.status_code == 404


def test_money_is_credited_once_after_it_was_confirmed(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account(balance="10")
    asked = admin.post(
        path(caller, "/credit"), data={"direction": "credit", "amount": "2.5", "credit_note": f"  {NOTE}\n "}
    )
    assert asked.status_code == 200
    assert "Balance after US$12.50" in words(asked.text)
    assert service.balance(caller) == Decimal(10)
    form = hidden(asked.text)
    answers = at_once([lambda: admin.post(path(caller, "/credit/confirm"), data=form)] * 4)
    assert sorted(str(goes_to(one)).partition("=")[2] for one in answers) == ["again"] * 3 + ["credit"]
    assert service.balance(caller) == Decimal("12.5")
    assert changed(service, caller) == [(NAME, "balance credited", f"2.5000 USD: {NOTE}", True)]
    # Its owner learns who it was, and not from which address.
    assert owner_sees(service, caller) == [
        (NAME, "balance credited", f"2.5000 USD: {NOTE}", manage_accounts.CONSOLE)
    ]
    (moved,) = service.sql(
        "SELECT actor, note FROM transfers WHERE account_id = $1 ORDER BY id DESC LIMIT 1", caller.id
    )
    assert tuple(moved) == (NAME, NOTE)


def test_money_is_debited_as_far_as_there_is_some(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account(balance="10")
    form = {"direction": "debit", "amount": "10.0001", "credit_note": NOTE}
    refused = admin.post(path(caller, "/credit"), data=form)
    assert refused.status_code == 422
    assert "The account has less than that: US$10.00" in alert(refused)
    confirmed = hidden(admin.post(path(caller, "/credit"), data=form | {"amount": "10"}).text)
    # Meanwhile some of it was spent.
    service.run(manage_accounts.credit, caller.id, Decimal(-1), note="spent", actor="test")
    late = admin.post(path(caller, "/credit/confirm"), data=confirmed)
    assert late.status_code == 409
    assert "nothing was taken" in alert(late)
    service.run(manage_accounts.credit, caller.id, Decimal(1), note="back", actor="test")
    # What was refused was not done, so the same press may come again.
    assert str(goes_to(admin.post(path(caller, "/credit/confirm"), data=confirmed))).endswith("done=credit")
    assert service.balance(caller) == 0


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"amount": "0"}, "Write an amount"),
        ({"amount": "1e3"}, "Write an amount"),
        ({"amount": "-5"}, "Write an amount"),
        ({"amount": ""}, "Write an amount"),
        ({"credit_note": " \n "}, "Say why"),
        ({"credit_note": "x" * 501}, "At most 500"),
    ],
)
def test_money_needs_an_amount_and_a_reason(
    service: Service, admin: httpx.Client, fields: dict[str, str], fault: str
) -> None:
    caller = service.open_account(balance="10")
    form = {"direction": "credit", "amount": "5", "credit_note": NOTE} | fields
    for step in ("/credit", "/credit/confirm"):
        refused = admin.post(path(caller, step), data=form | {"press": "prs_" + "0" * 26})
        assert refused.status_code == 422
        assert fault in alert(refused)
    assert service.balance(caller) == Decimal(10)


def test_a_balance_does_not_grow_beyond_its_column(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account(balance="10")
    form = {"direction": "credit", "amount": "9999999999", "credit_note": NOTE}
    confirmed = hidden(admin.post(path(caller, "/credit"), data=form).text)
    refused = admin.post(path(caller, "/credit/confirm"), data=confirmed)
    assert refused.status_code == 409
    assert "more than ten digits" in alert(refused)


def test_an_account_is_suspended_and_sends_again(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    note = {"suspend_note": "Card <fraud> suspected"}
    unsaid = admin.post(path(caller, "/suspension"), data={"what": "suspend", "suspend_note": ""})
    assert unsaid.status_code == 422
    assert service.send(caller).status_code == 202
    for _ in range(2):
        answer = admin.post(path(caller, "/suspension"), data={"what": "suspend"} | note)
        assert goes_to(answer) == path(caller) + "?done=suspended"
    assert service.send(caller).json()["error"]["code"] == "ACCOUNT_SUSPENDED"
    page = admin.get(path(caller) + "?done=suspended").text
    assert "The account is suspended." in words(page)
    assert "Card &lt;fraud&gt; suspected" in page
    lifted = admin.post(path(caller, "/suspension"), data={"what": "lift", "suspend_note": "Cleared"})
    assert goes_to(lifted) == path(caller) + "?done=lifted"
    assert service.send(caller).status_code == 202
    assert changed(service, caller) == [
        (NAME, "account may send again", "Cleared", True),
        (NAME, "account suspended", note["suspend_note"], True),
    ]
    assert owner_sees(service, caller) == [
        (NAME, "account may send again", "", manage_accounts.CONSOLE),
        (NAME, "account suspended", "", manage_accounts.CONSOLE),
    ]


def test_limits_and_weight_count_from_the_next_call(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    form = {"rate": "77", "weight": "5", "daily_limit": "0.01", "call_limit": "3", "limits_note": "Asked for"}
    assert goes_to(admin.post(path(caller, "/limits"), data=form)) == path(caller) + "?done=limits"
    assert service.send(caller).json()["error"]["code"] == "SPEND_LIMIT_REACHED"
    (row,) = service.sql(
        "SELECT rate_limit, weight, daily_limit, call_limit FROM accounts WHERE id = $1", caller.id
    )
    assert tuple(row) == (77, 5, Decimal("0.01"), Decimal(3))
    page = admin.get(path(caller)).text
    for name in ("rate", "weight", "daily_limit", "call_limit"):
        assert re.search(rf'id="{name}"[^>]* value="{re.escape(form[name])}"', page), name
    assert goes_to(admin.post(path(caller, "/limits"), data=form | {"daily_limit": "", "call_limit": ""}))
    assert service.send(caller).status_code == 202
    (_, _, detail, _) = changed(service, caller)[-1]
    assert "77 calls a minute, 3.0000 a call, 0.0100 a day" in detail
    assert detail.endswith("weight 5; Asked for")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rate", "0"),
        ("rate", "1000001"),
        ("rate", ""),
        ("rate", "\u0665"),
        ("weight", "0"),
        ("weight", "101"),
        ("weight", "-1"),
        ("daily_limit", "five"),
        ("call_limit", "1e3"),
        ("limits_note", "x" * 501),
    ],
)
def test_limits_that_cannot_be_are_refused_beside_their_field(
    service: Service, admin: httpx.Client, name: str, value: str
) -> None:
    caller = service.open_account()
    form = {"rate": "60", "weight": "1", "daily_limit": "", "call_limit": ""} | {name: value}
    refused = admin.post(path(caller, "/limits"), data=form)
    assert refused.status_code == 422
    assert alert(refused)
    assert f'id="{name}-fault"' in refused.text
    assert changed(service, caller) == []


def test_consent_is_noted_with_how_it_is_known(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    unsaid = admin.post(path(caller, "/review"), data={"what": "consent", "review_note": ""})
    assert unsaid.status_code == 422
    given = admin.post(path(caller, "/review"), data={"what": "consent", "review_note": "Letter of 3 May"})
    assert goes_to(given) == path(caller) + "?done=consent"
    assert "yes, by consent" in words(admin.get(path(caller)).text)
    taken = admin.post(path(caller, "/review"), data={"what": "no-consent"})
    assert goes_to(taken) == path(caller) + "?done=no-consent"
    assert [row[1:3] for row in changed(service, caller)] == [
        ("refused texts are not kept", ""),
        ("refused texts are kept", "Letter of 3 May"),
    ]


def test_the_second_factor_of_an_owner_who_lost_it_is_dropped(service: Service, admin: httpx.Client) -> None:
    person = sign_up(service)
    service.sql(
        "UPDATE logins SET totp_secret = substr(sha256('a'), 1, 20), totp_since = now() FROM accounts"
        " WHERE accounts.id = account_id AND phone = $1",
        person.phone,
    )
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)
    one = f"{ACCOUNTS}/{write_id(ACCOUNT, row['id'])}"
    assert "Turn the second factor off" in admin.get(one).text
    assert admin.post(one + "/second-factor", data={"factor_note": ""}).status_code == 422
    form = {"factor_note": "Came to the office with the papers"}
    assert goes_to(admin.post(one + "/second-factor", data=form)) == one + "?done=factor"
    assert goes_to(admin.post(one + "/second-factor", data=form)) == one + "?done=no-factor"
    assert "Turn the second factor off" not in admin.get(one).text
    found = service.sql("SELECT what, detail FROM operator_changes WHERE account_id = $1", row["id"])
    assert [tuple(change) for change in found] == [("second factor turned off", form["factor_note"])]
    assert "second factor turned off" in words(person.browser.get("/dashboard/settings/changes").text).lower()


FORMS: Final = (
    ("/credit", {"direction": "credit", "amount": "5", "credit_note": NOTE}),
    ("/credit/confirm", {"amount": "5", "credit_note": NOTE, "press": "prs_" + "1" * 26}),
    ("/suspension", {"what": "suspend", "suspend_note": NOTE}),
    ("/limits", {"rate": "1", "weight": "1"}),
    ("/review", {"what": "consent", "review_note": NOTE}),
    ("/second-factor", {"factor_note": NOTE}),
)


def test_what_the_command_line_changes_is_noted_too(service: Service) -> None:
    caller = service.open_account()
    who = Actor("cli:somebody")
    service.run(manage_accounts.credit, caller.id, Decimal(5), note=NOTE, actor=who.name)
    service.run(manage_accounts.suspend, caller.id, suspended=True, actor=who, note="Late")
    service.run(manage_accounts.review, caller.id, consent=True, actor=who)
    service.run(
        manage_accounts.limit, caller.id, rate_limit=9, daily_limit=None, change_daily=False, actor=who
    )
    assert [row[:2] + row[3:] for row in changed(service, caller)] == [
        (who.name, what, False)
        for what in ("limits changed", "refused texts are kept", "account suspended", "balance credited")
    ]
    assert {row[3] for row in owner_sees(service, caller)} == {None}
