"""Redeems 1Vouchers with Flash (Partner API, version 4).

A value cannot be looked up: the customer says what to take. One call takes it; the same call with the same
reference gets the same answer for half an hour, which is how a lost answer is found.
"""

import asyncio
import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from tumira.core.settings.payments import OneVoucher
from tumira.topups.providers.http import ANSWER_S, HttpReply, NoAnswerError
from tumira.topups.providers.voucher import (
    FAILURES,
    FORBIDDEN,
    REPLAYED_FOR,
    TOO_LATE,
    ChangeNames,
    not_sent,
    read_cents,
    read_code,
    read_object,
    read_reference,
    reference_of,
)
from tumira.topups.providers.voucher_provider import VoucherProvider
from tumira.topups.states import FailureReason, NotPaid, PaymentInDoubt, ProviderAnswer, TopUp

# Success and most failures have HTTP status 200; this code in the body tells them apart.
_TAKEN: Final = 0
_REFUSALS: Final[Mapping[int, FailureReason]] = {
    2401: FailureReason.VOUCHER_NOT_VALID,
    2402: FailureReason.VOUCHER_NOT_VALID,
    2403: FailureReason.VOUCHER_NOT_VALID,
    2405: FailureReason.VOUCHER_EXPIRED,
    2406: FailureReason.VALUE_TOO_SMALL,
    2408: FailureReason.VALUE_DIFFERS,
}
# Used or cancelled: after a lost answer our own call may be the cause.
_SPENT: Final = frozenset({2401, 2403})

_CHANGE: Final = ChangeNames(pin="pin", cents="amount", expires="expiryDate")

_OK: Final = range(200, 300)
_UNAUTHORIZED: Final = 401
_MOBILE: Final = re.compile(r"\+(27[0-9]{9})")
# A token is not used in its last minute, nor for longer than a day.
_TOKEN_MARGIN_S: Final = 60
_TOKEN_MAX_S: Final = 86_400


class OneVoucherProvider(VoucherProvider[OneVoucher]):
    issuer = "Flash"

    def __init__(self, settings: OneVoucher, *, answer_s: float = ANSWER_S) -> None:
        super().__init__(settings, answer_s=answer_s)
        self._token = ""
        self._token_until = 0.0
        self._asking_for_token = asyncio.Lock()

    async def start(self, top_up: TopUp) -> ProviderAnswer:
        return await self._redeem(top_up, is_first=True)

    async def poll(self, top_up: TopUp, now: datetime) -> ProviderAnswer:
        """Repeat the call with the same reference, for as long as that gets the same answer."""
        if top_up.age(now) >= REPLAYED_FOR:
            return PaymentInDoubt(TOO_LATE, is_last=True)
        return await self._redeem(top_up, is_first=False)

    async def _redeem(self, top_up: TopUp, *, is_first: bool) -> ProviderAnswer:
        pin = self._open_pin(top_up)
        if pin is None or top_up.asked is None:
            return not_sent(self._unreadable, is_first=is_first)
        try:
            reply = await self._send(top_up, pin, top_up.asked)
        except NoAnswerError as error:
            if error.may_have_arrived:
                return PaymentInDoubt(f"Flash: {error.problem}")
            return not_sent(f"Flash: {error.problem}", is_first=is_first)
        return self._read(top_up, pin, top_up.asked, reply, is_first=is_first)

    async def _send(self, top_up: TopUp, pin: str, asked: Decimal) -> HttpReply:
        body: dict[str, Any] = {
            "reference": reference_of(top_up),
            "accountNumber": self._settings.account,
            "pin": pin,
            "amount": int(asked * 100),
        }
        mobile = _MOBILE.fullmatch(top_up.phone or "")
        if mobile is not None:
            body["mobileNumber"] = mobile[1]
        token = await self._get_token()
        reply = await self._post(body, token)
        if reply.status == _UNAUTHORIZED:
            # It expired early. A call that is refused like this was not carried out.
            reply = await self._post(body, await self._get_token(refused=token))
        return reply

    async def _post(self, body: Mapping[str, Any], token: str) -> HttpReply:
        url = f"{self._settings.url}/aggregation/4.0/1voucher/redeem"
        return await self._client.call("POST", url, headers={"Authorization": f"Bearer {token}"}, json=body)

    async def _get_token(self, refused: str | None = None) -> str:
        """Return a token other than the refused one; raises NoAnswerError, and then nothing was taken."""
        now = asyncio.get_running_loop().time
        async with self._asking_for_token:
            if now() < self._token_until and self._token != refused:
                return self._token
            try:
                reply = await self._client.call(
                    "POST",
                    f"{self._settings.url}/token",
                    headers={"Content-Type": "application/x-www-form-urlencoded"},
                    content=b"grant_type=client_credentials",
                    auth=(self._settings.consumer_key, self._settings.consumer_secret),
                )
            except NoAnswerError as error:
                raise NoAnswerError(f"no token, {error.problem}", may_have_arrived=False) from None
            told = read_object(reply.body)
            token = told.get("access_token")
            if reply.status not in _OK or not isinstance(token, str) or not _is_token(token):
                raise NoAnswerError(f"no token, answered {reply.status}", may_have_arrived=False)
            lasts_s = min(read_code(told.get("expires_in")) or 0, _TOKEN_MAX_S)
            self._token, self._token_until = token, now() + lasts_s - _TOKEN_MARGIN_S
            return token

    def _read(
        self, top_up: TopUp, pin: str, asked: Decimal, reply: HttpReply, *, is_first: bool
    ) -> ProviderAnswer:
        told = read_object(reply.body)
        code = read_code(told.get("responseCode"))
        if code == _TAKEN and reply.status in _OK:
            return self._read_taken(top_up, pin, asked, told)
        if code is not None and code in _REFUSALS and reply.status < FAILURES:
            if code in _SPENT and not is_first:
                return PaymentInDoubt(
                    f"Flash answered {code} when asked again; our own call may have been the cause"
                )
            return NotPaid(_REFUSALS[code], f"Flash answered {code}")
        if reply.status in FORBIDDEN:
            return not_sent(f"Flash refuses our access ({reply.status})", is_first=is_first)
        return PaymentInDoubt(f"Flash answered {reply.status}, code {code}")

    def _read_taken(self, top_up: TopUp, pin: str, asked: Decimal, told: Mapping[str, Any]) -> ProviderAnswer:
        amount = read_cents(told.get("amount"))
        if told.get("reference", reference_of(top_up)) != reference_of(top_up):
            return PaymentInDoubt("Flash answered for another reference")
        if amount is None or amount > asked:
            return PaymentInDoubt("Flash has taken it, and does not say plainly how much")
        change = told.get("voucher")
        reference = read_reference(told.get("transactionId"), pin, reference_of(top_up))
        return self._paid(top_up, reference, amount, change, _CHANGE)


def _is_token(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text
