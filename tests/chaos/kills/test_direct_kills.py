"""Messages that were claimed with their accept, while the web process or the worker is killed."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.support.chaos.breakable import CarrierThread
from tests.support.chaos.node import (
    Account,
    Load,
    NodeProcess,
    UrlReader,
    WorkerProcess,
    add_carrier,
    audit,
    check_promises,
    open_account,
    until,
    wait_until_final,
)
from tests.support.postgres.databases import open_directory
from tests.support.processes.ports import free_port
from tests.support.processes.service import NO_TLS
from tests.support.processes.watched import read_samples

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

KILLS: Final = 8
# Between two kills.
SENDS: Final = 40
CALLERS: Final = 4
# What never came is looked for twice, at this interval.
LOST_CLAIM_S: Final = 15.0
PASSED_ON: Final = "tumira_messages_claimed_directly_total"


@pytest.fixture
def home() -> "Iterator[Path]":
    with open_directory("tumira-direct-") as path:
        yield path


def send_through_kills(url: str, home: Path, killed: str) -> Account:
    """Kill one of the two processes again and again; check that nothing is lost, or repeated untold."""
    settings: dict[str, Any] = {"database_url": url, "data_dir": home}
    port = free_port()
    with CarrierThread() as carrier:
        add_carrier(
            "main", f"smpp://tester:secret@127.0.0.1:{carrier.port}?window=20&doubt_wait=1", **settings
        )
        load = Load(f"http://127.0.0.1:{port}", open_account(**settings), seed=1, pause_s=0.005)
        web = NodeProcess("web", home / "web.log", port=port, **settings)
        worker = WorkerProcess(home / "worker.log", **settings)
        victim = web if killed == "web" else worker
        passed_on = 0.0

        def is_passing_on() -> bool:
            nonlocal passed_on
            try:
                page = httpx.get(f"{load.base}/metrics", timeout=10, trust_env=False, verify=NO_TLS).text
            except httpx.TransportError:
                return False
            passed_on = read_samples(page).get(PASSED_ON, 0.0)
            return passed_on > 0

        try:
            with load.running(CALLERS):
                for _ in range(KILLS):
                    until(is_passing_on, lambda: web.said() + worker.said())
                    load.wait_for(SENDS)
                    victim.kill()
                    victim.start()
                until(is_passing_on, lambda: web.said() + worker.said())
                load.wait_for(SENDS)
            reader = UrlReader(url)
            wait_until_final(reader.rows, wait_s=150)
            arrived = Counter(carrier.counts())
            found = check_promises(reader.rows, load, arrived)
            audit(**settings)
            return found
        finally:
            web.end()
            worker.end()


def test_a_killed_web_process_leaves_nothing_in_doubt(database_url: str, home: Path) -> None:
    found = send_through_kills(database_url, home, "web")
    # A message that never came to the worker was not submitted, so there is nothing to doubt.
    assert (found.doubted, found.resent, found.copies) == (0, 0, 0)


def test_what_a_killed_worker_held_is_in_doubt_and_comes(database_url: str, home: Path) -> None:
    found = send_through_kills(database_url, home, "worker")
    assert found.copies <= found.resent <= found.doubted
