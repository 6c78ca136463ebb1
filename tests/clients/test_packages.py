"""The packages: built, installed into empty projects, and used there; types and Laravel included."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest
from flit_core.buildapi import build_wheel

from tests.support.clients import CLIENTS, program
from tests.support.npm import node_with
from tests.support.processes.service import Caller, Service
from tumira.api.docs.pages import read_samples

pytestmark = pytest.mark.long

SUPPORT = Path(__file__).parents[1] / "support" / "clients"
# Depends on the network; this only ends the wait.
INSTALL_S = 180


@pytest.fixture
def caller(service: Service) -> Caller:
    return service.open_account("1")


def run(folder: Path, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command as in a fresh shell: nothing of ours is in its paths."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TUMIRA_"))}
    return subprocess.run(
        command,
        cwd=folder,
        env=kept | {"COMPOSER_ALLOW_SUPERUSER": "1", "COMPOSER_HOME": str(folder / "composer")} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=INSTALL_S,
    )


def succeed(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def use(service: Service, caller: Caller, folder: Path, language: str, *command: str) -> None:
    """Run the five lines of the documentation in a project, twice; the message is sent once."""
    source = read_samples()["client"][language].replace("http://127.0.0.1:8080", service.base)
    program_file = folder / command[-1]
    program_file.write_text(source, encoding="utf-8")
    for _ in range(2):
        assert succeed(run(folder, *command, TUMIRA_API_KEY=caller.key)).endswith(" 0.0400\n")
    assert str(service.balance(caller)) == "0.9600"


def test_a_wheel_is_installed_into_an_empty_environment(
    service: Service, caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CLIENTS / "python")
    wheel = tmp_path / build_wheel(str(tmp_path))
    with ZipFile(wheel) as file:
        names = {Path(name).name for name in file.namelist()}
    assert {"py.typed", "client.py", "codes.py"} <= names
    project = tmp_path / "project"
    project.mkdir()
    succeed(run(project, sys.executable, "-m", "venv", "venv"))
    installed = run(project, "venv/bin/python", "-m", "pip", "install", "-q", str(wheel))
    if "No matching distribution found for httpx" in installed.stderr:
        pytest.skip("httpx cannot be fetched here")
    succeed(installed)
    use(service, caller, project, "python", "venv/bin/python", "-W", "error", "use.py")


def pack_for_node(folder: Path) -> Path:
    """Return what `npm pack` makes, with what is in it."""
    told = succeed(run(folder, program("npm"), "pack", "--json", str(CLIENTS / "javascript")))
    return folder / str(json.loads(told)[0]["filename"])


def test_a_tarball_is_installed_into_an_empty_project(
    service: Service, caller: Caller, tmp_path: Path
) -> None:
    tarball = pack_for_node(tmp_path)
    with tarfile.open(tarball) as file:
        names = set(file.getnames())
    assert {"package/index.js", "package/index.d.ts", "package/codes.d.ts", "package/README.md"} <= names
    assert not {name for name in names if "test" in name}
    project = tmp_path / "project"
    project.mkdir()
    (project / "package.json").write_text('{"private": true, "type": "module"}')
    succeed(run(project, program("npm"), "install", "--offline", "--no-audit", "--no-fund", str(tarball)))
    use(service, caller, project, "javascript", program("node"), "use.js")


def test_the_types_for_typescript_fit_the_programs_that_use_them(tmp_path: Path) -> None:
    node = node_with(SUPPORT / "typescript")
    project = tmp_path / "project"
    project.mkdir()
    (project / "package.json").write_text('{"private": true, "type": "module"}')
    succeed(
        run(
            project,
            *(program("npm"), "install", "--offline", "--no-audit", "--no-fund"),
            str(pack_for_node(tmp_path)),
        )
    )
    shutil.copy(SUPPORT / "typescript" / "usage.ts", project)
    compiler = node.folder / "node_modules" / "typescript" / "bin" / "tsc"
    options = ("--strict", "--noEmit", "--module", "nodenext", "--lib", "es2022,dom", "--types", "")
    succeed(run(project, node.program, str(compiler), *options, "usage.ts"))


def test_the_types_for_typescript_name_what_is_there(tmp_path: Path) -> None:
    names = succeed(
        run(
            tmp_path,
            *(program("node"), "--input-type=module", "-e"),
            f"import * as all from {json.dumps(str(CLIENTS / 'javascript' / 'index.js'))};"
            "console.log(JSON.stringify(Object.keys(all)))",
        )
    )
    typed = "".join((CLIENTS / "javascript" / name).read_text() for name in ("index.d.ts", "codes.d.ts"))
    for name in json.loads(names):
        assert f"class {name} " in typed or f"function {name}(" in typed or f"const {name}:" in typed, name


def require(project: Path, archives: Path, packages: Mapping[str, str], *, others: bool) -> None:
    """Write a project that takes our archive from a folder, and others from the usual place or nowhere."""
    repositories: list[object] = [{"type": "artifact", "url": str(archives)}]
    if not others:
        repositories.append({"packagist.org": False})
    project.mkdir()
    wanted = {"require": {"tumira/client": "0.1.0", **packages}, "repositories": repositories}
    (project / "composer.json").write_text(json.dumps(wanted))


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """Give a folder with the archive that Composer makes of the client."""
    folder = tmp_path / "archives"
    succeed(
        run(CLIENTS / "php", program("composer"), "archive", "--format=zip", f"--dir={folder}", "--no-cache")
    )
    (archive,) = folder.iterdir()
    with ZipFile(archive) as file:
        names = file.namelist()
    assert "src/Client.php" in names
    assert not [name for name in names if name.startswith("tests")]
    return folder


def test_an_archive_is_installed_into_an_empty_project(
    service: Service, caller: Caller, tmp_path: Path, archives: Path
) -> None:
    project = tmp_path / "project"
    require(project, archives, {}, others=False)
    succeed(run(project, program("composer"), "install", "--no-cache", "--no-interaction"))
    use(service, caller, project, "php", program("php"), "use.php")


def test_laravel_sends_notifications_once(
    service: Service, caller: Caller, tmp_path: Path, archives: Path
) -> None:
    project = tmp_path / "project"
    packages = dict.fromkeys(("notifications", "config", "events", "bus"), "^10 || ^11 || ^12")
    require(
        project, archives, {f"illuminate/{name}": range_ for name, range_ in packages.items()}, others=True
    )
    # Extensions that the channel does not use may be missing on this machine.
    options = ("--no-interaction", "--ignore-platform-req=ext-*")
    installed = run(project, program("composer"), "install", *options)
    if "curl error" in installed.stderr or "could not be downloaded" in installed.stderr:
        pytest.skip("the packages of Laravel cannot be fetched here")
    succeed(installed)
    script = str(SUPPORT / "laravel.php")
    told = succeed(run(project, program("php"), script, TUMIRA_URL=service.base, TUMIRA_API_KEY=caller.key))
    assert told == "sent\n"
    rows = service.sql(
        "SELECT b.reference, m.recipient FROM batches b JOIN messages m ON m.batch_id = b.id"
        " WHERE b.account_id = $1 ORDER BY m.recipient",
        caller.id,
    )
    assert [tuple(row) for row in rows] == [
        ("order-1042", "+263771200001"),
        (None, "+263771200002"),
        (None, "+263771200003"),
    ]
