"""Kannel in memory, to be measured with the same load and carrier as Tumira."""

import shutil
import socket
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.load.end_to_end import BODY, NUMBERS
from tests.load.node import Used
from tests.load.peers import CarrierPeer, Peer
from tests.load.processor import process_cpu_s
from tests.support.processes.ports import free_port

PROGRAMS: Final = ("bearerbox", "smsbox")
START_S: Final = 20.0
STOP_S: Final = 5.0
# Kannel's own default.
WINDOW: Final = 10

CONFIGURATION: Final = """
group = core
admin-port = {admin_port}
admin-interface = "127.0.0.1"
admin-password = bench
smsbox-port = {smsbox_port}
smsbox-interface = "127.0.0.1"
box-allow-ip = "127.0.0.1"
log-level = 2
dlr-storage = internal

group = smsc
smsc = smpp
smsc-id = bench
host = 127.0.0.1
port = {smsc_port}
smsc-username = kannel
smsc-password = secret
system-type = ""
transceiver-mode = true
max-pending-submits = {window}

group = smsbox
bearerbox-host = 127.0.0.1
sendsms-port = {http_port}
sendsms-interface = "127.0.0.1"
global-sender = 263771200000
log-level = 2

group = sendsms-user
username = bench
password = bench
max-messages = 1

group = sms-service
keyword = default
text = "-"
max-messages = 0
"""


def is_installed() -> bool:
    """Tell whether Kannel is on this machine (Debian's package `kannel`)."""
    return all(_program(name) for name in PROGRAMS)


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin")


@dataclass(frozen=True, slots=True)
class Kannel:
    """Kannel's two processes, with one bind to a carrier."""

    address: tuple[str, int]
    processes: "Sequence[subprocess.Popen[bytes]]"

    def written(self) -> tuple[int, int]:
        return 0, 0

    def cpu_s(self) -> Used:
        return {
            name: process_cpu_s(process.pid) for name, process in zip(PROGRAMS, self.processes, strict=True)
        }


def kannel_sends(sink: Peer | None) -> Sequence[str]:
    """Return requests of one message each; with a sink Kannel asks for receipts and calls it for each."""
    fields = {"username": "bench", "password": "bench", "text": BODY}
    if sink is not None:
        fields |= {"dlr-mask": "3", "dlr-url": f"http://127.0.0.1:{sink.port}/"}
    query = urllib.parse.urlencode(fields)
    return [
        f"GET /cgi-bin/sendsms?{query}&to={number[1:]} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        for number in NUMBERS
    ]


@contextmanager
def run_kannel(carrier: CarrierPeer, window: int = WINDOW) -> Iterator[Kannel]:
    """Run Kannel without a store until it is bound."""
    smsbox_port, http_port = free_port(), free_port()
    binds = carrier.counts()["binds"]
    with tempfile.TemporaryDirectory() as directory, ExitStack() as cleanup:
        path = Path(directory) / "kannel.conf"
        path.write_text(
            CONFIGURATION.format(
                admin_port=free_port(),
                smsbox_port=smsbox_port,
                smsc_port=carrier.port,
                http_port=http_port,
                window=window,
            )
        )
        processes = []
        for name, port in zip(PROGRAMS, (smsbox_port, http_port), strict=True):
            processes.append(cleanup.enter_context(_run(name, path)))
            _wait_until_listening(port)
        carrier.wait_for(binds + 1, "binds")
        yield Kannel(("127.0.0.1", http_port), processes)


@contextmanager
def _run(name: str, configuration: Path) -> "Iterator[subprocess.Popen[bytes]]":
    program = _program(name)
    assert program is not None
    process = subprocess.Popen(
        [program, "-v", "4", str(configuration)],
        cwd=configuration.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_listening(port: int) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert time.monotonic() < deadline, f"Kannel does not listen on port {port}"
            time.sleep(0.1)
        else:
            return
