"""Invoices, receipts and credit notes: a list, each as a page, and as PDF."""

from collections.abc import Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core.translation import _, mark
from tumira.dashboard.pages.ledger import LEDGER, read_entry_id
from tumira.dashboard.pages.top_up import find_top_up
from tumira.dashboard.session import PAPERS, TOP_UP, CustomerSession, Services, private
from tumira.html.guards import or_404
from tumira.html.redirect import redirect
from tumira.papers import statements, store
from tumira.papers.content import read_number
from tumira.papers.downloads import download_paper
from tumira.papers.issue import find_or_issue, issue_due
from tumira.papers.store import Paper
from tumira.topups import lists as top_up_lists
from tumira.topups.states import TopUpState

RECEIPTS: Final = frozenset({TopUpState.CREDITED, TopUpState.REVERSED})
PAPERS_SHOWN: Final = 20
MONTHS_SHOWN: Final = 12

_MISSING: Final = mark("This receipt does not exist")


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, PAPERS, show_list),
        private(services, PAPERS + "/{number}.pdf", download),
        private(services, PAPERS + "/{number}", show_paper),
        private(services, TOP_UP + "/{id}/receipt", show_of_top_up),
        private(services, LEDGER + "/{entry}/receipt", show_of_entry),
    ]


async def show_list(session: CustomerSession) -> Response:
    text = session.request.query_params.get("before")
    before = store.LAST if text is None else read_entry_id(text, _("This page does not exist"))
    # What was credited a moment ago is in the list.
    await issue_due(session.database, session.services.issuer)
    async with session.database.connection() as connection:
        months = await statements.list_months(connection, session.account_id)
        found = await store.list_of_account(connection, session.account_id, PAPERS_SHOWN + 1, before)
    shown = found[:PAPERS_SHOWN]
    return session.page(
        "papers.html.jinja",
        months=months[:MONTHS_SHOWN],
        earlier=months[MONTHS_SHOWN:],
        papers=shown,
        is_first=text is None,
        older=shown[-1].transfer_id if len(found) > PAPERS_SHOWN else None,
    )


async def _find(session: CustomerSession) -> Paper:
    number = read_number(str(session.request.path_params["number"]))
    found = None
    if number is not None:
        async with session.database.connection() as connection:
            found = await store.find(connection, session.account_id, *number)
    return or_404(found, _(_MISSING))


async def show_paper(session: CustomerSession) -> Response:
    paper = await _find(session)
    async with session.database.connection() as connection:
        reversal_id = await store.find_reversal(connection, paper.transfer_id)
    correction = None
    if reversal_id is not None:
        correction = await find_or_issue(
            session.database, session.services.issuer, session.account_id, reversal_id
        )
    return session.page(
        "paper.html.jinja", content=paper.content, is_reversed=reversal_id is not None, correction=correction
    )


async def download(session: CustomerSession) -> Response:
    return await download_paper((await _find(session)).content)


async def show_of_top_up(session: CustomerSession) -> Response:
    """Lead to the paper of a top-up."""
    top_up = await find_top_up(session)
    if top_up.state not in RECEIPTS:
        raise HTTPException(404, _("There is no receipt yet: this payment has not been credited"))
    async with session.database.connection() as connection:
        credit, *_reversals = await top_up_lists.list_movements(connection, top_up.id)
    return await _lead(session, credit.id)


async def show_of_entry(session: CustomerSession) -> Response:
    """Lead to the paper of a ledger entry."""
    return await _lead(session, read_entry_id(session.request.path_params["entry"], _(_MISSING)))


async def _lead(session: CustomerSession, entry_id: int) -> Response:
    found = await find_or_issue(session.database, session.services.issuer, session.account_id, entry_id)
    return redirect(f"{PAPERS}/{or_404(found, _(_MISSING)).number}")
