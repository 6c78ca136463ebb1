"""Billing details: what stands on papers from now on, and whether statements come by mail."""

from collections.abc import Sequence
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.core.translation import mark
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import Faults, Form, TextField, at_most
from tumira.html.redirect import redirect
from tumira.identity.person_rules import check_email, clean_name
from tumira.papers import details
from tumira.papers.content import month_before
from tumira.papers.details import ADDRESS_MAX, NAME_MAX, TAX_NUMBER_MAX, BillingDetails
from tumira.papers.statements import month_of

BILLING: Final = "/dashboard/settings/billing"

_SAVED: Final = mark("Saved. Invoices and statements from now on show it.")


class BillingForm(Form):
    billing_name = TextField(at_most(NAME_MAX), clean=clean_name)
    address = TextField(at_most(ADDRESS_MAX), clean=clean_name)
    tax_number = TextField(at_most(TAX_NUMBER_MAX), clean=clean_name)
    statement_email = TextField(lambda email: check_email(email) if email else None, cut=300)


def routes(services: Services) -> Sequence[Route]:
    return [private(services, BILLING, show), private(services, BILLING, change, "POST")]


async def show(session: CustomerSession) -> Response:
    done = _SAVED if session.request.query_params.get("done") == "saved" else None
    return await _page(session, {}, done=done)


async def _page(
    session: CustomerSession, faults: Faults, status: int = 200, *, done: str | None = None, **written: str
) -> Response:
    async with session.database.connection() as connection:
        known = await details.get_details(connection, session.account_id)
    filled = {
        "billing_name": known.name,
        "address": known.address,
        "tax_number": known.tax_number,
        "statement_email": known.statement_email or "",
    }
    return session.page("billing.html.jinja", status, faults=faults, done=done, filled=filled | written)


async def change(session: CustomerSession) -> Response:
    form = await BillingForm.read(session.request)
    if form.faults:
        return await _page(session, form.faults, 422, **form.filled)
    changed = BillingDetails(
        form.billing_name.data,
        form.address.data,
        form.tax_number.data,
        form.statement_email.data or None,
    )
    last_month = month_before(month_of(session.database.clock.now()))
    await details.change_details(session.database, session.requester, changed, last_month)
    return redirect(f"{BILLING}?done=saved")
