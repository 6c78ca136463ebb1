"""Notices to owners and operators about changes of their access."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import httpx
import pytest

from tests.support.identity.operators import new_operator, read_secret
from tests.support.identity.people import (
    PASSWORD,
    Person,
    code_to,
    count,
    goes_to,
    new_browser,
    pass_time,
    run_behind_proxy,
    set_password,
    sign_up,
    texts_to,
)
from tests.support.processes.service import Service
from tumira.accounts.api_keys import Scope
from tumira.audit_log import Actor
from tumira.core.ids import AccountId
from tumira.core.settings.support import Support
from tumira.identity import manage_accounts, manage_keys, totp
from tumira.identity import operators as operator_access
from tumira.identity.notify_owner import NOTICES, NOTICES_A_DAY
from tumira.pricing.segments import Encoding, measure

NEW: Final = "another good password"
CLI: Final = Actor("cli:test")
SUPPORT: Final = Support("+263 77 120 0001", "help@sms.example")
SETTINGS: Final = "/dashboard/settings"
AGAIN: Final = {"password_for_email": PASSWORD}


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a running service in which everybody comes from an address of their own."""
    with run_behind_proxy(server_url, TUMIRA_SUPPORT_PHONE="+263 77 120 0002") as running:
        yield running


@pytest.fixture
def person(service: Service) -> Person:
    person = sign_up(service, email="owner@example.com")
    service.sql("DELETE FROM mails")
    return person


def account_of(service: Service, person: Person) -> AccountId:
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)
    return AccountId(row["id"])


def notices(service: Service, phone: str) -> Sequence[str]:
    return [text for text in texts_to(service, phone) if not re.search(r"[0-9]{6}", text)]


def mailed(service: Service) -> Sequence[tuple[str, str, str]]:
    rows = service.sql("SELECT recipient, subject, body FROM mails ORDER BY id")
    return [(row["recipient"], row["subject"], row["body"]) for row in rows]


def make_key(person: Person, name: str = "web shop") -> httpx.Response:
    return person.browser.post(
        "/dashboard/keys",
        data={"name": name, "scope": ["messages:send", "messages:read"], "password": person.password},
    )


def test_a_new_password_is_told_by_text_and_email(service: Service, person: Person) -> None:
    # A sign-up is no news.
    assert len(texts_to(service, person.phone)) == 1
    assert mailed(service) == []
    changed = person.browser.post(
        f"{SETTINGS}/password", data={"current_password": PASSWORD, "new_password": NEW}
    )
    assert changed.status_code == httpx.codes.SEE_OTHER, changed.text

    (text,) = notices(service, person.phone)

    assert text.startswith("Tumira: Your password was changed. If this was not you, choose a new password")
    ((to, subject, body),) = mailed(service)
    assert to == "owner@example.com"
    assert subject == "Tumira: Your password was changed"
    assert "If this was not you, choose a new password" in body
    assert "(UTC+02:00)" in body
    assert "From: 198.18." in body
    for secret in (PASSWORD, NEW):
        assert secret not in text + subject + body
    # As is one that is chosen with a code.
    pass_time(service, person.phone, "1 hour")
    browser = new_browser(service)
    browser.post("/dashboard/forgotten", data={"phone": person.phone})
    assert goes_to(set_password(browser, code_to(service, person.phone), NEW)) == "/dashboard"
    assert [len(notices(service, person.phone)), len(mailed(service))] == [2, 2]


def test_an_email_address_is_told_to_the_old_and_to_the_new_one(service: Service, person: Person) -> None:
    for email in ("owner@example.com", "other@example.com"):
        person.browser.post(f"{SETTINGS}/email", data={"email": email, **AGAIN})
    (text,) = notices(service, person.phone)
    assert "email address of your account was changed" in text
    assert sorted(to for to, _, _ in mailed(service)) == ["other@example.com", "owner@example.com"]
    assert not any("other@" in body for _, _, body in mailed(service))

    service.sql("DELETE FROM mails")
    person.browser.post(f"{SETTINGS}/email", data={"email": "", **AGAIN})
    assert [(to, subject) for to, subject, _ in mailed(service)] == [
        ("other@example.com", "Tumira: The email address of your account was removed")
    ]


def test_keys_are_told_of_without_their_names(service: Service, person: Person) -> None:
    page = make_key(person, "pay 123456 to evil.example")
    made = re.search(r"tmr_([0-9a-z]{26})_", page.text)
    assert made is not None
    person.browser.post(f"/dashboard/keys/key_{made[1]}/revoke")
    person.browser.post(f"/dashboard/keys/key_{made[1]}/revoke")

    assert [text.split(". ")[0] for text in notices(service, person.phone)] == [
        "Tumira: An API key was created for your account",
        "Tumira: An API key of your account was revoked",
    ]
    assert not any("evil" in subject + body for _, subject, body in mailed(service))


def test_the_operator_does_nothing_unseen(service: Service, person: Person) -> None:
    account_id = account_of(service, person)
    service.sql(
        "UPDATE logins SET totp_secret = $2, totp_since = now() WHERE account_id = $1", account_id, b"s" * 20
    )
    key_id, _ = service.run(
        manage_keys.create_key, account_id, "shop", list(Scope), actor=CLI, support=SUPPORT
    )
    service.run(manage_keys.revoke_key, key_id, actor=CLI, support=SUPPORT)
    assert service.run(manage_accounts.drop_factor, account_id, actor=CLI, support=SUPPORT)

    told = notices(service, person.phone)
    advice = "If you did not ask for this, contact support (+263 77 120 0001) at once."
    assert all(text.endswith(advice) for text in told)
    assert all(
        "contact support (+263 77 120 0001 or help@sms.example) at" in body for *_, body in mailed(service)
    )
    assert [text.split(". ")[0] for text in told] == [
        "Tumira: An API key was created for your account by support",
        "Tumira: An API key of your account was revoked by support",
        "Tumira: The second factor of your account was turned off by support",
    ]
    # Nobody is there to be told about an account without a password.
    caller = service.open_account()
    service.run(manage_keys.create_key, caller.id, "shop", list(Scope), actor=CLI)
    (row,) = service.sql("SELECT phone FROM accounts WHERE id = $1", caller.id)
    assert notices(service, row["phone"]) == []


def test_the_second_factor_and_its_recovery_codes_are_told_of(service: Service, person: Person) -> None:
    place = f"{SETTINGS}/second-factor"
    person.browser.post(place, data={"password": person.password})
    secret = read_secret(person.browser.get(place).text)
    page = person.browser.post(f"{place}/confirm", data={"code": totp.authenticator(secret).now()})
    recovery = re.findall(r"<li>((?:[a-z2-9]{4}-){3}[a-z2-9]{4})</li>", page.text)
    person.browser.post(f"{place}/off", data={"password": person.password, "code": recovery[0]})

    told = " ".join(notices(service, person.phone))
    advice = "If this was not you, contact support (+263 77 120 0002) at once."
    assert f"A second factor was turned on for your account. {advice}" in told
    assert "A recovery code of your account was used." in told
    assert "The second factor of your account was turned off." in told
    assert len(mailed(service)) == 3


def test_notices_of_one_kind_are_bounded_and_leave_those_of_another_alone(
    service: Service, person: Person
) -> None:
    for _ in range(NOTICES_A_DAY + 1):
        make_key(person)
    told = notices(service, person.phone)
    assert len(told) == len(mailed(service)) == NOTICES_A_DAY
    assert [("no more notices" in text) for text in told] == [False] * (NOTICES_A_DAY - 1) + [True]

    person.browser.post(f"{SETTINGS}/email", data={"email": "other@example.com", **AGAIN})
    assert len(notices(service, person.phone)) == NOTICES_A_DAY + 1

    service.sql("UPDATE security_notices SET since = since - interval '25 hours'")
    make_key(person)
    assert len(notices(service, person.phone)) == NOTICES_A_DAY + 2
    # They cost nothing, and are nobody's messages.
    assert count(service, "SELECT sum(total_cost) FROM batches") == 0
    of_owner = "SELECT count(*) FROM batches WHERE account_id = $1"
    assert count(service, of_owner, account_of(service, person)) == 0


def test_operators_are_told_of_their_own_access(service: Service) -> None:
    operator = new_operator(service)
    service.run(operator_access.reset, phone=operator.phone, actor=CLI)
    service.run(operator_access.remove, phone=operator.phone, actor=CLI)
    assert [text.split(". ")[0] for text in notices(service, operator.phone)] == [
        "Tumira: A password and a second factor were set for your operator sign-in",
        "Tumira: Your operator password was reset",
        "Tumira: Your operator access was removed",
    ]


def test_no_notice_looks_like_a_code_or_takes_more_than_two_segments() -> None:
    for notice in (one for notices in NOTICES.values() for one in notices.values()):
        text = f"Tumira: {notice.happened} by support. If this was not you, {notice.advice}. {'x' * 43}"
        assert not re.search(r"[0-9]", text)
        text = text.format(support=SUPPORT.short_name)
        assert measure(text).encoding is Encoding.GSM_7
        assert measure(text).segments <= 2
