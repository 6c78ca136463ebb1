"""How is a Blu voucher redeemed with Blue Label, who issue it? (Trade API, version 2)

First its value is looked up and kept, then all of it is taken: so a call that is made again, because its
answer was lost, is the same to the letter, and gets the same answer.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

from tumira.core.settings.payments import Blu
from tumira.topups.providers.http import ANSWER_S, Caller, NoAnswerError, Reply
from tumira.topups.providers.port import Order
from tumira.topups.providers.voucher import mask, read_cents, read_object, read_rand, read_reference
from tumira.topups.providers.voucher_orders import (
    FAILURES,
    REPLAYED_FOR,
    TOO_LATE,
    ChangeNames,
    fault_of_value,
    open_pin,
    reference_of,
    taken,
    unsent,
)
from tumira.topups.sealing import Seal
from tumira.topups.states import Currency, News, Reason, Refused, Unclear, Waiting

VALUE: Final = "value"
_CHANGE: Final = ChangeNames(pin="token", cents="balance")

_OK: Final = (200, 201)
_WHOLE: Final = frozenset({"ACTIVE", "VALID"})
_STATUSES: Final[Mapping[str, Reason]] = {
    "REDEEMED": Reason.VOUCHER_NOT_VALID,
    "USED": Reason.VOUCHER_NOT_VALID,
    "NOT_FOUND": Reason.VOUCHER_NOT_VALID,
    "EXPIRED": Reason.VOUCHER_EXPIRED,
}
# Faults have no codes, only words.
_EXPIRED: Final = "expired"
_WORDS: Final[Mapping[str, Reason]] = {
    "invalid voucher token": Reason.VOUCHER_NOT_VALID,
    "already been redeemed": Reason.VOUCHER_NOT_VALID,
    "not found": Reason.VOUCHER_NOT_VALID,
    _EXPIRED: Reason.VOUCHER_EXPIRED,
}


class BluProvider:
    """Redeems Blu vouchers."""

    def __init__(self, settings: Blu, *, answer_s: float = ANSWER_S) -> None:
        self._settings = settings
        self._seal = Seal(settings.secret)
        self._caller = Caller(answer_s=answer_s)

    async def start(self, order: Order) -> News:
        """Look what the voucher is worth, and keep that; nothing is taken yet."""
        pin = open_pin(self._seal, order)
        if pin is None:
            return unsent("the PIN cannot be read with this access to Blue Label", is_first=True)
        try:
            value = await self._find_value(pin)
        except NoAnswerError as error:
            return unsent(f"Blue Label: {error.problem}", is_first=True)
        if not isinstance(value, Decimal):
            return value
        return fault_of_value(value, order) or Waiting(kept={VALUE: str(value)})

    async def look(self, order: Order) -> News:
        """Take the value that is kept; or find out whether it was taken, which is the same call again."""
        value = read_rand(order.kept.get(VALUE))
        if value is None:
            # Nothing can have been taken before the value was kept.
            return await self.start(order)
        pin = open_pin(self._seal, order)
        if pin is None:
            return Unclear("the PIN cannot be read with this access to Blue Label", is_last=True)
        try:
            if order.age >= REPLAYED_FOR:
                return await self._look_at_voucher(pin, value)
            return self._read(order, pin, value, await self._redeem(order, pin, value))
        except NoAnswerError as error:
            return Unclear(f"Blue Label: {error.problem}")

    async def close(self) -> None:
        """End the connections."""
        await self._caller.close()

    async def _look_at_voucher(self, pin: str, value: Decimal) -> News:
        """Tell what is known when the same call may get another answer: a whole voucher was not taken."""
        if await self._find_value(pin) == value:
            return Refused(Reason.NEVER_ARRIVED, "the voucher is whole after half an hour")
        return Unclear(TOO_LATE, is_last=True)

    async def _find_value(self, pin: str) -> Decimal | News:
        """Return what a voucher is worth, or why nothing can be taken of it."""
        # The PIN is part of the address here; the caller's problems never name an address.
        path = f"voucher/variable/vouchers?{urlencode({'token': pin})}"
        reply = await self._caller.call("GET", f"{self._settings.url}/{path}", **self._access())
        told = read_object(reply.body)
        status = str(told.get("status")).upper()
        if reply.status not in _OK:
            reason = _reason_of(told)
            problem = f"Blue Label answered {reply.status} {mask(told.get('message'))}".rstrip()
            return unsent(problem, is_first=True) if reason is None else Refused(reason, problem)
        if status not in _WHOLE:
            return Refused(_STATUSES.get(status, Reason.VOUCHER_NOT_VALID), f"its status is {mask(status)}")
        if told.get("currency", Currency.ZAR) != Currency.ZAR:
            return Refused(Reason.DECLINED, "it is not worth rand")
        value = read_cents(told.get("amount"))
        return value or Refused(Reason.DECLINED, "Blue Label gives a value that is no whole number of cents")

    async def _redeem(self, order: Order, pin: str, value: Decimal) -> Reply:
        url = f"{self._settings.url}/voucher/variable/redemptions"
        body = {"requestId": reference_of(order), "token": pin, "amount": int(value * 100)}
        return await self._caller.call("POST", url, json=body, **self._access())

    def _access(self) -> dict[str, Any]:
        return {
            "headers": {
                "apikey": self._settings.key,
                "Trade-Vend-Channel": "API",
                "Accept": "application/json",
            },
            "auth": (self._settings.user, self._settings.password),
        }

    def _read(self, order: Order, pin: str, value: Decimal, reply: Reply) -> News:
        told = read_object(reply.body)
        if reply.status in _OK:
            return self._read_taken(order, pin, value, told)
        problem = f"Blue Label answered {reply.status} {mask(told.get('message'))}".rstrip()
        # That it is spent or gone may be our own doing, by a call whose answer was lost.
        if reply.status < FAILURES and _reason_of(told) is Reason.VOUCHER_EXPIRED:
            return Refused(Reason.VOUCHER_EXPIRED, problem)
        return Unclear(problem)

    def _read_taken(self, order: Order, pin: str, value: Decimal, told: Mapping[str, Any]) -> News:
        amount = read_cents(told.get("amount"))
        if told.get("requestId") != reference_of(order):
            return Unclear("Blue Label answered for another request")
        if amount is None or amount > value:
            return Unclear("Blue Label has taken it, and does not say plainly how much")
        change = told.get("replacementVoucher")
        reference = read_reference(told.get("reference"), pin, reference_of(order))
        return taken(order, self._seal, reference, amount, change, _CHANGE)


def _reason_of(told: Mapping[str, Any]) -> Reason | None:
    words = str(told.get("message", "")).lower()
    return next((reason for phrase, reason in _WORDS.items() if phrase in words), None)
