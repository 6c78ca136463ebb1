"""A PostgreSQL whose clock is moved: libfaketime answers its questions for the time.

with run_server_with_clock() as (url, clock):
    clock.move(timedelta(minutes=10))
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from tests.support.postgres.databases import execute, open_directory
from tests.support.postgres.embedded import quick_directory
from tests.support.postgres.standby import LOOPBACK, Server
from tests.support.processes.ports import free_port

LIBRARIES: Final = ("/usr/lib", "/usr/lib64", "/usr/local/lib")


class MovedClock:
    """How far a server's clock is ahead, in a file that it reads with every look at the clock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.move(timedelta())

    def move(self, ahead: timedelta) -> None:
        # Replaced, because the server may read it at any moment.
        new = self._path.with_suffix(".new")
        new.write_text(f"+{ahead.total_seconds():.0f}\n")
        new.chmod(0o644)
        new.replace(self._path)


def find_library() -> Path:
    """Return libfaketime; skip the test where there is none."""
    for folder in LIBRARIES:
        for found in sorted(Path(folder).glob("**/faketime/libfaketime.so.1")):
            return found
    pytest.skip("libfaketime is missing: install faketime")


@contextmanager
def run_server_with_clock() -> Iterator[tuple[str, MovedClock]]:
    """Run a PostgreSQL of its own with an empty migrated database."""
    library = find_library()
    with open_directory("tumira-clock-", quick_directory()) as directory:
        path = directory / "ahead"
        clock = MovedClock(path)
        inner = (
            "env",
            f"LD_PRELOAD={library}",
            f"FAKETIME_TIMESTAMP_FILE={path}",
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        )
        server = Server(directory, "moved", LOOPBACK, free_port(), (), secrets.token_urlsafe(), inner)
        try:
            server.make()
            clock.move(timedelta(days=1))
            (ahead,) = execute(server.url, "SELECT clock_timestamp() - $1::timestamptz", datetime.now(UTC))
            assert ahead[0] > timedelta(hours=23), "the library does not move the server's clock"
            clock.move(timedelta())
            yield server.url, clock
        finally:
            server.kill()
