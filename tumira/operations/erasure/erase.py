"""Erasure of a phone number on its owner's request.

The walk through all tables that may hold it goes from stage to stage, in small steps. A step is one
transaction, which also stores the position of the walk, so that it can be interrupted anywhere: a maintenance
task of the worker continues it. Messages under way need their number and are waited for; then the walk is
repeated.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Final

from tumira import audit_log
from tumira.accounts import store as accounts
from tumira.audit_log import Actor
from tumira.core.errors import OperatorError
from tumira.operations.erasure import requests as erasures
from tumira.operations.erasure.requests import Erasure
from tumira.operations.erasure.steps import OTHERS, STEPS, Stage, Walk
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import Subject, read_subject
from tumira.pricing.store import get_tariff

NOTE_MAX: Final = 500
# Between two walks, while messages are under way.
PAUSE: Final = timedelta(hours=1)
# Far more than a walk through the largest tables needs.
STEPS_MAX: Final = 10_000_000


async def read_number(database: Database, text: str) -> Subject:
    async with database.connection() as connection:
        subject = read_subject(await get_tariff(connection), text)
    if subject is None:
        raise OperatorError(
            "This is no number of a country that we send to: write it with its country code, like "
            "+263771200001."
        )
    return subject


async def erase_number(
    database: Database, subject: Subject, *, note: str, actor: Actor, tell: Callable[[Erasure], None]
) -> Erasure:
    """Erase a number as far as possible now; `tell` is called after each step."""
    if not 0 < len(note) <= NOTE_MAX:
        raise OperatorError(f"Say in the note who asks, and when, in 1 to {NOTE_MAX} characters.")
    if subject.is_in(note):
        raise OperatorError("The note holds the number itself, and is kept: name the request in another way.")
    going = await _begin(database, subject, note, actor)
    for _ in range(STEPS_MAX):
        async with database.transaction() as connection:
            held = await erasures.hold(connection, going.id)
            # A worker that continues it too may have finished it.
            going = held if held.finished_at is not None else await _step(connection, held, subject)
        tell(going)
        if going.finished_at is not None or going.stage == Stage.PAUSE:
            break
    return going


async def _begin(database: Database, subject: Subject, note: str, actor: Actor) -> Erasure:
    async with database.transaction() as connection:
        begun = await erasures.insert(
            connection, subject.number, Stage.MESSAGES, actor=actor.name, note=note
        ) or await erasures.find_open(connection, subject.number)
        if begun is None:
            raise OperatorError("A worker has just finished erasing this number; ask once more to be sure.")
        await audit_log.record_by_operator(
            connection, actor, "number erased on request", f"request {begun.id}: {note}"
        )
    return begun


async def rehearse(database: Database, subject: Subject) -> Erasure:
    """Return what would be erased now: each step is made and rolled back."""
    async with database.connection() as connection:
        begun_at = await clock.read_now(connection)
    going = Erasure(0, begun_at, "", "", subject.number, Stage.MESSAGES, [], [], 0, {}, 0, None)
    for _ in range(STEPS_MAX):
        async with database.connection() as connection:
            undone = connection.transaction()
            await undone.start()
            try:
                now = await clock.read_now(connection)
                going = await _advance(connection, Walk(going, subject, now))
            finally:
                await undone.rollback()
        if going.finished_at is not None or going.stage == Stage.PAUSE:
            break
    return going


async def go_on(connection: Connection) -> int:
    """Make the next step of a request that is due, and return the number of steps."""
    held = await erasures.hold_due(connection)
    if held is None or held.number is None:
        return 0
    subject = read_subject(await get_tariff(connection), held.number)
    assert subject is not None, "destinations are never removed"
    await _step(connection, held, subject)
    return 1


async def _step(connection: Connection, held: Erasure, subject: Subject) -> Erasure:
    if held.stage == Stage.PAUSE:
        held = replace(held, stage=Stage.MESSAGES, place=[], waiting=0)
    ahead = await _advance(connection, Walk(held, subject, await clock.read_now(connection)))
    await erasures.save(connection, ahead, PAUSE if ahead.stage == Stage.PAUSE else timedelta())
    return ahead


async def _advance(connection: Connection, walk: Walk) -> Erasure:
    """Make one step, and return the position after it."""
    before = walk.erasure
    found = await STEPS[Stage(before.stage)](connection, walk)
    ahead = replace(
        before,
        place=found.place or [],
        accounts=sorted({*before.accounts, *found.accounts}),
        messages=before.messages + found.messages,
        others={
            name: count
            for name in OTHERS
            if (count := before.others.get(name, 0) + found.others.get(name, 0))
        },
        waiting=before.waiting + found.waiting,
    )
    if found.place is not None:
        return ahead
    stages = list(Stage)
    ahead = replace(ahead, stage=stages[stages.index(Stage(before.stage)) + 1])
    if ahead.stage != Stage.PAUSE or ahead.waiting:
        return ahead
    await _tell_senders(connection, ahead)
    return replace(ahead, number=None, finished_at=walk.now)


async def _tell_senders(connection: Connection, ended: Erasure) -> None:
    """Record for every account that had sent to the number that it is erased, but not which it was."""
    for account_id in ended.accounts:
        if account_id != accounts.SYSTEM:
            await audit_log.record(
                connection,
                account_id,
                Actor(ended.actor),
                "number erased",
                "a recipient asked to be forgotten; messages and amounts stay",
            )
