"""The reference of the API: one page of HTML, made from the OpenAPI document."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from tumira.api.app import DOCUMENT_PATH
from tumira.api.docs.openapi import document
from tumira.api.docs.operations import sections
from tumira.html import page as html_page
from tumira.sending.lifecycle import FAILURE_REASONS

STYLESHEET_PATH: Final = "/docs/reference.css"

# Sections before the operations, because every call needs them.
_FIRST: Final = frozenset(["overview", "authentication"])
_OK: Final = range(200, 300)
_TOKEN: Final = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*")(?=:)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<value>\b(?:true|false|null|[0-9]+)\b)'
)

_CODE: Final = re.compile(r"`([^`]+)`")
_PLAIN_COLUMNS: Final = 2

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: str
    required: bool
    description: str
    limits: str


@dataclass(frozen=True, slots=True)
class ExampleView:
    """An example, or a refusal and its status."""

    name: str
    title: str
    value: Any
    status: int = 0
    advice: str = ""


@dataclass(frozen=True, slots=True)
class AnswerView:
    status: int
    description: str
    fields: Sequence[Field]
    examples: Sequence[ExampleView]


@dataclass(frozen=True, slots=True)
class OperationView:
    id: str
    tag: str
    method: str
    path: str
    summary: str
    description: str
    curl: str
    parameters: Sequence[Field]
    body: Sequence[Field]
    requests: Sequence[ExampleView]
    answers: Sequence[AnswerView]
    refusals: Sequence[ExampleView]


@dataclass(frozen=True, slots=True)
class EventGroup:
    """The types of events whose bodies have the same fields."""

    title: str
    types: Sequence[ExampleView]
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
    # A code that is also a failure reason is no link: it would often lead to the wrong place.
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
    return html_page.stylesheet(Path(__file__).with_name("reference.css"))


def _all_refusals(operations: Sequence[OperationView]) -> Sequence[ExampleView]:
    refusals = {refusal.name: refusal for operation in operations for refusal in operation.refusals}
    return sorted(refusals.values(), key=lambda refusal: (refusal.status, refusal.name))


def highlight(value: Any) -> Markup:
    """Write JSON with names, strings and other values in spans of their classes."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    written = Markup()
    end = 0
    for token in _TOKEN.finditer(text):
        written += escape(text[end : token.start()])
        written += Markup('<span class="{}">{}</span>').format(token.lastgroup, token[0])
        end = token.end()
    return written + escape(text[end:])


@dataclass(frozen=True, slots=True)
class Markdown:
    """Turns the Markdown of the guide into HTML: paragraphs, lists, tables and `code`.

    Code spans that name a section of the page, one of `sections`, become links to it.
    """

    sections: Collection[str] = ()

    def blocks(self, text: str) -> Markup:
        """Turn a text into blocks of HTML, separated by blank lines."""
        blocks = [block.split("\n") for block in text.strip().split("\n\n")]
        return Markup("\n").join(self._block(lines) for lines in blocks)

    def inline(self, text: str) -> Markup:
        """Turn one line into HTML without a block around it."""
        # Split at the code spans: the odd pieces stood between back-quotes.
        return Markup("").join(
            self._code(piece) if place % 2 else escape(piece) for place, piece in enumerate(_CODE.split(text))
        )

    def _code(self, text: str) -> Markup:
        code = Markup("<code>{}</code>").format(text)
        return Markup('<a href="#{}">{}</a>').format(text, code) if text in self.sections else code

    def _block(self, lines: Sequence[str]) -> Markup:
        if lines[0].startswith("- "):
            entries = "\n".join(lines).removeprefix("- ").split("\n- ")
            return Markup("<ul>{}</ul>").format(
                Markup("").join(
                    Markup("<li>{}</li>").format(self.inline(" ".join(entry.split()))) for entry in entries
                )
            )
        if lines[0].startswith("|"):
            return self._table([_cells(line) for line in lines])
        return Markup("<p>{}</p>").format(self.inline(" ".join(lines)))

    def _table(self, rows: Sequence[Sequence[str]]) -> Markup:
        head, _, *body = rows
        names = Markup("").join(Markup('<th scope="col">{}</th>').format(self.inline(cell)) for cell in head)
        return Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(
            names, Markup("\n").join(self._row(head, row) for row in body)
        )

    def _row(self, head: Sequence[str], cells: Sequence[str]) -> Markup:
        # A narrow screen shows each cell on a line of its own, with its column's name if there are several.
        named = Markup('<td data-name="{0}">{1}</td>')
        cell = named if len(head) > _PLAIN_COLUMNS else Markup("<td>{1}</td>")
        first, *others = map(self.inline, cells)
        rest = Markup("").join(cell.format(name, other) for name, other in zip(head[1:], others, strict=True))
        return Markup('<tr><th scope="row">{}</th>{}</tr>').format(first, rest)


def _cells(line: str) -> Sequence[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


class _Reader:
    """Reads what the page shows from an OpenAPI document."""

    def __init__(self, root: Json) -> None:
        self.root: Final = root

    def operations(self) -> Iterator[OperationView]:
        for path, methods in self.root["paths"].items():
            for method, operation in methods.items():
                yield self._operation(path, method.upper(), operation)

    def fields(self, schema: Json, prefix: str = "") -> Iterator[Field]:
        """Yield the fields of an object, each followed by those of the object inside it."""
        resolved = self._resolve(schema)
        for name, inner in resolved.get("properties", {}).items():
            field = self._resolve(inner)
            yield self._field(prefix + name, field, required=name in resolved.get("required", ()))
            items = self._resolve(field.get("items", {}))
            yield from self.fields(field, f"{prefix}{name}.")
            yield from self.fields(items, f"{prefix}{name}[].")

    def events(self) -> Iterator[EventGroup]:
        kinds: dict[str, list[Json]] = {}
        for methods in self.root["webhooks"].values():
            content = methods["post"]["requestBody"]["content"]["application/json"]
            data = self._resolve(content["schema"])["properties"]["data"]
            kinds.setdefault(data["$ref"], []).append(methods["post"])
        for operations in kinds.values():
            yield self._events(operations)

    def event_headers(self) -> Sequence[Field]:
        return [self._parameter(self._resolve(each)) for each in self._any_event()["parameters"]]

    def event_answers(self) -> Mapping[str, str]:
        return {status: answer["description"] for status, answer in self._any_event()["responses"].items()}

    def _any_event(self) -> Json:
        post: Json = next(iter(self.root["webhooks"].values()))["post"]
        return post

    def _events(self, operations: Sequence[Json]) -> EventGroup:
        contents = [operation["requestBody"]["content"]["application/json"] for operation in operations]
        types = [
            replace(self._examples(content)[0], advice=operation["description"])
            for operation, content in zip(operations, contents, strict=True)
        ]
        schema = self._resolve(contents[0]["schema"])
        type_ = {name: value for name, value in schema["properties"]["type"].items() if name != "const"}
        type_["enum"] = [one.name for one in types]
        # One table for all types, so `type`, in which they differ, lists all its values.
        shared = {**schema, "properties": {**schema["properties"], "type": type_}}
        first, *others = types
        title = f"{first.name.partition('.')[0]}.*" if others else first.name
        return EventGroup(title, types, list(self.fields(shared)))

    def _operation(self, path: str, method: str, operation: Json) -> OperationView:
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        answers = {int(status): answer for status, answer in operation["responses"].items()}
        return OperationView(
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

    def _answer(self, status: int, answer: Json) -> AnswerView:
        content = answer["content"]["application/json"]
        return AnswerView(
            status, answer["description"], list(self.fields(content["schema"])), self._examples(content)
        )

    def _examples(self, content: Json, status: int = 0) -> Sequence[ExampleView]:
        return [
            ExampleView(name, example["summary"], example["value"], status, example.get("description", ""))
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
