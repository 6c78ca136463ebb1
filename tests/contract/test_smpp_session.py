"""Does a session keep the rules of SMPP 3.4, whatever the carrier does?"""

import asyncio
import random
import shutil
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.smpp_peer import WAIT_S, Carrier, Ear, Line, delivery, pdu
from tumira.carriers.smpp import session as session_module
from tumira.carriers.smpp.pdu import Bind, Command, Status, SubmitBodies
from tumira.carriers.smpp.server import ServerPeer
from tumira.carriers.smpp.session import Address, BindRefusedError, Session, Timing, connect

SUBMIT, SUBMIT_RESP = 0x04, 0x8000_0004
DELIVER, DELIVER_RESP = 0x05, 0x8000_0005
DATA, DATA_RESP = 0x103, 0x8000_0103
UNBIND, UNBIND_RESP = 0x06, 0x8000_0006
ENQUIRE, ENQUIRE_RESP = 0x15, 0x8000_0015
NACK = 0x8000_0000

BODY = SubmitBodies("Tumira").body("263771200001", b"hello", 0, 0, "")
RECEIPT = b"id:10001 sub:001 dlvrd:001 submit date:2611151200 done date:2611151201 stat:DELIVRD err:000 text:"


@pytest.fixture(autouse=True)
async def _nothing_fails_unseen() -> AsyncIterator[None]:
    """Fail a test when something was raised inside the event loop, which would only be logged."""
    raised: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: raised.append(context))
    yield
    loop.set_exception_handler(before)
    assert raised == []


@pytest.fixture
async def carrier() -> AsyncIterator[Carrier]:
    async with Carrier().listening() as listening:
        yield listening


def at(port: int, *, tls: bool = False) -> Address:
    return Address("127.0.0.1", port, tls, "tumira", "secret")


@asynccontextmanager
async def bound(
    carrier: Carrier, ear: Ear, *following: bytes, timing: Timing | None = None
) -> AsyncIterator[tuple[Session, Line]]:
    """Bind, and drop the line at the end."""
    opening = connect(at(carrier.port), Command.BIND_TRANSCEIVER, ear, timing=timing or Timing())
    task = asyncio.create_task(opening)
    line = await carrier.line()
    await line.let_in(*following)
    session = await task
    try:
        yield session, line
    finally:
        session.abort()
    assert len(ear.ends) == 1


@pytest.mark.parametrize(
    "command", [Command.BIND_RECEIVER, Command.BIND_TRANSMITTER, Command.BIND_TRANSCEIVER]
)
async def test_a_bind_says_who_we_are_and_hears_who_they_are(carrier: Carrier, command: Command) -> None:
    task = asyncio.create_task(connect(at(carrier.port), command, Ear()))
    line = await carrier.line()
    heard = await line.let_in()
    assert heard == (command, 0, 1, b"tumira\0secret\0\0\x34\0\0\0")
    session = await task
    assert session.peer_system_id == "smsc"
    assert session.outstanding == 0
    session.abort()


@pytest.mark.parametrize(
    ("command", "status", "body", "words"),
    [
        (0x8000_0009, 0x0E, b"", "RINVPASWD (0x0E)"),
        (0x8000_0009, 0x0F, b"smsc\0", "RINVSYSID (0x0F)"),
        (0x8000_0009, 0x4A1, b"", "status 0x4A1"),
        (NACK, 0x03, b"", "RINVCMDID (0x03)"),
    ],
)
async def test_a_refused_bind_is_raised_with_its_status(
    carrier: Carrier, command: int, status: int, body: bytes, words: str
) -> None:
    ear = Ear()
    task = asyncio.create_task(connect(at(carrier.port), Command.BIND_TRANSCEIVER, ear))
    line = await carrier.line()
    bind = await line.hear()
    await line.say(pdu(command, bind.sequence, body, status))
    with pytest.raises(BindRefusedError) as refused:
        await task
    assert (refused.value.status, refused.value.words) == (status, words)
    assert await line.hear_end() == b""
    assert ear.ends == []


async def test_a_bind_that_is_never_answered_is_given_up(carrier: Carrier) -> None:
    ear = Ear()
    opening = connect(at(carrier.port), Command.BIND_TRANSCEIVER, ear, timing=Timing(bind_s=0.5))
    with pytest.raises(TimeoutError, match="did not answer"):
        await opening
    line = await carrier.line()
    assert (await line.hear()).command == Command.BIND_TRANSCEIVER
    assert await line.hear_end() == b""
    assert ear.ends == []


@pytest.mark.parametrize("octets", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_a_line_that_ends_before_the_bind_is_an_error_of_the_connection(
    carrier: Carrier, octets: bytes
) -> None:
    ear = Ear()
    task = asyncio.create_task(connect(at(carrier.port), Command.BIND_TRANSCEIVER, ear))
    line = await carrier.line()
    await line.hear()
    await line.say(octets)
    line.writer.close()
    with pytest.raises(ConnectionError):
        await task
    assert ear.ends == []


async def test_a_port_where_nobody_listens_is_an_error_of_the_connection() -> None:
    async with Carrier().listening() as listening:
        port = listening.port
    with pytest.raises(ConnectionRefusedError):
        await connect(at(port), Command.BIND_TRANSCEIVER, Ear())


async def test_giving_up_a_bind_closes_its_connection(carrier: Carrier) -> None:
    ear = Ear()
    task = asyncio.create_task(connect(at(carrier.port), Command.BIND_TRANSCEIVER, ear))
    line = await carrier.line()
    await line.hear()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await line.hear_end() == b""
    assert ear.ends == []


async def test_a_bind_given_up_at_the_moment_of_its_answer_is_not_told_as_a_line_that_ended(
    carrier: Carrier,
) -> None:
    ear = Ear()
    loop = asyncio.get_running_loop()
    _, session = await loop.create_connection(lambda: Session(ear, Timing()), "127.0.0.1", carrier.port)
    binding = asyncio.create_task(session.bind(Command.BIND_TRANSCEIVER, at(carrier.port)))
    line = await carrier.line()
    bind = await line.hear()
    session.data_received(pdu(0x8000_0009, bind.sequence, b"smsc\0"))
    binding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await binding
    assert await line.hear_end() == b""
    assert ear.ends == []


async def test_receipts_that_come_with_the_bind_are_heard_once_the_session_is_known(carrier: Carrier) -> None:
    class Eager(Ear):
        session: Session | None = None

        def settled(self) -> None:
            super().settled()
            assert self.session is not None
            self.session.acknowledge(self.tokens)

    ear = Eager()

    async def open_line() -> None:
        ear.session = await connect(at(carrier.port), Command.BIND_TRANSCEIVER, ear)

    task = asyncio.create_task(open_line())
    line = await carrier.line()
    await line.let_in(pdu(DELIVER, 900, delivery(RECEIPT)), pdu(ENQUIRE, 901), pdu(UNBIND, 902))
    await task
    await ear.wait(receipts=1, ends=1)
    heard = {(each.command, each.sequence) for each in await line.hear_many(3)}
    assert heard == {(DELIVER_RESP, 900), (ENQUIRE_RESP, 901), (UNBIND_RESP, 902)}


def test_a_password_is_not_printed() -> None:
    assert "secret" not in repr(at(2775))


async def test_answers_are_matched_by_number_in_any_order(carrier: Carrier) -> None:
    ear = Ear()
    async with bound(carrier, ear) as (session, line):
        for tag in ("first", "second", "third"):
            session.submit(tag, BODY)
        assert session.outstanding == 3
        first, second, third = await line.hear_many(3)
        assert (first.command, first.status, first.body) == (SUBMIT, 0, BODY)
        assert [each.sequence for each in (first, second, third)] == [2, 3, 4]
        await line.say(
            pdu(SUBMIT_RESP, third.sequence, b"C3\0"),
            pdu(SUBMIT_RESP, first.sequence, b"C1\0"),
            # An error may come without a body; one that nobody waits for is nobody's.
            pdu(SUBMIT_RESP, second.sequence, status=0x58),
            pdu(SUBMIT_RESP, first.sequence, b"again\0"),
            pdu(SUBMIT_RESP, 7777, b"whose\0"),
        )
        await ear.wait(answers=3)
        assert ear.answers == [("third", 0, "C3"), ("first", 0, "C1"), ("second", 0x58, "")]
        assert session.outstanding == 0


class CountingTransport:
    """Passes everything on, and counts the writes."""

    def __init__(self, transport: object) -> None:
        self.writes = 0
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Count, and pass on."""
        self.writes += 1
        self._transport.write(data)  # type: ignore[attr-defined]


async def test_what_is_written_in_one_turn_leaves_in_one_write(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear = Ear()
    async with bound(carrier, ear) as (session, line):
        await line.say(pdu(DELIVER, 900, delivery(RECEIPT)), pdu(DELIVER, 901, delivery(RECEIPT)))
        await ear.wait(receipts=2)
        transport = CountingTransport(session._transport)
        monkeypatch.setattr(session, "_transport", transport)
        for tag in range(20):
            session.submit(tag, BODY)
        session.acknowledge(ear.tokens)
        heard = await line.hear_many(22)
        assert [each.command for each in heard] == [SUBMIT] * 20 + [DELIVER_RESP] * 2
        assert transport.writes == 1


async def test_answers_are_understood_octet_by_octet(carrier: Carrier) -> None:
    ear = Ear()
    async with bound(carrier, ear) as (session, line):
        session.submit("one", BODY)
        session.submit("two", BODY)
        one, two = await line.hear_many(2)
        await line.say_octet_by_octet(
            pdu(SUBMIT_RESP, two.sequence, b"C2\0"),
            pdu(DELIVER, 900, delivery(RECEIPT)),
            pdu(SUBMIT_RESP, one.sequence, b"C1\0"),
        )
        await ear.wait(answers=2, receipts=1)
        assert ear.answers == [("two", 0, "C2"), ("one", 0, "C1")]


async def test_what_comes_together_is_settled_together(carrier: Carrier) -> None:
    ear = Ear()
    async with bound(carrier, ear) as (session, line):
        for tag in range(20):
            session.submit(tag, BODY)
        heard = await line.hear_many(20)
        await line.say(*(pdu(SUBMIT_RESP, each.sequence, b"C\0") for each in heard))
        await ear.wait(answers=20)
        assert ear.lots == 1


@pytest.mark.parametrize(("sent", "told"), [(0x03, 0x03), (0x58, 0x58), (0x00, 0xFF)])
async def test_a_generic_nack_counts_as_an_answer_and_never_as_a_good_one(
    carrier: Carrier, sent: int, told: int
) -> None:
    ear = Ear()
    async with bound(carrier, ear) as (session, line):
        session.submit("refused", BODY)
        heard = await line.hear()
        await line.say(pdu(NACK, 0, status=2), pdu(NACK, heard.sequence, status=sent))
        await ear.wait(answers=1)
        assert ear.answers == [("refused", told, "")]


async def test_silence_is_told_once_and_a_late_answer_still_counts(carrier: Carrier) -> None:
    ear = Ear()
    async with bound(carrier, ear, timing=Timing(response_s=0.1)) as (session, line):
        for tag in ("late", "refused late", "never"):
            session.submit(tag, BODY)
        late, refused, _ = await line.hear_many(3)
        await ear.wait(overdue=3)
        assert ear.overdue == ["late", "refused late", "never"]
        assert session.outstanding == 0
        session.submit("next", BODY)
        following = await line.hear()
        await line.say(
            pdu(SUBMIT_RESP, following.sequence, b"C4\0"),
            pdu(SUBMIT_RESP, late.sequence, b"C1\0"),
            pdu(NACK, refused.sequence, status=8),
        )
        await ear.wait(answers=3)
        assert ear.answers == [("next", 0, "C4"), ("late", 0, "C1"), ("refused late", 8, "")]
        session.abort()
        # What was called unanswered is not named again.
        assert ear.ends == [([], "dropped by us")]


async def test_a_number_is_forgotten_in_the_end(carrier: Carrier) -> None:
    ear = Ear()
    timing = Timing()
    async with bound(carrier, ear) as (session, line):
        session.submit("late", BODY)
        session.submit("too late", BODY)
        late, too_late = await line.hear_many(2)
        now = asyncio.get_running_loop().time()
        session.sweep(now)
        assert ear.overdue == []
        session.sweep(now + timing.response_s)
        assert ear.overdue == ["late", "too late"]
        await line.say(pdu(SUBMIT_RESP, late.sequence, b"C1\0"))
        await ear.wait(answers=1)
        session.sweep(now + timing.response_s + timing.late_s)
        await line.say(pdu(SUBMIT_RESP, too_late.sequence, b"C2\0"), pdu(ENQUIRE, 77))
        assert (await line.hear()).sequence == 77
        assert ear.answers == [("late", 0, "C1")]
        assert len(ear.overdue) == 2


async def test_sequence_numbers_begin_again_after_the_last(carrier: Carrier) -> None:
    ear = Ear()
    async with bound(carrier, ear) as (session, line):
        session._issued = 0x7FFF_FFFE
        for tag in ("last", "first again", "second again"):
            session.submit(tag, BODY)
        heard = await line.hear_many(3)
        assert [each.sequence for each in heard] == [0x7FFF_FFFF, 1, 2]
        await line.say(*(pdu(SUBMIT_RESP, each.sequence, b"C\0") for each in heard))
        await ear.wait(answers=3)
        assert [tag for tag, _, _ in ear.answers] == ["last", "first again", "second again"]


async def test_a_carrier_that_is_there_is_asked_and_kept(carrier: Carrier) -> None:
    ear = Ear()
    async with bound(carrier, ear, timing=Timing(enquire_after_s=0.05)) as (session, line):
        for _ in range(3):
            question = await line.hear()
            assert (question.command, question.body) == (ENQUIRE, b"")
            await line.say(pdu(ENQUIRE_RESP, question.sequence))
        session.submit("after", BODY)
        assert ear.ends == []


async def test_a_carrier_that_fell_silent_is_asked_and_then_left(carrier: Carrier) -> None:
    ear = Ear()
    timing = Timing(enquire_after_s=0.1, enquire_answer_s=0.1)
    async with bound(carrier, ear, timing=timing) as (session, line):
        session.submit("in doubt", BODY)
        assert [each.command for each in await line.hear_many(2)] == [SUBMIT, ENQUIRE]
        await ear.wait(ends=1)
        assert ear.ends == [(["in doubt"], "silent: enquire_link not answered in 0.1 s")]
        assert session.outstanding == 0


async def test_octets_that_become_no_pdu_are_no_sign_of_life(carrier: Carrier) -> None:
    async with bound(carrier, Ear()) as (session, _):
        session._heard_at = 0
        session.data_received(pdu(ENQUIRE, 1)[:15])
        assert session._heard_at == 0
        session.data_received(pdu(ENQUIRE, 1)[15:])
        assert session._heard_at > 0


async def test_it_is_not_the_carrier_that_was_silent_while_this_process_slept(carrier: Carrier) -> None:
    ear = Ear()
    async with bound(carrier, ear) as (session, _):
        session.submit("in doubt", BODY)
        session.sweep(session._ticked_at)
        # As after a long sleep: all clocks are behind, and what came meanwhile is not read yet.
        for clock in ("_ticked_at", "_heard_at"):
            setattr(session, clock, getattr(session, clock) - 1000)
        session._asked_at = session._heard_at
        session._tick()
        assert ear.ends == []
        session._tick()
        assert ear.ends == [(["in doubt"], "silent: enquire_link not answered in 10 s")]


async def test_their_enquire_link_is_answered_while_receipts_wait(carrier: Carrier) -> None:
    ear = Ear()
    async with bound(carrier, ear) as (_, line):
        receipts = (pdu(DELIVER, 900 + number, delivery(RECEIPT)) for number in range(50))
        await line.say(*receipts, pdu(ENQUIRE, 12345))
        assert await line.hear() == (ENQUIRE_RESP, 0, 12345, b"")
        assert len(ear.receipts) == 50


async def test_asking_by_hand_measures_the_way(carrier: Carrier) -> None:
    async with bound(carrier, Ear()) as (session, line):
        asking = asyncio.create_task(session.enquire())
        question = await line.hear()
        assert question.command == ENQUIRE
        await line.say(pdu(ENQUIRE_RESP, question.sequence))
        assert 0 <= await asking < WAIT_S
        asking = asyncio.create_task(session.enquire())
        await line.hear()
        line.drop()
        with pytest.raises(ConnectionError):
            await asking
        with pytest.raises(ConnectionError):
            await session.enquire()


@pytest.mark.parametrize(
    ("octets", "problem"),
    [
        (struct.pack(">IIII", 64 * 1024 + 1, DELIVER, 0, 1), "65537 octets"),
        (struct.pack(">IIII", 15, DELIVER, 0, 1), "15 octets"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "1213486160 octets"),
        (bytes(64), "0 octets"),
    ],
)
async def test_what_is_no_smpp_ends_the_line_after_what_came_before_it(
    carrier: Carrier, octets: bytes, problem: str
) -> None:
    ear = Ear()
    async with bound(carrier, ear) as (session, line):
        session.submit("answered", BODY)
        session.submit("in doubt", BODY)
        answered, _ = await line.hear_many(2)
        await line.say(pdu(SUBMIT_RESP, answered.sequence, b"C1\0"), octets)
        await ear.wait(ends=1)
        assert ear.answers == [("answered", 0, "C1")]
        assert ear.ends[0][0] == ["in doubt"]
        assert problem in ear.ends[0][1]
        with pytest.raises(ConnectionError):
            session.submit("too late", BODY)


async def test_an_unbind_is_answered_and_ends_the_line_after_what_came_with_it(carrier: Carrier) -> None:
    ear = Ear()
    async with bound(carrier, ear) as (session, line):
        session.submit("answered", BODY)
        session.submit("in doubt", BODY)
        answered, _ = await line.hear_many(2)
        await line.say(pdu(UNBIND, 55), pdu(SUBMIT_RESP, answered.sequence, b"C1\0"))
        await ear.wait(ends=1)
        assert ear.answers == [("answered", 0, "C1")]
        assert ear.ends[0][0] == ["in doubt"]
        assert await line.hear_end() == pdu(UNBIND_RESP, 55)


async def test_a_line_that_breaks_names_what_is_in_doubt(carrier: Carrier) -> None:
    ear = Ear()
    async with bound(carrier, ear) as (session, line):
        session.submit("in doubt", BODY)
        await line.hear()
        line.drop()
        await ear.wait(ends=1)
        assert ear.ends[0][0] == ["in doubt"]
        session.abort()
        await session.close(1)
        session.acknowledge([])


async def test_closing_waits_for_answers_and_says_goodbye(carrier: Carrier) -> None:
    ear = Ear()
    async with bound(carrier, ear) as (session, line):
        session.submit("awaited", BODY)
        awaited = await line.hear()
        closing = asyncio.create_task(session.close(WAIT_S))
        await line.say(pdu(DELIVER, 900, delivery(RECEIPT)))
        await ear.wait(receipts=1)
        with pytest.raises(ConnectionError):
            session.submit("too late", BODY)
        session.acknowledge(ear.tokens)
        assert (await line.hear()).command == DELIVER_RESP
        await line.say(pdu(SUBMIT_RESP, awaited.sequence, b"C1\0"))
        goodbye = await line.hear()
        assert goodbye.command == UNBIND
        assert ear.ends == []
        await line.say(pdu(UNBIND_RESP, goodbye.sequence))
        await closing
        assert ear.answers == [("awaited", 0, "C1")]
        assert ear.ends == [([], "closed by us")]
        assert await line.hear_end() == b""


async def test_closing_does_not_wait_for_a_silent_carrier(carrier: Carrier) -> None:
    ear = Ear()
    async with bound(carrier, ear, timing=Timing(unbind_s=0.05)) as (session, line):
        session.submit("in doubt", BODY)
        await session.close(0.05)
        assert ear.ends == [(["in doubt"], "closed by us")]
        assert [each.command for each in await line.hear_many(2)] == [SUBMIT, UNBIND]
        assert await line.hear_end() == b""


async def test_receipts_are_acknowledged_when_they_are_safe(carrier: Carrier) -> None:
    ear = Ear()
    payload = b"\x04\x24" + len(RECEIPT).to_bytes(2, "big") + RECEIPT
    data_sm = b"\0\x01\x01263771200001\0\x05\x00Tumira\0\x04\0\0" + payload
    async with bound(carrier, ear) as (session, line):
        await line.say(
            pdu(DELIVER, 900, delivery(RECEIPT)),
            pdu(DATA, 901, data_sm),
            pdu(DELIVER, 902, delivery(b"", tlvs=payload)),
            pdu(ENQUIRE, 903),
        )
        await ear.wait(receipts=3)
        # Nothing is acknowledged yet: the answer to the question is the first that leaves.
        assert (await line.hear()).command == ENQUIRE_RESP
        assert {(each.carrier_ref, each.recipient, each.state) for each in ear.receipts} == {
            ("10001", "263771200001", "DELIVRD")
        }
        session.acknowledge(ear.tokens)
        assert await line.hear_many(3) == [
            (DELIVER_RESP, 0, 900, b"\0"),
            (DATA_RESP, 0, 901, b"\0"),
            (DELIVER_RESP, 0, 902, b"\0"),
        ]


async def test_other_deliveries_are_acknowledged_at_once_and_dropped(carrier: Carrier) -> None:
    ear = Ear()
    async with bound(carrier, ear) as (_, line):
        await line.say(
            pdu(DELIVER, 900, delivery(b"hello", esm_class=0)),
            pdu(DELIVER, 901, delivery(b"id:10001 stat:DELIVRD", esm_class=0)),
            # Cut short: it would be no better when delivered again.
            pdu(DELIVER, 902, delivery(RECEIPT)[:-1]),
            pdu(DATA, 903, b"\0"),
        )
        assert await line.hear_many(4) == [
            (DELIVER_RESP, 0, 900, b"\0"),
            (DELIVER_RESP, 0, 901, b"\0"),
            (DELIVER_RESP, 0x65, 902, b"\0"),
            (DATA_RESP, 0x65, 903, b"\0"),
        ]
        assert ear.receipts == []


async def test_receipts_beyond_the_bound_are_given_back(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_UNACKNOWLEDGED_MAX", 2)
    ear = Ear()
    async with bound(carrier, ear) as (session, line):
        await line.say(*(pdu(DELIVER, 900 + number, delivery(RECEIPT)) for number in range(3)))
        assert await line.hear() == (DELIVER_RESP, 0x64, 902, b"\0")
        session.acknowledge(ear.tokens)
        await line.hear_many(2)
        await line.say(pdu(DELIVER, 903, delivery(RECEIPT)))
        await ear.wait(receipts=3)


async def test_unknown_requests_are_refused_and_unknown_answers_ignored(carrier: Carrier) -> None:
    async with bound(carrier, Ear()) as (_, line):
        await line.say(
            pdu(0x8000_0777, 1),
            pdu(0x777, 31),
            pdu(SUBMIT, 32, BODY),
            pdu(ENQUIRE_RESP, 9999),
            pdu(ENQUIRE, 33),
        )
        assert await line.hear_many(3) == [(NACK, 3, 31, b""), (NACK, 3, 32, b""), (ENQUIRE_RESP, 0, 33, b"")]


async def test_a_carrier_that_does_not_read_is_left(carrier: Carrier) -> None:
    ear = Ear()
    async with bound(carrier, ear) as (session, line):
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        body = BODY + bytes(60_000)
        # The kernel keeps some megabytes for the other end before ours keeps any.
        for number in range(2_000):
            if ear.ends:
                break
            session.submit(number, body)
            await asyncio.sleep(0)
        assert ear.ends[0][1] == "the other end does not read what it is sent"
        assert len(ear.ends[0][0]) <= 2_000


async def test_a_listener_may_drop_the_line_in_the_middle_of_a_lot(carrier: Carrier) -> None:
    class Touchy(Ear):
        session: Session | None = None

        def answered(self, tag: object, status: int, carrier_ref: str) -> None:
            super().answered(tag, status, carrier_ref)
            assert self.session is not None
            self.session.abort()

    ear = Touchy()
    async with bound(carrier, ear) as (session, line):
        ear.session = session
        session.submit("one", BODY)
        session.submit("two", BODY)
        one, two = await line.hear_many(2)
        await line.say(
            pdu(SUBMIT_RESP, one.sequence, b"C1\0"),
            pdu(SUBMIT_RESP, two.sequence, b"C2\0"),
            pdu(DELIVER, 900, delivery(RECEIPT)),
        )
        await ear.wait(ends=1)
        assert ear.answers == [("one", 0, "C1")]
        assert ear.receipts == []
        assert ear.ends == [(["two"], "dropped by us")]


@pytest.mark.parametrize("seed", range(20))
async def test_no_octets_can_do_more_than_end_the_line(carrier: Carrier, seed: int) -> None:
    chance = random.Random(seed)
    commands = [SUBMIT_RESP, DELIVER, DATA, UNBIND_RESP, ENQUIRE, NACK, 0x8000_0009, 0x777]
    ear = Ear()
    async with bound(carrier, ear) as (session, line):
        for tag in range(10):
            session.submit(tag, BODY)
        pieces = []
        for _ in range(200):
            body = chance.choice([b"", delivery(RECEIPT), chance.randbytes(chance.randint(0, 80))])
            written = bytearray(
                pdu(chance.choice(commands), chance.randint(0, 12), body, chance.choice([0, 8]))
            )
            if body and chance.random() < 0.5:
                written[chance.randint(16, len(written) - 1)] = chance.randint(0, 255)
            pieces.append(bytes(written))
        await line.say(*pieces, bytes(16))
        await ear.wait(ends=1)
        unanswered, problem = ear.ends[0]
        assert problem == "a PDU says that it has 0 octets"
        assert sorted([*unanswered, *(tag for tag, _, _ in ear.answers)], key=str) == list(range(10))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make a certificate for the loopback that nobody else trusts."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed; it makes the certificate of this test")
    folder = tmp_path_factory.mktemp("tls")
    key, chain = folder / "key.pem", folder / "chain.pem"
    kind = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    names = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(key), "-out", str(chain))
    subprocess.run([program, "req", *kind, *names, *files], check=True, capture_output=True, timeout=60)
    return key, chain


async def test_tls_carries_a_session_when_the_certificate_is_trusted(certificate: tuple[Path, Path]) -> None:
    key, chain = certificate
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(chain, key)
    ours = ssl.create_default_context(cafile=str(chain))
    async with Carrier().listening(theirs) as carrier:
        ear = Ear()
        opening = connect(at(carrier.port, tls=True), Command.BIND_TRANSCEIVER, ear, ssl_context=ours)
        task = asyncio.create_task(opening)
        line = await carrier.line()
        await line.let_in()
        session = await task
        session.submit("one", BODY)
        one = await line.hear()
        await line.say(pdu(SUBMIT_RESP, one.sequence, b"C1\0"))
        await ear.wait(answers=1)
        closing = asyncio.create_task(session.close(1))
        goodbye = await line.hear()
        await line.say(pdu(UNBIND_RESP, goodbye.sequence))
        await closing
        assert ear.ends == [([], "closed by us")]


async def test_tls_refuses_a_certificate_that_nobody_vouches_for(certificate: tuple[Path, Path]) -> None:
    key, chain = certificate
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(chain, key)
    async with Carrier().listening(theirs) as carrier:
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(at(carrier.port, tls=True), Command.BIND_TRANSCEIVER, Ear())


class Smsc(ServerPeer):
    """Takes all submits and delivers a receipt for each; lets in who knows the password."""

    system_id = "ours"

    def __init__(self) -> None:
        super().__init__()
        self.acknowledgements: list[tuple[int, int]] = []
        self.events: list[str] = []

    def bound(self, bind: Bind, command: Command) -> int:
        """Ask for the password."""
        self.events.append(f"{command.name} of {bind.system_id}")
        return Status.ROK if bind.password == "secret" else Status.RINVPASWD

    def submitted(self, sequence: int, message_body: bytes) -> None:
        """Answer, and deliver a receipt."""
        assert message_body == BODY
        self.respond(sequence, f"C{sequence}")
        self.deliver(delivery(RECEIPT))

    def acknowledged(self, sequence: int, status: int) -> None:
        """Note it."""
        self.acknowledgements.append((sequence, status))

    def unbound(self) -> None:
        """Note it."""
        self.events.append("unbound")

    def line_ended(self, problem: str) -> None:
        """Note it."""
        self.events.append(problem)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[int, list[Smsc]]]:
    """Serve with our own carrier's end."""
    peers: list[Smsc] = []

    def accept() -> Smsc:
        peers.append(Smsc())
        return peers[-1]

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], peers
    finally:
        for peer in peers:
            peer.abort()
        server.close()
        await server.wait_closed()


async def test_both_of_our_ends_understand_each_other() -> None:
    ear = Ear()
    async with serving() as (port, peers):
        session = await connect(at(port), Command.BIND_TRANSCEIVER, ear)
        assert session.peer_system_id == "ours"
        for tag in range(100):
            session.submit(tag, BODY)
        await ear.wait(answers=100, receipts=100)
        assert ear.answers == [(tag, 0, f"C{tag + 2}") for tag in range(100)]
        session.acknowledge(ear.tokens)
        await session.enquire()
        assert peers[0].acknowledgements == [(number, 0) for number in range(1, 101)]
        await session.close(1)
        goodbye = "the other end said goodbye (unbind)"
        assert peers[0].events == ["BIND_TRANSCEIVER of tumira", "unbound", goodbye]


async def test_our_carriers_end_refuses_a_wrong_password_and_closes() -> None:
    async with serving() as (port, peers):
        address = Address("127.0.0.1", port, tls=False, system_id="tumira", password="wrong")
        with pytest.raises(BindRefusedError, match="RINVPASWD"):
            await connect(address, Command.BIND_TRANSMITTER, Ear())
        assert peers[0].events == ["BIND_TRANSMITTER of tumira", "the bind was refused"]


async def test_our_carriers_end_takes_submits_only_from_who_may_send() -> None:
    bind = b"tumira\0secret\0\0\x34\0\0\0"
    async with serving() as (port, _):
        line = Line(*await asyncio.open_connection("127.0.0.1", port))
        await line.say(pdu(SUBMIT, 1, BODY), pdu(0x01, 2, bind), pdu(SUBMIT, 3, BODY), pdu(0x09, 4, bind))
        await line.say(pdu(0x21, 5), pdu(ENQUIRE, 6), pdu(0x01, 7))
        assert await line.hear_many(7) == [
            (SUBMIT_RESP, 4, 1, b""),
            (0x8000_0001, 0, 2, b"ours\0"),
            (SUBMIT_RESP, 4, 3, b""),
            (0x8000_0009, 5, 4, b""),
            (NACK, 3, 5, b""),
            (ENQUIRE_RESP, 0, 6, b""),
            (0x8000_0001, 5, 7, b""),
        ]
        line.drop()


async def test_our_carriers_end_refuses_a_bind_cut_short() -> None:
    async with serving() as (port, _):
        line = Line(*await asyncio.open_connection("127.0.0.1", port))
        await line.say(pdu(0x09, 1, b"tumira"))
        assert await line.hear() == (0x8000_0009, 2, 1, b"")
        assert await line.hear_end() == b""
        line.drop()
