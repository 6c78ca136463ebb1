"""Settings of traces."""

from pathlib import Path

import pytest

from tumira.core.errors import OperatorError
from tumira.core.settings import Settings, load
from tumira.core.settings.tracing import Tracing


def read(**values: str) -> Settings:
    return load({f"TUMIRA_{name}": value for name, value in values.items()}, Path("/nowhere/.env"))


def test_neither_has_to_be_set() -> None:
    assert (read().worker_metrics_port, read().tracing) == (None, None)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318/", "http://collector:4318/v1/traces"),
        ("https://traces.example/own/path", "https://traces.example/own/path"),
    ],
)
def test_the_collector_is_found(given: str, url: str) -> None:
    assert read(OTLP_URL=given).tracing == Tracing(url, 0.01)
    assert read(OTLP_URL=given, OTLP_SAMPLE="0.5").tracing == Tracing(url, 0.5)


@pytest.mark.parametrize(
    "given", ["collector:4318", "ftp://collector", "http://", "http://a:b", "http://a:0"]
)
def test_an_address_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(OperatorError, match="TUMIRA_OTLP_URL is no address"):
        read(OTLP_URL=given)


@pytest.mark.parametrize("given", ["2", "-1", "half", "1.5", "0.1e1", "nan"])
def test_a_share_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(OperatorError, match="TUMIRA_OTLP_SAMPLE"):
        read(OTLP_SAMPLE=given)


def test_metrics_need_a_port_of_their_own() -> None:
    assert read(WORKER_METRICS_PORT="9100").worker_metrics_port == 9100
    with pytest.raises(OperatorError, match="are both 8080"):
        read(WORKER_METRICS_PORT="8080")
    with pytest.raises(OperatorError, match="a number from 1"):
        read(WORKER_METRICS_PORT="0")
