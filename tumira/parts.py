"""Which processes make up a node? Starts PostgreSQL, web and worker, and stops them in order."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from tumira.config import PREFIX, Settings
from tumira.errors import Trouble
from tumira.runtime import Tell, prepare
from tumira.store import embedded

STOP_S: Final = 30
RESTART_PAUSE_S: Final = 1.0
POLL_S: Final = 0.1

_PR_SET_PDEATHSIG: Final = 1


@dataclass(slots=True)
class Part:
    """One of our processes, such as web or worker."""

    name: str
    environment: Mapping[str, str]
    process: "subprocess.Popen[bytes]" = field(init=False)

    def start(self) -> None:
        """Start it as a child that ends when we do, however we end."""
        self.process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "tumira", self.name],
            env=self.environment,
            # Ctrl-C is for us alone: we stop the parts in their order.
            start_new_session=True,
            preexec_fn=_end_with_parent(os.getpid()),  # noqa: PLW1509 - we have no threads
        )

    def stop(self) -> None:
        """Ask it to finish, and end it when it does not."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def _end_with_parent(parent: int) -> Callable[[], None]:
    libc = ctypes.CDLL(None, use_errno=True)

    def end_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return end_with_parent


def serve(settings: Settings, tell: Tell, welcome: Callable[[], None]) -> None:
    """Run PostgreSQL, web and worker, and stop them in the reverse order when asked to."""
    stopping = _catch_stop_signals()
    with _own_database(settings, tell) as url:
        asyncio.run(prepare(url, tell))
        environment = {**os.environ, PREFIX + "DATABASE_URL": url}
        parts = [Part("web", environment), Part("worker", environment)]
        started: list[Part] = []
        try:
            for part in parts:
                part.start()
                started.append(part)
            if _wait_until_ready(settings, parts, stopping):
                welcome()
            _watch(parts, stopping, tell)
        finally:
            tell("Stopping …")
            for part in started:
                part.stop()
    tell("Stopped.")


@contextmanager
def _own_database(settings: Settings, tell: Tell) -> Iterator[str]:
    if settings.database_url is not None:
        yield settings.database_url
        return
    with embedded.start(settings.data_dir, tell) as url:
        yield url


def _catch_stop_signals() -> list[int]:
    caught: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _frame: caught.append(got))
    return caught


def _wait_until_ready(settings: Settings, parts: list[Part], stopping: list[int]) -> bool:
    while not stopping:
        for part in parts:
            if part.process.poll() is not None:
                raise Trouble(f"{part.name} could not start; its last line above says why.")
        try:
            with urllib.request.urlopen(
                f"http://{_reachable(settings.host)}:{settings.port}/readyz", timeout=1
            ):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(POLL_S)
    return False


def _reachable(host: str) -> str:
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _watch(parts: list[Part], stopping: list[int], tell: Tell) -> None:
    while not stopping:
        for part in parts:
            if part.process.poll() is not None:
                tell(f"{part.name} ended with code {part.process.returncode}; starting it again.")
                time.sleep(RESTART_PAUSE_S)
                part.start()
        time.sleep(POLL_S)
