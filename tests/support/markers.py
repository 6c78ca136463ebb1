"""Finds out what a test needs to run, from its fixtures and from the test code that it calls."""

import inspect
import subprocess
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import pytest

# The names are those of the markers in pyproject.toml.
KINDS: Final = ("unit", "database", "process", "browser")
_BROWSER: Final = "browser"
_SERVER: Final = "server_url"
_EMBEDDED: Final = "tumira.postgres.embedded"


def kind_of(item: pytest.Function) -> str:
    """Return the marker: what the most expensive part of the test is."""
    if _BROWSER in item.fixturenames:
        return "browser"
    fixtures = item._fixtureinfo.name2fixturedefs
    functions = [
        item.function,
        *(one.func for name, found in fixtures.items() if name != _SERVER for one in found[-1:]),
    ]
    if any(_starts_processes(function) for function in functions):
        return "process"
    return "database" if _SERVER in item.fixturenames else "unit"


@cache
def _starts_processes(start: Any) -> bool:
    """Tell whether the test code that is reached from here uses `subprocess` or an embedded PostgreSQL."""
    seen: set[Any] = set()
    to_read = [start]
    while to_read:
        reached = to_read.pop()
        if reached is subprocess or _module_of(reached).startswith(_EMBEDDED):
            return True
        if reached not in seen and _module_of(reached).startswith("tests."):
            seen.add(reached)
            to_read += _uses(reached)
    return False


def _module_of(reached: Any) -> str:
    return getattr(reached, "__module__", None) or ""


def _uses(reached: Any) -> Iterator[Any]:
    if inspect.isclass(reached):
        yield from (member for member in vars(reached).values() if isinstance(member, FunctionType))
        return
    function = inspect.unwrap(reached)
    if not isinstance(function, FunctionType):
        return
    for name in _names(function.__code__):
        used = function.__globals__.get(name)
        if isinstance(used, FunctionType | type | ModuleType):
            yield used


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
