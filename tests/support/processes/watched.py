"""Processes of a node whose log lines and metrics are watched.

with run_worker(url, tmp_path / "worker.log") as worker:
    before = worker.metrics()
"""

import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from tests.support.processes.forked_commands import start_part
from tests.support.processes.ports import free_port
from tests.support.processes.service import NO_TLS, Running, Service, wait_until_ready

START_S: Final = 60
STOP_S: Final = 40

_SAMPLE: Final = re.compile(r"^(\w+)(\{.*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Watched:
    """A process of ours that shows its metrics, and the file with its log lines."""

    base: str
    log: Path
    process: Running

    def metrics(self) -> dict[str, float]:
        answer = httpx.get(f"{self.base}/metrics", timeout=30, trust_env=False, verify=NO_TLS)
        assert answer.status_code == httpx.codes.OK, answer.text
        return read_samples(answer.text)


def read_samples(text: str) -> dict[str, float]:
    """Return the samples of a page of metrics, each under its name and labels."""
    return {name + labels: float(value) for name, labels, value in _SAMPLE.findall(text)}


def _start(name: str, log: Path, environment: Mapping[str, str]) -> Running:
    with log.open("ab") as lines:
        return start_part(name, environment, lines.fileno())


def _stop(process: Running) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_S)


@contextmanager
def watch_web(url: str, log: Path, **environment: str) -> Iterator[tuple[Watched, Service]]:
    """Run `tumira web` on a database, and keep what it logs."""
    port = free_port()
    settings = {"TUMIRA_DATABASE_URL": url, "TUMIRA_PORT": str(port), **environment}
    process = _start("web", log, settings)
    base = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(base, process)
        yield Watched(base, log, process), Service(base, url, process)
    finally:
        _stop(process)


@contextmanager
def watch_worker(url: str, log: Path, **environment: str) -> Iterator[Watched]:
    """Run `tumira worker` on a database, and keep what it logs."""
    port = free_port()
    settings = {"TUMIRA_DATABASE_URL": url, "TUMIRA_WORKER_METRICS_PORT": str(port), **environment}
    process = _start("worker", log, settings)
    base = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_S
        while not _is_alive(base):
            assert process.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
            time.sleep(0.05)
        yield Watched(base, log, process)
    finally:
        _stop(process)


def _is_alive(base: str) -> bool:
    try:
        answer = httpx.get(f"{base}/healthz", trust_env=False, verify=NO_TLS)
    except httpx.TransportError:
        return False
    return answer.status_code == httpx.codes.OK


@contextmanager
def watch_simulator(data_dir: Path, log: Path, **environment: str) -> Iterator[int]:
    """Run `tumira simulator`, keep what it logs, and give its port."""
    port = free_port()
    settings = {"TUMIRA_DATA_DIR": str(data_dir), "TUMIRA_SIMULATOR_PORT": str(port), **environment}
    process = _start("simulator", log, settings)
    try:
        yield port
    finally:
        _stop(process)
