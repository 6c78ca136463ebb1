"""The commands `tumira erase` and `tumira export` while the gateway runs, and what pages show then."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final
from unittest.mock import patch
from uuid import UUID

import pytest
import pytest_asyncio

from tests.support.cli.commands import QuickCli
from tests.support.delivery.engine import Engine, open_engine
from tests.support.identity.customers import Customer, open_session, words
from tests.support.postgres.databases import clone
from tests.support.processes.service import Service, run_web
from tests.support.uploads.files import check_file
from tumira.audit_log import Actor
from tumira.cli import privacy
from tumira.contacts import manage, manage_texts
from tumira.core.ids import ScheduleId, new_id
from tumira.delivery.replies.handle import handle_replies
from tumira.delivery.replies.parts import ReplyPart
from tumira.delivery.replies.receive import store_replies
from tumira.schedules.manage import schedule_message
from tumira.sending import compose
from tumira.sending.compose import Draft
from tumira.simulator.smsc import run_smsc
from tumira.uploads.check_rows import Wanted

ASKED: Final = ("--note", "letter of 12 May")
SHOWN: Final = (
    "request_id dry_run messages texts scheduled file_rows bad_file_rows replies webhook_answers "
    "proofs receipts received contacts saved_texts accounts waiting finished account_id"
)

KINDS: Final = (
    "messages",
    "replies",
    "opt_outs",
    "lists",
    "saved_texts",
    "schedules",
    "drafts",
    "files",
)
EXPORTED: Final = f"number {' '.join(KINDS)} complete account_id"


@pytest.fixture(scope="module")
def running(server_url: str) -> Iterator[Service]:
    with clone(server_url) as url, run_web(url) as service:
        yield service


@pytest_asyncio.fixture(scope="module")
async def engine(running: Service) -> AsyncIterator[Engine]:
    async with open_engine(running.url) as engine, run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()
        yield engine


@pytest.fixture(scope="module")
def cli(running: Service) -> Iterator[QuickCli]:
    # A search on a slow machine would show its progress.
    with patch.object(privacy, "PROGRESS_EVERY_S", 600):
        yield QuickCli(running.url)


def _customer(service: Service) -> Customer:
    caller = service.open_account()
    return Customer(service, caller, open_session(service, caller))


async def test_a_number_is_forgotten_everywhere_and_the_audit_is_clean(
    running: Service, engine: Engine, cli: QuickCli
) -> None:
    customer = await asyncio.to_thread(_customer, running)
    mine, other = "+263771280001", "+263771280002"
    batch_id = await asyncio.to_thread(customer.send, mine, other, reference="order-1042")
    await asyncio.to_thread(customer.send, mine, body="Your balance is 12.50.")
    await engine.until_all("delivered")
    balance = await asyncio.to_thread(running.balance, customer.caller)

    told = await asyncio.to_thread(cli.json, "erase", "--number", mine, "--dry-run")
    assert " ".join(told) == SHOWN
    assert (told["messages"], told["texts"], told["accounts"], told["waiting"]) == (2, 1, 1, 0)
    assert (told["dry_run"], told["request_id"]) == (True, None)
    assert mine in await asyncio.to_thread(customer.page, f"/dashboard/batches/{batch_id}")

    done = await asyncio.to_thread(cli.json, "erase", "--number", mine, *ASKED)
    assert {**done, "dry_run": True, "request_id": None} == told
    assert done["finished"] is True

    page = words(await asyncio.to_thread(customer.page, f"/dashboard/batches/{batch_id}"))
    assert mine not in page
    assert other in page
    assert "+263•erased" in page
    found = words(await asyncio.to_thread(customer.page, "/dashboard/batches", number=mine))
    assert "order-1042" not in found
    listed = await asyncio.to_thread(customer.table, f"/dashboard/batches/{batch_id}/messages.csv")
    assert mine not in json.dumps(listed)
    answer = await asyncio.to_thread(running.call, customer.caller, "GET", f"/batches/{batch_id}")
    messages = answer.json()["data"]["messages"]
    assert [one["to"] for one in messages] == ["+263•erased", other]
    assert [(one["status"], one["cost"]) for one in messages] == [("delivered", "0.0400")] * 2
    shown = await asyncio.to_thread(cli.text, "message", "show", messages[0]["message_id"])
    assert mine[1:] not in shown
    assert await asyncio.to_thread(running.balance, customer.caller) == balance
    assert (await asyncio.to_thread(cli.json, "audit"))["ok"] is True
    changes = words(await asyncio.to_thread(customer.page, "/dashboard/settings/changes"))
    assert "number erased" in changes.lower()


@pytest.mark.long
async def test_numbers_are_erased_while_messages_to_them_are_sent(engine: Engine, cli: QuickCli) -> None:
    caller = await engine.open_account()
    mine = "+263771280003"

    async def send(place: int) -> None:
        for _ in range(10):
            await engine.send(caller, [mine, f"+26377128{place:04}"])

    traffic = asyncio.gather(*(send(1000 + place) for place in range(4)))
    for _ in range(2):
        await asyncio.to_thread(cli.json, "erase", "--number", mine, *ASKED)
    await traffic
    await engine.until_all("delivered")
    # A request that waited is finished as of its own moment; one more takes what was sent after it.
    for _ in range(2):
        last = await asyncio.to_thread(cli.json, "erase", "--number", mine, *ASKED)
        assert (last["finished"], last["waiting"]) == (True, 0)

    assert await engine.rows("SELECT FROM messages WHERE recipient = $1", mine) == []
    assert await engine.rows("SELECT FROM erasures WHERE number = $1", mine) == []
    (counted,) = await engine.rows(
        "SELECT count(*) FROM messages WHERE recipient = '+263•erased' AND account_id = $1", caller.id
    )
    assert counted["count"] == 40
    assert await engine.audit() == []


async def test_people_are_told_what_is_left_and_what_to_do(running: Service, cli: QuickCli) -> None:
    customer = await asyncio.to_thread(_customer, running)
    (account,) = await asyncio.to_thread(
        running.sql, "SELECT phone FROM accounts WHERE id = $1", customer.caller.id
    )
    own = account["phone"]

    said = await asyncio.to_thread(cli.text, "erase", "--number", own, "--dry-run")
    assert said.startswith("Nothing was erased. This is what would be:\n")
    assert f"Account {customer.caller.account_id} signs in with this number and keeps it" in said

    said = await asyncio.to_thread(cli.text, "erase", "--number", own, *ASKED)
    assert said.startswith("Erased.\n")
    assert "under Settings" in said

    await asyncio.to_thread(
        cli.check_refused,
        (
            "This is no number of a country that we send to: write",
            ["erase", "--number", "0771280001", *ASKED],
        ),
        ("Say in the note who asks", ["erase", "--number", own]),
        ("The note holds the number itself", ["erase", "--number", own, "--note", f"{own} asked"]),
    )


def test_what_is_under_way_is_told(running: Service, cli: QuickCli) -> None:
    caller = running.open_account()
    # A file that its owner has yet to send.
    wanted = Wanted("people.csv", b"to,name\n+27821239001,Ada", "Dear {name}, it is here.", None, None)
    assert isinstance(running.run(check_file, caller.id, wanted), UUID)

    said = cli.text("erase", "--number", "+27 82 123 9001", *ASKED)

    assert said.startswith("Erased, but for what is still under way.\n")
    assert "1 message or row of a file still needs the number; a worker erases it as soon as" in said


@pytest.mark.long
async def test_what_is_stored_about_a_number_is_exported(
    running: Service, engine: Engine, cli: QuickCli
) -> None:
    customer = await asyncio.to_thread(_customer, running)
    mine, account_id = "+263771280010", customer.caller.account_id
    await asyncio.to_thread(customer.send, mine, body="Your balance is 12.50.")
    await engine.until_all("delivered")
    list_id = await manage.create_list(engine.database, customer.caller.id, "Members", Actor("cli:test"))
    await manage.put_contact(
        engine.database, customer.caller.id, list_id, mine, ["Ada"], None, Actor("cli:test")
    )
    await manage_texts.save_text(
        engine.database, customer.caller.id, "Help", "Call Ada on 077 128 0010.", Actor("cli:test")
    )
    await engine.rows(
        "INSERT INTO approvals (id, account_id, token, recipients, message, count, cost, asked_by)"
        " VALUES (gen_random_uuid(), $1, 'x', '077 128 0010', 'Your lesson is over.', 1, 1, $1)",
        customer.caller.id,
    )
    draft = Draft(mine, "Your lesson begins at 9.", "")
    review = await compose.examine(engine.database, customer.caller.id, draft)
    schedule_id = ScheduleId(new_id(time.time_ns() // 1_000_000))
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    await schedule_message(
        engine.database, customer.caller.id, schedule_id, draft, review, tomorrow, Actor("cli:test")
    )
    await asyncio.to_thread(customer.post, "/dashboard/opt-outs", numbers=mine)
    reply = ReplyPart(mine[1:], "33123", None, b"Thanks")
    async with engine.database.transaction() as connection:
        await store_replies(connection, 1, [reply], datetime.now(UTC))
    await handle_replies(engine.database)

    found = await asyncio.to_thread(cli.json, "export", "--number", mine)

    assert " ".join(found) == EXPORTED
    (message,) = found["messages"]
    assert (message["account_id"], message["status"], message["text"]) == (
        account_id,
        "delivered",
        "Your balance is 12.50.",
    )
    assert [one["text"] for one in found["replies"]] == ["Thanks"]
    assert [(one["account_id"], one["source"]) for one in found["opt_outs"]] == [(account_id, "page")]
    assert [(one["list"], one["values"]) for one in found["lists"]] == [("Members", {"name": "Ada"})]
    assert [(one["account_id"], one["message"]) for one in found["saved_texts"]] == [
        (account_id, "Call Ada on 077 128 0010.")
    ]
    assert [(one["state"], one["message"]) for one in found["drafts"]] == [
        ("waiting", "Your lesson is over.")
    ]
    (later,) = found["schedules"]
    assert (later["state"], later["message"]) == ("waiting", "Your lesson begins at 9.")
    assert (found["number"], found["files"], found["complete"], found["account_id"]) == (mine, [], True, None)
    said = await asyncio.to_thread(cli.text, "export", "--number", mine)
    assert said.startswith(f"Stored about {mine}:\n")
    (recorded, _again) = await engine.rows(
        "SELECT detail FROM operator_changes WHERE what = 'number exported' ORDER BY id"
    )
    assert recorded["detail"] == (
        "••••••010: 1 messages, 1 replies, 1 opt-outs, 1 lists, 1 saved-texts, 1 schedules, 1 drafts, 0 files"
    )

    # Nothing is left of it but the opt-out, which keeps messages away.
    await asyncio.to_thread(cli.json, "erase", "--number", mine, *ASKED)
    left = await asyncio.to_thread(cli.json, "export", "--number", mine)
    assert {kind: len(left[kind]) for kind in KINDS} == dict.fromkeys(KINDS, 0) | {"opt_outs": 1}
