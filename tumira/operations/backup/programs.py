"""PostgreSQL's programs for backups, run as our own user on the database of a URL.

Nothing of the URL stands on a command line, where every user of the machine could read it: all of it goes
through the environment.
"""

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from tumira.core.errors import OperatorError
from tumira.postgres.embedded.binaries import programs
from tumira.postgres.embedded.files import ServerUser, Tell, is_disk_full, place_at, user_name
from tumira.postgres.embedded.process import end_with_parent

Watch = Callable[[], None]

WATCH_S: Final = 0.25
LINES_KEPT: Final = 50
LINE_BYTES_MAX: Final = 1024 * 1024
STOP_S: Final = 10.0

_MARKS: Final = ("FATAL:", "ERROR:", "error:")
# What the words of a URL are called in the environment; libpq's documentation, "Environment Variables".
_VARIABLES: Final[Mapping[str, str]] = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "passfile": "PGPASSFILE",
    "dbname": "PGDATABASE",
    "database": "PGDATABASE",
    "sslmode": "PGSSLMODE",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcrl": "PGSSLCRL",
    "sslnegotiation": "PGSSLNEGOTIATION",
    "ssl_min_protocol_version": "PGSSLMINPROTOCOLVERSION",
    "ssl_max_protocol_version": "PGSSLMAXPROTOCOLVERSION",
    "channel_binding": "PGCHANNELBINDING",
    "require_auth": "PGREQUIREAUTH",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
    "load_balance_hosts": "PGLOADBALANCEHOSTS",
    "gssencmode": "PGGSSENCMODE",
    "krbsrvname": "PGKRBSRVNAME",
    "gsslib": "PGGSSLIB",
    "service": "PGSERVICE",
    "servicefile": "PGSERVICEFILE",
    "connect_timeout": "PGCONNECT_TIMEOUT",
    "application_name": "PGAPPNAME",
    "options": "PGOPTIONS",
}
CONNECT_TIMEOUT_S: Final = "10"


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the programs are, and the environment in which they find one database."""

    directory: Path
    environment: Mapping[str, str]

    @property
    def database(self) -> str:
        """The database's name, quoted for a connection string."""
        name = self.environment.get("PGDATABASE", "").replace("\\", "\\\\").replace("'", "\\'")
        return f"dbname='{name}'"


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """How a program ended, and its last messages."""

    name: str
    code: int
    said: Sequence[str]

    @property
    def ok(self) -> bool:
        return self.code == 0


def find_programs(data_dir: Path, url: str, tell: Tell) -> Programs:
    ourselves = ServerUser(user_name(os.geteuid()), os.geteuid(), os.getegid(), switched=False)
    return Programs(programs(place_at(data_dir), ourselves, tell), environment_for(url))


def environment_for(url: str) -> Mapping[str, str]:
    """Return a database's URL as the environment variables of PostgreSQL's programs."""
    # What a locale makes of the complaints could not be read.
    return {**os.environ, "PGCONNECT_TIMEOUT": CONNECT_TIMEOUT_S, **_variables(url), "LC_ALL": "C"}


def _variables(url: str) -> Mapping[str, str]:
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    pairs = [_host_and_port(one) for one in hosts.split(",")] if hosts else []
    words = {
        "user": unquote(user),
        "password": unquote(password),
        "host": ",".join(host for host, _ in pairs),
        "port": ",".join(port for _, port in pairs) if any(port for _, port in pairs) else "",
        "dbname": unquote(parts.path.removeprefix("/")),
    }
    settings = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in _VARIABLES:
            words["dbname" if name == "database" else name] = value
        elif name != "sslpassword":
            # The driver takes a word that it does not know for a setting of the server.
            settings.append(f"-c {name}={_escaped(value)}")
    words["options"] = " ".join(filter(None, [words.get("options", ""), *settings]))
    return {_VARIABLES[name]: value for name, value in words.items() if value}


def _host_and_port(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return unquote(host), rest.removeprefix(":")
    host, _, port = text.partition(":")
    return unquote(host), port


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


async def run(
    found: Programs, name: str, *arguments: str, output: int = asyncio.subprocess.DEVNULL, watch: Watch
) -> ProgramResult:
    """Run a program to its end, with its output at a handle, calling `watch` repeatedly meanwhile."""
    process = await start(found, name, *arguments, output=output)
    return await finish(process, name, watch)


async def start(
    found: Programs, name: str, *arguments: str, output: int = asyncio.subprocess.DEVNULL
) -> asyncio.subprocess.Process:
    """Start a program that ends with us, however we end."""
    return await asyncio.create_subprocess_exec(
        found.directory / name,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=asyncio.subprocess.PIPE,
        limit=LINE_BYTES_MAX,
        env=found.environment,
        umask=0o077,
        preexec_fn=end_with_parent(signal.SIGTERM),
    )


async def finish(process: asyncio.subprocess.Process, name: str, watch: Watch) -> ProgramResult:
    said: deque[str] = deque(maxlen=LINES_KEPT)
    hearing = asyncio.create_task(_hear(process, said))
    try:
        while not hearing.done():
            await asyncio.wait([hearing], timeout=WATCH_S)
            watch()
        await hearing
        return ProgramResult(name, await process.wait(), list(said))
    finally:
        hearing.cancel()
        await stop(process)


async def stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        process.kill()
        await process.wait()


async def _hear(process: asyncio.subprocess.Process, said: "deque[str]") -> None:
    assert process.stderr is not None
    async for line in process.stderr:
        if words := line.decode(errors="replace").strip():
            said.append(words)


def failed(done: ProgramResult, what: str, where: Path) -> OperatorError:
    """Return the error of a program in one line; `where` is what it wrote to or read."""
    if is_disk_full("\n".join(done.said)):
        return disk_full(where)
    return OperatorError(f"{what}: {complaint(done)}")


def disk_full(where: Path) -> OperatorError:
    return OperatorError(f"The disk that holds {where} is full: free some space, then try again.")


def complaint(done: ProgramResult) -> str:
    """Return a program's message without its name in front."""
    lines = [line for line in done.said if any(mark in line for mark in _MARKS)] or list(done.said)
    if not lines:
        ended = f"was ended by signal {-done.code}" if done.code < 0 else f"ended with code {done.code}"
        return f"{done.name} {ended} and said nothing."
    # The first complaint is the cause; those that follow come of it.
    line = lines[0]
    for mark in _MARKS:
        line = line.rpartition(mark)[2].strip() or line
    return f"{done.name} says: {line}"
