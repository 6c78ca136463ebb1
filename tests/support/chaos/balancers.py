"""HAProxy and nginx in front of web nodes."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.support.chaos.node import until
from tests.support.processes.ports import free_port
from tests.support.processes.programs import CHECKOUT

DEPLOY: Final = CHECKOUT / "deploy"
FETCHED: Final = CHECKOUT / ".tools" / "balancers"
STOP_S: Final = 10
# More often than in the example, so that a test need not wait for its seconds.
LOOKS: Final = ("inter 1s", "inter 200ms")
# As many as the limits of any machine allow.
CONNECTIONS: Final = ("maxconn 20000", "maxconn 200")


def find_program(name: str) -> str:
    """Return where a balancer is; without it the test is left out."""
    fetched = FETCHED / "usr" / "sbin" / name
    found = shutil.which(name) or (str(fetched) if fetched.exists() else None)
    if found is None:
        pytest.skip(f"{name} is missing: run `make peers`")
    return found


def balancer_environment() -> Mapping[str, str]:
    """Return an environment in which a balancer that was not installed finds its libraries."""
    libraries = [str(path) for path in FETCHED.glob("usr/lib/*-linux-gnu")]
    return os.environ | ({"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else {})


def haproxy_settings(port: int, nodes: Sequence[int], control: Path) -> str:
    """Return our example for HAProxy, without TLS, on these ports, and with a line for questions."""
    text = (DEPLOY / "haproxy.cfg").read_text().replace(*LOOKS).replace(*CONNECTIONS)
    text = text.replace("global\n", f"global\n    stats socket {control} mode 600 level admin\n")
    text, count = re.subn(r"bind :443 .*", f"bind 127.0.0.1:{port}", text)
    return _at_home(text, count, nodes)


def nginx_settings(port: int, nodes: Sequence[int], home: Path) -> str:
    """Return our example for nginx, without TLS, on these ports, as a whole file."""
    text = re.sub(r" *ssl_certificate.*\n", "", (DEPLOY / "nginx.conf").read_text())
    text, count = re.subn(r"listen 443 ssl;", f"listen 127.0.0.1:{port};", text)
    return nginx_whole(_at_home(text, count, nodes), home)


def nginx_whole(text: str, home: Path) -> str:
    folders = "".join(
        f"{name}_temp_path {home}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"daemon off;\npid {home}/pid;\nerror_log {home}/errors.log;\nevents {{ }}\n"
        f"http {{\naccess_log off;\n{folders}{text}}}\n"
    )


def _at_home(text: str, count: int, nodes: Sequence[int]) -> str:
    assert count == 1
    for place, node in enumerate(nodes, start=1):
        address = f"10.0.0.1{place}:8080"
        assert text.count(address) == 1
        text = text.replace(address, f"127.0.0.1:{node}")
    return text


class Balancer:
    """A balancer in front of some nodes."""

    def __init__(self, base: str, control: Path | None) -> None:
        self.base = base
        self._control = control

    def wait_until_used(self, count: int) -> None:
        if self._control is not None:
            until(lambda: self._used() == count, "the balancer does not see the nodes")

    def _used(self) -> int:
        assert self._control is not None
        with socket.socket(socket.AF_UNIX) as line, suppress(OSError):
            line.connect(str(self._control))
            line.sendall(b"show stat\n")
            told = b"".join(iter(lambda: line.recv(65_536), b"")).decode()
            rows = [row.split(",") for row in told.splitlines() if row.startswith("web,web")]
            return sum(row[17] == "UP" for row in rows)
        return 0


@contextmanager
def run_balancer(name: str, nodes: Sequence[int], home: Path) -> Iterator[Balancer]:
    program, port, control = find_program(name), free_port(), home / "control"
    settings = home / f"{name}.conf"
    if name == "haproxy":
        settings.write_text(haproxy_settings(port, nodes, control))
        command = [program, "-db", "-f", str(settings)]
    else:
        settings.write_text(nginx_settings(port, nodes, home))
        command = [program, "-p", str(home), "-c", str(settings)]
    with (home / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, env=balancer_environment(), stdout=log, stderr=log)
    try:
        until(lambda: _listens(port) or process.poll() is not None, f"{name} does not listen")
        assert process.poll() is None, (home / f"{name}.log").read_text()
        yield Balancer(f"http://127.0.0.1:{port}", control if name == "haproxy" else None)
    finally:
        process.terminate()
        process.wait(STOP_S)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
