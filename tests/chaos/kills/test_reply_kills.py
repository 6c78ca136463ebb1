"""A worker that dies at any step of a reply leaves one reply, one opt-out, one event of each and one text."""

import asyncio
from datetime import UTC, datetime
from functools import partial
from typing import Final

import pytest

from tests.support.chaos.mortal import KILLED, Mortal, fork_and_die
from tests.support.delivery.engine import numbers
from tests.support.delivery.settling import open_world
from tests.support.postgres.databases import execute
from tests.support.processes.service import run_on
from tests.support.sending.batchers import broken_promises
from tumira.accounts.store import SYSTEM
from tumira.audit_log import Actor
from tumira.core.ids import AccountId
from tumira.delivery.replies import store
from tumira.delivery.replies.handle import handle_replies
from tumira.delivery.replies.parts import ReplyPart
from tumira.postgres.pool import Database
from tumira.replies import manage
from tumira.replies.opt_outs import OptOutSettings

STEPS_MAX: Final = 200
TEXT: Final = "Your parcel 1042 is ready at our counter."
CONFIRMATION: Final = "You get no more texts from {business}."


async def begin(url: str, count: int) -> tuple[AccountId, int]:
    """Have an account write to some numbers, and confirm opt-outs from now on."""
    async with open_world(url) as world:
        to = numbers(count, start=1)
        await world.send(to=to, body=TEXT)
        for claimed in await world.claim(count):
            await world.settle(world.taken(claimed))
        rules = OptOutSettings(covers_passcodes=False, confirmation=CONFIRMATION)
        await manage.save_settings(world.engine.database, rules, actor=Actor("test"))
        return world.caller.id, world.carrier_id


async def deliver(url: str, carrier_id: int, number: str, mortal: Mortal | None = None) -> None:
    """Do what a worker does with a reply of two parts, from the carrier's connection to the event."""
    database = Database(url, connections_max=2)
    parts = [
        ReplyPart(number[1:], "33123", 0, text, 7, 2, place)
        for place, text in ((2, b"send me these"), (1, b"STOP, do not "))
    ]
    if mortal is not None:
        mortal.is_counting = True
    for part in parts:
        async with database.transaction() as connection:
            await store.insert_parts(connection, carrier_id, [(part, datetime.now(UTC), None)])
    await handle_replies(database)
    if mortal is not None:
        mortal.is_counting = False
    await database.close()


def check(url: str, account_id: AccountId, number: str, told: int) -> None:
    (reply,) = execute(url, "SELECT * FROM replies WHERE number = $1", number)
    assert (reply["text"], reply["account_id"]) == ("STOP, do not send me these", account_id)
    (opted_out,) = execute(url, "SELECT account_id FROM opt_outs WHERE number = $1", number)
    assert opted_out["account_id"] == account_id
    texts = "SELECT id FROM messages WHERE recipient = $1 AND account_id = $2"
    assert len(execute(url, texts, number, SYSTEM)) == 1
    events = execute(
        url,
        "SELECT type, count(*) AS count FROM events WHERE account_id = $1 AND data IS NOT NULL GROUP BY type",
        account_id,
    )
    counts = {row["type"]: row["count"] for row in events}
    assert counts == {"reply.received": told, "recipient.opted_out": told}


@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.long)])
def test_a_reply_is_handled_once_whenever_its_worker_dies(database_url: str, stride: int) -> None:
    account_id, carrier_id = asyncio.run(begin(database_url, STEPS_MAX // stride))
    died = 0
    for told, step in enumerate(range(1, STEPS_MAX, stride), start=1):
        number = numbers(1, start=told)[0]
        code = fork_and_die(step, partial(deliver, database_url, carrier_id, number))
        assert code in {0, KILLED}
        died += code != 0
        # The carrier got no acknowledgement, and delivers both parts again.
        asyncio.run(deliver(database_url, carrier_id, number))
        check(database_url, account_id, number, told)
        if code == 0:
            break
    else:
        raise AssertionError("no run completed")
    assert died >= 28 // stride
    assert run_on(database_url, broken_promises) == []
