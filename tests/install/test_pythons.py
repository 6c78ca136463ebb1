"""Every Python that we support: the package serves, and the unit tests of a clone pass."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.install.environments import PYTHONS, build, find_pythons, run, try_package
from tests.support.postgres.embedded import temporary_base
from tests.support.processes.programs import CHECKOUT

UNIT_S: Final = 900

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800), pytest.mark.parametrize("version", PYTHONS)]


@pytest.fixture
def python(version: str) -> str:
    found = find_pythons().get(version)
    if found is None:
        pytest.skip(f"Python {version} is missing: install it with its venv module, or with pyenv")
    return found


@pytest.fixture
def home() -> Iterator[Path]:
    with temporary_base() as path:
        yield path


def test_the_package_serves(python: str, home: Path) -> None:
    try_package(python, home, build(home / "dist").wheel)


def test_the_unit_tests_pass(python: str, home: Path) -> None:
    if not (CHECKOUT / ".git").exists():
        pytest.skip("this is not a git repository, so there is nothing to clone")
    clone = home / "tumira"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", CHECKOUT, clone], check=True, timeout=60)
    run(clone, "make", "install", f"PYTHON={python}")
    told = run(clone, ".venv/bin/python", "-m", "pytest", "-q", "-m", "unit and not long", timeout_s=UNIT_S)
    assert " passed" in told.splitlines()[-1]
