"""Redeems Blu vouchers with Blue Label (Trade API, version 2).

The value is looked up and stored first, then all of it is taken: so a call that is repeated because its
answer was lost is identical, and gets the same answer.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

from tumira.core.settings.payments import Blu
from tumira.topups.providers.http import HttpReply, NoAnswerError
from tumira.topups.providers.voucher import (
    FAILURES,
    REPLAYED_FOR,
    TOO_LATE,
    ChangeNames,
    mask,
    not_sent,
    read_cents,
    read_object,
    read_rand,
    read_reference,
    reference_of,
)
from tumira.topups.providers.voucher_provider import ValuedVoucherProvider
from tumira.topups.states import (
    Currency,
    FailureReason,
    NotPaid,
    PaymentInDoubt,
    ProviderAnswer,
    StillPending,
    TopUp,
)

VALUE: Final = "value"
_CHANGE: Final = ChangeNames(pin="token", cents="balance")

_OK: Final = (200, 201)
_WHOLE: Final = frozenset({"ACTIVE", "VALID"})
# Errors have no codes, only messages.
_WORDS: Final[Mapping[str, FailureReason]] = {
    "invalid voucher token": FailureReason.VOUCHER_NOT_VALID,
    "already been redeemed": FailureReason.VOUCHER_NOT_VALID,
    "not found": FailureReason.VOUCHER_NOT_VALID,
    "expired": FailureReason.VOUCHER_EXPIRED,
}


class BluProvider(ValuedVoucherProvider[Blu]):
    issuer = "Blue Label"

    async def _accept(self, top_up: TopUp, pin: str, value: Decimal) -> ProviderAnswer:  # noqa: ARG002 - for others
        """Store the value; nothing is taken yet."""
        return StillPending(kept={VALUE: str(value)})

    async def poll(self, top_up: TopUp, now: datetime) -> ProviderAnswer:
        """Take the stored value, or find out whether it was taken: the same call does both."""
        value = read_rand(top_up.kept.get(VALUE))
        if value is None:
            # Nothing can have been taken before the value was stored.
            return await self.start(top_up)
        pin = self._open_pin(top_up)
        if pin is None:
            return PaymentInDoubt(self._unreadable, is_last=True)
        try:
            if top_up.age(now) >= REPLAYED_FOR:
                # A repeated call may be answered differently by now: only the voucher itself can tell.
                if await self._find_value(pin) == value:
                    return NotPaid(FailureReason.NEVER_ARRIVED, "the voucher is whole after half an hour")
                return PaymentInDoubt(TOO_LATE, is_last=True)
            url = f"{self._settings.url}/voucher/variable/redemptions"
            body = {"requestId": reference_of(top_up), "token": pin, "amount": int(value * 100)}
            reply = await self._client.call("POST", url, json=body, **self._access())
            return self._read(top_up, pin, value, reply)
        except NoAnswerError as error:
            return PaymentInDoubt(f"Blue Label: {error.problem}")

    async def _find_value(self, pin: str) -> Decimal | ProviderAnswer:
        # The PIN is part of the URL here; the client's errors never contain a URL.
        path = f"voucher/variable/vouchers?{urlencode({'token': pin})}"
        reply = await self._client.call("GET", f"{self._settings.url}/{path}", **self._access())
        told = read_object(reply.body)
        status = str(told.get("status")).upper()
        if reply.status not in _OK:
            reason = _reason_of(told)
            problem = _problem(reply, told)
            return not_sent(problem, is_first=True) if reason is None else NotPaid(reason, problem)
        if status not in _WHOLE:
            is_expired = status == "EXPIRED"
            reason = FailureReason.VOUCHER_EXPIRED if is_expired else FailureReason.VOUCHER_NOT_VALID
            return NotPaid(reason, f"its status is {mask(status)}")
        if told.get("currency", Currency.ZAR) != Currency.ZAR:
            return NotPaid(FailureReason.DECLINED, "it is not worth rand")
        value = read_cents(told.get("amount"))
        return value or NotPaid(
            FailureReason.DECLINED, "Blue Label gives a value that is no whole number of cents"
        )

    def _access(self) -> dict[str, Any]:
        return {
            "headers": {
                "apikey": self._settings.key,
                "Trade-Vend-Channel": "API",
                "Accept": "application/json",
            },
            "auth": (self._settings.user, self._settings.password),
        }

    def _read(self, top_up: TopUp, pin: str, value: Decimal, reply: HttpReply) -> ProviderAnswer:
        told = read_object(reply.body)
        if reply.status in _OK:
            return self._read_taken(top_up, pin, value, told)
        problem = _problem(reply, told)
        # Our own call, whose answer was lost, may be why it is spent or unknown.
        if reply.status < FAILURES and _reason_of(told) is FailureReason.VOUCHER_EXPIRED:
            return NotPaid(FailureReason.VOUCHER_EXPIRED, problem)
        return PaymentInDoubt(problem)

    def _read_taken(self, top_up: TopUp, pin: str, value: Decimal, told: Mapping[str, Any]) -> ProviderAnswer:
        amount = read_cents(told.get("amount"))
        if told.get("requestId") != reference_of(top_up):
            return PaymentInDoubt("Blue Label answered for another request")
        if amount is None or amount > value:
            return PaymentInDoubt("Blue Label has taken it, and does not say plainly how much")
        change = told.get("replacementVoucher")
        reference = read_reference(told.get("reference"), pin, reference_of(top_up))
        return self._paid(top_up, reference, amount, change, _CHANGE)


def _problem(reply: HttpReply, told: Mapping[str, Any]) -> str:
    return f"Blue Label answered {reply.status} {mask(told.get('message'))}".rstrip()


def _reason_of(told: Mapping[str, Any]) -> FailureReason | None:
    words = str(told.get("message", "")).lower()
    return next((reason for phrase, reason in _WORDS.items() if phrase in words), None)
