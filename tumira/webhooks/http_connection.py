"""How does a connection carry one call after the other, and when is it no longer fit to?"""

import asyncio
from typing import Protocol, cast

from tumira.webhooks.http_response import Answer, AnswerReader

# What a call comes to: an answer, words about its failure, or None when a kept connection was no longer one.
Outcome = Answer | str | None


class Keeper(Protocol):
    """Who keeps connections that no call uses."""

    def put_back(self, connection: "Connection") -> None:
        """Keep a connection for the next call, or end it."""

    def forget(self, connection: "Connection") -> None:
        """Take out a connection that can carry no more calls."""


class Connection(asyncio.Protocol):
    """One connection, which carries one call at a time.

    An outcome is always a result of the future, never an exception, which would be logged as lost where the
    caller is cancelled in that moment.
    """

    def __init__(self, keeper: Keeper, loop: asyncio.AbstractEventLoop, overdue_words: str) -> None:
        self.made_at = self.idle_since = loop.time()
        self._keeper = keeper
        self._loop = loop
        self._overdue_words = overdue_words
        self._transport: asyncio.Transport | None = None
        self._is_reused = False
        # All three are there while a call waits, and only then.
        self._future: asyncio.Future[Outcome] | None = None
        self._reader: AnswerReader | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def ask(self, request: bytes, deadline: float) -> Outcome:
        """Send a request and wait for what it comes to."""
        transport = self._transport
        assert self._future is None
        assert transport is not None
        if transport.is_closing():
            return None if self._is_reused else AnswerReader().finish()
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._future = future
        self._reader = AnswerReader()
        self._timer = self._loop.call_at(deadline, self._overdue)
        transport.write(request)
        try:
            return await future
        except asyncio.CancelledError:
            # Where the outcome came first the connection may serve another call already.
            if future.cancelled():
                self._conclude(None, at_once=True)
            raise

    def end(self, *, at_once: bool = False) -> None:
        """End the connection; nobody waits for it any more."""
        transport = self._transport
        assert transport is not None
        # What was not read yet would keep the connection open for as long as the other end likes.
        if at_once or transport.get_write_buffer_size():
            transport.abort()
        else:
            transport.close()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take a piece of an answer."""
        if self._reader is None:
            # Nothing was asked: what comes is no answer, and must not be taken for the next one.
            self._keeper.forget(self)
            self.end(at_once=True)
            return
        outcome = self._reader.feed(data)
        if outcome is not None:
            self._conclude(outcome)

    def eof_received(self) -> None:
        """Have the transport closed, and the connection not used again before that has happened."""
        self._keeper.forget(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - one end is like another.
        """Note that the connection is gone."""
        self._keeper.forget(self)
        if self._reader is None:
            return
        is_stale = self._is_reused and not self._reader.received
        outcome = self._reader.finish()
        self._conclude(None if is_stale else outcome)

    # Inside.

    def _overdue(self) -> None:
        self._conclude(self._overdue_words, at_once=True)

    def _conclude(self, outcome: Outcome, *, at_once: bool = False) -> None:
        """Tell the outcome, and keep the connection if it can carry another call."""
        future, reader, timer, transport = self._future, self._reader, self._timer, self._transport
        # A call that was cancelled in the very turn in which its outcome came is concluded twice.
        if future is None or reader is None or timer is None or transport is None:
            return
        self._future = self._reader = self._timer = None
        timer.cancel()
        reader.stop()
        if not future.done():
            future.set_result(outcome)
        # An answer may come before the request was read; the rest of that would still be on its way.
        is_free = not transport.is_closing() and not transport.get_write_buffer_size()
        if isinstance(outcome, Answer) and reader.can_go_on and is_free:
            self._is_reused = True
            self.idle_since = self._loop.time()
            self._keeper.put_back(self)
        else:
            self.end(at_once=at_once or not isinstance(outcome, Answer))
