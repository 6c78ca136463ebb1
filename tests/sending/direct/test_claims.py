"""Claims for binds of workers on the same machine, with a real connection to each worker."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from tests.support.postgres.databases import open_directory
from tests.support.sending.batchers import until
from tests.support.sending.peers import BODY, OFFER, Notes, meeting, new_batch, offer
from tumira.core import metrics
from tumira.sending.direct import claims, wire
from tumira.sending.direct.claims import DirectClaims
from tumira.sending.direct.wire import Claims, Finished, Offer, Peer, ToWorker, Withdrawal
from tumira.sending.insert import Flight

FIRST, SECOND, THIRD = "+263771200001", "+263771200002", "+263771200003"


@pytest.fixture
def home() -> Iterator[Path]:
    # A short path: the name of a socket may have 107 octets.
    with open_directory("tumira-direct-") as path:
        yield path


@asynccontextmanager
async def worker_of(own: DirectClaims) -> AsyncIterator[tuple[Peer[ToWorker], Notes[ToWorker]]]:
    """Connect a worker that only notes what it receives."""
    notes = Notes[ToWorker]()
    async with meeting(own, notes) as (_, peer):
        yield peer, notes


async def tell(own: DirectClaims, worker: Peer[ToWorker], *offers: Offer) -> None:
    """Make offers, and wait until the last of them is known."""
    for one in offers:
        worker.send(one)
    last = offers[-1]

    def is_known() -> bool:
        found = [bind for (_, token), bind in own._binds.items() if token == last.token]
        return [(bind.limit, list(bind.queues)) for bind in found] == [(last.limit, last.queues)]

    await until(is_known)


def token_of(own: DirectClaims, count: int, queue: str = "ZW") -> str | None:
    found = own.find(queue, count)
    return None if found is None else found.token


async def test_the_bind_with_the_most_places_is_found() -> None:
    own = DirectClaims()
    async with worker_of(own) as (worker, _):
        assert own.find("ZW", 1) is None
        await tell(own, worker, offer(3), offer(4, token="more"), offer(4, token="as many"))
        assert [token_of(own, count) for count in (1, 4, 5)] == ["more", "more", None]
        assert own.find("ZA", 1) is None
        # What was used counts from the first offer on.
        own.begin().claim(new_batch(FIRST, SECOND), None)
        assert [token_of(own, count) for count in (1, 4)] == ["as many", "as many"]
        await tell(own, worker, offer(7, token="more"))
        assert [token_of(own, count) for count in (5, 6)] == ["more", None]


async def test_an_offer_is_believed_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    own = DirectClaims()
    async with worker_of(own) as (worker, _):
        monkeypatch.setattr(claims, "OFFER_VALID_S", 0.05)
        await tell(own, worker, OFFER)
        await until(lambda: own.find("ZW", 1) is None)
        monkeypatch.setattr(claims, "OFFER_VALID_S", 10.0)
        # The same again.
        worker.send(OFFER)
        await until(lambda: own.find("ZW", 10) is not None)


async def test_queues_may_change() -> None:
    own = DirectClaims()
    async with worker_of(own) as (worker, _):
        await tell(own, worker, OFFER, offer(token="other", queues=["ZA"]))
        await tell(own, worker, offer(queues=["ZW-econet", "ZA"], limit=20))
        assert [token_of(own, 1, queue) for queue in ("ZW", "ZW-econet", "ZA")] == [None, "token", "token"]
        await tell(own, worker, offer(queues=[]))
        assert [token_of(own, 1, queue) for queue in ("ZW", "ZW-econet", "ZA")] == [None, None, "other"]


async def test_what_was_claimed_is_passed_on_bind_by_bind() -> None:
    own = DirectClaims()
    async with worker_of(own) as (worker, notes):
        await tell(own, worker, offer(3), offer(2, token="second"))
        group = own.begin()
        batches = [new_batch(FIRST, SECOND), new_batch(THIRD), new_batch(FIRST)]
        written = [
            group.claim(batch, name) for batch, name in zip(batches, (None, "Moyo", None), strict=True)
        ]
        assert group.are_all
        assert [batch.flight for batch in written] == 3 * [Flight("worker", "one/1", 7)]
        assert group.claim(batches[0], None) is batches[0]
        assert group.has_queued
        before = metrics.CLAIMED_DIRECTLY._value.get()
        group.pass_on()
        await until(lambda: len(notes.frames) == 2)
        assert metrics.CLAIMED_DIRECTLY._value.get() - before == 4
        first, second = notes.said
        assert isinstance(first, Claims)
        assert isinstance(second, Claims)
        # The first leaves one place there, the second is for the one with two, the third for either.
        assert [first.token, second.token] == ["token", "second"]
        found = [*first.messages, *second.messages]
        assert [(one.recipient, one.turn) for one in found] == [
            (FIRST, 1000),
            (SECOND, 1001),
            (FIRST, 1000),
            (THIRD, 1000),
        ]
        told = found[-1]
        (message_id,) = batches[1].message_ids
        assert (told.id, told.batch_id, told.account_id) == (
            message_id.bytes,
            batches[1].id.bytes,
            batches[1].account_id.bytes,
        )
        (leg,) = batches[1].legs
        assert (told.country, told.network, told.queue) == ("ZW", leg.network, "ZW")
        assert (told.lane, told.segments, told.body, told.cost) == (0, 1, BODY, leg.cost)
        assert told.created_at == batches[1].created_at
        assert told.expires_at - told.created_at == batches[1].lifetime
        assert [one.sender_name for one in found] == [None, None, None, "Moyo"]
        # Once only.
        group.pass_on()
        group.cancel()
        assert not group._claimed
        assert [bind.used for bind in own._binds.values()] == [3, 1]
        assert [bind.batches for bind in own._binds.values()] == [0, 0]


async def test_places_of_what_was_not_written_are_given_back() -> None:
    own = DirectClaims()
    async with worker_of(own) as (worker, notes):
        await tell(own, worker, offer(3))
        group = own.begin()
        group.claim(new_batch(FIRST, SECOND), None)
        group.claim(new_batch(FIRST, SECOND), None)
        assert not group.are_all
        assert own.find("ZW", 2) is None
        group.cancel()
        assert token_of(own, 3) == "token"
        worker.send(Withdrawal("token"))
        await until(lambda: notes.frames)
        assert notes.said == [Finished("token")]
        assert own.find("ZW", 1) is None


async def test_a_bind_that_is_withdrawn_has_finished_when_all_is_passed_on() -> None:
    own = DirectClaims()
    async with worker_of(own) as (worker, notes):
        await tell(own, worker, OFFER)
        groups = [own.begin(), own.begin(), own.begin()]
        for group in groups:
            group.claim(new_batch(FIRST), None)
        groups[0].pass_on()
        worker.send(Withdrawal("token"))
        worker.send(Withdrawal("unknown"))
        await until(lambda: Finished("unknown") in notes.said)
        # It takes nothing more, and the rest is still to come.
        assert own.find("ZW", 1) is None
        groups[1].pass_on()
        await until(lambda: len(notes.frames) == 3)
        assert Finished("token") not in notes.said
        groups[2].cancel()
        await until(lambda: len(notes.frames) == 4)
        assert notes.said[-1] == Finished("token")
        assert own._binds == {}


async def test_the_binds_of_a_worker_that_is_gone_are_forgotten() -> None:
    own = DirectClaims()
    async with worker_of(own) as (stays, _):
        await tell(own, stays, offer(2, token="stays"))
        async with worker_of(own) as (goes, notes):
            await tell(own, goes, offer(token="goes", worker="other"))
            assert token_of(own, 1) == "goes"
            group = own.begin()
            group.claim(new_batch(FIRST), None)
        assert [token_of(own, count) for count in (1, 2, 3)] == ["stays", "stays", None]
        assert [bind.token for bind in own._binds.values()] == ["stays"]
        # Nobody hears it, and its worker gives it to the queue.
        group.pass_on()
        assert notes.frames == []


async def test_binds_of_two_workers_may_have_one_token() -> None:
    own = DirectClaims()
    async with worker_of(own) as (one, _), worker_of(own) as (other, notes):
        await tell(own, one, offer(2))
        other.send(offer(3))
        await until(lambda: len(own._binds) == 2)
        group = own.begin()
        group.claim(new_batch(FIRST, SECOND, THIRD), None)
        group.pass_on()
        await until(lambda: notes.frames)
        assert token_of(own, 2) == "token"
        assert own.find("ZW", 3) is None


async def test_workers_are_looked_for_where_nobody_else_may_put_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_log", structlog.wrap_logger(None, wrapper_class=structlog.BoundLogger))
    own = DirectClaims(tmp_path, "postgresql://here")
    # No worker has run yet.
    await own._connect()
    directory = wire.sockets_in(tmp_path)
    directory.mkdir(mode=0o770)
    directory.chmod(0o770)
    with capture_logs() as lines:
        await own._connect()
        await own._connect()
    assert [(line["event"], line["directory"], line["problem"]) for line in lines] == [
        ("all messages go through the queue", str(directory), "others may enter the directory")
    ]


async def test_a_group_without_claims_is_not_all_claimed() -> None:
    assert not DirectClaims().begin().are_all


async def test_without_a_data_directory_no_worker_is_looked_for() -> None:
    own = DirectClaims()
    async with own.running():
        assert own._peers == {}


async def test_each_worker_of_the_service_is_met_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "CONNECT_EVERY_S", 0.02)
    directory = wire.sockets_in(home)
    directory.mkdir(mode=0o700)
    url = "postgresql://here"
    # Left by a worker that died.
    dead = directory / f"{wire.name_start(url)}a{wire.SUFFIX}"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(dead))
    stranger, one, other = Notes[ToWorker](), Notes[ToWorker](), Notes[ToWorker]()
    own = DirectClaims(home, url)
    async with (
        listening(directory / f"{wire.name_start('postgresql://there')}b{wire.SUFFIX}", stranger),
        listening(directory / f"{wire.name_start(url)}c{wire.SUFFIX}", one),
        own.running(),
    ):
        async with listening(directory / f"{wire.name_start(url)}d{wire.SUFFIX}", other):
            await until(lambda: other.met_peers and len(own._peers) == 2)
            await asyncio.sleep(0.1)
            other.met_peers[0].send(OFFER)
            await until(lambda: own.find("ZW", 1))
            other.met_peers[0].close()
            await until(lambda: len(other.met_peers) == 2 and len(own._peers) == 2)
            # A new connection counts anew.
            assert own.find("ZW", 1) is None
        assert [len(notes.met_peers) for notes in (stranger, one, other)] == [0, 1, 2]
    await until(lambda: one.lost_peers)
    met = len(one.met_peers)
    await asyncio.sleep(0.1)
    assert len(one.met_peers) == met


@asynccontextmanager
async def listening(path: Path, notes: Notes[ToWorker]) -> AsyncIterator[None]:
    """Listen as a worker does."""
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: Peer[ToWorker](ToWorker, notes), str(path))
    try:
        yield
    finally:
        server.close()
        for peer in notes.met_peers:
            peer.close()
