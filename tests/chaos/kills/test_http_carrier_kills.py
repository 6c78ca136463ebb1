"""A worker that is killed loses no message at a carrier over HTTP, and sends twice only what is marked."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.support.carriers.bulksms import BulkSmsServer
from tests.support.carriers.clickatell import ClickatellServer
from tests.support.carriers.server import CarrierServer, Misbehaviour, run_carrier
from tests.support.delivery.engine import Engine, numbers
from tests.support.processes.forked_commands import start_part

COUNT: Final = 40
WAIT_S: Final = 90.0


@contextmanager
def killed_worker(url: str) -> Iterator[None]:
    """Run a worker, and kill it at the end."""
    worker = start_part("worker", {"TUMIRA_DATABASE_URL": url, "TUMIRA_LOG_LEVEL": "error"})
    try:
        yield
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait(30)


@pytest.mark.parametrize(
    "server",
    [BulkSmsServer, pytest.param(ClickatellServer, marks=pytest.mark.long)],
    ids=lambda one: one.profile,
)
async def test_a_killed_worker_loses_nothing(engine: Engine, server: type[CarrierServer]) -> None:
    with run_carrier(server()) as provider:
        provider.tells = False
        provider.slow_s = 0.1
        provider.misbehave(Misbehaviour.SLOW)
        await engine.add_http_carrier("one", provider, window=4, in_doubt="resend")
        caller = await engine.open_account()
        await engine.send(caller, numbers(COUNT))
        with killed_worker(engine.url):

            async def is_busy() -> bool:
                return len(provider.sent) >= COUNT // 4

            await engine.until(is_busy, "nothing is handed over", WAIT_S)
        provider.misbehave(Misbehaviour.NONE)
        engine.start_worker()
        await engine.until_all("sent", wait_s=WAIT_S)
        rows = await engine.rows(
            "SELECT recipient FROM messages WHERE EXISTS"
            " (SELECT FROM incidents WHERE message_id = messages.id AND kind = 'resend')"
        )
        resent = {row["recipient"].lstrip("+") for row in rows}
        reached = {number.lstrip("+"): count for (number, _), count in provider.texts_by_recipient.items()}
        assert len(reached) == COUNT
        doubled = {number for number, count in reached.items() if count > 1}
        # A provider that recognises a repeated call gets none twice.
        assert doubled <= (set() if provider.profile == "bulksms" else resent)
