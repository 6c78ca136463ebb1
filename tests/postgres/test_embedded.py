"""The embedded PostgreSQL: start, stop, sharing and errors."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support.postgres.embedded import Owner, fetch, wait_for
from tests.support.postgres.embedded_starts import SQL_NOTE, SQL_READ, log_of, owner_of, postmaster_pid, quiet
from tumira.core.errors import OperatorError, TemporaryOperatorError
from tumira.postgres.embedded.files import server_user
from tumira.postgres.embedded.process import live_processes, read_postmaster
from tumira.postgres.embedded.server import AlreadyRunningError, attach, start


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
        assert ended.wait(40) == 1
        assert running.poll() is None
    finally:
        running.kill()
        running.wait()


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


def test_started_twice_the_second_is_told_the_first_ones_number_and_attach_works(data_dir: Path) -> None:
    with owner_of(data_dir) as owner:
        with (
            pytest.raises(AlreadyRunningError, match=f"process {owner.process.pid} ") as caught,
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
        pytest.raises(OperatorError, match=r"PostgreSQL 16 .*`tumira backup`.*`tumira restore`"),
        start(data_dir, quiet),
    ):
        pass


def test_files_that_are_no_database_are_refused_and_kept(data_dir: Path) -> None:
    with start(data_dir, quiet):
        pass
    (data_dir / "postgres" / "PG_VERSION").unlink()
    with pytest.raises(OperatorError, match="holds files but no database"), start(data_dir, quiet):
        pass
    assert (data_dir / "postgres" / "global" / "pg_control").exists()


def test_a_server_that_refuses_to_start_is_quoted_in_one_line(data_dir: Path) -> None:
    with start(data_dir, quiet):
        pass
    with (data_dir / "postgres" / "postgresql.conf").open("a") as conf:
        conf.write("work_mem = 'plenty'\n")
    refusal = pytest.raises(OperatorError, match=r"did not start: configuration file .* contains errors")
    with refusal as caught, start(data_dir, quiet):
        pass
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, TemporaryOperatorError)
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
    with pytest.raises(OperatorError, match=f"{new_dir}.*TUMIRA_DATA_DIR") as caught, start(new_dir, quiet):
        pass
    assert "\n" not in str(caught.value)
