"""The Idempotency-Key."""

import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import httpx
import pytest

from tests.support.api.answers import assert_rate_headers, assert_refused
from tests.support.processes.service import NO_TLS, Caller, Service
from tumira.accounts.api_keys import Scope
from tumira.api.request import fingerprint
from tumira.core import errors
from tumira.identity.manage_accounts import credit
from tumira.identity.manage_keys import create_key

ZW: Final = "+263771200001"
ZA: Final = "+27821230001"
KEY: Final = "order-1042"
HUNDRED: Final = [f"+2637712{number:05}" for number in range(100)]
SMALL_AND_LARGE: Final = pytest.mark.parametrize("to", [[ZW], HUNDRED], ids=["small", "large"])


def send(service: Service, caller: Caller, key: str = KEY, **fields: Any) -> httpx.Response:
    return service.send(caller, {"Idempotency-Key": key}, **fields)


def is_replay(answer: httpx.Response) -> bool:
    assert answer.headers.get("Idempotency-Replayed") in {None, "true"}
    return "Idempotency-Replayed" in answer.headers


def batch_count(service: Service, caller: Caller) -> int:
    count = service.sql("SELECT count(*) FROM batches WHERE account_id = $1", caller.id)[0][0]
    assert isinstance(count, int)
    return count


def age(service: Service, caller: Caller, interval: str) -> None:
    service.sql(
        f"UPDATE idempotency_keys SET created_at = created_at - interval '{interval}' WHERE account_id = $1",
        caller.id,
    )


@pytest.mark.parametrize("to", [[ZW], HUNDRED, ["+15550100"]], ids=["small", "large", "all rejected"])
def test_a_retry_gets_the_first_answer_byte_for_byte_and_is_not_billed(
    service: Service, to: Sequence[str]
) -> None:
    caller = service.open_account()
    first = send(service, caller, to=to)
    assert (first.status_code, is_replay(first)) == (202, False)
    service.send(caller)
    balance, batches = service.balance(caller), batch_count(service, caller)
    for _ in range(2):
        again = send(service, caller, to=to)
        assert (again.status_code, is_replay(again)) == (202, True)
        assert again.content == first.content
        assert again.headers["Content-Type"] == first.headers["Content-Type"]
        assert_rate_headers(again)
    assert (service.balance(caller), batch_count(service, caller)) == (balance, batches)


def test_the_same_key_with_another_payload_is_a_conflict_and_nothing_is_billed(service: Service) -> None:
    caller = service.open_account()
    first = send(service, caller, to=[ZW])
    large = send(service, caller, "large-key", to=HUNDRED)
    balance = service.balance(caller)
    changes: list[dict[str, Any]] = [
        {"to": [ZA]},
        {"to": [ZW, ZW]},
        {"to": HUNDRED},
        {"reference": "another"},
        {"dry_run": False},
        {"channel": "telegram"},
        {"body": ""},
        {"sender": "Shop"},
    ]
    for change in changes:
        assert_refused(send(service, caller, **{"to": [ZW], **change}), errors.IdempotencyConflict)
    for to in ([ZW], HUNDRED[1:]):
        assert_refused(send(service, caller, "large-key", to=to), errors.IdempotencyConflict)
    assert service.balance(caller) == balance
    assert send(service, caller, to=[ZW]).content == first.content
    assert send(service, caller, "large-key", to=HUNDRED).content == large.content


def test_payloads_are_the_same_whatever_the_order_of_fields_but_not_of_recipients() -> None:
    fields = {"channel": "sms", "to": [ZW, ZA], "body": "Grüße \N{KEY}", "reference": "a/b"}
    backwards = dict(reversed(fields.items()))
    spellings = [
        json.dumps(backwards, indent=4),
        json.dumps(fields, ensure_ascii=False),
        json.dumps(backwards, ensure_ascii=False, indent="\t").replace("/", "\\/"),
    ]
    assert {fingerprint(json.loads(text)) for text in spellings} == {fingerprint(fields)}
    assert fingerprint({**fields, "to": [ZA, ZW]}) != fingerprint(fields)
    assert fingerprint({**fields, "to": ZW}) != fingerprint({**fields, "to": [ZW]})


def test_keys_belong_to_their_account_and_are_shared_by_its_api_keys(service: Service) -> None:
    caller, other = service.open_account(), service.open_account()
    first, second = send(service, caller), send(service, other)
    assert (second.status_code, is_replay(second)) == (202, False)
    assert first.json()["batch_id"] != second.json()["batch_id"]
    _, second_api_key = service.run(create_key, caller.id, "second", list(Scope))
    for api_key in (caller.key, second_api_key):
        again = send(service, replace(caller, key=api_key))
        assert (is_replay(again), again.content) == (True, first.content)
    assert not is_replay(send(service, caller, KEY.upper())), "keys are told apart by case"
    assert is_replay(send(service, caller, f'"{KEY}"')), "a quoted key is the same as the bare one"
    # Without a key every call is a send of its own.
    assert len({service.send(caller).json()["batch_id"] for _ in range(2)}) == 2


@pytest.mark.parametrize("to", [HUNDRED[:49], HUNDRED[:75]], ids=["small", "large"])
def test_a_refused_call_releases_its_key(service: Service, to: Sequence[str]) -> None:
    caller = service.open_account(balance="1")
    assert_refused(send(service, caller, to=to), errors.InsufficientBalance)
    assert_refused(send(service, caller, to=[*to, *HUNDRED]), errors.InsufficientBalance)
    assert_refused(send(service, caller, to=to, body=""), errors.ValidationFailed)
    service.run(credit, caller.id, Decimal(3), note="Top-up", actor="test")
    answer = send(service, caller, to=to)
    assert (answer.status_code, is_replay(answer)) == (202, False)
    assert service.balance(caller) == 4 - len(to) * Decimal("0.04")


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_refused_key_costs_nothing(service: Service, *, dry_run: bool) -> None:
    caller = service.open_account()
    content = json.dumps({"channel": "sms", "to": ZW, "body": "Hello", "dry_run": dry_run})
    for keys in ([b"r\xc3\xa4ndig"], [b"order-1042", b"order-1043"]):
        headers = [
            (b"Authorization", f"Bearer {caller.key}".encode()),
            (b"Content-Type", b"application/json"),
            *((b"Idempotency-Key", key) for key in keys),
        ]
        url = f"{service.base}/api/v1/messages"
        answer = httpx.post(url, content=content, headers=headers, trust_env=False, verify=NO_TLS)
        assert_refused(answer, errors.InvalidIdempotencyKey)
        assert_rate_headers(answer)
    assert service.balance(caller) == 100


def test_a_dry_run_neither_stores_nor_heeds_the_key(service: Service) -> None:
    caller = service.open_account()
    priced = send(service, caller, dry_run=True)
    assert (priced.status_code, is_replay(priced)) == (200, False)
    assert service.sql("SELECT 1 FROM idempotency_keys WHERE account_id = $1", caller.id) == []
    live = send(service, caller)
    assert (live.status_code, is_replay(live)) == (202, False)
    for fields in ({}, {"body": "Something else"}):
        again = send(service, caller, dry_run=True, **fields)
        assert (again.status_code, is_replay(again)) == (200, False)
    # Nor does a key that was used hide what is wrong with a dry run.
    assert_refused(send(service, caller, dry_run=True, body=""), errors.ValidationFailed)
    assert_refused(send(service, caller, dry_run=True, channel="telegram"), errors.ChannelNotAvailable)
    assert send(service, caller).content == live.content


@SMALL_AND_LARGE
def test_an_answer_is_kept_for_72_hours(service: Service, to: Sequence[str]) -> None:
    caller = service.open_account()
    first = send(service, caller, to=to)
    age(service, caller, "71 hours")
    again = send(service, caller, to=to)
    assert (is_replay(again), again.content) == (True, first.content)
    assert_refused(send(service, caller, to=[ZA]), errors.IdempotencyConflict)
    age(service, caller, "2 hours")
    anew = send(service, caller, to=to, reference="anew")
    assert (anew.status_code, is_replay(anew)) == (202, False)
    assert anew.json()["batch_id"] != first.json()["batch_id"]
    assert send(service, caller, to=to, reference="anew").content == anew.content
    assert service.balance(caller) == 100 - 2 * len(to) * Decimal("0.04")


@SMALL_AND_LARGE
def test_identical_calls_at_the_same_time_are_billed_once(service: Service, to: Sequence[str]) -> None:
    caller = service.open_account()
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: send(service, caller, to=to), range(8)))
    assert Counter(answer.status_code for answer in answers) == {202: 8}
    assert Counter(is_replay(answer) for answer in answers) == {False: 1, True: 7}
    assert len({answer.content for answer in answers}) == 1
    assert service.balance(caller) == 100 - len(to) * Decimal("0.04")
    assert batch_count(service, caller) == 1


def test_of_different_calls_with_one_key_at_the_same_time_one_is_sent(service: Service) -> None:
    caller = service.open_account()
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda place: send(service, caller, reference=str(place)), range(8)))
    assert Counter(answer.status_code for answer in answers) == {202: 1, 409: 7}
    assert service.balance(caller) == Decimal("99.96")
