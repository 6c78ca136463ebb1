"""The packages: built, installed into empty projects, and used there; types and Laravel included."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
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
LARAVEL = Path("/usr/share/php")
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
    options = {"strict": True, "noEmit": True, "module": "nodenext", "lib": ["es2022", "dom"], "types": []}
    (project / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": ["usage.ts"]}))
    compiler = node.folder / "node_modules" / "typescript" / "bin" / "tsc"
    succeed(run(project, node.program, str(compiler)))


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


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """Give a folder with the archive that Composer makes of the client."""
    if "zip" not in succeed(run(tmp_path, program("php"), "-m")).split():
        pytest.skip("PHP has no zip extension, so Composer cannot unpack archives: install php-zip")
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


@pytest.fixture
def php_project(tmp_path: Path, archives: Path) -> Path:
    """Give an empty project into which the client was installed, from that folder and from nowhere else."""
    project = tmp_path / "project"
    project.mkdir()
    repositories = [{"type": "artifact", "url": str(archives)}, {"packagist.org": False}]
    wanted = {"require": {"tumira/client": "0.1.0"}, "repositories": repositories}
    (project / "composer.json").write_text(json.dumps(wanted))
    succeed(run(project, program("composer"), "install", "--no-cache", "--no-interaction"))
    return project


def test_an_archive_is_installed_into_an_empty_project(
    service: Service, caller: Caller, php_project: Path
) -> None:
    use(service, caller, php_project, "php", program("php"), "use.php")


def test_laravel_sends_notifications_once(service: Service, caller: Caller, php_project: Path) -> None:
    if not (LARAVEL / "Illuminate" / "Notifications").is_dir():
        pytest.skip("Laravel is not installed: Debian has it as php-illuminate-notifications")
    script = str(SUPPORT / "laravel.php")
    told = succeed(
        run(
            php_project,
            *(program("php"), "-d", f"include_path={LARAVEL}", script),
            TUMIRA_URL=service.base,
            TUMIRA_API_KEY=caller.key,
        )
    )
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
