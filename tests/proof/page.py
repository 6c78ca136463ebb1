"""Writes docs/proof.md from the last results, the promises and the faults that were found."""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from textwrap import fill
from typing import Any, Final

import msgspec
from msgspec import Struct

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
RESULTS: Final = HERE / "results.json"
PROMISES: Final = HERE / "promises.toml"
FOUND: Final = HERE / "found.toml"

_WIDTH: Final = 100
_OPENING: Final = """\
# Proof

Tumira's promises are tried by programs that do not believe them: models that are explored whole, a
simulation that replays any seed exactly, a cluster under kills and cuts that is judged by what its
clients saw, and faults in the code that tests must catch. Broken twins of Tumira are tried too, and
one of them that is not caught fails the proof. One known mistake is caught by the histories alone
([simulation.md](simulation.md)).

Run a slice of all of it in about ten minutes on two cores:

```console
$ make proof
```

It ends with `EVERY PROOF HOLDS` or names the part that failed. `make proof ARGS="--scale 10"` runs
ten times as long, `make test-long` has the rest: 1,000 kills, fail-overs by Patroni, all twins.

This page is made by `make docs` from the results of `make proof ARGS=--write`, and from
`promises.toml` and `found.toml` in `tests/proof`.
"""


class Promise(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    says: str
    shown_by: list[str]


class Fault(Struct, frozen=True, forbid_unknown_fields=True):
    date: date
    found_by: str
    fault: str
    fix: str
    commit: str


def read_promises() -> Sequence[Promise]:
    return msgspec.convert(tomllib.loads(PROMISES.read_text())["promise"], list[Promise])


def read_found() -> Sequence[Fault]:
    return msgspec.convert(tomllib.loads(FOUND.read_text())["fault"], list[Fault])


def read_results() -> Mapping[str, Any]:
    found: Mapping[str, Any] = msgspec.json.decode(RESULTS.read_bytes())
    return found


def proof_page() -> str:
    results = read_results()
    return "\n".join(
        [_OPENING, *_verdict(results), *_faults(results), *_twins(results), *_promises(), *_found()]
    )


def _verdict(results: Mapping[str, Any]) -> Iterator[str]:
    yield "## The last slice\n"
    yield _wrapped(
        f"{results['date']}, commit {results['commit']}, {results['machine']}: every proof holds, "
        f"in {results['minutes']:g} minutes."
    )
    yield "| Proof | Tried | Result |"
    yield "|---|---|---|"
    whole = [one for one in results["model"] if not one["twin"]]
    states, steps = (sum(one[name] for one in whole) for name in ("states", "steps"))
    yield f"| [Models](model.md) | all {states:,} states, {steps:,} steps | every promise kept |"
    simulated = results["simulation"]
    yield (
        f"| [Simulation](simulation.md) | {simulated['seeds']:,} seeds, {simulated['messages']:,} messages, "
        f"{sum(simulated['faults'].values()):,} faults | {len(simulated['failed'])} failed |"
    )
    history = results["history"]
    yield (
        f"| [Histories](history.md) | {sum(history['operations'].values()):,} calls, "
        f"{history['messages']:,} messages, {sum(history['faults'].values()):,} faults "
        f"| {sum(map(len, history['problems'].values()))} problems |"
    )
    counts = Counter(results["mutants"]["counts"])
    tried = counts["caught"] + counts["survived"]
    yield f"| [Mutants](mutation.md) | {tried} faults in the code | {counts['caught']} caught |"
    yield ""


def _faults(results: Mapping[str, Any]) -> Iterator[str]:
    yield "## Faults by kind\n"
    yield "| Where | Kind | How often |"
    yield "|---|---|---|"
    for where, name in (("Simulation", "simulation"), ("Cluster", "history")):
        for kind, count in sorted(results[name]["faults"].items()):
            yield f"| {where} | {kind} | {count:,} |"
    for kind, why in results["history"]["not_tried"].items():
        yield f"| Cluster | {kind} | not tried: {why} |"
    yield ""


def _twins(results: Mapping[str, Any]) -> Iterator[str]:
    yield "## Broken twins\n"
    yield "| Proof | Twins | Caught |"
    yield "|---|---|---|"
    models = Counter("caught" if one["breaks"] else "missed" for one in results["model"] if one["twin"])
    yield f"| Models | {models.total()} | {models['caught']} |"
    for where, name in (("Simulation", "simulation_twins"), ("Histories", "history_twins")):
        twins = results[name]["twins"]
        caught = sum(one is not None and one is not False for one in twins.values())
        yield f"| {where} | {len(twins)} | {caught} |"
    yield ""


def _promises() -> Iterator[str]:
    yield "## The promises\n"
    for promise in read_promises():
        yield _wrapped(f"**{promise.id}** {promise.says}")
        shown_by = ", ".join(f"`{one}`" if "/" in one else one for one in promise.shown_by)
        yield _wrapped(f"Shown by {shown_by}.")


def _found() -> Iterator[str]:
    yield "## What was found so far\n"
    for fault in read_found():
        told = f"{fault.date}. {fault.found_by}. {fault.fault} *{fault.fix}* ({fault.commit})"
        yield fill(told, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)
    yield ""


def _wrapped(text: str) -> str:
    return fill(text, _WIDTH, break_on_hyphens=False, break_long_words=False) + "\n"
