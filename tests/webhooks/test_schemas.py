"""Webhooks in the OpenAPI document and in the guide."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scripts.generate_docs import DOCS
from tests.api.test_docs_pages import render
from tests.api.test_openapi import ROOT, resolve, validator
from tests.webhooks.test_payload import COMPLETED, LATER, REPLY, event
from tumira.api.docs.events import ANSWERS, HEADERS, schema_name
from tumira.api.docs.pages import REFERENCE
from tumira.cli.webhooks import webhook
from tumira.events import EVENT_TYPES, MEANINGS, REPLY_EVENTS
from tumira.sending.lifecycle import LATE_RECEIPT_WAIT
from tumira.sending.low_balance import low_balance_data
from tumira.webhooks import health as endpoint_health
from tumira.webhooks.manage import ENDPOINTS_MAX, OVERLAP
from tumira.webhooks.payload import webhook_test_data, write_payload
from tumira.webhooks.replay import REPLAYABLE

GUIDE: Final = " ".join((DOCS / "webhooks.md").read_text(encoding="utf-8").split())

Json = dict[str, Any]


def operation(type_: str) -> Json:
    post: Json = ROOT["webhooks"][type_]["post"]
    return post


def content(type_: str) -> Json:
    body: Json = operation(type_)["requestBody"]["content"]["application/json"]
    return body


def bodies() -> Iterator[tuple[str, bytes]]:
    for type_, _, later in LATER:
        for batch in (COMPLETED, replace(COMPLETED, reference=None)):
            yield type_, write_payload(event(type_), later, batch)
    yield "batch.completed", write_payload(event("batch.completed"), None, COMPLETED)
    for type_ in REPLY_EVENTS:
        for reply in (REPLY, replace(REPLY, text=None, message_id=None)):
            yield type_, write_payload(event(type_, data='{"reply_id":"x"}'), None, None, reply)
    low = low_balance_data(Decimal(0), Decimal("12.5"))
    yield "balance.low", write_payload(event("balance.low", data=low), None, None)
    yield "webhook.test", write_payload(event("webhook.test", data=webhook_test_data()), None, None)


def test_every_type_is_in_the_document_and_told_somewhere() -> None:
    assert tuple(ROOT["webhooks"]) == EVENT_TYPES
    assert {type_ for type_, _ in bodies()} == set(EVENT_TYPES)


@pytest.mark.parametrize("type_", EVENT_TYPES)
def test_what_is_told_fits_the_schema_of_its_type_and_of_no_other(type_: str) -> None:
    check = validator(content(type_)["schema"])
    for told, body in bodies():
        assert check.is_valid(json.loads(body)) == (told == type_), body


def test_every_member_that_is_told_is_described() -> None:
    for type_, body in bodies():
        told = json.loads(body)
        schema = resolve(content(type_)["schema"])
        assert told.keys() == schema["properties"].keys()
        assert told["data"].keys() <= resolve(schema["properties"]["data"])["properties"].keys()


@pytest.mark.parametrize("type_", EVENT_TYPES)
def test_an_event_is_described_whole(type_: str) -> None:
    described = operation(type_)
    assert described["description"] == MEANINGS[type_]
    assert described["security"] == []
    assert content(type_)["schema"] == {"$ref": f"#/components/schemas/{schema_name(type_)}"}
    for example in content(type_)["examples"].values():
        assert example["value"]["type"] == type_
        validator(content(type_)["schema"]).validate(example["value"])
    parameters = [resolve(parameter) for parameter in described["parameters"]]
    assert [parameter["name"] for parameter in parameters] == list(HEADERS)
    for parameter in parameters:
        assert (parameter["in"], parameter["required"]) == ("header", True)
        validator(parameter["schema"]).validate(parameter["example"])
    assert {status: answer["description"] for status, answer in described["responses"].items()} == ANSWERS


def test_two_signatures_fit_the_header() -> None:
    one = HEADERS["webhook-signature"]["example"]
    check = validator(HEADERS["webhook-signature"]["schema"])
    assert check.is_valid(f"{one} {one}")
    assert not check.is_valid(f"{one},{one}")


def test_no_operation_has_the_name_of_another() -> None:
    names = [
        described["operationId"]
        for part in ("paths", "webhooks")
        for methods in ROOT[part].values()
        for described in methods.values()
    ]
    assert len(set(names)) == len(names)


def test_every_event_is_on_the_reference_page() -> None:
    page = render("reference")
    guide_page = render("guide")
    for type_ in EVENT_TYPES:
        assert type_ in page.ids
        assert ("a", f"{REFERENCE}#{type_}") in guide_page.addresses
        for example in content(type_)["examples"].values():
            assert json.dumps(example["value"], indent=2, ensure_ascii=False) in page.text
    for name in HEADERS:
        assert name in page.text


@pytest.mark.parametrize(("type_", "meaning"), MEANINGS.items())
def test_every_event_is_in_the_guide(type_: str, meaning: str) -> None:
    assert f"| `{type_}` | {meaning} |" in GUIDE


def test_the_guide_has_the_waits_of_the_code() -> None:
    row = GUIDE.partition("| After | 0 | ")[2].partition(" Each wait")[0]
    units = {"s": "seconds", "min": "minutes", "h": "hours"}
    found = re.findall(r"([0-9]+) (s|min|h)\b", row)
    waits = [timedelta(**{units[unit]: int(number)}) for number, unit in found]
    assert tuple(waits) == endpoint_health.RETRY_WAITS
    assert f"{endpoint_health.ATTEMPTS_MAX} times in all" in GUIDE


def test_the_guide_names_every_command_and_option() -> None:
    for name, command in webhook.commands.items():
        assert f"`tumira webhook {name} " in GUIDE
        for option in command.params:
            for flag in option.opts:
                if flag.startswith("--") and flag not in {"--json", "--limit"}:
                    assert flag in GUIDE, f"{name} {flag}"


def test_the_guide_has_the_limits_of_the_code() -> None:
    one, day = (after // timedelta(hours=1) for after in endpoint_health.WARN_AFTER)
    for sentence in (
        f"After {endpoint_health.FAILURES_MAX} failures in a row",
        f"one event is tried every {endpoint_health.BACKOFF // timedelta(minutes=1)} minutes",
        f"After {one} hour and after {day} hours",
        f"After {endpoint_health.DISABLE_AFTER.days} days",
        f"for {OVERLAP // timedelta(hours=1)} hours",
        f"kept for {REPLAYABLE.days} days",
    ):
        assert sentence in GUIDE
    assert (endpoint_health.FAILURES_MIN, "ten of them at least" in GUIDE) == (10, True)
    assert (ENDPOINTS_MAX, "at most five" in GUIDE) == (5, True)
    assert (endpoint_health.RETRY_AFTER_MAX, "up to a day" in GUIDE) == (timedelta(days=1), True)
    assert (LATE_RECEIPT_WAIT, "within seven days" in GUIDE) == (timedelta(days=7), True)
