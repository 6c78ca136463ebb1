"""How does a top-up by voucher begin? As a row that the worker brings to the issuer; ours are decided here.

Vouchers are guessed at: an account may try a few in an hour that are not good, and is told the same of one of
ours that is unknown, used, void or expired.
"""

import math
import time
from collections.abc import Sequence
from datetime import timedelta
from decimal import ROUND_UP, Decimal
from typing import Final

import asyncpg

from tumira.accounts import store as accounts
from tumira.accounts.store import Account
from tumira.core.errors import FieldTrouble, Trouble
from tumira.core.ids import VOUCHER, AccountId, TopUpId, new_id, write_id
from tumira.core.settings.payments import Payments, ZarRate
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import read_phone
from tumira.pricing.store import get_tariff
from tumira.topups import store as top_ups
from tumira.topups import vouchers
from tumira.topups.sealing import Seal
from tumira.topups.settle import settle_in
from tumira.topups.start_paynow import is_begun
from tumira.topups.states import LARGEST, SMALLEST, Currency, Method, Paid, Reason, Refused, worth
from tumira.topups.store import NewTopUp
from tumira.topups.voucher_pins import Issuer, VoucherState, hash_code, read_pin

TRIES_MAX: Final = 5
TRIES_WINDOW: Final = timedelta(hours=1)

_CENT: Final = Decimal("0.01")
_SOUTH_AFRICA: Final = "+27"
_ONE_TRY_PER_PIN: Final = "top_ups_one_try_per_pin"


async def offered(connection: Connection, payments: Payments) -> Sequence[Issuer]:
    """Return whose vouchers can be redeemed here; our own once there are any."""
    found = [issuer for issuer in Issuer if _secret_of(payments, issuer) is not None]
    return [*found, Issuer.OWN] if await vouchers.have_any(connection) else found


async def start_voucher(
    database: Database,
    payments: Payments,
    account_id: AccountId,
    issuer: Issuer,
    pin: str,
    *,
    value: Decimal | None = None,
    phone: str | None = None,
    top_up_id: TopUpId | None = None,
) -> TopUpId:
    """Begin to redeem a voucher; raises FieldTrouble for what was given wrongly.

    Where the caller says which id it shall have, a second call with that id finds what the first one began.
    """
    top_up_id = top_up_id or TopUpId(new_id(time.time_ns() // 1_000_000))
    secret = _secret_of(payments, issuer)
    if issuer is not Issuer.OWN and (secret is None or payments.zar_rate is None):
        raise FieldTrouble("provider", f"No {issuer.title} can be redeemed here; choose another way to pay.")
    number = read_pin(issuer, pin)
    if number is None:
        raise FieldTrouble("pin", _how_it_looks(issuer))
    if secret is None or payments.zar_rate is None:
        return await _redeem_own(database, account_id, top_up_id, number)
    return await _begin(
        database,
        account_id,
        top_up_id,
        issuer,
        Seal(secret),
        number,
        payments.zar_rate,
        asked=_check_value(value, payments.zar_rate.rate) if issuer.needs_value else None,
        phone=phone,
    )


async def _begin(
    database: Database,
    account_id: AccountId,
    top_up_id: TopUpId,
    issuer: Issuer,
    seal: Seal,
    pin: str,
    rate: ZarRate,
    *,
    asked: Decimal | None,
    phone: str | None,
) -> TopUpId:
    try:
        async with database.transaction() as connection:
            if await is_begun(connection, account_id, top_up_id):
                return top_up_id
            account = await _admit(connection, account_id)
            new = NewTopUp(
                id=top_up_id,
                account_id=account_id,
                method=Method.VOUCHER,
                provider=issuer,
                currency=Currency.ZAR,
                asked=asked,
                # What the customer was shown is what they get, however long it takes.
                rate=rate.rate,
                rate_on=rate.since,
                phone=await _check_phone(connection, issuer, phone, account),
                sealed_pin=seal.close(pin),
                pin_hash=seal.hash(pin),
            )
            await top_ups.insert(connection, new)
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name != _ONE_TRY_PER_PIN:
            raise
        raise FieldTrouble("pin", "This voucher is being redeemed already; see what becomes of it.") from None
    return top_up_id


async def _redeem_own(database: Database, account_id: AccountId, top_up_id: TopUpId, code: str) -> TopUpId:
    """Redeem one of our own vouchers, all in one transaction: it is used and credited, or neither."""
    async with database.transaction() as connection:
        if await is_begun(connection, account_id, top_up_id):
            return top_up_id
        await _admit(connection, account_id)
        voucher = await vouchers.hold_by_code(connection, hash_code(code))
        is_good = voucher is not None and voucher.state is VoucherState.UNUSED
        await top_ups.insert(
            connection,
            NewTopUp(
                id=top_up_id,
                account_id=account_id,
                method=Method.VOUCHER,
                provider=Issuer.OWN,
                currency=Currency.USD,
                asked=voucher.amount if voucher is not None and is_good else None,
                is_due=False,
            ),
        )
        before = await top_ups.hold(connection, top_up_id)
        if voucher is None or not is_good:
            problem = "there is no such voucher" if voucher is None else f"the voucher is {voucher.state}"
            await settle_in(connection, before, Refused(Reason.VOUCHER_NOT_VALID, problem))
            return top_up_id
        was_unused = await vouchers.mark_used(connection, voucher.id, top_up_id)
        assert was_unused, "it is held"
        await settle_in(connection, before, Paid(write_id(VOUCHER, voucher.id), voucher.amount))
    return top_up_id


async def _admit(connection: Connection, account_id: AccountId) -> Account:
    """Return the account, unless it tried too many vouchers lately; nobody else tries for it meanwhile."""
    account = await accounts.find(connection, account_id)
    if account is None:
        raise Trouble("There is no such account; `tumira account list` shows them.")
    wait = await vouchers.find_wait(connection, account_id, TRIES_MAX, TRIES_WINDOW)
    if wait is not None:
        minutes = max(1, math.ceil(wait.total_seconds() / 60))
        again = "in a minute" if minutes == 1 else f"in {minutes} minutes"
        raise FieldTrouble(
            "pin", f"{TRIES_MAX} vouchers in an hour were not good, or wait for an answer; try again {again}."
        )
    return account


def _check_value(value: Decimal | None, rate: Decimal) -> Decimal:
    # A bound first: what has too many digits cannot be rounded to cents.
    if value is None or not value.is_finite() or not 0 < value < 10**9 or value != value.quantize(_CENT):
        raise FieldTrouble("value", "Give what the voucher is worth in rand and cents, like 150.00.")
    if not SMALLEST <= worth(value, rate) <= LARGEST:
        lowest = (SMALLEST * rate).quantize(_CENT, ROUND_UP)
        raise FieldTrouble(
            "value", f"Give a voucher worth US${SMALLEST} to US${LARGEST}; that is R{lowest} or more today."
        )
    return value


async def _check_phone(
    connection: Connection, issuer: Issuer, phone: str | None, account: Account
) -> str | None:
    """Return where change is sent: a number in South Africa, the account's own where none is given."""
    given = (phone or "").strip() or account.phone
    # People write numbers as they dial them, and the issuers only send inside the country.
    if given.startswith("0") and not given.startswith("00"):
        given = _SOUTH_AFRICA + given[1:]
    number = read_phone(await get_tariff(connection), given)
    if number is not None and number.startswith(_SOUTH_AFRICA):
        return number
    if issuer.needs_phone or (phone or "").strip():
        raise FieldTrouble("phone", "Give a number in South Africa, like +2782123xxxx; change is sent there.")
    return None


def _how_it_looks(issuer: Issuer) -> str:
    if issuer is Issuer.OWN:
        return "A code looks like TMR-XXXX-XXXX-XXXX-XXXX; look at it once more."
    return f"The PIN of a {issuer.title} has {issuer.pin_length} digits; look at it once more."


def _secret_of(payments: Payments, issuer: Issuer) -> str | None:
    """Return what PINs of an issuer are sealed with; None where it is not set up, or issues no PINs."""
    settings = {
        Issuer.ONE_VOUCHER: payments.one_voucher,
        Issuer.OTT: payments.ott,
        Issuer.BLU: payments.blu,
    }.get(issuer)
    return None if settings is None else settings.secret
