"""Settings of the business whose name stands on receipts."""

from decimal import Decimal
from pathlib import Path
from typing import Final

import pytest

from tumira.core.errors import OperatorError
from tumira.core.settings.seller import NO_SELLER, Seller, read_seller

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
ALL: Final = {
    "TUMIRA_SELLER_NAME": " Sanganai SMS (Pvt) Ltd ",
    "TUMIRA_SELLER_ADDRESS": "12 Samora Machel Avenue, Harare",
    "TUMIRA_SELLER_TAX_NUMBER": "VAT 220012345",
    "TUMIRA_SELLER_TAX_RATE": "15.5",
}


def test_what_is_given_is_read_and_everything_may_be_left_out() -> None:
    assert read_seller(ALL) == Seller(
        "Sanganai SMS (Pvt) Ltd", "12 Samora Machel Avenue, Harare", "VAT 220012345", Decimal("15.5")
    )
    assert read_seller({}) == NO_SELLER
    document = DOCUMENT.read_text()
    for name in ALL:
        assert f"`{name}`" in document, name


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("NAME", "x" * 101, "at most 100 characters"),
        ("NAME", "", "TUMIRA_SELLER_NAME is not set"),
        ("ADDRESS", "one\ntwo", "one line"),
        ("TAX_NUMBER", "", "TUMIRA_SELLER_TAX_NUMBER: a receipt with VAT needs both"),
        ("TAX_RATE", "0", "a percentage below 100"),
        ("TAX_RATE", "100", "a percentage below 100"),
        ("TAX_RATE", "15%", "a percentage below 100"),
        ("TAX_RATE", "-1", "a percentage below 100"),
        ("TAX_RATE", "\N{ARABIC-INDIC DIGIT THREE}", "a percentage below 100"),
    ],
)
def test_what_a_receipt_could_not_show_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(OperatorError, match=said):
        read_seller({**ALL, f"TUMIRA_SELLER_{name}": value})


def test_the_rate_is_given_or_that_of_a_country() -> None:
    by_country = {**ALL, "TUMIRA_SELLER_TAX_RATE": "", "TUMIRA_SELLER_COUNTRY": "ZA"}
    assert read_seller(by_country).country == "ZA"
    assert "`TUMIRA_SELLER_COUNTRY`" in DOCUMENT.read_text()
    with pytest.raises(OperatorError, match="are both set"):
        read_seller({**ALL, "TUMIRA_SELLER_COUNTRY": "ZA"})
    with pytest.raises(OperatorError, match="must be two letters"):
        read_seller({**by_country, "TUMIRA_SELLER_COUNTRY": "Zimbabwe"})
