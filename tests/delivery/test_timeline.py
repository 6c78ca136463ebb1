"""The timeline of a message: its events in order, without its text."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import asyncpg
import pytest
import pytest_asyncio

from tests.support.processes.programs import Cli
from tests.support.processes.service import new_caller
from tumira.core.ids import (
    ACCOUNT,
    BATCH,
    MESSAGE,
    AccountId,
    BatchId,
    MessageId,
    message_ids,
    new_id,
    write_id,
)
from tumira.delivery.store import timeline as timelines
from tumira.delivery.store.timeline import SQL_READ, Timeline

BODY: Final = "Your secret code is 493817."
RECIPIENT: Final = "+263771200001"
NOBODY: Final = "msg_" + "0" * 26


@dataclass(frozen=True, slots=True)
class World:
    """One account with a batch of one message, and a carrier; times count from the accept."""

    connection: "asyncpg.Connection[asyncpg.Record]"
    url: str
    account_id: AccountId
    batch_id: BatchId
    message_id: MessageId
    carrier_id: int
    start: datetime

    def at(self, seconds: float) -> datetime:
        return self.start + timedelta(seconds=seconds)

    async def sql(self, statement: str, *arguments: Any) -> None:
        await self.connection.execute(statement, *arguments)

    async def change(self, **columns: Any) -> None:
        for name, item in columns.items():
            await self.sql(f"UPDATE messages SET {name} = $2 WHERE id = $1", self.message_id, item)

    async def part(
        self, number: int, claimed: float, submitted: float, answered: float, ref: str, attempt: int = 0
    ) -> None:
        await self.sql(
            "INSERT INTO parts (message_id, number, attempt, carrier_id, reference, carrier_ref, carrier_key,"
            " claimed_at, submitted_at, answered_at) VALUES ($1, $2, $3, $4, 7, $5, $5, $6, $7, $8)",
            self.message_id,
            number,
            attempt,
            self.carrier_id,
            ref,
            self.at(claimed),
            self.at(submitted),
            self.at(answered),
        )

    async def receipt(self, number: int, at: float, state: str, error: str = "000", attempt: int = 0) -> None:
        await self.sql(
            "UPDATE parts SET state = $4, error = $5, receipt = $6, received_at = $7"
            " WHERE message_id = $1 AND number = $2 AND attempt = $3",
            self.message_id,
            number,
            attempt,
            state,
            error,
            f"id:1 sub:001 dlvrd:001 stat:{state} err:{error} Text:{BODY[:20]}",
            self.at(at),
        )

    async def incident(self, at: float, kind: str, detail: str | None, part: int | None = None) -> None:
        await self.sql(
            "INSERT INTO incidents (message_id, at, kind, carrier_id, part, detail)"
            " VALUES ($1, $2, $3, $4, $5, $6)",
            self.message_id,
            self.at(at),
            kind,
            self.carrier_id,
            part,
            detail,
        )

    async def refund(self, at: float) -> None:
        await self.change(refunded_at=self.at(at))
        await self.sql(
            "INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id, created_at)"
            " VALUES ($1, 'revenue', 'customer', 0.12, $2, $3, $4)",
            self.account_id,
            self.batch_id,
            self.message_id,
            self.at(at),
        )

    async def read(self) -> Timeline:
        timeline = await timelines.read(self.connection, self.message_id)
        assert timeline is not None
        return timeline

    async def story(self) -> Sequence[tuple[float | None, str, int | None, str | None]]:
        return [
            (
                None if one.at is None else round((one.at - self.start).total_seconds(), 3),
                one.event,
                one.part,
                one.detail,
            )
            for one in (await self.read()).entries
        ]


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    caller = await new_caller(database_url)
    connection = await asyncpg.connect(database_url)
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)
    batch_id = BatchId(new_id(int(start.timestamp() * 1000)))
    (message_id,) = message_ids(batch_id, 1)
    await connection.execute(
        "INSERT INTO batches (id, account_id, created_at, recipients, pending, segments, total_cost, status,"
        " channel, reference, body) VALUES ($1, $2, $3, 1, 1, 3, 0.12, 'queued', 'sms', 'order-1042', $4)",
        batch_id,
        caller.id,
        start,
        BODY,
    )
    await connection.execute(
        "INSERT INTO messages (id, batch_id, account_id, segments, country, recipient, cost, body)"
        " VALUES ($1, $2, $3, 3, 'ZW', $4, 0.12, $5)",
        message_id,
        batch_id,
        caller.id,
        RECIPIENT,
        BODY,
    )
    carrier_id = await connection.fetchval(
        "INSERT INTO carriers (name, host, port, tls, system_id, password, bind_mode, binds, window_size,"
        " tps, source, in_doubt, doubt_wait_s, refund, priority) VALUES ('example', '127.0.0.1', 2775, false,"
        " 'u', 'p', 'transceiver', 1, 10, 0, 'Tumira', 'resend', 30, '{failed,expired,undelivered}', 0)"
        " RETURNING id"
    )
    yield World(connection, database_url, caller.id, batch_id, MessageId(message_id), carrier_id, start)
    await connection.close()


async def troubled(world: World) -> None:
    await world.part(1, 1, 1.1, 1.2, "A1")
    await world.incident(1.3, "retry", "RMSGQFUL", part=2)
    await world.part(2, 6, 6.1, 6.2, "A2")
    await world.incident(7, "doubt", "the line fell")
    await world.incident(37, "resend", None)
    await world.part(3, 38, 38.1, 38.25, "B3", attempt=1)
    await world.receipt(1, 39, "DELIVRD")
    await world.receipt(2, 40, "DELIVRD")
    await world.receipt(3, 41, "UNDELIV", "011", attempt=1)
    await world.change(status="undelivered", failure_reason="ABSENT_SUBSCRIBER", sent_at=world.at(38.1))
    await world.refund(41)
    await world.incident(50, "late_receipt", f"id:B3 stat:DELIVRD err:000 text:{BODY[:20]}", part=3)


async def test_all_that_happened_is_told_in_order(world: World) -> None:
    await troubled(world)
    assert await world.story() == [
        (0, "queued", None, None),
        (1, "claimed", None, None),
        (1.1, "submitted", 1, None),
        (1.2, "answered", 1, "A1"),
        (1.3, "retry", 2, "RMSGQFUL"),
        (6, "claimed", None, None),
        (6.1, "submitted", 2, None),
        (6.2, "answered", 2, "A2"),
        (7, "doubt", None, "the line fell"),
        (37, "resend", None, None),
        (38, "claimed", None, None),
        (38.1, "submitted", 3, None),
        (38.1, "sent", None, None),
        (38.25, "answered", 3, "B3"),
        (39, "receipt", 1, "id:1 sub:001 dlvrd:001 stat:DELIVRD err:000"),
        (40, "receipt", 2, "id:1 sub:001 dlvrd:001 stat:DELIVRD err:000"),
        (41, "receipt", 3, "id:1 sub:001 dlvrd:001 stat:UNDELIV err:011"),
        (41, "undelivered", None, "ABSENT_SUBSCRIBER"),
        (41, "refunded", None, "0.1200 USD"),
        (50, "late_receipt", 3, "id:B3 stat:DELIVRD err:000"),
    ]
    entries = (await world.read()).entries
    assert {one.carrier for one in entries if one.event in {"claimed", "submitted", "doubt"}} == {"example"}
    assert [one.attempt for one in entries if one.event == "submitted"] == [0, 0, 1]
    assert [(one.state, one.error) for one in entries if one.event == "receipt"] == [
        ("DELIVRD", "000"),
        ("DELIVRD", "000"),
        ("UNDELIV", "011"),
    ]


async def test_the_head_says_whose_message_it_is_and_what_it_cost(world: World) -> None:
    timeline = await world.read()
    assert (timeline.message_id, timeline.batch_id) == (world.message_id, world.batch_id)
    assert timeline.account_id == world.account_id
    assert (timeline.recipient, timeline.country, timeline.status) == (RECIPIENT, "ZW", "queued")
    assert (timeline.segments, timeline.cost, timeline.failure_reason) == (3, Decimal("0.12"), None)
    assert (timeline.created_at, timeline.reference) == (world.start, "order-1042")


async def test_a_message_in_the_queue_waits_for_its_turn(world: World) -> None:
    await world.sql("INSERT INTO queue VALUES ('ZW', 0, 5000, $1)", world.message_id)
    assert await world.story() == [(0, "queued", None, None), (None, "waiting", None, "for its turn")]


async def test_a_message_in_flight_says_who_has_it(world: World) -> None:
    await world.change(status="sending")
    await world.sql(
        "INSERT INTO in_flight (message_id, worker, bind, claimed_at, carrier_id)"
        " VALUES ($1, 'w1', '2', $2, $3)",
        world.message_id,
        world.at(3),
        world.carrier_id,
    )
    assert await world.story() == [
        (0, "queued", None, None),
        (3, "claimed", None, "by w1, connection 2"),
    ]


@pytest.mark.parametrize(
    ("status", "in_doubt", "expected"),
    [("queued", False, "for another try"), ("sending", True, "for a receipt, in doubt")],
)
async def test_a_message_that_waits_for_a_moment_says_until_when(
    world: World, *, status: str, in_doubt: bool, expected: str
) -> None:
    await world.change(status=status)
    await world.sql(
        "INSERT INTO retries (message_id, due_at, in_doubt) VALUES ($1, $2, $3)",
        world.message_id,
        world.at(90),
        in_doubt,
    )
    assert await world.story() == [(0, "queued", None, None), (90, "waiting", None, expected)]


async def test_a_delivery_is_told_with_its_time(world: World) -> None:
    await world.change(status="delivered", sent_at=world.at(1), delivered_at=world.at(5))
    assert (await world.story())[-1] == (5, "delivered", None, None)


async def test_an_end_without_a_refund_is_told_at_its_last_receipt(world: World) -> None:
    for number in (1, 2, 3):
        await world.part(number, 1, 1.1, 1.2, f"A{number}")
    await world.receipt(1, 5, "DELIVRD")
    await world.receipt(2, 6, "EXPIRED")
    await world.change(status="expired", failure_reason="VALIDITY_EXPIRED")
    assert (await world.story())[-1] == (6, "expired", None, "VALIDITY_EXPIRED")


async def test_an_end_whose_time_nobody_wrote_down_comes_last(world: World) -> None:
    await world.part(1, 1, 1.1, 1.2, "A1")
    await world.incident(32, "hold", None)
    await world.change(status="unconfirmed", sent_at=world.at(1.1))
    assert (await world.story())[-2:] == [(32, "hold", None, None), (None, "unconfirmed", None, None)]


async def test_a_foreign_message_looks_exactly_like_an_unknown_one(world: World) -> None:
    stranger = await new_caller(world.url)
    unknown = MessageId(new_id(int(world.start.timestamp() * 1000)))
    own = await timelines.read_for(world.connection, world.account_id, world.message_id)
    assert own == await world.read()
    assert await timelines.read_for(world.connection, stranger.id, world.message_id) is None
    assert await timelines.read_for(world.connection, world.account_id, unknown) is None
    assert await timelines.read(world.connection, unknown) is None


async def test_a_timeline_looks_into_one_week_of_each_table(world: World) -> None:
    values = timelines._named(world.message_id)
    text = SQL_READ.text
    for place, name in reversed(list(enumerate(SQL_READ.names, start=1))):
        text = re.sub(rf"\${place}\b", f"'{values[name]}'", text)
    await world.sql("SET enable_seqscan = off")
    rows = await world.connection.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF, COSTS OFF) {text}")
    plan = json.dumps(json.loads(rows[0][0]))
    scanned = set(re.findall(r'"Relation Name": "((?:messages|batches|parts|incidents)_\w+)"', plan))
    assert len(scanned) == 4
    assert "Seq Scan" not in plan


async def test_the_command_prints_it_for_programs(world: World) -> None:
    await troubled(world)
    shown = Cli(world.url).json("message", "show", write_id(MESSAGE, world.message_id))
    timeline = shown.pop("timeline")
    assert shown == {
        "message_id": write_id(MESSAGE, world.message_id),
        "batch_id": write_id(BATCH, world.batch_id),
        "account_id": write_id(ACCOUNT, world.account_id),
        "to": RECIPIENT,
        "country": "ZW",
        "status": "undelivered",
        "failure_reason": "ABSENT_SUBSCRIBER",
        "segments": 3,
        "cost": "0.1200",
    }
    assert [entry["event"] for entry in timeline] == [event for _, event, _, _ in await world.story()]
    assert timeline[0] == {
        "at": world.start.isoformat(timespec="milliseconds"),
        "event": "queued",
        "detail": None,
    }
    assert timeline[3] == {
        "at": world.at(1.2).isoformat(timespec="milliseconds"),
        "event": "answered",
        "detail": "A1",
        "carrier": "example",
        "part": 1,
        "attempt": 0,
    }


async def test_the_command_prints_it_for_people(world: World) -> None:
    await troubled(world)
    shown = Cli(world.url).text("message", "show", write_id(MESSAGE, world.message_id))
    lines = [re.sub(r"  +", "  ", line) for line in shown.splitlines()]
    assert f"  to  {RECIPIENT}" in lines
    assert "  failure reason  ABSENT_SUBSCRIBER" in lines
    assert "  cost  0.1200 USD" in lines
    assert "  reference  order-1042" in lines
    assert "time (UTC)  what  detail" in lines
    assert f"{world.at(1.2):%Y-%m-%d %H:%M:%S}.200  taken by the carrier  part 1 of 3, example, A1" in lines
    assert (
        f"{world.at(38.1):%Y-%m-%d %H:%M:%S}.100  handed to the carrier  part 3 of 3, resend 1, example"
        in lines
    )
    assert f"{world.at(41):%Y-%m-%d %H:%M:%S}.000  refunded  0.1200 USD" in lines
    assert "secret" not in shown


def test_the_command_says_plainly_that_there_is_no_such_message(database_url: str) -> None:
    cli = Cli(database_url)
    assert cli.refused("message", "show", NOBODY).startswith("Error: There is no such message")
    (line,) = cli.misused(["message", "show", "42"])
    assert "'42' is not a message's id" in line
