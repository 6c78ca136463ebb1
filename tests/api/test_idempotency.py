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
from tumira.api.request import read_idempotency_key
from tumira.core import errors
from tumira.identity.manage_accounts import credit
from tumira.identity.manage_keys import create_key

ZW: Final = "+263771200001"
ZA: Final = "+27821230001"
KEY: Final = "order-1042"
FORTY: Final = tuple(f"+2637712{number:05}" for number in range(40))
HUNDRED: Final = tuple(f"+2637712{number:05}" for number in range(100))
SENDS: Final = {"one": [ZW], "several": list(FORTY), "many": list(HUNDRED), "all rejected": ["+15550100"]}


def send(service: Service, caller: Caller, key: str = KEY, **fields: Any) -> httpx.Response:
    return service.send(caller, {"Idempotency-Key": key}, **fields)


def post(service: Service, caller: Caller, content: str | bytes, *keys: bytes) -> httpx.Response:
    headers = [
        (b"Authorization", f"Bearer {caller.key}".encode()),
        (b"Content-Type", b"application/json"),
        *((b"Idempotency-Key", key) for key in keys),
    ]
    url = f"{service.base}/api/v1/messages"
    return httpx.post(url, content=content, headers=headers, trust_env=False, verify=NO_TLS, timeout=30)


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


@pytest.mark.parametrize("to", SENDS.values(), ids=SENDS.keys())
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


@pytest.mark.parametrize(
    "change",
    [
        {"body": "Your code is 493818."},
        {"to": [ZA]},
        {"to": [ZW, ZA]},
        {"to": [ZW, ZW]},
        {"to": ZW},
        {"reference": "another"},
        {"dry_run": False},
        {"channel": "telegram"},
        {"body": ""},
        {"sender": "Shop"},
        {"to": list(HUNDRED)},
    ],
    ids=lambda change: ascii(change)[:30],
)
def test_the_same_key_with_another_payload_is_a_conflict_and_nothing_is_billed(
    service: Service, change: dict[str, Any]
) -> None:
    caller = service.open_account()
    first = send(service, caller, to=[ZW])
    assert_refused(send(service, caller, **{"to": [ZW], **change}), errors.IdempotencyConflict)
    assert service.balance(caller) == Decimal("99.96")
    assert send(service, caller, to=[ZW]).content == first.content


def test_a_small_send_under_the_key_of_a_large_one_is_a_conflict(service: Service) -> None:
    caller = service.open_account()
    assert send(service, caller, to=HUNDRED).status_code == 202
    for to in ([ZW], HUNDRED[1:]):
        assert_refused(send(service, caller, to=to), errors.IdempotencyConflict)
    assert service.balance(caller) == 96


def test_the_order_of_recipients_matters(service: Service) -> None:
    caller = service.open_account()
    assert send(service, caller, to=[ZW, ZA]).status_code == 202
    assert_refused(send(service, caller, to=[ZA, ZW]), errors.IdempotencyConflict)


def test_the_order_of_fields_white_space_and_escapes_do_not_matter(service: Service) -> None:
    caller = service.open_account()
    fields = {"channel": "sms", "to": [ZW, ZA], "body": "Grüße \N{KEY}", "reference": "a/b"}
    backwards = dict(reversed(fields.items()))
    spellings = [
        json.dumps(fields),
        json.dumps(backwards),
        json.dumps(fields, indent=4),
        json.dumps(fields, separators=(",", ":")) + "\r\n",
        json.dumps(fields, ensure_ascii=False),
        json.dumps(backwards, ensure_ascii=False, indent="\t").replace("/", "\\/"),
    ]
    answers = [post(service, caller, text.encode(), KEY.encode()) for text in spellings]
    assert [is_replay(answer) for answer in answers] == [False, *[True] * 5]
    assert {answer.content for answer in answers} == {answers[0].content}


def test_keys_belong_to_their_account_and_are_shared_by_its_api_keys(service: Service) -> None:
    caller, other = service.open_account(), service.open_account()
    first, second = send(service, caller), send(service, other)
    assert (second.status_code, is_replay(second)) == (202, False)
    assert first.json()["batch_id"] != second.json()["batch_id"]
    _, second_api_key = service.run(create_key, caller.id, "second", list(Scope))
    for api_key in (caller.key, second_api_key):
        again = send(service, replace(caller, key=api_key))
        assert (is_replay(again), again.content) == (True, first.content)


def test_keys_are_told_apart_by_case(service: Service) -> None:
    caller = service.open_account()
    assert [is_replay(send(service, caller, key)) for key in ("abcdef", "ABCDEF", "abcdef")] == [
        False,
        False,
        True,
    ]


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


CONTENT: Final = json.dumps({"channel": "sms", "to": ZW, "body": "Hello"})


@pytest.mark.parametrize(
    "key", ["123456", "x" * 64, "!#$%&'()*+,-./:;<=>?@[]^_`{|}~", '"12345', "0f8fad5b-d9cb-469f"]
)
def test_a_key_of_6_to_64_visible_characters_is_taken(key: str) -> None:
    assert read_idempotency_key([key]) == key
    assert read_idempotency_key(['"quoted-key"']) == "quoted-key"


@pytest.mark.parametrize(
    "keys",
    [
        [""],
        ["12345"],
        ["x" * 65],
        ["x" * 1000],
        ["with space"],
        ["with\ttab"],
        ["r\xe4ndigkeit"],
        ['"12345"'],
        ['"with space"'],
        ['"' + "x" * 65 + '"'],
        ["order-1042", "order-1043"],
        ["order-1042", "order-1042"],
    ],
)
def test_any_other_key_is_refused(keys: Sequence[str]) -> None:
    assert isinstance(read_idempotency_key(keys), errors.InvalidIdempotencyKey)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_refused_key_costs_nothing(service: Service, *, dry_run: bool) -> None:
    caller = service.open_account()
    content = json.dumps(json.loads(CONTENT) | {"dry_run": dry_run})
    for keys in ([b"r\xc3\xa4ndig"], [b"order-1042", b"order-1043"]):
        answer = post(service, caller, content, *keys)
        assert_refused(answer, errors.InvalidIdempotencyKey)
        assert_rate_headers(answer)
    assert service.balance(caller) == 100


def test_a_quoted_key_is_the_same_key_as_the_bare_one(service: Service) -> None:
    caller = service.open_account()
    first = post(service, caller, CONTENT, b'say"hello"')
    for key in (b'"say\\"hello\\""', b'say"hello"'):
        again = post(service, caller, CONTENT, key)
        assert (is_replay(again), again.content) == (True, first.content)
    # The quotes do not count.
    assert post(service, caller, CONTENT, b'"' + b"x" * 64 + b'"').status_code == 202
    assert is_replay(post(service, caller, CONTENT, b"x" * 64))


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


@pytest.mark.parametrize("to", [[ZW], list(HUNDRED)], ids=["small", "large"])
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


@pytest.mark.parametrize("to", [[ZW], list(HUNDRED)], ids=["small", "large"])
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


def test_without_a_key_every_call_is_a_send_of_its_own(service: Service) -> None:
    caller = service.open_account()
    answers = [service.send(caller) for _ in range(2)]
    assert answers[0].json()["batch_id"] != answers[1].json()["batch_id"]
    assert not any(is_replay(answer) for answer in answers)
    assert service.balance(caller) == Decimal("99.92")
