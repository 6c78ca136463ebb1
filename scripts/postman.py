"""A Postman collection of the API, made from the OpenAPI document."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tumira.api.docs.openapi import document

_SCHEMA: Final = "https://schema.getpostman.com/json/collection/v2.1.0/collection.json"
# What later requests need from the answer of an operation.
_KEEPS: Final = {
    "sendMessages": ("batch_id", "batch_id"),
    "getBatch": ("message_id", "data.messages[0].message_id"),
}
_IDS: Final = {"getBatch": "{{batch_id}}", "getMessage": "{{message_id}}"}
_HEADERS: Final = {"Idempotency-Key": "{{$guid}}"}


def collection() -> str:
    """Write the collection: a request for each example of each operation."""
    api = json.loads(document())
    prefix = api["servers"][0]["url"]
    items = [
        item
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
        for item in _requests(prefix + path, method.upper(), operation)
    ]
    info = api["info"]
    made = {
        "info": {
            "name": info["title"],
            "description": f"{info['summary']} Set the variables base_url and api_key, then send.",
            "version": info["version"],
            "schema": _SCHEMA,
        },
        "auth": {"type": "bearer", "bearer": [{"key": "token", "value": "{{api_key}}", "type": "string"}]},
        "variable": [
            {"key": "base_url", "value": "http://127.0.0.1:8080"},
            {"key": "api_key", "value": ""},
            *({"key": name, "value": ""} for name, _ in _KEEPS.values()),
        ],
        "item": sorted(items, key=lambda item: list(_ORDER).index(item["id"].partition(" ")[0])),
    }
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


# Each uses what the ones before it answered.
_ORDER: Final = ("getPricing", "getBalance", "sendMessages", "getBatch", "getMessage")


def _requests(path: str, method: str, operation: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    name = operation["operationId"]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    examples = content.get(
        "examples", {"": {"summary": operation["summary"].replace("`", ""), "value": None}}
    )
    return [
        _request(f"{name} {key}".strip(), example, path, method, operation)
        for key, example in examples.items()
    ]


def _request(
    request_id: str, example: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]
) -> Mapping[str, Any]:
    name = operation["operationId"]
    url: dict[str, Any] = {
        "raw": "{{base_url}}" + path.replace("{id}", ":id"),
        "host": ["{{base_url}}"],
        "path": path.replace("{id}", ":id").strip("/").split("/"),
    }
    if "{id}" in path:
        url["variable"] = [{"key": "id", "value": _IDS[name]}]
    request: dict[str, Any] = {"method": method, "url": url, "description": operation["description"]}
    if example["value"] is not None:
        request["header"] = [
            {"key": "Content-Type", "value": "application/json"},
            *({"key": key, "value": value} for key, value in _HEADERS.items()),
        ]
        request["body"] = {
            "mode": "raw",
            "raw": json.dumps(example["value"], indent=2, ensure_ascii=False),
            "options": {"raw": {"language": "json"}},
        }
    item: dict[str, Any] = {"id": request_id, "name": example["summary"], "request": request}
    if name in _KEEPS and not (example["value"] or {}).get("dry_run"):
        variable, place = _KEEPS[name]
        script = f'pm.collectionVariables.set("{variable}", pm.response.json().{place});'
        item["event"] = [{"listen": "test", "script": {"type": "text/javascript", "exec": [script]}}]
    return item
