"""How do developers read about the API? One page of HTML, made from the OpenAPI document."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from tumira.api.app import DOCUMENT_PATH
from tumira.api.docs.guide import sections
from tumira.api.docs.markdown import Markdown
from tumira.api.docs.openapi import document
from tumira.html import page as html_page
from tumira.sending.lifecycle import FAILURE_REASONS

STYLESHEET_PATH: Final = "/docs/reference.css"

# Told before the operations, because every call needs it; the rest is looked up when a question comes.
_FIRST: Final = frozenset(["overview", "authentication"])
_OK: Final = range(200, 300)
_TOKEN: Final = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*")(?=:)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<value>\b(?:true|false|null|[0-9]+)\b)'
)

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A row of a table of fields."""

    name: str
    kind: str
    required: bool
    description: str
    limits: str


@dataclass(frozen=True, slots=True)
class Named:
    """An example, or a refusal with the status it has."""

    name: str
    title: str
    value: Any
    status: int = 0
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer of an operation."""

    status: int
    description: str
    fields: Sequence[Field]
    examples: Sequence[Named]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation with all that is shown about it."""

    id: str
    tag: str
    method: str
    path: str
    summary: str
    description: str
    curl: str
    parameters: Sequence[Field]
    body: Sequence[Field]
    requests: Sequence[Named]
    answers: Sequence[Answer]
    refusals: Sequence[Named]


@dataclass(frozen=True, slots=True)
class Events:
    """The types of events whose bodies have the same fields."""

    title: str
    types: Sequence[Named]
    fields: Sequence[Field]


@cache
def reference_page(
    stylesheet_addresses: tuple[str, ...] = (STYLESHEET_PATH,), document_address: str = DOCUMENT_PATH
) -> str:
    """Return the page; it asks for nothing but its stylesheet."""
    reader = _Reader(json.loads(document()))
    guide = sections(reader.root["info"]["description"])
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    operations = list(reader.operations())
    refusals = _all_refusals(operations)
    # A name that is also a reason of failure is no link: it would often lead to the wrong place.
    names = {refusal.name for refusal in refusals} - FAILURE_REASONS.keys()
    markdown = Markdown(names | reader.root["webhooks"].keys())
    environment.filters |= {"markdown": markdown.blocks, "inline": markdown.inline, "json": highlight}
    page = environment.get_template("reference.html.jinja").render(
        info=reader.root["info"],
        base=reader.root["servers"][0]["url"],
        tags=[tag for tag in reader.root["tags"] if any(one.tag == tag["name"] for one in operations)],
        first=[section for section in guide if section.slug in _FIRST],
        later=[section for section in guide if section.slug not in _FIRST],
        operations=operations,
        events=list(reader.events()),
        event_headers=reader.event_headers(),
        event_answers=reader.event_answers(),
        refusals=refusals,
        envelope=list(reader.fields({"$ref": "#/components/schemas/ErrorResponse"})),
        stylesheet_addresses=stylesheet_addresses,
        document_address=document_address,
    )
    return page.strip() + "\n"


def stylesheet() -> bytes:
    """Return how the page looks."""
    return html_page.stylesheet(Path(__file__).with_name("reference.css"))


def _all_refusals(operations: Sequence[Operation]) -> Sequence[Named]:
    refusals = {refusal.name: refusal for operation in operations for refusal in operation.refusals}
    return sorted(refusals.values(), key=lambda refusal: (refusal.status, refusal.name))


def highlight(value: Any) -> Markup:
    """Write JSON with its names, texts and other values marked."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    written = Markup()
    end = 0
    for token in _TOKEN.finditer(text):
        written += escape(text[end : token.start()])
        written += Markup('<span class="{}">{}</span>').format(token.lastgroup, token[0])
        end = token.end()
    return written + escape(text[end:])


class _Reader:
    """Reads an OpenAPI document the way the page shows it."""

    def __init__(self, root: Json) -> None:
        self.root: Final = root

    def operations(self) -> Iterator[Operation]:
        """Go through the operations in the order of the document."""
        for path, methods in self.root["paths"].items():
            for method, operation in methods.items():
                yield self._operation(path, method.upper(), operation)

    def fields(self, schema: Json, prefix: str = "") -> Iterator[Field]:
        """Go through the fields of an object, with those of the objects inside it after each."""
        resolved = self._resolve(schema)
        for name, inner in resolved.get("properties", {}).items():
            field = self._resolve(inner)
            yield self._field(prefix + name, field, required=name in resolved.get("required", ()))
            items = self._resolve(field.get("items", {}))
            yield from self.fields(field, f"{prefix}{name}.")
            yield from self.fields(items, f"{prefix}{name}[].")

    def events(self) -> Iterator[Events]:
        """Go through the kinds of events, in the order of the document."""
        kinds: dict[str, list[Json]] = {}
        for methods in self.root["webhooks"].values():
            content = methods["post"]["requestBody"]["content"]["application/json"]
            data = self._resolve(content["schema"])["properties"]["data"]
            kinds.setdefault(data["$ref"], []).append(methods["post"])
        for operations in kinds.values():
            yield self._events(operations)

    def event_headers(self) -> Sequence[Field]:
        """Return the headers that every event has."""
        return [self._parameter(self._resolve(each)) for each in self._any_event()["parameters"]]

    def event_answers(self) -> Mapping[str, str]:
        """Return what each answer to an event means."""
        return {status: answer["description"] for status, answer in self._any_event()["responses"].items()}

    def _any_event(self) -> Json:
        post: Json = next(iter(self.root["webhooks"].values()))["post"]
        return post

    def _events(self, operations: Sequence[Json]) -> Events:
        contents = [operation["requestBody"]["content"]["application/json"] for operation in operations]
        types = [
            replace(self._examples(content)[0], advice=operation["description"])
            for operation, content in zip(operations, contents, strict=True)
        ]
        schema = self._resolve(contents[0]["schema"])
        type_ = {name: value for name, value in schema["properties"]["type"].items() if name != "const"}
        type_["enum"] = [one.name for one in types]
        # One table for all of them, so the one that they differ in is told with all its values.
        shared = {**schema, "properties": {**schema["properties"], "type": type_}}
        first, *others = types
        title = f"{first.name.partition('.')[0]}.*" if others else first.name
        return Events(title, types, list(self.fields(shared)))

    def _operation(self, path: str, method: str, operation: Json) -> Operation:
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        answers = {int(status): answer for status, answer in operation["responses"].items()}
        return Operation(
            id=operation["operationId"],
            tag=operation["tags"][0],
            method=method,
            path=path,
            summary=operation["summary"],
            description=operation["description"],
            curl=operation["x-codeSamples"][0]["source"],
            parameters=[self._parameter(self._resolve(each)) for each in operation["parameters"]],
            body=list(self.fields(body.get("schema", {}))),
            requests=self._examples(body),
            answers=[self._answer(status, answer) for status, answer in answers.items() if status in _OK],
            refusals=[
                refusal
                for status, answer in answers.items()
                if status not in _OK
                for refusal in self._examples(answer["content"]["application/json"], status)
            ],
        )

    def _answer(self, status: int, answer: Json) -> Answer:
        content = answer["content"]["application/json"]
        return Answer(
            status, answer["description"], list(self.fields(content["schema"])), self._examples(content)
        )

    def _examples(self, content: Json, status: int = 0) -> Sequence[Named]:
        return [
            Named(name, example["summary"], example["value"], status, example.get("description", ""))
            for name, example in (
                (name, self._resolve(each)) for name, each in content.get("examples", {}).items()
            )
        ]

    def _parameter(self, parameter: Json) -> Field:
        place = {"path": "in the path", "header": "header"}[parameter["in"]]
        return Field(
            parameter["name"],
            f"{self._kind(parameter['schema'])}, {place}",
            parameter["required"],
            parameter["description"],
            f"Example: `{parameter['example']}`",
        )

    def _field(self, name: str, schema: Json, *, required: bool) -> Field:
        return Field(name, self._kind(schema), required, schema.get("description", ""), self._limits(schema))

    def _kind(self, schema: Json) -> str:
        schema = self._resolve(schema)
        if "type" not in schema and "anyOf" in schema:
            return " or ".join(self._kind(each) for each in schema["anyOf"])
        if schema.get("type") == "array":
            return f"array of {self._kind(schema['items'])}s"
        return str(schema.get("format", schema.get("type", "string")))

    def _limits(self, schema: Json) -> str:
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

    def _resolve(self, node: Json) -> Json:
        while "$ref" in node:
            found: Any = self.root
            for name in node["$ref"].removeprefix("#/").split("/"):
                found = found[name]
            node = found
        return node
