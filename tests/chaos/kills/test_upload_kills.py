"""A worker that is killed while it sends a file loses and repeats nothing."""

import asyncio
import itertools
import os
import signal
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Final
from uuid import UUID

import pytest

from tests.support.chaos.node import Reader, audit, until
from tests.support.processes.programs import Node, new_home, running
from tests.support.uploads.files import check_file
from tumira.accounts.open_account import open_account
from tumira.core.ids import AccountId, UploadId
from tumira.postgres.embedded import server as embedded
from tumira.postgres.pool import Database
from tumira.uploads import send
from tumira.uploads import store as uploads
from tumira.uploads.check_rows import Wanted
from tumira.uploads.send import Begun

MESSAGE: Final = "Dear {name}, your parcel is here."
BALANCE: Final = Decimal(1000)
PRICE: Final = Decimal("0.04")
WAIT_S: Final = 120.0
PARTS: Final = ("worker", "postgres", "web")


def numbers(count: int) -> Sequence[str]:
    all_numbers = (f"+2637712{place:05}" for place in itertools.count())
    return list(itertools.islice((one for one in all_numbers if one[-4:-2] != "99"), count))


def begin(node: Node, recipients: Sequence[str]) -> tuple[AccountId, UploadId]:
    url = embedded.attach(node.home / "data")
    assert url is not None
    return asyncio.run(_begin(url, recipients))


async def _begin(url: str, recipients: Sequence[str]) -> tuple[AccountId, UploadId]:
    database = Database(url, connections_max=1)
    try:
        account = await open_account(
            database,
            phone="+263771200007",
            name="Chaos",
            business="Chaos",
            balance=BALANCE,
            rate_limit=60,
            actor="test",
        )
        rows = ["to,name", *(f"{number},Person {number[-5:]}" for number in recipients)]
        wanted = Wanted("people.csv", "\n".join(rows).encode(), MESSAGE, None, None)
        upload_id = await check_file(database, account.id, wanted)
        assert isinstance(upload_id, UUID), upload_id
        upload_id = UploadId(upload_id)
        async with database.connection() as connection:
            upload = await uploads.find(connection, account.id, upload_id)
        assert upload is not None
        assert await send.confirm(database, account.id, upload_id, upload.total_cost) == Begun()
    finally:
        await database.close()
    return account.id, upload_id


def wait_for_chunks(reader: Reader, upload_id: UploadId, chunks: int) -> None:
    """Wait until `count` chunks have become batches."""
    count = "SELECT count(batch_id) FROM upload_chunks WHERE upload_id = $1"
    until(lambda: reader.rows(count, upload_id)[0][0] >= chunks, "the file is not sent", WAIT_S)


def kill(node: Node, part: str) -> None:
    """End a part of a node as a power cut would, and wait until the node has a database again."""
    process = node.part(part)
    begun = node.said().count("is ready")
    if process is not None:
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: not process.lives, f"{part} does not end")
        if part == "postgres":
            # All parts begin again with it, and one that dies before they have ends the node.
            node.wait_for_words("is ready", begun + 1)
    until(lambda: embedded.attach(node.home / "data") is not None, "the database does not come back")


def send_under_kills(rows: int) -> None:
    recipients = numbers(rows)
    chunks = -(-rows // 1000)
    with new_home() as home, running(home, log_level="error") as node:
        reader = Reader(node.home / "data")
        account_id, upload_id = begin(node, recipients)
        for turn, part in zip(range(1, chunks), itertools.cycle(PARTS)):
            wait_for_chunks(reader, upload_id, turn)
            kill(node, part)
        wait_for_chunks(reader, upload_id, chunks)
        check_sent_once(reader, account_id, upload_id, recipients)
        audit(**node.settings)


def check_sent_once(
    reader: Reader, account_id: AccountId, upload_id: UploadId, recipients: Sequence[str]
) -> None:
    (upload,) = reader.rows("SELECT state FROM uploads WHERE id = $1", upload_id)
    assert upload["state"] == "sent"
    found = reader.rows(
        "SELECT m.recipient, count(*) FROM messages m WHERE m.account_id = $1 GROUP BY 1", account_id
    )
    assert Counter({row["recipient"]: row["count"] for row in found}) == Counter(recipients)
    (debits,) = reader.rows(
        "SELECT sum(amount) AS paid, count(*) FROM transfers WHERE account_id = $1 AND to_book = 'revenue'",
        account_id,
    )
    assert (debits["paid"], debits["count"]) == (len(recipients) * PRICE, -(-len(recipients) // 1000))


@pytest.mark.long
def test_a_file_is_sent_once_when_worker_and_database_are_killed_half_way() -> None:
    send_under_kills(3_000)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ten_thousand_rows_are_sent_once_through_nine_kills() -> None:
    send_under_kills(10_000)
