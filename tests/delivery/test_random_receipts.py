"""Messages end as their carrier ended them, whatever is lost, repeated or spelt in another way.

The carrier is ours, so that the truth is known; recorder, actions and database are real. Workers are killed
in between: what they had not written is lost, and receipts that they had not acknowledged come again.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import pytest

from tests.support.delivery.engine import numbers
from tests.support.delivery.settling import REFUND_ALL, Owner, Phone, World
from tests.support.delivery.traffic import miscounted
from tumira.delivery import follow_up
from tumira.delivery.lanes import Room
from tumira.delivery.observer import Observer
from tumira.delivery.outcomes import Outcome, Taken
from tumira.delivery.receipt_rules import Receipt, key
from tumira.delivery.recorder import Recorder
from tumira.delivery.smpp.session import SmppSession
from tumira.delivery.store import binds, queue
from tumira.delivery.store.queue import ClaimedMessage, ClaimRequest
from tumira.delivery.store.settlement import NewPart
from tumira.sending import lifecycle

SHORT: Final = "Your code is 493817."
LONG: Final = "Your statement is ready. " * 8
STEPS: Final = 90
NUMBERS: Final = 4
DRAIN_S: Final = 60.0
# More rounds than it takes to send everything again three times, and to hear of it.
ROUNDS_MAX: Final = 40

SPELLINGS: Final = ("{0}", "{0:x}", "{0:X}", "{0:020}", "{0:016x}", "{0:016X}")
# What never got there is not answered.
ANSWERS: Final = ("taken", "taken", "taken", "taken", "taken", "refused", "busy", "lost")
# From each status, those in which a message may be found later.
LATER: Final = {
    "queued": set(lifecycle.MOVES),
    "sending": set(lifecycle.MOVES),
    "sent": {"sent", "delivered", "undelivered", "expired", "unconfirmed"},
    "unconfirmed": {"unconfirmed", "delivered", "undelivered", "expired"},
    **{status: {status} for status in ("delivered", "undelivered", "expired", "failed")},
}

Thing = TypeVar("Thing")


@dataclass(slots=True)
class Submission:
    """A segment that was submitted, and what the carrier did with it."""

    claimed: ClaimedMessage
    attempt: int
    number: int
    # One of ANSWERS.
    answer: str = "lost"
    identifier: int | None = None
    state: str | None = None


@dataclass(slots=True)
class Try:
    """A claim of the worker, with the answers that it waits for."""

    claimed: ClaimedMessage
    attempt: int
    taken: int
    waiting: list[Submission]
    refusals: set[str] = field(default_factory=set)
    is_closed: bool = False


class Story:
    """Messages, a carrier that says what it likes, and workers that die."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._chance = random.Random(seed)
        self._submissions: list[Submission] = []
        self._tries: list[Try] = []
        self._receipts: list[Receipt] = []
        self._phone = Phone()
        self._tokens = 0
        self._workers = 0
        self._is_calm = False
        self._has_time_passed = False
        self._statuses: dict[UUID, str] = {}
        self._recorder: Recorder

    async def begin(self) -> None:
        self._hire()
        for _ in range(2 * NUMBERS):
            await self._send()

    async def _send(self) -> None:
        body = LONG if self._chance.random() < 0.6 else SHORT
        await self._world.send(body=body, to=[self._chance.choice(numbers(NUMBERS))])

    def _hire(self) -> None:
        self._workers += 1
        database = self._world.engine.database
        self._recorder = Recorder(database, self._world.carrier_id, self._worker, Observer(database))
        self._recorder.refunded = REFUND_ALL

    @property
    def _worker(self) -> str:
        return f"worker {self._workers}"

    async def step(self) -> None:
        doings = (
            (1, self._send),
            (4, self._claim),
            (6, self._answer),
            (6, self._report),
            (2, self._give_up),
            (2, self._kill),
            (3, self._world.try_unmatched),
            (1, self._world.resume_due),
            (3, self._drain),
            (0.2, self._let_time_pass),
        )
        (_, doing), *_ = self._chance.choices(doings, [weight for weight, _ in doings])
        await doing()
        await self._look()

    async def _let_time_pass(self) -> None:
        self._has_time_passed = True
        world, day, days = self._world, timedelta(hours=25), timedelta(hours=73)
        match self._chance.randrange(4):
            case 0:
                await world.expire_waiting(day, self._chance.choice(((), ("ZW",))))
            case 1:
                await world.resume_due(day)
            case 2:
                await world.give_up_receipts(days)
            case _:
                await world.fail_unroutable()

    async def _look(self) -> None:
        for row in await self._world.rows("SELECT * FROM batched"):
            before = self._statuses.get(row["id"], "queued")
            assert row["status"] in LATER[before], (before, row["status"])
            assert not (row["refunded_at"] and row["status"] in {"delivered", "unconfirmed"})
            self._statuses[row["id"]] = row["status"]

    async def _drain(self) -> None:
        self._recorder.check()
        await self._recorder.drain(DRAIN_S)

    async def _claim(self) -> None:
        async with self._world.engine.database.transaction() as connection:
            claimed = await queue.claim(
                connection,
                [ClaimRequest("ZW", 3, 0, 3, 0, 0)],
                Room(3, 0, 3),
                worker=self._worker,
                bind="one/1",
                carrier_id=self._world.carrier_id,
            )
            again = [one.id for one in claimed or () if one.again]
            past = await queue.read_past_attempts(connection, again) if again else {}
        for one in claimed or ():
            if not self._is_calm and self._chance.random() < 0.1:
                self._put(self._world.returned(one, again=one.again))
                continue
            before = past.get(one.id)
            known = before.taken if before is not None else frozenset()
            attempt = before.resends if before is not None else 0
            todo = [number for number in range(1, one.segments + 1) if number not in known]
            waiting = [self._submit(Submission(one, attempt, number)) for number in todo]
            made = Try(one, attempt, len(known), waiting)
            self._tries.append(made)
            if not todo:
                self._close(made)

    def _submit(self, submission: Submission) -> Submission:
        self._submissions.append(submission)
        submission.answer = "taken" if self._is_calm else self._chance.choice(ANSWERS)
        if submission.answer == "taken":
            submission.identifier = self._chance.getrandbits(48) + 2**40
            submission.state = self._chance.choice(("DELIVRD", "DELIVRD", "DELIVRD", "UNDELIV"))
            self._tell(submission)
        return submission

    def _tell(self, submission: Submission) -> None:
        states = ["ENROUTE"] * self._chance.randint(0, 1)
        states += [submission.state or ""] * self._chance.randint(1, 3)
        whole = submission.claimed.recipient[1:]
        for state in states:
            written = self._chance.choice((whole, whole, f"00{whole}", f"0{whole[3:]}"))
            identifier = self._spell(submission)
            self._receipts.append(Receipt(identifier, written, state, None, f"stat:{state}"))

    def _spell(self, submission: Submission) -> str:
        return self._chance.choice(SPELLINGS).format(submission.identifier)

    async def _answer(self) -> None:
        for one in self._some([one for one in self._tries if one.waiting], 3):
            self._answer_to(one, one.waiting.pop(self._chance.randrange(len(one.waiting))))

    def _answer_to(self, one: Try, submission: Submission) -> None:
        if submission.answer == "lost":
            one.waiting.append(submission)
            return
        if submission.answer != "taken":
            one.refusals.add(submission.answer)
        else:
            one.taken += 1
            self._put(self._taken(one, submission), one.claimed.recipient)
        if not one.waiting:
            self._close(one)

    def _taken(self, one: Try, submission: Submission) -> Taken:
        now = datetime.now(UTC)
        reference = self._spell(submission)
        part = NewPart(
            one.claimed.id,
            submission.number,
            one.attempt,
            self._world.carrier_id,
            None,
            reference,
            key(reference),
            one.claimed.claimed_at,
            now,
            now,
        )
        claimed = one.claimed if one.claimed.segments == 1 else None
        return Taken(one.claimed.id, part, one.taken >= one.claimed.segments, one.is_closed, claimed)

    def _close(self, one: Try) -> None:
        if one.is_closed:
            return
        one.is_closed = True
        if one.waiting:
            self._put(self._world.doubtful(one.claimed))
        elif "refused" in one.refusals:
            self._put(self._world.refused(one.claimed, doubted=one.attempt > 0))
        elif one.refusals:
            self._put(self._world.put_off(one.claimed))

    def _put(self, outcome: Outcome, recipient: str = "") -> None:
        self._recorder.put(outcome, recipient, Owner())

    async def _give_up(self) -> None:
        for one in self._some([one for one in self._tries if not one.is_closed], 2):
            self._close(one)

    async def _report(self) -> None:
        for receipt in self._some(self._receipts, 4):
            self._receipts.remove(receipt)
            self._tokens += 1
            self._phone.unacknowledged[self._tokens] = receipt
            self._recorder.receive(
                receipt, datetime.now(UTC), cast("SmppSession", self._phone), cast("object", self._tokens)
            )

    async def _kill(self) -> None:
        dead = self._worker
        await self._recorder.close()
        self._receipts.extend(self._phone.unacknowledged.values())
        self._phone = Phone()
        self._tries.clear()
        self._hire()
        async with self._world.engine.database.transaction() as connection:
            await binds.heartbeat(connection, dead, 10)
            await connection.execute("UPDATE workers SET seen_at = 'epoch' WHERE id = $1", dead)
            await follow_up.take_over_from_dead(connection, self._world.settings, 10)

    async def end(self) -> None:
        self._is_calm = True
        for _ in range(ROUNDS_MAX):
            for one in list(self._tries):
                while any(two.answer != "lost" for two in one.waiting):
                    self._answer_to(one, one.waiting.pop(0))
                self._close(one)
            while self._receipts:
                await self._report()
            await self._drain()
            await self._world.try_unmatched()
            await self._world.resume_due()
            await self._claim()
            if not await self._world.rows(
                "SELECT message_id FROM queue UNION ALL SELECT message_id FROM in_flight"
                " UNION ALL SELECT message_id FROM retries"
            ):
                break
        await self._drain()
        await self._world.try_unmatched()
        await self._recorder.close()

    async def check(self) -> Counter[str]:
        rows = await self._world.rows("SELECT * FROM batched")
        doubted = {
            row["message_id"]
            for row in await self._world.rows("SELECT message_id FROM incidents WHERE kind = 'doubt'")
        }
        for row in rows:
            own = [one for one in self._submissions if one.claimed.id == row["id"]]
            self._check_end(row, own, was_doubted=row["id"] in doubted)
        parts = await self._world.rows("SELECT message_id, number, attempt, carrier_ref FROM parts")
        given = {one.identifier: one.claimed.recipient for one in self._submissions}
        identifiers = Counter(self._identify(row["carrier_ref"], given) for row in parts)
        assert max(identifiers.values()) == 1, identifiers
        for row in parts:
            recipient = self._recipient(row["message_id"])
            assert given[self._identify(row["carrier_ref"], given)] == recipient
        return Counter(row["status"] for row in rows)

    def _check_end(self, row: Any, own: Sequence[Submission], *, was_doubted: bool) -> None:
        delivered = {one.number for one in own if one.state == "DELIVRD"}
        match row["status"]:
            case "delivered":
                assert delivered == set(range(1, row["segments"] + 1)), own
                assert row["delivered_at"] > row["created_at"]
            case "undelivered":
                assert any(one.state == "UNDELIV" for one in own), own
            case "failed" | "expired":
                assert self._has_time_passed or any(one.answer == "refused" for one in own), own
                assert not was_doubted
            case status:
                # Never `sent`: all its receipts have come.
                assert (status, was_doubted) == ("unconfirmed", True), own

    @staticmethod
    def _identify(carrier_ref: str, given: dict[int | None, str]) -> int:
        numbers = {int(carrier_ref, base) for base in (10, 16) if base == 16 or carrier_ref.isdecimal()}
        (found,) = numbers & given.keys()
        return found

    def _recipient(self, message_id: UUID) -> str:
        return next(one.claimed.recipient for one in self._submissions if one.claimed.id == message_id)

    def _some(self, things: Sequence[Thing], most: int) -> Sequence[Thing]:
        return self._chance.sample(things, min(len(things), self._chance.randint(1, most)))


async def run(world: World, seed: int) -> Counter[str]:
    await world.rows(
        "CREATE VIEW batched AS SELECT m.id, m.status, m.segments, b.created_at, m.delivered_at,"
        " m.refunded_at FROM messages m JOIN batches b ON b.id = m.batch_id"
    )
    story = Story(world, seed)
    await story.begin()
    for step in range(STEPS):
        await story.step()
        if step % 30 == 0:
            assert await world.engine.audit() == [], (seed, step)
    await story.end()
    ended = await story.check()
    assert await world.engine.audit() == []
    assert await miscounted(world) == []
    return ended


@pytest.mark.parametrize("seed", range(1))
async def test_every_message_ends_as_its_carrier_ended_it(world: World, seed: int) -> None:
    ended = await run(world, seed)
    assert ended["delivered"] > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, *range(1000, 1020)])
async def test_every_message_ends_as_its_carrier_ended_it_many_times(world: World, seed: int) -> None:
    await run(world, seed)
