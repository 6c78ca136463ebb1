"""Every submission ends exactly once, whatever the carrier answers and whenever the connection falls."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pytest
import pytest_asyncio

from tests.support.delivery.engine import Engine, numbers, open_engine
from tests.support.delivery.smpp_peer import Carrier as Peer
from tests.support.delivery.smpp_peer import Line, pdu
from tests.support.delivery.smpp_session import SUBMIT, SUBMIT_RESP
from tests.support.processes.ports import free_port
from tumira.carriers import store as carriers
from tumira.delivery import sender as sender_module
from tumira.delivery.lanes import BULK, NO_ROOM, Room
from tumira.delivery.observer import Observer
from tumira.delivery.recorder import Recorder
from tumira.delivery.responses import CommandStatus
from tumira.delivery.sender import Sender
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.smpp.link import SmppLink
from tumira.delivery.store import queue
from tumira.delivery.store.queue import ClaimedMessage, ClaimRequest

WORKER: Final = "one"
TEXT: Final = "Your statement of this month is ready. " * 5
# A segment that is not answered is in doubt soon.
TIMING: Final = SmppTimeouts(response_s=1.0, bind_s=20.0)
WAIT_S: Final = 30

SILENCE: Final = -1
# One of each that leads to something else: taken, throttled, temporary, unknown, sender, refused, no answer.
ANSWERS: Final = (
    CommandStatus.ROK,
    CommandStatus.RTHROTTLED,
    CommandStatus.RSYSERR,
    CommandStatus.RUNKNOWNERR,
    CommandStatus.RINVBNDSTS,
    CommandStatus.RINVDSTADR,
    SILENCE,
)
# What comes after the answers: nothing, the end of the line, or garbage in their packet.
STAY, DROP, GARBAGE = "stay", "drop", "garbage"


@dataclass(frozen=True, slots=True)
class Case:
    """How a carrier answers the two segments of a message, in which order, in how many packets, and then."""

    answers: tuple[int, int]
    order: tuple[int, int]
    together: bool
    then: str


CASES: Final = [
    Case((first, second), order, together, then)
    for first, second, order, together, then in itertools.product(
        ANSWERS, ANSWERS, ((0, 1), (1, 0)), (True, False), (STAY, DROP, GARBAGE)
    )
    # Without two answers there is neither an order nor a packet that they share.
    if SILENCE not in {first, second} or (order == (0, 1) and together)
]


async def play(line: Line, cases: Sequence[Case]) -> None:
    bind = await line.let_in()
    case = cases[int(bind.body.partition(b"\0")[0])]
    submits = [await line.hear(), await line.hear()]
    said = [
        pdu(SUBMIT_RESP, submits[place].sequence, b"%d\0" % place, case.answers[place])
        for place in case.order
        if case.answers[place] != SILENCE
    ]
    if case.then == GARBAGE:
        said.append(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    for packet in [b"".join(said)] if case.together else said:
        await line.say(packet)
        # Our end, in the same loop, reads it before the next one comes.
        await asyncio.sleep(0.01)
    if case.then == DROP:
        line.drop()
    while True:
        heard = await line.hear()
        answer = b"again\0" if heard.command == SUBMIT else b""
        await line.say(pdu(heard.command | 0x8000_0000, heard.sequence, answer))


@asynccontextmanager
async def carrier_of(cases: Sequence[Case]) -> AsyncIterator[int]:
    lines: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.add(task := asyncio.create_task(play(Line(reader, writer), cases)))
        await asyncio.wait({task})
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=len(cases))
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for line in lines:
            line.cancel()
        # A line that our end closed ends with an error of its reader.
        await asyncio.gather(*lines, return_exceptions=True)


@dataclass(slots=True)
class Bench:
    """A database with messages to submit, and senders that do it without a worker around them."""

    engine: Engine
    recorder: Recorder
    observer: Observer
    senders: list[Sender]

    async def claim(self, count: int) -> Sequence[ClaimedMessage]:
        await self.engine.add_carrier("one", free_port())
        # With fewer recipients they would stand in lane 0.
        await self.engine.send(await self.engine.open_account(), numbers(max(100, count)), TEXT)
        async with self.engine.database.transaction() as connection:
            claimed = await queue.claim(
                connection,
                [ClaimRequest("ZW", 0, count, count, 0, 0)],
                Room(0, 0, count),
                worker=WORKER,
                bind="one/1",
                carrier_id=(await carriers.list_active(connection))[0].id,
            )
        assert claimed is not None
        assert len(claimed) == count
        assert {(one.lane, one.segments) for one in claimed} == {(BULK, 2)}
        return claimed

    async def open_sender(
        self,
        port: int,
        name: str = "tester",
        timing: SmppTimeouts = TIMING,
        room: Callable[[], None] = lambda: None,
    ) -> Sender:
        async with self.engine.database.connection() as connection:
            carrier = (await carriers.list_active(connection))[0]
        carrier = replace(carrier, settings=replace(carrier.settings, port=port, system_id=name))
        open_link = partial(SmppLink, carrier, 1, self.recorder, timing)
        sender = Sender(carrier, 1, WORKER, self.recorder, self.observer, open_link, room)
        self.senders.append(sender)
        sender.renew(asyncio.get_running_loop().time() + 1000, 0)
        return sender

    async def bind(self, peer: Peer) -> tuple[Sender, Line]:
        sender = await self.open_sender(peer.port)
        line = await peer.line()
        await line.let_in()
        await self.until(lambda: sender.is_open)
        return sender, line

    def submit(self, sender: Sender, claimed: ClaimedMessage) -> None:
        sender.take([sender.link.prepare(claimed, None, None)])

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not is_so():  # noqa: ASYNC110 - it is told nothing
                await asyncio.sleep(0.01)

    async def check_all_ended(self) -> None:
        await self.recorder.drain(WAIT_S)
        assert await self.engine.rows("SELECT FROM in_flight") == []
        assert all(sender._held == sender._unanswered == [0, 0] for sender in self.senders)
        assert {sender._unrecorded for sender in self.senders} == {0}
        assert await self.engine.audit() == []


@pytest_asyncio.fixture
async def bench(database_url: str) -> AsyncIterator[Bench]:
    async with open_engine(database_url) as engine:
        observer = Observer(engine.database)
        recorder = Recorder(engine.database, 1, WORKER, observer)
        bench = Bench(engine, recorder, observer, [])
        yield bench
        for sender in bench.senders:
            sender.drop()
        await recorder.close()


@pytest.mark.long
async def test_a_submission_ends_once_whatever_is_answered_in_whichever_order(bench: Bench) -> None:
    claimed = await bench.claim(len(CASES))
    async with carrier_of(CASES) as port:
        opened = [await bench.open_sender(port, str(place)) for place in range(len(CASES))]
        await bench.until(lambda: all(sender.is_open for sender in opened))
        for sender, one in zip(opened, claimed, strict=True):
            bench.submit(sender, one)
        try:
            await bench.until(lambda: not any(sender.claimed for sender in opened))
        except TimeoutError:
            left = [case for case, sender in zip(CASES, opened, strict=True) if sender.claimed]
            pytest.fail(f"left open: {left}")
        await bench.check_all_ended()


async def test_garbage_behind_the_answer_to_a_bind_is_a_line_that_never_was(bench: Bench) -> None:
    (claimed,) = await bench.claim(1)
    unsent = [claimed]

    def room() -> None:
        if sender.is_open and unsent:
            bench.submit(sender, unsent.pop())

    async with Peer().listening() as peer:
        sender = await bench.open_sender(peer.port, room=room)
        await (await peer.line()).let_in(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        line = await peer.line()
        await line.let_in()
        for submit in await line.hear_many(2):
            await line.say(pdu(SUBMIT_RESP, submit.sequence, b"%d\0" % submit.sequence))
        await bench.until(lambda: not sender.claimed)
        await bench.check_all_ended()
    assert (await bench.engine.message(claimed.recipient))["status"] == "sent"


@pytest.mark.long
async def test_all_answers_of_a_packet_count_when_one_of_them_ends_the_line(bench: Bench) -> None:
    (claimed,) = await bench.claim(1)
    async with Peer().listening() as peer:
        sender, line = await bench.bind(peer)
        bench.submit(sender, claimed)
        first, second = await line.hear_many(2)
        await line.say(
            pdu(SUBMIT_RESP, first.sequence, b"", CommandStatus.RINVBNDSTS),
            pdu(SUBMIT_RESP, second.sequence, b"2\0"),
        )
        await bench.until(lambda: not sender.claimed)
        await bench.check_all_ended()
    # Neither segment is in doubt: one was refused and is sent again, the other was taken.
    assert await bench.engine.rows("SELECT FROM incidents") == []
    (place,) = await bench.engine.rows("SELECT again FROM queue WHERE message_id = $1", claimed.id)
    assert place["again"]


@pytest.mark.long
async def test_a_submission_that_was_left_open_is_closed_and_in_doubt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "LEFT_OPEN_S", -TIMING.response_s)
    (claimed,) = await bench.claim(1)
    async with Peer().listening() as peer:
        sender, line = await bench.bind(peer)
        bench.submit(sender, claimed)
        await line.hear_many(2)
        link = sender.link
        assert isinstance(link, SmppLink)
        session = link._session
        assert session is not None
        session._waiting.clear()
        await bench.until(lambda: session.outstanding == 0)
        sender.close_left_open()
        assert not sender.claimed
        await bench.check_all_ended()
        # It is left alone from then on.
        sender.close_left_open()
    assert [row["kind"] for row in await bench.engine.rows("SELECT kind FROM incidents")] == ["doubt"]


@pytest.mark.long
async def test_a_message_that_waits_in_line_for_too_long_is_given_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "LEFT_OPEN_S", -TIMING.response_s)
    (claimed,) = await bench.claim(1)
    async with Peer().listening() as peer:
        sender, _ = await bench.bind(peer)
        # As while the database is away and nobody renews the lease.
        sender.renew(0, 0)
        bench.submit(sender, claimed)
        assert sender.claimed
        await asyncio.sleep(0)
        sender.close_left_open()
        assert not sender.claimed
        await bench.check_all_ended()
    assert (await bench.engine.message(claimed.recipient))["status"] == "queued"


@pytest.mark.long
@pytest.mark.parametrize("answers", [0, 1])
async def test_a_line_that_falls_before_it_answered_anything_counts_as_silence(
    bench: Bench, answers: int
) -> None:
    claimed = await bench.claim(4)
    async with Peer().listening() as peer:
        sender, line = await bench.bind(peer)
        for one in claimed:
            bench.submit(sender, one)
        for submit in (await line.hear_many(8))[:answers]:
            await line.say(pdu(SUBMIT_RESP, submit.sequence, b"1\0"))
        await bench.until(lambda: sender.link.outstanding == 8 - answers)
        line.drop()
        await bench.until(lambda: not sender.claimed)
        await (await peer.line()).let_in()
        await bench.until(lambda: sender.is_open)
        # A silent one is bound, and gets nothing for a while; then one message.
        is_silent = answers == 0
        assert (sender.is_healthy, sender.report().silent) == (not is_silent, is_silent)
        assert (sender.room() == NO_ROOM) is is_silent
        await bench.check_all_ended()
