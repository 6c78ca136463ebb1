"""Mails the statement of the last month to accounts that asked for it, each once."""

from datetime import date, timedelta
from typing import Final

import structlog

from tumira.core.ids import ACCOUNT, AccountId, new_id, write_id
from tumira.core.loops import log_failure
from tumira.core.translation import _
from tumira.html.page import write_exact_usd
from tumira.mail import outbox
from tumira.papers import details, pdf, statements, words
from tumira.papers.content import month_before, write_month
from tumira.papers.issue import PaperIssuer
from tumira.papers.statement_store import MonthStatement
from tumira.postgres import clock
from tumira.postgres.pool import Database

ACCOUNTS_AT_ONCE: Final = 20
MAIL_EVERY_S: Final = 60.0
# A mail server that is away for a day does not lose a statement.
MAIL_LIFETIME: Final = timedelta(days=3)

_log: Final = structlog.get_logger()


async def mail_statements(database: Database, issuer: PaperIssuer) -> float | None:
    """Mail some statements that are due; return at once to be called again where more may be due."""
    async with database.connection() as connection:
        month = month_before(statements.month_of(await clock.read_now(connection)))
        due = await details.list_to_mail(connection, month, ACCOUNTS_AT_ONCE)
    sent = 0
    for account_id in due:
        try:
            sent += await mail_statement(database, issuer, account_id, month)
        except Exception as error:  # noqa: BLE001 - the others get theirs
            log_failure("could not mail a statement", error, account_id=write_id(ACCOUNT, account_id))
    return 0.0 if sent == ACCOUNTS_AT_ONCE else None


async def mail_statement(database: Database, issuer: PaperIssuer, account_id: AccountId, month: date) -> bool:
    """Put the statement of a month into the outbox, unless another node did; tell whether it did."""
    found = await statements.find_statement(database, issuer, account_id, month)
    if found is not None and not found.adds_up:
        # It is reported, and mailed once it is put right.
        _log.error("statement does not add up", account_id=write_id(ACCOUNT, account_id), month=str(month))
        return False
    drawn = b""
    if found is not None:
        lines = await statements.list_lines(database, found.statement)
        drawn = await pdf.make(pdf.draw_statement, found.statement, lines)
    async with database.transaction() as connection:
        email = await details.claim_mail(connection, account_id, month)
        if email is None or found is None:
            return False
        now = await clock.read_now(connection)
        await outbox.insert(
            connection,
            new_id(int(now.timestamp() * 1000)),
            email,
            _("Your statement for {month}").format(month=words.name_month(month)),
            _write(found.statement, issuer),
            now + MAIL_LIFETIME,
            attachment=(f"statement-{write_month(month)}.pdf", drawn),
        )
    return True


def _write(statement: MonthStatement, issuer: PaperIssuer) -> str:
    lines = [
        _("Statement of {business} for {month}").format(
            business=statement.content.buyer.name, month=words.name_month(statement.month)
        ),
        "",
        f"{_('Opening balance')}: {write_exact_usd(statement.opening)}",
        *(
            f"{_(words.KINDS[kind])}: {write_exact_usd(amount)}"
            for kind, amount, _count in statements.totals_by_kind(statement)
        ),
        f"{_('Closing balance')}: {write_exact_usd(statement.closing)}",
        "",
        _("The statement is attached. The dashboard has it too, with all movements as CSV:"),
        f"{issuer.public_url}/dashboard/papers/statements/{write_month(statement.month)}",
        "",
        _("To stop these mails: Settings, Invoices and statements."),
        "",
    ]
    return "\n".join(lines)
