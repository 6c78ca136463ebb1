"""Packages of npm for tests, fetched once into `.tools`; a test that cannot have them is skipped."""

import fcntl
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

INSTALL_S: Final = 90

_TOOLS: Final = Path(__file__).parents[2] / ".tools"
_FLAGS: Final = (
    "--no-save",
    "--no-package-lock",
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--fetch-retries=1",
)


class Node(NamedTuple):
    """Node.js, and the folder in which it finds the packages."""

    program: str
    folder: Path


def node_with(packages: Path) -> Node:
    """Return a Node.js that has what a folder's `package.json` names; skip the test where there is none."""
    node, problem = _find(packages)
    if problem:
        pytest.skip(f"not tried with the packages of {packages.name}: {problem}")
    return node


@cache
def _find(packages: Path) -> tuple[Node, str]:
    npm, program = shutil.which("npm"), shutil.which("node")
    node = Node(program or "", _TOOLS / packages.name)
    if npm is None or program is None:
        return node, "install Node.js 18 or later with npm (`node` and `npm` in PATH)"
    wanted = (packages / "package.json").read_text()
    node.folder.mkdir(parents=True, exist_ok=True)
    # One npm at a time: two that share a cache can leave a package without some of its files.
    with (_TOOLS / "npm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return node, _install(npm, node.folder, wanted)


def _install(npm: str, folder: Path, wanted: str) -> str:
    """Fetch what is wanted, unless it is there; return why that could not be done."""
    installed = folder / "installed.json"
    if installed.exists() and installed.read_text() == wanted:
        return ""
    (folder / "package.json").write_text(wanted)
    try:
        subprocess.run(
            [npm, "install", *_FLAGS],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=INSTALL_S,
        )
    except subprocess.CalledProcessError as failed:
        code = re.search(r"\bE[A-Z0-9]{3,}\b", failed.stderr)
        return f"npm could not fetch them ({code[0] if code else 'no code'})"
    except subprocess.TimeoutExpired:
        return f"npm could not fetch them within {INSTALL_S} seconds"
    # Written last: an installation that was cut short is done again.
    installed.write_text(wanted)
    return ""


def main() -> None:
    """Fetch all packages that tests use, but the large ones of long tests, so that no test waits."""
    for named in sorted(Path(__file__).parent.rglob("package.json")):
        if "node_modules" not in named.parts and not json.loads(named.read_text()).get("long"):
            _find(named.parent)


if __name__ == "__main__":
    main()
