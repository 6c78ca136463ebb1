"""How does a test run the release before this one? Its code comes from git, and runs with our packages.

The release before is the last commit that lacks the newest migration: the code that nodes still run when the
first node of today's version changes the schema.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.processes.programs import CHECKOUT, TUMIRA, environment

MIGRATIONS: Final = "tumira/postgres/migrations"
RUN_S: Final = 60


@dataclass(frozen=True, slots=True)
class Release:
    """The code of one version."""

    root: Path

    def start(self, *arguments: str, **settings: Any) -> "subprocess.Popen[bytes]":
        """Start one of its commands, whose output is read later."""
        return subprocess.Popen(
            [*TUMIRA, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=environment(**settings) | {"PYTHONPATH": str(self.root)},
        )

    def run(self, *arguments: str, **settings: Any) -> "subprocess.CompletedProcess[str]":
        """Run one of its commands, however it ends."""
        process = self.start(*arguments, **settings)
        out, err = process.communicate(timeout=RUN_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out.decode(), err.decode())

    @property
    def migrations(self) -> set[str]:
        """Return the names of its migrations."""
        return {path.name for path in (self.root / MIGRATIONS).glob("*.sql")}


NEW: Final = Release(CHECKOUT)


@contextmanager
def old_release() -> Iterator[Release]:
    """Give the release before this one."""
    commit = _commit_before(max(NEW.migrations))
    archive = _git("archive", "--format=tar", commit, "tumira")
    with tempfile.TemporaryDirectory(prefix="tumira-old-") as root:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(root, filter="data")
        release = Release(Path(root))
        assert release.migrations < NEW.migrations, "the release before has migrations that this one lacks"
        assert _imported_by(release) == release.root / "tumira" / "__init__.py"
        yield release


def _commit_before(migration: str) -> str:
    """Return the last commit without a migration; today's, while the file is not committed."""
    path = f"{MIGRATIONS}/{migration}"
    if not _git("ls-tree", "HEAD", path):
        return "HEAD"
    added = _git("log", "--diff-filter=A", "-1", "--format=%H", "--", path).decode().strip()
    return f"{added}^"


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=CHECKOUT, capture_output=True, timeout=RUN_S, check=False)
    if done.returncode != 0:
        raise AssertionError(
            "The release before this one cannot be had from git, so upgrades are not tried: clone the whole "
            f"history, or run `git fetch --unshallow`. git {arguments[0]}: {done.stderr.decode().strip()}"
        )
    return done.stdout


def _imported_by(release: Release) -> Path:
    """Return which code really runs: ours is installed in the same environment."""
    asked = subprocess.run(
        [sys.executable, "-c", "import tumira; print(tumira.__file__)"],
        cwd="/",
        env=environment() | {"PYTHONPATH": str(release.root)},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=True,
    )
    return Path(asked.stdout.strip())
