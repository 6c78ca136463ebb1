"""The models keep every promise, each broken twin is caught, and the map names functions that exist."""

from importlib import import_module
from pathlib import Path

import pytest

from tests.proof.model import accept, delivery
from tests.proof.model.accept import AcceptModel
from tests.proof.model.delivery import MIDDLE, SMALL, DeliveryModel
from tests.proof.model.explore import Exploration, explore

DOCS = Path(__file__).parents[3] / "docs" / "model.md"


def _assert_kept(
    found: Exploration, model: DeliveryModel | AcceptModel, left_out: frozenset[str] = frozenset()
) -> None:
    assert found.breaks is None, " → ".join(found.trace)
    assert found.actions.keys() == model.functions.keys() - left_out


def test_the_engine_keeps_its_promises() -> None:
    model = DeliveryModel(limits=SMALL)
    found = explore(model)
    _assert_kept(found, model, frozenset({"the connection breaks", "the carrier is busy", "retry"}))


@pytest.mark.long
@pytest.mark.parametrize("in_doubt", ["resend", "hold"])
def test_the_engine_keeps_its_promises_with_more_faults(in_doubt: str) -> None:
    model = DeliveryModel(limits=MIDDLE, in_doubt=in_doubt)
    _assert_kept(explore(model), model)


def test_the_accept_path_keeps_its_promises() -> None:
    model = AcceptModel(crashes=1)
    _assert_kept(explore(model), model)


@pytest.mark.long
def test_the_accept_path_keeps_its_promises_over_more_crashes() -> None:
    model = AcceptModel(crashes=3)
    _assert_kept(explore(model), model)


@pytest.mark.parametrize("twin", delivery.TWINS)
def test_a_broken_engine_is_caught(twin: str) -> None:
    found = explore(DeliveryModel(twin))
    assert found.breaks is not None
    assert found.trace


@pytest.mark.parametrize("twin", accept.TWINS)
def test_a_broken_accept_path_is_caught(twin: str) -> None:
    assert explore(AcceptModel(twin)).breaks is not None


@pytest.mark.parametrize("model", [DeliveryModel, AcceptModel])
def test_every_action_names_a_function(model: type[DeliveryModel | AcceptModel]) -> None:
    table = DOCS.read_text(encoding="utf-8")
    for action, path in model.functions.items():
        if path is None:
            assert f"| {action} | the world |" in table
            continue
        _find(path)
        assert f"| {action} | `{path.removeprefix('tumira.')}` |" in table


def _find(path: str) -> object:
    """Return what a dotted path names."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for name in parts[count:]:
            found = getattr(found, name)
        return found
    raise LookupError(path)
