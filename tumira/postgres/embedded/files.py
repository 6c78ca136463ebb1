"""Files of the embedded PostgreSQL: where they lie, who owns them, and whether the server can reach them."""

import errno
import fcntl
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tumira.core.errors import OperatorError, TemporaryOperatorError

Tell = Callable[[str], None]
# Called where somebody waits; raises when the wait is to end.
Heed = Callable[[], None]


def go_on() -> None:
    """Do nothing: without a handler of ours, Ctrl-C interrupts."""


SERVER_USER: Final = "tumira-postgres"
PORT: Final = 5432
SOCKET_NAME: Final = f".s.PGSQL.{PORT}"
# `sun_path` holds 108 bytes, the last of them a zero.
SOCKET_PATH_BYTES_MAX: Final = 107
TEMPORARY_PREFIX: Final = "tumira-"
USERADD_TIMEOUT_S: Final = 60
USERADD_LOCK: Final = "/etc/.pwd.lock"
PROBE_TIMEOUT_S: Final = 10

_DISK_FULL: Final = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
# The machine is short of memory, processes or files.
_SHORT_OF: Final = frozenset({errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE})


@dataclass(frozen=True, slots=True)
class ServerUser:
    """The operating-system user under which PostgreSQL runs; `switched` when it is not ourselves."""

    name: str
    uid: int
    gid: int
    switched: bool


@dataclass(frozen=True, slots=True)
class Place:
    """The names inside one data directory."""

    root: Path

    @property
    def cluster(self) -> Path:
        return self.root / "postgres"

    @property
    def unfinished(self) -> Path:
        """Where a new cluster is made, before it gets its name."""
        return self.root / "postgres.new"

    @property
    def lock(self) -> Path:
        """The file whose flock says who owns the directory."""
        return self.root / "tumira.lock"

    @property
    def log(self) -> Path:
        """What PostgreSQL says; beside the cluster, where no server process can put a link in its place."""
        return self.root / "postgres.log"

    @property
    def socket_dir(self) -> Path:
        """Where the socket lies unless the path is too long for one."""
        return self.root / "run"

    @property
    def hba(self) -> Path:
        return self.root / "pg_hba.conf"

    @property
    def ident(self) -> Path:
        return self.root / "pg_ident.conf"


def place_at(data_dir: Path) -> Place:
    root = data_dir.absolute()
    # `postmaster.pid` is read by line, and URLs are UTF-8: neither a line break nor a stray byte survives.
    if not str(root).isprintable():
        raise OperatorError(
            f"The data directory {str(root)!r} has unprintable characters in its name; rename it."
        )
    return Place(root)


@contextmanager
def said_plainly(place: Place) -> Iterator[None]:
    """Turn an error of the operating system into one line for the operator."""
    try:
        yield
    except subprocess.TimeoutExpired as error:
        program = Path(str(error.cmd[0])).name
        raise TemporaryOperatorError(
            f"{program} did not end within {error.timeout:.0f} s: check that the disk of {place.root} works."
        ) from error
    except OSError as error:
        # Copying many files collects its complaints in one that has no number.
        if error.errno in (errno.ENOSPC, errno.EDQUOT) or is_disk_full(str(error)):
            raise disk_full(place) from error
        if error.errno in _SHORT_OF:
            raise TemporaryOperatorError(f"PostgreSQL cannot be started: {error.strerror}.") from error
        raise OperatorError(
            f"The data directory {place.root} cannot be used: {_complaint(error, place)}. Put that right, or "
            f"set TUMIRA_DATA_DIR to a directory that {user_name(os.geteuid())} may write to."
        ) from error


def _complaint(error: OSError, place: Place) -> str:
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else place.root
    said = f"{path}: {error.strerror or error}"
    if error.errno not in (errno.EACCES, errno.EPERM):
        return said
    # What could not be made has no owner; then it is the directory around it that is closed.
    nearest = next((each for each in (path, *path.parents) if os.path.lexists(each)), place.root)
    return f"{said} ({nearest} belongs to {user_name(nearest.lstat().st_uid)})"


def disk_full(place: Place) -> OperatorError:
    return TemporaryOperatorError(f"The disk that holds {place.root} is full: free some space.")


def is_disk_full(text: str) -> bool:
    return any(words in text for words in _DISK_FULL)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def user_name(uid: int) -> str:
    """Return a user's name for a message."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user id {uid}"


def server_user() -> ServerUser:
    """Return ourselves, or, as PostgreSQL refuses to run as root, a system user made for it."""
    uid = os.geteuid()
    if uid != 0:
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            raise OperatorError(
                f"User id {uid} has no name in /etc/passwd, and PostgreSQL needs one: run as a user that has "
                "a name, or set TUMIRA_DATABASE_URL to another PostgreSQL."
            ) from None
        return ServerUser(name, uid, os.getegid(), switched=False)
    entry = _find_user(SERVER_USER) or _add_user_once(SERVER_USER)
    return ServerUser(SERVER_USER, entry.pw_uid, entry.pw_gid, switched=True)


def _find_user(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _add_user_once(name: str) -> pwd.struct_passwd:
    """Add a user, one process at a time.

    `useradd` looks for the name before it locks its files: of two at once the second one replaces the user,
    and the files of the first have an owner that is gone.
    """
    # Only root may open this file. `useradd` has locks of another kind on it, which do not meet this one.
    try:
        handle = os.open(USERADD_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        # Then `useradd` cannot write there either, and says why.
        return _add_user(name)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return _find_user(name) or _add_user(name)
    finally:
        os.close(handle)


def _add_user(name: str) -> pwd.struct_passwd:
    arguments = ["--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", name]
    # Root's PATH may lack the directories of the system's own tools.
    program = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    why = "there is no useradd on this machine"
    if program is not None:
        added = subprocess.run(  # noqa: S603 - a fixed command
            [program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=USERADD_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
        if added.returncode < 0:
            raise TemporaryOperatorError(f"useradd was ended by signal {-added.returncode}.")
        why = last_line(added.stderr) or f"useradd ended with code {added.returncode}"
    # Looked up whatever useradd said: another process may have made the user at the same moment.
    entry = _find_user(name)
    if entry is None:
        raise OperatorError(
            f"PostgreSQL does not run as root, and its user {name} cannot be made: {why}. Create that system "
            "user by hand, or run Tumira as an ordinary user."
        )
    return entry


def may(user: ServerUser, how: str, path: Path) -> bool:
    """Ask the kernel, as the server's user, so that access lists and links count as they will later."""
    if not user.switched:
        return os.access(path, {"-x": os.X_OK, "-r": os.R_OK}[how])
    answer = subprocess.run(  # noqa: S603 - a fixed program that only looks
        ["/bin/test", how, str(path)],
        user=user.uid,
        group=user.gid,
        extra_groups=[],
        cwd="/",
        check=False,
        timeout=PROBE_TIMEOUT_S,
    )
    if answer.returncode < 0:
        raise TemporaryOperatorError(f"The look at {path} was ended by signal {-answer.returncode}.")
    return answer.returncode == 0


def make_root(place: Place, user: ServerUser) -> None:
    """Create the data directory if absent.

    An existing directory, and those above it, keep their permissions.
    """
    missing = [path for path in (place.root, *place.root.parents) if not os.path.exists(path)]  # noqa: PTH110 - a path we may not see counts as missing
    deepest = missing[-1].parent if missing else place.root
    if not may(user, "-x", deepest):
        resolved = deepest.resolve()
        way = (*reversed(resolved.parents), resolved)
        blocked = next((path for path in way if not may(user, "-x", path)), deepest)
        raise OperatorError(
            f"PostgreSQL runs as user {user.name}, who may not enter {blocked}: set TUMIRA_DATA_DIR to a "
            f"directory it can reach, or let it pass (chmod o+x {blocked})."
        )
    for path in reversed(missing):
        path.mkdir()
        # What we make ourselves must be passable for the server whatever root's umask is.
        if user.switched:
            path.chmod(0o755)
    if missing:
        place.root.chmod(0o711 if user.switched else 0o700)


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_owner(place: Place, user: ServerUser) -> None:
    """Refuse a cluster of another user; PostgreSQL's own message helps less."""
    owner = place.cluster.stat().st_uid
    if owner == user.uid:
        return
    name = user_name(owner)
    starter = "root" if name == SERVER_USER else name
    raise OperatorError(
        f"{place.cluster} belongs to {name}, but PostgreSQL would run as {user.name}: start Tumira as "
        f"{starter}, or give the files away with chown -R {user.name} {place.cluster}."
    )


def private_directory(path: Path, user: ServerUser) -> None:
    path.mkdir(mode=0o700, exist_ok=True)
    # Through a handle, so that a link in its place is refused and not followed.
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if user.switched:
            os.fchown(handle, user.uid, user.gid)
        os.fchmod(handle, 0o700)
        found = os.fstat(handle)
        if (found.st_uid, stat.S_IMODE(found.st_mode)) != (user.uid, 0o700):
            raise OperatorError(
                f"{path} cannot be made private to {user.name} on this file system: set TUMIRA_DATA_DIR to a "
                "directory on a local disk."
            )
    finally:
        os.close(handle)


@contextmanager
def socket_directory(place: Place, user: ServerUser) -> Iterator[Path]:
    """Return the directory for the socket: in the data directory, or a fresh one if that path is too long."""
    if _fits_socket(place.socket_dir):
        private_directory(place.socket_dir, user)
        yield place.socket_dir
        return
    candidates = (Path(tempfile.gettempdir()), Path("/tmp"))  # noqa: S108 - mkdtemp makes a fresh name in it
    for base in candidates:
        if _fits_socket(base / f"{TEMPORARY_PREFIX}12345678") and may(user, "-x", base):
            break
    else:
        raise OperatorError(
            f"The name {place.root} does not fit a socket, and the temporary directory {candidates[0]} "
            "cannot hold one either: set TUMIRA_DATA_DIR to a shorter path."
        )
    made = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=base))
    try:
        private_directory(made, user)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _fits_socket(directory: Path) -> bool:
    # A comma or a quote means something else to PostgreSQL or in a list of hosts, so it does not fit either.
    path = str(directory / SOCKET_NAME)
    return len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX and not set(path) & set(",\"'")


def remove_sockets(place: Place, recorded: Path | None, in_use: Path) -> None:
    """Remove the socket that a killed server left; the directory in use stays."""
    _unlink_socket(place.socket_dir)
    _unlink_socket(in_use)
    # A directory elsewhere is named by a file that may be a copy of another cluster's, whose server lives.
    if recorded is None or recorded == in_use or not recorded.name.startswith(TEMPORARY_PREFIX):
        return
    with suppress(OSError):
        owner = (recorded / f"{SOCKET_NAME}.lock").read_text().splitlines()[1:2]
        if owner == [str(place.cluster)]:
            _unlink_socket(recorded)
            recorded.rmdir()


def _unlink_socket(directory: Path) -> None:
    for name in (SOCKET_NAME, f"{SOCKET_NAME}.lock"):
        with suppress(FileNotFoundError, NotADirectoryError):
            (directory / name).unlink()
