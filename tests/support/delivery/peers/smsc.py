"""A third-party SMSC: Node.js with the npm package `smpp`."""

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.npm import node_with

PEERS: Final = Path(__file__).parent
START_S: Final = 20
LINE_OCTETS_MAX: Final = 1024 * 1024

Rule = Mapping[str, Any]
Event = Mapping[str, Any]


@dataclass(slots=True)
class ForeignSmsc:
    """A running SMSC, and all that it has told so far."""

    port: int
    process: Process
    events: list[Event] = field(default_factory=list)
    echoed: asyncio.Event = field(default_factory=asyncio.Event)

    async def catch_up(self) -> None:
        assert self.process.stdin is not None
        self.echoed.clear()
        self.process.stdin.write(b"now\n")
        async with asyncio.timeout(START_S):
            await self.echoed.wait()

    def told(self, event: str) -> Sequence[Event]:
        return [one for one in self.events if one["event"] == event]

    @property
    def taken(self) -> Sequence[Event]:
        return self.told("submit")

    def copies(self) -> Counter[tuple[str, int]]:
        return Counter((one["to"], one["segment"]) for one in self.taken)


@asynccontextmanager
async def run_foreign_smsc(*rules: Rule) -> AsyncIterator[ForeignSmsc]:
    node = node_with(PEERS)
    process = await asyncio.create_subprocess_exec(
        node.program, str(PEERS / "smsc.mjs"), cwd=node.folder, stdin=PIPE, stdout=PIPE, limit=LINE_OCTETS_MAX
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(rules).encode() + b"\n")
    async with asyncio.timeout(START_S):
        smsc = ForeignSmsc((await _read(process))["port"], process)
    reading = asyncio.create_task(_listen(process, smsc))
    try:
        yield smsc
    finally:
        # It ends when nobody can tell it anything any more.
        process.stdin.close()
        async with asyncio.timeout(START_S):
            await process.wait()
            await reading
    assert process.returncode == 0


async def _read(process: Process) -> Event:
    assert process.stdout is not None
    line = await process.stdout.readline()
    assert line, "the foreign SMSC has ended"
    event: Event = json.loads(line)
    return event


async def _listen(process: Process, smsc: ForeignSmsc) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        event: Event = json.loads(line)
        if event["event"] == "echo":
            smsc.echoed.set()
        else:
            smsc.events.append(event)


def digits(recipient: str) -> str:
    return recipient.removeprefix("+")


def payload(pdu_hex: str) -> bytes:
    return fields(pdu_hex)[-1]


def fields(pdu_hex: str) -> Sequence[bytes]:
    body = bytes.fromhex(pdu_hex)[16:]
    found = []
    # An S is a string that ends with a NUL, a B a single octet.
    for kind in "SBBSBBSBBBSSBBBB":
        end = body.index(0) + 1 if kind == "S" else 1
        found.append(body[:end].rstrip(b"\0") if kind == "S" else body[:end])
        body = body[end:]
    length, text = body[0], body[1:]
    # Nothing follows: no optional parameter was asked for.
    assert len(text) == length
    return [*found, text]
