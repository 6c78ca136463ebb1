"""Background loops: pauses, log lines and recovery."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import structlog
from structlog.testing import capture_logs

from tumira.core import loops
from tumira.core.errors import OperatorError


async def _run_until_done(step: Callable[[], Awaitable[float | None]], every_s: float = 0.0) -> None:
    with pytest.raises(asyncio.CancelledError):
        await loops.forever("count sheep", step, every_s)


async def test_a_failure_is_logged_once_per_outage_and_its_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "RETRY_FIRST_S", 0.0)
    results = [
        OSError("away"),
        OSError("still away"),
        None,
        OperatorError("the disk is full"),
        ValueError("ours"),
    ]

    async def step() -> None:
        if not results:
            raise asyncio.CancelledError
        if (result := results.pop(0)) is not None:
            raise result

    # Whatever level an earlier test configured.
    monkeypatch.setattr(loops, "_log", structlog.wrap_logger(None, wrapper_class=structlog.BoundLogger))
    with capture_logs() as lines:
        await _run_until_done(step)

    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("warning", "could not count sheep"),
        ("info", "works again"),
        ("error", "could not count sheep"),
        ("error", "could not count sheep"),
    ]
    assert lines[0]["error"] == "OSError('away')"
    assert lines[1]["failures"] == 2
    assert lines[2]["problem"] == "the disk is full"
    assert isinstance(lines[3]["exc_info"], ValueError)


async def test_a_step_chooses_its_pause_and_a_failure_backs_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    results: list[float | Exception | None] = [None, 0.0, *[OSError()] * 6]

    async def note(pause_s: float, _wake: object) -> None:
        pauses.append(pause_s)

    async def step() -> float | None:
        if not results:
            raise asyncio.CancelledError
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(loops, "_pause", note)
    await _run_until_done(step, every_s=0.3)
    assert pauses == [0.3, 0.0, 0.3, 0.3, 0.4, 0.8, 1.6, 2.0]


async def test_an_event_ends_a_pause() -> None:
    wake = asyncio.Event()
    steps = 0

    async def step() -> None:
        nonlocal steps
        steps += 1
        wake.set()
        if steps == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(loops.forever("count sheep", step, 60, wake=wake), 5)
