"""Redeems the vouchers of an issuer: what all issuers have in common."""

from abc import ABC, abstractmethod
from decimal import Decimal
from typing import Any, ClassVar, Final, Generic, TypeVar

import structlog

from tumira.core.ids import TOP_UP, write_id
from tumira.core.settings.payments import Blu, OneVoucher, Ott
from tumira.topups.providers.http import ANSWER_S, NoAnswerError, ProviderClient
from tumira.topups.providers.voucher import ChangeNames, check_value, not_sent, read_replacement
from tumira.topups.states import Paid, ProviderAnswer, TopUp
from tumira.topups.voucher_pins import Seal, write_change

Access = TypeVar("Access", Blu, OneVoucher, Ott)

_log: Final = structlog.get_logger()


class VoucherProvider(Generic[Access]):
    """Redeems the vouchers of one issuer."""

    issuer: ClassVar[str]

    def __init__(self, settings: Access, *, answer_s: float = ANSWER_S) -> None:
        self._settings: Access = settings
        self._seal = Seal(settings.secret)
        self._client = ProviderClient(answer_s=answer_s)

    async def close(self) -> None:
        await self._client.close()

    @property
    def _unreadable(self) -> str:
        return f"the PIN cannot be read with this access to {self.issuer}"

    def _open_pin(self, top_up: TopUp) -> str | None:
        """Return the PIN; None where it was erased, or encrypted with other credentials."""
        return None if top_up.sealed_pin is None else self._seal.open(top_up.sealed_pin)

    def _paid(self, top_up: TopUp, reference: str, amount: Decimal, change: Any, names: ChangeNames) -> Paid:
        """Return a payment, with its change voucher encrypted as soon as it is known."""
        if not isinstance(change, dict) or not change:
            return Paid(reference, amount)
        found = read_replacement(change.get(names.pin), change.get(names.cents), change.get(names.expires))
        if found is None:
            # The issuer may have sent it to the customer's phone; we cannot show it.
            _log.warning("could not read the change voucher", top_up=write_id(TOP_UP, top_up.id))
            return Paid(reference, amount)
        return Paid(reference, amount, self._seal.close(write_change(found)))


class ValuedVoucherProvider(VoucherProvider[Access], ABC):
    """Redeems the vouchers of an issuer that tells their value, which is looked up before it is taken."""

    async def start(self, top_up: TopUp) -> ProviderAnswer:
        pin = self._open_pin(top_up)
        if pin is None:
            return not_sent(self._unreadable, is_first=True)
        try:
            value = await self._find_value(pin)
        except NoAnswerError as error:
            return not_sent(f"{self.issuer}: {error.problem}", is_first=True)
        if not isinstance(value, Decimal):
            return value
        return check_value(value, top_up) or await self._accept(top_up, pin, value)

    @abstractmethod
    async def _find_value(self, pin: str) -> Decimal | ProviderAnswer:
        """Return what a voucher is worth, or why nothing can be taken from it."""

    @abstractmethod
    async def _accept(self, top_up: TopUp, pin: str, value: Decimal) -> ProviderAnswer:
        """Go on with a voucher whose value can be topped up."""
