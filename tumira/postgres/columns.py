"""Rows as columns, the form in which `unnest` takes many of them at once."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from msgspec import Struct


def columns(
    kind: type[Struct], rows: Collection[Struct], prefix: str = "", fields: Sequence[str] | None = None
) -> dict[str, list[Any]]:
    """Return a list for each field of a struct, or for some of them, named after the field."""
    names = kind.__struct_fields__ if fields is None else fields
    return {prefix + name: column(list(map(attrgetter(name), rows))) for name in names}


def column(values: list[Any]) -> list[Any]:
    """Return the values as `unnest` takes them; an empty list for nothing but NULLs, which `unnest` adds."""
    return [] if values.count(None) == len(values) else values


def named_columns(names: str, rows: Collection[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Return a list for each place of a tuple, named as given with spaces between."""
    return {name: [row[place] for row in rows] for place, name in enumerate(names.split())}


def by_place(values: Iterable[Any]) -> tuple[list[int], list[Any]]:
    """Return for each value its place among the distinct ones, counted from 1, and these.

    Each element of an array takes time, and many rows share their values. Where all do there are no places:
    `unnest` adds NULLs, which statements read as 1.
    """
    places: dict[Any, int] = {}
    found = [places.setdefault(one, len(places) + 1) for one in values]
    return found if len(places) > 1 else [], list(places)


class Times:
    """The distinct times of a statement: they take long to encode, and many rows share one."""

    def __init__(self) -> None:
        self._places: dict[datetime, int] = {}

    @property
    def values(self) -> list[datetime]:
        return list(self._places)

    def places(self, times: Iterable[datetime | None]) -> list[int | None]:
        """Return for each time its place among the values, counted from 1; NULL for None."""
        own = self._places
        return column([None if time is None else own.setdefault(time, len(own) + 1) for time in times])

    def columns(
        self,
        kind: type[Struct],
        rows: Collection[Struct],
        prefix: str,
        fields: Sequence[str] | None = None,
    ) -> dict[str, list[Any]]:
        """Return the columns of some rows, with times as places."""
        found = columns(kind, rows, prefix, fields)
        for name in found:
            if name.endswith("_at"):
                found[name] = self.places(found[name])
        return found
