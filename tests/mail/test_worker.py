"""Mail worker: retries, waits, expiry, shutdown, and the lease of a dead worker."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio
import structlog
from structlog.testing import capture_logs

from tests.support.chaos.node import PATIENCE_S, WorkerProcess, ended_at_last, first_true
from tests.support.mail.server import MailServer, mail_server
from tests.support.webhooks.receivers import deaf_port
from tumira.core.ids import new_id
from tumira.core.settings import load
from tumira.mail import outbox
from tumira.mail import worker as worker_module
from tumira.mail.smtp import MAIL_TIMEOUT_S
from tumira.mail.worker import SENDING_MAX, MailWorker, masked, wait_s
from tumira.postgres.pool import KEY_LOOKUPS, Database

ANNA: Final = "anna@example.org"
BEN: Final = "ben@example.org"
BODY: Final = "Your code is 493817. Grüße 📨\n"


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, settings=KEY_LOOKUPS)
    yield database
    await database.close()


async def put(database: Database, recipient: str = ANNA, expires_in_s: float = 600) -> UUID:
    now = datetime.now(UTC)
    mail_id = new_id(int(now.timestamp() * 1000))
    async with database.transaction() as connection:
        expires_at = now + timedelta(seconds=expires_in_s)
        await outbox.insert(connection, mail_id, recipient, "Your code", BODY, expires_at)
    return mail_id


async def rows(database: Database) -> Sequence[asyncpg.Record]:
    async with database.connection() as connection:
        return await connection.fetch(
            "SELECT recipient, tries, extract(epoch FROM due_at - clock_timestamp())::float8 AS wait_s"
            "  FROM mails ORDER BY id"
        )


async def until_gone(database: Database) -> None:
    async def is_gone() -> bool:
        return not await rows(database)

    await first_true(is_gone, "a mail is still there")


async def until_put_off(database: Database, tries: int, patience_s: float = PATIENCE_S) -> float:
    """Wait until the only mail was put off after this many tries, and return its wait."""

    async def is_put_off() -> bool:
        (row,) = await rows(database)
        # A lease is longer than any of the first waits.
        return bool(row["tries"] == tries and row["wait_s"] <= wait_s(tries))

    await first_true(is_put_off, f"the mail was not put off after {tries} tries", patience_s)
    return float((await rows(database))[0]["wait_s"])


async def make_due(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("UPDATE mails SET due_at = clock_timestamp()")


@asynccontextmanager
async def mail_worker(database: Database, url: str) -> AsyncIterator["asyncio.Task[None]"]:
    smtp = load({"TUMIRA_SMTP_URL": url}, Path("/nowhere/.env")).smtp
    assert smtp is not None
    working = asyncio.create_task(MailWorker(database, smtp).run())
    try:
        yield working
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


async def test_two_workers_send_each_mail_once(database: Database) -> None:
    recipients = [f"reader-{place}@example.org" for place in range(5 * SENDING_MAX)]
    for recipient in recipients:
        await put(database, recipient)
    with mail_server() as server:
        async with mail_worker(database, server.url), mail_worker(database, server.url):
            for recipient in recipients:
                await server.arrival(recipient)
            await until_gone(database)
        assert sorted(mail.recipient for mail in server.mails) == sorted(recipients)


async def test_a_delayed_mail_is_retried_after_growing_waits(database: Database) -> None:
    with mail_server() as server:
        server.recipient_answers.extend(["450 4.2.1 Greylisted", "450 4.2.1 Greylisted"])
        server.text_answers.append("452 4.3.1 Full")
        await put(database)
        async with mail_worker(database, server.url):
            for tries, longest_s in ((1, 5), (2, 15), (3, 45)):
                assert longest_s - 5 < await until_put_off(database, tries) <= longest_s
                assert server.mails == []
                await make_due(database)
            await server.arrival(ANNA)
            await until_gone(database)
        assert server.asked == [ANNA] * 4
        assert len(server.mails) == 1


def test_waits_grow_by_three_and_end_at_a_quarter_of_an_hour() -> None:
    assert [wait_s(tries) for tries in range(1, 8)] == [5, 15, 45, 135, 405, 900, 900]
    assert wait_s(32_767) == 900


async def test_a_refused_mail_is_given_up_and_the_log_has_neither_address_nor_text(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        worker_module, "_log", structlog.wrap_logger(None, wrapper_class=structlog.BoundLogger)
    )
    with mail_server() as server:
        server.recipient_answers.append(f"550 5.1.1 <{ANNA}>: no such user, 493817")
        await put(database)
        with capture_logs() as logged:
            async with mail_worker(database, server.url):
                await until_gone(database)
                await send_marker(database, server)
        assert server.asked == [ANNA, BEN]

    problem = "The mail server answered 550 5.1.1 to the recipient."
    assert logged == [
        {
            "event": "mail given up",
            "log_level": "warning",
            "recipient": "a…@example.org",
            "tries": 1,
            "problem": problem,
        },
        {"event": "mail sent", "log_level": "info", "recipient": "b…@example.org", "tries": 1},
    ]


async def send_marker(database: Database, server: MailServer) -> None:
    await put(database, BEN)
    await server.arrival(BEN)
    await until_sent(database, BEN)


async def until_sent(database: Database, recipient: str) -> None:
    async def is_sent() -> bool:
        return recipient not in [row["recipient"] for row in await rows(database)]

    await first_true(is_sent, f"the mail to {recipient} is still there")


def test_an_address_is_masked_for_the_log() -> None:
    shown = {
        ANNA: "a…@example.org",
        "a@b": "a…@b",
        '"x@y"@example.org': '"…@example.org',
        "anna": "…",
        "": "…",
    }
    assert {address: masked(address) for address in shown} == shown


async def test_mails_wait_for_a_server_that_is_away(database: Database) -> None:
    await put(database)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"smtp://127.0.0.1:{bound.getsockname()[1]}"
        async with mail_worker(database, url):
            await until_put_off(database, 1)
            with mail_server(bound=bound) as server:
                await make_due(database)
                assert (await server.arrival(ANNA)).body == BODY
                await until_gone(database)


async def test_a_mail_that_expires_while_the_server_keeps_it_waiting_is_broken_off(
    database: Database,
) -> None:
    with deaf_port() as port:
        await put(database, expires_in_s=2)
        async with mail_worker(database, f"smtp://127.0.0.1:{port}"):
            # Sooner than a mail may take.
            await until_put_off(database, 1, MAIL_TIMEOUT_S - 10)


async def test_shutdown_completes_mails_under_way(database: Database) -> None:
    with mail_server() as server:
        await put(database)
        async with mail_worker(database, server.url) as working:
            await server.asking(ANNA)
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
        assert len(server.mails) == 1
        assert await rows(database) == []


@pytest.mark.long
async def test_the_mail_of_a_killed_worker_is_sent_by_another_after_the_lease(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    await put(database)
    with deaf_port() as port:
        url = f"smtp://127.0.0.1:{port}"
        with ended_at_last(WorkerProcess(tmp_path / "log", database_url=database_url, smtp_url=url)) as first:

            async def is_claimed() -> bool:
                return bool((await rows(database))[0]["tries"] == 1)

            await first_true(is_claimed, "the mail was not claimed")
            first.kill()
    with mail_server() as server:
        async with mail_worker(database, server.url):
            await send_marker(database, server)
            # The lease of the dead worker still stands.
            assert server.mails_to(ANNA) == []
            await make_due(database)
            assert (await server.arrival(ANNA)).body == BODY
            await until_gone(database)
        assert len(server.mails_to(ANNA)) == 1
