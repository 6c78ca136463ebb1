"""Every hand-over ends exactly once, whatever the carrier answers to its segments and when the line falls."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import pytest
import pytest_asyncio

from tests.support.delivery.engine import Engine, numbers, open_engine
from tests.support.delivery.smpp_peer import Carrier as Peer
from tests.support.delivery.smpp_peer import Line, pdu
from tests.support.delivery.smpp_session import SUBMIT, SUBMIT_RESP
from tests.support.processes.service import free_port
from tumira.delivery import sender as links
from tumira.delivery.observer import Observer
from tumira.delivery.recorder import Recorder
from tumira.delivery.responses import CommandStatus
from tumira.delivery.sender import Sender
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.store import carriers, queue
from tumira.delivery.store.queue import BULK, ClaimedMessage, ClaimRequest

WORKER: Final = "one"
TEXT: Final = "Your statement of this month is ready. " * 5
# A segment that is not answered is in doubt soon.
TIMING: Final = SmppTimeouts(response_s=1.0, bind_s=20.0)
WAIT_S: Final = 30

SILENCE: Final = -1
# One of each that leads to something else: taken, throttled, temporary, unknown, link, refused, no answer.
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
    """Be the carrier on one line: do what the case says whose number is the name of who binds."""
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
    """Be the carrier of a link for each case, and give the port."""
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
    """A database with messages to hand over, and links that do it without a worker around them."""

    engine: Engine
    recorder: Recorder
    observer: Observer
    links: list[Sender]

    async def claim(self, count: int) -> Sequence[ClaimedMessage]:
        """Send messages of two segments in lane 1, and claim them."""
        await self.engine.add_carrier("one", free_port())
        # With fewer recipients they would stand in lane 0.
        await self.engine.send(await self.engine.open_account(), numbers(max(100, count)), TEXT)
        async with self.engine.database.transaction() as connection:
            claimed = await queue.claim(
                connection,
                [ClaimRequest("ZW", 0, count, count, 0, 0)],
                count,
                worker=WORKER,
                bind="one/1",
                carrier_id=(await carriers.list_active(connection))[0].id,
            )
        assert claimed is not None
        assert len(claimed) == count
        assert {(one.lane, one.segments) for one in claimed} == {(BULK, 2)}
        return claimed

    async def open_link(
        self,
        port: int,
        name: str = "tester",
        timing: SmppTimeouts = TIMING,
        room: Callable[[], None] = lambda: None,
    ) -> Sender:
        """Bind, under a name of its own; `room` is called whenever there is room."""
        async with self.engine.database.connection() as connection:
            carrier = (await carriers.list_active(connection))[0]
        carrier = replace(carrier, settings=replace(carrier.settings, port=port, system_id=name))
        link = Sender(carrier, 1, WORKER, self.recorder, self.observer, timing, room)
        self.links.append(link)
        link.renew(asyncio.get_running_loop().time() + 1000, 0)
        return link

    def hand_over(self, link: Sender, claimed: ClaimedMessage) -> None:
        """Give a link a message."""
        link.take([link.writer.prepare(claimed, None)])

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(WAIT_S):
            while not is_so():  # noqa: ASYNC110 - it is told nothing
                await asyncio.sleep(0.01)

    async def check_all_ended(self) -> None:
        """Check that every hand-over ended once, and that its place was given back."""
        await self.recorder.drain(WAIT_S)
        assert await self.engine.rows("SELECT FROM in_flight") == []
        assert {link.bulk_outstanding for link in self.links} == {0}
        assert {link._held for link in self.links} == {0}
        assert {link._unrecorded for link in self.links} == {0}
        assert await self.engine.audit() == []


@pytest_asyncio.fixture
async def bench(database_url: str) -> AsyncIterator[Bench]:
    """Give a bench, and part from every carrier at the end."""
    async with open_engine(database_url) as engine:
        observer = Observer(engine.database)
        recorder = Recorder(engine.database, 1, WORKER, observer)
        bench = Bench(engine, recorder, observer, [])
        yield bench
        for link in bench.links:
            link.drop()
        await recorder.close()


async def test_a_hand_over_ends_once_whatever_is_answered_in_whichever_order(bench: Bench) -> None:
    claimed = await bench.claim(len(CASES))
    async with carrier_of(CASES) as port:
        opened = [await bench.open_link(port, str(place)) for place in range(len(CASES))]
        await bench.until(lambda: all(link.is_open for link in opened))
        for link, one in zip(opened, claimed, strict=True):
            bench.hand_over(link, one)
        try:
            await bench.until(lambda: not any(link.claimed for link in opened))
        except TimeoutError:
            left = [case for case, link in zip(CASES, opened, strict=True) if link.claimed]
            pytest.fail(f"left open: {left}")
        await bench.check_all_ended()


async def test_garbage_behind_the_answer_to_a_bind_is_a_line_that_never_was(bench: Bench) -> None:
    (claimed,) = await bench.claim(1)
    to_hand_over = [claimed]

    def room() -> None:
        if link.is_open and to_hand_over:
            bench.hand_over(link, to_hand_over.pop())

    async with Peer().listening() as peer:
        link = await bench.open_link(peer.port, room=room)
        await (await peer.line()).let_in(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        line = await peer.line()
        await line.let_in()
        for submit in await line.hear_many(2):
            await line.say(pdu(SUBMIT_RESP, submit.sequence, b"%d\0" % submit.sequence))
        await bench.until(lambda: not link.claimed)
        await bench.check_all_ended()
    assert (await bench.engine.message(claimed.recipient))["status"] == "sent"


async def test_all_answers_of_a_packet_count_when_one_of_them_ends_the_line(bench: Bench) -> None:
    (claimed,) = await bench.claim(1)
    async with Peer().listening() as peer:
        link = await bench.open_link(peer.port)
        line = await peer.line()
        await line.let_in()
        await bench.until(lambda: link.is_open)
        bench.hand_over(link, claimed)
        first, second = await line.hear_many(2)
        await line.say(
            pdu(SUBMIT_RESP, first.sequence, b"", CommandStatus.RINVBNDSTS),
            pdu(SUBMIT_RESP, second.sequence, b"2\0"),
        )
        await bench.until(lambda: not link.claimed)
        await bench.check_all_ended()
    # Neither segment is in doubt: one was refused and is sent again, the other was taken.
    assert await bench.engine.rows("SELECT FROM incidents") == []
    (place,) = await bench.engine.rows("SELECT again FROM queue WHERE message_id = $1", claimed.id)
    assert place["again"]


async def test_a_hand_over_that_was_left_open_is_closed_and_in_doubt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No way to leave one open is known any more, so a session that forgets what it was given makes one."""
    monkeypatch.setattr(links, "LEFT_OPEN_S", -TIMING.response_s)
    (claimed,) = await bench.claim(1)
    async with Peer().listening() as peer:
        link = await bench.open_link(peer.port)
        line = await peer.line()
        await line.let_in()
        await bench.until(lambda: link.is_open)
        bench.hand_over(link, claimed)
        await line.hear_many(2)
        session = link._connection.usable
        assert session is not None
        session._waiting.clear()
        await bench.until(lambda: session.outstanding == 0)
        link.close_left_open()
        assert not link.claimed
        await bench.check_all_ended()
        # It is left alone from then on.
        link.close_left_open()
    assert [row["kind"] for row in await bench.engine.rows("SELECT kind FROM incidents")] == ["doubt"]


async def test_a_message_that_waits_in_line_for_too_long_is_given_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "LEFT_OPEN_S", -TIMING.response_s)
    (claimed,) = await bench.claim(1)
    async with Peer().listening() as peer:
        link = await bench.open_link(peer.port)
        line = await peer.line()
        await line.let_in()
        await bench.until(lambda: link.is_open)
        # As while the database is away and nobody renews the lease.
        link.renew(0, 0)
        bench.hand_over(link, claimed)
        assert link.claimed
        await asyncio.sleep(0)
        link.close_left_open()
        assert not link.claimed
        await bench.check_all_ended()
    assert (await bench.engine.message(claimed.recipient))["status"] == "queued"


async def test_a_line_that_falls_before_it_answered_anything_counts_as_silence(bench: Bench) -> None:
    claimed = await bench.claim(3)
    async with Peer().listening() as peer:
        link = await bench.open_link(peer.port)
        line = await peer.line()
        await line.let_in()
        await bench.until(lambda: link.is_open)
        for one in claimed:
            bench.hand_over(link, one)
        await line.hear_many(6)
        line.drop()
        await bench.until(lambda: not link.claimed)
        line = await peer.line()
        await line.let_in()
        await bench.until(lambda: link.is_open)
        # It is bound, and gets nothing for a while; then one message.
        assert (link.is_healthy, link.free(), link.report().silent) == (False, 0, True)
        await bench.check_all_ended()


async def test_a_line_that_answered_and_fell_is_used_again_at_once(bench: Bench) -> None:
    claimed = await bench.claim(4)
    async with Peer().listening() as peer:
        link = await bench.open_link(peer.port)
        line = await peer.line()
        await line.let_in()
        await bench.until(lambda: link.is_open)
        for one in claimed:
            bench.hand_over(link, one)
        first, *_ = await line.hear_many(8)
        await line.say(pdu(SUBMIT_RESP, first.sequence, b"1\0"))
        await bench.until(lambda: link.report().outstanding == 7)
        line.drop()
        await bench.until(lambda: not link.claimed)
        line = await peer.line()
        await line.let_in()
        await bench.until(lambda: link.is_open)
        assert (link.is_healthy, link.report().silent) == (True, False)
        await bench.check_all_ended()
