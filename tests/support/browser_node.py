"""A whole node for journeys in a browser: web, worker and simulator, each a process that is forked.

What `tumira serve` does with them is shown by `tests/journey/test_serve.py`; its start takes far longer.
"""

import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any

import httpx

from tests.support.postgres.databases import clone, open_directory
from tests.support.postgres.embedded import wait_for
from tests.support.processes.forked_commands import start_part
from tests.support.processes.ports import free_port
from tests.support.processes.service import NO_TLS, Service, run_on, run_web
from tumira.carriers.manage import keep_simulator
from tumira.identity import manage_accounts


@contextmanager
def run_node(server_url: str, **settings: str) -> Iterator[Service]:
    """Run a node on a database of its own, with the simulator as its carrier."""
    port = free_port()
    with clone(server_url) as url, open_directory("tumira-node-") as data_dir:
        environment = {
            "TUMIRA_DATABASE_URL": url,
            "TUMIRA_DATA_DIR": str(data_dir),
            "TUMIRA_SIMULATOR_PORT": str(port),
            "TUMIRA_LOG_LEVEL": "error",
            **settings,
        }
        run_on(url, keep_simulator, port)
        parts = [start_part("simulator", environment)]
        try:
            wait_for(lambda: _listens(port))
            parts.append(start_part("worker", environment))
            with run_web(url, **environment) as service:
                yield service
        finally:
            for part in reversed(parts):
                part.send_signal(signal.SIGTERM)
                part.wait()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def get(node: Service, path: str, **options: Any) -> httpx.Response:
    return httpx.get(node.base + path, trust_env=False, verify=NO_TLS, timeout=40, **options)


def texts_of(node: Service, number: str) -> Sequence[str]:
    """Return what a handset of the simulator has got, oldest first."""
    return [one["text"] for one in get(node, "/simulator/messages.json", params={"to": number}).json()]


def credit(node: Service, phone: str, amount: str) -> None:
    (row,) = node.sql("SELECT id FROM accounts WHERE phone = $1", phone)
    node.run(manage_accounts.credit, row["id"], Decimal(amount), note="Cash", actor="cli:root")
