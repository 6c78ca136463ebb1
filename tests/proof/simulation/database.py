"""The real PostgreSQL behind a simulated network: one request at a time, in an order that the seed decides.

A transport takes what asyncpg writes and cuts it into requests. Each reaches the server after a virtual
delay, is carried out to its end while virtual time stands still, and its answer comes back after another
delay. A request that waits for a lock is put aside until the other transaction has let go of it. Before each
request the session gets the virtual time, which functions in a schema of their own return instead of
PostgreSQL's.
"""

import asyncio
import re
import socket
import struct
from binascii import crc32
from collections import deque
from collections.abc import Callable
from contextvars import Context
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final, cast

from tests.proof.simulation.loop import CURRENT, VirtualLoop

# When each run begins; the template's partitions are those of this week.
START: Final = datetime(2026, 1, 7, 10, tzinfo=UTC)
START_S: Final = 1_000.0

SCHEMA: Final = "sim"
SEARCH_PATH: Final = f"{SCHEMA}, pg_catalog"
_ZONED: Final = "SELECT coalesce(current_setting('{}', true), '2026-01-07 10:00:00+00')::timestamptz"
SQL_CLOCK: Final = f"""
CREATE SCHEMA {SCHEMA};
CREATE FUNCTION {SCHEMA}.now() RETURNS timestamptz STABLE LANGUAGE sql
    AS $$ {_ZONED.format("sim.began")} $$;
CREATE FUNCTION {SCHEMA}.transaction_timestamp() RETURNS timestamptz STABLE LANGUAGE sql
    AS $$ {_ZONED.format("sim.began")} $$;
CREATE FUNCTION {SCHEMA}.statement_timestamp() RETURNS timestamptz STABLE LANGUAGE sql
    AS $$ {_ZONED.format("sim.now")} $$;
CREATE FUNCTION {SCHEMA}.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
    AS $$ {_ZONED.format("sim.now")} $$;
CREATE FUNCTION {SCHEMA}.pg_postmaster_start_time() RETURNS timestamptz STABLE LANGUAGE sql
    AS $$ SELECT '2026-01-07 09:00:00+00'::timestamptz $$;
CREATE FUNCTION {SCHEMA}.pg_logical_emit_message(boolean, text, text) RETURNS pg_lsn VOLATILE LANGUAGE sql
    AS $$ SELECT '0/0'::pg_lsn $$;
-- Returns when the other session is gone, so that what follows does not depend on who is quicker.
CREATE FUNCTION {SCHEMA}.pg_terminate_backend(pid integer) RETURNS boolean VOLATILE LANGUAGE sql
    AS $$ SELECT pg_catalog.pg_terminate_backend(pid, 10000) $$;
"""

# Real time after which a request without an answer is asked for a lock that it waits for.
PATIENCE_S: Final = 0.005
STUCK_S: Final = 60.0
# The database's clock goes in steps, so that most requests of a transaction need not set it.
STEP_S: Final = 0.01
# In virtual time, as the product's sessions ask for it; by PostgreSQL's own clock it is switched off.
IDLE_IN_TRANSACTION_S: Final = 5.0

_HEAD: Final = struct.Struct("!cI")
_LENGTH: Final = struct.Struct("!I")
_CANCEL: Final = 80877102
# Messages that ask for an answer, or for none; after a flush the answer ends with a description, or an error.
_ENDS: Final = frozenset(b"SQXpH")
_FLUSHED: Final = frozenset({b"T", b"n", b"E"})
_DEADLOCK: Final = b"C40P01\0"
_CANCELLED: Final = b"C57014\0"
_LOCK_NOT_AVAILABLE: Final = b"C55P03\0"
_LOCK_TIMEOUT: Final = re.compile(rb"lock_timeout = (\d+)")


def database_time(now_s: float) -> datetime:
    return START + timedelta(seconds=now_s - START_S)


def _frame(kind: bytes, body: bytes) -> bytes:
    return kind + _LENGTH.pack(len(body) + 4) + body


class Line:
    """A real connection to the server, on which replies are waited for."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(STUCK_S)
        self._socket.connect(path)
        self._read = bytearray()
        self.pid = 0
        # As the last answer said: I for none, T for a transaction, E for one that failed.
        self.state = b""
        self.is_open = True
        self.is_flush = False
        # The server waits for rows, and for nothing else.
        self.is_copying = False

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            self.is_open = False

    def receive(self, wait_s: float) -> bytes | None:
        """Return all frames up to the next end of an answer; None if they are not there in time."""
        self._socket.settimeout(wait_s)
        while True:
            end = self._find_end()
            if end or not self.is_open:
                end = end or len(self._read)
                found = bytes(self._read[:end])
                del self._read[:end]
                return found
            try:
                data = self._socket.recv(262_144)
            except TimeoutError:
                return None
            except OSError:
                data = b""
            if not data:
                self.is_open = False
            self._read += data

    def _find_end(self) -> int:
        place = 0
        while place + 5 <= len(self._read):
            kind, length = _HEAD.unpack_from(self._read, place)
            end: int = place + 1 + length
            if end > len(self._read):
                return 0
            if kind == b"K":
                (self.pid,) = _LENGTH.unpack_from(self._read, place + 5)
            if kind == b"Z":
                self.state = bytes(self._read[place + 5 : end])
                return end
            if self.is_flush and kind in _FLUSHED:
                return end
            self.is_copying = kind == b"G"
            if kind == b"G" or (kind == b"R" and _LENGTH.unpack_from(self._read, place + 5)[0] != 0):
                return end
            place = end
        return 0

    def end(self) -> None:
        """Close, and return when the server has ended the session and let go of its locks."""
        if self.is_open:
            self.send(_frame(b"X", b""))
        self._socket.settimeout(STUCK_S)
        while self.is_open:
            try:
                self.is_open = bool(self._socket.recv(262_144))
            except OSError:
                self.is_open = False
        self._socket.close()

    def value(self, sql: str) -> str:
        """Carry out a statement with one value; for a line of our own."""
        self.send(_frame(b"Q", sql.encode() + b"\0"))
        answer = self.receive(STUCK_S)
        assert answer is not None
        place = 0
        while place < len(answer):
            kind, length = _HEAD.unpack_from(answer, place)
            if kind == b"D":
                return answer[place + 11 : place + 1 + length].decode()
            place += 1 + length
        return ""


class TypeCache:
    """Answers about types, which asyncpg asks for on each connection and which are the same in all clones."""

    def __init__(self) -> None:
        self.parsed: dict[bytes, bytes] = {}
        self.answers: dict[bytes, bytes] = {}


# The second is asked around the first; sessions of ours have no JIT anyway.
_ABOUT_TYPES: Final = (b"WITH RECURSIVE typeinfo_tree", b"SELECT current_setting('jit')")


class Server:
    """All sessions of a run with its database."""

    def __init__(self, path: str, database: str, user: str, chance: Random, types: TypeCache) -> None:
        self._path = path
        self.types = types
        self._chance = chance
        self._control = Line(path)
        self._control.send(_startup({"user": user, "database": database}))
        self._control.receive(STUCK_S)
        assert self._control.is_open
        self.sessions: list[Session] = []
        self._parked: list[Session] = []
        self._count = 0
        self.requests = 0
        # The world may make it slow.
        self.slow_s = 0.0

    @property
    def loop(self) -> VirtualLoop:
        return cast("VirtualLoop", asyncio.get_running_loop())

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        await asyncio.sleep(self.delay_s())
        self._count += 1
        protocol = factory()
        session = Session(self, self.loop, self._count, Line(self._path), protocol)
        self.sessions.append(session)
        protocol.connection_made(session)
        return session, protocol

    def delay_s(self) -> float:
        chance = self._chance.random()
        quick_s = 0.0002 + 0.002 * self._chance.random()
        return quick_s + (self.slow_s + 0.05 * self._chance.random() if chance < 0.02 or self.slow_s else 0.0)

    def is_waiting(self, line: Line) -> bool:
        waits = self._control.value(f"SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = {line.pid}")
        return waits != "0"

    def wait_for(self, session: "Session") -> bytes | None:
        """Return the answer to a request that was sent, or None if it waits for a lock."""
        waited_s = 0.0
        while True:
            answer = session.line.receive(PATIENCE_S)
            if answer is not None:
                if _DEADLOCK in answer:
                    self.loop.problems.append("the database found a deadlock")
                return answer
            if session.line.pid and not _is_running(session.line.pid) and self.is_waiting(session.line):
                return None
            waited_s += PATIENCE_S
            assert waited_s < STUCK_S, "the database does not answer"

    def ask(self, sql: str) -> str:
        """Return one value, on a session of the world's own, while nothing else happens."""
        return self._control.value(sql)

    def park(self, session: "Session") -> None:
        self.loop.trace.note(self.loop.now_s, f"{session.name} waits for a lock")
        self._parked.append(session)
        if session.lock_timeout_s is not None:
            self.loop.at(session.lock_timeout_s, self._end_wait, session, session.turn)

    def _end_wait(self, session: "Session", turn: int) -> None:
        """End a wait for a lock that took too long, as PostgreSQL's own timer would."""
        if session in self._parked and session.turn == turn:
            self._control.value(f"SELECT pg_cancel_backend({session.line.pid})")
            answer = session.line.receive(STUCK_S)
            assert answer is not None
            self._parked.remove(session)
            session.answered(answer.replace(_CANCELLED, _LOCK_NOT_AVAILABLE))

    def look_at_parked(self) -> None:
        """Let those go on that wait for a lock no more."""
        for session in tuple(self._parked):
            # Another one may have ended meanwhile, and let this one go on.
            if session in self._parked and not self.is_waiting(session.line):
                answer = self.wait_for(session)
                if answer is not None:
                    self._parked.remove(session)
                    session.answered(answer)

    def find_terminated(self) -> None:
        """Let those learn of it whose session was terminated by another."""
        pids = self._control.value(
            "SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE datname = current_database()"
        ).split()
        for session in tuple(self.sessions):
            if session.line.pid and str(session.line.pid) not in pids:
                self.loop.trace.note(self.loop.now_s, f"{session.name} terminated")
                if session in self._parked:
                    self._parked.remove(session)
                session.line.is_open = False
                session.break_off(carried_out=False)

    def cancel(self, pid: int, line: Line, request: bytes) -> None:
        """Cancel a statement that waits for a lock; no other is under way."""
        for session in tuple(self._parked):
            if session.line.pid == pid:
                line.send(request)
                line.receive(STUCK_S)
                answer = session.line.receive(STUCK_S)
                assert answer is not None
                self._parked.remove(session)
                session.answered(answer)

    def end(self, session: "Session") -> None:
        if session in self._parked:
            self._parked.remove(session)
            self._control.value(f"SELECT pg_catalog.pg_terminate_backend({session.line.pid}, 10000)")
        session.line.end()
        if session in self.sessions:
            self.sessions.remove(session)
        self.look_at_parked()

    def close(self) -> None:
        for session in tuple(self.sessions):
            self.end(session)
        self._control.end()


class Session(asyncio.Transport):
    """The client's end of a session, as asyncpg sees it."""

    def __init__(
        self, server: Server, loop: VirtualLoop, number: int, line: Line, protocol: asyncio.BaseProtocol
    ) -> None:
        super().__init__()
        self.line = line
        self._server = server
        self._loop = loop
        self._protocol = cast("asyncio.Protocol", protocol)
        self.process = CURRENT.get()
        self._context = Context()
        self._context.run(CURRENT.set, self.process)
        self.name = f"{self.process.name if self.process else 'world'} db{number}"
        self._out = bytearray()
        self._is_started = False
        self._is_cancel = False
        self._requests: deque[bytes] = deque()
        self._is_busy = False
        self._is_closed = False
        # To be ended once what is under way was carried out.
        self._is_ending = False
        self.turn = 0
        # In virtual time, until the end of the transaction; by PostgreSQL's own clock it is switched off.
        self.lock_timeout_s: float | None = None
        self._said = ""
        self._listens = self._notifies = False
        self._statements: dict[bytes, str] = {}
        self._numbered: set[bytes] = set()
        self._ending: set[bytes] = set()
        # The times that the session has.
        self._told: dict[str, str] = {}
        self._is_numbered = self._ends_others = False
        # Statements about types, each with how to prepare it while it is not on the server.
        self._unparsed: dict[bytes, tuple[bytes, bytes | None]] = {}
        self._about_types: tuple[dict[bytes, bytes], bytes] | None = None
        if self.process is not None:
            self.process.connections.append(self)

    # The transport.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.line._socket if name == "socket" else default

    def is_closing(self) -> bool:
        return self._is_closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write(self, data: Any) -> None:
        if self._is_closed:
            return
        self._out += data
        self._cut()
        self._go_on()

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._loop.call_soon(self._protocol.connection_lost, None, context=self._context)
            self._leave()

    def died(self) -> None:
        self._is_closed = True
        self._leave()

    def break_off(self, *, carried_out: bool) -> None:
        """Lose the connection on the way; what was asked last may have been carried out."""
        if self._is_closed:
            return
        self._is_closed = True
        if not carried_out:
            self._requests.clear()
        self._loop.call_soon(
            self._protocol.connection_lost, ConnectionResetError("cut"), context=self._context
        )
        self._leave()

    def _leave(self) -> None:
        if self.process is not None and self in self.process.connections:
            self.process.connections.remove(self)
        self._is_ending = True
        if not self._is_busy:
            self._loop.at(self._server.delay_s(), self._end)

    def _end(self) -> None:
        if self in self._server.sessions:
            self._server.end(self)

    # Requests.

    def _cut(self) -> None:
        while True:
            if not self._is_started:
                if len(self._out) < 8:
                    return
                length, code = struct.unpack_from("!II", self._out)
                if len(self._out) < length:
                    return
                first = bytes(self._out[:length])
                del self._out[:length]
                self._is_started = True
                self._is_cancel = code == _CANCEL
                self._requests.append(first if self._is_cancel else _prepared_startup(first))
                continue
            place = 0
            while place + 5 <= len(self._out):
                kind, length = _HEAD.unpack_from(self._out, place)
                if place + 1 + length > len(self._out):
                    return
                place += 1 + length
                if kind[0] in _ENDS:
                    break
            else:
                return
            request = bytes(self._out[:place])
            del self._out[:place]
            self._requests.append(request)

    def _go_on(self) -> None:
        if not self._is_busy and self._requests:
            self._is_busy = True
            self.turn += 1
            self._loop.at(self._server.delay_s(), self._carry_out)

    def _carry_out(self) -> None:
        if not self._requests:
            self._is_busy = False
            if self._is_ending:
                self._end()
            return
        request = self._requests.popleft()
        self._server.requests += 1
        if self._is_cancel:
            self._server.cancel(struct.unpack_from("!I", request, 8)[0], self.line, request)
            self.answered(b"")
            return
        if request[:1] == b"X":
            self._say_goodbye()
            return
        self._said = self._describe(request)
        known = self._answer_about_types(request)
        if known is not None:
            self.answered(known)
            return
        self._carry_out_really(request)

    def _say_goodbye(self) -> None:
        """End the session because the client asked for it, which then waits for the end of the connection."""
        self._server.end(self)
        if not self._is_closed:
            self._is_closed = True
            self._loop.call_soon(self._protocol.connection_lost, None, context=self._context)
        if self.process is not None and self in self.process.connections:
            self.process.connections.remove(self)

    def _carry_out_really(self, request: bytes) -> None:
        self._listens = self._listens or b"LISTEN" in request
        self._notifies = self._notifies or b"pg_notify" in request
        limit = _LOCK_TIMEOUT.search(request) if request[:1] == b"Q" else None
        if limit is not None:
            self.lock_timeout_s = int(limit[1]) / 1000
            request = request.replace(limit[1], b"0".ljust(len(limit[1])))
        clock = self._clock(request)
        self.line.is_flush = False
        self.line.send(clock + request)
        if clock:
            told = self.line.receive(STUCK_S)
            assert told is not None
            assert b"ERROR" not in told, told
        self.line.is_flush = request[-5:-4] == b"H"
        answer = self._server.wait_for(self)
        if answer is None:
            self._server.park(self)
            return
        if self._about_types is not None:
            answers, key = self._about_types
            answers[key] = answer
        self.answered(answer)
        self._server.look_at_parked()
        if self._ends_others:
            self._server.find_terminated()

    def _answer_about_types(self, request: bytes) -> bytes | None:
        """Return what was answered before to a question about types; the server is not asked again."""
        self._about_types = None
        types = self._server.types
        if request[:1] == b"P" and request[5:].split(b"\0", 2)[1].lstrip().startswith(_ABOUT_TYPES):
            name, text, _ = request[5:].split(b"\0", 2)
            is_known = text in types.parsed
            self._unparsed[name] = (text, request if is_known else None)
            if is_known:
                return types.parsed[text]
            self._about_types = (types.parsed, text)
            return None
        if request[:1] == b"B" and self._unparsed:
            _, name, rest = request[5:].split(b"\0", 2)
            if name not in self._unparsed:
                return None
            text, parse = self._unparsed[name]
            found = types.answers.get(text + rest)
            if found is not None:
                return found[:-1] + self.line.state
            if parse is not None:
                self._unparsed[name] = (text, None)
                self.line.is_flush = True
                self.line.send(parse)
                self.line.receive(STUCK_S)
            self._about_types = (types.answers, text + rest)
        return None

    def _clock(self, request: bytes) -> bytes:
        """Return the request that tells the session the time, unless it would be refused."""
        # After a flush nothing may come in between: it may have failed, and waits for the end of its series.
        if self.line.state not in {b"I", b"T"} or self.line.is_flush or self.line.is_copying:
            return b""
        now = database_time(self._loop.now_s // STEP_S * STEP_S).isoformat()
        told = {"now": now}
        if self.line.state == b"I" or b"BEGIN" in request:
            told["began"] = now
        changed = [f"SET sim.{name} TO '{now}'" for name in told if self._told.get(name) != now]
        self._told |= told
        return _frame(b"Q", "; ".join(changed).encode() + b"\0") if changed else b""

    def answered(self, answer: bytes) -> None:
        if self.line.state != b"T":
            # A transaction that was rolled back took its settings with it.
            self._told.clear()
            self.lock_timeout_s = None
        now_s = self._loop.now_s
        is_first = answer[:1] == b"R"
        checksum = 0 if is_first or self._is_numbered else crc32(answer)
        self._loop.trace.note(now_s, f"{self.name} {self._said} -> {len(answer)} {checksum:08x}")
        if self._notifies and not is_first:
            self._wake_listeners()
        if self._is_ending:
            self._is_busy = False
            self._carry_out()
            return
        self._loop.at(self._server.delay_s(), self._deliver, answer)

    def _deliver(self, answer: bytes) -> None:
        self._is_busy = False
        if self._is_closed:
            if self._is_ending:
                self._end()
            return
        if answer:
            self._loop.call_soon(self._protocol.data_received, answer, context=self._context)
        if not self.line.is_open:
            self._is_closed = True
            self._loop.call_soon(self._protocol.connection_lost, None, context=self._context)
            self._leave()
            return
        if self.line.state in {b"T", b"E"}:
            self._loop.at(IDLE_IN_TRANSACTION_S, self._end_idle, self.turn)
        self._go_on()

    def _end_idle(self, turn: int) -> None:
        """End a session that did nothing in its transaction for too long, as PostgreSQL would."""
        if self.turn == turn and not self._is_closed and not self._is_busy:
            self._loop.trace.note(self._loop.now_s, f"{self.name} idle in transaction")
            self._is_closed = True
            self._loop.call_soon(self._protocol.connection_lost, None, context=self._context)
            self._leave()

    def _describe(self, request: bytes) -> str:
        """Say in a few words what is asked; asyncpg's names of statements differ from run to run."""
        kind = request[:1]
        self._is_numbered = self._ends_others = False
        if kind == b"Q":
            return _shorten(request[5:-1])
        if kind == b"P":
            name, text, _ = request[5:].split(b"\0", 2)
            self._statements[name] = _shorten(text)
            if b"pg_terminate_backend" in text:
                self._ending.add(name)
            if b"xmin" in text:
                # Transactions are numbered for the whole server.
                self._numbered.add(name)
            return f"parse {self._statements[name]}"
        if kind == b"B":
            _, name, rest = request[5:].split(b"\0", 2)
            self._is_numbered = name in self._numbered
            self._ends_others = name in self._ending
            return f"{self._statements.get(name)} {crc32(rest):08x}"
        return "start" if kind == b"\0" else kind.decode()

    def _wake_listeners(self) -> None:
        notice = _frame(b"A", _LENGTH.pack(0) + b"tumira_queue\0\0")
        for session in self._server.sessions:
            if session._listens and not session._is_closed:
                self._loop.at(self._server.delay_s(), session._hear, notice)

    def _hear(self, notice: bytes) -> None:
        if not self._is_closed:
            self._loop.call_soon(self._protocol.data_received, notice, context=self._context)


def _is_running(pid: int) -> bool:
    """Tell whether a process of the server has a processor or waits for one; False where nobody can tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "R"
    except OSError:
        return False


def _shorten(sql: bytes) -> str:
    return " ".join(sql.decode(errors="replace").split())[:80]


def _startup(options: dict[str, str]) -> bytes:
    body = b"".join(f"{key}\0{value}\0".encode() for key, value in options.items()) + b"\0"
    return struct.pack("!II", len(body) + 8, 196608) + body


def _prepared_startup(packet: bytes) -> bytes:
    """Add the schema with the clock, and leave what depends on real time to the simulation."""
    words = packet[8:].rstrip(b"\0").decode().split("\0")
    options = dict(zip(words[::2], words[1::2], strict=False))
    options |= {
        "search_path": SEARCH_PATH,
        "idle_in_transaction_session_timeout": "0",
        "client_connection_check_interval": "0",
        "synchronize_seqscans": "off",
        "max_parallel_workers_per_gather": "0",
    }
    return _startup(options)
