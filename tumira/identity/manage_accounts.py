"""Changes of an account by an operator: balance, suspension, limits, review, second factor and owner."""

import secrets
from collections.abc import Callable
from decimal import Decimal
from typing import Final
from uuid import UUID

import asyncpg

from tumira import audit_log
from tumira.accounts import ledger, message_settings
from tumira.accounts import store as accounts
from tumira.accounts.lifetimes import Lifetimes
from tumira.accounts.passcode_limits import PasscodeLimits
from tumira.accounts.store import Account
from tumira.audit_log import OPERATOR, Actor
from tumira.content import near_line_store
from tumira.content import store as content_store
from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.core.ids import AccountId, new_id
from tumira.core.settings.support import NO_SUPPORT, Support
from tumira.core.translation import _
from tumira.identity import notify_owner, second_factor
from tumira.identity.passwords import hash_secret
from tumira.identity.principal import Principal, PrincipalKind
from tumira.identity.profile import describe_lifetimes, describe_limits
from tumira.identity.roles import MemberRole
from tumira.identity.sign_in import forget_login
from tumira.identity.store import invites, logins, people, second_factors, sessions
from tumira.identity.store.people import Member
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.destinations import sort_recipients
from tumira.pricing.phone_numbers import CHANNEL
from tumira.pricing.store import get_tariff

WEIGHT_MAX: Final = 100
# The address that the owner sees for a change by an operator.
CONSOLE: Final = "the console"


class AlreadySubmittedError(OperatorError):
    """The same form was submitted before."""


async def credit(
    database: Database,
    account_id: AccountId,
    amount: Decimal,
    *,
    note: str,
    actor: str,
    address: str | None = None,
    press: UUID | None = None,
    is_payment: bool = True,
) -> Account:
    """Credit an account, or debit it with a negative amount; a form is carried out once.

    A credit gets an invoice or a receipt, unless it is no payment.
    """
    try:
        async with database.transaction() as connection:
            await _existing(connection, account_id)
            if press is not None and not await audit_log.claim_form(connection, press):
                raise AlreadySubmittedError(
                    _("This form was already submitted. Nothing was changed a second time.")
                )
            await ledger.adjust(
                connection, account_id, amount, note=note, actor=actor, is_payment=is_payment and amount > 0
            )
            what = "balance credited" if amount > 0 else "balance debited"
            detail = f"{money.write(abs(amount))} USD: {note}"
            await record_change(connection, account_id, Actor(actor, address), what, detail)
            return await _existing(connection, account_id)
    except asyncpg.CheckViolationError:
        raise OperatorError(_("The balance is lower than that. Nothing was debited.")) from None
    except asyncpg.NumericValueOutOfRangeError:
        raise OperatorError(_("The balance would have more than ten digits. Nothing was credited.")) from None


async def suspend(
    database: Database, account_id: AccountId, *, suspended: bool, actor: Actor = OPERATOR, note: str = ""
) -> Account:
    """Stop an account from sending, or let it send again; only operators see the note."""
    async with database.transaction() as connection:
        await _existing(connection, account_id)
        await accounts.lock(connection, account_id)
        before = await _existing(connection, account_id)
        # A second press changes nothing.
        if suspended != (before.suspended_at is not None):
            await accounts.mark_suspended(connection, account_id, suspended=suspended)
            what = "account suspended" if suspended else "account may send again"
            await record_change(connection, account_id, actor, what, note=note)
        return await _existing(connection, account_id)


async def review(
    database: Database, account_id: AccountId, *, consent: bool, actor: Actor = OPERATOR, note: str = ""
) -> Account:
    """Record whether texts may be kept for review; without consent, kept ones are erased."""
    async with database.transaction() as connection:
        await _existing(connection, account_id)
        # This locks the account's row: a call that is being refused now finishes before, or sees the change.
        await accounts.set_review_consent(connection, account_id, consent=consent)
        if not consent:
            await content_store.erase_texts(connection, account_id)
            await near_line_store.delete_texts(connection, account_id)
        what = "refused texts are kept" if consent else "refused texts are not kept"
        await record_change(connection, account_id, actor, what, note=note)
        return await _existing(connection, account_id)


async def drop_factor(
    database: Database,
    account_id: AccountId,
    *,
    phone: str | None = None,
    actor: Actor,
    note: str = "",
    support: Support = NO_SUPPORT,
) -> bool:
    """Turn off the second factor of a person of the account who has lost it; False if there is none.

    Without a number, that of the only person who has one.
    """
    async with database.transaction() as connection:
        members = await people.list_members(connection, account_id)
        found = [one for one in members if one.factor_since is not None and phone in {None, one.phone}]
        if len(found) != 1:
            return False
        principal = found[0].principal
        await logins.lock(connection, principal)
        if not await second_factor.is_active(connection, principal):
            return False
        await second_factors.delete(connection, principal)
        detail = found[0].name
        await record_change(connection, account_id, actor, "second factor turned off", detail, note=note)
        await notify_owner.tell(connection, principal, actor, "second factor turned off", support=support)
    return True


async def name_owner(
    database: Database,
    account_id: AccountId,
    *,
    phone: str,
    name: str | None = None,
    lost: str | None = None,
    actor: Actor,
    note: str = "",
    support: Support = NO_SUPPORT,
) -> Member:
    """Make a person an owner of an account whose owner has lost the phone; verify their identity first.

    A number that is not in the account is added to it; who signs in with it for the first time chooses a
    password with the code for a forgotten one. `lost` is the number of a person who is removed: a thief of
    the phone could sign in with it.
    """
    unusable = await hash_secret(secrets.token_urlsafe(32), actor.address or actor.name)
    async with database.transaction() as connection:
        account = await _existing(connection, account_id)
        if account.closed_at is not None:
            raise OperatorError("The account is closed.")
        if not sort_recipients(await get_tariff(connection), CHANNEL, [phone]).accepted:
            raise OperatorError(f"{phone!r} is not a mobile number that we send to, like +2637712xxxxx.")
        await people.lock_members(connection, account_id)
        members = {one.phone: one for one in await people.list_members(connection, account_id)}
        if lost is not None and (lost not in members or lost == phone):
            raise OperatorError(f"{lost} is not the number of another person of the account.")
        member = members.get(phone)
        what = "person joined" if member is None else "role changed"
        if member is None:
            person_id = await _find_person(connection, phone, name, unusable)
            await people.insert_member(connection, account_id, person_id, MemberRole.OWNER)
        else:
            person_id = member.person_id
            await people.set_role(connection, account_id, person_id, MemberRole.OWNER)
        owner = await people.find_member(connection, account_id, person_id)
        assert owner is not None
        await record_change(connection, account_id, actor, "owner named", owner.name, note=note)
        for one in await people.list_owners(connection, account_id):
            await notify_owner.tell(connection, one.principal, actor, what, support=support)
        if lost is not None:
            gone = members[lost]
            await invites.revoke_by(connection, account_id, gone.person_id)
            await people.delete_member(connection, account_id, gone.person_id)
            await sessions.delete_in_account(connection, account_id, gone.person_id)
            detail = f"{gone.name}, {gone.role}"
            await record_change(connection, account_id, actor, "person removed", detail, note=note)
    return owner


async def _find_person(connection: Connection, phone: str, name: str | None, unusable: str) -> UUID:
    """Return the person of a number; a new one, if nobody signs in with it."""
    login = await logins.find(connection, PrincipalKind.CUSTOMER, phone)
    if login is not None and not login.is_free:
        return login.principal.id
    if name is None or not name.strip():
        raise OperatorError("Nobody signs in with this number yet: say who it is with --name.")
    made = new_id(int((await clock.read_now(connection)).timestamp() * 1000))
    person_id = await people.insert_person(connection, made, phone, name.strip())
    if login is not None:
        # The password of accounts that they left may be that of an earlier holder of the number.
        principal = Principal(PrincipalKind.CUSTOMER, person_id, phone)
        await forget_login(connection, principal)
        await logins.insert(connection, principal, None, unusable, phone_proved=True)
    return person_id


async def limit(
    database: Database,
    account_id: AccountId,
    *,
    rate_limit: int | None,
    daily_limit: Decimal | None,
    change_daily: bool,
    call_limit: Decimal | None = None,
    change_call: bool = False,
    low_balance: Decimal | None = None,
    weight: int | None = None,
    actor: Actor = OPERATOR,
    note: str = "",
) -> Account:
    """Change the rate, the spend limits, the low-balance warning and the share of an account."""
    async with database.transaction() as connection:
        await _existing(connection, account_id)
        await accounts.set_limits(
            connection,
            account_id,
            rate_limit=rate_limit,
            daily_limit=daily_limit,
            change_daily=change_daily,
            call_limit=call_limit,
            change_call=change_call,
            low_balance=low_balance,
            weight=weight,
        )
        now = await _existing(connection, account_id)
        detail = (
            f"{now.rate_limit} calls a minute, {_or_none(now.call_limit)} a call, "
            f"{_or_none(now.daily_limit)} a day, notice below {money.write(now.low_balance)}, "
            f"weight {now.weight}"
        )
        await record_change(connection, account_id, actor, "limits changed", detail, note=note)
        return now


async def set_lifetimes(
    database: Database,
    account_id: AccountId,
    *,
    passcode_minutes: int | None,
    message_hours: int | None,
    actor: Actor = OPERATOR,
    note: str = "",
) -> Lifetimes:
    """Change how long messages of an account are worth delivering; None leaves one as it is."""
    async with database.transaction() as connection:
        await _existing(connection, account_id)
        before = await message_settings.get_lifetimes(connection, account_id)
        lifetimes = Lifetimes(
            before.passcode_s if passcode_minutes is None else passcode_minutes * 60,
            before.message_s if message_hours is None else message_hours * 3600,
        )
        if lifetimes != before:
            await message_settings.set_lifetimes(connection, account_id, lifetimes)
            detail = describe_lifetimes(lifetimes)
            await record_change(connection, account_id, actor, "lifetimes changed", detail, note=note)
        return lifetimes


async def set_passcode_limits(
    database: Database,
    account_id: AccountId,
    change: Callable[[PasscodeLimits], PasscodeLimits],
    *,
    actor: Actor = OPERATOR,
    note: str = "",
) -> PasscodeLimits:
    """Change the limits on passcodes of an account, and whether they apply."""
    async with database.transaction() as connection:
        await _existing(connection, account_id)
        before = await message_settings.get_passcode_limits(connection, account_id)
        limits = change(before)
        if limits != before:
            await message_settings.set_passcode_limits(connection, account_id, limits)
            detail = describe_limits(limits)
            await record_change(connection, account_id, actor, "passcode limits changed", detail, note=note)
        return limits


async def record_change(
    connection: Connection,
    account_id: AccountId,
    actor: Actor,
    what: str,
    detail: str = "",
    *,
    note: str = "",
) -> None:
    """Record a change for operators, and for the owner without the note and the operator's address."""
    seen_from = None if actor.address is None else CONSOLE
    await audit_log.record(connection, account_id, Actor(actor.name, seen_from), what, detail)
    whole = "; ".join(part for part in (detail, note) if part)
    await audit_log.record_by_operator(connection, actor, what, whole, account_id)


def _or_none(amount: Decimal | None) -> str:
    return "no limit" if amount is None else money.write(amount)


async def _existing(connection: Connection, account_id: AccountId) -> Account:
    account = await accounts.find(connection, account_id)
    if account is None:
        raise OperatorError("There is no such account; `tumira account list` shows them.")
    return account
