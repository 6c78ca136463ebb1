"""The recipes of `docs/recipes.md`: paths, bodies and names of fields come from the OpenAPI document.

A recipe that names a field, an operation or a code that does not exist any more stops `make docs`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from scripts.client_errors import class_name
from tumira.api.docs.openapi import document
from tumira.core.errors import all_refusals

_TEMPLATE: Final = Path(__file__).with_name("recipes.md.jinja")


def recipes_page() -> str:
    """Write the page."""
    return Recipes(json.loads(document())).write()


class Recipes:
    """The page for one OpenAPI document."""

    def __init__(self, api: Mapping[str, Any]) -> None:
        self._api = api
        self._operations = {
            operation["operationId"]: (method.upper(), path, operation)
            for path, methods in api["paths"].items()
            for method, operation in methods.items()
        }

    def write(self) -> str:
        fields = {
            name: {field: field for field in schema.get("properties", ())}
            for name, schema in self._api["components"]["schemas"].items()
        }
        environment = Environment(
            loader=FileSystemLoader(_TEMPLATE.parent),
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            autoescape=False,  # noqa: S701 - the page is Markdown
        )
        return environment.get_template(_TEMPLATE.name).render(
            fields,
            errors={one.code: class_name(one) for one in all_refusals()},
            php={
                **{name: {field: _camel(field) for field in schema} for name, schema in fields.items()},
                "errors": {one.code: class_name(one, "Exception") for one in all_refusals()},
            },
            url=self._url,
            key_header=self._api["components"]["parameters"]["Idempotency-Key"]["name"],
            curl=self._curl,
            jq_body=self._jq_body,
            arguments=self._arguments,
            example=self._example,
            event=self._event,
        )

    def _url(self, operation: str, found: str = "") -> str:
        """Return the address of an operation; `found` takes the place of the id in it."""
        _, path, _ = self._operations[operation]
        return f"$TUMIRA_URL{self._api['servers'][0]['url']}{path.replace('{id}', found)}"

    def _example(self, name: str) -> dict[str, Any]:
        """Return a request that the document shows; each of its fields is one of the schema."""
        _, _, operation = self._operations["sendMessages"]
        shown = operation["requestBody"]["content"]["application/json"]["examples"][name]["value"]
        known = self._api["components"]["schemas"]["SendRequest"]["properties"]
        if unknown := set(shown) - set(known):
            raise KeyError(*unknown)
        return dict(shown)

    def _event(self, kind: str) -> str:
        content = self._api["webhooks"][kind]["post"]["requestBody"]["content"]["application/json"]
        return json.dumps(content["examples"][kind]["value"], separators=(",", ":"))

    def _curl(
        self, operation: str, *, example: str = "", key: str = "", found: str = "", options: str = "-sS"
    ) -> str:
        """Write a call with curl."""
        lines = [
            f'curl {options} "{self._url(operation, found)}"',
            '-H "Authorization: Bearer $TUMIRA_API_KEY"',
        ]
        if example:
            body = json.dumps(self._example(example), indent=2, ensure_ascii=False)
            lines.append("-H 'Content-Type: application/json'")
            if key:
                lines.append(
                    f"-H '{self._api['components']['parameters']['Idempotency-Key']['name']}: {key}'"
                )
            lines.append(f"-d '{body}'")
        return " \\\n  ".join(lines)

    def _jq_body(self, example: str) -> str:
        """Write the program with which jq makes a request for the numbers that it reads."""
        given = self._example(example)
        values = {"to": "[inputs]", "body": "$body"}
        return (
            "{" + ", ".join(f"{name}: {values.get(name) or json.dumps(given[name])}" for name in given) + "}"
        )

    def _arguments(
        self, language: str, example: str, *, key: str = "", to: str = "", inside: bool = False
    ) -> str:
        """Write the arguments of a send or price with a client, a line each.

        `to` is a variable of the program, and `inside` says that the call is inside of a block.
        """
        given = self._example(example)
        if given.pop("channel") != "sms":
            raise ValueError(example)
        given.pop("dry_run", None)
        literal = _php_literal if language == "php" else _literal
        numbers, body = given.pop("to"), given.pop("body")
        lines = [to or literal(numbers), literal(body)]
        named = given | ({"idempotency_key": key} if key else {})
        if named and language == "javascript":
            lines.append(
                "{ " + ", ".join(f"{_camel(name)}: {_literal(value)}" for name, value in named.items()) + " }"
            )
        elif language == "php":
            lines += [f"{_camel(name)}: {literal(value)}" for name, value in named.items()]
        else:
            lines += [f"{name}={literal(value)}" for name, value in named.items()]
        indent = "  " if language == "javascript" else "    "
        outer = indent if inside else ""
        return "".join(f"\n{outer}{indent}{line}," for line in lines) + f"\n{outer}"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _literal(value: Any) -> str:
    """Write a value as Python and JavaScript do."""
    return json.dumps(value, ensure_ascii=False)


def _php_literal(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_php_literal, value)) + "]"
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
