"""Rows as columns, the form in which `unnest` takes many of them at once."""

from collections.abc import Collection
from operator import attrgetter
from typing import Any

from msgspec import Struct


def columns(kind: type[Struct], rows: Collection[Struct], prefix: str = "") -> dict[str, list[Any]]:
    """Return a list for each field of a struct, named after the field."""
    return {prefix + name: column(list(map(attrgetter(name), rows))) for name in kind.__struct_fields__}


def column(values: list[Any]) -> list[Any]:
    """Return the values as `unnest` takes them; an empty list for nothing but NULLs, which `unnest` adds."""
    return [] if values.count(None) == len(values) else values


def named_columns(names: str, rows: Collection[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Return a list for each place of a tuple, named as given with spaces between."""
    return {name: [row[place] for row in rows] for place, name in enumerate(names.split())}
