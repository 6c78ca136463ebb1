"""Payment providers that are set up; others are not offered."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Final

from tumira.core import urls
from tumira.core.errors import OperatorError

PREFIX: Final = "TUMIRA_"

BNB_SMART_CHAIN: Final = 56
# The token on BNB Smart Chain; on any other chain it has to be named.
_USDT_CONTRACT: Final = "0x55d398326f99059ff775485246999027b3197955"
_CONFIRMATIONS: Final = 15
_CONFIRMATIONS_MAX: Final = 10_000
_RPC_URLS_MAX: Final = 4

_PAYNOW_URL: Final = "https://www.paynow.co.zw"
_ONE_VOUCHER_URL: Final = "https://api.flashswitch.flash-group.com"
_OTT_URL: Final = "https://api.ott-mobile.com"

_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")
_RATE: Final = re.compile(r"(?P<rate>[0-9]{1,6}(\.[0-9]{1,6})?)(@(?P<on>[0-9]{4}-[0-9]{2}-[0-9]{2}))?")

# Reads a setting by its name without the prefix; None where it is not set.
Read = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Paynow:
    """Access to Paynow: mobile-money wallets and cards of Zimbabwe."""

    url: str
    integration_id: str
    key: str = field(repr=False)
    # Who Paynow writes to; in its test mode the merchant, otherwise the customer where this is None.
    email: str | None


@dataclass(frozen=True, slots=True)
class Usdt:
    """The chain that is watched, its providers, and the public key from which addresses are derived."""

    rpc_urls: Sequence[str] = field(repr=False)
    xpub: str = field(repr=False)
    contract: str
    chain_id: int
    confirmations: int


@dataclass(frozen=True, slots=True)
class OneVoucher:
    """Access to Flash, who issue 1Voucher."""

    url: str
    consumer_key: str
    consumer_secret: str = field(repr=False)
    account: str

    @property
    def secret(self) -> str:
        """The secret with which PINs are encrypted."""
        return self.consumer_secret


@dataclass(frozen=True, slots=True)
class Ott:
    """Access to OTT."""

    url: str
    user: str
    password: str = field(repr=False)
    key: str = field(repr=False)
    vendor: str

    @property
    def secret(self) -> str:
        """The secret with which PINs are encrypted."""
        return self.password + self.key


@dataclass(frozen=True, slots=True)
class Blu:
    """Access to Blue Label, who issue Blu vouchers."""

    url: str
    user: str
    password: str = field(repr=False)
    key: str = field(repr=False)

    @property
    def secret(self) -> str:
        """The secret with which PINs are encrypted."""
        return self.password + self.key


@dataclass(frozen=True, slots=True)
class ZarRate:
    """How many rand make a US dollar, and since when the operator says so."""

    rate: Decimal
    since: date | None


@dataclass(frozen=True, slots=True)
class Payments:
    """What is set up; None for what is not. The operator's own vouchers need nothing."""

    paynow: Paynow | None = None
    usdt: Usdt | None = None
    one_voucher: OneVoucher | None = None
    ott: Ott | None = None
    blu: Blu | None = None
    # There whenever one of the South African vouchers is.
    zar_rate: ZarRate | None = None


def read_payments(values: Mapping[str, str]) -> Payments:
    def read(name: str) -> str | None:
        return values.get(PREFIX + name)

    one_voucher, ott, blu = _one_voucher(read), _ott(read), _blu(read)
    zar_rate = _zar_rate(read)
    if zar_rate is None and (one_voucher or ott or blu):
        raise OperatorError(
            "Vouchers are set up, but not what a rand is worth: set TUMIRA_VOUCHER_ZAR_RATE to the rand that "
            "make a US dollar and the day of that rate, as in 18.50@2026-11-01."
        )
    return Payments(_paynow(read), _usdt(read), one_voucher, ott, blu, zar_rate)


def _paynow(read: Read) -> Paynow | None:
    given = _together(read, "PAYNOW_", needed=("ID", "KEY"), optional=("URL", "EMAIL"))
    if given is None:
        return None
    if not _DIGITS.fullmatch(given["ID"]):
        raise OperatorError("TUMIRA_PAYNOW_ID is the number of the integration, digits only.")
    return Paynow(
        url=_base("PAYNOW_URL", given.get("URL", _PAYNOW_URL)),
        integration_id=given["ID"],
        key=given["KEY"],
        email=given.get("EMAIL"),
    )


def _usdt(read: Read) -> Usdt | None:
    given = _together(
        read,
        "USDT_",
        needed=("RPC_URLS", "XPUB"),
        optional=("CONTRACT", "CHAIN_ID", "CONFIRMATIONS"),
    )
    if given is None:
        return None
    chain_id = _number("USDT_CHAIN_ID", given.get("CHAIN_ID", str(BNB_SMART_CHAIN)), 2**53)
    contract = given.get("CONTRACT", _USDT_CONTRACT if chain_id == BNB_SMART_CHAIN else "")
    if not _ADDRESS.fullmatch(contract):
        raise OperatorError(
            "TUMIRA_USDT_CONTRACT must be the address of the token, 0x and 40 hexadecimal digits; it has "
            f"to be set for every chain but {BNB_SMART_CHAIN}."
        )
    urls = [_base("USDT_RPC_URLS", url.strip()) for url in given["RPC_URLS"].split(",") if url.strip()]
    if not 1 <= len(set(urls)) <= _RPC_URLS_MAX:
        raise OperatorError(
            f"TUMIRA_USDT_RPC_URLS must be one to {_RPC_URLS_MAX} addresses with commas between; two "
            "that do not depend on each other are best."
        )
    return Usdt(
        rpc_urls=tuple(dict.fromkeys(urls)),
        xpub=given["XPUB"],
        contract=contract.lower(),
        chain_id=chain_id,
        confirmations=_number(
            "USDT_CONFIRMATIONS", given.get("CONFIRMATIONS", str(_CONFIRMATIONS)), _CONFIRMATIONS_MAX
        ),
    )


def _one_voucher(read: Read) -> OneVoucher | None:
    given = _together(read, "VOUCHER_ONEVOUCHER_", needed=("KEY", "SECRET", "ACCOUNT"), optional=("URL",))
    if given is None:
        return None
    url = _base("VOUCHER_ONEVOUCHER_URL", given.get("URL", _ONE_VOUCHER_URL))
    return OneVoucher(url, given["KEY"], given["SECRET"], given["ACCOUNT"])


def _ott(read: Read) -> Ott | None:
    given = _together(read, "VOUCHER_OTT_", needed=("USER", "PASSWORD", "KEY", "VENDOR"), optional=("URL",))
    if given is None:
        return None
    url = _base("VOUCHER_OTT_URL", given.get("URL", _OTT_URL))
    return Ott(url, given["USER"], given["PASSWORD"], given["KEY"], given["VENDOR"])


def _blu(read: Read) -> Blu | None:
    given = _together(read, "VOUCHER_BLU_", needed=("URL", "USER", "PASSWORD", "KEY"))
    if given is None:
        return None
    return Blu(_base("VOUCHER_BLU_URL", given["URL"]), given["USER"], given["PASSWORD"], given["KEY"])


def _zar_rate(read: Read) -> ZarRate | None:
    text = read("VOUCHER_ZAR_RATE")
    if text is None:
        return None
    match = _RATE.fullmatch(text.strip())
    wrong = OperatorError(
        f"TUMIRA_VOUCHER_ZAR_RATE is {text!r}; write the rand that make a US dollar, at least 1, and the day "
        "of that rate, as in 18.50@2026-11-01."
    )
    if match is None:
        raise wrong
    try:
        rate = Decimal(match["rate"])
        since = date.fromisoformat(match["on"]) if match["on"] else None
    except (InvalidOperation, ValueError):
        raise wrong from None
    if rate < 1:
        raise wrong
    return ZarRate(rate, since)


def _together(
    read: Read, group: str, *, needed: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, str] | None:
    """Return the settings of a provider without their common prefix; None where it is not set up."""
    given = {name: value for name in (*needed, *optional) if (value := read(group + name))}
    if not given:
        return None
    missing = [f"{PREFIX}{group}{name}" for name in needed if name not in given]
    if missing:
        there = ", ".join(f"{PREFIX}{group}{name}" for name in given)
        raise OperatorError(f"{there} is set, but not {' and '.join(missing)}: set all of them, or none.")
    return given


def _base(name: str, text: str) -> str:
    """Return a provider's address without a trailing slash; an error never repeats it, for keys in it."""
    wrong = OperatorError(
        f"{PREFIX}{name} is no address of a provider: write https://host, and http:// only for this machine."
    )
    parts = urls.parse(text)
    if parts is None or not parts.host or parts.user is not None or parts.fragment or not text.isprintable():
        raise wrong
    if parts.scheme != "https" and not (parts.scheme == "http" and urls.is_loopback(parts.host)):
        raise wrong
    return text.rstrip("/")


def _number(name: str, text: str, highest: int) -> int:
    if not (_DIGITS.fullmatch(text) and 1 <= int(text) <= highest):
        raise OperatorError(f"{PREFIX}{name} is {text!r}; it must be a number from 1 to {highest}.")
    return int(text)
