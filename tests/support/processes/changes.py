"""Changes to a process before it starts: shorter times, and mistakes that a test has to notice.

Each function is named in `start_part` and called in the new process.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

import asyncpg
from msgspec import structs

from tumira.accounts.lifetimes import Lifetimes
from tumira.delivery import follow_up, sender, supervisor
from tumira.delivery.store import queue
from tumira.delivery.store.waiting import QueuePlace
from tumira.operations import maintenance
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.replies import opt_outs
from tumira.replies.opt_outs import OptedOut
from tumira.sending.lifecycle import HAND_OVER_MIN
from tumira.uploads.check_file import FileChecker

BEAT_S: Final = 0.2
LEASE_S: Final = 3.0
LONG_S: Final = 60.0
# For so long a passcode may be handed over.
USABLE: Final = timedelta(seconds=1.5)


def _change(owner: object, name: str, value: object) -> None:
    patch.object(owner, name, value).start()


def hurry() -> None:
    """Notice carriers and the deaths of workers sooner."""
    _change(supervisor, "BEAT_S", BEAT_S)
    for module in (supervisor, maintenance):
        _change(module, "LEASE_S", LEASE_S)


def wait_for_checks() -> None:
    """Wait for the check of a file, also on a busy machine, instead of showing how far it is."""
    _change(FileChecker.__init__, "__defaults__", (LONG_S,))


def short_lifetime(_: Lifetimes, *, is_passcode: bool) -> timedelta:
    """Return a lifetime in which passcodes may be submitted for a moment only."""
    return HAND_OVER_MIN + USABLE if is_passcode else timedelta(hours=24)


def shorten_passcodes() -> None:
    _change(Lifetimes, "of", short_lifetime)


# Mistakes.


def submit_expired() -> None:
    """Submit, retry and resend whatever the lifetime."""

    def always(_expires_at: datetime, _now: datetime) -> int:
        return 60

    async def find_nothing(*_: object) -> dict[UUID, QueuePlace]:
        return {}

    _change(follow_up, "list_expired", find_nothing)
    for module in (follow_up, sender):
        _change(module, "remaining_s", always)


def remember_names() -> None:
    """Look up the sender name of an account once."""
    remembered: dict[UUID, str | None] = {}
    read = queue._started

    async def remember(
        connection: Connection, taken: Sequence[asyncpg.Record]
    ) -> Sequence[queue.ClaimedMessage]:
        claimed = await read(connection, taken)
        for one in claimed:
            remembered.setdefault(one.account_id, one.sender_name)
        return [structs.replace(one, sender_name=remembered[one.account_id]) for one in claimed]

    _change(queue, "_started", remember)


def submit_to_all() -> None:
    """Submit waiting messages also to those who have opted out since."""
    careless = Statement(queue.SQL_CLAIM.text.replace("opt_out.number IS NOT NULL AS", "false AS"))
    careless.names = queue.SQL_CLAIM.names
    assert careless.text != queue.SQL_CLAIM.text
    _change(queue, "SQL_CLAIM", careless)


def accept_for_all() -> None:
    """Accept messages also to those who have opted out."""

    async def find_nobody(*_: Any) -> OptedOut:
        return OptedOut()

    _change(opt_outs, "find", find_nobody)
