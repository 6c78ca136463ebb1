"""Ports for what tests start."""

import os
import random
import socket
from collections.abc import Iterator
from typing import Final

# Below those that Linux gives to connections: one of them would take a port between its choice and its use.
PORTS: Final = range(10_000, 32_768)
# Tests in so many processes choose among different ports, for the same reason.
PROCESSES_MAX: Final = 16


def _own_ports(process: int) -> Iterator[int]:
    """Return the ports of one process of the tests in turn, for ever."""
    own = PORTS[process % PROCESSES_MAX :: PROCESSES_MAX]
    # Other tests may run on this machine.
    place = random.randrange(len(own))
    while True:
        yield own[place % len(own)]
        place += 1


_ports: Final = _own_ports(int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")))


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port that nobody listens on, and that this process has not had for long."""
    for port in _ports:
        try:
            socket.create_server((address, port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("unreachable: the ports never end")
