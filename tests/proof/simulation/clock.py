"""Virtual clocks and seeded chance for the code under test, which asks Python's own modules for both."""

import random
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, tzinfo
from random import Random
from typing import Any
from unittest.mock import patch

from tests.proof.simulation.database import database_time
from tests.proof.simulation.loop import CURRENT, VirtualLoop

_REAL = datetime


class _AnyDatetime(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _REAL)


@contextmanager
def seeded_secrets(seed: int | str) -> Iterator[None]:
    """Let ids, keys and secrets be those of the seed."""
    chance = Random(f"product {seed}")
    with ExitStack() as stack:
        for name, chosen in (
            ("token_bytes", lambda count=32: chance.randbytes(count)),
            ("token_hex", lambda count=32: chance.randbytes(count).hex()),
            ("randbits", chance.getrandbits),
            ("randbelow", chance.randrange),
            ("choice", chance.choice),
        ):
            stack.enter_context(patch.object(secrets, name, chosen))
        yield


@contextmanager
def virtual_clocks(loop: VirtualLoop, seed: int) -> Iterator[None]:
    """Let time be the loop's, the wall clock that of the process, and chance that of the seed."""

    def wall_s() -> float:
        process = CURRENT.get()
        return database_time(loop.now_s).timestamp() + (process.skew_s if process else 0.0)

    class Virtual(_REAL, metaclass=_AnyDatetime):
        """A datetime whose `now` is the process's, and that makes nothing but real ones."""

        def __new__(cls, *arguments: Any, **options: Any) -> Any:
            return _REAL(*arguments, **options)

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return _REAL.fromtimestamp(wall_s(), tz)

        @classmethod
        def fromtimestamp(cls, timestamp: float, tz: tzinfo | None = None) -> Any:
            return _REAL.fromtimestamp(timestamp, tz)

    with ExitStack() as stack:
        for name, function in (
            ("monotonic", loop.time),
            ("perf_counter", loop.time),
            ("time", wall_s),
            ("time_ns", lambda: int(wall_s() * 1e9)),
        ):
            stack.enter_context(patch.object(time, name, function))
        stack.enter_context(seeded_secrets(seed))
        for module in list(sys.modules.values()):
            if module.__name__.startswith("tumira.") and vars(module).get("datetime") is _REAL:
                stack.enter_context(patch.object(module, "datetime", Virtual))
        random.seed(f"modules {seed}")
        yield
