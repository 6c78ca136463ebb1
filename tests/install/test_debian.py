"""The Debian package: built, installed, run, upgraded, removed and purged on clean Debians.

These Debians run no systemd. The service is started as its unit says: command, user, directory, environment,
file mode and no capabilities. `systemd-analyze` reads the other restrictions of the units; they do not apply.
"""

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.install.debian import (
    RELEASES,
    Release,
    Root,
    build_package,
    later_version,
    need_debootstrap,
    new_root,
)
from tests.support.install.environments import client_of, deliver
from tests.support.processes.programs import CHECKOUT, Node
from tumira import VERSION

UNITS: Final = "/usr/lib/systemd/system"
SETTINGS: Final = "/etc/tumira/tumira.env"
DATA: Final = "/var/lib/tumira"
LATER: Final = "99.0.0"
COMMAND: Final = CHECKOUT / "deploy" / "debian" / "command.py"
RUNS_S: Final = 5400


@dataclass(frozen=True, slots=True)
class Packages:
    release: Release
    first: Path
    later: Path


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.name)
def packages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Packages:
    need_debootstrap()
    release, folder = request.param, tmp_path_factory.mktemp("debian")
    with new_root(release, "build") as root:
        first = build_package(release, CHECKOUT, root, folder)
        sources = later_version(folder / "sources", LATER)
        return Packages(release, first, build_package(release, sources, root, folder))


@pytest.fixture
def root(packages: Packages) -> Iterator[Root]:
    with new_root(packages.release) as root:
        yield root


class PackagedNode(Node):
    """The service of an installed package, started as its unit says."""

    def __init__(self, root: Root, home: Path) -> None:
        super().__init__(home)
        self._root = root
        self._unit = settings_of(root.inside(f"{UNITS}/tumira.service"))

    def start(self, prefix: Sequence[str] = (), stdin: int = subprocess.DEVNULL) -> None:
        (user,) = self._unit["User"]
        (started,) = self._unit["ExecStart"]
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        variables |= dict(line.split("=", 1) for line in self._unit["Environment"])
        for path in self._unit["EnvironmentFile"]:
            variables |= settings_in(self._root.inside(path))
        rights = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--no-new-privs"]
        rights += ["--inh-caps=-all", "--bounding-set=-all"]
        words = self._root.command(
            *(*prefix, *rights, *shlex.split(started)),
            variables=variables,
            cwd=self._unit["WorkingDirectory"][0],
        )
        with self.log.open("ab") as log:
            umask = int(self._unit["UMask"][0], 8)
            self.process = subprocess.Popen(words, stdin=stdin, stdout=log, stderr=log, umask=umask)

    def json(self, *arguments: str) -> Any:
        """Run a command as root does on such a machine: with nothing set."""
        return json.loads(self._root.run("tumira", *arguments, "--json").splitlines()[-1])


def settings_of(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in unit.read_text(encoding="utf-8").splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def settings_in(file: Path) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.long
@pytest.mark.timeout(RUNS_S)
def test_the_package_from_its_installation_to_its_purge(
    packages: Packages, root: Root, tmp_path: Path
) -> None:
    for file in (packages.first, packages.later):
        shutil.copy(file, root.inside("/root"))
    root.apt("-q", "update")
    root.apt("-q", "install", f"/root/{packages.first.name}")
    assert root.run("tumira", "--version").strip() == f"Tumira, version {VERSION}"
    check_installed(root)

    node = PackagedNode(root, tmp_path)
    with root.inside(SETTINGS).open("a", encoding="utf-8") as settings:
        settings.write(f"TUMIRA_PORT={node.port}\nTUMIRA_SIMULATOR_PORT={node.simulator_port}\n")
    key, message, balance = use(node)

    root.apt("-q", "install", f"/root/{packages.later.name}")
    assert root.run("tumira", "--version").strip() == f"Tumira, version {LATER}"
    assert settings_in(root.inside(SETTINGS))["TUMIRA_PORT"] == str(node.port)
    start(node)
    try:
        with client_of(node, key) as client:
            assert client.get(f"/api/v1/messages/{message}").json()["data"]["status"] == "delivered"
            assert client.get("/api/v1/balance").json() == balance
        assert node.json("audit")["ok"] is True
        assert node.stop() == 0, node.said()
    finally:
        node.abandon()

    root.apt("-q", "remove", "tumira")
    assert not root.inside("/usr/bin/tumira").exists()
    assert not root.inside("/usr/lib/tumira").exists()
    assert settings_in(root.inside(SETTINGS))["TUMIRA_PORT"] == str(node.port)
    assert root.inside(f"{DATA}/postgres/PG_VERSION").is_file()

    said = root.apt("-q", "purge", "tumira")
    assert not root.inside("/etc/tumira").exists()
    assert root.inside(f"{DATA}/postgres/PG_VERSION").is_file()
    assert f"To delete it: rm -r {DATA}" in said
    assert not root.inside("/var/backups/tumira").exists()
    assert not list(root.inside("/etc/systemd/system").rglob("tumira*"))


def check_installed(root: Root) -> None:
    """Check the user, the rights and the units that the installation enabled."""
    user = root.run("getent", "passwd", "tumira").split(":")
    assert user[5:] == [DATA, "/usr/sbin/nologin\n"]
    rights = {path: root.run("stat", "-c", "%A %U:%G", path).strip() for path in (SETTINGS, DATA)}
    assert rights == {SETTINGS: "-rw-r----- root:tumira", DATA: "drwx------ tumira:tumira"}
    enabled = {path.name for path in root.inside("/etc/systemd/system").glob("*.wants/tumira*")}
    assert enabled == {"tumira.service", "tumira-backup.timer"}
    assert root.run("dpkg", "--verify", "tumira") == ""
    # What an upgrade leaves behind would be compiled files of its own.
    tree = root.inside("/usr/lib/tumira")
    assert not [path for path in tree.rglob("*") if path.stat(follow_symlinks=False).st_uid != 0]
    assert not [
        path
        for path in tree.rglob("*")
        if not path.is_symlink() and path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ]


def start(node: PackagedNode) -> None:
    node.log.unlink(missing_ok=True)
    node.start()
    try:
        node.wait_until_ready()
    except BaseException:
        node.abandon()
        raise


def use(node: PackagedNode) -> tuple[str, str, Any]:
    """Run the service, send a message, and stop; return the key, the message's id and the balance."""
    start(node)
    try:
        key = node.json("demo")["key"]
        message = deliver(node, key)
        with client_of(node, key) as client:
            balance = client.get("/api/v1/balance").json()
        assert node.json("audit")["ok"] is True
        check_doctor(node)
        assert node.stop() == 0, node.said()
    finally:
        node.abandon()
    assert not re.search("warning|traceback", node.said(), re.IGNORECASE), node.said()
    return key, message, balance


def check_doctor(node: PackagedNode) -> None:
    """Check that the doctor, called by root, looks at the data and the settings of the service."""
    found = [one for one in node.json("doctor")["checks"] if one["subject"] == "permissions"]
    assert {one["level"] for one in found} == {"ok"}, found
    assert any(DATA in one["found"] for one in found)
    assert any(SETTINGS in one["found"] for one in found)


@pytest.mark.long
@pytest.mark.timeout(RUNS_S)
def test_systemd_takes_the_units(packages: Packages, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing: install systemd")
    subprocess.run(["dpkg-deb", "-x", packages.first, tmp_path], check=True)
    units = sorted(path for path in tmp_path.rglob("systemd/system/*") if path.is_file())
    assert len(units) == len(list((CHECKOUT / "deploy" / "systemd").iterdir()))
    for unit in units:
        # They name what is not installed on this machine.
        text = unit.read_text(encoding="utf-8")
        assert "/opt/" not in text
        text = re.sub(r"(?m)^Documentation=file:(.*)$", rf"Documentation=file:{tmp_path}\1", text)
        unit.write_text(text.replace("/usr/bin/tumira", str(tmp_path / "usr/bin/tumira")), encoding="utf-8")
    for unit in units:
        words = ["systemd-analyze", "verify", str(unit)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), unit


@pytest.mark.long
@pytest.mark.timeout(RUNS_S)
def test_lintian_finds_no_fault(packages: Packages) -> None:
    if shutil.which("lintian") is None:
        pytest.skip("lintian is missing: install lintian")
    words = [
        "lintian",
        "--allow-root",
        "--fail-on",
        "error,warning",
        "--tag-display-limit",
        "0",
        str(packages.first),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=RUNS_S)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_a_command_of_root_gives_up_its_rights_before_anything_is_read() -> None:
    """A setting such as TUMIRA_DATA_DIR must not let root write where the service cannot."""
    text = COMMAND.read_text(encoding="utf-8")
    assert text.index("    become_the_service()\n") < text.index("dotenv_values(SETTINGS")
    assert text.index("os.setgid(") < text.index("os.setuid(")


@pytest.mark.parametrize("name", ["postinst", "postrm", "prerm"])
def test_a_maintainer_script_is_sound(name: str) -> None:
    script = CHECKOUT / "deploy" / "debian" / f"tumira.{name}"
    text = script.read_text(encoding="utf-8")
    assert text.startswith("#!/bin/sh\nset -e\n")
    assert "#DEBHELPER#" in text
    # No script deletes files, least of all those of the database.
    assert not re.search(r"(?m)^\s*rm\b", text)
    subprocess.run(["sh", "-n", script], check=True)
    assert os.access(CHECKOUT / "deploy" / "debian" / "rules", os.X_OK)
