"""Which processes make up a node? Starts PostgreSQL, simulator, web and worker, and stops them in order."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tumira.actions import operate_carriers
from tumira.config import PREFIX, Settings
from tumira.errors import Trouble
from tumira.runtime import Tell, prepare
from tumira.simulator.smsc import HOST as SIMULATOR_HOST
from tumira.stopping import Stopping
from tumira.store import embedded
from tumira.store.children import end_with_parent
from tumira.store.database import Database
from tumira.store.embedded_place import place_at
from tumira.store.embedded_process import read_postmaster

STOP_S: Final = 30
RESTART_PAUSE_S: Final = 1.0
POLL_S: Final = 0.1
PROBE_S: Final = 2.0


# Past any proxy that the environment names: what we ask is on this machine.
_direct: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(slots=True)
class Part:
    """One of our processes, such as web or worker."""

    name: str
    environment: Mapping[str, str]
    process: "subprocess.Popen[bytes] | None" = field(init=False, default=None)

    @property
    def has_ended(self) -> bool:
        """Tell whether it was started and has ended."""
        return self.process is not None and self.process.poll() is not None

    def start(self) -> None:
        """Start it as a child that ends when we do, however we end."""
        self.process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "tumira", self.name, "--quiet"],
            env=self.environment,
            # Ctrl-C is for us alone: we stop the parts in their order.
            start_new_session=True,
            preexec_fn=end_with_parent(signal.SIGTERM),  # noqa: PLW1509 - we have no threads
        )

    def stop(self, stopping: Stopping, wait_s: float) -> None:
        """Ask it to finish, once more if we are asked once more, and end it when it does not."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        asked_again = False
        until = time.monotonic() + wait_s
        while self.process.poll() is None and time.monotonic() < until:
            # Not at once: two signals that come together count as one.
            time.sleep(POLL_S)
            if stopping.is_urgent and not asked_again:
                asked_again = True
                self.process.terminate()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def serve(settings: Settings, stopping: Stopping, tell: Tell, welcome: Callable[[], None]) -> None:
    """Run PostgreSQL and our parts until asked to stop; when PostgreSQL ends by itself, begin anew."""
    while True:
        with _own_database(settings, stopping, tell) as (url, postgres):
            asyncio.run(stopping.cancel(_prepare(settings, url, tell)))
            stopping.heed()
            _run_parts(settings, url, postgres, stopping, tell, welcome)
        if stopping:
            return
        tell("PostgreSQL has ended by itself; starting everything again.")
        time.sleep(RESTART_PAUSE_S)
        welcome = partial(tell, "Tumira is ready again.")


async def _prepare(settings: Settings, url: str, tell: Tell) -> None:
    """Make the database ready, with the simulator as a carrier if there is one."""
    await prepare(url, tell)
    if settings.simulator_port is not None:
        database = Database(url, connections_max=1)
        try:
            await operate_carriers.keep_simulator(database, settings.simulator_port)
        finally:
            await database.close()


def _run_parts(
    settings: Settings,
    url: str,
    postgres: int | None,
    stopping: Stopping,
    tell: Tell,
    welcome: Callable[[], None],
) -> None:
    """Run the parts until asked to stop or until PostgreSQL has ended."""
    environment = {**os.environ, PREFIX + "DATABASE_URL": url}
    web, worker = Part("web", environment), Part("worker", environment)
    # In the order in which they are stopped: nobody is left without the part that they talk to.
    parts = [web, worker]
    if settings.simulator_port is not None:
        # To the parts the database looks like the operator's own, and those have a simulator only when told.
        environment[PREFIX + "SIMULATOR_PORT"] = str(settings.simulator_port)
        parts.append(Part("simulator", environment))
    try:
        for part in reversed(parts):
            if part is not worker:
                part.start()
        # Last, or its first line would be that a carrier cannot be reached.
        if _wait_until(partial(_has_simulator, settings), parts, postgres, stopping):
            worker.start()
        if _wait_until(partial(answers, settings, "/readyz"), parts, postgres, stopping):
            welcome()
        _watch(parts, postgres, stopping, tell)
    finally:
        if stopping:
            tell("Stopping …")
        for part in parts:
            # The web process goes on for a while after it was asked; the others do not.
            part.stop(stopping, STOP_S + settings.drain_wait_s)


@contextmanager
def _own_database(settings: Settings, stopping: Stopping, tell: Tell) -> Iterator[tuple[str, int | None]]:
    """Give the database's address and, where it is our own child, the process of its server."""
    if settings.database_url is not None:
        yield settings.database_url, None
        return
    with embedded.start(settings.data_dir, tell, stopping.heed) as url:
        server = read_postmaster(place_at(settings.data_dir).cluster)
        assert server is not None, "a server that was started has written its file"
        yield url, server.pid


def _wait_until(
    condition: Callable[[], bool], parts: Sequence[Part], postgres: int | None, stopping: Stopping
) -> bool:
    """Wait until something is so, and return False when there is no use in waiting any longer."""
    while not stopping and not _has_ended(postgres):
        for part in parts:
            if part.has_ended:
                raise Trouble(f"{part.name} could not start; its last line above says why.")
        if condition():
            return True
        time.sleep(POLL_S)
    return False


def answers(settings: Settings, path: str) -> bool:
    """Tell whether the web process on this machine answers a page with a success."""
    try:
        with _direct.open(settings.local_url + path, timeout=PROBE_S):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _has_simulator(settings: Settings) -> bool:
    """Tell whether the simulator can be connected to, if there is to be one."""
    if settings.simulator_port is None:
        return True
    try:
        with socket.create_connection((SIMULATOR_HOST, settings.simulator_port), PROBE_S):
            return True
    except OSError:
        return False


def _watch(parts: Sequence[Part], postgres: int | None, stopping: Stopping, tell: Tell) -> None:
    while not stopping and not _has_ended(postgres):
        for part in parts:
            if part.process is not None and part.has_ended:
                tell(f"{part.name} ended with code {part.process.returncode}; starting it again.")
                time.sleep(RESTART_PAUSE_S)
                part.start()
        time.sleep(POLL_S)


def _has_ended(postgres: int | None) -> bool:
    """Tell whether our server has ended, and leave it to its owner to reap."""
    if postgres is None:
        return False
    return os.waitid(os.P_PID, postgres, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
