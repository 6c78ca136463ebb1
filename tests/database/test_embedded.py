"""Does our own PostgreSQL start, stay ours and come back, whatever died before?"""

import asyncio
import os
import pty
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.embedded import (
    CHECKOUT,
    PROGRAM,
    Owner,
    fetch,
    quick_directory,
    spawn_as_server,
    temporary_base,
    wait_for,
)
from tumira.errors import Trouble
from tumira.store import embedded, embedded_process
from tumira.store.embedded import AlreadyRunning, attach, start
from tumira.store.embedded_place import server_user
from tumira.store.embedded_process import live_processes, read_postmaster

SQL_NOTE = "CREATE TABLE IF NOT EXISTS notes AS SELECT 'committed' AS text"
SQL_READ = "SELECT text FROM notes"


@pytest.fixture
def base() -> Iterator[Path]:
    with temporary_base(quick_directory()) as made:
        yield made


@pytest.fixture
def new_dir(base: Path) -> Path:
    """Name a directory in which nothing was ever started."""
    return base / "data"


@pytest.fixture(scope="module")
def pattern() -> Iterator[Path]:
    with temporary_base(quick_directory()) as made:
        with start(made / "data", quiet):
            pass
        yield made / "data"


@pytest.fixture
def data_dir(base: Path, pattern: Path) -> Path:
    """Give a directory that was used before and stopped cleanly; sooner had than a new one."""
    made = base / "data"
    subprocess.run(["cp", "-a", pattern, made], check=True)
    (made / "postgres.log").unlink()
    return made


@contextmanager
def owner_of(data_dir: Path) -> Iterator[Owner]:
    """Have another process own the directory; whatever the test does to it, it is gone afterwards."""
    owner = Owner(data_dir)
    try:
        owner.read("url")
        yield owner
    finally:
        owner.close()


def quiet(_text: str) -> None:
    """Say nothing."""


def log_of(data_dir: Path) -> str:
    return (data_dir / "postgres.log").read_text()


def postmaster_pid(data_dir: Path) -> int:
    found = read_postmaster(data_dir / "postgres")
    assert found is not None
    return found.pid


def leave_pid_files(data_dir: Path, pid: int) -> None:
    """Leave the files of a server that was killed and whose number another process has now."""
    with start(data_dir, quiet):
        paths = [data_dir / "postgres" / "postmaster.pid", data_dir / "run" / ".s.PGSQL.5432.lock"]
        texts = [path.read_text() for path in paths]
    for path, text in zip(paths, texts, strict=True):
        path.write_text("\n".join([str(pid), *text.splitlines()[1:]]) + "\n")
        os.chown(path, server_user().uid, server_user().gid)


async def test_a_first_start_makes_a_database_that_the_role_owns(new_dir: Path) -> None:
    said: list[str] = []
    with start(new_dir, said.append) as url:
        [row] = await fetch(
            url,
            "SELECT current_user, current_database(), datdba::regrole::text, datlocprovider::text, datlocale"
            " FROM pg_database WHERE datname = current_database()",
        )
        [[is_superuser]] = await fetch(url, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
    assert row == ["tumira", "tumira", "tumira", "b", "C.UTF-8"]
    assert is_superuser is False
    assert said == [f"Creating the database in {new_dir} …"]


async def test_a_second_start_finds_what_the_first_committed_and_has_nothing_to_say(data_dir: Path) -> None:
    said: list[str] = []
    with start(data_dir, quiet) as url:
        await fetch(url, SQL_NOTE)
    with start(data_dir, said.append) as url:
        assert await fetch(url, SQL_READ) == [["committed"]]
    assert said == []
    assert live_processes(data_dir / "postgres") == []
    assert "recovery" not in log_of(data_dir)


async def test_durability_is_on_and_the_network_is_off_whatever_the_file_says(data_dir: Path) -> None:
    with start(data_dir, quiet):
        pass
    with (data_dir / "postgres" / "postgresql.conf").open("a") as conf:
        conf.write("fsync = off\nfull_page_writes = off\nlisten_addresses = '127.0.0.1'\nport = 6543\n")
    with start(data_dir, quiet) as url:
        rows = await fetch(url, "SELECT name, setting FROM pg_settings")
        settings = {name: setting for name, setting in rows}  # noqa: C416 - rows of two, typed as lists
    wanted = {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "data_checksums": "on",
        "listen_addresses": "",
        "unix_socket_permissions": "0700",
        "max_connections": "200",
        "max_wal_size": "4096",
        "io_method": "worker",
    }
    assert {name: settings[name] for name in wanted} == wanted


def test_the_server_has_a_user_a_group_and_a_session_of_its_own(data_dir: Path) -> None:
    user = server_user()
    with start(data_dir, quiet):
        pid = postmaster_pid(data_dir)
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert os.getsid(pid) == pid
    assert status["Uid"].split() == [str(user.uid)] * 4
    assert status["Gid"].split() == [str(user.gid)] * 4
    if user.switched:
        assert status["Groups"].split() == []
    socket_dir = (data_dir / "run").stat()
    assert (socket_dir.st_uid, stat.S_IMODE(socket_dir.st_mode)) == (user.uid, 0o700)


def test_a_stop_leaves_the_callers_other_children_alone(data_dir: Path) -> None:
    ended = subprocess.Popen(["false"])
    running = subprocess.Popen(["sleep", "60"])
    try:
        with start(data_dir, quiet):
            pass
        assert ended.wait(5) == 1
        assert running.poll() is None
    finally:
        running.kill()
        running.wait()


@pytest.mark.parametrize(
    "prefix", [[], ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]], ids=["plain", "no-int"]
)
async def test_dead_parent_the_server_ends_by_itself_and_the_next_start_needs_no_recovery(
    data_dir: Path, prefix: list[str]
) -> None:
    owner = Owner(data_dir, prefix=prefix)
    owner.read("url")
    owner.ask(SQL_NOTE)
    owner.kill()
    wait_for(lambda: not live_processes(data_dir / "postgres"))
    assert log_of(data_dir).endswith("database system is shut down\n")
    with start(data_dir, quiet) as url:
        assert await fetch(url, SQL_READ) == [["committed"]]
    assert "recovery" not in log_of(data_dir)


async def test_dead_parent_the_next_start_waits_for_a_server_that_is_still_stopping(data_dir: Path) -> None:
    with owner_of(data_dir) as first:
        first.ask(SQL_NOTE)
        old = postmaster_pid(data_dir)
        os.kill(old, signal.SIGSTOP)
        first.kill()
        second = Owner(data_dir)
        try:
            assert str(old) in second.read("say")
            await asyncio.sleep(0.5)
            assert postmaster_pid(data_dir) == old
            os.kill(old, signal.SIGCONT)
            second.read("url")
            assert old not in live_processes(data_dir / "postgres")
            assert second.ask(SQL_READ) == [["committed"]]
            second.leave()
        finally:
            second.close()


def test_a_server_that_never_ends_is_named_and_not_joined(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_process, "FAST_STOP_S", 0.2)
    monkeypatch.setattr(embedded_process, "HARD_STOP_S", 0.2)
    with owner_of(data_dir) as owner:
        old = postmaster_pid(data_dir)
        os.kill(old, signal.SIGSTOP)
        owner.kill()
        with pytest.raises(Trouble, match=f"kill -9 {old}"), start(data_dir, quiet):
            pass
        assert postmaster_pid(data_dir) == old


async def test_a_backend_that_outlived_its_postmaster_is_ended_before_the_next_start(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_process, "FAST_STOP_S", 0.5)
    said: list[str] = []
    with owner_of(data_dir) as owner:
        owner.ask(SQL_NOTE)
        # Busy without ever waiting, so it does not notice by itself that its postmaster is gone.
        assert owner.process.stdin is not None
        owner.process.stdin.write("SELECT count(*) FROM (SELECT generate_series(1, 10000000000)) AS n\n")
        owner.process.stdin.flush()
        cluster = data_dir / "postgres"
        wait_for(lambda: any(b"[local] SELECT" in _title(pid) for pid in live_processes(cluster)))
        os.kill(postmaster_pid(data_dir), signal.SIGKILL)
        owner.kill()
        with start(data_dir, said.append) as url:
            assert await fetch(url, SQL_READ) == [["committed"]]
    assert "still stopping" in said[0]


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_all_dead_committed_rows_are_there_after_the_next_start(data_dir: Path) -> None:
    with owner_of(data_dir) as owner:
        owner.ask(SQL_NOTE)
        owner.kill_all()
    with start(data_dir, quiet) as url:
        assert await fetch(url, SQL_READ) == [["committed"]]
    assert "automatic recovery in progress" in log_of(data_dir)


def test_a_server_that_dies_under_its_owner_is_reported_at_the_end(data_dir: Path) -> None:
    said: list[str] = []
    with start(data_dir, said.append):
        os.kill(postmaster_pid(data_dir), signal.SIGKILL)
        wait_for(lambda: not live_processes(data_dir / "postgres"))
    assert said == ["PostgreSQL ended with code -9, not by our stop; it recovers at the next start."]


def test_a_stop_that_hangs_becomes_a_hard_one(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_process, "FAST_STOP_S", 0.3)
    said: list[str] = []
    with start(data_dir, said.append):
        # A fast stop waits for the last checkpoint, which this process will not write.
        [checkpointer] = [
            pid for pid in live_processes(data_dir / "postgres") if b"checkpointer" in _title(pid)
        ]
        os.kill(checkpointer, signal.SIGSTOP)
    wait_for(lambda: not live_processes(data_dir / "postgres"))
    assert said == ["PostgreSQL has not stopped for 0 s; cut off, it recovers at the next start."]
    with start(data_dir, quiet):
        pass
    assert "automatic recovery in progress" in log_of(data_dir)


def test_killed_while_creating_the_next_start_creates_again(new_dir: Path) -> None:
    owner = Owner(new_dir)
    try:
        wait_for((new_dir / "postgres.new" / "global").exists)
    finally:
        owner.kill()
    assert not (new_dir / "postgres").exists()
    said: list[str] = []
    with start(new_dir, said.append):
        assert not (new_dir / "postgres.new").exists()
    assert f"Creating the database in {new_dir} …" in said


def test_a_zombie_with_the_servers_number_does_not_keep_the_next_start_away(data_dir: Path) -> None:
    zombie = spawn_as_server(["true"])
    try:
        wait_for(lambda: ") Z " in Path(f"/proc/{zombie.pid}/stat").read_text())
        leave_pid_files(data_dir, zombie.pid)
        with start(data_dir, quiet):
            assert postmaster_pid(data_dir) != zombie.pid
    finally:
        zombie.wait()


def test_a_foreign_process_with_the_servers_number_is_neither_joined_nor_hurt(data_dir: Path) -> None:
    stranger = spawn_as_server(["sleep", "60"])
    try:
        leave_pid_files(data_dir, stranger.pid)
        with start(data_dir, quiet):
            assert postmaster_pid(data_dir) != stranger.pid
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_without_our_clearing_postgresql_takes_the_foreign_process_for_itself(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = spawn_as_server(["sleep", "60"])
    try:
        leave_pid_files(data_dir, stranger.pid)
        monkeypatch.setattr(embedded, "_clear_leftovers", lambda _place, _tell: None)
        with (
            pytest.raises(Trouble, match=r'lock file "postmaster\.pid" already exists'),
            start(data_dir, quiet),
        ):
            pass
    finally:
        stranger.kill()
        stranger.wait()


def test_long_recovery_is_waited_for_and_announced(data_dir: Path) -> None:
    cluster = data_dir / "postgres"
    with owner_of(data_dir) as owner:
        owner.ask("CREATE TABLE ballast AS SELECT repeat(n::text, 50) FROM generate_series(1, 200000) AS n")
        owner.kill_all()
    known = len(log_of(data_dir))
    owner = Owner(data_dir)
    try:
        wait_for(lambda: "automatic recovery in progress" in log_of(data_dir)[known:])
        [startup] = [pid for pid in live_processes(cluster) if b"startup" in _title(pid)]
        os.kill(startup, signal.SIGSTOP)
        said = owner.read("say")
        time.sleep(1)
        found = read_postmaster(cluster)
        assert found is not None
        assert not found.is_ready
        os.kill(startup, signal.SIGCONT)
        owner.read("url")
        assert owner.ask("SELECT count(*) FROM ballast") == [[200000]]
        owner.leave()
    finally:
        owner.close()
    assert said.startswith("PostgreSQL is recovering, this can take a while …")


async def test_a_deep_path_gets_a_private_socket_elsewhere_that_attach_finds(base: Path) -> None:
    data_dir = base / ("deep-" * 20) / ("deeper-" * 10) / "data"
    assert len(str(data_dir)) > 107
    with start(data_dir, quiet) as url:
        found = read_postmaster(data_dir / "postgres")
        assert found is not None
        assert found.socket_dir is not None
        info = found.socket_dir.lstat()
        assert (info.st_uid, stat.S_IMODE(info.st_mode)) == (server_user().uid, 0o700)
        assert attach(data_dir) == url
        assert await fetch(url, "SELECT 1") == [[1]]
    assert not found.socket_dir.exists()


def test_a_deep_path_leaves_no_socket_directory_behind_after_a_kill(base: Path) -> None:
    data_dir = base / ("deep-" * 20) / "data"
    with owner_of(data_dir) as owner:
        found = read_postmaster(data_dir / "postgres")
        assert found is not None
        assert found.socket_dir is not None
        owner.kill_all()
    assert found.socket_dir.exists()
    with start(data_dir, quiet):
        assert not found.socket_dir.exists()


async def test_a_copy_of_a_running_directory_does_not_take_the_originals_socket(base: Path) -> None:
    original = base / ("deep-" * 20) / "data"
    copy = base / ("deep-" * 20) / "copy"
    with start(original, quiet) as url:
        await fetch(url, "SELECT 1")
        subprocess.run(["cp", "-a", original, copy], check=True)  # noqa: ASYNC221 - nothing else runs
        with start(copy, quiet) as other_url:
            assert other_url != url
            assert await fetch(other_url, "SELECT 2") == [[2]]
            assert await fetch(url, "SELECT 1") == [[1]]
        assert await fetch(url, "SELECT 1") == [[1]]


@pytest.mark.parametrize("name", ["a space", "ein Übertrag", 'it\'s "quoted", a bit', "100% #1?&"])
async def test_any_printable_name_will_do(base: Path, name: str) -> None:
    with start(base / name, quiet) as url:
        assert await fetch(url, "SELECT 1") == [[1]]
        assert attach(base / name) == url


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "xx_YY.UTF-8", "LANG": "xx_YY.UTF-8", "LC_MESSAGES": "xx_YY.UTF-8"},
        {
            "PGPORT": "6543",
            "PGHOST": "192.0.2.1",
            "PGOPTIONS": "-c fsync=off",
            "PGDATA": "/nowhere",
            "TZ": "No/Where",
        },
    ],
    ids=["unknown-locale", "settings-for-another-server"],
)
def test_the_environment_of_the_caller_does_not_reach_the_server(
    new_dir: Path, environment: dict[str, str]
) -> None:
    owner = Owner(new_dir, environment=environment)
    try:
        owner.read("url")
        assert owner.ask("SELECT current_setting('port'), upper('é'), current_setting('log_timezone')") == [
            ["5432", "É", "UTC"]
        ]
        owner.leave()
    finally:
        owner.close()


def test_ctrl_c_in_a_terminal_stops_the_server_cleanly(data_dir: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        # A shell that runs the tests in the background has them ignore Ctrl-C, and children inherit that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.chdir(CHECKOUT)
        os.execv(sys.executable, [sys.executable, *PROGRAM, str(data_dir)])  # noqa: S606 - no shell wanted
    shown = b""
    while b"url " not in shown:
        shown += os.read(terminal, 4096)
    assert os.getsid(postmaster_pid(data_dir)) != os.getsid(pid)
    os.write(terminal, b"\x03")
    while b"stopped by Ctrl-C" not in shown:
        if select.select([terminal], [], [], 20)[0]:
            shown += os.read(terminal, 4096)
        else:
            # A program that was just about to read may have missed it.
            os.write(terminal, b"\x03")
    assert os.waitpid(pid, 0) == (pid, 0)
    os.close(terminal)
    assert live_processes(data_dir / "postgres") == []
    assert log_of(data_dir).endswith("database system is shut down\n")
    with start(data_dir, quiet):
        pass
    assert "recovery" not in log_of(data_dir)


def test_started_twice_the_second_is_told_the_first_ones_number_and_attach_works(data_dir: Path) -> None:
    with owner_of(data_dir) as owner:
        with (
            pytest.raises(AlreadyRunning, match=f"process {owner.process.pid} ") as caught,
            start(data_dir, quiet),
        ):
            pass
        assert caught.value.pid == owner.process.pid
        assert "\n" not in str(caught.value)
        assert attach(data_dir) is not None
        assert owner.ask("SELECT 1") == [[1]]
        owner.leave()


async def test_attach_waits_for_an_owner_that_is_still_creating(new_dir: Path) -> None:
    owner = Owner(new_dir)
    try:
        wait_for((new_dir / "postgres.new").exists)
        url = attach(new_dir)
        assert url is not None
        assert await fetch(url, "SELECT 1") == [[1]]
        assert owner.read("url") == url
        owner.leave()
    finally:
        owner.close()


def test_attach_finds_nobody_where_nobody_is(new_dir: Path) -> None:
    assert attach(new_dir) is None
    with owner_of(new_dir) as owner:
        owner.kill_all()
        assert attach(new_dir) is None


def test_another_major_version_is_refused_in_words_that_name_the_way_out(data_dir: Path) -> None:
    with start(data_dir, quiet):
        pass
    (data_dir / "postgres" / "PG_VERSION").write_text("16\n")
    with (
        pytest.raises(Trouble, match=r"PostgreSQL 16 .*`tumira backup`.*`tumira restore`"),
        start(data_dir, quiet),
    ):
        pass


def test_files_that_are_no_database_are_refused_and_kept(data_dir: Path) -> None:
    with start(data_dir, quiet):
        pass
    (data_dir / "postgres" / "PG_VERSION").unlink()
    with pytest.raises(Trouble, match="holds files but no database"), start(data_dir, quiet):
        pass
    assert (data_dir / "postgres" / "global" / "pg_control").exists()


def test_a_server_that_refuses_to_start_is_quoted_in_one_line(data_dir: Path) -> None:
    with start(data_dir, quiet):
        pass
    with (data_dir / "postgres" / "postgresql.conf").open("a") as conf:
        conf.write("work_mem = 'plenty'\n")
    refusal = pytest.raises(Trouble, match=r"did not start: configuration file .* contains errors")
    with refusal as caught, start(data_dir, quiet):
        pass
    assert "\n" not in str(caught.value)
    assert attach(data_dir) is None


def test_a_large_log_is_put_aside_at_the_start(data_dir: Path) -> None:
    with start(data_dir, quiet):
        pass
    with (data_dir / "postgres.log").open("a") as log:
        log.write("old\n" * 3_000_000)
    with start(data_dir, quiet):
        assert "old" not in log_of(data_dir)
    assert (data_dir / "postgres.log.1").stat().st_size > 10 * 1024 * 1024


def test_a_data_directory_that_is_a_file_is_one_clear_line(new_dir: Path) -> None:
    new_dir.write_text("")
    with pytest.raises(Trouble, match=f"{new_dir}.*TUMIRA_DATA_DIR") as caught, start(new_dir, quiet):
        pass
    assert "\n" not in str(caught.value)
