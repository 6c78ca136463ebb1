"""Texts near the line, counted in memory and written behind the answers.

A call pays for a dictionary entry, not for a round trip. What a process has not written when it is killed, at
most five seconds of it, is lost.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from contextvars import Context
from datetime import date, datetime
from hashlib import sha256
from typing import Final

from tumira.content import near_line_store
from tumira.content.near_line_store import SAMPLES_PER_DAY, AccountDay, MarkedSend, SampledText
from tumira.content.store import digest_of
from tumira.core.days import local_day
from tumira.core.ids import AccountId
from tumira.core.loops import log_failure
from tumira.postgres.pool import Database

WRITE_S: Final = 5.0
# Accounts with a text near the line between two writes; of further ones nothing is counted.
ACCOUNTS_MAX: Final = 1_000


def rank_of(account_id: AccountId, day: date, digest: bytes) -> int:
    """Return a text's place in the sample of a day: the same on every node, another one every day."""
    hashed = sha256(account_id.bytes + day.isoformat().encode() + digest).digest()
    return int.from_bytes(hashed[:8], signed=True)


class NearLineCounts:
    """Messages by account and day, with the texts of the lowest ranks."""

    def __init__(self) -> None:
        self.messages: dict[AccountDay, int] = {}
        self.samples: dict[AccountDay, dict[bytes, SampledText]] = {}

    def add(self, marked: MarkedSend, at: datetime) -> None:
        key = (marked.account_id, local_day(at))
        if key not in self.messages and len(self.messages) >= ACCOUNTS_MAX:
            return
        self.messages[key] = self.messages.get(key, 0) + marked.messages
        if marked.text is not None:
            self._sample(key, marked, marked.text, at)

    def _sample(self, key: AccountDay, marked: MarkedSend, text: str, at: datetime) -> None:
        texts = self.samples.setdefault(key, {})
        digest = digest_of(text)
        known = texts.get(digest)
        if known is not None:
            known.messages += marked.messages
            known.last_at = at
            return
        rank = rank_of(*key, digest)
        texts[digest] = SampledText(digest, rank, text, marked.score, at, at, marked.messages)
        if len(texts) > SAMPLES_PER_DAY:
            del texts[max(texts.values(), key=lambda one: one.rank).digest]


async def write(database: Database, counts: NearLineCounts) -> None:
    """Write counts and samples; if that fails, they are lost and nothing else."""
    samples = {key: list(texts.values()) for key, texts in counts.samples.items()}
    try:
        async with database.transaction() as connection:
            await near_line_store.record(connection, counts.messages, samples)
    except Exception as error:  # noqa: BLE001 - a sample is not worth a failed send
        log_failure("could not write texts near the line", error)


async def record(database: Database, marked: Iterable[MarkedSend]) -> None:
    """Count sends that were just committed."""
    counts = NearLineCounts()
    for one in marked:
        counts.add(one, database.clock.now())
    if counts.messages:
        await write(database, counts)


class NearLineRecorder:
    """Collects the marked sends of a process, and writes them five seconds after the first."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counts = NearLineCounts()
        self._closing = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    def add(self, marked: MarkedSend) -> None:
        self._counts.add(marked, self._database.clock.now())
        if self._writer is None or self._writer.done():
            # Not in the context of the call, whose id would stand in the log.
            self._writer = asyncio.create_task(self._write(), context=Context())

    async def _write(self) -> None:
        while self._counts.messages:
            with suppress(TimeoutError):
                async with asyncio.timeout(WRITE_S):
                    await self._closing.wait()
            counts, self._counts = self._counts, NearLineCounts()
            await write(self._database, counts)

    async def close(self) -> None:
        """Write what was collected."""
        self._closing.set()
        if self._writer is not None:
            await self._writer
