"""Faults in fields, all listed at once."""

import json
from collections.abc import Sequence
from typing import Any, Final

import httpx
import pytest

from tests.support.api.answers import assert_rate_headers, assert_refused, faults
from tests.support.processes.service import Caller, Service
from tumira.core import errors
from tumira.core.errors import FieldCode

ZW: Final = "+263771200001"
SEND: Final = {"channel": "sms", "to": ZW, "body": "Hello"}
LONE_HIGH: Final = "\ud83d"
LONE_LOW: Final = "\ude00"
# Blanks of every width, ends of lines, and what has no width at all.
BLANK: Final = (
    "",
    " ",
    "\n\r\t",
    "\xa0" * 3,
    "\u2003\u3000",
    "\u200b",
    "\ufeff\u2060 \u200d",
    "\u3164\u2800",
    "\xad\x1b",
)
NUL: Final = "\x00"

Faults = Sequence[tuple[str, FieldCode]]

# What is laid over a good request, where `...` takes a field away; and the faults that this makes.
CASES: Final[Sequence[tuple[dict[str, Any], Faults]]] = [
    *[({field: ...}, [(field, FieldCode.REQUIRED)]) for field in ("channel", "to", "body")],
    *[
        ({field: value}, [(field, FieldCode.WRONG_TYPE)])
        for field in ("channel", "body", "reference")
        for value in (None, True, 0, 1.5, ["sms"], {"text": "Hello"})
    ],
    *[({"to": value}, [("to", FieldCode.WRONG_TYPE)]) for value in (None, False, 263, 1.5, {"0": ZW})],
    *[
        ({"to": [ZW, value]}, [("to[1]", FieldCode.WRONG_TYPE)])
        for value in (None, True, 263771200001, [ZW], {"to": ZW})
    ],
    *[
        ({"dry_run": value}, [("dry_run", FieldCode.WRONG_TYPE)])
        for value in (None, "true", "", 0, 1, 1.0, [True], {"value": True})
    ],
    ({"to": []}, [("to", FieldCode.EMPTY)]),
    *[({"body": blank}, [("body", FieldCode.EMPTY)]) for blank in BLANK],
    ({"reference": "r" * 65}, [("reference", FieldCode.TOO_LONG)]),
    ({"reference": "r" * 10_000}, [("reference", FieldCode.TOO_LONG)]),
    *[
        ({"channel": value}, [("channel", FieldCode.INVALID_VALUE)])
        for value in ("", "SMS", " sms", "fax", "email", "sms\n")
    ],
    *[
        ({field: f"{before}{bad}{after}"}, [(field, FieldCode.INVALID_CHARACTER)])
        for field in ("channel", "to", "body", "reference")
        for before, bad, after in (("", NUL, ""), ("sms", LONE_HIGH, ""), ("", LONE_LOW, "a"))
    ],
    *[
        ({"to": [ZW, bad, f"{ZW}{bad}"]}, [(f"to[{place}]", FieldCode.INVALID_CHARACTER) for place in (1, 2)])
        for bad in (NUL, LONE_HIGH, LONE_LOW + LONE_HIGH)
    ],
    *[
        ({name: "value"}, [(name, FieldCode.UNKNOWN_FIELD)])
        for name in ("", "dryrun", "dry_Run", "Dry_run", "dry_run ", "sender", "from", "__proto__", "ключ")
    ],
    ({NUL: 1}, [(NUL, FieldCode.UNKNOWN_FIELD)]),
    ({LONE_HIGH: 1}, [(r"\ud83d", FieldCode.UNKNOWN_FIELD)]),
    ({"x" * 10_000: 1}, [("x" * 64, FieldCode.UNKNOWN_FIELD)]),
]


def post(service: Service, caller: Caller, fields: dict[str, Any]) -> httpx.Response:
    # Not httpx's own encoder: it cannot write lone surrogates.
    content, headers = json.dumps(fields), {"Content-Type": "application/json"}
    return service.call(caller, "POST", "/messages", content=content, headers=headers)


@pytest.mark.parametrize(("changes", "expected"), CASES, ids=lambda value: ascii(value)[:60])
def test_a_fault_in_a_field_is_named(service: Service, changes: dict[str, Any], expected: Faults) -> None:
    caller = service.open_account()
    assert post(service, caller, {**SEND, "dry_run": True}).status_code == 200
    given = {name: value for name, value in {**SEND, **changes}.items() if value is not ...}
    answer = post(service, caller, given)
    error = assert_refused(answer, errors.ValidationFailed)
    assert_rate_headers(answer)
    assert faults(error) == [(field, code.value) for field, code in expected]
    assert expected[0][0] in error["message"]
    assert service.balance(caller) == 100


def test_every_field_code_has_a_case() -> None:
    assert {code for _, expected in CASES for _, code in expected} == set(FieldCode)


def test_all_faults_are_listed_at_once(service: Service) -> None:
    caller = service.open_account()
    fields = {
        "to": [ZW, 5, NUL],
        "body": "",
        "reference": "r" * 65,
        "dry_run": "yes",
        "sender": "x",
        "ttl": 1,
    }
    error = assert_refused(post(service, caller, fields), errors.ValidationFailed)
    assert sorted(faults(error)) == [
        ("body", "EMPTY"),
        ("channel", "REQUIRED"),
        ("dry_run", "WRONG_TYPE"),
        ("reference", "TOO_LONG"),
        ("sender", "UNKNOWN_FIELD"),
        ("to[1]", "WRONG_TYPE"),
        ("to[2]", "INVALID_CHARACTER"),
        ("ttl", "UNKNOWN_FIELD"),
    ]


def test_an_empty_object_lacks_all_required_fields(service: Service) -> None:
    error = assert_refused(post(service, service.open_account(), {}), errors.ValidationFailed)
    assert faults(error) == [("channel", "REQUIRED"), ("to", "REQUIRED"), ("body", "REQUIRED")]


@pytest.mark.parametrize(
    ("changes", "first", "count"),
    [({"to": [5] * 1000}, "to[0]", 1000), ({f"x{place}": 1 for place in range(20_000)}, "x0", 20_000)],
    ids=["entries", "names"],
)
def test_a_flood_of_faults_is_counted_and_its_beginning_listed(
    service: Service, changes: dict[str, Any], first: str, count: int
) -> None:
    error = assert_refused(
        post(service, service.open_account(), {**SEND, **changes}), errors.ValidationFailed
    )
    assert len(error["details"]) == 100
    assert faults(error)[0][0] == first
    assert error["message"].startswith(f"{count} faults, the first 100 ")


def test_a_mistyped_dry_run_does_not_become_a_bill(service: Service) -> None:
    caller = service.open_account()
    for name in ("dryRun", "dry-run", "dryrun", "DRY_RUN"):
        assert_refused(post(service, caller, {**SEND, name: True}), errors.ValidationFailed)
    assert service.balance(caller) == 100


@pytest.mark.parametrize("channel", ["telegram", "whatsapp"])
def test_a_reserved_channel_is_not_available_and_a_faulty_field_comes_first(
    service: Service, channel: str
) -> None:
    caller = service.open_account()
    error = assert_refused(post(service, caller, {**SEND, "channel": channel}), errors.ChannelNotAvailable)
    assert channel in error["message"]
    faulty = post(service, caller, {**SEND, "channel": channel, "body": ""})
    assert faults(assert_refused(faulty, errors.ValidationFailed)) == [("body", "EMPTY")]
    assert service.balance(caller) == 100


@pytest.mark.parametrize("entry", [5, None, NUL, LONE_LOW, []])
def test_past_the_limit_a_call_is_refused_for_its_length_whatever_the_entries_are(
    service: Service, entry: Any
) -> None:
    caller = service.open_account()
    thousand = {**SEND, "to": [ZW] * 999 + [entry]}
    assert_refused(post(service, caller, thousand), errors.ValidationFailed)
    more = {**SEND, "to": [ZW] * 1000 + [entry]}
    assert_refused(post(service, caller, more), errors.TooManyRecipients)
