"""Small sends that are claimed with their accept go to the worker on the same machine without a queue."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.journey.test_sender_names import granted, revoke, senders
from tests.support.delivery.engine import WAIT_S, Engine, numbers, open_engine
from tests.support.postgres.databases import clone, open_directory
from tests.support.sending.batchers import read_call
from tumira.core import metrics
from tumira.delivery import direct_offers, dispatcher, supervisor
from tumira.delivery.direct_offers import DirectOffers
from tumira.delivery.store import queue
from tumira.postgres.flusher import Done, Flusher
from tumira.postgres.pinned_connection import PinnedConnection
from tumira.sending.batcher import Batcher
from tumira.sending.direct import claims, wire
from tumira.sending.direct.claims import ClaimGroup
from tumira.sending.direct.wire import Claims, Peer
from tumira.simulator.misbehaviours import ResponseDelay
from tumira.simulator.smsc import Smsc, run_smsc

BULK: Final = 11
NEVER_S: Final = 1000.0


@pytest.fixture
def home() -> Iterator[Path]:
    # A short path: the name of a socket may have 107 octets.
    with open_directory("tumira-direct-") as path:
        yield path


@pytest.fixture
async def near(database_url: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    """Open an engine whose workers are on the machine of the web process."""
    monkeypatch.setattr(claims, "CONNECT_EVERY_S", 0.05)
    # However slow the machine is.
    monkeypatch.setattr(claims, "OFFER_VALID_S", NEVER_S)
    async with open_engine(database_url, home) as engine:
        yield engine


async def until_offered(engine: Engine, queue: str = "ZW") -> None:
    async def is_offered() -> bool:
        return engine.batcher._claims.find(queue, 1) is not None

    await engine.until(is_offered, f"no places for {queue}")


def passed_on() -> float:
    return float(metrics.CLAIMED_DIRECTLY._value.get())


async def doubts(engine: Engine) -> int:
    return len(await engine.rows("SELECT FROM incidents"))


async def test_a_small_send_goes_to_its_worker_without_a_queue(near: Engine) -> None:
    async with run_smsc() as smsc:
        await near.add_carrier("one", smsc.port)
        near.start_worker()
        caller = await near.open_account()
        await until_offered(near)
        before = passed_on()
        for to in numbers(3):
            await near.send(caller, [to])
        await near.send(caller, numbers(4, start=10))
        await near.until_all("delivered")
        assert passed_on() - before == 7
        assert smsc.submits.received == 7
        (row,) = await near.rows("SELECT count(*) AS queued FROM queue")
        assert row["queued"] == 0
        assert await doubts(near) == 0
        assert await near.audit() == []


async def test_what_no_place_is_offered_for_waits_in_the_queue(near: Engine) -> None:
    async with run_smsc() as smsc, run_smsc() as other:
        await near.add_carrier("one", smsc.port, ["ZW"])
        near.start_worker()
        caller = await near.open_account()
        await until_offered(near)
        before = passed_on()
        # Too many for lane 0, to two countries, and to a country that the carrier does not serve.
        await near.send(caller, numbers(BULK))
        await near.send(caller, ["+263771229999", "+27821230001"])
        await near.send(caller, ["+27821230002"])
        assert passed_on() == before
        assert (await near.message("+27821230002"))["status"] == "queued"
        await near.add_carrier("two", other.port, ["ZA"])
        await near.until_all("delivered")
        assert await near.audit() == []


async def test_places_are_offered_again_as_they_are_used(
    near: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_offers, "OFFERED_MAX", 4)
    monkeypatch.setattr(dispatcher, "LOOK_S", NEVER_S)
    # No answer frees a slot meanwhile.
    async with run_smsc(misbehaviours=[ResponseDelay(2000)]) as smsc:
        await near.add_carrier("one", smsc.port)
        near.start_worker()
        caller = await near.open_account()
        await until_offered(near)
        before = passed_on()
        for to in numbers(12):
            await near.send(caller, [to], "Your parcel is here.")
        # Nothing more is offered while the queue is looked into, so some may go there.
        assert passed_on() - before > 4
        await near.until_all("delivered")


async def test_a_group_has_messages_of_both_kinds(near: Engine) -> None:
    async with run_smsc() as smsc:
        await near.add_carrier("one", smsc.port)
        near.start_worker()
        caller, other = await near.open_account(), await near.open_account()
        await until_offered(near)
        before = passed_on()
        answers = await asyncio.gather(
            near.send(caller, numbers(BULK)),
            near.send(caller, numbers(1, start=50)),
            near.send(other, numbers(2, start=60), "Your parcel is here."),
            near.send(other, numbers(BULK, start=70), "Your parcel is here."),
        )
        assert [answer["accepted"] for answer in answers] == [BULK, 1, 2, BULK]
        await near.until_all("delivered")
        assert passed_on() - before == 3
        assert await near.audit() == []


async def test_a_direct_claim_has_the_sender_name_of_its_account(near: Engine) -> None:
    econet, netone, late = "+263771200001", "+263711200002", "+263771200003"
    async with run_smsc() as smsc:
        await near.add_carrier("one", smsc.port)
        near.start_worker()
        caller = await near.open_account()
        name = await granted(near, caller, "Moyo Stores")
        await until_offered(near)
        before = passed_on()
        await near.send(caller, [econet])
        await near.send(caller, [netone])
        await revoke(near, name)
        await near.send(caller, [late])
        await near.until_all("delivered")
        assert passed_on() - before == 3
        assert senders(smsc, econet) == senders(smsc, netone) == ["Moyo Stores"]
        assert senders(smsc, late) == ["Tumira"]


async def test_nothing_is_passed_on_before_it_is_on_disk(
    near: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await _submitted_before_the_flush(near, monkeypatch) == 0


async def test_twin_a_message_that_is_passed_on_at_the_commit_is_seen(
    near: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_out = Batcher._hand_out

    def early(self: Batcher, group: object, decisions: object, ticket: object, own: ClaimGroup) -> None:
        own.pass_on()
        hand_out(self, group, decisions, ticket, own)  # type: ignore[arg-type]

    monkeypatch.setattr(Batcher, "_hand_out", early)
    assert await _submitted_before_the_flush(near, monkeypatch) > 0


async def _submitted_before_the_flush(near: Engine, monkeypatch: pytest.MonkeyPatch) -> int:
    """Hold back the flush of a group, and return how many passcodes the carrier had by then."""
    held: list[Done] = []
    monkeypatch.setattr(Flusher, "cover", lambda _self, _line: 0)
    monkeypatch.setattr(Flusher, "call_when_durable", lambda _self, _ticket, done: held.append(done))
    # On a machine that stalls, a claim that never comes would be given to the queue meanwhile.
    monkeypatch.setattr(supervisor, "LOST_CLAIM_S", NEVER_S)
    async with run_smsc() as smsc:
        await near.add_carrier("one", smsc.port)
        near.start_worker()
        caller = await near.open_account()
        await until_offered(near)
        # Whatever calls are in a group, the batcher does not wait for the disk itself.
        near.batcher._flusher.wait_s = 1.0
        sends = [near.send(caller, to) for to in (numbers(1), numbers(BULK, start=10))]
        tasks = [asyncio.create_task(send) for send in sends]

        await near.until(partial(_are_known, near, 1 + BULK), "not committed")
        # Those of the queue are claimed, and their claim waits for the disk.
        await near.until(partial(_has_submitted, smsc, BULK), "nothing was submitted")
        await asyncio.sleep(0.2)
        early = smsc.submits.received - BULK
        for done in held:
            done(None)
        await asyncio.gather(*tasks)
        await near.until_all("delivered")
        assert await near.audit() == []
        return early


async def _has_submitted(smsc: Smsc, count: int) -> bool:
    return smsc.submits.received >= count


async def test_a_message_that_never_came_to_its_worker_goes_into_the_queue(
    near: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the web process dies between the commit and passing it on."""
    monkeypatch.setattr(supervisor, "LOST_CLAIM_S", 0.3)
    send = Peer.send
    swallowed: list[msgspec.Struct] = []

    def lose(self: "Peer[object]", frame: msgspec.Struct) -> None:
        if isinstance(frame, Claims):
            swallowed.append(frame)
        else:
            send(self, frame)

    async with run_smsc() as smsc:
        await near.add_carrier("one", smsc.port)
        near.start_worker()
        caller = await near.open_account()
        await until_offered(near)
        monkeypatch.setattr(Peer, "send", lose)
        await near.send(caller, numbers(1))
        await near.send(caller, numbers(2, start=10))
        assert len(swallowed) == 2
        monkeypatch.setattr(Peer, "send", send)
        await near.until_all("delivered")
        assert smsc.submits.received == 3
        assert await doubts(near) == 0
        assert await near.audit() == []


async def test_a_worker_that_stops_leaves_no_direct_claim_in_doubt(near: Engine) -> None:
    async with run_smsc() as smsc:
        await near.add_carrier("one", smsc.port)
        worker = near.start_worker()
        caller = await near.open_account()
        await until_offered(near)
        before = passed_on()
        to = iter(numbers(400))

        async def keep_sending() -> None:
            for number in to:
                await near.send(caller, [number], "Your parcel is here.")

        sending = [asyncio.create_task(keep_sending()) for _ in range(4)]

        async def has_passed_on() -> bool:
            return passed_on() > before

        await near.until(has_passed_on, "nothing was passed on")
        await near.stop_worker(worker)
        near.start_worker()
        await asyncio.gather(*sending)
        await near.until_all("delivered")
        assert smsc.submits.received == 400
        assert await doubts(near) == 0
        assert await near.audit() == []


async def test_what_never_came_to_a_worker_that_stops_goes_into_the_queue(
    near: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the web process is killed and its worker is stopped right after."""
    async with run_smsc() as smsc:
        await near.add_carrier("one", smsc.port)
        worker = near.start_worker()
        caller = await near.open_account()
        await until_offered(near)
        monkeypatch.setattr(ClaimGroup, "pass_on", ClaimGroup.cancel)
        await near.send(caller, numbers(3))
        await near.stop_worker(worker)
        assert await near.statuses() == {"queued": 3}
        assert await near.rows("SELECT FROM workers") == []
        near.start_worker()
        await near.until_all("delivered")
        assert smsc.submits.received == 3
        assert await doubts(near) == 0
        assert await near.audit() == []


async def test_places_are_counted_anew_with_a_worker_that_did_not_read_for_a_while(
    near: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "UNREAD_MAX", 8_000)
    monkeypatch.setattr(supervisor, "LOST_CLAIM_S", 0.3)
    far: list[Peer[wire.ToWorker]] = []
    met = DirectOffers.met

    def remember(self: DirectOffers, peer: Peer[wire.ToWorker]) -> None:
        far.append(peer)
        met(self, peer)

    monkeypatch.setattr(DirectOffers, "met", remember)
    async with run_smsc() as smsc:
        await near.add_carrier("one", smsc.port)
        near.start_worker()
        caller = await near.open_account()
        await until_offered(near)
        (bind,) = near.batcher._claims._by_queue["ZW"]
        opened = bind.limit - bind.used
        (deaf,) = [peer._transport for peer in far]
        (speaking,) = [peer._transport for peer in near.batcher._claims._peers.values()]
        assert deaf is not None
        assert speaking is not None
        deaf.pause_reading()
        # What the kernel keeps for the worker is little.
        speaking.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for number in numbers(100):
            await near.send(caller, [number], "Your parcel is at the counter. " * 5)
        assert speaking.is_closing()
        deaf.resume_reading()
        await near.until_all("delivered")

        async def is_counted_anew() -> bool:
            found = near.batcher._claims._by_queue.get("ZW", ())
            return [one.limit - one.used for one in found] == [opened] and bind not in found

        await near.until(is_counted_anew, "places are missing")
        assert smsc.submits.received == 100
        assert await doubts(near) == 0
        assert await near.audit() == []


async def test_the_queue_is_looked_into_before_places_are_offered_again(
    near: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a carrier comes back, waiting messages are older than those accepted from now on."""
    claim = queue.claim
    is_found, go_on = asyncio.Event(), asyncio.Event()

    async def claim_slowly(*given: Any, **more: Any) -> Any:
        claimed = await claim(*given, **more)
        if claimed:
            is_found.set()
            await go_on.wait()
        return claimed

    monkeypatch.setattr(queue, "claim", claim_slowly)
    async with run_smsc() as smsc:
        port = smsc.port
        await near.add_carrier("one", port)
        near.start_worker()
        caller = await near.open_account()
        await until_offered(near)

    async def is_offered(*, wanted: bool) -> bool:
        return (near.batcher._claims.find("ZW", 1) is not None) == wanted

    await near.until(partial(is_offered, wanted=False), "places are offered without a connection")
    await near.send(caller, numbers(3))
    async with run_smsc(port) as smsc:
        await asyncio.wait_for(is_found.wait(), WAIT_S)
        # Longer than an offer takes.
        await asyncio.sleep(0.1)
        assert await is_offered(wanted=False)
        go_on.set()
        await near.until_all("delivered")
        await until_offered(near)
        assert smsc.submits.received == 3


async def test_reads_do_not_wait_for_a_slow_disk(near: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, flush = PinnedConnection.commit, PinnedConnection.flush
    is_quick = asyncio.Event()

    async def commit_slowly(self: PinnedConnection, *, durable: bool = True) -> None:
        if durable:
            await is_quick.wait()
        await commit(self, durable=durable)

    async def flush_slowly(self: PinnedConnection) -> None:
        await is_quick.wait()
        await flush(self)

    async with run_smsc() as smsc:
        await near.add_carrier("one", smsc.port)
        caller = await near.open_account()
        # The flusher connects.
        await near.send(caller, numbers(BULK))
        near.start_worker()
        await near.until_all("delivered")
        await until_offered(near)
        near.batcher._flusher.wait_s = 1.0
        before = passed_on()
        with monkeypatch.context() as slow:
            slow.setattr(PinnedConnection, "commit", commit_slowly)
            slow.setattr(PinnedConnection, "flush", flush_slowly)
            send = asyncio.create_task(near.send(caller, numbers(1, start=50)))
            await near.until(partial(_are_known, near, BULK + 1), "not committed")
            await asyncio.wait_for(near.batcher.ask(read_call(caller)), WAIT_S)
            assert not send.done()
            assert passed_on() == before
            is_quick.set()
            await send
        assert passed_on() == before + 1
        await near.until_all("delivered")


async def _are_known(engine: Engine, count: int) -> bool:
    return len(await engine.rows("SELECT FROM messages")) == count


async def test_a_worker_that_froze_is_offered_no_more_messages(
    near: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "OFFER_VALID_S", 0.5)
    async with run_smsc() as smsc:
        await near.add_carrier("one", smsc.port)
        near.start_worker()
        await until_offered(near)
        # It says nothing more.
        monkeypatch.setattr(direct_offers.BindOffer, "update", lambda *_: None)

        async def is_over() -> bool:
            return near.batcher._claims.find("ZW", 1) is None

        await near.until(is_over, "the offer is still believed")


async def test_two_services_may_share_a_data_directory(
    database_url: str, server_url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "CONNECT_EVERY_S", 0.05)
    with clone(server_url) as other_url:
        async with (
            run_smsc() as smsc,
            open_engine(database_url, home) as engine,
            open_engine(other_url, home) as other,
        ):
            for one in (engine, other):
                await one.add_carrier("one", smsc.port)
            other.start_worker()
            await until_offered(other)
            caller = await engine.open_account()
            before = passed_on()
            await engine.send(caller, numbers(1))
            assert passed_on() == before
            assert engine.batcher._claims.find("ZW", 1) is None
            assert await engine.statuses() == {"queued": 1}


async def test_others_may_not_offer_anything(
    database_url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "CONNECT_EVERY_S", 0.05)
    directory = home / "workers"
    directory.mkdir(mode=0o770)
    directory.chmod(0o770)
    async with open_engine(database_url, home) as engine, run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()
        caller = await engine.open_account()
        before = passed_on()
        await engine.send(caller, numbers(1))
        await engine.until_all("delivered")
        assert passed_on() == before
    assert list(directory.iterdir()) == []


async def test_a_peer_that_talks_nonsense_is_disconnected(home: Path, near: Engine) -> None:
    offers = DirectOffers("worker", near.database.clock)
    async with offers.listening(home, near.url):
        (path,) = (home / "workers").iterdir()
        for nonsense in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x02hi"):
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(nonsense)
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()
        assert not offers.peers
    assert not path.exists()
