"""Replies on a database: stored once, joined, matched with an account, and acted upon."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from unittest.mock import patch

import asyncpg
import pytest
from msgspec import structs

from tests.support.delivery.settling import World
from tumira.accounts.store import SYSTEM
from tumira.audit_log import Actor
from tumira.delivery.replies import handle, receive, store
from tumira.delivery.replies.handle import handle_replies
from tumira.delivery.replies.parts import ReplyPart
from tumira.delivery.replies.receive import ReplyRecorder, store_replies
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.replies import manage
from tumira.replies.opt_outs import OptOutSettings

NUMBER: Final = "+263771200000"
DIGITS: Final = NUMBER[1:]
TEXT: Final = "Your parcel 1042 is ready at our counter."
ACTOR: Final = Actor("test")
TASKS: Final = {task.name: task for task in MAINTENANCE_TASKS}


def part(text: str, number: str = DIGITS, data_coding: int | None = 0, **fields: Any) -> ReplyPart:
    return ReplyPart(number, "33123", data_coding, text.encode(), **fields)


def long_reply(*texts: str, **fields: Any) -> Sequence[ReplyPart]:
    return [
        part(text, reference=7, total=len(texts), part=place, **fields)
        for place, text in enumerate(texts, start=1)
    ]


async def deliver(
    world: World, *parts: ReplyPart, at: datetime | None = None, sure_at: datetime | None = None
) -> int:
    async with world.engine.database.transaction() as connection:
        received_at = at or datetime.now(UTC)
        return await store.insert_parts(
            connection, world.carrier_id, [(one, received_at, sure_at) for one in parts]
        )


async def handled(world: World) -> list[asyncpg.Record]:
    await handle_replies(world.engine.database)
    return await world.rows("SELECT * FROM replies ORDER BY id")


async def hand_over(world: World, to: str = NUMBER) -> None:
    await world.send(body=TEXT, to=[to])
    (claimed,) = await world.claim()
    await world.settle(world.taken(claimed))


class Phone:
    """The carrier's end of a connection, of which only the acknowledgements matter."""

    def __init__(self) -> None:
        self.acknowledged: list[object] = []
        self.ended = False

    def acknowledge(self, tokens: Sequence[object]) -> None:
        self.acknowledged.extend(tokens)


async def test_a_reply_finds_the_account_that_wrote_last(world: World) -> None:
    await hand_over(world)
    other = await world.engine.open_account()
    await deliver(world, part("Thanks"))
    (first,) = await handled(world)
    assert (first["account_id"], first["text"], first["number"]) == (world.caller.id, "Thanks", NUMBER)
    assert first["message_id"] is not None
    await world.engine.send(other, [NUMBER], TEXT)
    # Accepted, but not handed over yet: the person has not seen it.
    await deliver(world, part("And now?"))
    assert [row["account_id"] for row in await handled(world)] == [world.caller.id] * 2
    (claimed,) = await world.claim()
    await world.settle(world.taken(claimed))
    await deliver(world, part("Who are you?"))
    assert (await handled(world))[-1]["account_id"] == other.id
    assert await world.events() == ["reply.received", "reply.received"]
    (told,) = await world.rows("SELECT type, data FROM events WHERE account_id = $1", other.id)
    # The event names the reply: its text and number are erased with the reply.
    assert list(json.loads(told["data"])) == ["reply_id"]


async def test_a_reply_goes_to_the_account_whose_sender_was_answered(world: World) -> None:
    await hand_over(world)
    other = await world.engine.open_account()
    await world.engine.send(other, [NUMBER], TEXT)
    (claimed,) = await world.claim()
    await world.settle(world.taken(claimed))
    await world.rows(
        "UPDATE parts SET sender = CASE WHEN message_id = $1 THEN 'Moyo Stores' ELSE '+33123' END", claimed.id
    )
    for destination in ("33123", "MOYO STORES", "27821230099"):
        one = structs.replace(part("Yes"), destination=destination)
        await deliver(world, one)
    # A number that we do not know is one that a network put in place of ours.
    found = {row["destination"]: row["account_id"] for row in await handled(world)}
    assert found == {"33123": world.caller.id, "MOYO STORES": other.id, "27821230099": other.id}


async def test_a_reply_that_answers_nothing_is_kept_for_the_operator(world: World) -> None:
    await hand_over(world)
    (other_carrier,) = await world.rows("SELECT max(id) + 1 AS id FROM carriers")
    async with world.engine.database.transaction() as connection:
        await store.insert_parts(
            connection, other_carrier["id"], [(part("through another"), datetime.now(UTC), None)]
        )
    await deliver(world, part("from a stranger", number="263771200009"))
    await deliver(world, part("from a service", number="Econet"))
    found = await handled(world)
    assert [row["account_id"] for row in found] == [None] * 3
    assert {row["number"] for row in found} == {NUMBER, "+263771200009", "Econet"}
    assert await world.events() == []


async def test_an_old_message_and_our_own_codes_are_not_answered(world: World) -> None:
    await hand_over(world)
    with patch.object(handle, "ANSWERED_WITHIN", timedelta(0)):
        await deliver(world, part("too late"))
        assert (await handled(world))[0]["account_id"] is None
    await world.rows("UPDATE messages SET account_id = $1", SYSTEM)
    await world.rows("UPDATE batches SET account_id = $1", SYSTEM)
    await deliver(world, part("to a code"))
    assert (await handled(world))[1]["account_id"] is None
    await world.rows("UPDATE messages SET account_id = $1", world.caller.id)
    await world.rows("UPDATE batches SET account_id = $1", world.caller.id)


async def test_a_national_number_is_completed_for_the_only_country_of_the_carrier(world: World) -> None:
    await hand_over(world)
    await world.rows("UPDATE carriers SET countries = '{ZW}'")
    await deliver(world, part("Yes", number="0771200000"), part("Yes", number="+263771200000"))
    assert [(row["number"], row["account_id"]) for row in await handled(world)] == [
        (NUMBER, world.caller.id)
    ] * 2


async def test_parts_are_joined_when_the_last_of_them_comes(world: World) -> None:
    await hand_over(world)
    one, two, three = long_reply("I will come ", "tomorrow at ", "ten.")
    # Somebody else with the same reference, and another text of the same person.
    other = long_reply("not ", "this", number="263771200009")
    await deliver(world, three, other[1])
    assert await handled(world) == []
    await deliver(world, one)
    assert await handled(world) == []
    await deliver(world, two, other[0])
    found = {row["number"]: row for row in await handled(world)}
    assert found[NUMBER]["text"] == "I will come tomorrow at ten."
    assert (found[NUMBER]["parts"], found[NUMBER]["total"]) == (3, 3)
    assert found["+263771200009"]["text"] == "not this"
    assert await world.rows("SELECT * FROM reply_parts WHERE reply_id IS NULL") == []


async def test_missing_parts_are_given_up_after_a_while(world: World) -> None:
    await hand_over(world)
    stop, _, end = long_reply("STOP please, ", "I do not want ", "this.")
    soon = datetime.now(UTC) - timedelta(minutes=store.GIVE_UP_MINUTES - 1)
    await deliver(world, end, stop, at=soon)
    assert await handled(world) == []
    await world.rows("UPDATE reply_parts SET received_at = received_at - interval '2 minutes'")
    (found,) = await handled(world)
    assert found["text"] == "STOP please,  […] this."
    assert (found["parts"], found["total"], found["meaning"]) == (2, 3, "stop")
    # What comes still later is a reply of its own.
    await deliver(world, long_reply("STOP please, ", "I do not want ", "this.")[1], at=soon)
    await world.rows("UPDATE reply_parts SET received_at = received_at - interval '2 minutes'")
    assert len(await handled(world)) == 2


async def test_the_same_part_counts_once_until_its_acknowledgement_is_sure(world: World) -> None:
    now = datetime.now(UTC)
    assert await deliver(world, part("Yes"), part("Yes"), at=now) == 1
    await handled(world)
    assert await deliver(world, part("Yes"), at=now + timedelta(hours=5)) == 0
    async with world.engine.database.connection() as connection:
        await store.mark_sure(connection, world.carrier_id, [part("Yes").digest])
    assert await deliver(world, part("Yes"), at=datetime.now(UTC) + timedelta(seconds=1)) == 1
    assert len(await handled(world)) == 2


async def test_two_workers_that_get_the_same_part_store_it_once(world: World) -> None:
    counts = await asyncio.gather(*(deliver(world, part("Yes"), *long_reply("a", "b")) for _ in range(8)))
    assert sorted(counts) == [0] * 7 + [3]


async def test_over_http_an_id_counts_and_else_some_minutes(world: World) -> None:
    now = datetime.now(UTC)

    async def call_back(one: ReplyPart, at: datetime) -> int:
        async with world.engine.database.transaction() as connection:
            return await store_replies(connection, world.carrier_id, [one], at)

    named = part("Yes", data_coding=None, carrier_ref="in-1")
    assert [await call_back(named, now + timedelta(hours=hours)) for hours in (0, 1)] == [1, 0]
    assert await call_back(part("Yes", data_coding=None, carrier_ref="in-2"), now) == 1
    unnamed = part("Yes", data_coding=None)
    waits = (timedelta(0), timedelta(minutes=9), timedelta(minutes=11))
    assert [await call_back(unnamed, now + wait) for wait in waits] == [1, 0, 1]


async def test_workers_that_join_at_the_same_time_make_one_reply(world: World) -> None:
    await hand_over(world)
    await deliver(world, *long_reply("one ", "two ", "three"), part("STOP"))
    await asyncio.gather(*(handle_replies(world.engine.database) for _ in range(6)))
    texts = [row["text"] for row in await world.rows("SELECT text FROM replies ORDER BY text")]
    assert texts == ["STOP", "one two three"]
    assert sorted(await world.events()) == ["recipient.opted_out", "reply.received", "reply.received"]


async def test_stop_opts_out_once_and_start_in_again(world: World) -> None:
    await hand_over(world)
    confirmation = "You get no more texts from {business}."
    await manage.save_settings(
        world.engine.database, OptOutSettings(covers_passcodes=False, confirmation=confirmation), actor=ACTOR
    )
    for text in ("stop!", "STOP", "hello", "Start", "start"):
        await deliver(world, part(text))
        await handled(world)
        if text == "STOP":
            assert len(await world.rows("SELECT * FROM opt_outs")) == 1
    assert await world.rows("SELECT * FROM opt_outs") == []
    assert await world.events() == [
        "reply.received",
        "recipient.opted_out",
        "reply.received",
        "reply.received",
        "reply.received",
        "recipient.opted_in",
        "reply.received",
    ]
    confirmed = await world.rows("SELECT body FROM batches WHERE account_id = $1", SYSTEM)
    assert [row["body"] for row in confirmed] == ["You get no more texts from Test."]


async def test_a_word_that_is_not_active_is_only_shown(world: World) -> None:
    await hand_over(world)
    await deliver(world, part("Misa"))
    (found,) = await handled(world)
    assert found["meaning"] == "maybe_stop"
    assert await world.rows("SELECT * FROM opt_outs") == []


async def test_a_reply_that_cannot_be_handled_does_not_hold_up_the_others(world: World) -> None:
    await hand_over(world)
    await deliver(world, part("first"))
    await deliver(world, part("second"))
    await world.rows(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF NEW.text = 'first' THEN RAISE EXCEPTION 'no'; END IF; RETURN NEW; END $$"
    )
    await world.rows("CREATE TRIGGER refuse BEFORE INSERT ON replies FOR EACH ROW EXECUTE FUNCTION refuse()")
    with pytest.raises(asyncpg.RaiseError):
        await handle_replies(world.engine.database)
    assert [row["text"] for row in await world.rows("SELECT text FROM replies")] == ["second"]
    await world.rows("DROP TRIGGER refuse ON replies")
    assert {row["text"] for row in await handled(world)} == {"first", "second"}


async def test_a_recorder_acknowledges_after_the_commit_and_then_is_sure(world: World) -> None:
    recorder = ReplyRecorder(world.engine.database, world.carrier_id)
    phone, fallen = Phone(), Phone()
    with patch.object(receive, "SURE_S", 0.05):
        recorder.receive(part("Yes"), datetime.now(UTC), phone, "a")  # type: ignore[arg-type]
        recorder.receive(part("No"), datetime.now(UTC), fallen, "b")  # type: ignore[arg-type]
        fallen.ended = True

        async def is_sure() -> bool:
            rows = await world.rows("SELECT FROM reply_parts WHERE sure_at IS NOT NULL")
            return len(rows) == 1

        await world.engine.until(is_sure, "no acknowledgement is sure")
    assert phone.acknowledged == ["a"]
    # Of a connection that ended nobody knows.
    (unsure,) = await world.rows("SELECT payload FROM reply_parts WHERE sure_at IS NULL")
    assert unsure["payload"] == b"No"
    await recorder.close()


async def test_texts_replies_and_parts_are_erased_in_time(world: World) -> None:
    now = datetime.now(UTC)
    for text, days in (("new", 0), ("a week old", 8), ("very old", 91)):
        await deliver(world, part(text), at=now - timedelta(days=days))
    assert len(await handled(world)) == 3
    for name in ("erase texts of replies", "forget old replies"):
        assert await run_task(world.engine.database, TASKS[name]) > 0
    left = await world.rows("SELECT text FROM replies ORDER BY id DESC")
    assert [row["text"] for row in left] == ["new", None]
    (kept,) = await world.rows("SELECT payload FROM reply_parts")
    assert kept["payload"] == b"new"
