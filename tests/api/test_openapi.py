"""The OpenAPI document."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from scripts.generate_docs import DOCS, main
from tests.support.processes.service import NO_TLS, Service
from tumira.api.app import DOCUMENT_PATH
from tumira.api.docs.errors import ADVICE, FIELD_CODES, RECIPIENT_CODES
from tumira.api.docs.examples import ANSWERS
from tumira.api.docs.openapi import document
from tumira.api.endpoints import ENDPOINTS
from tumira.core.errors import FieldCode, RecipientCode, all_refusals
from tumira.sending.lifecycle import BATCH_STATUSES, MESSAGE_STATUSES

ROOT: Final = json.loads(document())
CODES: Final = {refusal.code: refusal for refusal in all_refusals()}
ADDRESS: Final = "tumira:openapi"

Json = dict[str, Any]


def resolve(node: Json) -> Json:
    while "$ref" in node:
        found: Any = ROOT
        for name in node["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        node = found
    return node


def operations() -> Sequence[tuple[str, Json]]:
    return [
        (f"{method.upper()} {path}", operation)
        for path, methods in ROOT["paths"].items()
        for method, operation in methods.items()
    ]


def media(operation: Json) -> Iterator[tuple[str, Json]]:
    if "requestBody" in operation:
        yield "request", operation["requestBody"]["content"]["application/json"]
    for status, response in operation["responses"].items():
        yield status, response["content"]["application/json"]


def validator(schema: Json) -> Draft202012Validator:
    registry: Registry[Any] = Registry().with_resource(ADDRESS, DRAFT202012.create_resource(ROOT))
    pointed = json.loads(json.dumps(schema).replace('"#/', f'"{ADDRESS}#/'))
    return Draft202012Validator(
        pointed, registry=registry, format_checker=Draft202012Validator.FORMAT_CHECKER
    )


def schemas_with_examples(node: Any, path: str = "#") -> Iterator[tuple[str, Json]]:
    if isinstance(node, dict):
        if isinstance(node.get("examples"), list):
            yield path, node
        for name, child in node.items():
            yield from schemas_with_examples(child, f"{path}/{name}")
    elif isinstance(node, list):
        for place, child in enumerate(node):
            yield from schemas_with_examples(child, f"{path}/{place}")


def test_the_document_is_valid_openapi() -> None:
    assert ROOT["openapi"].startswith("3.1.")
    assert list(OpenAPIV31SpecValidator(ROOT).iter_errors()) == []


def test_a_stale_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scripts.generate_docs.ROOT", tmp_path)
    main([], standalone_mode=False)
    main(["--check"], standalone_mode=False)
    (tmp_path / "docs" / "errors.md").write_text("old", encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["--check"], standalone_mode=False)
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines() == ["docs/errors.md is stale; `make docs` writes it again."]


def test_it_is_served_as_committed(service: Service) -> None:
    answer = httpx.get(service.base + DOCUMENT_PATH, trust_env=False, verify=NO_TLS)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.content == (DOCS / "openapi.json").read_bytes()


def test_every_endpoint_is_described() -> None:
    described = {(name, operation["operationId"], operation["summary"]) for name, operation in operations()}
    assert described == {
        (f"{endpoint.method} {endpoint.path}", endpoint.operation, endpoint.summary) for endpoint in ENDPOINTS
    }
    for endpoint in ENDPOINTS:
        operation = ROOT["paths"][endpoint.path][endpoint.method.lower()]
        assert f"`{endpoint.scope}`" in operation["description"]
        assert operation["security"] == [{"apiKey": [endpoint.scope]}]
        successes = {int(status) for status in operation["responses"] if status.startswith("2")}
        assert successes == set(endpoint.answers)
        assert {status for name, status in ANSWERS if name == endpoint.operation} == successes


def test_every_code_is_in_the_document_with_its_status() -> None:
    found: dict[str, set[int]] = {}
    for _, operation in operations():
        for status, response in operation["responses"].items():
            for name, example in response["content"]["application/json"]["examples"].items():
                if int(status) >= 400:
                    found.setdefault(name, set()).add(int(status))
                    assert resolve(example)["value"]["error"]["code"] == name
                    assert f"`{name}`" in response["description"]
    assert found == {code: {refusal.status} for code, refusal in CODES.items()}


def test_every_code_is_explained() -> None:
    assert set(ADVICE) == set(CODES.values())
    assert set(FIELD_CODES) == set(FieldCode)
    assert set(RECIPIENT_CODES) == set(RecipientCode)
    schemas = ROOT["components"]["schemas"]
    assert set(schemas["FieldCode"]["enum"]) == set(FieldCode)
    assert set(schemas["RecipientCode"]["enum"]) == set(RecipientCode)
    assert set(schemas["ErrorBody"]["properties"]["code"]["examples"]) == set(CODES)


@pytest.mark.parametrize(("name", "operation"), operations())
def test_examples_fit_their_schemas(name: str, operation: Json) -> None:
    for place, content in media(operation):
        check = validator(content["schema"])
        for title, example in content["examples"].items():
            faults = [fault.message for fault in check.iter_errors(resolve(example)["value"])]
            assert faults == [], f"{name} {place} {title}"
    for parameter in map(resolve, operation["parameters"]):
        validator(parameter["schema"]).validate(parameter["example"])


def test_examples_inside_schemas_fit_them() -> None:
    found = list(schemas_with_examples(ROOT["components"])) + list(schemas_with_examples(ROOT["paths"]))
    assert len(found) > 30
    for path, schema in found:
        for example in schema["examples"]:
            faults = [fault.message for fault in validator(schema).iter_errors(example)]
            assert faults == [], path


@pytest.mark.parametrize(("name", "operation"), operations())
def test_every_answer_names_its_headers(name: str, operation: Json) -> None:
    rate = {"RateLimit", "RateLimit-Policy"} | {
        f"X-RateLimit-{what}" for what in ("Limit", "Remaining", "Reset")
    }
    for status, response in operation["responses"].items():
        headers = {key: resolve(header) for key, header in response["headers"].items()}
        always = {key for key, header in headers.items() if header["required"]}
        assert {"X-Request-Id", "Cache-Control"} <= always, f"{name} {status}"
        if status in {"401", "405", "408", "431"}:
            assert not rate & set(headers)
        elif status in {"400", "429", "500", "503"}:
            assert rate <= set(headers) - always
        else:
            assert rate <= always
        assert ("Retry-After" in always) == (status in {"429", "503"})
        assert ("WWW-Authenticate" in headers) == (status in {"401", "403"})
        assert ("Allow" in always) == (status == "405")
        assert ("Idempotency-Replayed" in headers) == (status == "202")


def test_what_was_sent_is_linked_to_its_batch() -> None:
    link = ROOT["paths"]["/messages"]["post"]["responses"]["202"]["links"]["getBatch"]
    assert (link["operationId"], link["parameters"]) == ("getBatch", {"id": "$response.body#/batch_id"})


@pytest.mark.parametrize(("table", "statuses"), [("messages", MESSAGE_STATUSES), ("batches", BATCH_STATUSES)])
def test_the_statuses_are_those_of_the_database(
    service: Service, table: str, statuses: Mapping[str, object]
) -> None:
    constraint = service.sql(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conrelid = $1::text::regclass AND conname = $2",
        table,
        f"{table}_status_check",
    )[0][0]
    assert set(re.findall(r"'([a-z]+)'", constraint)) == set(statuses)
