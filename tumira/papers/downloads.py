"""Files of papers and statements, as they are downloaded."""

from contextlib import AbstractAsyncContextManager

from starlette.requests import Request
from starlette.responses import Response

from tumira.html.page import HEADERS, PRIVATE
from tumira.html.tables import download
from tumira.papers import pdf, statements
from tumira.papers.content import PaperContent, write_month
from tumira.papers.statement_store import MonthStatement
from tumira.postgres.pool import Database


async def download_paper(content: PaperContent) -> Response:
    return _pdf(f"{content.written_number}.pdf", await pdf.make(pdf.draw_paper, content))


async def download_statement(database: Database, statement: MonthStatement) -> Response:
    lines = await statements.list_lines(database, statement)
    drawn = await pdf.make(pdf.draw_statement, statement, lines)
    return _pdf(f"statement-{write_month(statement.month)}.pdf", drawn)


def download_movements(
    request: Request, database: Database, statement: MonthStatement, gate: AbstractAsyncContextManager[None]
) -> Response:
    """Send all movements of a month as CSV, a piece at a time."""
    name = f"statement-{write_month(statement.month)}.csv"
    return download(request, name, statements.write_csv(database, statement, gate))


def _pdf(name: str, content: bytes) -> Response:
    headers = {**HEADERS, **PRIVATE, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/pdf", headers=headers)
