"""Explores both models and their broken twins, and prints what was found: `python -m tests.proof.model`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from tests.proof.model import accept, delivery
from tests.proof.model.accept import AcceptModel
from tests.proof.model.delivery import LARGE, MIDDLE, SMALL, DeliveryModel
from tests.proof.model.explore import Exploration, explore

LIMITS = {
    "small": (SMALL, 1),
    "middle": (MIDDLE, 2),
    "large": (LARGE, 3),
}


class ModelResult(Struct, frozen=True):
    model: str
    twin: str
    states: int
    steps: int
    breaks: str | None
    trace: list[str]

    @property
    def is_as_expected(self) -> bool:
        return (self.breaks is not None) == bool(self.twin)


def run(size: str) -> Iterator[ModelResult]:
    limits, crashes = LIMITS[size]
    yield _result("delivery", "", explore(DeliveryModel(limits=limits)))
    yield _result("accept", "", explore(AcceptModel(crashes=crashes)))
    for twin in delivery.TWINS:
        yield _result("delivery", twin, explore(DeliveryModel(twin)))
    for twin in accept.TWINS:
        yield _result("accept", twin, explore(AcceptModel(twin)))


def _result(model: str, twin: str, found: Exploration) -> ModelResult:
    return ModelResult(model, twin, found.states, found.steps, found.breaks, list(found.trace))


@click.command()
@click.option("--size", type=click.Choice(list(LIMITS)), default="small", help="How many faults there are.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the results here.")
def main(size: str, json_file: Path | None) -> None:
    """Visit every state of the models, and show that each broken twin is caught."""
    results = []
    for one in run(size):
        results.append(one)
        name = f"{one.model} that {one.twin}" if one.twin else one.model
        end = "keeps every promise" if one.breaks is None else f"caught: {one.breaks}"
        click.echo(f"{name}: {one.states:,} states, {one.steps:,} steps, {end}")
        if one.breaks is not None:
            click.echo(f"    {' → '.join(one.trace)}")
    if json_file is not None:
        json_file.write_bytes(msgspec.json.encode(results))
    if not all(one.is_as_expected for one in results):
        click.echo("The models do not show what they should.", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
