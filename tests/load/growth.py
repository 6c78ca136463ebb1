"""`make bench-growth`: the same work on two sizes of tables, measured in one run.

Both databases are on one server and take turns with each piece of work, so that a machine that is busy is so
for both. Beside the time that passes stands the processor time of PostgreSQL, which hardly depends on it.
"""

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.load.growth_fill import fill
from tests.load.growth_work import WORK, Side, measure_chores, open_side
from tests.load.processor import database_cpu_s, postmaster_of
from tests.support.postgres.databases import clone, execute, run_server
from tumira.operations.audit import runs
from tumira.operations.audit.checks import CHECKS
from tumira.postgres.pool import Database

SMALL: Final = 10_000
LARGE: Final = 20_000_000
WEEKS: Final = 13
ROUNDS: Final = 5
GOAL: Final = 0.85
# With indexes and what is written ahead of them.
BYTES_PER_MESSAGE: Final = 1_000
BYTES_BESIDE: Final = 6 * 10**9
PROCESS_LOOK_S: Final = 0.5


def _say(line: str) -> None:
    print(line, flush=True)


def _directory(messages: int) -> Path:
    directory = Path(os.environ.get("TUMIRA_BENCH_DIR", tempfile.gettempdir()))
    needed = messages * BYTES_PER_MESSAGE + BYTES_BESIDE
    free = shutil.disk_usage(directory).free
    if free < needed:
        sys.exit(
            f"{directory} has {free / 1e9:.0f} GB free and {needed / 1e9:.0f} GB are needed: "
            "set TUMIRA_BENCH_DIR to another directory, or measure with fewer --messages."
        )
    return directory


@dataclass(frozen=True, slots=True)
class Turns:
    """What was measured in the small database and in the large one, turn by turn."""

    measured: dict[str, tuple[list[float], list[float]]]
    cpu_ms: dict[str, tuple[list[float], list[float]]]


async def _measure(sides: Sequence[Side], rounds: int, postmaster: int) -> Turns:
    turns = Turns({}, {})
    for turn in range(rounds + 1):
        began = time.monotonic()
        for work in WORK:
            # Whoever is second finds the processor's caches and the disk as the first one left them.
            for place in (0, 1) if turn % 2 else (1, 0):
                before = database_cpu_s(postmaster)
                measured = await work(sides[place])
                cpu_ms = (database_cpu_s(postmaster) - before) * 1000
                # The first time plans are made and pages are read for the first time.
                if turn:
                    name = work.__name__.replace("_", " ")
                    turns.cpu_ms.setdefault(name, ([], []))[place].append(cpu_ms)
                    for label, value in measured.items():
                        turns.measured.setdefault(label, ([], []))[place].append(value)
        _say(f"  round {turn}: {time.monotonic() - began:.0f} s")
    return turns


def _show(turns: Turns, names: Sequence[str]) -> None:
    _say(f"\n{'':<52} {names[0]:>12} {names[1]:>12}   ratio   (goal: {GOAL})")
    for label, values in turns.measured.items():
        small, large = (statistics.median(one) for one in values)
        is_time = label.endswith("ms")
        _row(label, small, large, small / large if is_time else large / small, digits=2 if is_time else 0)
    _say("\nprocessor time of PostgreSQL in a round, ms")
    for label, values in turns.cpu_ms.items():
        small, large = (statistics.median(one) for one in values)
        _row(label, small, large, small / max(large, 1), digits=0)


def _row(label: str, small: float, large: float, ratio: float, *, digits: int) -> None:
    mark = "" if ratio >= GOAL else "   below"
    _say(f"{label:<52} {small:>12,.{digits}f} {large:>12,.{digits}f}   {ratio:5.2f}{mark}")


async def _show_chores(small: Side, large: Side) -> None:
    _say("\nchores: milliseconds; rows of large tables read from end to end, and by indexes")
    few = await measure_chores(small)
    for name, (took_ms, whole, by_index) in (await measure_chores(large)).items():
        before = few[name]
        _say(
            f"{name:<40} {before[0]:>9,.1f} {before[1]:>6,} {before[2]:>8,}"
            f"   {took_ms:>9,.1f} {whole:>6,} {by_index:>8,}"
        )


async def _audit(url: str) -> None:
    """Audit a database; say how long that takes, and how much memory and how many temporary files."""
    database = Database(url)
    _say("\naudit")
    try:
        async with runs.snapshot(database) as connection:
            pid = await connection.fetchval("SELECT pg_backend_pid()")
            watching = asyncio.create_task(_watch_memory(pid))
            began = time.monotonic()
            for check in CHECKS:
                since = time.monotonic()
                finding = await runs.run_check(connection, check)
                _say(f"{check.name:<40} {time.monotonic() - since:>9,.1f} s   {len(finding.rows)} broken")
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        _say(f"{'all of it':<40} {time.monotonic() - began:>9,.1f} s")
    finally:
        await database.close()


async def _watch_memory(pid: int) -> None:
    highest = 0
    try:
        while True:
            status = await asyncio.to_thread(Path(f"/proc/{pid}/status").read_text)
            used = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
            highest = max(highest, used)
            await asyncio.sleep(PROCESS_LOOK_S)
    finally:
        _say(f"{'memory of its process at most':<40} {highest / 1024:>9,.0f} MB, without shared pages")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=LARGE, help="how many messages the large one has")
    parser.add_argument("--weeks", type=int, default=WEEKS, help="over how many weeks they are spread")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each is measured")
    parser.add_argument("--audit", action="store_true", help="audit the large one at the end")
    return parser.parse_args()


async def _run(urls: Sequence[str], options: argparse.Namespace) -> None:
    names = (f"{SMALL:,}", f"{options.messages:,}")
    for url, name, messages in zip(urls, names, (SMALL, options.messages), strict=True):
        await fill(url, messages, options.weeks, lambda line, name=name: _say(f"  {name}: {line}"))  # type: ignore[misc]
    async with (
        open_side(names[0], urls[0]) as small,
        open_side(names[1], urls[1]) as large,
    ):
        _show(await _measure((small, large), options.rounds, postmaster_of(urls[0])), names)
        await _show_chores(small, large)
    if options.audit:
        await _audit(urls[1])


def main() -> None:
    options = _options()
    directory = _directory(options.messages)
    _say(f"{os.cpu_count()} cores; PostgreSQL with fsync on in {directory}; {options.weeks} weeks.")
    with run_server(directory) as server, clone(server) as small, clone(server) as large:
        _say(f"shared_buffers {execute(server, 'SHOW shared_buffers')[0][0]}")
        asyncio.run(_run((small, large), options))


if __name__ == "__main__":
    main()
