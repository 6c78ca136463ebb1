"""A process that starts the embedded PostgreSQL."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.postgres.embedded import Owner
from tumira.postgres.embedded.process import read_postmaster

SQL_NOTE = "CREATE TABLE IF NOT EXISTS notes AS SELECT 'committed' AS text"
SQL_READ = "SELECT text FROM notes"


@contextmanager
def owner_of(data_dir: Path) -> Iterator[Owner]:
    """Have another process own the directory; whatever the test does to it, it is gone afterwards."""
    owner = Owner(data_dir)
    try:
        owner.read("url")
        yield owner
    finally:
        owner.close()


def copy_of(pattern: Path, data_dir: Path) -> Path:
    """Copy a data directory, with the owners of its files; the new one has no log."""
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", pattern, data_dir], check=True)
    (data_dir / "postgres.log").unlink(missing_ok=True)
    return data_dir


def quiet(_text: str) -> None:
    """Say nothing."""


def log_of(data_dir: Path) -> str:
    return (data_dir / "postgres.log").read_text()


def postmaster_pid(data_dir: Path) -> int:
    found = read_postmaster(data_dir / "postgres")
    assert found is not None
    return found.pid
