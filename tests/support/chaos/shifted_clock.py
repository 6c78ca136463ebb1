"""A machine whose clock is wrong: every module of ours sees another time than PostgreSQL does."""

import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from types import SimpleNamespace
from typing import Any, Protocol


class _AnyDatetime(type):
    """Lets values of the real class pass for those of the shifted one."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)


class Patcher(Protocol):
    """Sets attributes for a while, as pytest's `monkeypatch` does."""

    def setattr(self, target: object, name: str, value: object, /) -> None: ...


def shift_clock(monkeypatch: Patcher, by: timedelta) -> None:
    """Let the wall clock be ahead, or behind, in all modules that were imported until now."""
    follow_clock(monkeypatch.setattr, lambda: by)


def follow_clock(change: Callable[[object, str, object], None], read_shift: Callable[[], timedelta]) -> None:
    """Let the wall clock be wrong by what is read at each look; `change` sets an attribute of a module."""

    class Shifted(datetime, metaclass=_AnyDatetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + read_shift()

    shifted_time = SimpleNamespace(**vars(time))
    shifted_time.time = lambda: time.time() + read_shift().total_seconds()
    shifted_time.time_ns = lambda: time.time_ns() + int(read_shift().total_seconds()) * 1_000_000_000
    for name, module in list(sys.modules.items()):
        if name.startswith("tumira."):
            if vars(module).get("datetime") is datetime:
                change(module, "datetime", Shifted)
            if vars(module).get("time") is time:
                change(module, "time", shifted_time)
