"""The simulator reads validity periods as the standard writes them."""

import pytest

from tumira.delivery.smpp.pdu import relative_validity
from tumira.simulator.validity import read_validity_s

# 2026-11-17 08:00 UTC
NOW = 1_794_902_400.0


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("", None),
        ("nonsense", None),
        ("000000000000000R", None),
        ("000000000500000R", 300),
        ("000001000000000R", 86_400),
        ("000003000000000R", 3 * 86_400),
        ("261117100000008+", 0),
        ("261117101000008+", 600),
        ("261117080500000+", 300),
        ("261117060500008-", 300),
        ("261399101000008+", None),
    ],
)
def test_a_validity_period_is_read(written: str, seconds: float | None) -> None:
    assert read_validity_s(written, NOW) == seconds


@pytest.mark.parametrize("seconds", [60, 599, 600, 86_400, 172_800])
def test_what_the_gateway_writes_is_read_back(seconds: int) -> None:
    assert read_validity_s(relative_validity(seconds), NOW) == seconds
