"""A carrier in its own process that can be killed, with a record of all texts that reached it.

It is the simulator's SMSC in a process of its own, at an address of the test's choice. It writes each text
down before it answers the submit, so that whatever it answered, or died over, stands in its file. The
receipts that it owes are lost with it, as with a carrier that keeps them in memory.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from tests.support.chaos.namespaces import Place
from tests.support.processes.programs import CHECKOUT, environment
from tumira.simulator.connection import SmscConnection
from tumira.simulator.handsets import ReceivedText
from tumira.simulator.smsc import BACKLOG, Smsc

START_S: Final = 30.0
# Long enough that some receipts are owed at any moment under load.
RECEIPT_DELAY_S: Final = 0.2
PROGRAM: Final = (sys.executable, "-W", "error", "-m", "tests.support.delivery.carrier_process")

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(ReceivedText).decode


class CarrierProcess:
    """A carrier in a place, with the file of its texts."""

    def __init__(self, file: Path, place: Place) -> None:
        self.place = place
        self.port = place.free_port()
        self._file = file
        self.process: subprocess.Popen[bytes]
        # Since when it owes nothing that it would not remember.
        self.started_at: datetime
        self.start()

    def start(self) -> None:
        self.started_at = datetime.now(UTC)
        self.process = subprocess.Popen(
            [*self.place.prefix, *PROGRAM, self.place.address, str(self.port), str(self._file)],
            cwd=CHECKOUT,
            env=environment(),
        )
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert self.process.poll() is None, f"the carrier ended with {self.process.returncode}"
            assert time.monotonic() < deadline, "the carrier does not answer"
            time.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def counts(self) -> "Counter[tuple[str, str]]":
        texts = [_decode(line) for line in self._file.read_bytes().splitlines()]
        return Counter((text.to, text.text) for text in texts)

    def _answers(self) -> bool:
        try:
            socket.create_connection((self.place.address, self.port), timeout=1).close()
        except OSError:
            return False
        return True


async def _serve(address: str, port: int, file: Path) -> None:
    # One short write a text, straight to the kernel: a process that is killed leaves no half lines.
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    smsc = Smsc(receipt_delay_s=RECEIPT_DELAY_S, texts_max=0, arrived=lambda text: _write(handle, text))
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    server = await loop.create_server(lambda: SmscConnection(smsc), address, port, backlog=BACKLOG)
    async with server:
        await stopped.wait()
        smsc.close()
    os.close(handle)


def _write(handle: int, text: ReceivedText) -> None:
    line = _encode(text) + b"\n"
    assert os.write(handle, line) == len(line)


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
