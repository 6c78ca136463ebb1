"""The embedded PostgreSQL after crashes and kills."""

import asyncio
import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support.postgres.embedded import CHECKOUT, PROGRAM, Owner, fetch, spawn_as_server, wait_for
from tests.support.postgres.embedded_starts import SQL_NOTE, SQL_READ, log_of, owner_of, postmaster_pid, quiet
from tumira.core.errors import OperatorError, TemporaryOperatorError
from tumira.postgres.embedded import process as embedded_process
from tumira.postgres.embedded import server as embedded
from tumira.postgres.embedded.files import server_user
from tumira.postgres.embedded.process import live_processes, read_postmaster
from tumira.postgres.embedded.server import start


def leave_pid_files(data_dir: Path, pid: int) -> None:
    """Leave the files of a server that was killed and whose number another process has now."""
    with start(data_dir, quiet):
        paths = [data_dir / "postgres" / "postmaster.pid", data_dir / "run" / ".s.PGSQL.5432.lock"]
        texts = [path.read_text() for path in paths]
    for path, text in zip(paths, texts, strict=True):
        path.write_text("\n".join([str(pid), *text.splitlines()[1:]]) + "\n")
        os.chown(path, server_user().uid, server_user().gid)


async def test_dead_parent_the_server_ends_by_itself_and_the_next_start_needs_no_recovery(
    data_dir: Path,
) -> None:
    # Also where a shell has us ignore Ctrl-C.
    owner = Owner(data_dir, prefix=["sh", "-c", 'trap "" INT; exec "$@"', "sh"])
    owner.read("url")
    owner.ask(SQL_NOTE)
    owner.kill()
    wait_for(lambda: not live_processes(data_dir / "postgres"))
    assert log_of(data_dir).endswith("database system is shut down\n")
    with start(data_dir, quiet) as url:
        assert await fetch(url, SQL_READ) == [["committed"]]
    assert "recovery" not in log_of(data_dir)


@pytest.mark.long
def test_a_server_that_is_still_stopping_is_waited_for_or_named_and_never_joined(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_process, "FAST_STOP_S", 0.2)
    monkeypatch.setattr(embedded_process, "HARD_STOP_S", 0.2)
    with owner_of(data_dir) as first:
        old = postmaster_pid(data_dir)
        os.kill(old, signal.SIGSTOP)
        first.kill()
        with pytest.raises(OperatorError, match=f"kill -9 {old}"), start(data_dir, quiet):
            pass
        second = Owner(data_dir)
        try:
            assert str(old) in second.read("say")
            assert postmaster_pid(data_dir) == old
            os.kill(old, signal.SIGCONT)
            second.read("url")
            assert old not in live_processes(data_dir / "postgres")
            second.leave()
        finally:
            second.close()


@pytest.mark.long
async def test_a_backend_that_outlived_its_postmaster_is_ended_before_the_next_start(data_dir: Path) -> None:
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
        began = time.monotonic()
        with start(data_dir, quiet) as url:
            assert await fetch(url, SQL_READ) == [["committed"]]
            # It was not waited for as one that can still stop in good order.
            assert time.monotonic() - began < embedded_process.FAST_STOP_S


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_server_that_dies_under_its_owner_is_reported_at_the_end(data_dir: Path) -> None:
    said: list[str] = []
    with start(data_dir, said.append):
        os.kill(postmaster_pid(data_dir), signal.SIGKILL)
        wait_for(lambda: not live_processes(data_dir / "postgres"))
    assert said == ["PostgreSQL ended with code -9, not by our stop; it recovers at the next start."]


@pytest.mark.long
def test_a_server_that_died_is_started_again_at_the_same_address_and_never_made_anew(data_dir: Path) -> None:
    cluster = data_dir / "postgres"

    def kill_it() -> None:
        found = read_postmaster(cluster)
        if found is not None and found.pid in live_processes(cluster):
            os.kill(found.pid, signal.SIGKILL)

    with embedded.hold(data_dir, quiet) as server:
        # At the latest while its database is prepared.
        with pytest.raises(
            TemporaryOperatorError, match=r"did not start: it was ended by signal 9|be prepared"
        ):
            server.start(kill_it)
        server.start()
        url = server.url
        asyncio.run(fetch(url, SQL_NOTE))
        kill_it()
        wait_for(lambda: server.exit_code == -signal.SIGKILL and not live_processes(cluster))
        cluster.rename(data_dir / "moved")
        with pytest.raises(OperatorError, match="is gone: bring it back, or restore a backup") as caught:
            server.start()
        assert not isinstance(caught.value, TemporaryOperatorError)
        (data_dir / "moved").rename(cluster)
        server.start()
        assert server.url == url == embedded.attach(data_dir)
        assert asyncio.run(fetch(url, SQL_READ)) == [["committed"]]
    assert live_processes(cluster) == []


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_another_process_with_the_servers_number_is_neither_joined_nor_hurt(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie, stranger = spawn_as_server(["true"]), spawn_as_server(["sleep", "60"])
    try:
        wait_for(lambda: ") Z " in Path(f"/proc/{zombie.pid}/stat").read_text())
        leave_pid_files(data_dir, zombie.pid)
        with start(data_dir, quiet):
            assert postmaster_pid(data_dir) != zombie.pid
        leave_pid_files(data_dir, stranger.pid)
        # Its twin: without our clearing, PostgreSQL takes the stranger for itself.
        with monkeypatch.context() as patched:
            patched.setattr(embedded, "_clear_leftovers", lambda *_given: None)
            refused = pytest.raises(OperatorError, match=r'lock file "postmaster\.pid" already exists')
            with refused, start(data_dir, quiet):
                pass
        with start(data_dir, quiet):
            assert postmaster_pid(data_dir) != stranger.pid
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
        zombie.wait()


@pytest.mark.long
def test_long_recovery_is_waited_for_and_announced(data_dir: Path) -> None:
    cluster = data_dir / "postgres"
    with owner_of(data_dir) as owner:
        owner.ask("CREATE TABLE ballast AS SELECT repeat(n::text, 50) FROM generate_series(1, 50000) AS n")
        owner.kill_all()
    known = len(log_of(data_dir))
    owner = Owner(data_dir)
    try:
        wait_for(lambda: "automatic recovery in progress" in log_of(data_dir)[known:])
        [startup] = [pid for pid in live_processes(cluster) if b"startup" in _title(pid)]
        os.kill(startup, signal.SIGSTOP)
        said = owner.read("say")
        found = read_postmaster(cluster)
        assert found is not None
        assert not found.is_ready
        os.kill(startup, signal.SIGCONT)
        owner.read("url")
        assert owner.ask("SELECT count(*) FROM ballast") == [[50000]]
        owner.leave()
    finally:
        owner.close()
    assert said.startswith("PostgreSQL is recovering, this can take a while …")


@pytest.mark.long
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
