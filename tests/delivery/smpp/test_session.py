"""A bound session follows SMPP 3.4, whatever the carrier does."""

import asyncio
import random
import struct
from typing import Any

import pytest

from tests.support.delivery.smpp_peer import WAIT_S, Carrier, RecordingListener, delivery, pdu
from tests.support.delivery.smpp_session import (
    BODY,
    DATA,
    DATA_RESP,
    DELIVER,
    DELIVER_RESP,
    ENQUIRE,
    ENQUIRE_RESP,
    NACK,
    RECEIPT,
    SUBMIT,
    SUBMIT_RESP,
    UNBIND,
    UNBIND_RESP,
    bound,
)
from tumira.delivery.smpp import session as session_module
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.smpp.session import SmppSession

pytestmark = pytest.mark.usefixtures("nothing_fails_unseen")


async def test_answers_are_matched_by_number_in_any_order(carrier: Carrier) -> None:
    async with bound(carrier) as (session, line, listener):
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
        await listener.wait(answers=3)
        assert listener.answers == [("third", 0, "C3"), ("first", 0, "C1"), ("second", 0x58, "")]
        assert session.outstanding == 0


class CountingTransport:
    """Passes everything on, and counts the writes."""

    def __init__(self, transport: object) -> None:
        self.writes = 0
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self.writes += 1
        self._transport.write(data)  # type: ignore[attr-defined]


async def test_what_is_written_in_one_turn_leaves_in_one_write(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bound(carrier) as (session, line, listener):
        await line.say(pdu(DELIVER, 900, delivery(RECEIPT)), pdu(DELIVER, 901, delivery(RECEIPT)))
        await listener.wait(receipts=2)
        transport = CountingTransport(session._transport)
        monkeypatch.setattr(session, "_transport", transport)
        for tag in range(20):
            session.submit(tag, BODY)
        session.acknowledge(listener.tokens)
        heard = await line.hear_many(22)
        assert [each.command for each in heard] == [SUBMIT] * 20 + [DELIVER_RESP] * 2
        assert transport.writes == 1
        # What comes together is handled in parts, so that the first slots are filled before the last answer.
        await line.say(*(pdu(SUBMIT_RESP, each.sequence, b"C\0") for each in heard[:20]))
        await listener.wait(answers=20)
        assert listener.lots == 1 + 10


@pytest.mark.parametrize("last", [b"", b"\0\0\0\1"], ids=["the line falls", "a broken PDU follows"])
async def test_answers_that_came_before_the_end_count(carrier: Carrier, last: bytes) -> None:
    async with bound(carrier) as (session, line, listener):
        for tag in range(20):
            session.submit(tag, BODY)
        heard = await line.hear_many(20)
        await line.say(b"".join(pdu(SUBMIT_RESP, each.sequence, b"C\0") for each in heard) + last)
        line.writer.close()
        await listener.wait(ends=1)
        assert [tag for tag, _, _ in listener.answers] == list(range(20))
        assert listener.ends[0][0] == []


@pytest.mark.parametrize(("sent", "told"), [(0x58, 0x58), (0x00, 0xFF)])
async def test_a_generic_nack_counts_as_an_answer_and_never_as_a_good_one(
    carrier: Carrier, sent: int, told: int
) -> None:
    async with bound(carrier) as (session, line, listener):
        session.submit("refused", BODY)
        heard = await line.hear()
        await line.say(pdu(NACK, 0, status=2), pdu(NACK, heard.sequence, status=sent))
        await listener.wait(answers=1)
        assert listener.answers == [("refused", told, "")]


async def test_silence_is_told_once_and_a_late_answer_still_counts(carrier: Carrier) -> None:
    async with bound(carrier, timing=SmppTimeouts(response_s=0.1)) as (session, line, listener):
        for tag in ("late", "refused late", "never"):
            session.submit(tag, BODY)
        late, refused, _ = await line.hear_many(3)
        await listener.wait(overdue=3)
        assert listener.overdue == ["late", "refused late", "never"]
        assert session.outstanding == 0
        session.submit("next", BODY)
        following = await line.hear()
        await line.say(
            pdu(SUBMIT_RESP, following.sequence, b"C4\0"),
            pdu(SUBMIT_RESP, late.sequence, b"C1\0"),
            pdu(NACK, refused.sequence, status=8),
        )
        await listener.wait(answers=3)
        assert listener.answers == [("next", 0, "C4"), ("late", 0, "C1"), ("refused late", 8, "")]
        session.abort()
        # What was called unanswered is not named again.
        assert listener.ends == [([], "dropped by us")]


async def test_a_number_is_forgotten_in_the_end(carrier: Carrier) -> None:
    timing = SmppTimeouts()
    async with bound(carrier) as (session, line, listener):
        session.submit("late", BODY)
        session.submit("too late", BODY)
        late, too_late = await line.hear_many(2)
        now = asyncio.get_running_loop().time()
        session.sweep(now)
        assert listener.overdue == []
        session.sweep(now + timing.response_s + 0.001)
        assert listener.overdue == ["late", "too late"]
        await line.say(pdu(SUBMIT_RESP, late.sequence, b"C1\0"))
        await listener.wait(answers=1)
        # A little more, because sums of such numbers are rounded.
        session.sweep(now + timing.response_s + timing.late_s + 0.001)
        await line.say(pdu(SUBMIT_RESP, too_late.sequence, b"C2\0"), pdu(ENQUIRE, 77))
        assert (await line.hear()).sequence == 77
        assert listener.answers == [("late", 0, "C1")]
        assert len(listener.overdue) == 2


async def test_sequence_numbers_begin_again_after_the_last(carrier: Carrier) -> None:
    async with bound(carrier) as (session, line, listener):
        session._issued = 0x7FFF_FFFE
        for tag in ("last", "first again", "second again"):
            session.submit(tag, BODY)
        heard = await line.hear_many(3)
        assert [each.sequence for each in heard] == [0x7FFF_FFFF, 1, 2]
        await line.say(*(pdu(SUBMIT_RESP, each.sequence, b"C\0") for each in heard))
        await listener.wait(answers=3)
        assert [tag for tag, _, _ in listener.answers] == ["last", "first again", "second again"]


async def test_a_carrier_is_asked_whether_it_is_there_and_left_when_it_does_not_answer(
    carrier: Carrier,
) -> None:
    timing = SmppTimeouts(enquire_after_s=0.1, enquire_answer_s=0.5)
    async with bound(carrier, timing=timing) as (session, line, listener):
        for _ in range(3):
            question = await line.hear()
            assert (question.command, question.body) == (ENQUIRE, b"")
            await line.say(pdu(ENQUIRE_RESP, question.sequence))
        assert listener.ends == []
        session.submit("in doubt", BODY)
        assert {each.command for each in await line.hear_many(2)} == {SUBMIT, ENQUIRE}
        await listener.wait(ends=1)
        assert listener.ends == [(["in doubt"], "silent: enquire_link not answered in 0.5 s")]
        assert session.outstanding == 0


async def test_octets_that_become_no_pdu_are_no_sign_of_life(carrier: Carrier) -> None:
    async with bound(carrier) as (session, _, _):
        session._heard_at = 0
        session.data_received(pdu(ENQUIRE, 1)[:15])
        assert session._heard_at == 0
        session.data_received(pdu(ENQUIRE, 1)[15:])
        assert session._heard_at > 0


async def test_it_is_not_the_carrier_that_was_silent_while_this_process_slept(carrier: Carrier) -> None:
    async with bound(carrier) as (session, _, listener):
        session.submit("in doubt", BODY)
        session.sweep(session._ticked_at)
        # As after a long sleep: all clocks are behind, and what came meanwhile is not read yet.
        for clock in ("_ticked_at", "_heard_at"):
            setattr(session, clock, getattr(session, clock) - 1000)
        session._asked_at = session._heard_at
        session._tick()
        assert listener.ends == []
        session._tick()
        assert listener.ends == [(["in doubt"], "silent: enquire_link not answered in 10 s")]


async def test_asking_by_hand_measures_the_way(carrier: Carrier) -> None:
    async with bound(carrier) as (session, line, _):
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
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "1213486160 octets"),
    ],
)
async def test_what_is_no_smpp_ends_the_line_after_what_came_before_it(
    carrier: Carrier, octets: bytes, problem: str
) -> None:
    async with bound(carrier) as (session, line, listener):
        session.submit("answered", BODY)
        session.submit("in doubt", BODY)
        answered, _ = await line.hear_many(2)
        await line.say(pdu(SUBMIT_RESP, answered.sequence, b"C1\0"), octets)
        await listener.wait(ends=1)
        assert listener.answers == [("answered", 0, "C1")]
        assert listener.ends[0][0] == ["in doubt"]
        assert problem in listener.ends[0][1]
        with pytest.raises(ConnectionError):
            session.submit("too late", BODY)


async def test_an_unbind_is_answered_and_ends_the_line_after_what_came_with_it(carrier: Carrier) -> None:
    async with bound(carrier) as (session, line, listener):
        session.submit("answered", BODY)
        session.submit("in doubt", BODY)
        answered, _ = await line.hear_many(2)
        await line.say(pdu(UNBIND, 55), pdu(SUBMIT_RESP, answered.sequence, b"C1\0"))
        await listener.wait(ends=1)
        assert listener.answers == [("answered", 0, "C1")]
        assert listener.ends[0][0] == ["in doubt"]
        assert await line.hear_end() == pdu(UNBIND_RESP, 55)


async def test_closing_waits_for_answers_and_says_goodbye(carrier: Carrier) -> None:
    async with bound(carrier) as (session, line, listener):
        session.submit("awaited", BODY)
        awaited = await line.hear()
        closing = asyncio.create_task(session.close(WAIT_S))
        await line.say(pdu(DELIVER, 900, delivery(RECEIPT)))
        await listener.wait(receipts=1)
        with pytest.raises(ConnectionError):
            session.submit("too late", BODY)
        session.acknowledge(listener.tokens)
        assert (await line.hear()).command == DELIVER_RESP
        await line.say(pdu(SUBMIT_RESP, awaited.sequence, b"C1\0"))
        goodbye = await line.hear()
        assert goodbye.command == UNBIND
        assert listener.ends == []
        await line.say(pdu(UNBIND_RESP, goodbye.sequence))
        await closing
        assert listener.answers == [("awaited", 0, "C1")]
        assert listener.ends == [([], "closed by us")]
        assert await line.hear_end() == b""


async def test_closing_does_not_wait_for_a_silent_carrier(carrier: Carrier) -> None:
    async with bound(carrier, timing=SmppTimeouts(unbind_s=0.05)) as (session, line, listener):
        session.submit("in doubt", BODY)
        await session.close(0.05)
        assert listener.ends == [(["in doubt"], "closed by us")]
        assert [each.command for each in await line.hear_many(2)] == [SUBMIT, UNBIND]
        assert await line.hear_end() == b""
        # An ended session stays so.
        session.abort()
        await session.close(1)
        session.acknowledge([])


async def test_receipts_are_acknowledged_when_they_are_safe(carrier: Carrier) -> None:
    payload = b"\x04\x24" + len(RECEIPT).to_bytes(2, "big") + RECEIPT
    data_sm = b"\0\x01\x01263771200001\0\x05\x00Tumira\0\x04\0\0" + payload
    async with bound(carrier) as (session, line, listener):
        await line.say(
            pdu(DELIVER, 900, delivery(RECEIPT)),
            pdu(DATA, 901, data_sm),
            pdu(DELIVER, 902, delivery(b"", tlvs=payload)),
            pdu(ENQUIRE, 903),
        )
        await listener.wait(receipts=3)
        # Nothing is acknowledged yet: the answer to the question is the first that leaves.
        assert (await line.hear()).command == ENQUIRE_RESP
        assert {(each.carrier_ref, each.recipient, each.state) for each in listener.receipts} == {
            ("10001", "263771200001", "DELIVRD")
        }
        session.acknowledge(listener.tokens)
        assert await line.hear_many(3) == [
            (DELIVER_RESP, 0, 900, b"\0"),
            (DATA_RESP, 0, 901, b"\0"),
            (DELIVER_RESP, 0, 902, b"\0"),
        ]


async def test_other_deliveries_are_acknowledged_at_once_and_dropped(carrier: Carrier) -> None:
    async with bound(carrier) as (_, line, listener):
        await line.say(
            # Acknowledgements of a phone, and of its user.
            pdu(DELIVER, 900, delivery(b"hello", esm_class=0x08)),
            pdu(DELIVER, 901, delivery(b"id:10001 stat:DELIVRD", esm_class=0x10)),
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
        assert listener.receipts == []


async def test_replies_are_acknowledged_when_the_listener_has_stored_them(carrier: Carrier) -> None:
    async with bound(carrier) as (session, line, listener):
        await line.say(
            pdu(DELIVER, 900, delivery(b"hello", esm_class=0)),
            pdu(DELIVER, 901, delivery(b"id:10001 stat:DELIVRD", esm_class=0)),
            pdu(ENQUIRE, 33),
        )
        assert (await line.hear()).command == ENQUIRE_RESP
        await listener.wait(replies=2)
        assert [one.payload for one in listener.replies] == [b"hello", b"id:10001 stat:DELIVRD"]
        assert listener.receipts == []
        session.acknowledge(listener.tokens)
        assert await line.hear_many(2) == [(DELIVER_RESP, 0, 900, b"\0"), (DELIVER_RESP, 0, 901, b"\0")]


async def test_receipts_beyond_the_bound_are_given_back(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_UNACKNOWLEDGED_MAX", 2)
    async with bound(carrier) as (session, line, listener):
        await line.say(*(pdu(DELIVER, 900 + number, delivery(RECEIPT)) for number in range(3)))
        assert await line.hear() == (DELIVER_RESP, 0x64, 902, b"\0")
        session.acknowledge(listener.tokens)
        await line.hear_many(2)
        await line.say(pdu(DELIVER, 903, delivery(RECEIPT)))
        await listener.wait(receipts=3)


async def test_unknown_requests_are_refused_and_unknown_answers_ignored(carrier: Carrier) -> None:
    async with bound(carrier) as (_, line, _):
        await line.say(
            pdu(0x8000_0777, 1),
            pdu(0x777, 31),
            pdu(SUBMIT, 32, BODY),
            pdu(ENQUIRE_RESP, 9999),
            pdu(ENQUIRE, 33),
        )
        assert await line.hear_many(3) == [(NACK, 3, 31, b""), (NACK, 3, 32, b""), (ENQUIRE_RESP, 0, 33, b"")]


async def test_a_carrier_that_does_not_read_is_left(carrier: Carrier) -> None:
    async with bound(carrier) as (session, line, listener):
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        body = BODY + bytes(60_000)
        # The kernel keeps some megabytes for the other end before ours keeps any.
        for number in range(2_000):
            if listener.ends:
                break
            session.submit(number, body)
            await asyncio.sleep(0)
        assert listener.ends[0][1] == "the other end does not read what it is sent"
        assert len(listener.ends[0][0]) <= 2_000


async def test_a_listener_may_drop_the_line_in_the_middle_of_a_lot(carrier: Carrier) -> None:
    class Touchy(RecordingListener):
        session: SmppSession | None = None

        def answered(self, tag: object, status: int, carrier_ref: str) -> None:
            super().answered(tag, status, carrier_ref)
            assert self.session is not None
            self.session.abort()

    listener = Touchy()
    async with bound(carrier, listener) as (session, line, _):
        listener.session = session
        session.submit("one", BODY)
        session.submit("two", BODY)
        one, two = await line.hear_many(2)
        await line.say(
            pdu(SUBMIT_RESP, one.sequence, b"C1\0"),
            pdu(SUBMIT_RESP, two.sequence, b"C2\0"),
            pdu(DELIVER, 900, delivery(RECEIPT)),
        )
        await listener.wait(ends=1)
        assert listener.answers == [("one", 0, "C1")]
        assert listener.receipts == []
        assert listener.ends == [(["two"], "dropped by us")]


@pytest.mark.parametrize("seed", range(5))
async def test_no_octets_can_do_more_than_end_the_line(carrier: Carrier, seed: int) -> None:
    chance = random.Random(seed)
    commands = [SUBMIT_RESP, DELIVER, DATA, UNBIND_RESP, ENQUIRE, NACK, 0x8000_0009, 0x777]
    async with bound(carrier) as (session, line, listener):
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
        await listener.wait(ends=1)
        unanswered, problem = listener.ends[0]
        assert problem == "a PDU says that it has 0 octets"
        assert sorted([*unanswered, *(tag for tag, _, _ in listener.answers)], key=str) == list(range(10))
