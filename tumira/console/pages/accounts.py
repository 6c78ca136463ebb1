"""Which accounts are there, and what does one of them have and do?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira import audit_log
from tumira.accounts import facts as account_facts
from tumira.accounts import ledger
from tumira.accounts import search as account_search
from tumira.accounts import store as accounts
from tumira.accounts.ledger import Transfer
from tumira.accounts.search import FIRST, LAST, FoundAccount, SearchCursor
from tumira.accounts.store import SYSTEM, Account
from tumira.console.session import OperatorSession, Services, view
from tumira.console.top_up_words import STATES, name_of
from tumira.core.days import local_day
from tumira.core.ids import ACCOUNT, BATCH, KEY, TOP_UP, AccountId, read_id, write_id
from tumira.html import chart
from tumira.html.forms import Form
from tumira.html.redirect import redirect
from tumira.identity.store import logins, sessions
from tumira.postgres.connection import Connection
from tumira.pricing.store import get_tariff
from tumira.sending import daily_totals
from tumira.topups import store as top_ups

ACCOUNTS: Final = "/operator/accounts"
PAGE: Final = 50
QUERY_MAX: Final = 100
KEYS_SHOWN: Final = 20
ENDPOINTS_SHOWN: Final = 20
TRANSFERS_SHOWN: Final = 15
TOP_UPS_SHOWN: Final = 10
CHANGES_SHOWN: Final = 10

# What is said after a change, by the name under which the form comes back.
DONE: Final = {
    "credit": "The balance is changed. The customer sees it in their ledger.",
    "again": "This was done already; nothing was moved a second time.",
    "suspended": "The account is suspended. It can look things up, and not send.",
    "lifted": "The account may send again.",
    "limits": "The limits are saved. They count from the next call.",
    "consent": "Texts of this account that are refused from now on are kept for 30 days.",
    "no-consent": "Refused texts of this account are not kept; those that were are erased.",
    "factor": "The second factor is off. The password alone signs the owner in.",
    "no-factor": "There was no second factor in use any more.",
}

Faults = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Line:
    """A movement of an account's money: what it was, and what is negative where it was paid."""

    what: str
    amount: Decimal
    about: str
    transfer: Transfer


def routes(services: Services) -> Sequence[Route]:
    """Return where these pages are."""
    return [view(services, ACCOUNTS, show_accounts), view(services, ACCOUNTS + "/{id}", show_account)]


def path_of(account_id: AccountId) -> str:
    """Return where an account is shown."""
    return f"{ACCOUNTS}/{write_id(ACCOUNT, account_id)}"


async def show_accounts(session: OperatorSession) -> Response:
    """Show the accounts that are looked for, or the newest."""
    query = session.request.query_params
    asked = Form({name: query.getlist(name) for name in ("q", "after", "word", "phone")})
    text = asked.text("q")[:QUERY_MAX]
    account_id = read_id(ACCOUNT, text)
    async with session.database.connection() as connection:
        if account_id is not None and await accounts.find(connection, AccountId(account_id)) is not None:
            return redirect(path_of(AccountId(account_id)))
        found, following, is_cut = await _search(connection, text, asked)
    return session.page(
        "accounts.html.jinja",
        query=text,
        found=[(path_of(one.id), one) for one in found],
        is_first=not asked.text("after"),
        is_cut=is_cut,
        following=None if following is None else f"{ACCOUNTS}?{urlencode(following)}",
    )


async def _search(
    connection: Connection, text: str, asked: Form
) -> tuple[Sequence[FoundAccount], Mapping[str, str] | None, bool]:
    """Return a page of accounts, the query of the page after it, and whether too many were looked at."""
    after = AccountId(read_id(ACCOUNT, asked.text("after")) or FIRST)
    if not text:
        found, has_more = await account_search.list_newest(
            connection, PAGE, LAST if after == FIRST else after
        )
        return found, {"after": write_id(ACCOUNT, found[-1].id)} if has_more else None, False
    word, phone = asked.text("word")[:QUERY_MAX], asked.text("phone")[:QUERY_MAX]
    if not word:
        tariff = await get_tariff(connection)
        codes = [one.calling_code for one in tariff.destinations]
        beginnings = account_search.phone_beginnings(text, codes)
        found, has_more = await account_search.list_by_phone(connection, beginnings, PAGE, phone or "+")
        # Some names begin with figures too.
        if found or phone:
            return found, {"q": text, "phone": found[-1].phone, "after": "-"} if has_more else None, False
    results = await account_search.list_by_words(
        connection, text, PAGE, SearchCursor(word, after) if word else None
    )
    following = results.following
    if following is None:
        return results.accounts, None, False
    place = {"q": text, "word": following.word, "after": write_id(ACCOUNT, following.account_id)}
    return results.accounts, place, results.is_cut


async def show_account(session: OperatorSession) -> Response:
    """Show one account."""
    return await account_page(session, {}, done=session.request.query_params.get("done", ""))


async def find_account(session: OperatorSession) -> Account:
    """Return the account that the address names; the gateway's own is nobody's to change here."""
    account_id = read_id(ACCOUNT, str(session.request.path_params["id"]))
    found = None
    if account_id is not None and account_id != SYSTEM:
        async with session.database.connection() as connection:
            found = await accounts.find(connection, AccountId(account_id))
    if found is None:
        raise HTTPException(404, "There is no such account")
    return found


async def account_page(
    session: OperatorSession, faults: Faults, status: int = 200, *, done: str = "", **written: str
) -> Response:
    """Show one account with its forms; where one was filled in wrongly, as it was filled in."""
    account = await find_account(session)
    return session.page(
        "account.html.jinja",
        status,
        account=account,
        account_name=write_id(ACCOUNT, account.id),
        path=path_of(account.id),
        faults=faults,
        filled=_fill(account) | written,
        said=DONE.get(done),
        **await _facts(session, account),
    )


def _fill(account: Account) -> dict[str, str]:
    return {
        "amount": "",
        "direction": "credit",
        "credit_note": "",
        "suspend_note": "",
        "factor_note": "",
        "limits_note": "",
        "review_note": "",
        "rate": str(account.rate_limit),
        "weight": str(account.weight),
        "daily_limit": _write(account.daily_limit),
        "call_limit": _write(account.call_limit),
    }


def _write(amount: Decimal | None) -> str:
    return "" if amount is None else f"{amount.normalize():f}"


async def _facts(session: OperatorSession, account: Account) -> Mapping[str, Any]:
    """Read what the account has, a bounded part of each."""
    today = local_day(datetime.now(UTC))
    async with session.database.connection() as connection:
        login = await logins.find(connection, account.phone)
        email = await logins.find_email(connection, account.id)
        factor = await logins.find_factor(connection, account.id)
        opened = await sessions.list_sessions(connection, account.id)
        keys = await account_facts.list_keys(connection, account.id, KEYS_SHOWN)
        endpoints = await account_facts.list_endpoints(connection, account.id, ENDPOINTS_SHOWN)
        refused = await account_facts.count_refused(connection, account.id)
        transfers = await ledger.list_latest(connection, account.id, TRANSFERS_SHOWN)
        paid = await top_ups.list_of_account(connection, account.id, TOP_UPS_SHOWN)
        changed = await audit_log.list_by_operators(connection, CHANGES_SHOWN, account_id=account.id)
        first_day = today - timedelta(days=chart.DAYS - 1)
        ended = await daily_totals.days(connection, account.id, first_day, today)
        waiting = await daily_totals.waiting_by_day(connection, account.id)
    return {
        "phone_proved": login is None or login.phone_proved,
        "email": email,
        "factor": factor if factor is not None and factor.since is not None else None,
        "sessions": len(opened),
        "seen_at": opened[0].seen_at if opened else None,
        "keys": [(write_id(KEY, key.id), key) for key in keys],
        "endpoints": endpoints,
        "refused": refused,
        "lines": [_line(transfer) for transfer in transfers],
        "top_ups": [(write_id(TOP_UP, one.id), name_of(one.method, one.provider), one) for one in paid],
        "states": STATES,
        "changed": changed,
        "chart": chart.bars(chart.add_up(ended, waiting), today),
        "rate": chart.rate(sum(day.delivered for day in ended), sum(day.ended for day in ended)),
    }


def _line(transfer: Transfer) -> Line:
    came = transfer.to_book == "customer"
    book = transfer.from_book if came else transfer.to_book
    if book == "revenue":
        what = "Refund" if came else "Messages"
    elif book == "adjustment":
        what = "Credit by the operator" if came else "Debit by the operator"
    else:
        what = "Top-up" if came else "Top-up taken back"
    about = transfer.note or ("" if transfer.batch_id is None else write_id(BATCH, transfer.batch_id))
    return Line(what, transfer.amount if came else -transfer.amount, about, transfer)
