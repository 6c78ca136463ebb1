"""Commands for accounts and their API keys."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import click

from tumira.accounts import api_keys, ledger
from tumira.accounts import store as accounts
from tumira.accounts.api_keys import ApiKey, Scope
from tumira.accounts.lifetimes import (
    MESSAGE_HOURS_MAX,
    MESSAGE_HOURS_MIN,
    PASSCODE_MINUTES_MAX,
    PASSCODE_MINUTES_MIN,
)
from tumira.accounts.open_account import open_account
from tumira.accounts.passcode_limits import NUMBER_DAY_MOST, NUMBER_MOST, RANGE_MOST, PasscodeLimits
from tumira.accounts.store import Account
from tumira.cli.output import (
    ACCOUNT_ID,
    AmountType,
    IdType,
    actor,
    database_command,
    load_settings,
    show,
    show_all,
    wants_json,
)
from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.core.ids import KEY, AccountId, KeyId
from tumira.identity import manage_accounts, manage_keys
from tumira.postgres.pool import Database

LIST_MAX: Final = 10_000
KEY_ID: Final = IdType(KEY, "a key", "`tumira key list` shows them.")
TRANSFERS_SHOWN: Final = 20


@click.group()
def account() -> None:
    """Open, show, credit, suspend and limit accounts, and record their consent to review."""


@account.command("create")
@click.option("--phone", required=True, help="The number that signs in, like +2637712xxxxx.")
@click.option("--name", required=True, help="Who answers for the account.")
@click.option("--business", required=True, help="Whose messages these are.")
@click.option("--balance", type=AmountType(), default="0", show_default=True, help="Opening balance, USD.")
@click.option(
    "--rate", type=click.IntRange(1, 1_000_000), default=60, show_default=True, help="Calls a minute."
)
@database_command
async def account_create(
    database: Database, *, phone: str, name: str, business: str, balance: Decimal, rate: int
) -> None:
    """Open an account."""
    opened = await open_account(
        database,
        phone=phone,
        name=name,
        business=business,
        balance=balance,
        rate_limit=rate,
        actor=actor().name,
    )
    show(_account(opened), title="Account opened.")


@account.command("list")
@database_command
async def account_list(database: Database) -> None:
    """List all accounts."""
    async with database.connection() as connection:
        found = await accounts.list_after(connection, AccountId(UUID(int=0)), LIST_MAX)
    show_all(
        [_account(one) for one in found],
        empty="No accounts yet: `tumira account create` opens one.",
        columns="account_id phone name business balance suspended closed_at",
    )


@account.command("show")
@click.argument("account_id", type=ACCOUNT_ID)
@database_command
async def account_show(database: Database, *, account_id: AccountId) -> None:
    """Show an account with its latest transfers."""
    async with database.connection() as connection:
        found = await accounts.find(connection, account_id)
        transfers = await ledger.list_latest(connection, account_id, TRANSFERS_SHOWN)
    if found is None:
        raise OperatorError("There is no such account; `tumira account list` shows them.")
    rows = [_transfer(transfer) for transfer in transfers]
    if wants_json():
        show({**_account(found), "transfers": rows})
    else:
        show(_account(found))
        click.echo("\nLatest transfers, newest first" if rows else "")
        show_all(rows, empty="No transfers yet.")


@account.command("credit", context_settings={"ignore_unknown_options": True})
@click.argument("account_id", type=ACCOUNT_ID)
@click.argument("amount", type=AmountType(signed=True))
@click.option("--note", required=True, help="Why; the customer sees it in the ledger.")
@click.option("--gift", is_flag=True, help="Nobody paid for it, so there is no invoice and no receipt.")
@database_command
async def account_credit(
    database: Database, *, account_id: AccountId, amount: Decimal, note: str, gift: bool
) -> None:
    """Credit an account with a payment, or a gift; a negative amount debits it."""
    if not amount:
        raise OperatorError("The amount is zero; nothing to do.")
    if not note.strip():
        raise OperatorError("Say why, as in --note 'Paid in cash'; the customer sees it in the ledger.")
    found = await manage_accounts.credit(
        database, account_id, amount, note=note, actor=actor().name, is_payment=not gift
    )
    show(_account(found), title="Done.")


@account.command("suspend")
@click.argument("account_id", type=ACCOUNT_ID)
@click.option("--lift", is_flag=True, help="Let the account send again.")
@click.option("--note", default="", help="Why; only operators see it.")
@database_command
async def account_suspend(database: Database, *, account_id: AccountId, lift: bool, note: str) -> None:
    """Stop an account from sending; it can still read its data."""
    found = await manage_accounts.suspend(
        database, account_id, suspended=not lift, actor=actor(), note=note.strip()
    )
    show(_account(found), title="Suspended." if not lift else "Suspension lifted.")


@account.command("limit")
@click.argument("account_id", type=ACCOUNT_ID)
@click.option("--daily", help="At most this many USD a day (UTC+02:00); `none` for no limit.")
@click.option("--call", help="At most this many USD a call; `none` for no limit.")
@click.option("--rate", type=click.IntRange(1, 1_000_000), help="Calls a minute.")
@click.option("--low-balance", type=AmountType(), help="Tell the account when a send takes it below this.")
@click.option(
    "--weight",
    type=click.IntRange(1, manage_accounts.WEIGHT_MAX),
    help="How many messages it may hand over for each of an account of weight 1, while both wait.",
)
@database_command
async def account_limit(
    database: Database,
    *,
    account_id: AccountId,
    daily: str | None,
    call: str | None,
    rate: int | None,
    low_balance: Decimal | None,
    weight: int | None,
) -> None:
    """Set an account's spend limits, rate, share and low-balance warning."""
    if all(one is None for one in (daily, call, rate, low_balance, weight)):
        raise OperatorError(
            "Say what to limit: --daily AMOUNT, --call AMOUNT, --rate CALLS, --low-balance AMOUNT, or "
            "--weight SHARE."
        )
    found = await manage_accounts.limit(
        database,
        account_id,
        rate_limit=rate,
        daily_limit=_amount_or_none(daily),
        change_daily=daily is not None,
        call_limit=_amount_or_none(call),
        change_call=call is not None,
        low_balance=low_balance,
        weight=weight,
        actor=actor(),
    )
    show(_account(found), title="Done.")


@account.command("lifetimes")
@click.argument("account_id", type=ACCOUNT_ID)
@click.option(
    "--passcodes",
    type=click.IntRange(PASSCODE_MINUTES_MIN, PASSCODE_MINUTES_MAX),
    help="Minutes that a passcode is worth delivering.",
)
@click.option(
    "--others",
    type=click.IntRange(MESSAGE_HOURS_MIN, MESSAGE_HOURS_MAX),
    help="Hours that any other message is worth delivering.",
)
@database_command
async def account_lifetimes(
    database: Database, *, account_id: AccountId, passcodes: int | None, others: int | None
) -> None:
    """Show or set how long an account's messages are worth delivering."""
    found = await manage_accounts.set_lifetimes(
        database, account_id, passcode_minutes=passcodes, message_hours=others, actor=actor()
    )
    show({"passcode_minutes": found.passcode_minutes, "message_hours": found.message_hours})


@account.command("guard")
@click.argument("account_id", type=ACCOUNT_ID)
@click.option("--on/--off", "is_on", default=None, help="Whether the limits on passcodes apply.")
@click.option(
    "--number", help=f"To a number in 10 minutes, at most {NUMBER_MOST}; `default` for the default."
)
@click.option("--number-day", help=f"To a number in a day, at most {NUMBER_DAY_MOST}; or `default`.")
@click.option("--range", "range_", help="To a range of numbers in 10 minutes; or `default`.")
@database_command
async def account_guard(
    database: Database,
    *,
    account_id: AccountId,
    is_on: bool | None,
    number: str | None,
    number_day: str | None,
    range_: str | None,
) -> None:
    """Show or set how many passcodes an account sends to a number and to its neighbours."""

    def change(before: PasscodeLimits) -> PasscodeLimits:
        return PasscodeLimits(
            before.is_on if is_on is None else is_on,
            before.number if number is None else _limit_or_default(number, NUMBER_MOST),
            before.number_day if number_day is None else _limit_or_default(number_day, NUMBER_DAY_MOST),
            before.range if range_ is None else _limit_or_default(range_, RANGE_MOST),
        )

    limits = await manage_accounts.set_passcode_limits(database, account_id, change, actor=actor())
    async with database.connection() as connection:
        found = await accounts.find(connection, account_id)
    assert found is not None
    effective = limits.effective(found.rate_limit)
    show(
        {
            "guard": "on" if limits.is_on else "off",
            "number_10_minutes": effective.number,
            "number_day": effective.number_day,
            "range_10_minutes": effective.range,
        }
    )


def _limit_or_default(text: str, most: int) -> int | None:
    if text == "default":
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= most:
        raise OperatorError(f"{text} is not a limit: a whole number from 1 to {most:,}, or `default`.")
    return int(text)


def _amount_or_none(text: str | None) -> Decimal | None:
    if text in {None, "none"}:
        return None
    amount = money.parse(str(text))
    if amount is None:
        raise OperatorError(f"{text!r} is not an amount in US dollars, such as 5, nor `none`.")
    return amount


@account.command("factor")
@click.argument("account_id", type=ACCOUNT_ID)
@click.option("--off", is_flag=True, help="Ask for the password alone from now on.")
@click.option("--phone", help="Whose, if several people of the account have one.")
@click.option("--note", default="", help="How you know that it is they; only operators see it.")
@database_command
async def account_factor(
    database: Database, *, account_id: AccountId, off: bool, phone: str | None, note: str
) -> None:
    """Turn off the second factor of a person who has lost it; verify their identity first."""
    if not off:
        raise OperatorError("Say what to do: --off.")
    support = load_settings().support
    if not await manage_accounts.drop_factor(
        database, account_id, phone=phone, actor=actor(), note=note.strip(), support=support
    ):
        raise OperatorError(
            "The account has no second factor in use, or several: then say whose with --phone."
        )
    show({"account_id": account_id, "second_factor": False}, title="The second factor is off.")


@account.command("owner")
@click.argument("account_id", type=ACCOUNT_ID)
@click.option("--phone", required=True, help="The new owner's number, like +2637712xxxxx.")
@click.option("--name", help="Their name, if nobody signs in with this number yet.")
@click.option("--lost", help="The number that is lost: its person is removed from the account.")
@click.option("--note", default="", help="How you know that it is they; only operators see it.")
@database_command
async def account_owner(
    database: Database, *, account_id: AccountId, phone: str, name: str | None, lost: str | None, note: str
) -> None:
    """Name an owner of an account whose last owner has lost the phone; verify their identity first."""
    named = await manage_accounts.name_owner(
        database,
        account_id,
        phone=phone,
        name=name,
        lost=lost,
        actor=actor(),
        note=note.strip(),
        support=load_settings().support,
    )
    shown = {"account_id": account_id, "phone": named.phone, "name": named.name, "role": named.role.value}
    show(shown, title="Done. They choose a password with Forgot password on the sign-in page.")


@account.command("review")
@click.argument("account_id", type=ACCOUNT_ID)
@click.option("--consent/--no-consent", default=None, help="Keep texts for review, or erase those kept.")
@database_command
async def account_review(database: Database, *, account_id: AccountId, consent: bool | None) -> None:
    """Record whether an account lets you keep and read refused texts and a sample of those near the line."""
    if consent is None:
        raise OperatorError("Say what the account wants: --consent or --no-consent.")
    found = await manage_accounts.review(database, account_id, consent=consent, actor=actor())
    kept = "Texts that are refused from now on, and a sample of those near the line, are kept for 30 days."
    title = kept if consent else "Texts are not kept for review; those that were are erased."
    show(_account(found), title=title)


@click.group()
def key() -> None:
    """Create, list and revoke API keys."""


@key.command("create")
@click.option("--account", "account_id", type=ACCOUNT_ID, required=True)
@click.option("--name", required=True, help="What the key is for.")
@click.option("--scopes", help=f"Some of {', '.join(Scope)}, with commas; all by default.")
@database_command
async def key_create(database: Database, *, account_id: AccountId, name: str, scopes: str | None) -> None:
    """Create an API key; its value is shown once."""
    chosen = _scopes(scopes)
    key_id, value = await manage_keys.create_key(
        database, account_id, name, chosen, actor=actor(), support=load_settings().support
    )
    shown = {
        "key_id": key_id,
        "key": value,
        "account_id": account_id,
        "name": name,
        "scopes": chosen,
    }
    show(shown, title="Key created. Copy it now: it is not shown again.")


@key.command("list")
@click.option("--account", "account_id", type=ACCOUNT_ID, help="Only this account's.")
@database_command
async def key_list(database: Database, *, account_id: AccountId | None) -> None:
    """List API keys without their values, those in use first."""
    async with database.connection() as connection:
        found = await api_keys.list_some(connection, account_id, LIST_MAX)
    show_all(
        [_key(one) for one in found],
        empty="No keys yet: `tumira key create` makes one.",
        columns="key_id account_id name last_used_at revoked_at",
    )


@key.command("revoke")
@click.argument("key_id", type=KEY_ID)
@database_command
async def key_revoke(database: Database, *, key_id: KeyId) -> None:
    """Revoke a key from the next call on."""
    revoked = await manage_keys.revoke_key(database, key_id, actor=actor(), support=load_settings().support)
    if revoked is None:
        raise OperatorError("There is no such key; `tumira key list` shows them.")
    show(_key(revoked), title="Revoked.")


def _scopes(text: str | None) -> Sequence[Scope]:
    if text is None:
        return list(Scope)
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in list(Scope)]
    if unknown:
        raise OperatorError(f"{unknown[0]!r} is not a scope; choose from {', '.join(Scope)}.")
    return [Scope(name) for name in dict.fromkeys(names)]


def _account(found: Account) -> Mapping[str, Any]:
    return {
        "account_id": found.id,
        "phone": found.phone,
        "name": found.name,
        "business": found.business,
        "balance": found.balance,
        "rate": found.rate_limit,
        "daily_limit": found.daily_limit,
        "call_limit": found.call_limit,
        "low_balance": found.low_balance,
        "weight": found.weight,
        "review_consent": found.review_consent,
        "suspended": found.suspended_at is not None,
        "closed_at": found.closed_at,
        "created_at": found.created_at,
    }


def _transfer(transfer: ledger.Transfer) -> Mapping[str, Any]:
    return {
        "at": transfer.created_at,
        "from": transfer.from_book,
        "to": transfer.to_book,
        "amount": transfer.amount,
        "batch_id": transfer.batch_id,
        "note": transfer.note,
        "by": transfer.actor,
    }


def _key(found: ApiKey) -> Mapping[str, Any]:
    values = asdict(found)
    return {"key_id": values.pop("id"), **values}
