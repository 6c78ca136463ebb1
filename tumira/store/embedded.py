"""How does Tumira run a PostgreSQL of its own in the data directory?

data directory/
  tumira.lock      its flock is held for as long as the owner lives; it names the owner's process
  postgres/        PostgreSQL's cluster, made as `postgres.new` and renamed when it is whole
  postgres.log     what PostgreSQL says
  pg_hba.conf      who may connect, written at every start
  pg_ident.conf
  run/             the socket, unless the path is too long for one
  programs-…/      a copy of PostgreSQL's programs, where its user cannot reach the installed ones
"""

import fcntl
import os
import pwd
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tumira.errors import Trouble
from tumira.store import embedded_process as process
from tumira.store.embedded_place import (
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
)
from tumira.store.embedded_programs import programs

ROLE: Final = "tumira"
DATABASE: Final = "tumira"
SUPERUSER: Final = "postgres"
MAJOR_VERSION: Final = "18"

READY: Final = "ready"
LOCK_TRIES: Final = 10
LOCK_PAUSE_S: Final = 0.05
ATTACH_WAIT_S: Final = 60.0
# Of the memory it gets an eighth, and no more than this; docs/performance.md says what a smaller limit cost.
SHARED_BUFFERS_MB_MAX: Final = 2048
SHARED_BUFFERS_MB_MIN: Final = 16

# Kept in the cluster's postgresql.conf, where an operator may change them.
TUNING: Final = {
    "max_connections": "200",
    "wal_compression": "on",
    "max_wal_size": "4GB",
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


class AlreadyRunning(Trouble):
    """Another live process owns the data directory."""

    def __init__(self, data_dir: Path, pid: int | None) -> None:
        self.pid = pid
        who = f"as process {pid}" if pid else "in another process"
        super().__init__(
            f"Tumira already runs {who} on {data_dir}: stop that one first, or set TUMIRA_DATA_DIR to "
            "another directory."
        )


@contextmanager
def start(data_dir: Path, tell: Tell, heed: Heed = go_on) -> Iterator[str]:
    """Own the data directory: start PostgreSQL in it, yield the URL of its database, stop it at the end.

    The server is tied to the thread that calls this: the kernel stops it when that thread ends, so call it
    from the main thread. A child made by a bare fork shares the lock; one that executes a program does not.
    """
    process.require_linux()
    place = place_at(data_dir)
    with ExitStack() as at_the_end:
        with said_plainly(place):
            url = _set_up(place, tell, heed, at_the_end)
        yield url


def attach(data_dir: Path, heed: Heed = go_on) -> str | None:
    """Return the URL of the instance that another live process runs here, or None if nobody does.

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
                raise Trouble(
                    f"Process {owner} owns {place.root}, but its PostgreSQL is not ready: try again "
                    f"later, or look into {place.log}."
                )
            heed()
            time.sleep(LOCK_PAUSE_S)
    return None


def _set_up(place: Place, tell: Tell, heed: Heed, at_the_end: ExitStack) -> str:
    user = server_user()
    make_root(place, user)
    lock = at_the_end.enter_context(_sole_owner(place))
    if place.cluster.exists():
        _check_cluster(place, user)
        _clear_leftovers(place, tell, heed)
    binaries = programs(place, user, tell)
    if not _is_made(place):
        _make_cluster(place, user, binaries, tell, heed)
        heed()
    _write_access_rules(place, user)
    socket_dir = at_the_end.enter_context(socket_directory(place, user))
    log_start = process.rotate_log(place)
    server = process.launch(place, user, [binaries / "postgres", *_arguments(place, socket_dir)])
    at_the_end.callback(process.stop, server, tell)
    process.wait_until_ready(server, place, log_start, tell, heed)
    _prepare_database(place, user, binaries, socket_dir)
    # For `attach`: a server may take connections before it has our role and database.
    _write_lock(lock, READY)
    return _url(socket_dir)


@contextmanager
def _sole_owner(place: Place) -> Iterator[int]:
    handle = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        # More than one try: `attach` takes the lock for a moment to see whether it is free.
        for _ in range(LOCK_TRIES):
            if _take(handle, fcntl.LOCK_EX):
                break
            time.sleep(LOCK_PAUSE_S)
        else:
            raise AlreadyRunning(place.root, _holder(place)[0])
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
            raise Trouble(
                f"{place.cluster} holds files but no database: move them away, or set TUMIRA_DATA_DIR to "
                "another directory."
            )
        return
    found = (place.cluster / "PG_VERSION").read_text().strip()
    if found != MAJOR_VERSION:
        raise Trouble(
            f"{place.cluster} was made by PostgreSQL {found} and this Tumira brings {MAJOR_VERSION}: run "
            "`tumira backup` with the Tumira that made it, move the directory away, then run "
            "`tumira restore` with this one."
        )


def _clear_leftovers(place: Place, tell: Tell, heed: Heed) -> None:
    process.end_leftovers(place.cluster, tell, heed)
    # PostgreSQL takes any living process of this number for itself, so a stale file must not stay.
    left = process.read_postmaster(place.cluster)
    remove_sockets(place, left.socket_dir if left is not None else None)
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
    )
    if made.returncode != 0:
        shutil.rmtree(place.unfinished, ignore_errors=True)
        raise process.failed(place, f"The database in {place.root} cannot be created", made.stderr)
    place.unfinished.rename(place.cluster)
    handle = os.open(place.root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
    _write(place.hba, ["local all all peer map=tumira", "local replication all peer map=tumira"])
    _write(place.ident, [f'tumira "{system_user}" {role}' for system_user, role in pairs])


def _write(path: Path, lines: Sequence[str]) -> None:
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


def _prepare_database(place: Place, user: ServerUser, binaries: Path, socket_dir: Path) -> None:
    where = [f"--host={socket_dir}", f"--port={PORT}", f"--username={SUPERUSER}", "--dbname=postgres"]
    options = ["--no-psqlrc", "--no-password", "--quiet", "--set=ON_ERROR_STOP=1"]
    done = process.run(user, [binaries / "psql", *where, *options], SQL_PREPARE)
    if done.returncode != 0:
        raise process.failed(place, f"The database in {place.root} cannot be prepared", done.stderr)


def _url(socket_dir: Path) -> str:
    return f"postgresql://{ROLE}@/{DATABASE}?host={quote(str(socket_dir))}&port={PORT}"
