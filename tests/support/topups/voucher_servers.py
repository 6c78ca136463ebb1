"""The three South African voucher issuers as real HTTP servers, written from their fact sheets.

    with run_issuers() as issuers:
        pin = issuers.one_voucher.issue("150.00", Twist.CUT)
        ...  # a process with issuers.environment, or an action with issuers.payments
        assert issuers.one_voucher.taken(pin) == Decimal("150.00")

What goes wrong with a voucher is chosen when it is issued, and happens the first time it is redeemed; `LOST`
happens every time. The servers keep what was really taken, to be compared with the balances.
"""

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import sha256
from typing import Any, Final

from tests.support.topups.voucher_issuer import (
    HTML,
    Answer,
    Call,
    Fault,
    IssuerServer,
    Redemption,
    Twist,
    as_json,
    run_issuer,
)
from tumira.core.settings.payments import Payments, read_payments

EXPIRY: Final = "2029-11-30"
RATE: Final = "18.50@2026-11-01"

FLASH_CODES: Final = {
    Fault.USED: 2401,
    Fault.UNKNOWN: 2402,
    Fault.CANCELLED: 2403,
    Fault.EXPIRED: 2405,
    Fault.TOO_SMALL: 2406,
    Fault.TOO_LARGE: 2408,
}
BLU_WORDS: Final = {
    Fault.UNKNOWN: (404, "Invalid voucher token"),
    Fault.USED: (409, "Voucher has already been redeemed"),
    Fault.EXPIRED: (400, "Voucher expired"),
    Fault.CANCELLED: (400, "Voucher is blacklisted"),
    Fault.TOO_SMALL: (400, "Amount too small"),
    Fault.TOO_LARGE: (400, "Insufficient voucher balance"),
}
BLU_STATUSES: Final = {
    None: "ACTIVE",
    Fault.UNKNOWN: "NOT_FOUND",
    Fault.USED: "REDEEMED",
    Fault.EXPIRED: "EXPIRED",
    Fault.CANCELLED: "BLACKLISTED",
}


@dataclass
class OneVoucherServer(IssuerServer):
    """Flash: a token first, then HTTP 200 in every case, with a code inside."""

    pin_length: int = 16
    tokens: list[str] = field(default_factory=list)
    # What a right user is answered instead of a token.
    token_answer: Answer | None = None

    def answer(self, call: Call) -> Answer:
        if (call.method, call.path) == ("POST", "/token"):
            return self._token(call)
        if (call.method, call.path) != ("POST", "/aggregation/4.0/1voucher/redeem"):
            return Answer(404, b"")
        if call.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            return as_json(401, {"error": "invalid_token"})
        asked = json.loads(call.body)
        is_right = (
            re.fullmatch(r"[A-Za-z0-9.=-]+", asked["reference"])
            and re.fullmatch(r"([0-9]{4}-){3}[0-9]{4}", asked["accountNumber"])
            and re.fullmatch(r"[0-9]{16}", asked["pin"])
            and re.fullmatch(r"27[0-9]{9}", asked.get("mobileNumber", "27821230001"))
            and type(asked["amount"]) is int
        )
        if not is_right:
            return as_json(400, {"responseMessage": "Bad request"})
        unsure = as_json(200, {"responseCode": 2400, "responseMessage": "Upstream error"})
        return self.redeem(asked["reference"], asked["pin"], asked["amount"], self._tell, unsure)

    def _token(self, call: Call) -> Answer:
        if call.user != "consumer:flash-secret" or call.form != {"grant_type": "client_credentials"}:
            return as_json(401, {"error": "invalid_client"})
        if self.token_answer is not None:
            return self.token_answer
        self.tokens.append(secrets.token_hex(8))
        return as_json(200, {"access_token": self.tokens[-1], "token_type": "Bearer", "expires_in": 1150})

    def _tell(self, outcome: Redemption | Fault) -> Answer:
        if isinstance(outcome, Fault):
            return as_json(200, {"responseCode": FLASH_CODES[outcome], "responseMessage": outcome.value})
        told: dict[str, Any] = {
            "responseCode": 0,
            "responseMessage": "Success",
            "reference": outcome.reference,
            "amount": outcome.cents,
            "transactionDate": "2026-11-15T10:00:00Z",
            "transactionId": int(outcome.number),
        }
        if outcome.change_pin is not None:
            told["voucher"] = {
                "amount": outcome.change_cents,
                "expiryDate": EXPIRY,
                "pin": outcome.change_pin,
                "serialNumber": "S1",
                "content": "",
            }
        return as_json(200, told)


@dataclass
class OttServer(IssuerServer):
    """OTT: forms with a hash, amounts with four decimals and commas, and booleans that are strings."""

    pin_length: int = 12
    # A second remittance is not known by its reference: the voucher is spent by then, and that is the answer.
    replays: bool = False
    # Without it an amount has a part of a cent.
    whole_cents: bool = True

    def answer(self, call: Call) -> Answer:
        if call.user != "ott-user:ott-password":
            return Answer(401, b"")
        fields = call.form
        given = fields.pop("hash", "")
        text = "ott-key" + "".join(fields[name] for name in sorted(fields))
        if given != sha256(text.encode()).hexdigest():
            return self._fault("15", "Hash does not match")
        match call.path.removeprefix("/api/v1/"):
            case "CheckVoucher":
                return self._check(fields)
            case "RemitVoucher":
                wanted = {"account", "amount", "clientID", "mobile", "pin", "uniqueReference", "vendorID"}
                assert set(fields) == wanted
                assert re.fullmatch(r"27[0-9]{9}", fields["mobile"])
                assert re.fullmatch(r"[0-9]+\.[0-9]{2}", fields["amount"])
                cents = int(Decimal(fields["amount"]) * 100)
                return self.redeem(
                    fields["uniqueReference"],
                    fields["pin"],
                    cents,
                    self._tell,
                    self._fault("1", "Indeterminate"),
                )
            case "CheckRemitVoucher":
                return self._look(fields["uniqueReference"])
            case _:
                return Answer(404, b"")

    def _check(self, fields: Mapping[str, str]) -> Answer:
        fault = self.fault_of(fields["voucherPIN"])
        if fault is not None:
            return self._fault("11", fault)
        value = self._amount(self.vouchers[fields["voucherPIN"]].cents)
        told = {"success": "true", "serial": "S1", "voucherID": "V1", "value": value}
        return as_json(200, {**told, "message": "", "errorCode": "0"})

    def _look(self, reference: str) -> Answer:
        found = self.find(reference)
        if found is None:
            return self._fault("9", "Not found")
        if self.vouchers[found.pin].twist is Twist.LOST:
            return Answer(500, HTML)
        return self._tell(found)

    def _tell(self, outcome: Redemption | Fault) -> Answer:
        if isinstance(outcome, Fault):
            return self._fault("12", outcome)
        told = {
            "success": "true",
            "voucherID": outcome.number,
            "voucherAmount": self._amount(outcome.cents),
            "voucherBalance": self._amount(outcome.change_cents),
        }
        return as_json(201, {**told, "errorCode": "0", "message": "", "serialNumber": "S1"})

    def _amount(self, cents: int) -> str:
        return f"{Decimal(cents) / 100:,.4f}" if self.whole_cents else f"{Decimal(cents) / 100:,.2f}50"

    @staticmethod
    def _fault(code: str, message: str) -> Answer:
        return as_json(200, {"success": "false", "errorCode": code, "message": message})


@dataclass
class BluServer(IssuerServer):
    """Blue Label: a status, and errors that only their messages tell apart."""

    pin_length: int = 16

    def answer(self, call: Call) -> Answer:
        if call.user != "blu-user:blu-password" or call.headers.get("apikey") != "blu-key":
            return self._fault(401, "Unauthorized")
        assert call.headers["trade-vend-channel"] == "API"
        if (call.method, call.path) == ("GET", "/v2/trade/voucher/variable/vouchers"):
            return self._status(call.query["token"])
        if (call.method, call.path) == ("POST", "/v2/trade/voucher/variable/redemptions"):
            asked = json.loads(call.body)
            assert type(asked["amount"]) is int
            unsure = self._fault(502, "Bad gateway")
            return self.redeem(asked["requestId"], asked["token"], asked["amount"], self._tell, unsure)
        return self._fault(404, "No such path")

    def _status(self, pin: str) -> Answer:
        fault = self.fault_of(pin)
        told: dict[str, Any] = {"status": BLU_STATUSES[fault], "currency": "ZAR", "expiryDate": EXPIRY}
        if fault is not Fault.UNKNOWN:
            told["amount"] = 0 if fault is Fault.USED else self.vouchers[pin].cents
        return as_json(200, told)

    def _tell(self, outcome: Redemption | Fault) -> Answer:
        if isinstance(outcome, Fault):
            return self._fault(*BLU_WORDS[outcome])
        told: dict[str, Any] = {
            "requestId": outcome.reference,
            "reference": outcome.number,
            "amount": outcome.cents,
            "dateTime": "2026-11-15T10:00:00Z",
            "redeemedVoucherSerialNumber": "S1",
        }
        if outcome.change_pin is not None:
            told["replacementVoucher"] = {
                "token": outcome.change_pin,
                "serialNumber": "S2",
                "balance": outcome.change_cents,
            }
        return as_json(201, told)

    @staticmethod
    def _fault(status: int, message: str) -> Answer:
        told = {"timestamp": "2026-11-15T10:00:00Z", "status": status, "error": "", "path": ""}
        return as_json(status, {**told, "message": message})


@dataclass(frozen=True, slots=True)
class Issuers:
    one_voucher: OneVoucherServer
    ott: OttServer
    blu: BluServer

    @property
    def each(self) -> Sequence[IssuerServer]:
        return (self.one_voucher, self.ott, self.blu)

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "TUMIRA_VOUCHER_ONEVOUCHER_URL": self.one_voucher.url,
            "TUMIRA_VOUCHER_ONEVOUCHER_KEY": "consumer",
            "TUMIRA_VOUCHER_ONEVOUCHER_SECRET": "flash-secret",
            "TUMIRA_VOUCHER_ONEVOUCHER_ACCOUNT": "1234-5678-1234-5678",
            "TUMIRA_VOUCHER_OTT_URL": self.ott.url,
            "TUMIRA_VOUCHER_OTT_USER": "ott-user",
            "TUMIRA_VOUCHER_OTT_PASSWORD": "ott-password",
            "TUMIRA_VOUCHER_OTT_KEY": "ott-key",
            "TUMIRA_VOUCHER_OTT_VENDOR": "99",
            "TUMIRA_VOUCHER_BLU_URL": f"{self.blu.url}/v2/trade",
            "TUMIRA_VOUCHER_BLU_USER": "blu-user",
            "TUMIRA_VOUCHER_BLU_PASSWORD": "blu-password",
            "TUMIRA_VOUCHER_BLU_KEY": "blu-key",
            "TUMIRA_VOUCHER_ZAR_RATE": RATE,
        }

    @property
    def payments(self) -> Payments:
        return read_payments(self.environment)


@contextmanager
def run_issuers() -> Iterator[Issuers]:
    issuers = Issuers(OneVoucherServer(), OttServer(), BluServer())
    with ExitStack() as stack:
        for issuer in issuers.each:
            stack.enter_context(run_issuer(issuer))
        yield issuers
