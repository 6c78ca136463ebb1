"""Papers: the seller and tax rates that they show, those of an account, and each as page and file."""

from collections.abc import Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.console.pages.account import ACCOUNTS, find_account, path_of
from tumira.console.session import OperatorSession, Services, page
from tumira.core.ids import AccountId
from tumira.core.translation import _
from tumira.html.guards import or_404
from tumira.html.paging import read_number as read_place
from tumira.papers import details, statements, store, tax, words
from tumira.papers.content import read_month, read_number
from tumira.papers.downloads import download_movements, download_paper, download_statement
from tumira.papers.issue import issue_due
from tumira.papers.statements import ProvedStatement
from tumira.papers.store import Paper

PAPERS: Final = "/operator/papers"
OF_ACCOUNT: Final = ACCOUNTS + "/{id}/papers"
PAPERS_SHOWN: Final = 20
MONTHS_SHOWN: Final = 24


def routes(services: Services) -> Sequence[Route]:
    pages = {
        PAPERS: show_papers,
        PAPERS + "/{number}.pdf": download_one,
        PAPERS + "/{number}": show_paper,
        OF_ACCOUNT: show_of_account,
        OF_ACCOUNT + "/{month}.pdf": download_pdf,
        OF_ACCOUNT + "/{month}.csv": download_csv,
        OF_ACCOUNT + "/{month}": show_statement,
    }
    return [route for path, handle in pages.items() for route in page(services, path, handle)]


async def show_papers(session: OperatorSession) -> Response:
    """Show who sells, at which tax, and the numbers that were given."""
    async with session.database.connection() as connection:
        rates = await tax.list_rates(connection)
        last, waiting = await store.list_series(connection)
        latest = await store.list_latest(connection, PAPERS_SHOWN)
    return session.page(
        "papers.html.jinja",
        seller=session.services.seller,
        rates=rates,
        series=[(_(name), series, last[series]) for series, name in words.SERIES.items()],
        waiting=waiting,
        latest=latest,
    )


async def _find(session: OperatorSession) -> Paper:
    number = read_number(str(session.request.path_params["number"]))
    found = None
    if number is not None:
        async with session.database.connection() as connection:
            found = await store.find_any(connection, *number)
    return or_404(found, _("There is no paper with this number"))


async def show_paper(session: OperatorSession) -> Response:
    paper = await _find(session)
    return session.page(
        "paper.html.jinja",
        content=paper.content,
        account_path=path_of(paper.account_id),
        issued_at=paper.issued_at,
    )


async def download_one(session: OperatorSession) -> Response:
    return await download_paper((await _find(session)).content)


async def show_of_account(session: OperatorSession) -> Response:
    account = await find_account(session)
    before = read_place(session.request.query_params.get("before", ""), store.LAST, store.LAST)
    await issue_due(session.database, session.services.issuer)
    async with session.database.connection() as connection:
        months = await statements.list_months(connection, account.id)
        found = await store.list_of_account(connection, account.id, PAPERS_SHOWN + 1, before)
        known = await details.get_details(connection, account.id)
    shown = found[:PAPERS_SHOWN]
    return session.page(
        "account_papers.html.jinja",
        account=account,
        path=path_of(account.id),
        details=known,
        months=months[:MONTHS_SHOWN],
        papers=shown,
        is_first=before == store.LAST,
        older=shown[-1].transfer_id if len(found) > PAPERS_SHOWN else None,
    )


async def _statement(session: OperatorSession, account_id: AccountId) -> ProvedStatement:
    month = read_month(str(session.request.path_params["month"]))
    found = None
    if month is not None:
        found = await statements.find_statement(session.database, session.services.issuer, account_id, month)
    return or_404(found, _("There is no statement of this month"))


async def _sound_statement(session: OperatorSession) -> ProvedStatement:
    account = await find_account(session)
    found = await _statement(session, account.id)
    if not found.adds_up:
        raise HTTPException(409, _("This month does not add up to the balance in the ledger"))
    return found


async def show_statement(session: OperatorSession) -> Response:
    account = await find_account(session)
    found = await _statement(session, account.id)
    return session.page(
        "statement.html.jinja",
        account=account,
        base=path_of(account.id) + "/papers",
        found=found,
        totals=statements.totals_by_kind(found.statement),
        kinds=words.KINDS,
        days=statements.list_days(found.statement),
    )


async def download_pdf(session: OperatorSession) -> Response:
    return await download_statement(session.database, (await _sound_statement(session)).statement)


async def download_csv(session: OperatorSession) -> Response:
    statement = (await _sound_statement(session)).statement
    return download_movements(session.request, session.database, statement, session.services.downloads)
