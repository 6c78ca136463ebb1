"""Redeems Blu vouchers with Blue Label (Trade API, version 2).

The value is looked up and stored first, then all of it is taken: so a call that is repeated because its
answer was lost is identical, and gets the same answer.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

from tumira.core.settings.payments import Blu
from tumira.topups.providers import Order
from tumira.topups.providers.http import ANSWER_S, HttpReply, NoAnswerError, ProviderClient
from tumira.topups.providers.voucher import (
    FAILURES,
    REPLAYED_FOR,
    TOO_LATE,
    ChangeNames,
    check_value,
    mask,
    not_sent,
    open_pin,
    paid_with_change,
    read_cents,
    read_object,
    read_rand,
    read_reference,
    reference_of,
)
from tumira.topups.states import Currency, FailureReason, InDoubt, NotPaid, ProviderAnswer, StillPending
from tumira.topups.voucher_pins import Seal

VALUE: Final = "value"
_CHANGE: Final = ChangeNames(pin="token", cents="balance")

_OK: Final = (200, 201)
_WHOLE: Final = frozenset({"ACTIVE", "VALID"})
_STATUSES: Final[Mapping[str, FailureReason]] = {
    "REDEEMED": FailureReason.VOUCHER_NOT_VALID,
    "USED": FailureReason.VOUCHER_NOT_VALID,
    "NOT_FOUND": FailureReason.VOUCHER_NOT_VALID,
    "EXPIRED": FailureReason.VOUCHER_EXPIRED,
}
# Errors have no codes, only messages.
_EXPIRED: Final = "expired"
_WORDS: Final[Mapping[str, FailureReason]] = {
    "invalid voucher token": FailureReason.VOUCHER_NOT_VALID,
    "already been redeemed": FailureReason.VOUCHER_NOT_VALID,
    "not found": FailureReason.VOUCHER_NOT_VALID,
    _EXPIRED: FailureReason.VOUCHER_EXPIRED,
}


class BluProvider:
    def __init__(self, settings: Blu, *, answer_s: float = ANSWER_S) -> None:
        self._settings = settings
        self._seal = Seal(settings.secret)
        self._client = ProviderClient(answer_s=answer_s)

    async def start(self, order: Order) -> ProviderAnswer:
        """Look up the value and store it; nothing is taken yet."""
        pin = open_pin(self._seal, order)
        if pin is None:
            return not_sent("the PIN cannot be read with this access to Blue Label", is_first=True)
        try:
            value = await self._find_value(pin)
        except NoAnswerError as error:
            return not_sent(f"Blue Label: {error.problem}", is_first=True)
        if not isinstance(value, Decimal):
            return value
        return check_value(value, order) or StillPending(kept={VALUE: str(value)})

    async def poll(self, order: Order) -> ProviderAnswer:
        """Take the stored value, or find out whether it was taken: the same call does both."""
        value = read_rand(order.kept.get(VALUE))
        if value is None:
            # Nothing can have been taken before the value was stored.
            return await self.start(order)
        pin = open_pin(self._seal, order)
        if pin is None:
            return InDoubt("the PIN cannot be read with this access to Blue Label", is_last=True)
        try:
            if order.age >= REPLAYED_FOR:
                return await self._check_voucher(pin, value)
            return self._read(order, pin, value, await self._redeem(order, pin, value))
        except NoAnswerError as error:
            return InDoubt(f"Blue Label: {error.problem}")

    async def close(self) -> None:
        await self._client.close()

    async def _check_voucher(self, pin: str, value: Decimal) -> ProviderAnswer:
        """Judge by the voucher alone once a repeated call may be answered differently."""
        if await self._find_value(pin) == value:
            return NotPaid(FailureReason.NEVER_ARRIVED, "the voucher is whole after half an hour")
        return InDoubt(TOO_LATE, is_last=True)

    async def _find_value(self, pin: str) -> Decimal | ProviderAnswer:
        """Return what a voucher is worth, or why nothing can be taken from it."""
        # The PIN is part of the URL here; the client's errors never contain a URL.
        path = f"voucher/variable/vouchers?{urlencode({'token': pin})}"
        reply = await self._client.call("GET", f"{self._settings.url}/{path}", **self._access())
        told = read_object(reply.body)
        status = str(told.get("status")).upper()
        if reply.status not in _OK:
            reason = _reason_of(told)
            problem = f"Blue Label answered {reply.status} {mask(told.get('message'))}".rstrip()
            return not_sent(problem, is_first=True) if reason is None else NotPaid(reason, problem)
        if status not in _WHOLE:
            return NotPaid(
                _STATUSES.get(status, FailureReason.VOUCHER_NOT_VALID), f"its status is {mask(status)}"
            )
        if told.get("currency", Currency.ZAR) != Currency.ZAR:
            return NotPaid(FailureReason.DECLINED, "it is not worth rand")
        value = read_cents(told.get("amount"))
        return value or NotPaid(
            FailureReason.DECLINED, "Blue Label gives a value that is no whole number of cents"
        )

    async def _redeem(self, order: Order, pin: str, value: Decimal) -> HttpReply:
        url = f"{self._settings.url}/voucher/variable/redemptions"
        body = {"requestId": reference_of(order), "token": pin, "amount": int(value * 100)}
        return await self._client.call("POST", url, json=body, **self._access())

    def _access(self) -> dict[str, Any]:
        return {
            "headers": {
                "apikey": self._settings.key,
                "Trade-Vend-Channel": "API",
                "Accept": "application/json",
            },
            "auth": (self._settings.user, self._settings.password),
        }

    def _read(self, order: Order, pin: str, value: Decimal, reply: HttpReply) -> ProviderAnswer:
        told = read_object(reply.body)
        if reply.status in _OK:
            return self._read_taken(order, pin, value, told)
        problem = f"Blue Label answered {reply.status} {mask(told.get('message'))}".rstrip()
        # Our own call, whose answer was lost, may be why it is spent or unknown.
        if reply.status < FAILURES and _reason_of(told) is FailureReason.VOUCHER_EXPIRED:
            return NotPaid(FailureReason.VOUCHER_EXPIRED, problem)
        return InDoubt(problem)

    def _read_taken(self, order: Order, pin: str, value: Decimal, told: Mapping[str, Any]) -> ProviderAnswer:
        amount = read_cents(told.get("amount"))
        if told.get("requestId") != reference_of(order):
            return InDoubt("Blue Label answered for another request")
        if amount is None or amount > value:
            return InDoubt("Blue Label has taken it, and does not say plainly how much")
        change = told.get("replacementVoucher")
        reference = read_reference(told.get("reference"), pin, reference_of(order))
        return paid_with_change(order, self._seal, reference, amount, change, _CHANGE)


def _reason_of(told: Mapping[str, Any]) -> FailureReason | None:
    words = str(told.get("message", "")).lower()
    return next((reason for phrase, reason in _WORDS.items() if phrase in words), None)
