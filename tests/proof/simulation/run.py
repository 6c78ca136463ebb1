"""Runs seeds, one after the other, each on a database of its own."""

import gc
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from unittest.mock import patch

from tests.proof.simulation.checks import check, read_facts
from tests.proof.simulation.template import Template
from tests.proof.simulation.world import run_world


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a seed showed."""

    seed: int
    digest: str
    events: int
    requests: int
    messages: int
    virtual_s: float
    faults: Mapping[str, int]
    problems: Mapping[str, Sequence[str]]
    lines: Sequence[str]


def run_seed(template: Template, seed: int, *, is_kept: bool = False) -> Outcome:
    """Run a seed, and decide about it."""
    outcome = _run(template, seed, is_kept=is_kept)
    # Tasks of killed workers raise when they are collected, as nothing in them may run any more.
    with patch("sys.unraisablehook", lambda _: None), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
    return outcome


def _run(template: Template, seed: int, *, is_kept: bool) -> Outcome:
    with template.clone() as name:
        world = run_world(template, name, seed, is_kept=is_kept)
        facts = read_facts(template.url_of(name))
    trace = world.loop.trace
    return Outcome(
        seed=seed,
        digest=trace.digest,
        events=trace.count,
        requests=world.server.requests,
        messages=len(facts.messages),
        virtual_s=world.loop.now_s,
        faults=dict(world.faults),
        problems=check(world, facts),
        lines=trace.lines,
    )
