"""A sender and a dispatcher on a real database, with a link whose carrier is the test."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from tests.support.delivery.settling import REFUND_ALL, WORKER, World
from tumira.carriers import store as carriers
from tumira.carriers.routes.rules import Routes
from tumira.delivery.clocks import Clocks
from tumira.delivery.dispatcher import Dispatcher
from tumira.delivery.link import NO_REFERENCES, LinkListener, References
from tumira.delivery.observer import Observer
from tumira.delivery.recorder import Recorder
from tumira.delivery.responses import Action, ResponseRule
from tumira.delivery.sender import Sender
from tumira.delivery.store.queue import ClaimedMessage, PastAttempts
from tumira.delivery.store.references import SubmissionReference
from tumira.delivery.submission import Submission, SubmissionWriter
from tumira.postgres.connection import Connection

TAKEN = ResponseRule(Action.TAKEN)


class PaperLink:
    """Writes submits down; the test answers them."""

    problem: str | None = None
    response_s = 30.0
    quiet_s = 30.0
    is_up = True
    is_usable = True
    is_on_trial = False

    def __init__(self, listener: LinkListener) -> None:
        self.listener = listener
        self.submits: list[tuple[UUID, int]] = []
        self.lefts_s: list[int] = []
        self.open: dict[tuple[UUID, int], object] = {}
        self.resets: list[str] = []
        self.is_dropped = False
        self._writer = SubmissionWriter("Tumira", "gsm7")

    @property
    def outstanding(self) -> int:
        return len(self.open)

    async def register(
        self,
        _connection: Connection,
        _claimed: Sequence[ClaimedMessage],
        _past: Mapping[UUID, PastAttempts],
    ) -> References:
        return NO_REFERENCES

    def prepare(
        self, claimed: ClaimedMessage, past: PastAttempts | None, _reference: SubmissionReference | None
    ) -> Submission:
        return self._writer.prepare(claimed, past)

    def submit(self, tag: object, submission: Submission, number: int, left_s: int) -> None:
        place = (submission.claimed.id, number)
        self.submits.append(place)
        self.lefts_s.append(left_s)
        self.open[place] = tag

    def answer(self, place: tuple[UUID, int], rule: ResponseRule = TAKEN, detail: str = "") -> None:
        """Answer one submit, as a carrier that numbers the messages that it takes."""
        tag = self.open.pop(place)
        self.listener.answered(tag, rule, detail, f"{place[0].hex[-12:]}-{place[1]}-0")
        self.listener.settled()

    def reset(self, problem: str) -> None:
        self.resets.append(problem)

    def drop(self) -> None:
        self.is_dropped = True

    async def close(self, _wait_s: float) -> None:
        self.is_usable = False


@dataclass(frozen=True, slots=True)
class Line:
    """A sender with its link, its recorder and what claims for it."""

    sender: Sender
    link: PaperLink
    recorder: Recorder
    routes: Routes

    def renew(self, lease_s: float = 60.0, tps: float = 0) -> None:
        self.sender.renew(asyncio.get_running_loop().time() + lease_s, tps)

    def take(self, *claimed: ClaimedMessage, past: PastAttempts | None = None) -> None:
        self.sender.take([self.link.prepare(one, past, None) for one in claimed])


@asynccontextmanager
async def open_line(world: World) -> AsyncIterator[Line]:
    """Give a sender without a lease, for which nobody claims."""
    database = world.engine.database
    observer = Observer(database)
    recorder = Recorder(database, world.carrier_id, WORKER, observer)
    recorder.refunded = REFUND_ALL
    async with database.connection() as connection:
        active = await carriers.list_active(connection)
    carrier = next(one for one in active if one.id == world.carrier_id)
    routes = Routes()
    routes.renew(active, {carrier.id}, ["ZW", "ZA"])
    links: list[PaperLink] = []

    def open_link(listener: LinkListener) -> PaperLink:
        links.append(PaperLink(listener))
        return links[0]

    sender = Sender(carrier, 1, WORKER, recorder, observer, open_link, lambda: None)
    try:
        yield Line(sender, links[0], recorder, routes)
    finally:
        await recorder.close()


@asynccontextmanager
async def open_dispatcher(world: World, line: Line) -> AsyncIterator[Dispatcher]:
    dispatcher = Dispatcher(line.sender, WORKER, world.engine.database, Clocks(), line.routes)
    try:
        yield dispatcher
    finally:
        await dispatcher.close()
