"""Settings of payment providers."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Final

import pytest

from tumira.core.errors import OperatorError
from tumira.core.settings.payments import Payments, read_payments

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
RATE: Final = {"VOUCHER_ZAR_RATE": "18.50@2026-11-01"}
PAYNOW: Final = {"PAYNOW_ID": "1201", "PAYNOW_KEY": "hush"}
USDT: Final = {"USDT_RPC_URLS": "https://one.example/hush,https://two.example", "USDT_XPUB": "xpub-hush"}
ONE_VOUCHER: Final = {
    "VOUCHER_ONEVOUCHER_KEY": "user",
    "VOUCHER_ONEVOUCHER_SECRET": "hush",
    "VOUCHER_ONEVOUCHER_ACCOUNT": "1111-2222-3333-4444",
}
OTT: Final = {
    "VOUCHER_OTT_USER": "user",
    "VOUCHER_OTT_PASSWORD": "hush",
    "VOUCHER_OTT_KEY": "hush",
    "VOUCHER_OTT_VENDOR": "99",
}
BLU: Final = {
    "VOUCHER_BLU_URL": "https://blu.example/v2/trade",
    "VOUCHER_BLU_USER": "user",
    "VOUCHER_BLU_PASSWORD": "hush",
    "VOUCHER_BLU_KEY": "hush",
}
ALL: Final = {**PAYNOW, **USDT, **ONE_VOUCHER, **OTT, **BLU, **RATE}
OPTIONAL: Final = (
    "PAYNOW_URL",
    "PAYNOW_EMAIL",
    "USDT_CONTRACT",
    "USDT_CHAIN_ID",
    "USDT_CONFIRMATIONS",
    "VOUCHER_ONEVOUCHER_URL",
    "VOUCHER_OTT_URL",
)


def read(settings: Mapping[str, str]) -> Payments:
    return read_payments({f"TUMIRA_{name}": value for name, value in settings.items()})


def refusal(settings: Mapping[str, str]) -> str:
    with pytest.raises(OperatorError) as caught:
        read(settings)
    words = str(caught.value)
    assert "hush" not in words
    return words


def test_nothing_is_offered_that_is_not_set_up() -> None:
    assert read({}) == Payments()


def test_each_provider_is_set_up_by_its_own_settings() -> None:
    payments = read(ALL)
    assert payments.paynow is not None
    assert (payments.paynow.url, payments.paynow.email) == ("https://www.paynow.co.zw", None)
    assert payments.usdt is not None
    assert list(payments.usdt.rpc_urls) == ["https://one.example/hush", "https://two.example"]
    assert (payments.usdt.chain_id, payments.usdt.confirmations) == (56, 15)
    assert payments.usdt.contract == "0x55d398326f99059ff775485246999027b3197955"
    assert payments.zar_rate is not None
    assert (payments.zar_rate.rate, payments.zar_rate.since) == (Decimal("18.50"), date(2026, 11, 1))
    for voucher in (payments.one_voucher, payments.ott, payments.blu):
        assert voucher is not None
        assert voucher.secret
    # Not one secret stands where a log line or a stack would show it.
    assert "hush" not in repr(payments)


@pytest.mark.parametrize("missing", [name for name in ALL if name != "VOUCHER_ZAR_RATE"])
def test_what_is_missing_is_named(missing: str) -> None:
    words = refusal({name: value for name, value in ALL.items() if name != missing})
    assert f"not TUMIRA_{missing}" in words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({**OTT}, "not what a rand is worth: set TUMIRA_VOUCHER_ZAR_RATE"),
        ({"VOUCHER_ZAR_RATE": "0.9"}, "at least 1"),
        ({"VOUCHER_ZAR_RATE": "18,50"}, "as in 18.50@2026-11-01"),
        ({"VOUCHER_ZAR_RATE": "18.50@2026-13-01"}, "as in 18.50@2026-11-01"),
        ({**PAYNOW, "PAYNOW_ID": "12x"}, "digits only"),
        ({**PAYNOW, "PAYNOW_URL": "http://paynow.example/hush"}, "write https://host"),
        ({**PAYNOW, "PAYNOW_URL": "https://user:hush@paynow.example"}, "write https://host"),
        ({**PAYNOW, "PAYNOW_URL": "https://paynow.example:99999"}, "write https://host"),
        ({**USDT, "USDT_CHAIN_ID": "97"}, "has to be set for every chain but 56"),
        ({**USDT, "USDT_CHAIN_ID": "0"}, "a number from 1"),
        ({**USDT, "USDT_CONFIRMATIONS": "many"}, "a number from 1"),
        ({**USDT, "USDT_CONTRACT": "0x12"}, "40 hexadecimal digits"),
        ({**USDT, "USDT_RPC_URLS": ","}, "one to 4 addresses"),
        ({**USDT, "USDT_RPC_URLS": ",".join(f"https://{n}.example" for n in range(5))}, "one to 4 addresses"),
    ],
)
def test_what_is_wrong_is_said_in_words(changes: Mapping[str, str], words: str) -> None:
    assert words in refusal(changes)


def test_addresses_on_this_machine_need_no_tls_and_one_given_twice_counts_once() -> None:
    payments = read(
        {
            **PAYNOW,
            "PAYNOW_URL": "http://127.0.0.1:9/",
            **USDT,
            "USDT_RPC_URLS": "http://localhost:1/, http://localhost:1",
        }
    )
    assert payments.paynow is not None
    assert payments.paynow.url == "http://127.0.0.1:9"
    assert payments.usdt is not None
    assert list(payments.usdt.rpc_urls) == ["http://localhost:1"]


def test_every_setting_is_documented() -> None:
    document = DOCUMENT.read_text()
    for name in (*ALL, *OPTIONAL):
        assert f"`TUMIRA_{name}`" in document, name
