"""Runs a slice of every proof and prints a verdict: `make proof`.

`--write` keeps the results for `docs/proof.md`, which `make docs` writes.
"""

import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from msgspec import Struct

from tests.proof.page import RESULTS, ROOT

# Ends a part that hangs, long after it should be over.
GRACE_S: Final = 240.0
SIMULATION_MIN: Final = 1.5
HISTORY_MIN: Final = 2.5


class Part(Struct, frozen=True):
    name: str
    about: str
    words: Sequence[str]
    # How long it should take on two cores.
    minutes: float


def parts(scale: float) -> Sequence[Part]:
    simulated, recorded = SIMULATION_MIN * scale, HISTORY_MIN * scale
    return [
        Part("model", "every state of both models, and their broken twins", ("model",), 0.2),
        Part(
            "simulation",
            "the engine on a seeded loop with virtual time",
            ("simulation", "--minutes", f"{simulated:g}", "--jobs", "2"),
            simulated,
        ),
        Part("simulation_twins", "broken twins of the engine", ("simulation", "--twins", "--jobs", "2"), 1.0),
        Part(
            "history",
            "a cluster under faults, judged by what its clients saw",
            ("history", "--minutes", f"{recorded:g}"),
            recorded,
        ),
        Part("history_twins", "broken twins of the product", ("history", "--twins"), 1.0),
        Part(
            "mutants",
            "faults in the code that tests caught before",
            ("mutants", "--again", "--sample", f"{40 * scale:.0f}"),
            1.5 * scale,
        ),
    ]


def run(part: Part, directory: Path) -> bool:
    """Run one part, which prints its progress; return whether it shows what it should."""
    words = [sys.executable, "-m", f"tests.proof.{part.words[0]}", *part.words[1:]]
    click.echo(f"\n== {part.name}: {part.about}, about {60 * part.minutes:.0f} s")
    began = time.monotonic()
    try:
        code = subprocess.run(
            [*words, "--json", str(directory / f"{part.name}.json")],
            cwd=ROOT,
            timeout=60 * part.minutes + GRACE_S,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        click.echo(f"{part.name} did not end. Run it alone: {' '.join(words)}")
        return False
    click.echo(f"{part.name}: {'holds' if code == 0 else 'FAILED'} after {time.monotonic() - began:.0f} s")
    return code == 0


def describe() -> Mapping[str, Any]:
    """Return when, of what and on what kind of machine the results are."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit.stdout.strip(),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
    }


@click.command()
@click.option("--scale", default=1.0, help="How many times as long as the usual slice.")
@click.option("--only", multiple=True, help="Run only this part; can be given several times.")
@click.option("--write", is_flag=True, help="Keep the results for docs/proof.md.")
def main(scale: float, only: Sequence[str], *, write: bool) -> None:
    """Run a slice of every proof, and say whether all of it holds."""
    chosen = [one for one in parts(scale) if not only or one.name in only]
    if not chosen:
        names = ", ".join(one.name for one in parts(scale))
        raise click.UsageError(f"There is no such part. The parts are {names}.")
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="tumira-proof-"))
    try:
        held = {one.name: run(one, directory) for one in chosen}
        results = {
            one.name: msgspec.json.decode(path.read_bytes())
            for one in chosen
            if (path := directory / f"{one.name}.json").exists()
        }
    finally:
        shutil.rmtree(directory)
    minutes = (time.monotonic() - began) / 60
    failed = [name for name, holds in held.items() if not holds]
    if write and not failed and not only:
        document = {**describe(), "minutes": round(minutes, 1), **results}
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
        click.echo(f"Wrote {RESULTS.relative_to(ROOT)}. Write the page with: make docs")
    click.echo(f"\n{len(held) - len(failed)} passed, {len(failed)} failed")
    if failed:
        click.echo(f"THE PROOF FAILS after {minutes:.1f} minutes: {', '.join(failed)}")
        sys.exit(1)
    click.echo(f"EVERY PROOF HOLDS, in {minutes:.1f} minutes")


if __name__ == "__main__":
    main()
