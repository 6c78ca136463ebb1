"""Monthly statements: as a page, as PDF and as CSV."""

from collections.abc import Sequence
from typing import Final

import structlog
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core.ids import ACCOUNT, write_id
from tumira.core.translation import _
from tumira.dashboard.pages.ledger import LEDGER
from tumira.dashboard.session import PAPERS, CustomerSession, Services, private
from tumira.html.guards import or_404
from tumira.papers import statements, words
from tumira.papers.content import read_month
from tumira.papers.downloads import download_movements, download_statement
from tumira.papers.statements import ProvedStatement

STATEMENTS: Final = PAPERS + "/statements"

_log: Final = structlog.get_logger()


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, STATEMENTS + "/{month}.pdf", download_pdf),
        private(services, STATEMENTS + "/{month}.csv", download_csv),
        private(services, STATEMENTS + "/{month}", show_statement),
    ]


async def _find(session: CustomerSession) -> ProvedStatement:
    month = read_month(str(session.request.path_params["month"]))
    found = None
    if month is not None:
        found = await statements.find_statement(
            session.database, session.services.issuer, session.account_id, month
        )
    found = or_404(found, _("There is no statement of this month"))
    if not found.adds_up:
        account_id = write_id(ACCOUNT, session.account_id)
        _log.error("statement does not add up", account_id=account_id, month=str(month))
    return found


async def _find_sound(session: CustomerSession) -> ProvedStatement:
    found = await _find(session)
    if not found.adds_up:
        raise HTTPException(409, _("This month does not add up to the balance in the ledger"))
    return found


async def show_statement(session: CustomerSession) -> Response:
    found = await _find(session)
    return session.page(
        "statement.html.jinja",
        found=found,
        totals=statements.totals_by_kind(found.statement),
        kinds=words.KINDS,
        days=statements.list_days(found.statement),
        ledger=LEDGER,
        base=STATEMENTS,
    )


async def download_pdf(session: CustomerSession) -> Response:
    return await download_statement(session.database, (await _find_sound(session)).statement)


async def download_csv(session: CustomerSession) -> Response:
    statement = (await _find_sound(session)).statement
    return download_movements(session.request, session.database, statement, session.services.downloads)
