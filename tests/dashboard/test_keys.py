"""API keys belong to their account, are shown once, and do no more than was ticked."""

import html
import re
from collections.abc import Iterator, Sequence
from typing import Final

import httpx
import pytest

from tests.support.identity.people import (
    PASSWORD,
    Person,
    alert,
    at_once,
    count,
    goes_to,
    page_text,
    run_behind_proxy,
    sign_up,
)
from tests.support.processes.service import Service
from tumira.core.ids import read_id
from tumira.dashboard.pages.keys import REVOKED_SHOWN
from tumira.html.forms import new_form_id
from tumira.identity.manage_keys import KEYS_A_DAY_MAX, KEYS_MAX, REVOKED_KEPT

KEYS: Final = "/dashboard/keys"
ALL: Final = ("messages:send", "messages:read", "account:read")
KEY: Final = re.compile(r"tmr_[0-9a-z]{26}_[0-9a-z]{32}")


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        yield running


def make_key(person: Person, name: str = "web shop", scopes: Sequence[str] = ALL) -> str:
    page = person.browser.post(KEYS, data={"name": name, "scope": list(scopes), "password": person.password})
    assert page.status_code == 200, page.text
    (key,) = set(KEY.findall(page.text))
    return str(key)


def id_of(key: str) -> str:
    return f"key_{key.split('_')[1]}"


def revoke(browser: httpx.Client, key_id: str) -> httpx.Response:
    return browser.post(f"{KEYS}/{key_id}/revoke")


def balance(service: Service, key: str) -> int:
    return service.call(key, "GET", "/balance").status_code


def test_a_new_key_works_and_is_shown_this_once(service: Service) -> None:
    person = sign_up(service)
    assert "no API key yet" in person.browser.get(KEYS).text
    page = person.browser.post(KEYS, data={"name": "web shop", "scope": list(ALL), "password": PASSWORD})
    assert page.headers["cache-control"] == "no-store"
    (key,) = set(KEY.findall(page.text))
    assert 'data-name="Last used">never' in person.browser.get(KEYS).text
    assert balance(service, key) == 200
    assert 'data-name="Last used"><time' in person.browser.get(KEYS).text
    secret = key.rpartition("_")[2]
    for path in (KEYS, KEYS + "?revoked=1", "/dashboard"):
        page = person.browser.get(path)
        assert secret not in page.text
        assert page.headers["cache-control"] == "no-store"
    assert f"{key.rpartition('_')[0]}_…" in person.browser.get(KEYS).text
    (row,) = service.sql("SELECT to_jsonb(k)::text FROM api_keys k WHERE name = 'web shop'")
    assert secret not in row[0]
    # The same name again makes another one.
    assert make_key(person) != key


def test_a_form_that_is_sent_again_makes_no_second_key(service: Service) -> None:
    person = sign_up(service)
    (form,) = re.findall(r'name="form" value="(key_\w+)"', person.browser.get(KEYS).text)
    fields = {"name": "web shop", "scope": list(ALL), "password": PASSWORD, "form": form}
    first = person.browser.post(KEYS, data=fields)
    (key,) = set(KEY.findall(first.text))
    assert id_of(key) == form
    for again in (fields, {**fields, "name": "another"}):
        assert goes_to(person.browser.post(KEYS, data=again)) == KEYS + "?exists=1"
    page = person.browser.get(KEYS + "?exists=1").text
    assert "already created" in page
    assert page.count("/revoke") == 1
    assert balance(service, key) == 200
    # Neither a form of another customer nor one that we did not make is carried out.
    eve = sign_up(service)
    assert goes_to(eve.browser.post(KEYS, data=fields)) == KEYS + "?exists=1"
    for made_up in ("key_" + "0" * 26, "x", form.replace("key_", "acc_")):
        refused = eve.browser.post(KEYS, data={**fields, "form": made_up})
        assert (refused.status_code, "open for too long" in alert(refused)) == (422, True)
    assert "no API key yet" in eve.browser.get(KEYS).text


def test_of_the_same_form_at_once_one_makes_a_key(service: Service) -> None:
    person = sign_up(service)
    fields = {"name": "web shop", "scope": list(ALL), "password": PASSWORD, "form": new_form_id("key_")}
    answers = at_once([lambda: person.browser.post(KEYS, data=fields)] * 4)
    assert sorted(answer.status_code for answer in answers) == [200, 303, 303, 303]


def test_a_key_is_revoked_after_a_question_that_shows_its_last_use(service: Service) -> None:
    person = sign_up(service)
    key = make_key(person)
    path = f"{KEYS}/{id_of(key)}/revoke"
    assert f'href="{path}"' in person.browser.get(KEYS).text
    asked = person.browser.get(path).text
    assert "Revoke “web shop”?" in asked
    assert "<dt>Last used</dt><dd>never" in asked
    assert balance(service, key) == 200
    assert "<dt>Last used</dt><dd><strong><time" in person.browser.get(path).text
    assert goes_to(revoke(person.browser, id_of(key))) == KEYS + "?revoked=1"
    assert goes_to(person.browser.get(path)) == KEYS
    stranger = sign_up(service)
    assert stranger.browser.get(path).status_code == 404
    assert stranger.browser.get(f"{KEYS}/key_{'0' * 26}/revoke").status_code == 404


def test_a_key_may_do_what_was_ticked_of_what_is_offered(service: Service) -> None:
    person = sign_up(service)
    for scopes, read, sent in (
        (["account:read", "admin", "account:read"], 200, 403),
        (["messages:send"], 403, 402),
        (["messages:read", "account:read"], 200, 403),
    ):
        key = make_key(person, scopes=scopes)
        assert balance(service, key) == read
        body = {"channel": "sms", "to": "+263771200001", "body": "Your code is 493817."}
        assert service.call(key, "POST", "/messages", json=body).status_code == sent


def test_a_key_has_a_name_and_may_do_something(service: Service) -> None:
    person = sign_up(service)
    for scopes in ([], ["everything"], ["messages:send "], ["messages:send,account:read"]):
        refused = person.browser.post(KEYS, data={"name": "kept name", "scope": scopes})
        assert refused.status_code == 422
        assert "Permissions : Choose at least one." in alert(refused)
        assert 'value="kept name"' in refused.text
    for name in ("", " \r\n", "...", "x" * 101, "\u200b\u202e"):
        refused = person.browser.post(KEYS, data={"name": name, "scope": list(ALL)})
        assert refused.status_code == 422
        assert "Key name :" in alert(refused)
    assert "no API key yet" in person.browser.get(KEYS).text


def test_a_revoked_key_is_refused_from_the_next_call_on(service: Service) -> None:
    person = sign_up(service)
    key, other = make_key(person, "first"), make_key(person, "second")
    assert balance(service, key) == 200
    assert goes_to(revoke(person.browser, id_of(key))) == KEYS + "?revoked=1"
    assert balance(service, key) == 401
    assert balance(service, other) == 200
    page = person.browser.get(KEYS + "?revoked=1").text
    assert "The API key was revoked" in page
    assert page.count("/revoke") == 1
    # Once more changes nothing, not even when it was.
    (before,) = service.sql("SELECT revoked_at FROM api_keys WHERE name = 'first'")
    assert goes_to(revoke(person.browser, id_of(key))) == KEYS + "?revoked=1"
    assert service.sql("SELECT revoked_at FROM api_keys WHERE name = 'first'") == [before]


def test_a_key_of_somebody_else_looks_like_one_that_does_not_exist_and_goes_on_working(
    service: Service,
) -> None:
    owner, eve = sign_up(service), sign_up(service)
    key = make_key(owner)
    foreign = revoke(eve.browser, id_of(key))
    for key_id in ("key_" + "0" * 26, "x", "acc_" + "0" * 26, "key_%00", "key_" + "0" * 5000, "' OR 1=1 --"):
        unknown = revoke(eve.browser, key_id)
        assert (foreign.status_code, unknown.status_code) == (404, 404), key_id
        assert page_text(foreign) == page_text(unknown)
    assert balance(service, key) == 200
    assert id_of(key)[4:] not in eve.browser.get(KEYS).text


def fill_with_revoked(service: Service, person: Person, keys: int, age: str) -> None:
    (row,) = service.sql(
        "SELECT id, right(phone, 4)::integer AS place FROM accounts WHERE phone = $1", person.phone
    )
    service.sql(
        "INSERT INTO api_keys (id, account_id, name, secret_sha256, scopes, created_at, revoked_at)"
        " SELECT lpad(to_hex(n + $4::integer * 10000), 32, '0')::uuid, $1, 'old ' || n,"
        "        decode(repeat('00', 32), 'hex'), ARRAY['messages:send'], now() - $3::text::interval,"
        "        now() - $3::text::interval"
        "   FROM generate_series(1, $2::integer) n",
        row["id"],
        keys,
        age,
        row["place"],
    )


def test_keys_in_use_come_first_and_revoked_ones_page_by_page(service: Service) -> None:
    person = sign_up(service)
    fill_with_revoked(service, person, 50, "2 days")
    make_key(person, "in use")

    first = person.browser.get(KEYS).text

    assert first.index("in use") < first.index("old 50")
    pages = [first]
    while (found := re.search(r'href="(/dashboard/keys\?before=[^"#]+)#revoked"', pages[-1])) is not None:
        pages.append(person.browser.get(html.unescape(found[1])).text)
    shown = [re.findall(r"old (\d+)", page) for page in pages]
    assert [len(page) for page in shown] == [REVOKED_SHOWN, REVOKED_SHOWN, 50 - 2 * REVOKED_SHOWN]
    assert [int(number) for page in shown for number in page] == list(range(50, 0, -1))
    assert person.browser.get(f"{KEYS}?before=nonsense").text.count("old ") == REVOKED_SHOWN


def test_the_limits_of_a_day_and_of_keys_in_use_are_told(service: Service) -> None:
    person = sign_up(service)
    fill_with_revoked(service, person, KEYS_A_DAY_MAX, "1 hour")
    refused = person.browser.post(KEYS, data={"name": "one more", "scope": list(ALL), "password": PASSWORD})
    assert refused.status_code == 422
    assert "Try again tomorrow" in alert(refused)
    service.sql("UPDATE api_keys SET created_at = created_at - interval '1 day'")
    key = make_key(person, "one more")
    service.sql(
        "INSERT INTO api_keys (id, account_id, name, secret_sha256, scopes, created_at)"
        " SELECT gen_random_uuid(), account_id, 'filler', sha256(n::text::bytea), scopes,"
        "        created_at - interval '2 days'"
        "   FROM api_keys, generate_series(1, $1::int) AS n WHERE id = $2",
        KEYS_MAX - 1,
        read_id("key_", id_of(key)),
    )
    refused = person.browser.post(KEYS, data={"name": "at once", "scope": list(ALL), "password": PASSWORD})
    assert refused.status_code == 422
    assert f"You have {KEYS_MAX} active API keys" in alert(refused)
    revoke(person.browser, id_of(key))
    make_key(person, "in its place")


def test_the_oldest_revoked_keys_are_forgotten(service: Service) -> None:
    person = sign_up(service)
    fill_with_revoked(service, person, REVOKED_KEPT + 5, "2 days")
    make_key(person)
    mine = "FROM api_keys k JOIN accounts a ON a.id = k.account_id WHERE a.phone = $1"
    assert count(service, f"SELECT count(*) {mine} AND revoked_at IS NOT NULL", person.phone) == REVOKED_KEPT
    assert count(service, f"SELECT count(*) {mine} AND k.name = 'old 5'", person.phone) == 0
