"""A primary with a synchronous standby.

with open_directory("tumira-pair-", quick_directory()) as directory, run_pair(directory) as pair:
    ...                     # pair.url names both servers
    pair.kill_primary()
    pair.promote()          # the other one takes writes, alone
    pair.rebuild()          # the killed server follows it, and commits wait for it again

Servers die with the thread that started them: call all this from the main thread.
"""

import dataclasses
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import asyncpg

from tests.support.postgres.databases import complete, execute
from tests.support.postgres.embedded import kill_processes
from tests.support.processes.ports import free_port
from tumira.postgres.embedded import process
from tumira.postgres.embedded.binaries import programs
from tumira.postgres.embedded.files import (
    ServerUser,
    go_on,
    make_root,
    place_at,
    private_directory,
    server_user,
)
from tumira.postgres.embedded.server import ROLE, SUPERUSER
from tumira.postgres.migrate import migrate
from tumira.postgres.pool import Database

DATABASE: Final = "tumira"
LOOPBACK: Final = "127.0.0.1"
PATIENCE_S: Final = 30.0
TICK_S: Final = 0.02
CONFIGURATION: Final = "pair.conf"

# What docs/high-availability.md asks for. Where it names no value, PostgreSQL's own is good.
SETTINGS: Final = {
    "wal_sender_timeout": "5s",
    "wal_receiver_timeout": "5s",
    "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "500ms",
}
# Small enough for any machine, and nothing in /dev/shm, which a killed server would leave there.
SMALL: Final = {
    "shared_buffers": "64MB",
    "max_connections": "100",
    "dynamic_shared_memory_type": "mmap",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
}

SQL_SYNCHRONOUS: Final = """
SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')
"""


def _wait_for(what: Callable[[], object], why: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(TICK_S)


class Server:
    """One PostgreSQL of a pair.

    `prefix` is a command that runs another, such as `ip netns exec NAME`. `inner` is a second such command,
    which runs as the server's own user, such as `env NAME=VALUE`.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        address: str,
        port: int,
        prefix: Sequence[str],
        password: str,
        inner: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.address = address
        self.port = port
        self._prefix = tuple(prefix)
        self._inner = tuple(inner)
        self._password = password
        self._place = place_at(directory / name)
        self._user = server_user()
        make_root(self._place, self._user)
        private_directory(self._place.socket_dir, self._user)
        self._binaries = programs(self._place, self._user, lambda _line: None)
        self._process: subprocess.Popen[bytes] | None = None
        # Settings of this server alone, changed since it was made or began to follow another.
        self._chosen: dict[str, str] = {}

    @property
    def cluster(self) -> Path:
        return self._place.cluster

    @property
    def log(self) -> str:
        return self._place.log.read_text(errors="replace")

    @property
    def url(self) -> str:
        """The address of the application's database on this server alone, whatever it is now."""
        return f"postgresql://{ROLE}:{self._password}@{self.address}:{self.port}/{DATABASE}"

    @property
    def local_url(self) -> str:
        """The same database by the socket, which is there whatever becomes of the network."""
        return self._local_url(ROLE)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def execute(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        return execute(self._local_url(SUPERUSER), statement, *arguments)

    def start(self) -> None:
        """Start it, as what it was when it ended, and wait until it takes connections."""
        assert not self.is_running
        (self.cluster / "postmaster.pid").unlink(missing_ok=True)
        log_start = process.rotate_log(self._place)
        self._process = process.launch(
            self._place,
            self._outer_user,
            [
                *self._wrapper,
                self._binaries / "postgres",
                *("-D", str(self.cluster)),
                f"--cluster_name={process.cluster_name(self.cluster)}",
            ],
        )
        process.wait_until_ready(self._process, self._place, log_start, lambda _line: None, go_on)

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill all of its processes at once, frozen or not; none of them writes another byte."""
        kill_processes(self.cluster)
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop all of its processes where they are: connections stay open and nothing answers."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def configure(self, **settings: str) -> None:
        """Change settings that need no restart, keeping what was changed before, and wait until they hold."""
        assert self._process is not None
        self._chosen.update(settings)
        self._write_configuration()
        self._process.send_signal(signal.SIGHUP)
        for name, value in settings.items():
            _wait_for(partial(self._holds, name, value), f"{name} did not become {value!r}")

    def make(self) -> None:
        """Make a new cluster, start it, and put an empty migrated database into it."""
        private_directory(self.cluster, self._user)
        self._run(
            "initdb",
            f"--pgdata={self.cluster}",
            f"--username={SUPERUSER}",
            *("--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"),
            *("--auth=peer", "--no-instructions", "--no-sync"),
        )
        with (self.cluster / "postgresql.conf").open("a") as file:
            file.write(f"include '{CONFIGURATION}'\n")
        self._write_access_rules()
        self._chosen.clear()
        self._write_configuration()
        self.start()
        self.execute(f"CREATE ROLE {ROLE} LOGIN CREATEDB REPLICATION PASSWORD '{self._password}'")
        self.execute(f"GRANT pg_monitor, pg_checkpoint, pg_signal_backend TO {ROLE}")
        self.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")
        complete(_migrate(self.local_url))

    def follow(self, primary: "Server") -> None:
        """Become a standby of another server: throw all files away, copy its own, and start."""
        self.kill()
        if self.cluster.exists():
            shutil.rmtree(self.cluster)
        private_directory(self.cluster, self._user)
        primary.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1",
            self.name,
        )
        self._run(
            "pg_basebackup",
            f"--pgdata={self.cluster}",
            f"--dbname={primary.replication_address(self.name)}",
            *("--write-recovery-conf", "--create-slot", f"--slot={self.name}"),
            *("--checkpoint=fast", "--no-sync"),
        )
        self._write_access_rules()
        self._chosen.clear()
        self._write_configuration()
        self.start()

    def replication_address(self, name: str) -> str:
        return (
            f"host={self.address} port={self.port} user={ROLE} password={self._password} "
            f"application_name={name} connect_timeout=3 "
            "keepalives_idle=2 keepalives_interval=1 keepalives_count=3 tcp_user_timeout=5000"
        )

    @property
    def _outer_user(self) -> ServerUser:
        # The prefix may need rights that the server's user does not have: it changes the user at its end.
        return dataclasses.replace(self._user, switched=False) if self._prefix else self._user

    @property
    def _wrapper(self) -> Sequence[str]:
        if not (self._prefix and self._user.switched):
            return (*self._prefix, *self._inner)
        who = (f"--reuid={self._user.uid}", f"--regid={self._user.gid}", "--clear-groups")
        return (*self._prefix, "setpriv", *who, "--pdeathsig=SIGINT", "--", *self._inner)

    def _run(self, program: str, *arguments: str) -> None:
        done = process.run(self._outer_user, [*self._wrapper, self._binaries / program, *arguments])
        assert done.returncode == 0, done.stderr

    def _local_url(self, role: str) -> str:
        name = DATABASE if role == ROLE else SUPERUSER
        return f"postgresql://{role}@/{name}?host={self._place.socket_dir}&port={self.port}"

    def _holds(self, name: str, value: str) -> bool:
        return bool(self.execute("SELECT current_setting($1) = $2", name, value)[0][0])

    def _write_configuration(self) -> None:
        settings = {
            **SETTINGS,
            **SMALL,
            "listen_addresses": self.address,
            "port": str(self.port),
            "unix_socket_directories": str(self._place.socket_dir),
            "hba_file": str(self._place.hba),
            "ident_file": str(self._place.ident),
            **self._chosen,
        }
        text = "".join(f"{name} = '{value}'\n" for name, value in settings.items())
        path = self.cluster / CONFIGURATION
        path.write_text(text)
        path.chmod(0o644)

    def _write_access_rules(self) -> None:
        here = "local all all peer map=pair\n"
        elsewhere = "".join(f"host {what} all all scram-sha-256\n" for what in ("all", "replication"))
        self._place.hba.write_text(here + elsewhere)
        names = {pwd.getpwuid(os.geteuid()).pw_name, self._user.name}
        pairs = [f"pair {name} {role}\n" for name in names for role in (ROLE, SUPERUSER)]
        self._place.ident.write_text("".join(pairs))
        for path in (self._place.hba, self._place.ident):
            path.chmod(0o644)

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in process.live_processes(self.cluster):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE_S)
            self._process = None
            _wait_for(lambda: not process.live_processes(self.cluster), f"{self.name} did not end")


class Pair:
    """A primary and a standby; which of the two is which changes with `promote`."""

    def __init__(self, first: Server, second: Server, password: str) -> None:
        self.servers: Final = (first, second)
        self.primary = first
        self.standby = second
        self._password = password

    @property
    def url(self) -> str:
        """The address that nodes get: both servers, in an order that never changes."""
        hosts = ",".join(f"{server.address}:{server.port}" for server in self.servers)
        return f"postgresql://{ROLE}:{self._password}@{hosts}/{DATABASE}?target_session_attrs=read-write"

    def kill_primary(self) -> None:
        """Kill the primary as a power cut would; its machine still refuses connections."""
        self.primary.kill()

    def freeze_primary(self) -> None:
        self.primary.freeze()

    def thaw_primary(self) -> None:
        self.primary.thaw()

    def promote(self) -> None:
        """Make the standby the primary, alone; the other one keeps what it is and has, running or not."""
        assert self.standby.execute("SELECT pg_promote(true, 30)")[0][0]
        self.primary, self.standby = self.standby, self.primary

    def rebuild(self) -> None:
        """Make the server that is not the primary its standby, from nothing, and let commits wait for it."""
        self.standby.follow(self.primary)
        self.require_standby()
        self.wait_for_sync()

    def require_standby(self) -> None:
        self.primary.configure(synchronous_standby_names=self.standby.name)

    def release_standby(self) -> None:
        """Let the primary commit alone: what an operator decides when the standby stays away."""
        self.primary.configure(synchronous_standby_names="")

    def wait_for_sync(self) -> None:
        """Wait until the standby follows and a commit waits for it only as long as it takes."""
        _wait_for(
            lambda: self.primary.execute(SQL_SYNCHRONOUS)[0][0],
            f"no synchronous standby: {self.standby.log[-2000:]}",
        )


@contextmanager
def run_pair(
    directory: Path,
    *,
    addresses: tuple[str, str] = (LOOPBACK, LOOPBACK),
    ports: tuple[int, int] | None = None,
    prefixes: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> Iterator[Pair]:
    password = secrets.token_urlsafe()
    north_port, south_port = ports or (free_port(), free_port())
    north = Server(directory, "north", addresses[0], north_port, prefixes[0], password)
    south = Server(directory, "south", addresses[1], south_port, prefixes[1], password)
    pair = Pair(north, south, password)
    try:
        north.make()
        pair.rebuild()
        yield pair
    finally:
        for server in pair.servers:
            server.kill()


async def _migrate(url: str) -> None:
    database = Database(url, connections_max=1)
    await migrate(database)
    await database.close()
