"""Customers change their own settings only, and each change is recorded."""

import html
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import httpx
import pytest

from tests.support.identity.customers import words
from tests.support.identity.people import (
    NAME,
    PASSWORD,
    Person,
    alert,
    begin_sign_up,
    code_to,
    count,
    goes_to,
    guessed,
    is_signed_in,
    new_browser,
    pass_time,
    refuses,
    run_behind_proxy,
    set_password,
    sign_in,
    sign_up,
    texts_to,
)
from tests.support.processes.service import Service
from tumira.audit_log import OPERATOR
from tumira.content.review import add_template, dismiss, list_refusals
from tumira.content.store import digest_of
from tumira.content.templates import TemplateVerdict

SETTINGS: Final = "/dashboard/settings"
CHANGES: Final = SETTINGS + "/changes"
NEW: Final = "another good password"
OFFER: Final = "Get 20% off your next order with the code SAVE20!"
MANY: Final = tuple(f"+26377120{place:04}" for place in range(60))
KEY: Final = re.compile(r"tmr_[0-9a-z]{26}_[0-9a-z]{32}")
SCRIPT: Final = '"><script>alert(1)</script>'


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        yield running


@pytest.fixture
def person(service: Service) -> Person:
    return sign_up(service)


def post(person: Person, form: str, **fields: str) -> httpx.Response:
    passwords = {f"password_for_{form}": person.password}
    return person.browser.post(f"{SETTINGS}/{form}", data={**passwords, **fields})


def end(person: Person, session: str) -> httpx.Response:
    return post(person, f"sessions/{session}", pressed="1")


def saved(answer: httpx.Response) -> str:
    found = re.fullmatch(r"/dashboard/settings\?done=(\w+)#[a-z-]+", goes_to(answer) or "")
    assert found is not None, answer.text
    return found[1]


def value_of(page: httpx.Response, field: str) -> str:
    found = re.search(rf'<input id="{field}" [^>]*value="([^"]*)"', page.text)
    assert found is not None
    return html.unescape(found[1])


def account(service: Service, person: Person) -> Any:
    return service.sql(
        "SELECT a.*, l.email, l.low_balance_mail FROM accounts a JOIN logins l ON l.account_id = a.id"
        " WHERE a.phone = $1",
        person.phone,
    )[0]


def make_key(person: Person) -> str:
    scopes = ["messages:send", "messages:read", "account:read"]
    page = person.browser.post(
        "/dashboard/keys", data={"name": "shop", "scope": scopes, "password": person.password}
    )
    (key,) = set(KEY.findall(page.text))
    return str(key)


def give(service: Service, person: Person, amount: str) -> None:
    service.sql("UPDATE accounts SET balance = $2 WHERE phone = $1", person.phone, Decimal(amount))


def send(service: Service, key: str, to: Any = "+263771200001", **fields: Any) -> httpx.Response:
    body = {"channel": "sms", "to": to, "body": "Your code is 493817."} | fields
    return service.call(key, "POST", "/messages", json=body)


def test_names_and_email_are_changed_and_shown_everywhere(service: Service, person: Person) -> None:
    assert saved(post(person, "email", email=" tariro@example.com ")) == "email"
    assert value_of(person.browser.get(SETTINGS), "email") == "tariro@example.com"
    assert saved(post(person, "email", email="")) == "email"
    assert account(service, person)["email"] is None
    assert saved(post(person, "profile", name=" Rudo  Dube ", business=SCRIPT)) == "profile"
    page = person.browser.get(SETTINGS + "?done=profile")
    assert "Profile saved." in page.text
    assert (value_of(page, "name"), value_of(page, "business")) == ("Rudo Dube", SCRIPT)
    for path in (SETTINGS, CHANGES, "/dashboard"):
        assert "<script>alert" not in person.browser.get(path).text
    assert account(service, person)["business"] == SCRIPT


def test_what_cannot_be_saved_is_said_beside_its_field_and_stays_written(person: Person) -> None:
    for form, fields in (
        ("profile", {"name": "", "business": "!!!"}),
        ("email", {"email": "nobody@nowhere"}),
        ("limits", {"call_limit": "1e3", "daily_limit": "-5"}),
        ("lifetimes", {"passcode_minutes": "1", "message_hours": "49"}),
        ("limits", {"call_limit": "12345678901", "daily_limit": "5,00"}),
        ("notice", {"low_balance": "\u0665"}),
    ):
        refused = post(person, form, **fields)
        assert refused.status_code == 422
        assert alert(refused)
        for field, text in fields.items():
            assert value_of(refused, field) == text
            assert f'id="{field}-fault"' in refused.text
    assert "No changes yet." in person.browser.get(CHANGES).text


def test_a_new_password_ends_all_other_sessions(service: Service, person: Person) -> None:
    other = new_browser(service)
    assert goes_to(sign_in(other, person.phone)) == "/dashboard"
    refused = post(person, "password", current_password="a guess", new_password=NEW)
    assert refuses(refused, "Current password")
    for weak in ("password123", person.phone):
        refused = post(person, "password", current_password=PASSWORD, new_password=weak)
        assert refuses(refused, "New password")
    assert is_signed_in(other)
    changed = post(person, "password", current_password=PASSWORD, new_password=NEW)
    assert saved(changed) == "password"
    assert (is_signed_in(person.browser), is_signed_in(other)) == (True, False)
    assert sign_in(new_browser(service), person.phone).status_code == 422
    assert goes_to(sign_in(new_browser(service), person.phone, NEW)) == "/dashboard"
    for secret in (PASSWORD, NEW):
        assert secret not in person.browser.get(CHANGES).text


def test_the_password_is_guessed_ten_times_at_a_browser_that_was_left_open(
    service: Service, person: Person
) -> None:
    guessed(service, person.phone, 8, "proof")
    change = {"current_password": "a guess", "new_password": NEW}
    statuses = [
        post(person, "password", **change).status_code,
        post(person, "close", password_to_close="a guess", word="CLOSE").status_code,
        post(person, "password", **change).status_code,
        post(person, "close", password_to_close="a guess", word="CLOSE").status_code,
    ]
    assert statuses == [422, 422, 429, 429]
    assert is_signed_in(person.browser)
    # Strangers who guess elsewhere use up none of these.
    pass_time(service, person.phone, "15 minutes")
    guessed(service, person.phone, 60)
    assert saved(post(person, "password", current_password=PASSWORD, new_password=NEW)) == "password"


def sessions_in(page: httpx.Response) -> list[str]:
    return re.findall(r'action="/dashboard/settings/sessions/(ses_\w+)"', page.text)


def test_sessions_are_listed_in_words_and_ended_by_their_owner_alone(
    service: Service, person: Person
) -> None:
    others = [new_browser(service) for _ in range(3)]
    for other in others:
        other.headers["User-Agent"] = "Mozilla/5.0 (Linux; Android 14) Chrome/130.0 Mobile Safari/537.36"
        sign_in(other, person.phone)
    page = person.browser.get(SETTINGS)
    assert page.text.count("Chrome on Android</th>") == 3
    assert page.text.count("This browser") == 1
    ids = sessions_in(page)
    assert len(ids) == 3
    stranger = sign_up(service)
    unknown = ids[0][:-1] + ("0" if ids[0][-1] != "0" else "1")
    answers = [end(stranger, one) for one in (ids[0], unknown, "x")]
    assert {answer.status_code for answer in answers} == {404}
    # But for the id of the request, a session of somebody else looks like none.
    assert len({re.sub("req_[0-9a-z]+", "", answer.text) for answer in answers}) == 1
    assert sum(is_signed_in(other) for other in others) == 3

    assert saved(end(person, ids[0])) == "session"
    assert sum(is_signed_in(other) for other in others) == 2
    assert end(person, ids[0]).status_code == 404
    assert saved(end(person, "others")) == "sessions"
    assert sum(is_signed_in(other) for other in others) == 0
    assert is_signed_in(person.browser)


def test_lifetimes_are_those_of_messages_from_then_on(service: Service, person: Person) -> None:
    page = person.browser.get(SETTINGS)
    assert (value_of(page, "passcode_minutes"), value_of(page, "message_hours")) == ("10", "24")
    assert saved(post(person, "lifetimes", passcode_minutes="2", message_hours="48")) == "lifetimes"
    row = account(service, person)
    assert (row["passcode_lifetime_s"], row["message_lifetime_s"]) == (120, 172_800)
    assert "passcodes 2 minutes, other messages 48 hours" in words(person.browser.get(CHANGES).text)


def test_limits_hold_for_programs_and_for_the_dashboard_alike(service: Service, person: Person) -> None:
    give(service, person, "100")
    key = make_key(person)
    assert saved(post(person, "limits", call_limit="0.08", daily_limit="")) == "limits"
    assert value_of(person.browser.get(SETTINGS), "call_limit") == "0.08"
    assert send(service, key, MANY[:2]).status_code == 202
    for to in (MANY[:3], MANY):
        refused = send(service, key, to, dry_run=to is MANY)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (429, "SPEND_LIMIT_REACHED")
        assert "limit per call is 0.0800 USD" in error["message"]
        assert error["details"][0]["call_limit"] == "0.0800"
        assert int(refused.headers["Retry-After"]) >= 1
    composed = person.browser.post(
        "/dashboard/compose",
        data={"recipients": " ".join(MANY[:3]), "message": "Your order is on its way.", "reference": ""},
    )
    assert "your limit of US$0.08 per send" in html.unescape(composed.text)

    assert saved(post(person, "limits", call_limit="", daily_limit="0.12")) == "limits"
    assert [send(service, key, to).status_code for to in (MANY[:2], MANY[:1])] == [429, 202]
    assert saved(post(person, "limits", call_limit="", daily_limit="")) == "limits"
    assert send(service, key, MANY).status_code == 202


def mails_to(service: Service, email: str) -> list[str]:
    rows = service.sql("SELECT subject || ' ' || body AS text FROM mails WHERE recipient = $1", email)
    return [row["text"] for row in rows]


def test_a_low_balance_is_mailed_once_to_who_wants_it(service: Service, person: Person) -> None:
    email = f"low{person.phone[1:]}@example.com"
    give(service, person, "5.04")
    key = make_key(person)
    post(person, "email", email=email)
    # The notice about the address itself.
    service.sql("DELETE FROM mails WHERE recipient = $1", email)
    assert saved(post(person, "notice", low_balance="5", by_mail="1")) == "notice"
    assert send(service, key).status_code == 202
    assert mails_to(service, email) == []
    for to in (MANY, MANY[:1]):
        assert send(service, key, to).status_code == 202
    (mail,) = mails_to(service, email)
    assert "balance is low" in mail
    assert "US$2.60" in mail

    assert saved(post(person, "notice", low_balance="2.54")) == "notice"
    assert send(service, key).status_code == 202
    assert len(mails_to(service, email)) == 1
    assert count(service, "SELECT count(*) FROM events WHERE type = 'balance.low'") >= 2


def test_a_refused_text_is_kept_for_review_only_when_its_owner_gives_it(
    service: Service, person: Person
) -> None:
    key = make_key(person)
    assert send(service, key, body=OFFER).json()["error"]["code"] == "CONTENT_REJECTED"
    page = person.browser.get(SETTINGS)
    assert "Refused for" in page.text
    (path,) = re.findall(r'href="(/dashboard/settings/refusals/[0-9a-f]{64})"', page.text)
    assert "Refused text" in person.browser.get(path).text
    stranger = sign_up(service)
    for one in (path, SETTINGS + "/refusals/" + "0" * 64, SETTINGS + "/refusals/x"):
        assert stranger.browser.get(one).status_code == 404
        assert stranger.browser.post(one, data={"text": OFFER, "consent": "1"}).status_code == 404

    wanted = {"text": OFFER, "note": "They asked for it <b>", "consent": "1"}
    for wrong in ({"text": ""}, {"text": "Another text"}, {"note": "x" * 501}, {"consent": ""}):
        assert person.browser.post(path, data=wanted | wrong).status_code == 422
    account_id = account(service, person)["id"]
    (kept,) = service.run(list_refusals, account_id, 10)
    assert (kept.text, kept.review_asked_at) == (None, None)

    assert saved(person.browser.post(path, data=wanted)) == "review"
    (kept,) = service.run(list_refusals, account_id, 10)
    assert (kept.text, kept.review_note) == (OFFER, "They asked for it <b>")
    assert kept.review_asked_at is not None
    assert "Under review" in person.browser.get(SETTINGS).text
    # Refused once more, it is still there for the operator.
    assert send(service, key, body=OFFER).status_code == 422
    (kept,) = service.run(list_refusals, account_id, 10)
    assert (kept.text, kept.count) == (OFFER, 2)
    assert OFFER not in html.unescape(person.browser.get(CHANGES).text)


def test_a_refused_text_is_sent_for_review_from_compose_and_its_answer_is_shown(
    service: Service, person: Person
) -> None:
    account_id, digest = account(service, person)["id"], digest_of(OFFER)

    def compose(path: str = "") -> httpx.Response:
        fields = {"recipients": MANY[0], "message": OFFER, "reference": "r", "note": "Members asked."}
        return person.browser.post("/dashboard/compose" + path, data=fields)

    def listed() -> str:
        return words(person.browser.get(SETTINGS).text)

    assert "Send for review" in compose().text
    for _ in range(2):
        page = compose("/review")
        assert page.status_code == 200
        assert "Your text was sent for review." in words(page.text)
        assert "You sent this text for review on" in words(page.text)
        assert OFFER in page.text
        assert MANY[0] in page.text
    found = service.sql(
        "SELECT text, review_note, count FROM content_refusals WHERE account_id = $1", account_id
    )
    assert [tuple(row) for row in found] == [(OFFER, "Members asked.", 1)]
    assert person.browser.get(CHANGES).text.count("Review of a refused text requested") == 1
    assert "Under review since" in listed()
    service.run(dismiss, account_id, digest, answer="It offers a discount.", actor=OPERATOR)
    assert "Stays refused It offers a discount. Ask for a review" in listed()
    assert "Send for review" in compose().text
    compose("/review")
    assert "Under review since" in listed()
    allow = (OFFER, account_id, TemplateVerdict.ALLOW)
    service.run(add_template, *allow, note="Fine.", actor=OPERATOR, answers=digest)
    assert "Allowed Fine." in listed()
    assert "No review is needed" in words(compose("/review").text)


def test_closing_asks_for_password_and_word_and_ends_everything(service: Service, person: Person) -> None:
    give(service, person, "12.34")
    key = make_key(person)
    service.sql(
        "INSERT INTO webhook_endpoints (id, account_id, url, secret, position)"
        " VALUES (gen_random_uuid(), $1, 'https://example.com/hook', $2, 0)",
        account(service, person)["id"],
        b"s" * 32,
    )
    other = new_browser(service)
    sign_in(other, person.phone)
    for password, word in ((PASSWORD, "close"), (PASSWORD, ""), ("wrong", "CLOSE")):
        assert refuses(post(person, "close", password_to_close=password, word=word), "")
    assert send(service, key).status_code == 202

    closed = post(person, "close", password_to_close=PASSWORD, word="CLOSE")
    assert (closed.status_code, "Account closed" in closed.text) == (200, True)
    assert "US$12.30" in closed.text
    assert not is_signed_in(person.browser)
    assert not is_signed_in(other)
    assert send(service, key).json()["error"]["code"] == "API_KEY_REVOKED"
    row = account(service, person)
    assert row["closed_at"] is not None
    assert row["balance"] == Decimal("12.3000")
    (state,) = service.sql("SELECT state FROM webhook_endpoints WHERE account_id = $1", row["id"])
    assert state[0] == "paused"
    (change,) = service.sql("SELECT what, actor FROM changes WHERE what = 'account closed'")
    assert tuple(change) == ("account closed", NAME)
    # Nor does it send with a key that was left.
    service.sql("UPDATE api_keys SET revoked_at = NULL WHERE account_id = $1", row["id"])
    for to in (MANY[:1], MANY):
        assert send(service, key, to).json()["error"]["code"] == "ACCOUNT_SUSPENDED"


def test_a_closed_number_signs_neither_in_nor_up_again(service: Service, person: Person) -> None:
    post(person, "close", password_to_close=PASSWORD, word="CLOSE")
    assert refuses(
        sign_in(new_browser(service), person.phone), "was closed by its owner. Contact support to reopen it"
    )
    # Who does not know the password does not learn that either.
    assert "closed" not in alert(sign_in(new_browser(service), person.phone, "a guess"))

    pass_time(service, person.phone, "1 hour")
    browser = new_browser(service)
    browser.post("/dashboard/forgotten", data={"phone": person.phone})
    refused = set_password(browser, code_to(service, person.phone), NEW)
    assert refuses(refused, "was closed by its owner. Contact support to reopen it")
    assert not is_signed_in(browser)

    pass_time(service, person.phone, "1 hour")
    again = new_browser(service)
    assert goes_to(begin_sign_up(again, person.phone)) == "/dashboard/verify"
    assert "already has an account" in texts_to(service, person.phone)[-1]
    assert count(service, "SELECT count(*) FROM accounts WHERE phone = $1", person.phone) == 1


def test_changes_are_told_with_who_and_from_where_and_in_pages(service: Service, person: Person) -> None:
    post(person, "email", email="first@example.com")
    address = person.browser.headers["X-Forwarded-For"]
    page = person.browser.get(CHANGES)
    assert "Email changed" in page.text
    assert "first@example.com" in page.text
    assert address in page.text
    assert "Older changes" not in page.text
    service.sql(
        "INSERT INTO changes (account_id, actor, what, detail)"
        " SELECT $1, 'root', 'spend limits changed', 'number ' || n || $2 FROM generate_series(1, 60) n",
        account(service, person)["id"],
        SCRIPT,
    )
    page = person.browser.get(CHANGES)
    assert page.text.count("Support (root)") == 50
    assert "<script>alert" not in page.text
    (older,) = re.findall(r'href="(/dashboard/settings/changes\?before=\d+)"', page.text)
    second = person.browser.get(older)
    assert second.text.count("Support (root)") == 10
    assert "first@example.com" in second.text
    for before in ("x", "-1", "9" * 40, "\u0661"):
        assert person.browser.get(CHANGES, params={"before": before}).status_code == 200
    stranger = sign_up(service)
    assert "No changes yet." in stranger.browser.get(CHANGES).text
    assert "first@example.com" not in stranger.browser.get(older).text
