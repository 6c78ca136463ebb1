"""The embedded PostgreSQL: start, stop, sharing and errors."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support.postgres.embedded import Owner, fetch, wait_for
from tests.support.postgres.embedded_starts import (
    SQL_NOTE,
    SQL_READ,
    copy_of,
    log_of,
    owner_of,
    postmaster_pid,
    quiet,
)
from tumira.core.errors import OperatorError, TemporaryOperatorError
from tumira.postgres.embedded.files import server_user
from tumira.postgres.embedded.process import live_processes, read_postmaster
from tumira.postgres.embedded.server import AlreadyRunningError, attach, start

# Neither a locale that this machine lacks nor the settings of another server may reach ours.
ODD_ENVIRONMENT = {
    "LC_ALL": "xx_YY.UTF-8",
    "LANG": "xx_YY.UTF-8",
    "PGPORT": "6543",
    "PGHOST": "192.0.2.1",
    "PGOPTIONS": "-c fsync=off",
    "PGDATA": "/nowhere",
    "TZ": "No/Where",
}
PROMISED = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "data_checksums": "on",
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "max_wal_size": "4096",
    "wal_keep_size": "256",
    "io_method": "worker",
}


async def test_a_first_start_makes_a_database_that_the_role_owns_and_others_find(base: Path) -> None:
    new_dir = base / 'it\'s "quoted", 100% #1?& übertragen'
    assert attach(new_dir) is None
    owner = Owner(new_dir, environment=ODD_ENVIRONMENT)
    try:
        # While it is still being created, whoever looks for it waits.
        wait_for((new_dir / "postgres.new").exists)
        url = attach(new_dir)
        assert url == owner.read("url")
        assert owner.said == [f"Creating the database in {new_dir} …"]
        [row] = await fetch(
            url,
            "SELECT current_user, datname, datdba::regrole::text, datlocprovider::text, datlocale, rolsuper"
            " FROM pg_database, pg_roles WHERE datname = current_database() AND rolname = current_user",
        )
        assert row == ["tumira", "tumira", "tumira", "b", "C.UTF-8", False]
        assert owner.ask("SELECT current_setting('port'), upper('é'), current_setting('log_timezone')") == [
            ["5432", "É", "UTC"]
        ]
        already = pytest.raises(AlreadyRunningError, match=f"process {owner.process.pid} ")
        with already as caught, start(new_dir, quiet):
            pass
        assert caught.value.pid == owner.process.pid
        assert "\n" not in str(caught.value)
        assert owner.ask("SELECT 1") == [[1]]
        owner.kill_all()
        assert attach(new_dir) is None
    finally:
        owner.close()


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


async def test_a_second_start_has_all_that_was_committed_and_all_that_is_promised(data_dir: Path) -> None:
    ended = subprocess.Popen(["false"])  # noqa: ASYNC220 - nothing else runs
    with start(data_dir, quiet) as url:
        await fetch(url, SQL_NOTE)
    # A stop leaves other children of the caller alone.
    assert ended.wait(40) == 1
    with (data_dir / "postgres" / "postgresql.conf").open("a") as conf:
        conf.write("fsync = off\nfull_page_writes = off\nlisten_addresses = '127.0.0.1'\nport = 6543\n")
    assert "recovery" not in log_of(data_dir)
    with (data_dir / "postgres.log").open("a") as log:
        log.write("old\n" * 3_000_000)
    said: list[str] = []
    user = server_user()
    with start(data_dir, said.append) as url:
        assert await fetch(url, SQL_READ) == [["committed"]]
        rows = await fetch(url, "SELECT name, setting FROM pg_settings")
        assert {name: setting for name, setting in rows if name in PROMISED} == PROMISED
        pid = postmaster_pid(data_dir)
        status = status_of(pid)
        assert os.getsid(pid) == pid
        assert "old" not in log_of(data_dir)
    assert said == []
    assert live_processes(data_dir / "postgres") == []
    assert (data_dir / "postgres.log.1").stat().st_size > 10 * 1024 * 1024
    assert status["Uid"].split() == [str(user.uid)] * 4
    assert status["Gid"].split() == [str(user.gid)] * 4
    if user.switched:
        assert status["Groups"].split() == []
    socket_dir = (data_dir / "run").stat()
    assert (socket_dir.st_uid, stat.S_IMODE(socket_dir.st_mode)) == (user.uid, 0o700)


@pytest.mark.long
async def test_a_deep_path_gets_a_private_socket_elsewhere_that_a_copy_does_not_take(
    base: Path, pattern: Path
) -> None:
    deep = base / ("deep-" * 20) / ("deeper-" * 10)
    data_dir = copy_of(pattern, deep / "data")
    with start(data_dir, quiet) as url:
        found = read_postmaster(data_dir / "postgres")
        assert found is not None
        assert found.socket_dir is not None
        info = found.socket_dir.lstat()
        assert (info.st_uid, stat.S_IMODE(info.st_mode)) == (server_user().uid, 0o700)
        assert attach(data_dir) == url
        with start(copy_of(data_dir, deep / "copy"), quiet) as other_url:
            assert other_url != url
            assert await fetch(other_url, "SELECT 2") == [[2]]
            assert await fetch(url, "SELECT 1") == [[1]]
        assert await fetch(url, "SELECT 1") == [[1]]
    assert not found.socket_dir.exists()
    # After a kill it is the next start that removes it.
    with owner_of(data_dir) as owner:
        found = read_postmaster(data_dir / "postgres")
        assert found is not None
        assert found.socket_dir is not None
        owner.kill_all()
    assert found.socket_dir.exists()
    with start(data_dir, quiet):
        assert not found.socket_dir.exists()


@pytest.mark.long
def test_a_directory_that_cannot_be_used_is_refused_in_one_line_and_kept(data_dir: Path) -> None:
    version = data_dir / "postgres" / "PG_VERSION"
    conf = data_dir / "postgres" / "postgresql.conf"

    def refusal(words: str) -> str:
        with pytest.raises(OperatorError, match=words) as caught, start(data_dir, quiet):
            pass
        assert "\n" not in str(caught.value)
        assert not isinstance(caught.value, TemporaryOperatorError)
        return str(caught.value)

    before = conf.read_text()
    conf.write_text(f"{before}work_mem = 'plenty'\n")
    refusal(r"did not start: configuration file .* contains errors")
    assert attach(data_dir) is None
    conf.write_text(before)
    version.write_text("16\n")
    refusal(r"PostgreSQL 16 .*`tumira backup`.*`tumira restore`")
    version.unlink()
    refusal("holds files but no database")
    assert (data_dir / "postgres" / "global" / "pg_control").exists()
    data_dir.rename(data_dir.with_name("moved"))
    data_dir.write_text("")
    refusal(f"{data_dir}.*TUMIRA_DATA_DIR")
