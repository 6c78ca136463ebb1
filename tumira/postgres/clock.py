"""The database's clock: the one by which all nodes decide what is due, over or too old."""

import time
from datetime import UTC, datetime
from typing import Final

from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

STEP_S: Final = 0.001

SQL_NOW: Final = Statement("SELECT clock_timestamp()")


async def read_now(connection: Connection) -> datetime:
    now: datetime = await SQL_NOW.value(connection)
    return now


class Clock:
    """The database's time as a process knows it without asking.

    It is read with every new connection and with every heartbeat. In between, time goes on by the monotonic
    clock, so the clock of this machine does not matter, nor that it is set.
    """

    def __init__(self) -> None:
        # What has to be added to the monotonic clock.
        self._offset_s: float | None = None
        # What `now` returned last, and until when it returns it again.
        self._now = datetime.now(UTC)
        self._now_until = 0.0

    def now(self) -> datetime:
        """Return the database's time; this machine's as long as no database was ever reached.

        Within a millisecond it is the same value, which many rows then share.
        """
        if self._offset_s is None:
            return datetime.now(UTC)
        now_s = time.monotonic()
        if now_s >= self._now_until:
            self._now = datetime.fromtimestamp(now_s + self._offset_s, UTC)
            self._now_until = now_s + STEP_S
        return self._now

    def now_ms(self) -> int:
        """Return the same in milliseconds since 1970, in a third of the time."""
        if self._offset_s is None:
            return time.time_ns() // 1_000_000
        return int((time.monotonic() + self._offset_s) * 1000)

    async def follow(self, connection: Connection) -> None:
        before = time.monotonic()
        now = await read_now(connection)
        after = time.monotonic()
        offset_s = now.timestamp() - (before + after) / 2
        # A difference below the time that the question took may be none.
        if self._offset_s is None or abs(offset_s - self._offset_s) > after - before:
            self._offset_s = offset_s
            self._now_until = 0.0
