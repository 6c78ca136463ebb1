"""Every pin has a file for each Python and each kind of machine; nothing is compiled at installation."""

import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.install.environments import PYTHONS, run
from tests.support.processes.programs import CHECKOUT

# Debian 12 has glibc 2.36.
GLIBC_MINORS: Final = range(17, 37)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("pins", ["requirements.txt", "requirements-dev.txt"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("version", PYTHONS)
def test_every_pin_has_a_wheel(version: str, machine: str, pins: str, tmp_path: Path) -> None:
    abi = f"cp{version.replace('.', '')}"
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC_MINORS]
    platforms += [f"manylinux2014_{machine}", f"linux_{machine}"]
    run(
        tmp_path,
        *(sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed", "--no-deps"),
        *("--require-hashes", "--only-binary=:all:", "--target", str(tmp_path / "target")),
        *("--implementation", "cp", "--python-version", version),
        *("--abi", abi, "--abi", "abi3", "--abi", "none"),
        *(word for platform in platforms for word in ("--platform", platform)),
        *("-r", str(CHECKOUT / pins)),
    )
