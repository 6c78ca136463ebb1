"""Starts top-ups by Paynow, in USDT and by voucher; each start is one transaction.

A start only inserts a row, which the worker takes to the provider; vouchers of our own are redeemed at once.
Voucher codes are guessed at: an account gets a few bad tries an hour, and one and the same message for a
voucher of ours that is unknown, used, void or expired.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import ROUND_UP, Decimal
from typing import Final

import asyncpg

from tumira import audit_log
from tumira.accounts import store as accounts
from tumira.accounts.store import Account
from tumira.audit_log import Actor
from tumira.core import money
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import TOP_UP, VOUCHER, AccountId, TopUpId, first_id, new_id, write_id
from tumira.core.settings.payments import Blu, OneVoucher, Ott, Payments
from tumira.core.translation import _, ngettext
from tumira.identity.store import logins
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pinned_connection import write_nothing
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import read_phone
from tumira.pricing.store import get_tariff
from tumira.topups import store as top_ups
from tumira.topups import vouchers
from tumira.topups.providers.paynow_messages import Wallet
from tumira.topups.settle import settle_in
from tumira.topups.states import (
    TOP_UP_MAX,
    TOP_UP_MIN,
    Currency,
    FailureReason,
    Method,
    NotPaid,
    Paid,
    TopUpState,
    to_usd,
)
from tumira.topups.store import NewTopUp, TopUpUpdate
from tumira.topups.usdt import store as usdt_store
from tumira.topups.usdt.addresses import ExtendedKey, derive_address, read_xpub, with_checksum
from tumira.topups.usdt.store import Allotted
from tumira.topups.voucher_pins import Issuer, Seal, VoucherState, hash_code, read_pin

# Payments of the last 15 minutes that may be open at once.
OPEN_OF_ACCOUNT_MAX: Final = 5
OPEN_OF_PHONE_MAX: Final = 3
OPEN_NS: Final = 900 * 10**9

TRIES_MAX: Final = 5
TRIES_WINDOW: Final = timedelta(hours=1)

_SOUTH_AFRICA: Final = "+27"
_ONE_TRY_PER_PIN: Final = "top_ups_one_try_per_pin"
_CENT: Final = Decimal("0.01")
_ZIMBABWE: Final = "+263"


async def start_paynow(
    database: Database,
    payments: Payments,
    account_id: AccountId,
    wallet: Wallet,
    amount: Decimal | None,
    phone: str | None,
    *,
    top_up_id: TopUpId | None = None,
    by: Actor | None = None,
) -> TopUpId:
    """Start to take an amount from a wallet or a card; raises FieldError for invalid input.

    A second call with the same `top_up_id` finds what the first one started. The account's history names
    the person `by`.
    """
    if payments.paynow is None:
        raise OperatorError("Paynow is not set up here; TUMIRA_PAYNOW_ID and TUMIRA_PAYNOW_KEY do that.")
    asked = check_amount(amount)
    top_up_id = top_up_id or TopUpId(new_id(time.time_ns() // 1_000_000))
    async with database.transaction() as connection:
        if await _is_started(connection, account_id, top_up_id):
            return top_up_id
        account = await _get_account(connection, account_id)
        number = None
        if wallet.needs_phone:
            # A wallet has a Zimbabwean number.
            number = read_phone(await get_tariff(connection), phone or account.phone, "ZW")
            if number is None or not number.startswith(_ZIMBABWE):
                raise FieldError("phone", _("Enter the wallet's number in Zimbabwe, such as 0771200001."))
        await _check_open_count(connection, account_id, number)
        email = await logins.find_owners_email(connection, account_id)
        new = NewTopUp(
            id=top_up_id,
            account_id=account_id,
            method=Method.PAYNOW,
            provider=wallet,
            currency=Currency.USD,
            asked=asked,
            phone=number,
            kept={} if email is None else {"email": email},
        )
        await top_ups.insert(connection, new)
        await _record(connection, new, by)
    return top_up_id


async def _record(connection: Connection, new: NewTopUp, by: Actor | None) -> None:
    """Write to the account's history who started a top-up; the command line has its own."""
    if by is None:
        return
    amount = "" if new.asked is None else f", {money.write(new.asked)} {new.currency}"
    detail = f"{write_id(TOP_UP, new.id)}: {new.provider}{amount}"
    await audit_log.record(connection, new.account_id, by, "top-up started", detail)


async def _get_account(connection: Connection, account_id: AccountId) -> Account:
    account = await accounts.find(connection, account_id)
    if account is None:
        raise OperatorError("There is no such account; `tumira account list` shows them.")
    return account


async def _is_started(connection: Connection, account_id: AccountId, top_up_id: TopUpId) -> bool:
    """Tell whether a form was submitted twice; no other start for this account happens before the commit."""
    await top_ups.lock_starts(connection, account_id)
    found = await top_ups.find_any(connection, top_up_id)
    if found is not None and found.account_id != account_id:
        raise OperatorError(_("This payment could not be started. Open the page again."))
    if found is not None:
        # The first call may have got no answer because its commit waits for the standby; ours waits too.
        await write_nothing(connection)
    return found is not None


async def _check_open_count(connection: Connection, account_id: AccountId, phone: str | None) -> None:
    """Refuse another payment while several are open: each prompts a phone for its PIN."""
    since = first_id((time.time_ns() - OPEN_NS) // 1_000_000)
    of_account, of_phone = await top_ups.count_open(connection, account_id, phone, Method.PAYNOW, since)
    if of_account >= OPEN_OF_ACCOUNT_MAX or of_phone >= OPEN_OF_PHONE_MAX:
        raise FieldError(
            "phone",
            _(
                "Several payments are already waiting. Confirm or cancel them on the phone, or try again in "
                "15 minutes."
            ),
        )


def check_amount(amount: Decimal | None) -> Decimal:
    """Return an amount in whole cents that can be topped up; raises FieldError for any other."""
    if amount is None or not amount.is_finite():
        raise FieldError("amount", _("Enter an amount in US dollars, such as 5 or 12.50."))
    if not TOP_UP_MIN <= amount <= TOP_UP_MAX:
        fault = _("Enter an amount from US${smallest} to US${largest}.")
        raise FieldError("amount", fault.format(smallest=TOP_UP_MIN, largest=f"{TOP_UP_MAX:,}"))
    if amount != amount.quantize(_CENT):
        raise FieldError("amount", _("Enter an amount in whole cents, such as 12.50."))
    return amount


@dataclass(frozen=True, slots=True)
class DepositAddress:
    """Where an account pays USDT, with checksum, and the top-up that is waiting for the payment."""

    address: str
    top_up_id: TopUpId


async def find_deposit_address(database: Database, payments: Payments, account_id: AccountId) -> str | None:
    """Return where an account pays USDT, with checksum; None where it was given no address yet."""
    key = _usdt_key(payments)
    async with database.connection() as connection:
        allotted = await usdt_store.find_address(connection, account_id, key.sha256)
    return None if allotted is None else with_checksum(_checked(key, allotted))


async def assign_deposit_address(
    database: Database, payments: Payments, account_id: AccountId, by: Actor
) -> None:
    """Give an account its USDT address, which never changes; a top-up starts when a deposit arrives."""
    key = _usdt_key(payments)
    async with database.transaction() as connection:
        await _get_account(connection, account_id)
        if await usdt_store.find_address(connection, account_id, key.sha256) is not None:
            return
        address = await _deposit_address(connection, key, account_id)
        await audit_log.record(connection, account_id, by, "USDT address assigned", with_checksum(address))


async def start_usdt(database: Database, payments: Payments, account_id: AccountId) -> DepositAddress:
    """Start a USDT top-up, or return the open one; an account's address never changes."""
    key = _usdt_key(payments)
    async with database.transaction() as connection:
        await _get_account(connection, account_id)
        address = await _deposit_address(connection, key, account_id)
        return DepositAddress(with_checksum(address), await open_top_up(connection, account_id))


def _usdt_key(payments: Payments) -> ExtendedKey:
    if payments.usdt is None:
        raise OperatorError("USDT is not set up here; TUMIRA_USDT_RPC_URLS and TUMIRA_USDT_XPUB do that.")
    return read_xpub(payments.usdt.xpub)


async def open_top_up(connection: Connection, account_id: AccountId) -> TopUpId:
    """Return the account's open USDT top-up, locked, or a new one.

    The caller holds the lock on the account's addresses, so that there are never two.
    """
    found = await usdt_store.find_open_top_up(connection, account_id)
    # It may have expired before the lock.
    if found is not None and (await top_ups.lock(connection, found)).state is TopUpState.PENDING:
        return found
    # By the clock of the database, by which it also expires.
    now = await clock.read_now(connection)
    top_up_id = TopUpId(new_id(int(now.timestamp() * 1000)))
    await top_ups.insert(
        connection,
        NewTopUp(
            id=top_up_id,
            account_id=account_id,
            method=Method.USDT,
            provider="bep20",
            currency=Currency.USDT,
            # No provider is called: the watcher finds the deposit.
            is_due=False,
        ),
    )
    await top_ups.mark(connection, top_up_id, TopUpUpdate(TopUpState.PENDING))
    return top_up_id


async def _deposit_address(connection: Connection, key: ExtendedKey, account_id: AccountId) -> str:
    """Return the account's address, and assign one first where it has none."""
    allotted = await usdt_store.lock_address(connection, account_id, key.sha256)
    if allotted is None:
        place = await usdt_store.next_place(connection, key.sha256)
        # Another process may have assigned one while we waited for the lock.
        allotted = await usdt_store.lock_address(connection, account_id, key.sha256)
        if allotted is None:
            allotted = Allotted(derive_address(key, place), place)
            await usdt_store.insert_address(connection, account_id, key.sha256, allotted)
    return _checked(key, allotted)


def _checked(key: ExtendedKey, allotted: Allotted) -> str:
    # A changed row would send a customer's money to somebody else.
    if allotted.address != derive_address(key, allotted.place):
        raise OperatorError(
            "The address of this account does not follow from TUMIRA_USDT_XPUB: nothing may be paid there. "
            "Compare usdt_addresses with a backup."
        )
    return allotted.address


async def list_issuers(connection: Connection, payments: Payments) -> Sequence[Issuer]:
    """Return whose vouchers can be redeemed here; our own once there are any."""
    found = [issuer for issuer in Issuer if secret_of(payments, issuer) is not None]
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
    by: Actor | None = None,
) -> TopUpId:
    """Start to redeem a voucher; raises FieldError for invalid input.

    A second call with the same `top_up_id` finds what the first one started. The account's history names
    the person `by`.
    """
    top_up_id = top_up_id or TopUpId(new_id(time.time_ns() // 1_000_000))
    secret = secret_of(payments, issuer)
    if issuer is not Issuer.OWN and (secret is None or payments.zar_rate is None):
        fault = _("{voucher} is not accepted here. Choose another way to pay.")
        raise FieldError("provider", fault.format(voucher=_(issuer.title)))
    number = read_pin(issuer, pin)
    if number is None:
        if issuer is Issuer.OWN:
            raise FieldError("pin", _("Enter the code of the voucher, such as TMR-XXXX-XXXX-XXXX-XXXX."))
        fault = _("Enter the {length} digits of the {voucher} PIN.")
        raise FieldError("pin", fault.format(length=issuer.pin_length, voucher=_(issuer.title)))
    if secret is None or payments.zar_rate is None:
        return await _redeem_own(database, account_id, top_up_id, number, by)
    rate, seal = payments.zar_rate, Seal(secret)
    asked = _check_value(value, rate.rate) if issuer.needs_value else None
    try:
        async with database.transaction() as connection:
            if await _is_started(connection, account_id, top_up_id):
                return top_up_id
            account = await _check_tries(connection, account_id)
            new = NewTopUp(
                id=top_up_id,
                account_id=account_id,
                method=Method.VOUCHER,
                provider=issuer,
                currency=Currency.ZAR,
                asked=asked,
                # The customer gets the rate that was shown, however long it takes.
                rate=rate.rate,
                rate_on=rate.since,
                phone=await _check_phone(connection, issuer, phone, account),
                sealed_pin=seal.close(number),
                pin_hash=seal.hash(number),
            )
            await top_ups.insert(connection, new)
            await _record(connection, new, by)
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name != _ONE_TRY_PER_PIN:
            raise
        raise FieldError(
            "pin", _("This voucher is already being redeemed. See your latest payments.")
        ) from None
    return top_up_id


async def _redeem_own(
    database: Database, account_id: AccountId, top_up_id: TopUpId, code: str, by: Actor | None
) -> TopUpId:
    """Redeem one of our own vouchers in one transaction: it is used and credited, or neither."""
    async with database.transaction() as connection:
        if await _is_started(connection, account_id, top_up_id):
            return top_up_id
        await _check_tries(connection, account_id)
        voucher = await vouchers.lock_by_code(connection, hash_code(code))
        is_good = voucher is not None and voucher.state is VoucherState.UNUSED
        new = NewTopUp(
            id=top_up_id,
            account_id=account_id,
            method=Method.VOUCHER,
            provider=Issuer.OWN,
            currency=Currency.USD,
            asked=voucher.amount if voucher is not None and is_good else None,
            is_due=False,
        )
        await top_ups.insert(connection, new)
        await _record(connection, new, by)
        before = await top_ups.lock(connection, top_up_id)
        if voucher is None or not is_good:
            problem = "there is no such voucher" if voucher is None else f"the voucher is {voucher.state}"
            await settle_in(connection, before, NotPaid(FailureReason.VOUCHER_NOT_VALID, problem))
            return top_up_id
        was_unused = await vouchers.mark_used(connection, voucher.id, top_up_id)
        assert was_unused, "it is locked"
        await settle_in(connection, before, Paid(write_id(VOUCHER, voucher.id), voucher.amount))
    return top_up_id


async def _check_tries(connection: Connection, account_id: AccountId) -> Account:
    """Return the account, unless it had too many bad vouchers lately."""
    account = await _get_account(connection, account_id)
    wait = await vouchers.find_wait(connection, account_id, TRIES_MAX, TRIES_WINDOW)
    if wait is not None:
        minutes = max(1, math.ceil(wait.total_seconds() / 60))
        fault = ngettext(
            "Too many vouchers were refused. Try again in {minutes} minute.",
            "Too many vouchers were refused. Try again in {minutes} minutes.",
            minutes,
        )
        raise FieldError("pin", fault.format(minutes=minutes))
    return account


def _check_value(value: Decimal | None, rate: Decimal) -> Decimal:
    # A bound first: a number with too many digits cannot be rounded to cents.
    if value is None or not value.is_finite() or not 0 < value < 10**9 or value != value.quantize(_CENT):
        raise FieldError("value", _("Enter the value of the voucher in rand, such as 150.00."))
    if not TOP_UP_MIN <= to_usd(value, rate) <= TOP_UP_MAX:
        lowest = (TOP_UP_MIN * rate).quantize(_CENT, ROUND_UP)
        raise FieldError(
            "value",
            _("The voucher must be worth US${smallest} to US${largest}, which is at least R{lowest}.").format(
                smallest=TOP_UP_MIN, largest=f"{TOP_UP_MAX:,}", lowest=lowest
            ),
        )
    return value


async def _check_phone(
    connection: Connection, issuer: Issuer, phone: str | None, account: Account
) -> str | None:
    """Return where change is sent: a South African number, by default the account's own."""
    given = (phone or "").strip() or account.phone
    number = read_phone(await get_tariff(connection), given, "ZA")
    if number is not None and number.startswith(_SOUTH_AFRICA):
        return number
    if issuer.needs_phone or (phone or "").strip():
        raise FieldError("phone", _("Enter a number in South Africa, such as 0821230001."))
    return None


def secret_of(payments: Payments, issuer: str) -> str | None:
    """Return the secret that encrypts an issuer's PINs; None where the issuer is not configured."""
    known: Mapping[str, OneVoucher | Ott | Blu | None] = {
        Issuer.ONE_VOUCHER: payments.one_voucher,
        Issuer.OTT: payments.ott,
        Issuer.BLU: payments.blu,
    }
    settings = known.get(issuer)
    return None if settings is None else settings.secret
