"""Erasure of a number from every table, without a change of money or messages."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID, uuid4

import msgspec
import pytest
import pytest_asyncio

from tests.support.delivery.settling import World, open_world
from tests.support.postgres.databases import clone
from tests.support.schedules.sends import check_and_schedule, schedule
from tests.support.sending.batchers import send_call
from tests.support.uploads.files import check_file
from tumira.audit_log import Actor
from tumira.contacts import manage as manage_lists
from tumira.contacts import manage_texts
from tumira.content import near_line
from tumira.content.near_line_store import MarkedSend
from tumira.core.errors import OperatorError
from tumira.core.ids import BatchId, UploadId, message_ids, new_id
from tumira.delivery.receipt_rules import Receipt
from tumira.delivery.replies.handle import handle_replies
from tumira.delivery.replies.parts import ReplyPart
from tumira.delivery.replies.receive import store_replies
from tumira.identity import manage_accounts
from tumira.operations.erasure import erase as erase_number
from tumira.operations.erasure import steps as erasure_steps
from tumira.operations.erasure import store as erasure
from tumira.operations.erasure.requests import Erasure
from tumira.operations.erasure.steps import OTHERS
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.postgres import partitions
from tumira.postgres.pool import KEY_LOOKUPS, PLANNED_ONCE, Database
from tumira.schedules import files as scheduled_files
from tumira.schedules.manage import Scheduled
from tumira.sending.types import Answered
from tumira.uploads import chunks, kept_files
from tumira.uploads import send as send_file
from tumira.uploads import store as uploads
from tumira.uploads.check_rows import Wanted
from tumira.uploads.kept_files import KeptFile
from tumira.uploads.price import price_rest
from tumira.uploads.send import send_next_chunk
from tumira.webhooks.manage import add_endpoint

GO_ON: Final = next(task for task in MAINTENANCE_TASKS if task.name == "go on erasing numbers")
CUT: Final = next(task for task in MAINTENANCE_TASKS if task.name == "cut old numbers")
ERASED: Final = "+263•erased"
ACTOR: Final = Actor("cli:test")
LOWEST: Final = UUID(int=0)
HIGHEST: Final = UUID(int=(1 << 128) - 1)

_numbers: Final = (f"+26377129{place:04}" for place in itertools.count())


@dataclass(frozen=True, slots=True)
class Office:
    """An account that sends, and the operator who is asked to erase."""

    world: World
    worker: Database

    @property
    def database(self) -> Database:
        return self.world.engine.database

    async def erase(self, number: str, note: str = "request of 12 May") -> Erasure:
        subject = await erase_number.read_number(self.database, number)
        return await erase_number.erase_number(
            self.database, subject, note=note, actor=ACTOR, tell=lambda _step: None
        )

    async def rehearse(self, number: str) -> Erasure:
        return await erase_number.rehearse(
            self.database, await erase_number.read_number(self.database, number)
        )

    async def go_on(self) -> int:
        """Let the worker go on with what is due, to the end, and return in how many steps."""
        await self.world.rows("UPDATE erasures SET due_at = clock_timestamp()")
        steps = 0
        while await run_task(self.worker, GO_ON):
            steps += 1
            assert steps < 1000
        return steps

    async def deliver(self, *to: str, body: str = "Your code is 493817.") -> Sequence[UUID]:
        await self.world.send(to=to, body=body)
        claimed = await self.world.claim(len(to))
        for one in claimed:
            await self.world.settle(self.world.taken(one))
            await self.world.settle(self.world.reported(one))
        return [one.id for one in claimed]

    async def check_file(self, text: str, message: str = "Dear {name}, it is here.") -> UploadId:
        wanted = Wanted("people.csv", text.encode(), message, None, None)
        checked = await check_file(self.database, self.world.caller.id, wanted)
        assert isinstance(checked, UUID), checked
        return UploadId(checked)

    async def send_file(self, upload_id: UploadId) -> None:
        async with self.database.connection() as connection:
            found = await uploads.find(connection, self.world.caller.id, upload_id)
            assert found is not None
            offer = await price_rest(connection, found)
        await send_file.confirm(self.database, self.world.caller.id, upload_id, offer.total_cost)
        assert await send_next_chunk(self.database, UploadId(LOWEST)) is not None

    async def where(self, number: str) -> set[str]:
        national = number[4:]
        tables = await self.world.rows(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND relkind IN ('r', 'p') AND NOT relispartition"
        )
        holding = set()
        for (table,) in tables:
            # What is kept as bytes, such as an answer, is read as the text that it is.
            (found,) = await self.world.rows(
                f"SELECT count(*) FROM (SELECT {table}::text AS row FROM {table}) AS rows"
                f" WHERE row LIKE '%{national}%' OR row LIKE '%{national.encode().hex()}%'"
            )
            if found["count"]:
                holding.add(table)
        return holding

    async def ledger(self) -> Sequence[tuple[Any, ...]]:
        return [
            tuple(row)
            for statement in (
                "SELECT * FROM transfers ORDER BY id",
                "SELECT id, balance FROM accounts ORDER BY id",
                "SELECT id, status, cost, country, sent_at, refunded_at FROM messages ORDER BY id",
                "SELECT id, recipients, pending, total_cost, refunded, completed_at FROM batches ORDER BY id",
            )
            for row in await self.world.rows(statement)
        ]

    async def is_sound(self) -> bool:
        return await self.world.engine.audit() == []


@pytest_asyncio.fixture(scope="module")
async def shared(server_url: str) -> AsyncIterator[Office]:
    with clone(server_url) as url:
        worker = Database(url, settings=KEY_LOOKUPS)
        async with open_world(url) as world:
            yield Office(world, worker)
        await worker.close()


@pytest_asyncio.fixture
async def office(shared: Office) -> Office:
    return replace(shared, world=replace(shared.world, caller=await shared.world.engine.open_account()))


@pytest.fixture
def number() -> str:
    return next(_numbers)


async def _scatter(office: Office, number: str) -> None:
    """Leave the number wherever one can be left, by all that leads there."""
    world, local = office.world, "0" + number[4:]
    await office.deliver(number, body=f"{number}: your balance is 12.")
    await manage_accounts.review(office.database, world.caller.id, consent=True)
    samples = (f"{number}: your balance is 12.", "Dear Ben, it is here.", "Dear Ada, it is here.")
    await near_line.record(
        office.database, [MarkedSend(world.caller.id, 1, 0.3, sample) for sample in samples]
    )
    await office.deliver(number, next(_numbers))
    # In doubt, settled by a receipt that is matched by the number, and told of once more.
    await world.send(to=[number])
    (doubtful,) = await world.claim()
    await world.settle(world.doubtful(doubtful))
    await world.keep(Receipt(number[-6:], number[1:], "DELIVRD", "000", f"id:late {number}"))
    assert await world.try_unmatched() == 1
    again = world.reported(doubtful, "UNDELIV")
    told = msgspec.structs.replace(again.receipt, text=f"to {number}")
    await world.settle(msgspec.structs.replace(again, receipt=told))
    # A receipt that matches nothing.
    await world.keep(Receipt("unknown", number[1:], "DELIVRD", "000", f"to {number}"))
    # A reply that holds the number too.
    reply = ReplyPart(number[1:], "33123", None, f"Call me at {number}".encode())
    async with office.database.transaction() as connection:
        await store_replies(connection, world.carrier_id, [reply], datetime.now(UTC))
    await handle_replies(office.database)
    # A reference that is the number, and an answer that quotes it among the rejected.
    await world.rows(
        "UPDATE batches SET reference = $1 WHERE id = (SELECT max(id::text)::uuid FROM batches)", number
    )
    call = send_call(world.caller, [next(_numbers), local], idempotency_key=f"key-{local[-4:]}x")
    assert isinstance(await world.engine.batcher.ask(call), Answered)
    await world.settle(world.refused((await world.claim())[0]))
    # A file with a good row that is sent, and bad ones.
    upload_id = await office.check_file(
        f"to,name\n{next(_numbers)},Ada\n{number},Ben\n{number},Ben again\n12,{number}"
    )
    await office.send_file(upload_id)
    for one in await world.claim(3):
        await world.settle(world.refused(one))
    # A list with the number, and with a contact that has it as a second one.
    list_id = await manage_lists.create_list(office.database, world.caller.id, "People", ACTOR, [number])
    await manage_lists.put_contact(
        office.database,
        world.caller.id,
        list_id,
        next(_numbers),
        [f"Ben, or {local[:3]} {local[3:]}"],
        "ZW",
        ACTOR,
    )
    # A saved text that names it.
    await manage_texts.save_text(office.database, world.caller.id, "Help", f"Call {local} for help.", ACTOR)
    # Sends that wait for their time: to the number alone, to others too, and in a file.
    await schedule(office.database, world.caller.id, [number], f"Your order for {number} is here.")
    await schedule(office.database, world.caller.id, [number, next(_numbers)])
    rows = [f"{next(_numbers)},Ada", f"{number},Ben"]
    _upload_id, made = await check_and_schedule(office.database, world.caller.id, rows, "Dear {name}, hello.")
    assert isinstance(made, Scheduled)
    # A customer's server that answers with what it was told.
    endpoint, _ = await add_endpoint(
        office.database, world.caller.id, "https://hooks.example/in", None, "", allow_private=True
    )
    now = datetime.now(UTC)
    await world.rows(
        "INSERT INTO webhook_attempts (id, endpoint_id, event_id, sequence, type, number, at, duration_ms,"
        " status, answer) VALUES ($1, $2, $1, 1, 'message.delivered', 1, now(), 5, 200, $3)",
        new_id(int(now.timestamp() * 1000)),
        endpoint.id,
        f'{{"got": "{number}"}}',
    )
    # Somebody who said that the number is theirs, and tried a password.
    identifier = new_id(int(now.timestamp() * 1000))
    await world.rows(
        "INSERT INTO verifications (id, token_sha256, purpose, phone) VALUES ($1, sha256($2), 'reset', $3)",
        identifier,
        identifier.bytes,
        number,
    )
    await world.rows(
        "INSERT INTO codes (id, verification_id, phone, address) VALUES ($1, $1, $2, '198.18.0.1')",
        identifier,
        number,
    )
    await world.rows("INSERT INTO attempts (phone, address) VALUES ($1, '198.18.0.1')", number)


HOLDERS: Final = {
    "messages",
    "batches",
    "near_line_texts",
    "parts",
    "incidents",
    "unmatched_receipts",
    "replies",
    "reply_parts",
    "idempotency_keys",
    "upload_chunks",
    "upload_faults",
    "contacts",
    "saved_texts",
    "schedules",
    "webhook_attempts",
    "verifications",
    "codes",
    "attempts",
}


async def test_no_table_holds_the_number_afterwards_and_the_books_are_as_before(
    office: Office, number: str
) -> None:
    await _scatter(office, number)
    assert await office.where(number) == HOLDERS
    before = await office.ledger()

    erased = await office.erase(number)

    assert erased.finished_at is not None
    assert (erased.number, erased.waiting) == (None, 0)
    assert erased.messages == 5
    assert dict(erased.others) == {
        "texts": 2,
        "scheduled": 2,
        "file_rows": 3,
        "bad_file_rows": 1,
        "replies": 1,
        "webhook_answers": 1,
        "proofs": 2,
        "receipts": 1,
        "received": 1,
        "contacts": 1,
        "saved_texts": 1,
    }
    assert set(erased.others) == set(OTHERS)
    assert await office.where(number) == set()
    left = await office.world.rows(
        "SELECT text FROM near_line_texts WHERE account_id = $1", office.world.caller.id
    )
    assert [row["text"] for row in left] == ["Dear Ada, it is here."]
    left = await office.world.rows(
        "SELECT message FROM saved_texts WHERE account_id = $1", office.world.caller.id
    )
    assert [row["message"] for row in left] == ["Call (erased) for help."]
    assert await office.ledger() == before
    assert await office.is_sound()


async def test_asking_once_more_finds_nothing_and_changes_nothing(office: Office, number: str) -> None:
    await office.deliver(number)
    first = await office.erase(number)
    rows = await office.world.rows("SELECT * FROM messages ORDER BY id")

    again = await office.erase(number)

    assert again.id > first.id
    assert (again.messages, dict(again.others), again.waiting) == (0, {}, 0)
    assert await office.world.rows("SELECT * FROM messages ORDER BY id") == rows


async def test_a_rehearsal_says_what_is_then_done_and_does_nothing(office: Office, number: str) -> None:
    await _scatter(office, number)
    requests = await office.world.rows("SELECT count(*) FROM erasures")
    changed = await office.world.rows("SELECT count(*) FROM operator_changes")

    rehearsed = await office.rehearse(number)

    assert await office.where(number) == HOLDERS
    assert await office.world.rows("SELECT count(*) FROM erasures") == requests
    assert await office.world.rows("SELECT count(*) FROM operator_changes") == changed
    done = await office.erase(number)
    assert (rehearsed.messages, rehearsed.others) == (done.messages, done.others)


async def test_what_is_under_way_ends_first_and_is_erased_by_the_worker(office: Office, number: str) -> None:
    world = office.world
    await world.send(to=[number])
    await office.deliver(number)

    first = await office.erase(number)

    assert (first.messages, first.waiting, first.finished_at) == (1, 1, None)
    (claimed,) = await world.claim()
    assert claimed.recipient == number
    assert claimed.body
    await world.settle(world.taken(claimed))
    await office.go_on()
    assert await office.where(number) >= {"messages", "erasures"}
    await world.settle(world.reported(claimed))
    await office.go_on()
    assert await office.where(number) == set()
    (request,) = await world.rows("SELECT * FROM erasures WHERE id = $1", first.id)
    assert (request["number"], request["messages"], request["waiting"]) == (None, 2, 0)
    assert await office.is_sound()


async def test_a_message_that_may_still_be_confirmed_keeps_its_number_for_eleven_days(
    office: Office, number: str
) -> None:
    world = office.world
    await world.send(to=[number])
    (claimed,) = await world.claim()
    await world.settle(world.taken(claimed))
    assert await world.give_up_receipts(timedelta(days=4)) == 1

    assert (await office.erase(number)).waiting == 1
    await world.settle(world.reported(claimed, "UNDELIV"))
    assert await world.ending(claimed.id) == ("undelivered", "UNKNOWN", Decimal("0.04"))
    await office.go_on()
    assert await office.where(number) == set()


async def test_a_walk_that_is_stopped_anywhere_is_gone_on_with(
    office: Office, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MESSAGES_MAX", "CHUNKS_MAX", "ROWS_MAX"):
        monkeypatch.setattr(erasure_steps, name, 1)
    await _scatter(office, number)

    class StoppedError(Exception):
        """As Ctrl-C would be."""

    def stop(_erasure: Erasure) -> None:
        raise StoppedError

    subject = await erase_number.read_number(office.database, number)
    for _ in range(3):
        with pytest.raises(StoppedError):
            await erase_number.erase_number(office.database, subject, note="request", actor=ACTOR, tell=stop)
    assert await office.where(number) > {"erasures"}
    assert await office.go_on() > 10
    assert await office.where(number) == set()
    (request,) = await office.world.rows("SELECT * FROM erasures ORDER BY id DESC LIMIT 1")
    assert request["messages"] == 5


async def test_two_who_erase_the_same_number_at_once_erase_it_once(office: Office, number: str) -> None:
    for _ in range(3):
        await office.deliver(number)
    both = await asyncio.gather(office.erase(number), office.erase(number), return_exceptions=True)
    done = [one for one in both if isinstance(one, Erasure)]
    assert done
    (total,) = await office.world.rows(
        "SELECT sum(messages) FROM erasures WHERE id = ANY($1::bigint[])", [one.id for one in done]
    )
    assert total["sum"] == 3
    assert await office.where(number) == set()


async def test_a_row_that_may_still_be_sent_stays_until_that_is_over(office: Office, number: str) -> None:
    world = office.world
    upload_id = await office.check_file(f"to,name\n{number},Ben")

    first = await office.erase(number)
    assert (first.waiting, first.finished_at) == (1, None)
    # Sent after the request: what is sent then goes with the file it came from.
    await office.send_file(upload_id)
    (claimed,) = await world.claim()
    assert (claimed.recipient, claimed.body) == (number, "Dear Ben, it is here.")
    await office.go_on()
    assert "upload_chunks" in await office.where(number)
    await world.settle(world.taken(claimed))
    await world.settle(world.reported(claimed))
    await office.go_on()
    assert await office.where(number) == set()
    async with office.database.connection() as connection:
        (row,) = await chunks.list_good(connection, upload_id, 0, 10)
    assert (row.recipient, row.body) == (ERASED, None)
    assert await world.rows("SELECT FROM uploads WHERE message LIKE '%Ben%' AND id = $1", upload_id) == []


async def test_every_file_with_the_number_is_found(office: Office, number: str) -> None:
    for _ in range(3):
        await office.send_file(await office.check_file(f"to,name\n{number},Ben\n{next(_numbers)},Ada"))
        for one in await office.world.claim(2):
            await office.world.settle(office.world.refused(one))
    async with office.database.transaction() as connection:
        kept = KeptFile(new_id(1), "people.csv", "Dear {name}", "", "", None)
        await kept_files.keep(connection, office.world.caller.id, kept, f"to\n{number}".encode())
    assert "kept_files" in await office.where(number)
    upload_id, made = await check_and_schedule(
        office.database, office.world.caller.id, [f"{next(_numbers)},{number}"]
    )
    assert isinstance(made, Scheduled)
    async with office.database.transaction() as connection:
        await kept_files.set_upload(connection, office.world.caller.id, kept.id, upload_id)
        await scheduled_files.keep(connection, office.world.caller.id, made.id, upload_id)
    assert "scheduled_files" in await office.where(number)

    erased = await office.erase(number)

    assert (erased.messages, erased.others["file_rows"], erased.finished_at is not None) == (3, 3, True)
    assert await office.where(number) == set()
    rows = await office.world.rows(
        "SELECT recipients, bodies FROM upload_chunks WHERE batch_id IS NOT NULL"
        " ORDER BY upload_id DESC LIMIT 3"
    )
    assert {tuple(row["bodies"]) for row in rows} == {("", "Dear Ada, it is here.")}
    assert {row["recipients"][0] for row in rows} == {ERASED}


async def test_saved_texts_lose_the_number_however_it_is_spelt(
    office: Office, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure_steps, "ROWS_MAX", 2)
    account_id, local = office.world.caller.id, number[4:]
    spelt = (number, number[1:], f"00{number[1:]}", f"0{local}", f"+263 (77) {local[2:5]}-{local[5:]}", local)
    for place, one in enumerate(spelt):
        await manage_texts.save_text(office.database, account_id, f"Ask {one}", f"{place}: {one}, ok", ACTOR)
    other = await manage_texts.save_text(
        office.database, account_id, "Other", f"1{number[-4:]} {{to}}", ACTOR
    )

    erased = await office.erase(number)

    assert erased.others["saved_texts"] == len(spelt)
    assert account_id in erased.accounts
    rows = await office.world.rows(
        "SELECT id, name, message FROM saved_texts WHERE account_id = $1 ORDER BY message", account_id
    )
    left = {row["id"]: (row["name"], row["message"]) for row in rows}
    assert left.pop(other) == ("Other", f"1{number[-4:]} {{to}}")
    assert [message for _name, message in left.values()] == [
        f"{place}: (erased), ok" for place in range(len(spelt))
    ]
    # No two texts of an account have the same name.
    assert len({name for name, _message in left.values()}) == len(spelt)
    assert {name.rpartition(" ")[0] for name, _message in left.values()} == {"Ask (erased)"}


async def test_messages_after_the_request_are_left_alone(office: Office, number: str) -> None:
    world = office.world
    await world.send(to=[number])
    (open_one,) = await world.claim()
    await office.erase(number)
    (later,) = await office.deliver(number)
    await world.settle(world.taken(open_one))
    await world.settle(world.reported(open_one))

    await office.go_on()

    assert await office.where(number) == {"messages"}
    (kept,) = await world.rows("SELECT id FROM messages WHERE recipient = $1", number)
    assert kept["id"] == later


async def test_a_late_receipt_of_an_erased_message_finds_nobody_and_goes_in_its_time(
    office: Office, number: str
) -> None:
    world = office.world
    await world.send(to=[number])
    (claimed,) = await world.claim()
    await world.settle(world.taken(claimed))
    await world.settle(world.reported(claimed))
    await office.erase(number)

    await world.keep(world.receipt(claimed, "UNDELIV"))
    assert await world.try_unmatched() == 0

    # Carriers use their ids again: without its number, nobody can say that it was this message.
    assert await world.status(claimed.id) == "delivered"
    assert await office.where(number) == {"unmatched_receipts"}


async def test_who_signs_in_with_the_number_keeps_it(office: Office) -> None:
    (own,) = await office.world.rows("SELECT phone FROM accounts WHERE id = $1", office.world.caller.id)
    await office.deliver(own["phone"])
    await office.world.rows("INSERT INTO attempts (phone, address) VALUES ($1, '198.18.0.1')", own["phone"])

    erased = await office.erase(own["phone"])

    assert (erased.messages, erased.finished_at is not None) == (1, True)
    assert await office.where(own["phone"]) == {"accounts", "people", "attempts"}


async def test_it_is_noted_for_operators_and_senders_without_the_number(office: Office, number: str) -> None:
    await office.deliver(number)
    erased = await office.erase(number, note="letter of 12 May")

    (noted,) = await office.world.rows("SELECT * FROM operator_changes ORDER BY id DESC LIMIT 1")
    assert (noted["actor"], noted["what"]) == ("cli:test", "number erased on request")
    assert noted["detail"] == f"request {erased.id}: letter of 12 May"
    told = await office.world.rows(
        "SELECT actor FROM changes WHERE account_id = $1 AND what = 'number erased'", office.world.caller.id
    )
    assert [one["actor"] for one in told] == ["cli:test"]
    (request,) = await office.world.rows("SELECT * FROM erasures WHERE id = $1", erased.id)
    assert (request["note"], request["number"], request["messages"]) == ("letter of 12 May", None, 1)


@pytest.mark.parametrize("note", ["", "x" * 501, "he is +263 77 129-{tail}", "0{national} asked"])
async def test_a_note_says_who_asks_and_not_which_number(office: Office, number: str, note: str) -> None:
    written = note.format(tail=number[-4:], national=number[4:])
    with pytest.raises(OperatorError):
        await office.erase(number, note=written)


@pytest.mark.parametrize("text", ["", "0771200001", "+26377120000", "+44 7911 123456", "+263•erased", "all"])
async def test_what_is_no_number_is_refused(office: Office, text: str) -> None:
    with pytest.raises(OperatorError, match="write it with its country code"):
        await office.rehearse(text)


async def test_a_number_is_read_as_people_write_it(office: Office, number: str) -> None:
    await office.deliver(number)
    spaced = f"{number[:4]} {number[4:6]} {number[6:9]}-{number[9:]}"
    assert (await office.rehearse(spaced)).messages == 1


PLANNED: Final = {"count_max": 500, "until": HIGHEST, "high": HIGHEST, "ids": "{}"}


@pytest.mark.parametrize("settings", [PLANNED_ONCE, KEY_LOOKUPS], ids=["command", "worker"])
async def test_messages_are_erased_by_their_keys(office: Office, settings: Mapping[str, str]) -> None:
    async with office.database.transaction() as connection:
        for name, value in settings.items():
            await connection.execute(f"SET LOCAL {name} = {value}")
        # A week with few messages is read whole for good reason; asked is whether there is another way.
        await connection.execute("SET LOCAL enable_seqscan = off")
        for statement in (
            erasure.SQL_ERASE_MESSAGES,
            erasure.SQL_ERASE_PARTS,
            erasure.SQL_ERASE_INCIDENTS,
            erasure.SQL_ERASE_BATCHES,
            erasure.SQL_LIST_OF_BATCH,
        ):
            await connection.execute(f"PREPARE explained AS {statement.text}")
            values = ", ".join(f"'{PLANNED.get(name, LOWEST)}'" for name in statement.names)
            rows = await connection.fetch(f"EXPLAIN EXECUTE explained ({values})")
            await connection.execute("DEALLOCATE explained")
            plan = "\n".join(row[0] for row in rows)
            assert "Seq Scan" not in plan, plan


async def _old_messages(office: Office, days: Sequence[int], status: str) -> Sequence[UUID]:
    made = []
    async with office.database.connection() as connection:
        present = {table: set(await partitions.names(connection, table)) for table in partitions.TABLES}
        for age in days:
            at = datetime.now(UTC) - timedelta(days=age)
            start = partitions._monday(at)
            for table, fillfactor in partitions.TABLES.items():
                name = partitions._name(table, start)
                if name not in present[table]:
                    present[table].add(name)
                    await partitions._create(connection, table, name, start, fillfactor)
            batch_id = BatchId(new_id(int(at.timestamp() * 1000)))
            (message_id,) = message_ids(batch_id, 1)
            await connection.execute(
                "INSERT INTO messages (id, batch_id, account_id, segments, country, recipient, cost, status)"
                " VALUES ($1, $2, $3, 1, 'ZW', $4, 0, $5)",
                message_id,
                batch_id,
                office.world.caller.id,
                next(_numbers),
                status,
            )
            await connection.execute(
                "INSERT INTO incidents (message_id, kind, recipient) VALUES ($1, 'doubt', '263771290000')",
                message_id,
            )
            made.append(message_id)
    return made


async def test_after_90_days_a_number_is_cut_to_country_and_three_digits_and_not_before(
    server_url: str,
) -> None:
    with clone(server_url) as url:
        worker = Database(url, settings=KEY_LOOKUPS)
        async with open_world(url) as world:
            office = Office(world, worker)
            old = await _old_messages(office, [200, 91, 91], "delivered")
            (waiting,) = await _old_messages(office, [90], "queued")
            (behind,) = await _old_messages(office, [90], "delivered")
            (young,) = await _old_messages(office, [89], "delivered")
            rows = await world.rows("SELECT id, recipient FROM messages")
            whole = {row["id"]: row["recipient"] for row in rows}

            assert await run_task(worker, CUT) == 3
            assert await run_task(worker, CUT) == 0
            rows = await world.rows("SELECT id, recipient FROM messages")
            assert {row["id"]: row["recipient"] for row in rows} == whole | {
                one: f"+263••••••{whole[one][-3:]}" for one in old
            }
            # One that still waits holds up those after it, until it has ended.
            await world.rows("UPDATE messages SET status = 'expired' WHERE id = $1", waiting)
            assert await run_task(worker, CUT) == 2
            rows = await world.rows("SELECT id FROM messages WHERE recipient ~ '^[+][0-9]+$'")
            assert [row["id"] for row in rows] == [young]
            rows = await world.rows("SELECT message_id FROM incidents WHERE recipient IS NOT NULL")
            assert [row["message_id"] for row in rows] == [young]
            assert behind != young
        await worker.close()


async def test_the_network_that_was_learnt_of_a_number_is_erased(office: Office) -> None:
    number, other = "+27821239998", "+27821239999"
    for one in (number, other):
        await office.world.rows(
            "INSERT INTO number_networks (number, network, source) VALUES ($1, 'mtn', 'receipt')",
            int(one[1:]),
        )
    await office.erase(number)
    rows = await office.world.rows("SELECT number FROM number_networks")
    assert [row["number"] for row in rows] == [int(other[1:])]


async def test_a_person_who_left_an_invitation_and_drafts_are_erased(office: Office, number: str) -> None:
    account_id, rows = office.world.caller.id, office.world.rows
    await rows("INSERT INTO people (id, phone, name) VALUES ($1, $2, 'Left')", uuid4(), number)
    await rows(
        "INSERT INTO logins (person_id, password_hash) SELECT id, 'x' FROM people WHERE phone = $1", number
    )
    await rows(
        "INSERT INTO invites (id, account_id, phone, role, token_sha256, code_hash, invited_by)"
        " VALUES (gen_random_uuid(), $1, $2, 'viewer', sha256('x'), 'x', $1)",
        account_id,
        number,
    )
    for state in ("waiting", "withdrawn"):
        await rows(
            "INSERT INTO approvals (id, account_id, token, recipients, message, count, cost, asked_by, state)"
            " VALUES (gen_random_uuid(), $1, 'x', $2, 'text', 1, 1, $1, $3)",
            account_id,
            f"{number[:6]} {number[6:]}, +27821230001",
            state,
        )

    await office.erase(number)

    assert await office.where(number) == set()
    assert [tuple(row) for row in await rows("SELECT state, recipients FROM approvals ORDER BY state")] == [
        ("expired", None),
        ("withdrawn", None),
    ]
