"""Rows as columns, the form in which `unnest` takes many of them at once."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct


def columns(kind: type[Struct], rows: Sequence[Struct], prefix: str = "") -> dict[str, list[Any]]:
    """Return a list for each field of a struct, named after the field."""
    return {prefix + name: list(map(attrgetter(name), rows)) for name in kind.__struct_fields__}
