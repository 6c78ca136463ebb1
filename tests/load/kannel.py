"""Kannel's rate in memory, with the same load and carrier as Tumira."""

import shutil
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.load.end_to_end import BODY, NUMBERS, Peer, finish_load, run_peer, start_load
from tests.support.processes.service import free_port

PROGRAMS: Final = ("bearerbox", "smsbox")
START_S: Final = 20.0
# Kannel's own default; a larger window measured slower.
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


def measure(connections: int, count: int) -> tuple[float, float]:
    """Return the single sends that Kannel accepted and submitted per second."""
    with run_peer("smsc") as smsc, run_peer("sink") as sink, _run(smsc) as http_port:
        query = urllib.parse.urlencode(
            {
                "username": "bench",
                "password": "bench",
                "text": BODY,
                "dlr-mask": "31",
                "dlr-url": f"http://127.0.0.1:{sink.port}/",
            }
        )
        requests = [
            f"GET /cgi-bin/sendsms?{query}&to={number[1:]} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            for number in NUMBERS
        ]
        began = time.time()
        result = finish_load(start_load(("127.0.0.1", http_port), connections, count, requests))
        handed_over = smsc.wait_for(count)
        sink.wait_for(count)
        return result["per_second"], count / (handed_over - began)


@contextmanager
def _run(smsc: Peer) -> Iterator[int]:
    http_port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kannel.conf"
        path.write_text(
            CONFIGURATION.format(
                admin_port=free_port(),
                smsbox_port=free_port(),
                smsc_port=smsc.port,
                http_port=http_port,
                window=WINDOW,
            )
        )
        processes = []
        try:
            for name in PROGRAMS:
                program = _program(name)
                assert program is not None
                processes.append(
                    subprocess.Popen(
                        [program, "-v", "4", str(path)],
                        cwd=directory,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                    )
                )
                # The second connects to the first, and has nothing that says when it can.
                time.sleep(2)
            yield http_port
        finally:
            for process in reversed(processes):
                process.terminate()
                try:
                    process.wait(START_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
