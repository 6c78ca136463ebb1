"""A node under load whose disk is full loses nothing that it accepted."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.chaos.node import Load, Reader, audit, open_account
from tests.support.postgres.databases import open_directory
from tests.support.processes.programs import running

CALLERS: Final = 4
DISK_MB: Final = 320


@contextmanager
def small_disk() -> Iterator[Path]:
    with open_directory("tumira-disk-") as path:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0755", "tmpfs", str(path)],
            check=False,
            capture_output=True,
        )
        if mounted.returncode != 0:
            pytest.skip("A disk of its own cannot be mounted here; run as root to try a full one.")
        try:
            yield path
        finally:
            subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.mark.long
def test_a_full_disk_refuses_and_loses_nothing() -> None:
    with small_disk() as home, running(home) as node:
        load = Load(node.base, open_account(**node.settings), seed=1)
        with load.running(CALLERS):
            load.wait_for(50)
            ballast = home / "ballast"
            # Without a buffer: closing the file would try to write what is left in it once more.
            with ballast.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(1 << 20))
                except OSError:
                    pass
            wait_until_refused(load)
            ballast.unlink()
            load.wait_for(50)
        audit(**node.settings)
        kept = {row["id"] for row in Reader(home / "data").rows("SELECT id FROM batches")}
        assert {sent.batch_id for sent in load.accepted} == kept
        assert set(load.refused) <= {503}
        assert node.stop() == 0


def wait_until_refused(load: Load) -> None:
    """Wait until the room that was left inside PostgreSQL's files is used up too."""
    deadline = time.monotonic() + 60
    before = -1
    while not load.refused and time.monotonic() < deadline:
        if len(load.accepted) == before:
            return
        before = len(load.accepted)
        time.sleep(1.5)
    assert load.refused, "the disk did not fill up"
