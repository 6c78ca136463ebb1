"""The processes of a node: starts PostgreSQL, simulator, web and worker, keeps them running, and stops them.

A process that ends is started again, and the others go on. Only a problem that the operator must solve ends
the node: everything else is tried again, less and less often, until we are asked to stop.
"""

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tumira.carriers import manage as manage_carriers
from tumira.core.errors import OPERATOR_EXIT_CODE, OperatorError, TemporaryOperatorError
from tumira.core.settings import PREFIX, Settings
from tumira.core.shutdown import Stopping
from tumira.postgres.embedded import server as embedded
from tumira.postgres.embedded.process import end_with_parent
from tumira.postgres.pool import Database
from tumira.runtime import NOT_PREPARED, REMINDER_S, Retries, Tell, in_one_line, prepare
from tumira.simulator.smsc import HOST as SIMULATOR_HOST

STOP_S: Final = 30
POLL_S: Final = 0.1
PROBE_S: Final = 2.0
# The worker comes after the simulator, or its first line would be that a carrier cannot be reached.
SIMULATOR_WAIT_S: Final = 5.0
# A start is quiet for this long; then the operator is told what it waits for, and again at intervals.
QUIET_S: Final = 10.0


# Past any proxy that the environment names: what we ask is on this machine.
_direct: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(slots=True)
class ChildProcess:
    """One of our processes, such as web or worker."""

    # As the operator reads it.
    name: str
    # The command, with its options.
    words: Sequence[str]
    environment: Mapping[str, str]
    process: "subprocess.Popen[bytes] | None" = field(init=False, default=None)
    retries: Retries = field(init=False, default_factory=Retries)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it as a child that ends when we do, however we end."""
        self.retries.begin()
        self.process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "tumira", *self.words, "--quiet"],
            env=self.environment,
            # Ctrl-C is for us alone: we stop the processes in their order.
            start_new_session=True,
            preexec_fn=end_with_parent(signal.SIGTERM),  # noqa: PLW1509 - we have no threads
        )

    def stop(self, stopping: Stopping, wait_s: float) -> None:
        """Ask it to stop, again when we are asked again, and kill it when it does not."""
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
    """Run PostgreSQL and our processes until asked to stop."""
    with _own_database(settings, stopping, tell) as server:
        supervisor = ProcessSupervisor(settings, server, stopping, tell, welcome)
        try:
            while not stopping:
                supervisor.look()
                time.sleep(POLL_S)
        finally:
            supervisor.stop()


@contextmanager
def _own_database(settings: Settings, stopping: Stopping, tell: Tell) -> Iterator[embedded.Server | None]:
    """Yield the server in our data directory; None where the operator has a database of their own."""
    if settings.database_url is not None:
        yield None
        return
    with ExitStack() as at_the_end:
        retries = Retries()
        server = None
        while server is None:
            retries.wait(stopping.heed)
            retries.begin()
            try:
                server = at_the_end.enter_context(embedded.hold(settings.data_dir, tell))
            except TemporaryOperatorError as error:
                retries.fail(f"{error} Trying again …", tell)
        yield server


class ProcessSupervisor:
    """Starts processes that are not running, as often as it takes."""

    def __init__(
        self,
        settings: Settings,
        server: embedded.Server | None,
        stopping: Stopping,
        tell: Tell,
        welcome: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._server = server
        self._stopping = stopping
        self._tell = tell
        self._say_ready = welcome
        url = settings.database_url if server is None else server.url
        assert url is not None
        self._url = url
        environment = {**os.environ, PREFIX + "DATABASE_URL": url}
        if settings.simulator_port is not None:
            # To the processes the database looks like the operator's own, which has a simulator only when
            # told.
            environment[PREFIX + "SIMULATOR_PORT"] = str(settings.simulator_port)
        self._worker, *webhooks = plan_workers(settings, environment, len(os.sched_getaffinity(0)))
        # In the order in which they are stopped: nobody is left without the child that they talk to, and the
        # events of the last receipts are still sent.
        self._children = [ChildProcess("web", ["web"], environment), self._worker, *webhooks]
        if settings.simulator_port is not None:
            self._children.append(ChildProcess("simulator", ["simulator"], environment))
        self._server_runs = server is None
        self._server_retries = Retries()
        self._is_prepared = False
        self._preparation = Retries()
        self._worker_waits_until = 0.0
        self._is_ready = False
        self._remind_at = time.monotonic() + QUIET_S

    def look(self) -> None:
        """Check everything once: start what has ended and is due, and print when all is ready."""
        self._keep_server()
        if self._is_prepared:
            self._keep_parts()
            self._check_readiness()
        elif self._server_runs:
            self._prepare()

    def stop(self) -> None:
        """Ask it to stop, again when we are asked again, and kill it when it does not."""
        if self._stopping and self._is_prepared:
            self._tell("Stopping …")
        for child in self._children:
            # The web process goes on for a while after it was asked; the others do not.
            child.stop(self._stopping, STOP_S + self._settings.drain_wait_s)

    def _keep_server(self) -> None:
        server, retries = self._server, self._server_retries
        if server is None:
            return
        if self._server_runs:
            if server.exit_code is None:
                return
            self._server_runs = False
            self._is_ready = False
            retries.fail(f"PostgreSQL ended with code {server.exit_code}; starting it again.", self._tell)
        if not retries.is_due:
            return
        retries.begin()
        try:
            # It may recover for a while, and the other processes are looked after meanwhile.
            server.start(self._heed)
        except TemporaryOperatorError as error:
            retries.fail(f"{error} Trying again …", self._tell)
        else:
            self._server_runs = True

    def _heed(self) -> None:
        self._stopping.heed()
        if self._is_prepared:
            self._keep_parts()

    def _prepare(self) -> None:
        retries = self._preparation
        if not retries.is_due:
            return
        retries.begin()
        try:
            asyncio.run(self._stopping.cancel(_prepare(self._settings, self._url, self._tell)))
        except NOT_PREPARED as error:
            self._stopping.heed()
            retries.fail(f"Waiting for the database. {in_one_line(error)}", self._tell)
        else:
            self._stopping.heed()
            self._is_prepared = True
            self._worker_waits_until = time.monotonic() + SIMULATOR_WAIT_S

    def _keep_parts(self) -> None:
        for child in reversed(self._children):
            if child.is_running:
                continue
            if child.process is not None:
                self._note_end(child, child.process.returncode)
            if not child.retries.is_due or (child is self._worker and not self._may_start_worker()):
                continue
            try:
                child.start()
            except OSError as error:
                # Too many processes, too little memory, or a program that is being replaced.
                self._is_ready = False
                reason = error.strerror or error
                child.retries.fail(f"{child.name} cannot be started ({reason}); trying again.", self._tell)

    def _note_end(self, child: ChildProcess, code: int) -> None:
        child.process = None
        self._is_ready = False
        if code == OPERATOR_EXIT_CODE:
            raise OperatorError(f"{child.name} cannot run here; its last line above says what to put right.")
        child.retries.fail(f"{child.name} ended with code {code}; starting it again.", self._tell)

    def _may_start_worker(self) -> bool:
        if time.monotonic() >= self._worker_waits_until or _has_simulator(self._settings):
            # Only the first time: later it finds its carriers by itself.
            self._worker_waits_until = 0.0
            return True
        return False

    def _check_readiness(self) -> None:
        if self._is_ready:
            return
        waiting = [child.name for child in self._children if not child.is_running]
        if not self._server_runs:
            waiting.append("PostgreSQL")
        problem = f"{' and '.join(waiting)} not running" if waiting else find_problem(self._settings)
        now = time.monotonic()
        if problem is None:
            self._is_ready = True
            self._remind_at = now + QUIET_S
            self._say_ready()
            self._say_ready = partial(self._tell, "Tumira is ready again.")
        elif now >= self._remind_at:
            self._tell(f"Not ready yet: {problem}")
            self._remind_at = now + REMINDER_S


def plan_workers(settings: Settings, environment: Mapping[str, str], cores: int) -> Sequence[ChildProcess]:
    """Return the worker, and another one for webhooks alone where it has a core to run on."""
    if cores == 1:
        return [ChildProcess("worker", ["worker"], environment)]
    # Both show metrics, each on a port of its own.
    port = settings.worker_metrics_port
    more = {} if port is None else {PREFIX + "WORKER_METRICS_PORT": str(port + 1)}
    return [
        ChildProcess("worker", ["worker", "--webhooks", "off"], environment),
        ChildProcess("webhooks", ["worker", "--webhooks", "only"], {**environment, **more}),
    ]


def answers(settings: Settings, path: str) -> bool:
    """Tell whether the web process on this machine answers a page with a success."""
    try:
        with _direct.open(settings.local_url + path, timeout=PROBE_S):
            return True
    except (OSError, http.client.HTTPException):
        return False


async def _prepare(settings: Settings, url: str, tell: Tell) -> None:
    """Prepare the database, with the simulator as a carrier if there is one."""
    await prepare(url, tell)
    if settings.simulator_port is not None:
        database = Database(url, connections_max=1)
        try:
            await manage_carriers.keep_simulator(database, settings.simulator_port)
        finally:
            await database.close()


def find_problem(settings: Settings) -> str | None:
    """Return why the web process on this machine is not ready, or None."""
    try:
        with _direct.open(settings.local_url + "/readyz", timeout=PROBE_S):
            return None
    except urllib.error.HTTPError as error:
        with error:
            return _said_by(error)
    except (OSError, http.client.HTTPException):
        return "web does not answer"


def _said_by(answer: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(answer)["problem"])
    except (OSError, ValueError, LookupError, TypeError, http.client.HTTPException):
        return f"web answers {answer.code}"


def _has_simulator(settings: Settings) -> bool:
    """Tell whether the simulator can be connected to, if there is to be one."""
    if settings.simulator_port is None:
        return True
    try:
        with socket.create_connection((SIMULATOR_HOST, settings.simulator_port), PROBE_S):
            return True
    except OSError:
        return False
