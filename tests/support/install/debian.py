"""Debians in folders of their own, made by debootstrap: a package is built in one and installed in another.

Each command has a mount namespace of its own, so nothing stays mounted, whatever ends it.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.processes.programs import CHECKOUT
from tumira import VERSION

# Outside the sources: a base takes minutes to make and seconds to unpack.
CACHE: Final = CHECKOUT / ".venv" / "debian"
CACHE_MAX_S: Final = 14 * 86_400
# Busy machines and slow mirrors; this only ends the wait.
COMMAND_S: Final = 1800
_MOUNT: Final = """
mount -t proc proc "$0/proc" && mkdir -p "$0/dev/shm" && mount -t tmpfs tmpfs "$0/dev/shm" || exit 1
exec chroot "$0" "$@"
"""
_VARIABLES: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
}


@dataclass(frozen=True, slots=True)
class Release:
    """A version of Debian, and the version of its Python."""

    name: str
    number: str
    python: str


RELEASES: Final = (Release("bookworm", "12", "3.11"), Release("trixie", "13", "3.13"))


@dataclass(frozen=True, slots=True)
class Root:
    """The top folder of a Debian."""

    path: Path

    def command(
        self, *words: str, variables: Mapping[str, str] = _VARIABLES, cwd: str = "/"
    ) -> Sequence[str]:
        """Return the words that run a command in there; the started process becomes that command."""
        pairs = [f"{name}={value}" for name, value in variables.items()]
        inside = ["/usr/bin/env", "-i", "-C", cwd, *pairs, *words]
        return ["unshare", "--mount", "sh", "-c", _MOUNT, str(self.path), *inside]

    def run(self, *words: str, cwd: str = "/") -> str:
        """Run a command as root, and return all that it said."""
        done = subprocess.run(
            self.command(*words, cwd=cwd),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout[-5000:]}"
        return done.stdout

    def apt(self, *words: str, cwd: str = "/") -> str:
        return self.run("apt-get", "-y", "--no-install-recommends", *words, cwd=cwd)

    def inside(self, path: str) -> Path:
        return self.path / path.lstrip("/")


def need_debootstrap() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may make a Debian in a folder: run the tests as root")
    for program in ("debootstrap", "unshare", "chroot", "tar"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is missing: install debootstrap, util-linux, coreutils and tar")


def _mirror() -> str:
    """Return the mirror of Debian that this machine uses."""
    words = ["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = [line.rpartition(" ") for line in done.stdout.splitlines()]
    found = [address for label, _, address in lines if label == "Debian"]
    if not found:
        pytest.skip("apt knows no mirror of Debian here: run `apt-get update` on a Debian")
    return found[0]


@contextmanager
def new_root(release: Release, kind: str = "clean") -> Iterator[Root]:
    """Make a Debian that is removed afterwards; its kind `build` has what packages are built with."""
    need_debootstrap()
    archive = _archive(release, kind)
    with tempfile.TemporaryDirectory(prefix="tumira-debian-", dir="/var/tmp") as folder:
        root = Root(Path(folder) / "root")
        root.path.mkdir(mode=0o755)
        if archive.exists() and time.time() - archive.stat().st_mtime < CACHE_MAX_S:
            _tell(f"Unpacking Debian {release.number} ({kind}) …")
            _tar("--extract", archive, root)
        elif kind == "clean":
            _tell(f"Fetching Debian {release.number} …")
            _bootstrap(release, root)
            _tar("--create", archive, root)
        else:
            with new_root(release) as clean:
                root.path.rmdir()
                clean.path.rename(root.path)
                clean.path.mkdir()
            _tell(f"Installing what packages are built with on Debian {release.number} …")
            root.apt("-q", "update")
            root.apt(
                "-q", "install", "build-essential", "debhelper", "python3", "python3-pip", "python3-venv"
            )
            root.apt("clean")
            _tar("--create", archive, root)
        for name in ("resolv.conf", "hosts"):
            shutil.copyfile(f"/etc/{name}", root.inside(f"/etc/{name}"))
        yield root


def clean_archive(release: Release) -> Path:
    """Return an archive of a clean Debian."""
    with new_root(release):
        return _archive(release, "clean")


def _archive(release: Release, kind: str) -> Path:
    return CACHE / f"{release.name}-{kind}.tar"


def _bootstrap(release: Release, root: Root) -> None:
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", release.name, root.path, _mirror()],
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_S,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def _tar(what: str, archive: Path, root: Root) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(".new") if what == "--create" else archive
    words = ["tar", what, "--numeric-owner", "--xattrs", "--file", str(unfinished)]
    subprocess.run([*words, "--directory", root.path, "."], check=True, timeout=COMMAND_S)
    unfinished.rename(archive)


def build_package(release: Release, checkout: Path, root: Root, folder: Path) -> Path:
    """Build the package of a checkout with the tools of a Debian; return its file in `folder`."""
    _tell(f"Building the package for Debian {release.number} …")
    tree = root.inside("/build/tumira")
    tree.parent.mkdir(exist_ok=True)
    words = ["sh", f"{checkout}/scripts/deb.sh", "stage", str(tree), release.python, release.number]
    subprocess.run(words, check=True, timeout=COMMAND_S, stdout=subprocess.DEVNULL)
    root.run("dpkg-buildpackage", "-b", "-us", "-uc", cwd="/build/tumira")
    (built,) = tree.parent.glob("*.deb")
    return Path(shutil.move(built, folder))


def later_version(folder: Path, version: str) -> Path:
    """Copy the sources of the package, as those of a later version."""
    for name in ("deploy", "docs", "scripts", "tumira"):
        shutil.copytree(CHECKOUT / name, folder / name)
    for name in ("LICENSE", "README.md", "requirements.txt"):
        shutil.copy(CHECKOUT / name, folder)
    (folder / ".venv").symlink_to(CHECKOUT / ".venv")
    for name, shape in (
        ("pyproject.toml", 'version = "{}"'),
        ("tumira/__init__.py", 'VERSION: Final = "{}"'),
    ):
        text = (CHECKOUT / name).read_text(encoding="utf-8")
        assert shape.format(VERSION) in text
        changed = text.replace(shape.format(VERSION), shape.format(version))
        (folder / name).write_text(changed, encoding="utf-8")
    return folder


def _tell(words: str) -> None:
    """Say what takes long: shown by `-s`, and when a test fails."""
    print(words, flush=True)
