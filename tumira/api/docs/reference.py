"""What the pages about the API show, read from the OpenAPI document."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import getitem
from typing import Any, Final

from tumira.api.docs.openapi import document
from tumira.api.docs.operations import sections
from tumira.sending.lifecycle import FAILURE_REASONS
from tumira.webhooks.payload import PAYLOADS

_OK: Final = range(200, 300)
_JSON: Final = "application/json"

Json = Mapping[str, Any]

_NO_CONTENT: Final[Json] = {"schema": {}, "examples": {}}


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: str
    required: bool
    description: str
    limits: str


@cache
def reference() -> Json:
    """Return the parts of the reference: guide, operations, events and refusals."""
    written = json.loads(document())
    root = _expand(written, written)
    operations = list(_operations(root["paths"]))
    refusals = {
        code: {**example, "code": code, "status": status}
        for operation in operations
        for status, code, example in operation["refusals"]
    }
    return {
        "info": root["info"],
        "prefix": root["servers"][0]["url"],
        "guide": sections(root["info"]["description"]),
        "tags": [tag for tag in root["tags"] if any(tag["name"] in one["tags"] for one in operations)],
        "operations": operations,
        "events": _event_groups(root["webhooks"]),
        "any_event": next(iter(root["webhooks"].values()))["post"],
        "refusals": sorted(refusals.values(), key=lambda refusal: (refusal["status"], refusal["code"])),
        "envelope": root["components"]["schemas"]["ErrorResponse"],
        # A code that is also a failure reason is no link: it would often lead to the wrong place.
        "anchors": (refusals.keys() - FAILURE_REASONS.keys()) | root["webhooks"].keys(),
    }


def _expand(node: Any, root: Json) -> Any:
    """Return a part of the document with every reference replaced by what it refers to."""
    if isinstance(node, list):
        return [_expand(each, root) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        names = node["$ref"].removeprefix("#/").split("/")
        return _expand(reduce(getitem, names, root), root)
    return {name: _expand(value, root) for name, value in node.items()}


def _operations(paths: Json) -> Iterator[Json]:
    """Yield the operations, each with its answers by status and its refusals."""
    for path, methods in paths.items():
        for method, operation in methods.items():
            answers = {
                int(status): {**answer["content"][_JSON], "description": answer["description"]}
                for status, answer in operation["responses"].items()
            }
            yield {
                **operation,
                "path": path,
                "method": method.upper(),
                "body": operation.get("requestBody", {}).get("content", {}).get(_JSON, _NO_CONTENT),
                "answers": {status: answer for status, answer in answers.items() if status in _OK},
                "refusals": [
                    (status, code, example)
                    for status, answer in answers.items()
                    if status not in _OK
                    for code, example in answer["examples"].items()
                ],
            }


def _event_groups(webhooks: Json) -> Sequence[Json]:
    """Return the types of events grouped by the fields of their bodies."""
    kinds: dict[type, list[Json]] = {}
    for type_, methods in webhooks.items():
        content = methods["post"]["requestBody"]["content"][_JSON]
        kinds.setdefault(PAYLOADS[type_], []).append({**methods["post"], **content, "type": type_})
    return [_event_group(events) for events in kinds.values()]


def _event_group(events: Sequence[Json]) -> Json:
    first, *others = events
    schema = first["schema"]
    type_ = {name: value for name, value in schema["properties"]["type"].items() if name != "const"}
    # One table for all types, so `type`, in which they differ, lists all its values.
    type_["enum"] = [event["type"] for event in events]
    return {
        "title": f"{first['type'].partition('.')[0]}.*" if others else first["type"],
        "schema": {**schema, "properties": {**schema["properties"], "type": type_}},
        "events": events,
    }


def list_fields(schema: Json, prefix: str = "") -> Iterator[Field]:
    """Yield the fields of an object, each followed by those of the object inside it."""
    for name, field in schema.get("properties", {}).items():
        required = name in schema.get("required", ())
        yield Field(prefix + name, _kind(field), required, field.get("description", ""), _limits(field))
        yield from list_fields(field, f"{prefix}{name}.")
        yield from list_fields(field.get("items", {}), f"{prefix}{name}[].")


def list_parameters(parameters: Sequence[Json]) -> Iterator[Field]:
    for parameter in parameters:
        place = {"path": "in the path", "header": "header"}[parameter["in"]]
        yield Field(
            parameter["name"],
            f"{_kind(parameter['schema'])}, {place}",
            parameter["required"],
            parameter["description"],
            f"Example: `{parameter['example']}`",
        )


def _kind(schema: Json) -> str:
    if "type" not in schema and "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"array of {_kind(schema['items'])}s"
    return str(schema.get("format", schema.get("type", "string")))


def _limits(schema: Json) -> str:
    match schema:
        case {"enum": values}:
            return "One of " + ", ".join(f"`{value}`" for value in values)
        case {"x-extensible-enum": values}:
            return "Today " + ", ".join(f"`{value}`" for value in values)
        case {"maxLength": most, **rest}:
            return f"{rest.get('minLength', 0)} to {most} characters"
        case {"minimum": least, "maximum": most}:
            return f"{least} to {most:,}"
    return ""
