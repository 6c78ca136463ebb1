"""The embedded PostgreSQL in the data directory.

data directory/
  tumira.lock      its flock is held for as long as the owner lives; it names the owner's process
  postgres/        PostgreSQL's cluster, made as `postgres.new` and renamed when it is complete
  postgres.log     PostgreSQL's log
  pg_hba.conf      who may connect, written at every start
  pg_ident.conf
  run/             the socket, unless the path is too long for one
  programs-…/      a copy of PostgreSQL's programs, where its user cannot reach the installed ones
"""

import fcntl
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tumira.core.errors import OperatorError, TemporaryOperatorError
from tumira.postgres.embedded import process
from tumira.postgres.embedded.binaries import programs
from tumira.postgres.embedded.files import (
    PORT,
    Heed,
    Place,
    ServerUser,
    Tell,
    check_owner,
    go_on,
    make_root,
    place_at,
    private_directory,
    remove_sockets,
    said_plainly,
    server_user,
    socket_directory,
    sync_directory,
)

ROLE: Final = "tumira"
DATABASE: Final = "tumira"
SUPERUSER: Final = "postgres"
MAJOR_VERSION: Final = "18"

READY: Final = "ready"
LOCK_WAIT_S: Final = 0.5
LOCK_PAUSE_S: Final = 0.05
# A child that an owner forked just before it was killed may hold the lock until it executes its program.
DEAD_OWNER_WAIT_S: Final = 10.0
ATTACH_WAIT_S: Final = 60.0
# Of the memory it gets an eighth, and no more than this; docs/performance.md says what a smaller limit cost.
SHARED_BUFFERS_MB_MAX: Final = 2048
SHARED_BUFFERS_MB_MIN: Final = 16

# Kept in the cluster's postgresql.conf, where an operator may change them.
TUNING: Final = {
    "max_connections": "200",
    "wal_compression": "on",
    "max_wal_size": "4GB",
    # For `tumira backup --wal`, which a base backup could otherwise overtake while the machine is busy.
    "wal_keep_size": "256MB",
    "checkpoint_timeout": "15min",
    # Needs no special kernel, unlike io_uring.
    "io_method": "worker",
    # Not in /dev/shm, which is 64 MB in most containers and which systemd empties when an ordinary user logs
    # out. Reserved up front, so that the files that replace it are hardly ever needed.
    "dynamic_shared_memory_type": "mmap",
    "min_dynamic_shared_memory": "64MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

# Given on the command line, which wins over every file: what we promise does not hang on an edited line.
FIXED: Final = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "logging_collector": "off",
    "log_destination": "stderr",
    # No row that was refused is quoted: it holds texts and numbers.
    "log_error_verbosity": "terse",
    "lc_messages": "C",
}

# The role owns its database and may do what backups, measurements and tests need, but is no superuser: a hole
# in a statement of ours must not become a shell on the machine.
SQL_PREPARE: Final = rf"""
SELECT 'CREATE ROLE {ROLE} LOGIN CREATEDB REPLICATION IN ROLE pg_monitor, pg_checkpoint'
 WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{ROLE}') \gexec
SELECT 'CREATE DATABASE {DATABASE} OWNER {ROLE}'
 WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '{DATABASE}') \gexec
"""  # noqa: S608 - made of constants


class AlreadyRunningError(OperatorError):
    """Another live process owns the data directory."""

    def __init__(self, data_dir: Path, pid: int | None) -> None:
        self.pid = pid
        who = f"as process {pid}" if pid else "in another process"
        super().__init__(
            f"Tumira already runs {who} on {data_dir}: stop that one first, or set TUMIRA_DATA_DIR to "
            "another directory."
        )


class Server:
    """PostgreSQL in a data directory that is ours; it can be started again when it has ended.

    The server is tied to the thread that starts it: the kernel stops it when that thread ends, so start it
    from the main thread.
    """

    def __init__(self, place: Place, user: ServerUser, lock: int, socket_dir: Path, tell: Tell) -> None:
        self._place = place
        self._user = user
        self._lock = lock
        self._socket_dir = socket_dir
        self._tell = tell
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._has_served = False

    @property
    def url(self) -> str:
        """The address of the database, the same after every start."""
        return _url(self._socket_dir)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the server, or None while it runs and before it was started."""
        return None if self._process is None else self._process.poll()

    def start(self, heed: Heed = go_on) -> None:
        """Start the server unless it runs, and wait until the database can be used."""
        with said_plainly(self._place):
            binaries = programs(self._place, self._user, self._tell)
            if self._process is None or self._process.poll() is not None:
                self._process = self._launch(binaries, heed)
            try:
                process.wait_until_ready(self._process, self._place, self._log_start, self._tell, heed)
            except TemporaryOperatorError:
                self._check_settings(binaries, heed)
                raise
            _prepare_database(self._place, self._user, binaries, self._socket_dir, heed)
            # For `attach`: a server may take connections before it has our role and database.
            _write_lock(self._lock, READY)
            self._has_served = True

    def stop(self) -> None:
        if self._process is not None:
            process.stop(self._process, self._tell)

    def _launch(self, binaries: Path, heed: Heed) -> "subprocess.Popen[bytes]":
        place, user = self._place, self._user
        _write_lock(self._lock, "")
        if place.cluster.exists():
            _check_cluster(place, user)
            _clear_leftovers(place, self._socket_dir, self._tell, heed)
        if not _is_made(place):
            # A new one would look as if every account and message had never been.
            if self._has_served:
                raise OperatorError(
                    f"The database in {place.cluster} is gone: bring it back, or restore a backup."
                )
            _make_cluster(place, user, binaries, self._tell, heed)
            heed()
        _write_access_rules(place, user)
        private_directory(self._socket_dir, user)
        self._log_start = process.rotate_log(place)
        return process.launch(place, user, [binaries / "postgres", *_arguments(place, self._socket_dir)])

    def _check_settings(self, binaries: Path, heed: Heed) -> None:
        """Refuse a configuration that PostgreSQL rejects: it would not start later either."""
        arguments = ["-C", "data_directory", *_arguments(self._place, self._socket_dir)]
        read = process.run(self._user, [binaries / "postgres", *arguments], heed=heed)
        if read.returncode > 0:
            what = "PostgreSQL did not start"
            raise OperatorError(str(process.failed(self._place, what, read.stderr, read.returncode)))


@contextmanager
def hold(data_dir: Path, tell: Tell) -> Iterator[Server]:
    """Own the data directory, yield the server that can be started in it, and stop it at the end.

    A child made by a bare fork shares the lock; a child that executes a program does not.
    """
    process.require_linux()
    place = place_at(data_dir)
    with ExitStack() as at_the_end:
        with said_plainly(place):
            user = server_user()
            make_root(place, user)
            lock = at_the_end.enter_context(_sole_owner(place))
            socket_dir = at_the_end.enter_context(socket_directory(place, user))
        server = Server(place, user, lock, socket_dir, tell)
        at_the_end.callback(server.stop)
        yield server


@contextmanager
def start(data_dir: Path, tell: Tell, heed: Heed = go_on) -> Iterator[str]:
    """Own the data directory: start PostgreSQL in it, yield the URL of its database, stop it at the end."""
    with hold(data_dir, tell) as server:
        server.start(heed)
        yield server.url


def attach(data_dir: Path, heed: Heed = go_on) -> str | None:
    """Return the URL of the server that another live process runs here, or None.

    While that process is still starting or stopping its server, wait for the outcome.
    """
    process.require_linux()
    place = place_at(data_dir)
    deadline = time.monotonic() + ATTACH_WAIT_S
    with said_plainly(place):
        while _is_held(place):
            owner, state = _holder(place)
            found = process.read_postmaster(place.cluster)
            if (
                state == READY
                and found is not None
                and found.is_ready
                and found.socket_dir is not None
                and found.pid in process.live_processes(place.cluster)
            ):
                return _url(found.socket_dir)
            if time.monotonic() > deadline:
                raise OperatorError(
                    f"Process {owner} owns {place.root}, but its PostgreSQL is not ready: try again "
                    f"later, or look into {place.log}."
                )
            heed()
            time.sleep(LOCK_PAUSE_S)
    return None


@contextmanager
def _sole_owner(place: Place) -> Iterator[int]:
    handle = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        began = time.monotonic()
        # More than one try: `attach` takes the lock for a moment to see whether it is free.
        while not _take(handle, fcntl.LOCK_EX):
            holder = _holder(place)[0]
            patience_s = LOCK_WAIT_S if process.lives(holder) else DEAD_OWNER_WAIT_S
            if time.monotonic() - began > patience_s:
                raise AlreadyRunningError(place.root, holder)
            time.sleep(LOCK_PAUSE_S)
        _write_lock(handle, "")
        yield handle
    finally:
        os.close(handle)


def _write_lock(handle: int, state: str) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()} {state}\n".encode(), 0)


def _take(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_held(place: Place) -> bool:
    try:
        handle = os.open(place.lock, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        return not _take(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _holder(place: Place) -> tuple[int | None, str]:
    pid, _, state = place.lock.read_text().strip().partition(" ")
    return int(pid) if pid.isdecimal() else None, state


def _is_made(place: Place) -> bool:
    return (place.cluster / "PG_VERSION").exists()


def _check_cluster(place: Place, user: ServerUser) -> None:
    check_owner(place, user)
    if not _is_made(place):
        if any(place.cluster.iterdir()):
            raise OperatorError(
                f"{place.cluster} holds files but no database: move them away, or set TUMIRA_DATA_DIR to "
                "another directory."
            )
        return
    found = (place.cluster / "PG_VERSION").read_text().strip()
    if found != MAJOR_VERSION:
        raise OperatorError(
            f"{place.cluster} was made by PostgreSQL {found} and this Tumira brings {MAJOR_VERSION}: run "
            "`tumira backup` with the Tumira that made it, move the directory away, then run "
            "`tumira restore` with this one."
        )


def _clear_leftovers(place: Place, socket_dir: Path, tell: Tell, heed: Heed) -> None:
    process.end_leftovers(place.cluster, tell, heed)
    # PostgreSQL takes any living process of this number for itself, so a stale file must not stay.
    left = process.read_postmaster(place.cluster)
    remove_sockets(place, left.socket_dir if left is not None else None, socket_dir)
    (place.cluster / "postmaster.pid").unlink(missing_ok=True)


def _make_cluster(place: Place, user: ServerUser, binaries: Path, tell: Tell, heed: Heed) -> None:
    tell(f"Creating the database in {place.root} …")
    if place.unfinished.exists():
        process.end_leftovers(place.unfinished, tell, heed)
        shutil.rmtree(place.unfinished)
    private_directory(place.unfinished, user)
    settings = TUNING | {"shared_buffers": f"{_shared_buffers_mb()}MB"}
    made = process.run(
        user,
        [
            binaries / "initdb",
            f"--pgdata={place.unfinished}",
            f"--username={SUPERUSER}",
            "--encoding=UTF8",
            # Built in, so that the order of text is the same on every machine and after every upgrade of it.
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            "--auth=peer",
            "--no-instructions",
            *(f"--set={name}={value}" for name, value in settings.items()),
        ],
        heed=heed,
    )
    if made.returncode != 0:
        # The processes of an initdb that was killed go on for a while.
        process.end_leftovers(place.unfinished, tell, heed)
        shutil.rmtree(place.unfinished, ignore_errors=True)
        what = f"The database in {place.root} cannot be created"
        raise process.failed(place, what, made.stderr, made.returncode)
    place.unfinished.rename(place.cluster)
    sync_directory(place.root)


def _shared_buffers_mb() -> int:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and (text := limit.read_text().strip()).isdecimal():
        memory = min(memory, int(text))
    return max(SHARED_BUFFERS_MB_MIN, min(SHARED_BUFFERS_MB_MAX, memory // 8 // 1024**2))


def _write_access_rules(place: Place, user: ServerUser) -> None:
    """Let the server's user be the superuser, and ourselves and root the application's role; nobody else."""
    names = [pwd.getpwuid(0).pw_name, pwd.getpwuid(os.geteuid()).pw_name, user.name]
    pairs = [(user.name, SUPERUSER), *((name, ROLE) for name in dict.fromkeys(names))]
    rules = ["local all all peer map=tumira", "local replication all peer map=tumira"]
    mapped = [f'tumira "{system_user}" {role}' for system_user, role in pairs]
    for path, lines in ((place.hba, rules), (place.ident, mapped)):
        path.unlink(missing_ok=True)
        path.write_text("".join(f"{line}\n" for line in ("# Written at every start.", *lines)))
        path.chmod(0o644)


def _arguments(place: Place, socket_dir: Path) -> Sequence[str]:
    settings = FIXED | {
        # Quoted, because the setting is a list.
        "unix_socket_directories": f'"{socket_dir}"',
        "hba_file": str(place.hba),
        "ident_file": str(place.ident),
        "cluster_name": process.cluster_name(place.cluster),
    }
    return ["-D", str(place.cluster), *(f"--{name}={value}" for name, value in settings.items())]


def _prepare_database(place: Place, user: ServerUser, binaries: Path, socket_dir: Path, heed: Heed) -> None:
    where = [f"--host={socket_dir}", f"--port={PORT}", f"--username={SUPERUSER}", "--dbname=postgres"]
    options = ["--no-psqlrc", "--no-password", "--quiet", "--set=ON_ERROR_STOP=1"]
    done = process.run(user, [binaries / "psql", *where, *options], SQL_PREPARE, heed)
    if done.returncode != 0:
        what = f"The database in {place.root} cannot be prepared"
        raise process.failed(place, what, done.stderr, done.returncode)


def _url(socket_dir: Path) -> str:
    return f"postgresql://{ROLE}@/{DATABASE}?host={quote(str(socket_dir))}&port={PORT}"
