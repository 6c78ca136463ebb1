"""SQL statements with named parameters, each a constant beside the function that runs it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import asyncpg

from tumira.postgres.connection import Connection

_PARAMETER: Final = re.compile(r"%\((\w+)\)s")


class Statement:
    """An SQL text with parameters written `%(name)s`, which PostgreSQL sees as `$1`, `$2` and so on."""

    __slots__ = ("names", "text")

    def __init__(self, text: str) -> None:
        self.names: tuple[str, ...] = tuple(dict.fromkeys(_PARAMETER.findall(text)))
        places = {name: place for place, name in enumerate(self.names, start=1)}
        self.text = _PARAMETER.sub(lambda match: f"${places[match[1]]}", text)

    def _arguments(self, parameters: Mapping[str, Any]) -> list[Any]:
        assert len(parameters) == len(self.names), (sorted(parameters), self.names)
        return [parameters[name] for name in self.names]

    async def rows(self, connection: Connection, **parameters: Any) -> list[asyncpg.Record]:
        return await connection.fetch(self.text, *self._arguments(parameters))

    async def row(self, connection: Connection, **parameters: Any) -> asyncpg.Record | None:
        """Return the first row, or None."""
        return await connection.fetchrow(self.text, *self._arguments(parameters))

    async def value(self, connection: Connection, **parameters: Any) -> Any:
        """Return the first column of the first row, or None."""
        return await connection.fetchval(self.text, *self._arguments(parameters))

    async def each(self, connection: Connection, parameters: Sequence[Mapping[str, Any]]) -> None:
        """Run it once per set of parameters, all of them sent together."""
        await connection.executemany(self.text, [self._arguments(one) for one in parameters])
