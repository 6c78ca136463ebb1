"""What a worker offers to web processes on its machine, and what it takes from them."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
import structlog
from structlog.testing import capture_logs

from tests.support.postgres.databases import open_directory
from tests.support.sending.batchers import PATIENCE_S, until
from tests.support.sending.peers import BODY, Notes, meeting, new_batch
from tumira.delivery import direct_offers
from tumira.delivery.direct_offers import BindOffer, DirectOffers
from tumira.delivery.store.queue import ClaimedMessage
from tumira.postgres.clock import Clock
from tumira.sending.direct import claims, wire
from tumira.sending.direct.claims import DirectClaims
from tumira.sending.direct.wire import (
    Claims,
    DirectMessage,
    Finished,
    Offer,
    Peer,
    ToWeb,
    Withdrawal,
)

NUMBER: Final = "+263771200001"
NEVER_S: Final = 1000.0


@pytest.fixture(autouse=True)
def no_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens by time, unless a test says so."""
    monkeypatch.setattr(direct_offers, "OFFER_EVERY_S", NEVER_S)
    monkeypatch.setattr(direct_offers, "FINISH_S", NEVER_S)


@pytest.fixture
def home() -> Iterator[Path]:
    # A short path: the name of a socket may have 107 octets.
    with open_directory("tumira-direct-") as path:
        yield path


class Worker:
    """A worker with one bind that takes direct claims."""

    def __init__(self) -> None:
        self.offers = DirectOffers("worker", Clock())
        self.taken: list[ClaimedMessage] = []
        self.takes = 0
        self.bind = self.offers.add("one/1", 7, self._take)

    def _take(self, claimed: Sequence[ClaimedMessage]) -> None:
        self.takes += 1
        self.taken += claimed


@asynccontextmanager
async def web_of(worker: Worker) -> AsyncIterator[tuple[Peer[ToWeb], Notes[ToWeb]]]:
    """Connect a web process that only notes what it receives."""
    notes = Notes[ToWeb]()
    async with meeting(notes, worker.offers) as (peer, _):
        yield peer, notes


async def heard(notes: Notes[ToWeb], count: int) -> Sequence[ToWeb]:
    await until(lambda: len(notes.frames) >= count)
    # Nothing more comes.
    await asyncio.sleep(0.02)
    assert len(notes.frames) == count
    return notes.said


def limits(said: Sequence[ToWeb]) -> Sequence[int]:
    return [frame.limit for frame in said if isinstance(frame, Offer)]


def messages(count: int = 1, *, made: datetime | None = None) -> list[DirectMessage]:
    """Return messages as the web process passes them on."""
    batch = new_batch(*(f"+2637712{place:05}" for place in range(count)))
    now = made or datetime.now(UTC)
    return [
        DirectMessage(
            id=identifier.bytes,
            batch_id=batch.id.bytes,
            account_id=batch.account_id.bytes,
            country="ZW",
            network="econet",
            queue="ZW",
            lane=0,
            turn=turn,
            recipient=number,
            segments=1,
            body=BODY,
            cost=batch.legs[0].cost,
            created_at=now,
            expires_at=now + batch.lifetime,
            sender_name="Moyo",
        )
        for identifier, number, turn in zip(batch.message_ids, batch.quote.numbers, batch.turns, strict=True)
    ]


async def test_places_are_offered_and_those_that_were_used_count_on() -> None:
    worker = Worker()
    # Nobody hears it.
    worker.bind.update(["ZW"], 10)
    async with web_of(worker) as (web, notes):
        worker.bind.update(["ZW", "ZA"], 10)
        token = worker.bind.token
        assert await heard(notes, 1) == [Offer(token, "worker", "one/1", 7, ["ZW", "ZA"], 10)]
        web.send(Claims(token, messages(4)))
        await until(lambda: worker.taken)
        worker.bind.update(["ZW", "ZA"], 10)
        web.send(Claims(token, messages(3)))
        await until(lambda: len(worker.taken) == 7)
        worker.bind.update(["ZW", "ZA"], 9)
        assert limits(await heard(notes, 2)) == [10, 16]
    assert (worker.bind._taken, worker.bind._told) == ({}, {})
    # A process that connects again counts from nothing, and so does the worker.
    async with web_of(worker) as (_, notes):
        worker.bind.update(["ZW", "ZA"], 10)
        assert limits(await heard(notes, 1)) == [10]


@pytest.mark.parametrize(
    ("places", "is_told"),
    # Six of ten are left. Fewer have to be known at once, many more are worth a word, a few more are not.
    [(5, True), (6, False), (11, False), (12, False), (13, True), (0, True)],
)
async def test_an_offer_changes_when_it_matters(places: int, *, is_told: bool) -> None:
    worker = Worker()
    async with web_of(worker) as (web, notes):
        worker.bind.update(["ZW"], 10)
        web.send(Claims(worker.bind.token, messages(4)))
        await until(lambda: worker.taken)
        worker.bind.update(["ZW"], places)
        assert limits(await heard(notes, 1 + is_told)) == ([10, 4 + places] if is_told else [10])


async def test_an_offer_tells_of_other_queues_at_once() -> None:
    worker = Worker()
    async with web_of(worker) as (_, notes):
        for queues in (["ZW"], ["ZW"], ("ZW",), ["ZW", "ZA"]):
            worker.bind.update(queues, 10)
        said = await heard(notes, 2)
        assert [frame.queues for frame in said if isinstance(frame, Offer)] == [["ZW"], ["ZW", "ZA"]]


async def test_an_offer_is_repeated_while_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    async with web_of(worker) as (_, notes):
        worker.bind.update(["ZW"], 10)
        worker.bind.update(["ZW"], 10)
        assert len(await heard(notes, 1)) == 1
        monkeypatch.setattr(direct_offers, "OFFER_EVERY_S", 0.05)
        await asyncio.sleep(0.06)
        worker.bind.update(["ZW"], 10)
        worker.bind.update(["ZW"], 10)
        assert limits(await heard(notes, 2)) == [10, 10]
        worker.bind.update(["ZW"], 0)
        await asyncio.sleep(0.06)
        # What offers nothing needs no repeating.
        worker.bind.update(["ZW"], 0)
        assert limits(await heard(notes, 3)) == [10, 10, 0]


async def test_an_offer_that_may_not_rise_keeps_what_is_left() -> None:
    worker = Worker()
    async with web_of(worker) as (web, notes):
        worker.bind.update(["ZW"], 10, may_rise=False)
        worker.bind.update(["ZW"], 6)
        web.send(Claims(worker.bind.token, messages(2)))
        await until(lambda: worker.taken)
        worker.bind.update(["ZW"], 20, may_rise=False)
        assert limits(await heard(notes, 2)) == [0, 6]
        worker.bind.update(["ZW"], 3, may_rise=False)
        worker.bind.update(["ZW"], 20, may_rise=True)
        assert limits(await heard(notes, 4)) == [0, 6, 5, 22]


async def test_web_processes_share_the_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_offers, "OFFERED_MAX", 9)
    worker = Worker()
    async with web_of(worker) as (_, one), web_of(worker) as (_, other):
        for places in (7, 100):
            worker.bind.update(["ZW"], places)
        assert limits(await heard(one, 1)) == limits(await heard(other, 1)) == [3]
        worker.bind.update(["ZW"], 2)
        assert limits(await heard(one, 2)) == [3, 1]


async def test_places_are_wanted_while_a_web_process_is_there() -> None:
    worker = Worker()
    wanted = [worker.bind.is_wanted]
    async with web_of(worker):
        wanted.append(worker.bind.is_wanted)
    wanted.append(worker.bind.is_wanted)
    assert wanted == [False, True, False]


async def test_at_most_so_many_places_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_offers, "OFFERED_MAX", 9)
    worker = Worker()
    async with web_of(worker) as (_, notes):
        worker.bind.update(["ZW"], 100)
        assert limits(await heard(notes, 1)) == [9]


async def test_a_message_comes_as_it_was_claimed() -> None:
    worker = Worker()
    async with web_of(worker) as (web, _):
        (sent,) = messages()
        web.send(Claims(worker.bind.token, [sent]))
        await until(lambda: worker.taken)
        (message,) = worker.taken
        assert (message.id.bytes, message.batch_id.bytes, message.account_id.bytes) == (
            sent.id,
            sent.batch_id,
            sent.account_id,
        )
        assert (message.country, message.network, message.queue) == ("ZW", "econet", "ZW")
        assert (message.lane, message.turn, message.segments) == (0, sent.turn, 1)
        assert (message.recipient, message.body, message.cost) == (sent.recipient, BODY, sent.cost)
        assert (message.created_at, message.claimed_at) == (sent.created_at, sent.created_at)
        assert (message.expires_at, message.sender_name) == (sent.expires_at, "Moyo")
        assert (message.again, message.avoid, message.opted_out) == (False, None, False)


async def test_messages_that_were_given_to_the_queue_are_refused_when_they_come() -> None:
    worker = Worker()
    async with web_of(worker) as (web, _):
        came, late, lost = messages(), messages(made=datetime.now(UTC) - direct_offers.LATE), messages()
        web.send(Claims(worker.bind.token, [*came, *late]))
        await until(lambda: worker.taken)
        ids = {name: UUID(bytes=one[0].id) for name, one in (("came", came), ("lost", lost))}
        assert [message.id for message in worker.taken] == [ids["came"]]
        # Late ones have used a place too, and never came.
        assert worker.bind._taken == {next(iter(worker.offers.peers)): 2}
        assert worker.offers.came == {ids["came"]}
        assert worker.offers.give_back(ids.values()) == {ids["lost"]}
        web.send(Claims(worker.bind.token, lost))
        others = messages(2)
        web.send(Claims(worker.bind.token, others))
        await until(lambda: len(worker.taken) == 3)
        assert worker.takes == 2
        assert worker.bind._taken == {next(iter(worker.offers.peers)): 5}
        worker.offers.forget([ids["came"]])
        assert worker.offers.came == {UUID(bytes=one.id) for one in others}


async def test_messages_for_another_lease_of_the_bind_are_not_taken() -> None:
    worker = Worker()
    former = worker.bind.token
    async with web_of(worker) as (web, notes):
        worker.bind.update(["ZW"], 10)
        closing = asyncio.create_task(worker.bind.close())
        assert (await heard(notes, 2))[-1] == Withdrawal(former)
        web.send(Finished(former))
        await asyncio.wait_for(closing, PATIENCE_S)
        worker.bind = worker.offers.add("one/1", 7, worker._take)
        assert worker.bind.token != former
        web.send(Claims(former, messages()))
        web.send(Claims(worker.bind.token, messages()))
        await until(lambda: worker.taken)
        assert len(worker.taken) == len(worker.offers.came) == 1


async def test_a_bind_ends_when_each_web_process_has_finished() -> None:
    worker = Worker()
    token = worker.bind.token
    async with web_of(worker) as (one, one_notes), web_of(worker) as (other, other_notes):
        closing = asyncio.create_task(worker.bind.close())
        await heard(one_notes, 1)
        await heard(other_notes, 1)
        # Until then it takes what was claimed for it.
        one.send(Claims(token, messages()))
        one.send(Finished(token))
        other.send(Claims(token, messages()))
        await until(lambda: len(worker.taken) == 2)
        await asyncio.sleep(0.02)
        assert not closing.done()
        # One that comes later knows nothing of it.
        async with web_of(worker) as (_, late_notes):
            other.send(Finished(token))
            await asyncio.wait_for(closing, PATIENCE_S)
            assert late_notes.frames == []
        assert worker.offers._binds == {}


async def test_a_bind_does_not_wait_for_a_web_process_that_is_gone() -> None:
    worker = Worker()
    async with web_of(worker) as (one, notes):
        async with web_of(worker):
            closing = asyncio.create_task(worker.bind.close())
            await heard(notes, 1)
            one.send(Finished(worker.bind.token))
            await asyncio.sleep(0.02)
            assert not closing.done()
        await asyncio.wait_for(closing, PATIENCE_S)


async def test_a_bind_waits_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_offers, "FINISH_S", 0.05)
    worker = Worker()
    async with web_of(worker):
        await asyncio.wait_for(worker.bind.close(), PATIENCE_S)
        assert worker.offers._binds == {}
    await BindOffer(worker.offers, "one/2", 7, worker._take).close()


async def test_a_web_process_of_the_same_service_finds_the_worker(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "CONNECT_EVERY_S", 0.02)
    worker = Worker()
    url = "postgresql://here"
    web, stranger = DirectClaims(home / "data", url), DirectClaims(home / "data", "postgresql://there")
    async with web.running(), stranger.running():
        async with worker.offers.listening(home / "data", url):
            await until(lambda: worker.offers.peers)
            (path,) = wire.sockets_in(home / "data").iterdir()
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            worker.bind.update(["ZW"], 2)
            await until(lambda: web.find("ZW", 2))
            group = web.begin()
            group.claim(new_batch(NUMBER), None)
            group.pass_on()
            await until(lambda: worker.taken)
            assert stranger._peers == {}
        await until(lambda: not worker.offers.peers and not web._peers)
        assert not path.exists()


async def test_a_worker_needs_a_data_directory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        direct_offers, "_log", structlog.wrap_logger(None, wrapper_class=structlog.BoundLogger)
    )
    worker = Worker()
    with capture_logs() as lines:
        async with worker.offers.listening(None, "postgresql://here"):
            pass
    assert lines == []
    assert not wire.sockets_in(home).exists()
    longest = wire.PATH_OCTETS_MAX - len(
        os.fsencode(wire.sockets_in(home) / f"{wire.name_start('')}{'0' * 12}{wire.SUFFIX}")
    )
    for more, problem in (
        (longest, None),
        (longest + 1, "the path of the data directory is too long for a socket"),
    ):
        # Another folder on the way is a slash longer than its name.
        directory = home / ("d" * (more - 1))
        with capture_logs() as lines:
            async with worker.offers.listening(directory, ""):
                assert wire.sockets_in(directory).exists() == (problem is None)
        assert [line["problem"] for line in lines] == ([] if problem is None else [problem])
    directory = home / "open"
    directory.mkdir()
    wire.sockets_in(directory).mkdir()
    wire.sockets_in(directory).chmod(0o750)
    with capture_logs() as lines:
        async with worker.offers.listening(directory, ""):
            assert list(wire.sockets_in(directory).iterdir()) == []
    assert [line["problem"] for line in lines] == ["others may enter the directory"]


async def test_sockets_without_a_listener_are_removed_when_they_are_old(home: Path) -> None:
    directory = wire.sockets_in(home)
    directory.mkdir(mode=0o700)
    worker, other = Worker(), Worker()
    async with other.offers.listening(home, "postgresql://there"):
        (alive,) = directory.iterdir()
        paths = {name: directory / f"{name}{wire.SUFFIX}" for name in ("old", "new")}
        for path in paths.values():
            with socket.socket(socket.AF_UNIX) as left:
                left.bind(str(path))
        long_ago = (datetime.now(UTC) - timedelta(seconds=direct_offers.STALE_S + 1)).timestamp()
        for path in (paths["old"], alive):
            os.utime(path, (long_ago, long_ago))
        async with worker.offers.listening(home, "postgresql://here"):
            left_there = set(directory.iterdir())
            assert {alive, paths["new"]} < left_there
            assert paths["old"] not in left_there
            assert len(left_there) == 3
            # To look whether it listens leaves no connection.
            await until(lambda: not other.offers.peers)
