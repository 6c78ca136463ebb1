"""The timeline of a message: its events in order, without its text."""

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Final

from tests.support.delivery.settling import World
from tests.support.processes.programs import Cli
from tumira.core.ids import ACCOUNT, BATCH, MESSAGE, MessageId, new_id, write_id
from tumira.delivery.store import timeline as timelines
from tumira.delivery.store.queue import ClaimedMessage
from tumira.delivery.store.timeline import SQL_READ, Timeline

# Two segments.
LONG: Final = "Your secret statement is ready. " * 6
NOBODY: Final = "msg_" + "0" * 26


async def read(world: World, message_id: MessageId) -> Timeline:
    async with world.engine.database.connection() as connection:
        timeline = await timelines.read(connection, message_id)
    assert timeline is not None
    return timeline


async def story(world: World, message_id: MessageId) -> Sequence[tuple[str, int | None, str | None]]:
    return [(one.event, one.part, one.detail) for one in (await read(world, message_id)).entries]


async def troubled(world: World) -> ClaimedMessage:
    """Send a message that is put off, in doubt, sent again, undelivered and reported again."""
    claimed = await world.claim_one(LONG)
    await world.settle(world.taken(claimed, 1, complete=False), world.put_off(claimed, 2))
    await world.resume_due()
    (claimed,) = await world.claim()
    await world.settle(world.doubtful(claimed))
    await world.resume_due()
    (claimed,) = await world.claim()
    await world.settle(world.taken(claimed, 2, attempt=1))
    await world.settle(world.reported(claimed), world.reported(claimed, "UNDELIV", 2, 1))
    await world.settle(world.reported(claimed, "DELIVRD", 2, 1))
    return claimed


async def test_all_that_happened_is_told_in_order(world: World) -> None:
    claimed = await troubled(world)
    first, second = (f"{claimed.id.hex[-12:]}-{segment}" for segment in ("1-0", "2-1"))
    assert await story(world, claimed.id) == [
        ("queued", None, None),
        ("claimed", None, None),
        ("submitted", 1, None),
        ("answered", 1, first),
        ("retry", 2, "RSYSERR (0x08)"),
        ("doubt", None, "no answer came in time"),
        ("resend", None, None),
        ("claimed", None, None),
        ("submitted", 2, None),
        ("sent", None, None),
        ("answered", 2, second),
        ("receipt", 1, "stat:DELIVRD"),
        ("receipt", 2, "stat:UNDELIV"),
        ("undelivered", None, "UNKNOWN"),
        ("refunded", None, "0.0800 USD"),
        ("late_receipt", 2, "stat:DELIVRD"),
    ]
    timeline = await read(world, claimed.id)
    entries = timeline.entries
    assert {one.carrier for one in entries if one.event in {"claimed", "submitted", "doubt"}} == {"one"}
    assert [one.attempt for one in entries if one.event == "submitted"] == [0, 1]
    assert [(one.state, one.error) for one in entries if one.event == "receipt"] == [
        ("DELIVRD", "000"),
        ("UNDELIV", "000"),
    ]
    assert (timeline.message_id, timeline.batch_id) == (claimed.id, claimed.batch_id)
    assert (timeline.account_id, timeline.recipient) == (world.caller.id, claimed.recipient)
    assert (timeline.country, timeline.status, timeline.failure_reason) == ("ZW", "undelivered", "UNKNOWN")
    assert (timeline.segments, timeline.cost) == (2, Decimal("0.08"))
    assert (timeline.created_at, timeline.reference) == (claimed.created_at, None)


async def test_a_message_that_waits_says_for_what(world: World) -> None:
    claimed = await world.claim_one()
    claims = ("claimed", None, "by one, connection one/1")
    assert await story(world, claimed.id) == [("queued", None, None), claims]
    await world.settle(world.returned(claimed))
    assert (await read(world, claimed.id)).entries[-1].at is None
    assert (await story(world, claimed.id))[-1] == ("waiting", None, "for its turn")
    (claimed,) = await world.claim()
    await world.settle(world.put_off(claimed))
    assert (await story(world, claimed.id))[-1] == ("waiting", None, "for another try")
    await world.resume_due()
    (claimed,) = await world.claim()
    await world.settle(world.doubtful(claimed))
    entry = (await read(world, claimed.id)).entries[-1]
    assert (entry.event, entry.detail) == ("waiting", "for a receipt, in doubt")
    assert entry.at is not None
    assert entry.at > claimed.claimed_at


async def test_an_end_is_told_with_its_time_as_far_as_it_is_known(world: World) -> None:
    await world.send(3)
    delivered, expired, held = await world.claim(3)
    await world.settle(
        *(world.taken(one) for one in (delivered, expired, held)),
        world.reported(delivered),
        world.reported(expired, "EXPIRED"),
        refunded=(),
    )
    await world.give_up_receipts(timedelta(hours=73))
    for claimed, status in ((delivered, "delivered"), (expired, "expired")):
        *_, receipt, end = (await read(world, claimed.id)).entries
        # Without a refund, at its last receipt.
        assert (receipt.event, end.event, end.at) == ("receipt", status, receipt.at)
    end = (await read(world, held.id)).entries[-1]
    assert (end.event, end.at) == ("unconfirmed", None)


async def test_a_foreign_message_looks_exactly_like_an_unknown_one(world: World) -> None:
    claimed = await world.claim_one()
    stranger = await world.engine.open_account()
    unknown = MessageId(new_id(int(claimed.created_at.timestamp() * 1000)))
    async with world.engine.database.connection() as connection:
        own = await timelines.read_for(connection, world.caller.id, claimed.id)
        assert own == await timelines.read(connection, claimed.id)
        assert await timelines.read_for(connection, stranger.id, claimed.id) is None
        assert await timelines.read_for(connection, world.caller.id, unknown) is None
        assert await timelines.read(connection, unknown) is None


async def test_a_timeline_looks_into_one_week_of_each_table(world: World) -> None:
    claimed = await world.claim_one()
    values = timelines._named(claimed.id)
    text = SQL_READ.text
    for place, name in reversed(list(enumerate(SQL_READ.names, start=1))):
        text = re.sub(rf"\${place}\b", f"'{values[name]}'", text)
    async with world.engine.database.transaction() as connection:
        await connection.execute("SET LOCAL enable_seqscan = off")
        rows = await connection.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF, COSTS OFF) {text}")
    plan = json.dumps(json.loads(rows[0][0]))
    scanned = set(re.findall(r'"Relation Name": "((?:messages|batches|parts|incidents)_\w+)"', plan))
    assert len(scanned) == 4
    assert "Seq Scan" not in plan


async def test_the_command_prints_it_for_programs_and_for_people(world: World) -> None:
    claimed = await troubled(world)
    cli, message_id = Cli(world.engine.url), write_id(MESSAGE, claimed.id)
    shown = cli.json("message", "show", message_id)
    timeline = shown.pop("timeline")
    assert shown == {
        "message_id": message_id,
        "batch_id": write_id(BATCH, claimed.batch_id),
        "account_id": write_id(ACCOUNT, world.caller.id),
        "to": claimed.recipient,
        "country": "ZW",
        "network": "econet",
        "status": "undelivered",
        "failure_reason": "UNKNOWN",
        "segments": 2,
        "cost": "0.0800",
    }
    entries = (await read(world, claimed.id)).entries
    assert [entry["event"] for entry in timeline] == [entry.event for entry in entries]
    written_at = claimed.created_at.isoformat(timespec="milliseconds")
    assert timeline[0] == {"at": written_at, "event": "queued", "detail": None}
    assert {name: timeline[3][name] for name in ("event", "carrier", "part", "attempt")} == {
        "event": "answered",
        "carrier": "one",
        "part": 1,
        "attempt": 0,
    }

    said = cli.text("message", "show", message_id)
    lines = [re.sub(r"  +", "  ", line) for line in said.splitlines()]
    assert f"  to  {claimed.recipient}" in lines
    assert "time (UTC)  what  detail" in lines
    details = [line.partition("  ")[2] for line in lines]
    assert "handed to the carrier  part 2 of 2, resend 1, one" in details
    assert "refunded  0.0800 USD" in details
    assert "secret" not in said

    assert cli.refused("message", "show", NOBODY).startswith("Error: There is no such message")
    (line,) = cli.misused(["message", "show", "42"])
    assert "'42' is not a message's id" in line
