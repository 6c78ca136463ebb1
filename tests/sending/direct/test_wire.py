"""Frames between a web process and a worker come whole and in order, and nothing else is believed."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import accumulate
from pathlib import Path

import pytest

from tests.support.sending.batchers import PATIENCE_S, until
from tests.support.sending.peers import OFFER, Notes, meeting, octets_of, offer
from tumira.sending.direct import wire
from tumira.sending.direct.wire import Claims, Finished, Peer, ToWeb, ToWorker, Withdrawal


@asynccontextmanager
async def listening(notes: Notes[ToWeb]) -> AsyncIterator[tuple[Peer[ToWeb], socket.socket]]:
    """Open a connection of which one end is a bare socket."""
    near, far = socket.socketpair()
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_connection(lambda: Peer[ToWeb](ToWeb, notes), sock=near)
    far.settimeout(0)
    try:
        yield peer, far
    finally:
        peer.close()
        far.close()


async def heard(notes: Notes[ToWeb]) -> None:
    await until(lambda: notes.frames or notes.lost_peers)


async def test_frames_come_in_order_on_both_sides() -> None:
    web, worker = Notes[ToWeb](), Notes[ToWorker]()
    async with meeting(web, worker) as (of_web, of_worker):
        assert of_web.is_open
        assert (web.met_peers, worker.met_peers) == ([of_web], [of_worker])
        of_worker.send(OFFER)
        of_worker.send(Withdrawal("token"))
        of_web.send(Claims("token", []))
        of_web.send(Finished("token"))
        await until(lambda: len(web.frames) == len(worker.frames) == 2)
        assert web.frames == [(of_web, OFFER), (of_web, Withdrawal("token"))]
        assert worker.said == [Claims("token", []), Finished("token")]
    assert (web.lost_peers, worker.lost_peers) == ([of_web], [of_worker])
    # What is said to a peer that is gone is lost.
    of_web.send(Finished("token"))
    assert len(worker.frames) == 2


async def test_a_frame_may_come_in_pieces_and_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    offers = [offer(limit) for limit in (1, 20, 300)]
    octets = b"".join(map(octets_of, offers))
    ends = list(accumulate(len(octets_of(one)) for one in offers))
    # Together they are longer than one may be.
    monkeypatch.setattr(wire, "FRAME_MAX", max(len(octets_of(one)) for one in offers))
    for size in (1, 3, len(octets_of(offers[0])), len(octets) - 1, len(octets)):
        notes = Notes[ToWeb]()
        peer = Peer[ToWeb](ToWeb, notes)
        for start in range(0, len(octets), size):
            peer.data_received(octets[start : start + size])
            # As soon as the last octet is there.
            assert notes.said == offers[: sum(end <= start + size for end in ends)]
        assert peer._unread == b""


async def test_a_frame_that_is_too_long_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    octets = octets_of(OFFER)
    for longest, is_too_long in ((len(octets), False), (len(octets) - 1, True)):
        monkeypatch.setattr(wire, "FRAME_MAX", longest)
        notes = Notes[ToWeb]()
        async with listening(notes) as (peer, far):
            # Its length is enough to tell.
            far.send(octets[:4])
            if not is_too_long:
                far.send(octets[4:])
            await heard(notes)
            assert (notes.said, peer.is_open) == (([], False) if is_too_long else ([OFFER], True))


@pytest.mark.parametrize(
    "nonsense", [b"\x00\x00\x00\x02hi", octets_of(Finished("token")), b"\x00\x00\x00\x00" + octets_of(OFFER)]
)
async def test_what_is_no_frame_for_this_end_ends_the_connection(nonsense: bytes) -> None:
    notes = Notes[ToWeb]()
    async with listening(notes) as (peer, far):
        far.send(nonsense)
        await until(lambda: notes.lost_peers)
        assert notes.frames == []
        assert not peer.is_open


async def test_a_peer_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "UNREAD_MAX", 0)
    notes = Notes[ToWeb]()
    large = offer(queues=["Q" * 1_000_000])
    async with listening(notes) as (peer, far):
        # Nothing is unread yet.
        peer.send(OFFER)
        assert await asyncio.wait_for(read(far, len(octets_of(OFFER))), PATIENCE_S) == octets_of(OFFER)
        # More than the kernel keeps.
        peer.send(large)
        assert not notes.lost_peers
        peer.send(OFFER)
        await until(lambda: notes.lost_peers)
        assert not peer.is_open
        # It is gone at once, with what was not read.
        left = await asyncio.wait_for(read(far, 2_000_000), PATIENCE_S)
        assert len(left) < len(octets_of(large))


async def read(far: socket.socket, most: int) -> bytes:
    """Read up to `most` octets, or all until the end."""
    found = b""
    while len(found) < most:
        try:
            piece = await asyncio.get_running_loop().sock_recv(far, most - len(found))
        except ConnectionError:
            break
        if not piece:
            break
        found += piece
    return found


def test_a_directory_of_sockets_is_for_its_own_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for mode, problem in (
        (0o700, ""),
        (0o710, "others may enter the directory"),
        (0o701, "others may enter the directory"),
        (0o740, "others may enter the directory"),
    ):
        tmp_path.chmod(mode)
        assert wire.find_problem(tmp_path) == problem
    tmp_path.chmod(0o700)
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    assert (
        wire.find_problem(tmp_path)
        == f"the directory belongs to user {own}, and this process runs as {own + 1}"
    )


def test_services_and_versions_have_sockets_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {wire.name_start("postgresql://one"), wire.name_start("postgresql://two")}
    monkeypatch.setattr(wire, "VERSION", wire.VERSION + 1)
    names.add(wire.name_start("postgresql://one"))
    assert len(names) == 3
    assert not any(one.startswith(other) for one in names for other in names - {one})


def test_the_sockets_are_in_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert wire.sockets_in(Path("data")) == tmp_path / "data" / "workers"
