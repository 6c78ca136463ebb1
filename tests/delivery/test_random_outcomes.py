"""Random sequences of carrier answers, receipts and timeouts keep every invariant."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypeVar
from uuid import UUID

import asyncpg
import pytest

from tests.support.delivery.engine import numbers
from tests.support.delivery.settling import WORKER, World
from tests.support.delivery.traffic import miscounted
from tumira.delivery.outcomes import Outcome
from tumira.delivery.settle import settle
from tumira.delivery.store import queue
from tumira.delivery.store.queue import ClaimedMessage, ClaimRequest
from tumira.sending import lifecycle

SHORT: Final = "Your code is 493817."
LONG: Final = "Your statement is ready. " * 8
STEPS: Final = 120

Thing = TypeVar("Thing")

STATES: Final = ("DELIVRD", "DELIVRD", "UNDELIV", "EXPIRED", "REJECTD", "ENROUTE")
# From each status, those in which a message may be found later.
LATER: Final = {
    "queued": set(lifecycle.MOVES),
    "sending": set(lifecycle.MOVES),
    "sent": {"sent", "delivered", "undelivered", "expired", "unconfirmed"},
    "unconfirmed": {"unconfirmed", "delivered", "undelivered", "expired"},
    **{status: {status} for status in ("delivered", "undelivered", "expired", "failed")},
}


@dataclass(slots=True)
class Try:
    """A claim of ours: which segments are to be submitted, and whether we have said how it ended."""

    claimed: ClaimedMessage
    attempt: int
    todo: list[int]
    # What was submitted and not answered.
    open: list[int] = field(default_factory=list)
    taken: int = 0
    closed: bool = False


class Story:
    """What happens to a few messages, step by step."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._chance = random.Random(seed)
        self._tries: list[Try] = []
        self._statuses: dict[UUID, str] = {}

    async def begin(self) -> None:
        for place, body in enumerate((SHORT, LONG, SHORT, LONG, SHORT, SHORT)):
            await self._world.send(body=body, to=numbers(3)[place % 3 : place % 3 + 1 + place // 4])

    async def step(self) -> None:
        doings = (
            (4, self._claim),
            (8, self._answer),
            (4, self._report),
            (2, self._doubt_of_the_living),
            (3, self._resume),
            (2, self._try_receipts),
            (0.3, self._time_passes),
        )
        weights = [weight for weight, _ in doings]
        (_, doing), *_ = self._chance.choices(doings, weights)
        await doing()
        await self._look()

    async def _claim(self) -> None:
        async with self._world.engine.database.transaction() as connection:
            most = self._chance.randint(1, 3)
            claimed = await queue.claim(
                connection,
                [ClaimRequest("ZW", most, 0, most, 0, 0)],
                most,
                worker=WORKER,
                bind="one/1",
                carrier_id=self._world.carrier_id,
            )
            again = [one.id for one in claimed or () if one.again]
            past = await queue.read_past_attempts(connection, again) if again else {}
        for one in claimed or ():
            before = past.get(one.id)
            taken = before.taken if before is not None else frozenset()
            todo = [number for number in range(1, one.segments + 1) if number not in taken]
            self._tries.append(
                Try(one, before.resends if before is not None else 0, todo, list(todo), len(taken))
            )

    async def _answer(self) -> None:
        outcomes: list[Outcome] = []
        for one in self._some([one for one in self._tries if one.open], 2):
            outcomes.extend(self._answer_to(one))
        await self._settle(outcomes)

    def _answer_to(self, one: Try) -> Sequence[Outcome]:
        world, claimed = self._world, one.claimed
        word = self._chance.choice(("taken", "taken", "taken", "refused", "later", "silent", "not sent"))
        if word == "taken" or one.closed:
            number = one.open.pop(0)
            one.taken += 1
            complete = one.taken >= claimed.segments
            taken = world.taken(claimed, number, attempt=one.attempt, complete=complete, late=one.closed)
            one.closed = one.closed or complete
            return [taken]
        one.closed = True
        again = claimed.again or one.taken > 0
        ends: dict[str, Outcome] = {
            "refused": world.refused(claimed, doubted=one.attempt > 0),
            "later": world.put_off(claimed),
            "silent": world.doubtful(claimed),
            "not sent": world.returned(claimed, again=again),
        }
        if word != "silent":
            one.open.clear()
        return [ends[word]]

    async def _report(self) -> None:
        parts = await self._world.rows("SELECT message_id, number, attempt FROM parts ORDER BY 1, 2, 3")
        tries = {(one.claimed.id, one.attempt): one for one in self._tries}
        reports = []
        for message_id, number, attempt in self._some(parts, 3):
            one = tries[message_id, attempt]
            reports.append(self._world.reported(one.claimed, self._state(), number, attempt))
        await self._settle(reports)

    async def _doubt_of_the_living(self) -> None:
        doubted = self._some([one for one in self._tries if not one.closed], 1)
        await self._settle([self._world.doubtful(one.claimed) for one in doubted])

    async def _resume(self) -> None:
        await self._world.resume_due()

    async def _try_receipts(self) -> None:
        for one in self._some([one for one in self._tries if one.open], 1):
            number = self._chance.choice(one.open)
            await self._world.keep(self._world.receipt(one.claimed, self._state(), number, one.attempt))
        await self._world.try_unmatched()

    async def _time_passes(self) -> None:
        world = self._world
        day, days = timedelta(hours=25), timedelta(hours=73)
        word = self._chance.randrange(4)
        if word == 0:
            await world.expire_waiting(day, self._chance.choice(((), ("ZW",))))
        elif word == 1:
            await world.resume_due(day)
        elif word == 2:
            await world.give_up_receipts(days)
        else:
            await world.fail_unroutable()

    async def _settle(self, outcomes: Sequence[Outcome]) -> None:
        if not outcomes:
            return
        try:
            await self._world.settle(*outcomes)
        except asyncpg.UniqueViolationError:
            # A segment that was learnt of from its receipt before; the recorder tries again like this.
            async with self._world.engine.database.transaction() as connection:
                await settle(connection, outcomes, worker=WORKER, again=True)

    async def _look(self) -> None:
        rows = await self._world.rows("SELECT id, status, refunded_at IS NOT NULL AS refunded FROM messages")
        doubted = {
            row["message_id"]
            for row in await self._world.rows("SELECT message_id FROM incidents WHERE kind = 'resend'")
        }
        for identifier, status, refunded in rows:
            before = self._statuses.get(identifier, "queued")
            assert status in LATER[before], (before, status)
            assert not (identifier in doubted and status == "failed")
            assert not (refunded and status in {"delivered", "unconfirmed"})
            self._statuses[identifier] = status

    def _state(self) -> str:
        return self._chance.choice(STATES)

    def _some(self, things: Sequence[Thing], most: int) -> Sequence[Thing]:
        return self._chance.sample(things, min(len(things), self._chance.randint(1, most)))


@pytest.mark.parametrize("seed", range(5))
async def test_every_promise_holds_after_every_step_of_a_random_story(world: World, seed: int) -> None:
    story = Story(world, seed)
    await story.begin()
    for step in range(STEPS):
        await story.step()
        if step % 10 == 9:
            assert await world.engine.audit() == [], (seed, step)
            assert await miscounted(world) == [], (seed, step)
            await world.events()
