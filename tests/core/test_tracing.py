"""Traces.

Ids that every process derives, the spans of a message in one trace, and a collector that is away.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.chaos.node import until
from tests.support.postgres.databases import clone
from tests.support.processes.ports import free_port
from tests.support.processes.service import Service
from tests.support.processes.watched import Watched, watch_web, watch_worker
from tests.support.webhooks.receivers import Receiver, Request, run_receiver
from tumira.carriers.manage import add_carrier
from tumira.core import tracing as traces
from tumira.core.ids import BATCH, MESSAGE, BatchId, message_ids, new_id, read_id
from tumira.core.tracing import trace_of
from tumira.simulator.smsc import run_smsc
from tumira.webhooks import manage

TEXT: Final = "Your traced code is 730915."
NUMBER: Final = "+263771200731"
WAIT_S: Final = 30
NOW_MS: Final = 1_794_000_000_000

# Which fields opentelemetry-proto's trace.proto, resource.proto and common.proto have, in the JSON of OTLP.
FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "request": frozenset({"resourceSpans"}),
    "resourceSpans": frozenset({"resource", "scopeSpans", "schemaUrl"}),
    "resource": frozenset({"attributes", "droppedAttributesCount"}),
    "scopeSpans": frozenset({"scope", "spans", "schemaUrl"}),
    "scope": frozenset({"name", "version", "attributes", "droppedAttributesCount"}),
    "spans": frozenset(
        {
            "traceId",
            "spanId",
            "traceState",
            "parentSpanId",
            "flags",
            "name",
            "kind",
            "startTimeUnixNano",
            "endTimeUnixNano",
            "attributes",
            "droppedAttributesCount",
            "events",
            "droppedEventsCount",
            "links",
            "droppedLinksCount",
            "status",
        }
    ),
    "status": frozenset({"message", "code"}),
    "attributes": frozenset({"key", "value"}),
    "value": frozenset({"stringValue", "boolValue", "intValue", "doubleValue", "arrayValue", "bytesValue"}),
}


def test_a_batch_and_all_its_messages_are_one_trace_and_no_other_batch_is() -> None:
    batch_id = BatchId(new_id(NOW_MS))
    other = BatchId(new_id(NOW_MS))
    found = {traces.trace_of(one) for one in (batch_id, *message_ids(batch_id, 1000))}
    assert found == {traces.trace_of(batch_id)}
    assert traces.trace_of(other) not in found


def test_spans_name_parents_that_another_process_made() -> None:
    batch_id = BatchId(new_id(NOW_MS))
    first, second = message_ids(batch_id, 2)
    accept = traces.accepted(batch_id, 1, 2, {})
    hand_over = traces.submitted(first, 3, 4, {})
    receipt = traces.received(first, 4, 5, {})
    event_id, endpoint_id = new_id(NOW_MS), new_id(NOW_MS)

    def told(kind: str, tries: int = 1) -> traces.Span:
        return traces.told(event_id, endpoint_id, tries, kind, first, 6, 7, {}, failed=False)

    assert accept.parent_id == ""
    assert hand_over.parent_id == accept.span_id
    assert receipt.parent_id == hand_over.span_id
    assert told("message.sent").parent_id == hand_over.span_id
    assert told("message.delivered").parent_id == receipt.span_id
    assert told("message.failed").parent_id == told("batch.completed").parent_id == accept.span_id
    assert told("message.delivered").span_id != told("message.delivered", tries=2).span_id
    assert traces.submitted(second, 3, 4, {}).span_id != hand_over.span_id
    assert {accept.trace_id} == {one.trace_id for one in (hand_over, receipt, told("message.sent"))}
    assert (len(accept.trace_id), len(accept.span_id)) == (32, 16)


def test_about_the_share_that_was_asked_for_is_kept_by_whole_traces() -> None:
    batches = [BatchId(new_id(NOW_MS + place)) for place in range(4000)]
    kept = [one for one in batches if traces.is_sampled(one, 0.1)]
    assert 300 < len(kept) < 500
    assert all(traces.is_sampled(message_ids(one, 1)[0], 0.1) for one in kept)
    assert all(traces.is_sampled(one, 1.0) for one in batches)
    assert not any(traces.is_sampled(one, 0.0) for one in batches)
    # Whoever keeps more keeps those that others keep, too.
    assert all(traces.is_sampled(one, 0.2) for one in kept)


@pytest.fixture(scope="module")
def url(server_url: str) -> Iterator[str]:
    with clone(server_url) as url:
        yield url


def check_fields(kind: str, value: Any) -> None:
    if isinstance(value, list):
        for one in value:
            check_fields(kind, one)
    elif isinstance(value, dict):
        assert value.keys() <= FIELDS[kind], (kind, value)
        for name, inner in value.items():
            check_fields(name, inner)


def spans_in(requests: list[Request]) -> list[dict[str, Any]]:
    found = []
    for request in requests:
        assert (request.method, request.path) == ("POST", "/v1/traces")
        assert request.headers["content-type"] == "application/json"
        body = json.loads(request.body)
        check_fields("request", body)
        for resource in body["resourceSpans"]:
            named = {one["key"]: one["value"]["stringValue"] for one in resource["resource"]["attributes"]}
            assert named["service.name"] == "tumira"
            for scope in resource["scopeSpans"]:
                found += [span | {"process": named["service.namespace"]} for span in scope["spans"]]
    return found


async def until_steps(collector: Receiver, trace_id: str, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(WAIT_S):
        while True:
            found = [one for one in spans_in(collector.requests) if one["traceId"] == trace_id]
            if len(found) >= count:
                return sorted(found, key=lambda one: int(one["startTimeUnixNano"]))
            await asyncio.sleep(0.05)


async def prepare(service: Service, port: int, hook: str) -> str:
    """Give a carrier and an account with an endpoint, and return the account's key."""
    caller = await asyncio.to_thread(service.open_account)
    carrier = f"smpp://tester:secret@127.0.0.1:{port}"
    await asyncio.to_thread(service.run, add_carrier, "one", carrier, None, 100)
    types = ["message.delivered", "batch.completed"]
    await asyncio.to_thread(service.run, manage.add_endpoint, caller.id, hook, types, "", allow_private=True)
    return caller.key


def send(service: Service, key: str, **fields: Any) -> dict[str, Any]:
    answer = service.call(
        key, "POST", "/messages", json={"channel": "sms", "to": NUMBER, "body": TEXT} | fields
    )
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.long
async def test_the_four_steps_of_a_message_are_one_trace(url: str, tmp_path: Path) -> None:
    async with run_receiver() as collector, run_receiver() as customer, run_smsc() as smsc:
        settings = {
            "TUMIRA_OTLP_URL": collector.url_as("127.0.0.1", ""),
            "TUMIRA_OTLP_SAMPLE": "1",
            "TUMIRA_WEBHOOKS_ALLOW_PRIVATE": "1",
        }
        with (
            watch_web(url, tmp_path / "web.log", **settings) as (_, service),
            watch_worker(url, tmp_path / "worker.log", **settings),
        ):
            key = await prepare(service, smsc.port, customer.url)
            answer = await asyncio.to_thread(send, service, key, reference="traced")
            batch_id = read_id(BATCH, answer["batch_id"])
            assert batch_id is not None
            await customer.wait(requests=2)
            trace_id = trace_of(batch_id).hex
            found = await until_steps(collector, trace_id, 5)

    by_name: dict[str, list[dict[str, Any]]] = {}
    for span in found:
        by_name.setdefault(span["name"], []).append(span)
    assert {name: len(spans) for name, spans in by_name.items()} == {
        "accept": 1,
        "hand-over": 1,
        "receipt": 1,
        "webhook": 2,
    }
    (accept,), (hand_over,), (receipt,) = by_name["accept"], by_name["hand-over"], by_name["receipt"]
    told = {attributes(span)["tumira.event"]: span for span in by_name["webhook"]}
    assert accept["parentSpanId"] == ""
    assert hand_over["parentSpanId"] == accept["spanId"]
    assert receipt["parentSpanId"] == hand_over["spanId"]
    assert told["message.delivered"]["parentSpanId"] == receipt["spanId"]
    assert told["batch.completed"]["parentSpanId"] == accept["spanId"]
    assert (accept["process"], hand_over["process"]) == ("web", "worker")
    # What is counted in 64 bits is a text in JSON, ids are hexadecimal, and no span ends before it begins.
    for span in found:
        assert isinstance(span["startTimeUnixNano"], str)
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        assert (len(span["traceId"]), len(span["spanId"])) == (32, 16)
        assert span["status"] == {}
    message_id = read_id(MESSAGE, str(attributes(hand_over)["tumira.message"]))
    assert message_id is not None
    assert trace_of(message_id) == trace_of(batch_id)
    assert attributes(told["message.delivered"])["http.response.status_code"] == "200"
    sent = b"".join(request.body for request in collector.requests)
    assert TEXT.encode() not in sent
    assert NUMBER[1:].encode() not in sent


def attributes(span: Mapping[str, Any]) -> dict[str, str]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def spans(part: Watched, result: str) -> float:
    return part.metrics()[f'tumira_spans_total{{result="{result}"}}']


def test_a_collector_that_is_away_costs_spans_and_nothing_else(url: str, tmp_path: Path) -> None:
    settings = {
        "TUMIRA_OTLP_URL": f"http://127.0.0.1:{free_port()}/traces",
        "TUMIRA_OTLP_SAMPLE": "1",
        "TUMIRA_LOG_LEVEL": "error",
    }
    with watch_web(url, tmp_path / "web.log", **settings) as (web, service):
        caller = service.open_account()
        for _ in range(3):
            send(service, caller.key)
        until(lambda: spans(web, "dropped") > 0, "no span was dropped")
        assert spans(web, "sent") == 0
        send(service, caller.key)
