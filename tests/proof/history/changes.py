"""Changes to a process of the cluster before it starts: its place, its clock, shorter waits, and mistakes.

Each function is named in `start_forked` and called in the new process. The mistakes make the broken twins
of the product that the checks have to catch.
"""

import asyncio
import itertools
import mmap
import os
import struct
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from tests.support.chaos.namespaces import enter
from tests.support.chaos.shifted_clock import follow_clock
from tests.support.processes import changes
from tumira.accounts import rate_limit
from tumira.api import endpoints as api_endpoints
from tumira.api.request import read_send
from tumira.core import backoff
from tumira.core.ids import AccountId
from tumira.delivery import circuit_breaker, follow_up, supervisor
from tumira.delivery.smpp.session import SmppSession
from tumira.delivery.store import refunds
from tumira.delivery.supervisor import CarrierTerms
from tumira.postgres.flusher import Done, Flusher
from tumira.postgres.pinned_connection import PinnedConnection
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement
from tumira.sending import decide
from tumira.sending.types import Admitted
from tumira.webhooks import health
from tumira.webhooks import worker as webhook_worker
from tumira.webhooks.http_response import HttpResponse
from tumira.webhooks.reader import PendingEvent
from tumira.webhooks.sender import EventSender

LEASE_S: Final = 3.0
# One of so many goes wrong, where a twin does not fail at once.
EVERY: Final = 10
CACHED_S: Final = 10.0


def take_place() -> None:
    """Move to the network namespace and follow the clock of this process's machine."""
    namespace = os.environ.get("PROOF_NAMESPACE")
    if namespace:
        enter(Path(namespace))
    clock = os.environ.get("PROOF_CLOCK")
    if clock:
        with Path(clock).open("rb") as file:
            control = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        follow_clock(_change, lambda: timedelta(microseconds=struct.unpack_from("q", control)[0]))


def hurry() -> None:
    """Wait less for whatever is away, so that many faults fit into a minute; no rule changes."""
    changes.hurry()
    _change(supervisor, "LOST_CLAIM_S", LEASE_S)
    for module in (supervisor, follow_up):
        _change(module, "DOUBT_WAIT_S", 1)
    _change(webhook_worker, "LEASE_S", LEASE_S)
    _change(health, "RETRY_WAITS", (timedelta(seconds=0.5),) * len(health.RETRY_WAITS))
    _change(health, "BACKOFF", timedelta(seconds=1))
    _change(backoff, "_RECONNECT_WAIT_MAX_S", 1.0)
    _change(backoff, "_RETRY_WAITS_S", (0.2, 0.5, 1.0))
    _change(circuit_breaker, "OPEN_MIN_S", 0.5)
    _change(circuit_breaker, "OPEN_MAX_S", 2.0)
    smpp, *others = CarrierTerms.__init__.__defaults__ or ()
    quick = replace(smpp, bind_s=2.0, response_s=2.0, quiet_s=2.0, enquire_after_s=2.0, enquire_answer_s=2.0)
    CarrierTerms.__init__.__defaults__ = (quick, *others)


def _change(owner: object, name: str, value: object) -> None:
    patch.object(owner, name, value).start()


# Mistakes; `test_twins.py` names the check that has to notice each.


def forget_keys() -> None:
    """Take a repeated send for a new one."""

    def read(kind: str | None, encoding: str | None, _keys: Sequence[str], body: bytes | None) -> Any:
        return read_send(kind, encoding, (), body)

    _change(api_endpoints, "read_send", read)


def answer_early() -> None:
    """Answer at the commit, before the disk has it."""

    def call(flusher: Flusher, ticket: int, done: Done) -> None:
        assert ticket == flusher._lost
        done(None)

    async def commit(_flusher: Flusher, line: PinnedConnection) -> None:
        await line.commit(durable=False)

    _change(Flusher, "call_when_durable", call)
    _change(Flusher, "commit_durably", commit)


def refund_twice() -> None:
    """Give back twice what a message cost."""
    generous = Statement(
        refunds.SQL_REFUND.text.replace("balance + credit.amount", "balance + 2 * credit.amount")
    )
    generous.names = refunds.SQL_REFUND.names
    assert generous.text != refunds.SQL_REFUND.text
    _change(refunds, "SQL_REFUND", generous)


def submit_twice() -> None:
    """Submit some messages again, and tell nobody."""
    submit = SmppSession.submit
    numbers = itertools.count(1)

    def careless(session: SmppSession, tag: object, body: bytes) -> None:
        submit(session, tag, body)
        if next(numbers) % EVERY == 0:
            submit(session, tag, body)
            session._waiting.popitem()

    _change(SmppSession, "submit", careless)


def forget_the_dead() -> None:
    """Leave what a dead worker had claimed alone."""

    async def take_nothing(*_: Any) -> int:
        return 0

    _change(follow_up, "take_over_from_dead", take_nothing)


def answer_from_cache() -> None:
    """Answer look-ups from a memory of this node, which is up to some seconds old."""
    find = api_endpoints.find_batch
    remembered: dict[str, tuple[float, bytes | None]] = {}

    async def find_remembered(
        database: Database, account_id: AccountId, text: str, admitted: Admitted
    ) -> bytes | None:
        at, found = remembered.get(text, (float("-inf"), None))
        if time.monotonic() - at > CACHED_S:
            found = await find(database, account_id, text, admitted)
            remembered[text] = (time.monotonic(), found)
        return found

    for endpoint in api_endpoints.ENDPOINTS:
        if endpoint.operation == "getBatch":
            endpoint.handle.keywords["find"] = find_remembered  # type: ignore[attr-defined]


def skip_events() -> None:
    """Take some events for delivered that were never sent."""
    send = EventSender.send
    numbers = itertools.count(1)

    def careless(sender: EventSender, pending: PendingEvent) -> None:
        if next(numbers) % EVERY:
            send(sender, pending)
            return
        with patch.object(sender, "_client", _Yes()):
            send(sender, pending)

    _change(EventSender, "send", careless)


class _Yes:
    """An endpoint that takes everything, far away from the network."""

    def post(self, *words: Any) -> None:
        asyncio.get_running_loop().call_soon(words[-1], HttpResponse(200, None, b""))


def limit_each_node() -> None:
    """Let twice as many calls through, as two nodes would that count for themselves."""
    take = rate_limit.take
    _change(
        decide,
        "rate_limit",
        SimpleNamespace(look=rate_limit.look, take=lambda window, limit, now: take(window, 2 * limit, now)),
    )
