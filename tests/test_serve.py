"""The processes that `tumira serve` starts; what becomes of them is in `tests/journey/test_serve.py`."""

import pytest

from tumira.core.settings import load
from tumira.serve import plan_workers


@pytest.mark.parametrize("cores", [1, 2, 16])
def test_webhooks_have_a_worker_of_their_own_where_there_is_a_core_for_it(cores: int) -> None:
    settings = load({"TUMIRA_WORKER_METRICS_PORT": "9100"})
    planned = [
        (child.name, *child.words, child.environment["TUMIRA_WORKER_METRICS_PORT"])
        for child in plan_workers(settings, {"TUMIRA_WORKER_METRICS_PORT": "9100"}, cores)
    ]
    if cores == 1:
        assert planned == [("worker", "worker", "9100")]
    else:
        assert planned == [
            ("worker", "worker", "--webhooks", "off", "9100"),
            ("webhooks", "worker", "--webhooks", "only", "9101"),
        ]


def test_without_a_port_for_metrics_neither_worker_has_one() -> None:
    assert [dict(child.environment) for child in plan_workers(load({}), {}, 2)] == [{}, {}]
