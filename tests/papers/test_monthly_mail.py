"""The statement of a month is mailed once, to the address that the customer gave."""

import asyncio
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from tests.papers.test_issue import requester
from tests.papers.test_statements import months_ago, move, this_month
from tests.support.chaos.node import WorkerProcess, ended_at_last, first_true
from tests.support.mail.server import mail_server
from tests.support.papers import ISSUER, pay, read_pdf
from tests.support.processes.service import Caller, new_caller
from tumira.core.days import local_midnight
from tumira.mail import outbox
from tumira.mail.outbox import Mail
from tumira.papers import details
from tumira.papers.content import month_before, write_month
from tumira.papers.details import BillingDetails
from tumira.papers.monthly_mail import mail_statements
from tumira.postgres.pool import Database

MAIL = BillingDetails(statement_email="books@example.org")


async def wish(database: Database, caller: Caller, wanted: BillingDetails = MAIL) -> None:
    await details.change_details(database, requester(caller), wanted, month_before(this_month()))


async def let_a_month_pass(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("UPDATE billing_details SET mailed_month = $1", months_ago(2))


async def take_mails(database: Database) -> list[Mail]:
    async with database.transaction() as connection:
        return list(await outbox.claim_due(connection, 100, 60))


async def test_a_statement_is_mailed_once_by_many_nodes(database: Database, caller: Caller) -> None:
    last = month_before(this_month())
    await move(database, caller.id, [("top-up", Decimal("12.5"), local_midnight(last) + timedelta(days=2))])
    silent = await new_caller(database.url)
    await wish(database, silent, BillingDetails("Silent"))
    await wish(database, caller)
    # Mails begin with the month that has not ended yet.
    await mail_statements(database, ISSUER)
    assert await take_mails(database) == []

    await let_a_month_pass(database)
    await asyncio.gather(*(mail_statements(database, ISSUER) for _ in range(4)))
    await mail_statements(database, ISSUER)
    (mail,) = await take_mails(database)
    assert mail.recipient == "books@example.org"
    assert f"{last:%B %Y}" in mail.subject
    assert "Closing balance: US$" in mail.body
    assert f"https://sms.example/dashboard/papers/statements/{write_month(last)}" in mail.body
    assert mail.attachment_name == f"statement-{write_month(last)}.pdf"
    assert mail.attachment is not None
    assert "Closing balance" in read_pdf(mail.attachment)


@pytest.mark.long
async def test_a_worker_makes_papers_and_mails_statements(
    database: Database, caller: Caller, tmp_path: Path
) -> None:
    last = month_before(this_month())
    await move(database, caller.id, [("send", Decimal("0.04"), local_midnight(last) + timedelta(days=2))])
    await wish(database, caller)
    await let_a_month_pass(database)
    await pay(database, caller)

    async def has_paper() -> bool:
        async with database.connection() as connection:
            return bool(await connection.fetchval("SELECT EXISTS (SELECT FROM papers)"))

    with mail_server() as server:
        settings = {"database_url": database.url, "smtp_url": server.url, "seller_name": "Sanganai"}
        with ended_at_last(WorkerProcess(tmp_path / "log", **settings)):
            mail = await server.arrival("books@example.org")
            await first_true(has_paper, "no paper was made")
    (content,) = mail.attachments.values()
    assert "Sanganai" in read_pdf(content)


async def test_an_account_that_was_not_open_gets_no_mail_and_a_changed_wish_counts(
    database: Database, caller: Caller
) -> None:
    await wish(database, caller)
    await let_a_month_pass(database)
    await mail_statements(database, ISSUER)
    assert await take_mails(database) == []
    await let_a_month_pass(database)
    await wish(database, caller, BillingDetails())
    await mail_statements(database, ISSUER)
    assert await take_mails(database) == []
