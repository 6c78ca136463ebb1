"""Disk, memory, limits, user, files and ports: rules by example, and this machine as it is."""

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tumira.operations.doctor import files, machine, ports
from tumira.operations.doctor.clock import check_synchronised, judge_offset, judge_state
from tumira.operations.doctor.diagnosis import Level, write_size
from tumira.operations.doctor.machine import ProcessLimits
from tumira.operations.doctor.ports import PortHolder

OK, WARNING, PROBLEM = Level.OK, Level.WARNING, Level.PROBLEM
GB: Final = 1_000_000_000
HERE: Final = Path("/data")


@pytest.mark.parametrize(
    ("free", "total", "level"),
    [(50 * GB, 80 * GB, OK), (7 * GB, 80 * GB, WARNING), (GB - 1, 5 * GB, PROBLEM), (0, 80 * GB, PROBLEM)],
)
def test_a_disk_is_judged_by_what_is_free(free: int, total: int, level: Level) -> None:
    found = machine.judge_disk(HERE, "the data directory", free, total)
    assert (found.level, bool(found.advice)) == (level, level is not OK)


@contextmanager
def small_disk(path: Path, options: str) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody mount")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def test_a_disk_that_is_full_is_found(tmp_path: Path) -> None:
    with small_disk(tmp_path, "size=64k") as disk:
        found = machine.check_disk(disk / "data", "the data directory")
        assert (found.level, "A million messages take about" in found.advice) == (PROBLEM, True)
    # Two files: the directory is one, and the next the last.
    with small_disk(tmp_path, "size=4g,nr_inodes=2") as disk:
        assert machine.check_disk(disk / "data", "the data directory").level is OK
        (disk / "last").touch()
        found = machine.check_disk(disk / "data", "the data directory")
        assert (found.level, "can hold only 0 more files" in found.found) == (PROBLEM, True)


@pytest.mark.parametrize(
    ("total", "available", "with_postgres", "level"),
    [
        (8 * GB, 4 * GB, True, OK),
        (1.9 * GB, GB, True, OK),
        (GB, 0.5 * GB, True, WARNING),
        (GB, 0.5 * GB, False, OK),
        (8 * GB, 0.1 * GB, False, PROBLEM),
    ],
)
def test_memory_is_judged_by_what_runs_here(
    total: float, available: float, *, with_postgres: bool, level: Level
) -> None:
    assert machine.judge_memory(int(total), int(available), with_postgres=with_postgres).level is level


def test_the_memory_of_a_container_is_that_of_its_limit(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("600000000\n")
    (tmp_path / "memory.current").write_text("550000000\n")
    (tmp_path / "memory.stat").write_text("anon 450000000\ninactive_file 50000000\n")
    full = machine.check_memory(with_postgres=False, cgroup=tmp_path)
    assert (full.level, full.found) == (PROBLEM, "100 MB of 600 MB are available.")
    (tmp_path / "memory.current").write_text("200000000\n")
    small = machine.check_memory(with_postgres=False, cgroup=tmp_path)
    assert (small.level, small.found) == (WARNING, "450 MB of 600 MB are available.")
    (tmp_path / "memory.max").write_text("max\n")
    assert "450 MB" not in machine.check_memory(with_postgres=False, cgroup=tmp_path).found


@pytest.mark.parametrize(
    ("limits", "levels"),
    [
        (ProcessLimits(7, 1000, 65_536, 4_096), [OK, OK]),
        (ProcessLimits(7, 1000, 4_096, float("inf")), [WARNING, OK]),
        (ProcessLimits(None, 1000, 256, 100), [PROBLEM, WARNING]),
        # The kernel does not count root's processes.
        (ProcessLimits(None, 0, 65_536, 100), [OK, OK]),
    ],
)
def test_limits_are_judged_by_what_a_node_opens_and_starts(
    limits: ProcessLimits, levels: list[Level]
) -> None:
    assert [one.level for one in machine.judge_limits(limits)] == levels


def test_root_is_warned() -> None:
    assert machine.judge_user(ProcessLimits(7, 0, 1, 1)).level is WARNING
    assert machine.judge_user(ProcessLimits(None, 0, 1, 1)).level is WARNING
    ours = machine.judge_user(ProcessLimits(7, 65_533, 1, 1))
    assert (ours.level, ours.found) == (OK, "Tumira runs as user id 65533.")


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    limits = machine.read_limits(os.getpid())
    assert (limits.pid, limits.uid) == (os.getpid(), os.geteuid())
    assert limits.open_files > 0
    # A process that is gone is none to read.
    assert machine.read_limits(2**22 + 1).pid is None
    assert machine.check_disk(tmp_path / "not" / "yet", "a test").found.endswith(f"({tmp_path}/not/yet).")
    assert "available" in machine.check_memory(with_postgres=False).found
    assert machine.check_shared_memory().level is OK
    assert check_synchronised().level in {OK, WARNING}


def test_sizes_are_short() -> None:
    sizes = [write_size(size) for size in (123_456_789, 1_234_567_890, 12_345_678_901, 12_345 * GB)]
    assert sizes == ["123 MB", "1.2 GB", "12 GB", "12,345 GB"]


def test_a_clock_that_nothing_synchronises_is_a_warning() -> None:
    # TIME_OK, a leap second to come, TIME_ERROR, and a container that may not ask.
    assert [judge_state(state).level for state in (0, 1, 5, -1)] == [OK, OK, WARNING, WARNING]
    assert "chrony" in judge_state(5).advice


def test_clocks_are_compared_within_what_can_be_known() -> None:
    levels = [judge_offset(offset, 0.5, "it").level for offset in (0, 2.4, -2.6, 59, -61)]
    assert levels == [OK, OK, WARNING, WARNING, PROBLEM]
    assert "61 s behind it" in judge_offset(-61, 0, "it").found
    assert "3 s ahead of it" in judge_offset(3, 0, "it").found


def test_settings_and_backups_that_others_can_read_are_a_problem(tmp_path: Path) -> None:
    settings, backups = tmp_path / "tumira.env", tmp_path / "backups"
    backups.mkdir(mode=0o755)
    settings.write_text("TUMIRA_SMTP_URL=smtp://user:password@mail.example\n")
    (backups / "monday.backup").write_text("")

    def look() -> list[tuple[Level, str]]:
        found = files.check_secrets([settings, tmp_path / "absent"], backups)
        return [(one.level, one.advice) for one in found]

    settings.chmod(0o644)
    (backups / "monday.backup").chmod(0o644)
    assert look() == [(PROBLEM, f"chmod 600 {settings}"), (PROBLEM, f"chmod 700 {backups}")]
    settings.chmod(0o660)
    backups.chmod(0o700)
    assert look() == [(WARNING, f"chmod g-w {settings}")]
    settings.chmod(0o640)
    assert look() == [(OK, "")]


def test_a_data_directory_is_writable_for_us_and_not_for_all(tmp_path: Path) -> None:
    directory = tmp_path / "data"

    def look(*, is_embedded: bool = True) -> Level:
        return files.check_data_directory(directory, is_embedded=is_embedded).level

    assert (look(), look(is_embedded=False)) == (OK, OK)
    directory.mkdir(mode=0o700)
    assert look() is OK
    directory.chmod(0o777)
    assert look() is PROBLEM


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a directory that every user may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def another_user() -> Iterator[None]:
    """Be a user without rights for a moment, where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(65_534, 65_534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def test_a_directory_that_is_not_ours_is_a_problem(folder: Path) -> None:
    data = folder / "data"
    data.mkdir(mode=0o500)
    folder.chmod(0o555)
    with another_user():
        theirs = files.check_data_directory(data, is_embedded=True)
        missing = files.check_data_directory(folder / "other", is_embedded=True)
    folder.chmod(0o755)
    assert (theirs.level, "may not use it" in theirs.found) == (PROBLEM, True)
    assert (missing.level, f"may not create it in {folder}" in missing.found) == (PROBLEM, True)
    assert "chown" in theirs.advice
    assert "TUMIRA_DATA_DIR" in missing.advice


def test_a_port_that_only_root_may_use_is_a_problem() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if first == 0:
        pytest.skip("every user may use every port of this machine")
    with another_user():
        found = ports.check_port("127.0.0.1", first - 1, "TUMIRA_PORT")
    assert (found.level, "may not listen" in found.found) == (PROBLEM, True)
    assert "1024 or more" in found.advice


def test_a_port_is_free_or_its_holder_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        held = ports.check_port("127.0.0.1", port, "TUMIRA_PORT")
        assert held.level is PROBLEM
        assert f"(process {os.getpid()})" in held.found
        assert held.advice == "Stop it, or set TUMIRA_PORT to another port."
    assert ports.check_port("127.0.0.1", port, "TUMIRA_PORT").level is OK
    foreign = ports.check_port("192.0.2.1", port, "TUMIRA_PORT")
    assert (foreign.level, "TUMIRA_HOST" in foreign.advice) == (PROBLEM, True)


@pytest.mark.parametrize(
    ("words", "is_tumira"),
    [
        (("/opt/tumira/.venv/bin/python3", "-W", "error", "-m", "tumira", "web"), True),
        (("/usr/bin/python3", "/usr/bin/tumira", "serve"), True),
        (("nginx: master process",), False),
        (("/usr/bin/python3", "-m", "http.server"), False),
    ],
)
def test_tumira_is_known_by_its_command(words: tuple[str, ...], *, is_tumira: bool) -> None:
    level = ports.judge_holder(PortHolder(7, words), 8080, "TUMIRA_PORT").level
    assert level is (OK if is_tumira else PROBLEM)
    assert ports.judge_holder(None, 8080, "TUMIRA_PORT").level is WARNING
