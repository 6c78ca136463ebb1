"""Accounts: search, opening one, and a credit by phone number."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response
from starlette.routing import Route

from tumira.accounts import search as account_search
from tumira.accounts import store as accounts
from tumira.accounts.open_account import open_account
from tumira.accounts.search import FIRST, LAST, FoundAccount, SearchCursor
from tumira.console.pages.account import ACCOUNTS, FORM, CreditForm, confirm_credit, path_of
from tumira.console.session import OperatorSession, Services, page
from tumira.core.ids import ACCOUNT, AccountId, read_id, write_id
from tumira.core.translation import _
from tumira.html.forms import (
    TYPED_MAX,
    Amount,
    Form,
    FormId,
    FormRefused,
    NoteField,
    TextField,
    new_form_id,
)
from tumira.html.redirect import redirect
from tumira.identity.person_rules import check_name, clean_name
from tumira.postgres.connection import Connection
from tumira.pricing.phone_numbers import read_phone
from tumira.pricing.store import get_tariff

NEW: Final = ACCOUNTS + "/new"
PAGE: Final = 50
QUERY_MAX: Final = 100
RATE: Final = 60


class AccountSearchForm(Form):
    q = TextField(cut=QUERY_MAX)
    after = TextField()
    word = TextField(cut=QUERY_MAX)
    phone = TextField(cut=QUERY_MAX)


class PhoneCreditForm(CreditForm):
    phone = TextField(cut=TYPED_MAX)


class NewAccountForm(Form):
    phone = TextField(cut=TYPED_MAX)
    country = TextField(cut=TYPED_MAX)
    name = TextField(check_name, clean=clean_name)
    business = TextField(check_name, clean=clean_name)
    balance = Amount()
    note = NoteField(is_needed=False)
    press = FormId(FORM)


def routes(services: Services) -> Sequence[Route]:
    return [
        *page(services, ACCOUNTS, show_accounts, {"/credit": ask_credit_by_phone}),
        *page(services, NEW, show_new, {"": open_new}),
    ]


async def show_accounts(session: OperatorSession) -> Response:
    asked = AccountSearchForm.parse_query(session.request)
    text = asked.q.data
    account_id = read_id(ACCOUNT, text)
    async with session.database.connection() as connection:
        if account_id is not None and await accounts.find(connection, AccountId(account_id)) is not None:
            return redirect(path_of(AccountId(account_id)))
        found, following, is_cut = await _search(connection, text, asked)
    return session.page(
        "accounts.html.jinja",
        query=text,
        found=found,
        is_first=not asked.after.data,
        is_cut=is_cut,
        following=None if following is None else f"{ACCOUNTS}?{urlencode(following)}",
    )


async def _search(
    connection: Connection, text: str, asked: AccountSearchForm
) -> tuple[Sequence[FoundAccount], Mapping[str, str] | None, bool]:
    """Return a page of accounts, the query of the page after it, and whether too many were looked at."""
    after = AccountId(read_id(ACCOUNT, asked.after.data) or FIRST)
    if not text:
        found, has_more = await account_search.list_newest(
            connection, PAGE, LAST if after == FIRST else after
        )
        return found, {"after": write_id(ACCOUNT, found[-1].id)} if has_more else None, False
    word, phone = asked.word.data, asked.phone.data
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


async def ask_credit_by_phone(session: OperatorSession) -> Response:
    """Find the account of a number, and show whose it is before it is credited."""
    form = await PhoneCreditForm.read(session.request)
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
        # A number without its country code may be one of each country.
        readings = {read_phone(tariff, form.phone.data, country) for country in tariff.names}
        owners = [await accounts.find_by_phone(connection, one) for one in readings if one is not None]
    found = [account for account in owners if account is not None]
    if len(found) != 1:
        form.faults["phone"] = (
            _("Two accounts have this number in different countries. Add the country code.")
            if found
            else _("No account has this phone number.")
        )
        form.refuse_faults()
    return confirm_credit(session, found[0], form, back=ACCOUNTS)


async def show_new(session: OperatorSession) -> Response:
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
    return session.page(
        "account_new.html.jinja", press=new_form_id(FORM), countries=list(tariff.names.items())
    )


async def open_new(session: OperatorSession) -> Response:
    """Open an account; a form that is posted twice leads to the same one."""
    form = await NewAccountForm.read(session.request)
    async with session.database.connection() as connection:
        phone = read_phone(await get_tariff(connection), form.phone.data, form.country.data)
    if phone is None:
        form.faults["phone"] = _("Enter a mobile number, for example 077 120 0001 or +263 77 120 0001.")
    if form.balance.data and not form.note.data:
        form.faults["note"] = _("Enter a note for the opening balance.")
    form.refuse_faults()
    assert phone is not None
    if form.press.data is None:
        raise FormRefused(
            {"": _("This page was open for too long. Check the form and send it again.")}, form.filled
        )
    actor = session.actor
    with form.blame("phone"):
        account = await open_account(
            session.database,
            phone=phone,
            name=form.name.data,
            business=form.business.data,
            balance=form.balance.data or Decimal(0),
            rate_limit=RATE,
            note=form.note.data,
            actor=actor.name,
            address=actor.address,
            press=form.press.data,
        )
    return redirect(f"{path_of(account.id)}?done=opened")
