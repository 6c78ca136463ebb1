"""Names that a sender name must not imitate: banks, wallets, networks and authorities of both countries."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from tumira.core.translation import mark


class NameKind(StrEnum):
    """Whom a protected name belongs to."""

    NETWORK = "network"
    WALLET = "wallet"
    BANK = "bank"
    GOVERNMENT = "government"
    COURIER = "courier"
    GATEWAY = "gateway"
    GENERIC = "generic"


KIND_WORDS: Final[Mapping[NameKind, str]] = {
    NameKind.NETWORK: mark("a mobile network"),
    NameKind.WALLET: mark("a mobile wallet or money transfer"),
    NameKind.BANK: mark("a bank or insurer"),
    NameKind.GOVERNMENT: mark("a public authority"),
    NameKind.COURIER: mark("a courier"),
    NameKind.GATEWAY: mark("this service"),
    NameKind.GENERIC: mark("a word that names no business"),
}

PROTECTED_NAMES: Final[Mapping[NameKind, Sequence[str]]] = {
    NameKind.NETWORK: (
        "Econet",
        "Econet Wireless",
        "NetOne",
        "Telecel",
        "TelOne",
        "Liquid",
        "Vodacom",
        "Vodafone",
        "MTN",
        "Cell C",
        "Telkom",
        "Rain",
        "Starlink",
    ),
    NameKind.WALLET: (
        "EcoCash",
        "OneMoney",
        "Telecash",
        "InnBucks",
        "Omari",
        "Mukuru",
        "Zipit",
        "Paynow",
        "ZimSwitch",
        "Hello Paisa",
        "Mama Money",
        "Western Union",
        "MoneyGram",
        "WorldRemit",
        "M-Pesa",
        "VodaPay",
        "SnapScan",
        "PayShap",
        "PayPal",
        "1Voucher",
    ),
    NameKind.BANK: (
        "CBZ",
        "CABS",
        "Stanbic",
        "FBC",
        "NMB",
        "Steward",
        "ZB",
        "BancABC",
        "Ecobank",
        "Nedbank",
        "First Capital",
        "POSB",
        "NBS",
        "Metbank",
        "AFC",
        "Getbucks",
        "FNB",
        "Absa",
        "Capitec",
        "Standard Bank",
        "StdBank",
        "TymeBank",
        "Discovery",
        "Investec",
        "African Bank",
        "Bidvest",
        "Sasfin",
        "RMB",
        "Old Mutual",
        "Sanlam",
        "Momentum",
        "Outsurance",
        "Visa",
        "Mastercard",
    ),
    NameKind.GOVERNMENT: (
        "ZIMRA",
        "POTRAZ",
        "ZEC",
        "ZRP",
        "RBZ",
        "ZESA",
        "ZETDC",
        "ZINWA",
        "ZINARA",
        "NSSA",
        "ZIMSEC",
        "GovZW",
        "SARS",
        "SAPS",
        "SASSA",
        "IEC",
        "ICASA",
        "Eskom",
        "SABC",
        "NSFAS",
        "UIF",
        "SARB",
        "RTMC",
        "GovZA",
        "Home Affairs",
    ),
    NameKind.COURIER: ("DHL", "FedEx", "Aramex", "UPS", "Zimpost", "Swift", "Courier Guy", "PostNet"),
    NameKind.GATEWAY: ("Tumira",),
    NameKind.GENERIC: (
        "Info",
        "Verify",
        "Alert",
        "Alerts",
        "Notice",
        "SMS",
        "OTP",
        "Code",
        "Bank",
        "Banking",
        "Wallet",
        "Payment",
        "Payments",
        "Police",
        "Security",
        "Support",
        "Admin",
        "Service",
        "Test",
        "Message",
        "NoReply",
        "Loans",
    ),
}

# Parts of everyday words, such as "training": they count only where they stand as a word of their own.
WHOLE_WORDS: Final = frozenset({"Rain", "Visa", "Swift", "Liquid", "Momentum", "Steward"})
