"""The client does what the test vectors of all clients say."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from tumira_client import (
    AsyncPasscodes,
    CodeRules,
    InvalidNumberError,
    MemoryCodeStore,
    Passcodes,
    Policy,
    StoredCode,
    WebhookError,
    Webhooks,
    e164,
)
from tumira_client.models import Sent, SentMany
from tumira_client.retry import (
    Failure,
    Pacer,
    chunk_key,
    chunks,
    read_pause,
    read_retry_after,
    wait_s,
)

VECTORS: Final[Mapping[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "vectors.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", VECTORS["numbers"], ids=lambda case: ascii(case["text"][:30]))
def test_a_number_is_completed(case: Mapping[str, Any]) -> None:
    if case["e164"] is None:
        with pytest.raises(InvalidNumberError):
            e164(case["text"], case["country"])
    else:
        assert e164(case["text"], case["country"]) == case["e164"]


def test_an_unknown_country_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="ZW or ZA"):
        e164("0771200001", "XX")


@pytest.mark.parametrize("case", VECTORS["signatures"], ids=lambda case: case["name"])
def test_a_signature_is_judged(case: Mapping[str, Any]) -> None:
    webhooks = Webhooks(*case["secrets"], tolerance_s=case.get("tolerance", 300))
    if case["valid"]:
        assert webhooks.check(case["headers"], case["body"].encode(), case["now"])
    else:
        with pytest.raises(WebhookError):
            webhooks.check(case["headers"], case["body"].encode(), case["now"])


def test_an_event_is_read() -> None:
    case, no_event = VECTORS["signatures"][:2]
    event = Webhooks(*case["secrets"]).verify(case["headers"], case["body"].encode(), case["now"])
    assert (event.id, event.type, event.data["status"]) == ("evt_01", "message.delivered", "delivered")
    with pytest.raises(WebhookError):
        Webhooks(*no_event["secrets"]).verify(no_event["headers"], no_event["body"].encode(), no_event["now"])
    for secrets in ([], [""], ["whsec_"], ["whsec_***"]):
        with pytest.raises(ValueError, match="signing secret"):
            Webhooks(*secrets)


def test_retries_wait_as_long_as_they_should() -> None:
    policy = Policy()
    assert VECTORS["retry_policy"] == {"tries_max": policy.tries_max, "give_up_after": policy.give_up_s}
    for case in VECTORS["retries"]:
        failure = Failure(case["status"], case["retryable"], case["retry_after"])
        assert wait_s(policy, case["attempt"], case["elapsed"], failure, case["random"]) == case["wait"], case


def test_headers_about_waiting_are_read() -> None:
    for case in VECTORS["retry_after"]:
        assert read_retry_after(case["header"], case["now"]) == case["seconds"], case
    for case in VECTORS["pacing"]:
        assert read_pause(case["header"]) == case["pause"], case


def test_calls_wait_until_the_account_has_some_left() -> None:
    pacer = Pacer()
    assert pacer.pause_s(100) == 0
    pacer.note({"ratelimit": '"account";r=0;t=12'}, 100)
    pacer.note({"ratelimit": '"account";r=5;t=1'}, 101)
    pacer.note({}, 101, 3)
    assert [pacer.pause_s(now) for now in (101, 111.5, 112, 113)] == [11, 0.5, 0, 0]


def test_recipients_are_split_under_derived_keys_and_costs_are_added() -> None:
    for case in VECTORS["chunk_keys"]:
        assert chunk_key(case["key"], case["index"]) == case["derived"]
    for case in VECTORS["chunks"]:
        assert chunks(case["to"], case["size"]) == case["chunks"]
    for case in VECTORS["sums"]:
        batches = [
            Sent("bat_1", 1, [], 1, Decimal(amount), "USD", Decimal(0), "key", replayed=False)
            for amount in case["amounts"]
        ]
        assert str(SentMany("key", batches).total_cost) == case["total"]


class SlowStore:
    """A store that is asynchronous, as a database is."""

    def __init__(self) -> None:
        self.codes = MemoryCodeStore()

    async def put(self, phone: str, code: StoredCode) -> None:
        await asyncio.sleep(0)
        self.codes.put(phone, code)

    async def count_try(self, phone: str) -> StoredCode | None:
        await asyncio.sleep(0)
        return self.codes.count_try(phone)

    async def remove(self, phone: str, code_hash: str) -> bool:
        await asyncio.sleep(0)
        return self.codes.remove(phone, code_hash)


def test_codes_are_hashed() -> None:
    for case in VECTORS["passcode_hashes"]:
        assert CodeRules(case["secret"]).hash(case["phone"], case["code"]) == case["hash"]
    with pytest.raises(ValueError, match="16 characters"):
        CodeRules("short")


@pytest.mark.parametrize("case", VECTORS["passcodes"], ids=lambda case: case["name"])
async def test_codes_are_checked(case: Mapping[str, Any]) -> None:
    rules = CodeRules(**VECTORS["passcode_rules"])
    store, slow = MemoryCodeStore(), SlowStore()
    for step in case["steps"]:
        if "put" in step:
            for one in (store, slow.codes):
                one.put(step["put"], StoredCode(step["hash"], step["expires_at"], step["tries"]))
            continue
        now = replace(rules, clock=partial(float, step["at"]))
        assert Passcodes(store, now).check(step["check"], step["typed"]) is step["ok"], step
        assert await AsyncPasscodes(slow, now).check(step["check"], step["typed"]) is step["ok"], step


async def test_a_code_that_was_made_is_right_once_and_is_not_what_is_stored() -> None:
    rules = CodeRules("a long random text", country="ZW", clock=lambda: 1000.5)
    store = MemoryCodeStore()
    code = Passcodes(store, rules).make("077 120 0001")
    assert len(code) == 6
    assert code.isdecimal()
    assert store.count_try("+263771200001") == StoredCode(rules.hash("+263771200001", code), 1600, 1)
    assert [Passcodes(store, rules).check("0771200001", code) for _ in range(2)] == [True, False]
    slow = AsyncPasscodes(SlowStore(), rules)
    code = await slow.make("077 120 0001")
    checks = await asyncio.gather(*(slow.check("+263771200001", code) for _ in range(3)))
    assert sorted(checks) == [False, False, True]
