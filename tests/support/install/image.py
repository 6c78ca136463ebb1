"""The container image, built by buildah on a base that debootstrap made, without a registry.

It runs in a mount namespace of its own, with the command, user and environment that the image names, on a
root that is mounted read-only. A container engine would add networks and limits.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.install.debian import COMMAND_S, Release, clean_archive
from tests.support.processes.programs import CHECKOUT, Node

CONTAINERFILE: Final = CHECKOUT / "deploy" / "container" / "Containerfile"
# $0 is the root, $1 the volume for the data, $2 the file with settings; the rest is run in there.
_MOUNT: Final = """
mount --bind "$0" "$0" && mount --bind "$1" "$0/var/lib/tumira" || exit 1
touch "$0/etc/tumira/.env" && mount --bind "$2" "$0/etc/tumira/.env" || exit 1
mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/tmp" || exit 1
mkdir -p "$0/dev/shm" && mount -t tmpfs tmpfs "$0/dev/shm" && mount -o remount,bind,ro "$0" || exit 1
root=$0
shift 2
exec chroot "$root" "$@"
"""


@dataclass(frozen=True, slots=True)
class Image:
    """An image's files, and what it says about itself."""

    root: Path
    says: Mapping[str, Any]


@contextmanager
def built_image(release: Release, folder: Path) -> Iterator[Image]:
    """Build the image of this checkout; its files are removed afterwards."""
    if shutil.which("buildah") is None:
        pytest.skip("buildah is missing: install buildah")
    archive = clean_archive(release)
    staged = folder / "staged"
    stage = ["sh", f"{CHECKOUT}/scripts/deb.sh", "stage", str(staged), release.python, release.number]
    subprocess.run(stage, check=True, timeout=COMMAND_S, stdout=subprocess.DEVNULL)
    try:
        print("Making a base image …", flush=True)
        base = _buildah(folder, "from", "scratch")
        _buildah(folder, "add", "--quiet", base, str(archive), "/")
        _buildah(folder, "commit", "--quiet", "--rm", base, "base")
        print("Building the image …", flush=True)
        _buildah(
            folder,
            *("build", "--quiet", "--isolation", "chroot", "--layers=false", "--pull-never"),
            *("--file", str(CONTAINERFILE), "--build-arg", "BASE=localhost/base"),
            *("--build-arg", "PIP_NO_INDEX=1", "--build-arg", "PIP_FIND_LINKS=/wheels"),
            *("--volume", f"{staged}/wheels:/wheels:ro", "--tag", "tumira", str(CHECKOUT)),
        )
        container = _buildah(folder, "from", "--pull-never", "localhost/tumira")
        says = json.loads(_buildah(folder, "inspect", "--type", "image", "tumira"))["OCIv1"]["config"]
        # The driver `vfs` mounts nothing: this is where the files are.
        yield Image(Path(_buildah(folder, "mount", container)), says)
    finally:
        shutil.rmtree(folder / "store", ignore_errors=True)
        shutil.rmtree(folder / "run", ignore_errors=True)


def _buildah(folder: Path, *words: str) -> str:
    places = ["--root", str(folder / "store"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"]
    done = subprocess.run(
        ["buildah", *places, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_S,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.strip()


class ContainedNode(Node):
    """The image's own command, as its user, on a read-only root."""

    def __init__(self, image: Image, home: Path) -> None:
        super().__init__(home)
        self._image = image
        user, _, _ = image.says["User"].partition(":")
        self._volume, self._settings = home / "volume", home / "settings"
        self._volume.mkdir(mode=0o700)
        lines = f"TUMIRA_PORT={self.port}\nTUMIRA_SIMULATOR_PORT={self.simulator_port}\n"
        self._settings.write_text(lines, encoding="utf-8")
        self._settings.chmod(0o400)
        for path in (self._volume, self._settings):
            shutil.chown(path, int(user), int(user))

    def _words(self, *words: str) -> Sequence[str]:
        says = self._image.says
        user, _, group = says["User"].partition(":")
        rights = [f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs"]
        rights += ["--inh-caps=-all", "--bounding-set=-all"]
        return [
            *("unshare", "--mount", "sh", "-c", _MOUNT, str(self._image.root)),
            *(str(self._volume), str(self._settings)),
            *("/usr/bin/env", "-i", "-C", says["WorkingDir"], *says["Env"]),
            *("/usr/bin/setpriv", *rights, *words),
        ]

    def start(self, prefix: Sequence[str] = (), stdin: int = subprocess.DEVNULL) -> None:
        says = self._image.says
        with self.log.open("ab") as log:
            words = self._words(*prefix, *says["Entrypoint"], *says["Cmd"])
            self.process = subprocess.Popen(words, stdin=stdin, stdout=log, stderr=log)

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command beside the service, as `podman exec` does."""
        return subprocess.run(
            self._words(*words), capture_output=True, text=True, check=False, timeout=COMMAND_S
        )

    def json(self, *arguments: str) -> Any:
        done = self.run(*self._image.says["Entrypoint"], *arguments, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)
