"""Runs tests in forks of this process, each with one fault in the memory of its modules.

The checkout is never changed. PostgreSQL runs once for all, and the packages that tests import are imported
once: a fork imports only our own modules, one of them with its fault.
"""

import asyncio
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.proof.mutants.mutant import ROOT, Mutant, Source
from tests.proof.mutants.nearest import Tracer

VALID: Final = "tumira_valid"
NAMES_EACH: Final = 1000
# As `make test` runs them, so that properties try the same examples each time.
OPTIONS: Final = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", "-m", "not long")
_OURS: Final = ("tumira", "tests", "conftest", "scripts", "clients", "__main__", "__mp_main__")


@dataclass(slots=True)
class Job:
    """Tests to run, with a fault or traced."""

    tests: Sequence[str]
    mutant: Mutant | None = None
    traced: bool = False
    limit_s: float = 600.0
    result: dict[str, Any] = field(default_factory=dict)


class _Fault(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with its fault."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if name != self._mutant.module:
            return None
        return importlib.util.spec_from_file_location(name, ROOT / self._mutant.path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        text = self._mutant.apply(Source(self._mutant.path).text)
        exec(compile(text, str(ROOT / self._mutant.path), "exec"), vars(module))  # noqa: S102 - what it is for


# Programs that tests start read this first, and import the module with its fault too.
_SITE: Final = """
import importlib.abc, importlib.util, json, os, sys
_place = json.loads(os.environ["FAULT"])
class _Fault(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, *_):
        if name == _place["module"]:
            return importlib.util.spec_from_file_location(name, _place["path"], loader=self)
    def exec_module(self, module):
        exec(compile(_place["text"], _place["path"], "exec"), vars(module))
sys.meta_path.insert(0, _Fault())
"""


def _tell_programs(mutant: Mutant, directory: Path) -> None:
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(_SITE)
    text = mutant.apply(Source(mutant.path).text).decode()
    place = {"module": mutant.module, "path": str(ROOT / mutant.path), "text": text}
    os.environ["FAULT"] = json.dumps(place)
    os.environ["PYTHONPATH"] = str(directory)


class Failures:
    """A pytest plugin that notes which test failed first, and whether SQL was no SQL any more."""

    def __init__(self) -> None:
        self.failed: str | None = None
        self.is_invalid = False

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        self.failed = self.failed or getattr(node, "nodeid", "")
        error = call.excinfo.value if call.excinfo else None
        while error is not None:
            self.is_invalid |= isinstance(error, asyncpg.SyntaxOrAccessError)
            error = error.__cause__ or error.__context__

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


def _run(job: Job, url: str, first_name: int, directory: Path) -> dict[str, Any]:
    """Run the tests of a job in this process, which is a fork."""
    if job.mutant is not None:
        sys.meta_path.insert(0, _Fault(job.mutant))
        _tell_programs(job.mutant, directory)
    databases: Any = importlib.import_module("tests.support.postgres.databases")
    databases._numbers = itertools.count(first_name)

    @contextlib.contextmanager
    def run_server(*_: object, **__: object) -> Iterator[str]:
        with databases.open_copies(url):
            yield url

    databases.run_server = run_server
    if job.mutant is not None and job.mutant.kind.startswith("SQL"):
        module = importlib.import_module(job.mutant.module)
        if not databases.complete(_is_valid(databases.sibling(url, VALID), module)):
            return {"code": -1, "is_invalid": True, "failed": None, "tests": []}
    tracer, failures = Tracer(), Failures()
    code = pytest.main(
        [*OPTIONS, *([] if job.traced else ["-x"]), *job.tests],
        plugins=[tracer if job.traced else failures],
    )
    return {
        "code": int(code),
        "failed": failures.failed,
        "is_invalid": failures.is_invalid,
        "tests": tracer.tests,
    }


async def _is_valid(url: str, module: ModuleType) -> bool:
    """Tell whether PostgreSQL understands the statements of a module."""
    statement = importlib.import_module("tumira.postgres.statement").Statement
    connection = await asyncpg.connect(url)
    try:
        for value in vars(module).values():
            if isinstance(value, statement):
                await connection.prepare(value.text)
    except asyncpg.SyntaxOrAccessError:
        return False
    finally:
        await connection.close()
    return True


def _fork(work: Callable[[], object], log: Path | None = None) -> int:
    """Do something in a fork with its own group of processes; return its number."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if log is not None:
            handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(handle, stream)
        work()
    except BaseException as error:  # noqa: BLE001 - the fork ends here, whatever happened
        os.write(2, repr(error).encode())
        os._exit(1)
    os._exit(0)


@contextlib.contextmanager
def _server() -> Iterator[str]:
    """Run PostgreSQL with the template in another process, until this one ends."""
    read_url, write_url = os.pipe()
    read_end, write_end = os.pipe()

    def serve() -> None:
        os.close(write_end)
        databases = importlib.import_module("tests.support.postgres.databases")
        embedded = importlib.import_module("tests.support.postgres.embedded")
        with databases.run_server(embedded.quick_directory(), databases.FORGETFUL) as url:
            databases.execute(url, f"CREATE DATABASE {VALID} TEMPLATE {databases.TEMPLATE}")
            os.write(write_url, url.encode())
            os.close(write_url)
            os.read(read_end, 1)

    pid = _fork(serve)
    os.close(write_url)
    os.close(read_end)
    url = b"".join(iter(lambda: os.read(read_url, 4096), b"")).decode()
    assert url, "PostgreSQL did not start"
    try:
        yield url
    finally:
        os.close(write_end)
        os.waitpid(pid, 0)


class Forks:
    """Runs jobs, a few at a time."""

    def __init__(self, url: str, directory: Path, slots: int) -> None:
        self._url = url
        self._directory = directory
        self._slots = slots
        self._numbers = itertools.count(1)

    def run(self, jobs: Iterator[Job]) -> Iterator[Job]:
        """Run jobs and give them back as they end."""
        running: dict[int, tuple[Job, int, float]] = {}
        try:
            while True:
                while len(running) < self._slots and (job := next(jobs, None)) is not None:
                    number = next(self._numbers)
                    pid = _fork(self._work(job, number), self._directory / "output" / str(number))
                    running[pid] = (job, number, time.monotonic() + job.limit_s)
                if not running:
                    return
                for pid in list(running):
                    job, number, deadline = running[pid]
                    is_late = time.monotonic() > deadline
                    if is_late:
                        os.killpg(pid, signal.SIGKILL)
                    if os.waitpid(pid, 0 if is_late else os.WNOHANG)[0]:
                        del running[pid]
                        self._end(job, number, is_late=is_late)
                        yield job
                time.sleep(0.02)
        finally:
            for pid in running:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _work(self, job: Job, number: int) -> Callable[[], None]:
        def work() -> None:
            site = self._directory / f"site-{number}"
            result = _run(job, self._url, number * NAMES_EACH, site)
            path = self._directory / f"{number}.json"
            path.with_suffix(".part").write_text(json.dumps(result))
            path.with_suffix(".part").rename(path)

        return work

    def _end(self, job: Job, number: int, *, is_late: bool) -> None:
        path = self._directory / f"{number}.json"
        if path.exists():
            job.result = json.loads(path.read_text())
            path.unlink()
        else:
            said = (self._directory / "output" / str(number)).read_text(errors="replace")
            job.result = {"code": 2, "failed": "time" if is_late else "import", "said": said[-2000:]}
            job.result |= {"is_invalid": False, "tests": []}
            asyncio.run(self._drop(number))

    async def _drop(self, number: int) -> None:
        """Drop the databases of a fork that did not clean up."""
        connection = await asyncpg.connect(self._url)
        try:
            rows = await connection.fetch(
                "SELECT datname FROM pg_database WHERE datname LIKE 'tumira_test_%'"
            )
            for (name,) in rows:
                if int(name.rpartition("_")[2]) // NAMES_EACH == number:
                    with contextlib.suppress(asyncpg.PostgresError):
                        await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        finally:
            await connection.close()


@contextlib.contextmanager
def open_forks(test_files: Sequence[str], slots: int) -> Iterator[Forks]:
    """Start PostgreSQL, and import what the tests import from elsewhere."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name, _server() as url:
        directory = Path(name)
        (directory / "output").mkdir()
        _import_packages(test_files, directory)
        assert urlsplit(url).path
        yield Forks(url, directory, slots)


def _import_packages(test_files: Sequence[str], directory: Path) -> None:
    """Import the packages that these tests import; a fork finds out which, because ours must stay out."""
    listed = directory / "packages"

    def look() -> None:
        pytest.main([*OPTIONS, "--collect-only", *test_files])
        names = [one for one in sys.modules if one.split(".")[0] not in _OURS]
        listed.write_text("\n".join(names))

    os.waitpid(_fork(look, directory / "output" / "packages"), 0)
    for module in listed.read_text().split("\n") if listed.exists() else ():
        with contextlib.suppress(Exception):
            importlib.import_module(module)
