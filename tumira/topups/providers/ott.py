"""Redeems OTT vouchers (Redemption API, version 6).

The value is looked up and taken whole. The call that takes it is made only once; after a lost answer OTT has
a separate call for the outcome.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

from tumira.core.settings.payments import Ott
from tumira.topups.providers.http import HttpReply, NoAnswerError
from tumira.topups.providers.voucher import (
    FORBIDDEN,
    is_true,
    not_sent,
    read_code,
    read_object,
    read_rand,
    read_reference,
    reference_of,
)
from tumira.topups.providers.voucher_provider import ValuedVoucherProvider
from tumira.topups.states import (
    TOP_UP_MAX,
    FailureReason,
    NotPaid,
    Paid,
    PaymentInDoubt,
    ProviderAnswer,
    TopUp,
    to_usd,
)
from tumira.topups.voucher_pins import sign_for_ott

_OK: Final = (200, 201)
# Codes seen for mistakes of the customer; OTT publishes no list. Any other code leaves it in doubt.
_FAULTS_OF_CUSTOMER: Final = frozenset({4, 5, 7, 11, 12, 13, 14})
_INDETERMINATE: Final = 1
# A call that was not carried out by then never will be.
_UNDER_WAY_FOR: Final = timedelta(minutes=10)


class OttProvider(ValuedVoucherProvider[Ott]):
    issuer = "OTT"

    async def poll(self, top_up: TopUp, now: datetime) -> ProviderAnswer:
        """Poll for the outcome; the money is never asked for again."""
        fields = {"uniqueReference": reference_of(top_up)}
        try:
            reply = await self._call("CheckRemitVoucher", fields)
            told = read_object(reply.body)
            if reply.status in _OK and is_true(told.get("success")):
                return _read_taken(top_up, told, self._open_pin(top_up) or "", None)
            return await self._check_voucher(top_up, now, reply, told)
        except NoAnswerError as error:
            return PaymentInDoubt(f"OTT: {error.problem}")

    async def _check_voucher(
        self, top_up: TopUp, now: datetime, reply: HttpReply, told: Mapping[str, Any]
    ) -> ProviderAnswer:
        """Judge what OTT does not confirm: a voucher that is whole was not taken."""
        code = read_code(told.get("errorCode"))
        pin = self._open_pin(top_up)
        is_denied = reply.status in _OK and code is not None and code != _INDETERMINATE
        can_tell = is_denied and top_up.age(now) >= _UNDER_WAY_FOR
        if can_tell and pin is not None and isinstance(await self._find_value(pin), Decimal):
            return NotPaid(
                FailureReason.NEVER_ARRIVED, f"OTT answered {code} to the check; the voucher is whole"
            )
        return PaymentInDoubt(f"OTT answered {reply.status}, code {code} to the check")

    async def _find_value(self, pin: str) -> Decimal | ProviderAnswer:
        reply = await self._call("CheckVoucher", {"vendorID": self._settings.vendor, "voucherPIN": pin})
        told = read_object(reply.body)
        if reply.status in _OK and is_true(told.get("success")):
            value = read_rand(told.get("value"))
            return value or NotPaid(
                FailureReason.DECLINED, "OTT gives a value that is no amount in rand and cents"
            )
        code = read_code(told.get("errorCode"))
        if reply.status in _OK and code in _FAULTS_OF_CUSTOMER:
            return NotPaid(FailureReason.VOUCHER_NOT_VALID, f"OTT answered {code}")
        return not_sent(f"OTT answered {reply.status}, code {code}", is_first=True)

    async def _accept(self, top_up: TopUp, pin: str, value: Decimal) -> ProviderAnswer:
        reference = reference_of(top_up)
        fields = {
            # The customer, by our reference.
            "account": reference,
            "clientID": reference,
            "amount": f"{value:.2f}",
            "mobile": (top_up.phone or "").removeprefix("+"),
            "pin": pin,
            "uniqueReference": reference,
            "vendorID": self._settings.vendor,
        }
        try:
            reply = await self._call("RemitVoucher", fields)
        except NoAnswerError as error:
            if error.may_have_arrived:
                return PaymentInDoubt(f"OTT: {error.problem}")
            return not_sent(f"OTT: {error.problem}", is_first=True)
        told = read_object(reply.body)
        if reply.status in _OK and is_true(told.get("success")):
            return _read_taken(top_up, told, pin, value)
        code = read_code(told.get("errorCode"))
        if reply.status in _OK and code in _FAULTS_OF_CUSTOMER:
            return NotPaid(FailureReason.VOUCHER_NOT_VALID, f"OTT answered {code}")
        if reply.status in FORBIDDEN:
            return not_sent(f"OTT refuses our access ({reply.status})", is_first=True)
        return PaymentInDoubt(f"OTT answered {reply.status}, code {code}")

    async def _call(self, name: str, fields: Mapping[str, str]) -> HttpReply:
        signed = {**fields, "hash": sign_for_ott(self._settings.key, fields)}
        return await self._client.call(
            "POST",
            f"{self._settings.url}/api/v1/{name}",
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            content=urlencode(signed).encode(),
            auth=(self._settings.user, self._settings.password),
        )


def _read_taken(top_up: TopUp, told: Mapping[str, Any], pin: str, asked: Decimal | None) -> ProviderAnswer:
    amount = read_rand(told.get("voucherAmount"))
    # A later poll does not know the value; then any value that we accept will do.
    is_possible = amount is not None and (
        amount <= asked if asked is not None else to_usd(amount, top_up.rate) <= TOP_UP_MAX
    )
    if amount is None or not is_possible:
        return PaymentInDoubt("OTT has taken it, and does not say plainly how much")
    ours = reference_of(top_up)
    return Paid(read_reference(told.get("voucherID"), pin or ours, ours), amount)
