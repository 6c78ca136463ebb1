"""The reference of the API: one page of HTML, made from the OpenAPI document."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import getitem
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from tumira.api.app import DOCUMENT_PATH
from tumira.api.docs.openapi import document
from tumira.api.docs.operations import sections
from tumira.html import page as html_page
from tumira.sending.lifecycle import FAILURE_REASONS
from tumira.webhooks.payload import PAYLOADS

STYLESHEET_PATH: Final = "/docs/reference.css"

# Sections before the operations, because every call needs them.
_FIRST: Final = frozenset(["overview", "authentication"])
_OK: Final = range(200, 300)
_JSON: Final = "application/json"
_TOKEN: Final = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*")(?=:)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<value>\b(?:true|false|null|[0-9]+)\b)'
)

_CODE: Final = re.compile(r"`([^`]+)`")
_PLAIN_COLUMNS: Final = 2

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
def reference_page(
    stylesheet_addresses: tuple[str, ...] = (STYLESHEET_PATH,), document_address: str = DOCUMENT_PATH
) -> str:
    """Return the page; it asks for nothing but its stylesheet."""
    written = json.loads(document())
    root = _expand(written, written)
    guide = sections(root["info"]["description"])
    operations = list(_operations(root["paths"]))
    refusals = {
        code: {**example, "code": code, "status": status}
        for operation in operations
        for status, code, example in operation["refusals"]
    }
    # A code that is also a failure reason is no link: it would often lead to the wrong place.
    markdown = Markdown((refusals.keys() - FAILURE_REASONS.keys()) | root["webhooks"].keys())
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "markdown": markdown.blocks,
        "inline": markdown.inline,
        "json": highlight,
        "fields": _fields,
        "parameters": _parameters,
    }
    page = environment.get_template("reference.html.jinja").render(
        info=root["info"],
        base=root["servers"][0]["url"],
        tags=[tag for tag in root["tags"] if any(tag["name"] in one["tags"] for one in operations)],
        first=[section for section in guide if section.slug in _FIRST],
        later=[section for section in guide if section.slug not in _FIRST],
        operations=operations,
        events=_event_groups(root["webhooks"]),
        any_event=next(iter(root["webhooks"].values()))["post"],
        refusals=sorted(refusals.values(), key=lambda refusal: (refusal["status"], refusal["code"])),
        envelope=root["components"]["schemas"]["ErrorResponse"],
        stylesheet_addresses=stylesheet_addresses,
        document_address=document_address,
    )
    return page.strip() + "\n"


def stylesheet() -> bytes:
    return html_page.stylesheet(Path(__file__).with_name("reference.css"))


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


def _fields(schema: Json, prefix: str = "") -> Iterator[Field]:
    """Yield the fields of an object, each followed by those of the object inside it."""
    for name, field in schema.get("properties", {}).items():
        required = name in schema.get("required", ())
        yield Field(prefix + name, _kind(field), required, field.get("description", ""), _limits(field))
        yield from _fields(field, f"{prefix}{name}.")
        yield from _fields(field.get("items", {}), f"{prefix}{name}[].")


def _parameters(parameters: Sequence[Json]) -> Iterator[Field]:
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
