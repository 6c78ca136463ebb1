"""The engine keeps its promises in simulated runs, and the checks find mistakes."""

from collections.abc import Iterator
from itertools import chain

import pytest

from tests.proof.simulation.run import run_seed
from tests.proof.simulation.template import Template, run_template
from tests.proof.simulation.twins import SEEN, TWINS, broken

# In slices, so that each ends within its time on a busy machine.
SEEDS = range(1, 151)
SLICE = 15
TWIN_SEEDS_MAX = 60

pytestmark = [
    pytest.mark.long,
    # A worker that is killed closes nothing.
    pytest.mark.filterwarnings("ignore:unclosed connection:ResourceWarning"),
]


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    with run_template() as running:
        yield running


def test_a_seed_is_replayed_exactly(template: Template) -> None:
    first, second = run_seed(template, 3), run_seed(template, 3)
    assert first.problems == {}
    assert first.faults
    assert first.digest == second.digest


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", SEEDS[::SLICE])
def test_seeds_keep_the_promises(template: Template, first: int) -> None:
    outcomes = [run_seed(template, seed) for seed in range(first, first + SLICE)]
    assert {outcome.seed: outcome.problems for outcome in outcomes if outcome.problems} == {}


@pytest.mark.parametrize("twin", TWINS)
def test_a_mistake_is_found(template: Template, twin: str) -> None:
    with broken(twin):
        seeds = chain([SEEN[twin]], range(1, TWIN_SEEDS_MAX + 1))
        assert any(run_seed(template, seed).problems for seed in seeds)
