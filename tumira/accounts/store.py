"""Accounts: their rows, limits and locks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from tumira.accounts.lifetimes import Lifetimes
from tumira.accounts.passcode_limits import PasscodeLimits
from tumira.accounts.rate_limit import CallWindow
from tumira.core.ids import AccountId, EndpointId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# The gateway's own account, from which its codes are sent; the fifth migration adds it.
SYSTEM: Final = AccountId(UUID("00000000-0000-7000-8000-000000000000"))


class LockedAccount(Struct):
    """An account whose row is locked, with what a call may change on it."""

    window: CallWindow
    # As the row has it.
    stored_window: CallWindow
    lifetimes: Lifetimes
    passcode_limits: PasscodeLimits
    id: AccountId
    balance: Decimal
    rate_limit: int
    daily_limit: Decimal | None
    # The most that one call may cost, by the account's own wish.
    call_limit: Decimal | None
    spent_on: date | None
    spent_today: Decimal
    # What sends that cost nothing have stored on that day, in octets.
    unbilled_today: int
    weight: int
    # By the operator, or because its owner closed it.
    suspended: bool
    low_balance: Decimal
    # Whether texts that are refused may be kept for the operator to look at.
    review_consent: bool
    # Whether recipients may have opted out of its messages.
    has_opt_outs: bool
    # Whether a send took the balance below that, while we held it.
    fell_low: bool = False


# What `read_locked` reads, in this order.
LOCKED: Final = """
call_times, call_counts, passcode_lifetime_s, message_lifetime_s, code_guard, number_codes_max,
number_codes_day_max, range_codes_max, id, balance, rate_limit, daily_limit, call_limit, spent_on,
spent_today, unbilled_today, weight, (suspended_at IS NOT NULL OR closed_at IS NOT NULL) AS suspended,
low_balance, review_consent, has_opt_outs
"""

SQL_HOLD: Final = Statement(f"""
SELECT {LOCKED}
  FROM accounts
 WHERE id = %(account_id)s
   FOR NO KEY UPDATE
""")  # noqa: S608 - the one value put in is a constant


async def lock(connection: Connection, account_id: AccountId) -> LockedAccount:
    """Lock one account, waiting for it as long as the transaction's lock timeout allows."""
    row = await SQL_HOLD.row(connection, account_id=account_id)
    assert row is not None, "accounts are never deleted"
    return read_locked(row)


def read_locked(row: Iterable[Any]) -> LockedAccount:
    """Read the columns of `LOCKED`, in a row that this transaction has locked."""
    call_times, call_counts, passcode_s, message_s, is_on, number, number_day, range_max, *columns = row
    window = CallWindow(tuple(call_times), tuple(call_counts))
    lifetimes = Lifetimes(passcode_s, message_s)
    passcode_limits = PasscodeLimits(is_on, number, number_day, range_max)
    return LockedAccount(window, window, lifetimes, passcode_limits, *columns)


@dataclass(frozen=True, slots=True)
class Account:
    """An account as the operator sees it."""

    id: AccountId
    phone: str
    name: str
    business: str
    balance: Decimal
    rate_limit: int
    daily_limit: Decimal | None
    low_balance: Decimal
    review_consent: bool
    suspended_at: datetime | None
    created_at: datetime
    call_limit: Decimal | None
    # When its owner closed it; its balance is still theirs.
    closed_at: datetime | None
    # Its share of a carrier's time, beside others that wait too.
    weight: int


_ACCOUNT: Final = """
SELECT id, phone, name, business, balance, rate_limit, daily_limit, low_balance, review_consent,
       suspended_at, created_at, call_limit, closed_at, weight
  FROM accounts
"""

SQL_FIND: Final = Statement(_ACCOUNT + "WHERE id = %(account_id)s")

SQL_LIST: Final = Statement(
    _ACCOUNT + "WHERE id > %(after)s AND phone <> 'system' ORDER BY id LIMIT %(count_max)s"
)


async def find(connection: Connection, account_id: AccountId) -> Account | None:
    row = await SQL_FIND.row(connection, account_id=account_id)
    return None if row is None else Account(*row)


async def list_after(connection: Connection, after: AccountId, count_max: int) -> Sequence[Account]:
    """Return the customers' accounts in the order of their creation."""
    return [Account(*row) for row in await SQL_LIST.rows(connection, after=after, count_max=count_max)]


SQL_INSERT: Final = Statement("""
INSERT INTO accounts (id, phone, name, business, rate_limit)
VALUES (%(account_id)s, %(phone)s, %(name)s, %(business)s, %(rate_limit)s)
    ON CONFLICT (phone) DO NOTHING
RETURNING id
""")


async def insert(
    connection: Connection, account_id: AccountId, phone: str, name: str, business: str, rate_limit: int
) -> bool:
    """Add an account without balance; False when the phone number has one."""
    inserted = await SQL_INSERT.value(
        connection, account_id=account_id, phone=phone, name=name, business=business, rate_limit=rate_limit
    )
    return inserted is not None


SQL_FIND_BY_PHONE: Final = Statement(_ACCOUNT + "WHERE phone = %(phone)s")


async def find_by_phone(connection: Connection, phone: str) -> Account | None:
    row = await SQL_FIND_BY_PHONE.row(connection, phone=phone)
    return None if row is None else Account(*row)


SQL_MARK_SUSPENDED: Final = Statement("""
UPDATE accounts
   SET suspended_at = CASE WHEN %(suspended)s::boolean THEN coalesce(suspended_at, now()) END
 WHERE id = %(account_id)s
""")


async def mark_suspended(connection: Connection, account_id: AccountId, *, suspended: bool) -> None:
    await SQL_MARK_SUSPENDED.rows(connection, account_id=account_id, suspended=suspended)


SQL_SET_REVIEW_CONSENT: Final = Statement(
    "UPDATE accounts SET review_consent = %(consent)s WHERE id = %(account_id)s"
)


async def set_review_consent(connection: Connection, account_id: AccountId, *, consent: bool) -> None:
    """Record whether refused texts may be kept for the operator's review."""
    await SQL_SET_REVIEW_CONSENT.rows(connection, account_id=account_id, consent=consent)


SQL_SET_LIMITS: Final = Statement("""
UPDATE accounts
   SET rate_limit = coalesce(%(rate_limit)s, rate_limit),
       daily_limit = CASE WHEN %(change_daily)s::boolean THEN %(daily_limit)s ELSE daily_limit END,
       call_limit = CASE WHEN %(change_call)s::boolean THEN %(call_limit)s ELSE call_limit END,
       low_balance = coalesce(%(low_balance)s, low_balance),
       weight = coalesce(%(weight)s, weight)
 WHERE id = %(account_id)s
""")


async def set_limits(
    connection: Connection,
    account_id: AccountId,
    *,
    rate_limit: int | None = None,
    daily_limit: Decimal | None = None,
    change_daily: bool = False,
    call_limit: Decimal | None = None,
    change_call: bool = False,
    low_balance: Decimal | None = None,
    weight: int | None = None,
) -> None:
    """Change the rate, the spend limits, the low-balance warning and the share of an account."""
    await SQL_SET_LIMITS.rows(
        connection,
        account_id=account_id,
        rate_limit=rate_limit,
        daily_limit=daily_limit,
        change_daily=change_daily,
        call_limit=call_limit,
        change_call=change_call,
        low_balance=low_balance,
        weight=weight,
    )


SQL_SET_NAMES: Final = Statement(
    "UPDATE accounts SET name = %(name)s, business = %(business)s WHERE id = %(account_id)s"
)


async def set_names(connection: Connection, account_id: AccountId, name: str, business: str) -> None:
    await SQL_SET_NAMES.rows(connection, account_id=account_id, name=name, business=business)


# Nothing is told to endpoints of an account that nobody can look at any more; what waits for them stays.
# The endpoints are locked by id, as by a worker that writes what it delivered to several.
SQL_CLOSE: Final = Statement("""
WITH told AS MATERIALIZED (
    SELECT id
      FROM webhook_endpoints
     WHERE account_id = %(account_id)s
       AND state <> 'paused'
     ORDER BY id
       FOR NO KEY UPDATE
), closed AS (
    UPDATE accounts SET closed_at = coalesce(closed_at, clock_timestamp()) WHERE id = %(account_id)s
), revoked AS (
    UPDATE api_keys
       SET revoked_at = clock_timestamp()
     WHERE account_id = %(account_id)s
       AND revoked_at IS NULL
)
UPDATE webhook_endpoints
   SET state = 'paused', reason = NULL, changed_at = clock_timestamp()
 WHERE id = ANY(ARRAY(SELECT id FROM told))
RETURNING id
""")


async def close(connection: Connection, account_id: AccountId) -> Sequence[EndpointId]:
    """Close an account with its keys, and return the endpoints that were paused with it."""
    return [EndpointId(row["id"]) for row in await SQL_CLOSE.rows(connection, account_id=account_id)]


@dataclass(frozen=True, slots=True)
class NoticeContact:
    """How an owner wants notices: by text to the phone, and by e-mail if there is an address."""

    phone: str
    by_text: bool
    email: str | None


# Whoever cannot sign in could not turn them off.
SQL_LIST_NOTICE_CONTACTS: Final = Statement("""
SELECT a.id, p.phone, l.notice_texts, CASE WHEN l.low_balance_mail THEN l.email END AS email
  FROM accounts a
  JOIN members m ON m.account_id = a.id
  JOIN people p ON p.id = m.person_id
  JOIN logins l ON l.person_id = p.id
 WHERE a.id = ANY(%(account_ids)s::uuid[])
   AND m.account_id = ANY(%(account_ids)s::uuid[])
   AND m.role = 'owner'
   AND a.closed_at IS NULL
   AND l.phone_proved_at IS NOT NULL
   AND (l.notice_texts OR l.low_balance_mail AND l.email IS NOT NULL)
 ORDER BY m.since, p.id
""")


async def list_notice_contacts(
    connection: Connection, account_ids: Sequence[AccountId]
) -> Mapping[AccountId, Sequence[NoticeContact]]:
    """Return the owners of these accounts who want notices."""
    contacts: dict[AccountId, list[NoticeContact]] = {}
    for account_id, *contact in await SQL_LIST_NOTICE_CONTACTS.rows(connection, account_ids=account_ids):
        contacts.setdefault(AccountId(account_id), []).append(NoticeContact(*contact))
    return contacts
