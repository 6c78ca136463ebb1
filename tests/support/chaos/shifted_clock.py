"""A machine whose clock is wrong: every module of ours sees another time than PostgreSQL does."""

import sys
import time
from datetime import datetime, timedelta, tzinfo
from types import SimpleNamespace
from typing import Any

import pytest


class _AnyDatetime(type):
    """Lets values of the real class pass for those of the shifted one."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)


def shift_clock(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    """Let the wall clock be ahead, or behind, in all modules that were imported until now."""

    class Shifted(datetime, metaclass=_AnyDatetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + by

    shifted_time = SimpleNamespace(**vars(time))
    shifted_time.time = lambda: time.time() + by.total_seconds()
    shifted_time.time_ns = lambda: time.time_ns() + int(by.total_seconds()) * 1_000_000_000
    for name, module in list(sys.modules.items()):
        if name.startswith("tumira."):
            if vars(module).get("datetime") is datetime:
                monkeypatch.setattr(module, "datetime", Shifted)
            if vars(module).get("time") is time:
                monkeypatch.setattr(module, "time", shifted_time)
