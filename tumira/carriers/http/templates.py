"""Requests written from templates, whose leaves hold placeholders.

A value only ever fills a leaf, and the whole leaf is encoded afterwards, so no value changes the structure.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

from msgspec import Struct

from tumira.carriers.http.documents import as_text
from tumira.carriers.http.values import HttpRequest

Value = str | int
Values = Mapping[str, Value]

DEPTH_MAX: Final = 8
LEAVES_MAX: Final = 100
LEAF_MAX: Final = 500

_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+(?:\.[a-z][a-z0-9_]*)?)\}")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
# They may have letters or line breaks that no header can have.
_NOT_IN_HEADERS: Final = frozenset({"carrier_ref", "sender", "text"})
_PATH: Final = re.compile(r"/[!-~]*")


class Leaf:
    """A text with placeholders, such as `App {secret.key}`."""

    __slots__ = ("names", "text")

    def __init__(self, text: object) -> None:
        if not isinstance(text, str):
            raise TypeError("write a text")
        if len(text) > LEAF_MAX:
            raise ValueError(f"a text may have at most {LEAF_MAX} characters")
        if set(_PLACEHOLDER.sub("", text)) & {"{", "}"}:
            raise ValueError(f"{text!r} has a brace that belongs to no placeholder")
        self.text: Final = text
        self.names: Final = tuple(_PLACEHOLDER.findall(text))

    def fill(self, values: Values) -> Value | None:
        """Return the value; None if a placeholder is empty. A placeholder alone keeps its type."""
        if any(values[name] == "" for name in self.names):
            return None
        if len(self.names) == 1 and self.text == f"{{{self.names[0]}}}":
            return values[self.names[0]]
        return _PLACEHOLDER.sub(lambda found: str(values[found[1]]), self.text)

    def fill_text(self, values: Values) -> str:
        """Return the value as text, empty if a placeholder is."""
        filled = self.fill(values)
        return "" if filled is None else str(filled)


class UrlPath:
    """The path behind the base URL; what fills a placeholder is percent-encoded."""

    __slots__ = ("leaf", "names")

    def __init__(self, text: object) -> None:
        self.leaf: Final = Leaf(text)
        self.names: Final = self.leaf.names
        literal = _PLACEHOLDER.sub("", self.leaf.text)
        if self.leaf.text and not (_PATH.fullmatch(self.leaf.text) and not set(literal) & set("?#%")):
            raise ValueError("a path must begin with a slash, and the query stands under query")

    def fill(self, values: Values) -> str:
        return _PLACEHOLDER.sub(lambda found: _segment(str(values[found[1]])), self.leaf.text)


def _segment(value: str) -> str:
    """Encode a value as one segment of a path, also where it is `.` or `..`."""
    return quote(value, safe="").replace(".", "%2E") if value.strip(".") == "" else quote(value, safe="")


class LeafTable:
    """Names with one leaf each: a query, or a form."""

    __slots__ = ("leaves", "names")

    def __init__(self, written: object) -> None:
        if not isinstance(written, dict):
            raise TypeError("write a table of texts")
        if len(written) > LEAVES_MAX:
            raise ValueError(f"at most {LEAVES_MAX} entries")
        self.leaves: Final = {name: _leaf(name, value) for name, value in written.items()}
        self.names: Final = tuple(name for leaf in self.leaves.values() for name in leaf.names)

    def fill(self, values: Values) -> Mapping[str, str]:
        filled = {name: leaf.fill(values) for name, leaf in self.leaves.items()}
        return {name: str(value) for name, value in filled.items() if value is not None}


class HeaderTable(LeafTable):
    __slots__ = ()

    def __init__(self, written: object) -> None:
        super().__init__(written)
        for name in self.leaves:
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a header")


class BodyTree:
    """A body of tables and lists; what is left out of a table leaves no empty table behind."""

    __slots__ = ("names", "tree")

    def __init__(self, written: object) -> None:
        if not isinstance(written, dict | list):
            raise TypeError("write a table or a list")
        self.tree: Final = _tree(written, "body", DEPTH_MAX)
        leaves = list(_leaves(self.tree))
        if len(leaves) > LEAVES_MAX:
            raise ValueError(f"a body may have at most {LEAVES_MAX} values")
        self.names: Final = tuple(name for leaf in leaves for name in leaf.names)

    def fill(self, values: Values) -> Any:
        filled = _fill(self.tree, values)
        return {} if filled is None else filled

    @property
    def is_flat(self) -> bool:
        return isinstance(self.tree, dict) and not any(
            isinstance(value, dict | list) for value in self.tree.values()
        )


def _leaf(name: str, written: object) -> Leaf:
    try:
        return Leaf(written)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None


def _tree(written: object, where: str, depth: int) -> Any:
    if depth == 0:
        raise ValueError(f"{where} is nested too deeply")
    match written:
        case dict():
            return {name: _tree(value, f"{where}.{name}", depth - 1) for name, value in written.items()}
        case list():
            return [_tree(value, f"{where}.{place}", depth - 1) for place, value in enumerate(written)]
        case str():
            return _leaf(where, written)
        case bool() | int():
            return written
        case _:
            raise ValueError(f"{where}: write a text, a whole number, true or false")


def _leaves(tree: Any) -> Iterator[Leaf]:
    match tree:
        case dict():
            for value in tree.values():
                yield from _leaves(value)
        case list():
            for value in tree:
                yield from _leaves(value)
        case Leaf():
            yield tree


def _fill(tree: Any, values: Values) -> Any:
    match tree:
        case dict():
            filled = {name: _fill(value, values) for name, value in tree.items()}
            kept = {name: value for name, value in filled.items() if value is not None}
            return kept if kept or not tree else None
        case list():
            items = [_fill(value, values) for value in tree]
            return [item for item in items if item is not None]
        case Leaf():
            return tree.fill(values)
        case _:
            return tree


class BasicAuth(Struct, frozen=True, forbid_unknown_fields=True):
    """The user and password of every request; the same form is used to check callbacks."""

    user: Leaf
    password: Leaf

    @property
    def names(self) -> tuple[str, ...]:
        return self.user.names + self.password.names

    def header(self, values: Values) -> str:
        user, password = self.user.fill_text(values), self.password.fill_text(values)
        return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


class RequestTemplate(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    method: Literal["GET", "POST"] = "POST"
    path: UrlPath
    query: LeafTable | None = None
    format: Literal["json", "form"] = "json"
    body: BodyTree | None = None
    headers: HeaderTable | None = None

    def __post_init__(self) -> None:
        if self.method == "GET" and self.body is not None:
            raise ValueError("a GET has no body: use query")
        if self.headers is not None and not set(self.headers.names).isdisjoint(_NOT_IN_HEADERS):
            raise ValueError(f"headers may not hold {', '.join(sorted(_NOT_IN_HEADERS))}")
        if self.format == "form" and self.body is not None and not self.body.is_flat:
            raise ValueError("a form has no tables or lists in its body")

    @property
    def names(self) -> tuple[str, ...]:
        parts = (self.path, self.query, self.body, self.headers)
        return tuple(name for part in parts if part is not None for name in part.names)

    def fill(self, base_url: str, values: Values, headers: Mapping[str, str]) -> HttpRequest:
        query = "" if self.query is None else urlencode(self.query.fill(values))
        own = {} if self.headers is None else self.headers.fill(values)
        body, content_type = self._write_body(values)
        all_headers = {"Accept": "application/json", **headers, **own, **content_type}
        url = base_url + self.path.fill(values) + (f"?{query}" if query else "")
        return HttpRequest(self.method, url, tuple(all_headers.items()), body)

    def _write_body(self, values: Values) -> tuple[bytes, Mapping[str, str]]:
        if self.body is None:
            return b"", {}
        filled = self.body.fill(values)
        if self.format == "json":
            text = json.dumps(filled, ensure_ascii=False, separators=(",", ":"))
            return text.encode(), {"Content-Type": "application/json"}
        fields = {name: value if isinstance(value, str) else as_text(value) for name, value in filled.items()}
        return urlencode(fields).encode(), {"Content-Type": "application/x-www-form-urlencoded"}
