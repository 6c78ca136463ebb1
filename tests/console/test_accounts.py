"""Operators find accounts and change them once, with a record of who and why."""

import re
from decimal import Decimal
from typing import Any, Final

import httpx
import pytest

from tests.support.console.operators import ACTOR, changes_of, hidden, walk
from tests.support.identity.customers import link, words
from tests.support.identity.people import (
    NAME,
    PASSWORD,
    alert,
    at_once,
    code_to,
    goes_to,
    new_browser,
    new_phone,
    set_password,
    sign_up,
)
from tests.support.processes.service import Caller, Service
from tumira.accounts.store import SYSTEM
from tumira.core.ids import ACCOUNT, write_id
from tumira.identity import manage_accounts

ACCOUNTS: Final = "/operator/accounts"
NEW: Final = ACCOUNTS + "/new"
NOTE: Final = "Paid in cash at the office"


@pytest.fixture(scope="module")
def idle(service: Service) -> Caller:
    """Give an account that nothing is done to."""
    return service.open_account(balance="10")


def path(caller: Caller, form: str = "") -> str:
    return f"{ACCOUNTS}/{caller.account_id}{form}"


def owner_sees(service: Service, caller: Caller) -> list[tuple[Any, ...]]:
    """Return the changes as the account's owner reads them, but for the making of its key."""
    rows = service.sql(
        "SELECT actor, what, detail, address FROM changes WHERE account_id = $1 AND what <> 'key created'"
        " ORDER BY id",
        caller.id,
    )
    return [tuple(row) for row in rows]


def test_accounts_are_found_by_number_name_business_and_id(service: Service, admin: httpx.Client) -> None:
    phone = new_phone()
    sign_up(service, phone, name="Chipo Nyathi", business="Nyathi Pharmacy")
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", phone)
    one = f"{ACCOUNTS}/{write_id(ACCOUNT, row['id'])}"
    for text in (phone, phone.replace("+27", "0"), phone[:-2], "nyathi", "PHARM chip", ""):
        page = admin.get(ACCOUNTS, params={"q": text}).text
        assert link(page, "Nyathi Pharmacy") == one, text
    assert goes_to(admin.get(ACCOUNTS, params={"q": write_id(ACCOUNT, row["id"])})) == one
    for text in ("nobody's", "%%%", "'; --", "+2637799", "acc_" + "0" * 26, "x" * 500):
        assert "No account matches" in words(admin.get(ACCOUNTS, params={"q": text}).text), text
    # Neither do places that we would not write lead anywhere.
    for query in (
        {"q": "\x00"},
        {"after": "x"},
        {"q": "a", "word": "\uffff", "after": "acc_1"},
        {"phone": "z"},
    ):
        assert admin.get(ACCOUNTS, params=query).status_code == 200, query


def new_account(admin: httpx.Client, **fields: str) -> dict[str, str]:
    """Return the form of a new account, filled in."""
    form = {"phone": new_phone(), "country": "ZA", "name": "Sipho Dube", "business": "Dube Taxis"}
    return hidden(admin.get(NEW)) | form | fields


def test_an_account_is_opened_once(service: Service, admin: httpx.Client) -> None:
    phone = new_phone()
    form = new_account(admin, phone=phone.replace("+27", "0"), balance="7.5", note=NOTE)
    answers = at_once([lambda: admin.post(NEW, data=form)] * 4)
    (row,) = service.sql("SELECT * FROM accounts WHERE phone = $1", phone)
    one = f"{ACCOUNTS}/{write_id(ACCOUNT, row['id'])}"
    assert {goes_to(answer) for answer in answers} == {f"{one}?done=opened"}
    assert (row["name"], row["business"], row["balance"]) == ("Sipho Dube", "Dube Taxis", Decimal("7.5"))
    moved = service.sql("SELECT note, actor FROM transfers WHERE account_id = $1", row["id"])
    assert [tuple(one) for one in moved] == [(NOTE, ACTOR)]
    (change,) = service.sql("SELECT * FROM operator_changes WHERE account_id = $1", row["id"])
    assert (change["actor"], change["what"], change["detail"]) == (
        ACTOR,
        "account opened",
        f"7.5000 USD: {NOTE}",
    )
    assert "The account is open." in words(admin.get(f"{one}?done=opened").text)
    # The owner chooses a password.
    owner = new_browser(service)
    owner.post("/dashboard/forgotten", data={"phone": phone})
    set_password(owner, code_to(service, phone), PASSWORD)
    assert "Dube Taxis" in owner.get("/dashboard/settings").text


def test_an_account_that_cannot_be_is_not_opened(
    service: Service, admin: httpx.Client, viewer: httpx.Client, idle: Caller
) -> None:
    before = service.sql("SELECT count(*) FROM accounts")
    (taken,) = service.sql("SELECT phone FROM accounts WHERE id = $1", idle.id)
    for name, value, said in (
        ("phone", "", "Enter a mobile number"),
        ("phone", "0242000000", "Enter a mobile number"),
        ("phone", "+447700900123", "Enter a mobile number"),
        ("phone", taken["phone"], idle.account_id),
        ("name", "", "name"),
        ("business", "x" * 101, "at most"),
        ("balance", "-1", "Enter an amount"),
        ("balance", "5", "Enter a note"),
        ("press", "prs_1", "open for too long"),
    ):
        refused = admin.post(NEW, data=new_account(admin) | {name: value})
        assert (refused.status_code, said.lower() in alert(refused).lower()) == (422, True), (name, value)
    assert "Only admins can open accounts." in viewer.get(NEW).text
    assert service.sql("SELECT count(*) FROM accounts") == before


def test_money_is_credited_by_the_phone_number(service: Service, admin: httpx.Client) -> None:
    phone = new_phone()
    sign_up(service, phone, name="Chipo Dube", business="Dube Bakery")
    form = {"phone": phone.replace("+27", "0"), "amount": "2.5", "credit_note": NOTE}
    asked = admin.post(f"{ACCOUNTS}/credit", data=form)
    said = words(asked.text)
    for part in ("Dube Bakery", "Chipo Dube", "Balance now US$0.00", "Balance after US$2.50", NOTE):
        assert part in said, part
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", phone)
    confirm = f"{ACCOUNTS}/{write_id(ACCOUNT, row['id'])}/credit/confirm"
    assert f'action="{confirm}"' in asked.text
    for done in ("credit", "again"):
        assert str(goes_to(admin.post(confirm, data=hidden(asked)))).endswith(f"done={done}")
    (row,) = service.sql("SELECT balance FROM accounts WHERE phone = $1", phone)
    assert row["balance"] == Decimal("2.5")
    for name, value in (("phone", "+263771299999"), ("phone", ""), ("amount", "0"), ("credit_note", "")):
        refused = admin.post(f"{ACCOUNTS}/credit", data=form | {name: value})
        assert (refused.status_code, f'href="#{name}"' in refused.text) == (422, True), (name, value)
        assert "<details open>" in refused.text


def test_a_number_of_two_countries_needs_its_country_code(service: Service, admin: httpx.Client) -> None:
    for code in ("+263", "+27"):
        service.sql(
            "INSERT INTO accounts (id, phone, name, business) VALUES (uuidv7(), $1, 'Two', $1)",
            f"{code}771200077",
        )
    form = {"phone": "0771200077", "amount": "5", "credit_note": NOTE}
    assert "Add the country code" in alert(admin.post(f"{ACCOUNTS}/credit", data=form))
    asked = admin.post(f"{ACCOUNTS}/credit", data=form | {"phone": "+27 77 120 0077"})
    assert "+27771200077" in asked.text
    service.sql("DELETE FROM accounts WHERE name = 'Two'")


def test_a_long_list_is_turned_page_by_page(service: Service, admin: httpx.Client) -> None:
    service.sql(
        "INSERT INTO accounts (id, phone, name, business)"
        " SELECT uuidv7(), '+2637712' || n, 'Paged Person', 'Paged & Sons ' || n"
        " FROM generate_series(90001, 90120) AS n"
    )
    for query, more, size in (("paged", "More", 120), ("%2B2637712901", "More", 21), ("", "Older", 120)):
        seen = walk(admin, f"{ACCOUNTS}?q={query}", more, r"Paged &amp; Sons (\d+)")
        assert len(seen) == len(set(seen)) == size, query
    service.sql("DELETE FROM accounts WHERE name = 'Paged Person'")


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
    assert page.text.count("<h1") == 1
    said = words(page.text)
    for part in (
        caller.account_id,
        "US$99.96",
        "600",
        "1 text, 3 times",
        "0 sessions",
        "90.0% of finished messages were delivered",
        caller.key_id,
        "active",
        "https://example.com/<hook>",
        "Opening balance",
        "Paynow, EcoCash",
        "pending",
    ):
        assert part in said, part
    assert caller.key not in page.text
    for name in ("acc_" + "0" * 26, "nothing", write_id(ACCOUNT, SYSTEM)):
        assert admin.get(f"{ACCOUNTS}/{name}").status_code == 404
        form = {"what": "suspend", "suspend_note": NOTE}
        assert admin.post(f"{ACCOUNTS}/{name}/suspension", data=form).status_code == 404


def test_money_is_credited_once_after_it_was_confirmed(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account(balance="10")
    form = {"direction": "credit", "amount": "2.5", "credit_note": f"  {NOTE}\n "}
    asked = admin.post(path(caller, "/credit"), data=form)
    assert asked.status_code == 200
    assert "Balance after US$12.50" in words(asked.text)
    assert service.balance(caller) == Decimal(10)
    fields = hidden(asked)
    answers = at_once([lambda: admin.post(path(caller, "/credit/confirm"), data=fields)] * 4)
    assert sorted(str(goes_to(one)).partition("=")[2] for one in answers) == ["again"] * 3 + ["credit"]
    assert service.balance(caller) == Decimal("12.5")
    change = (ACTOR, "balance credited", f"2.5000 USD: {NOTE}")
    assert changes_of(service, caller.id) == [change]
    # Its owner learns who it was, and not from which address.
    assert owner_sees(service, caller) == [(*change, manage_accounts.CONSOLE)]
    (moved,) = service.sql(
        "SELECT actor, note FROM transfers WHERE account_id = $1 ORDER BY id DESC LIMIT 1", caller.id
    )
    assert tuple(moved) == (ACTOR, NOTE)


def test_money_is_debited_as_far_as_there_is_some_and_credited_as_far_as_there_is_room(
    service: Service, admin: httpx.Client
) -> None:
    caller = service.open_account(balance="10")
    form = {"direction": "debit", "amount": "10.0001", "credit_note": NOTE}
    refused = admin.post(path(caller, "/credit"), data=form)
    assert refused.status_code == 422
    assert "The balance is only US$10.00" in alert(refused)
    confirmed = hidden(admin.post(path(caller, "/credit"), data=form | {"amount": "10"}))
    # Meanwhile some of it was spent.
    service.run(manage_accounts.credit, caller.id, Decimal(-1), note="spent", actor="test")
    late = admin.post(path(caller, "/credit/confirm"), data=confirmed)
    assert (late.status_code, "Nothing was debited" in alert(late)) == (409, True)
    service.run(manage_accounts.credit, caller.id, Decimal(1), note="back", actor="test")
    # What was refused was not done, so the same press may come again.
    assert str(goes_to(admin.post(path(caller, "/credit/confirm"), data=confirmed))).endswith("done=credit")
    assert service.balance(caller) == 0
    # What was not done on a page is noted without an address.
    assert [row[:2] for row in changes_of(service, caller.id)][:2] == [
        ("test", "balance debited"),
        ("test", "balance credited"),
    ]
    assert {row[3] for row in owner_sees(service, caller) if row[0] == "test"} == {None}
    form = {"direction": "credit", "amount": "9999999999", "credit_note": NOTE}
    service.run(manage_accounts.credit, caller.id, Decimal(1), note="one", actor="test")
    confirmed = hidden(admin.post(path(caller, "/credit"), data=form))
    refused = admin.post(path(caller, "/credit/confirm"), data=confirmed)
    assert (refused.status_code, "more than ten digits" in alert(refused)) == (409, True)


def test_what_cannot_be_is_refused_beside_its_field(
    service: Service, admin: httpx.Client, idle: Caller
) -> None:
    credit = {"direction": "credit", "amount": "5", "credit_note": NOTE, "press": "prs_" + "0" * 26}
    limits = {"rate": "60", "weight": "1", "daily_limit": "", "call_limit": ""}
    for form, fields, faults in (
        ("/credit", credit, {"amount": ["0", "1e3", "-5", ""], "credit_note": [" \n ", "x" * 501]}),
        ("/credit/confirm", credit, {"amount": ["0", ""], "credit_note": ["", "x" * 501]}),
        ("/limits", limits, {"rate": ["0", "1000001", "", "\u0665"], "weight": ["0", "101", "-1"]}),
        ("/limits", limits, {"daily_limit": ["five"], "call_limit": ["1e3"], "limits_note": ["x" * 501]}),
        ("/suspension", {"what": "suspend"}, {"suspend_note": [""]}),
        ("/review", {"what": "consent"}, {"review_note": [""]}),
        ("/second-factor", {}, {"factor_note": [""]}),
    ):
        for name, values in faults.items():
            for value in values:
                refused = admin.post(path(idle, form), data=fields | {name: value})
                assert refused.status_code == 422, (form, name, value)
                assert f'href="#{name}"' in refused.text
    assert (service.balance(idle), changes_of(service, idle.id)) == (Decimal(10), [])


def test_an_account_is_suspended_and_sends_again(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    note = "Card <fraud> suspected"
    for _ in range(2):
        answer = admin.post(path(caller, "/suspension"), data={"what": "suspend", "suspend_note": note})
        assert goes_to(answer) == path(caller) + "?done=suspended"
    assert service.send(caller).json()["error"]["code"] == "ACCOUNT_SUSPENDED"
    page = admin.get(path(caller) + "?done=suspended").text
    assert "The account is suspended." in words(page)
    assert "Card &lt;fraud&gt; suspected" in page
    lifted = admin.post(path(caller, "/suspension"), data={"what": "lift", "suspend_note": "Cleared"})
    assert goes_to(lifted) == path(caller) + "?done=lifted"
    assert service.send(caller).status_code == 202
    assert changes_of(service, caller.id) == [
        (ACTOR, "account suspended", note),
        (ACTOR, "account may send again", "Cleared"),
    ]
    assert owner_sees(service, caller) == [
        (ACTOR, "account suspended", "", manage_accounts.CONSOLE),
        (ACTOR, "account may send again", "", manage_accounts.CONSOLE),
    ]


def test_limits_and_weight_count_from_the_next_call(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    form = {"rate": "77", "weight": "5", "daily_limit": "0.01", "call_limit": "3", "limits_note": "Asked for"}
    assert goes_to(admin.post(path(caller, "/limits"), data=form)) == path(caller) + "?done=limits"
    assert service.send(caller).json()["error"]["code"] == "SPEND_LIMIT_REACHED"
    page = admin.get(path(caller)).text
    for name in ("rate", "weight", "daily_limit", "call_limit"):
        assert re.search(rf'id="{name}"[^>]* value="{re.escape(form[name])}"', page), name
    assert goes_to(admin.post(path(caller, "/limits"), data=form | {"daily_limit": "", "call_limit": ""}))
    assert service.send(caller).status_code == 202
    (_, _, detail) = changes_of(service, caller.id)[0]
    assert "77 calls a minute, 3.0000 a call, 0.0100 a day" in detail
    assert detail.endswith("weight 5; Asked for")


def test_consent_is_noted_with_how_it_is_known(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    given = admin.post(path(caller, "/review"), data={"what": "consent", "review_note": "Letter of 3 May"})
    assert goes_to(given) == path(caller) + "?done=consent"
    assert "yes, with consent" in words(admin.get(path(caller)).text)
    taken = admin.post(path(caller, "/review"), data={"what": "no-consent"})
    assert goes_to(taken) == path(caller) + "?done=no-consent"
    assert [row[1:] for row in changes_of(service, caller.id)] == [
        ("refused texts are kept", "Letter of 3 May"),
        ("refused texts are not kept", ""),
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
    assert "Turn off second factor" in admin.get(one).text
    form = {"factor_note": "Came to the office with the papers"}
    assert goes_to(admin.post(one + "/second-factor", data=form)) == one + "?done=factor"
    assert goes_to(admin.post(one + "/second-factor", data=form)) == one + "?done=no-factor"
    assert "Turn off second factor" not in admin.get(one).text
    assert changes_of(service, row["id"]) == [
        (ACTOR, "second factor turned off", f"{NAME}; {form['factor_note']}")
    ]
    assert "second factor turned off" in words(person.browser.get("/dashboard/settings/changes").text).lower()


def test_an_operator_sets_lifetimes_and_switches_the_guard_off(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    fields = {"passcode_minutes": "5", "message_hours": "12", "guard": "on", "messages_note": NOTE}
    assert goes_to(admin.post(path(caller, "/messages"), data=fields)) == path(caller) + "?done=messages"
    page = words(admin.get(path(caller)).text)
    assert "passcodes 5 min, others 12 h" in page
    assert "20 to a number in 10 min, 50 in a day; 60 to a range in 10 min" in page
    assert [what for _, what, _, _ in owner_sees(service, caller)[-2:]] == [
        "lifetimes changed",
        "passcode limits changed",
    ]
    admin.post(path(caller, "/messages"), data={**fields, "guard": "off"})
    (row,) = service.sql("SELECT * FROM accounts WHERE id = $1", caller.id)
    assert (row["passcode_lifetime_s"], row["message_lifetime_s"], row["code_guard"]) == (300, 43_200, False)
    for wrong in ({"passcode_minutes": "61"}, {"message_hours": "0"}, {"guard": "perhaps"}):
        assert admin.post(path(caller, "/messages"), data=fields | wrong).status_code == 422
