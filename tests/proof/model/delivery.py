"""The model of one message between claim and settlement: two workers, one bind, one carrier.

A step of the model is one commit, one packet, or one fault. Packets arrive at any later time or never, so
the order of everything that is not a commit is free. Time is what it is in the product: a worker believes in
its lease for half of its length, and the others wait for the whole of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tests.proof.model.explore import Step

NOBODY: Final = -1
# A worker that was declared dead before the message was claimed for it.
GONE: Final = 2
WORKERS: Final = (0, 1)

FINAL: Final = frozenset({"delivered", "undelivered", "failed", "expired", "unconfirmed"})
REFUNDED: Final = frozenset({"undelivered", "failed", "expired"})
# What may follow a status; written down here once more, so that the table of the product is checked too.
_ONWARD: Final[Mapping[str, frozenset[str]]] = {
    "queued": frozenset({"sending", "sent", "delivered", "undelivered", "failed", "expired", "unconfirmed"}),
    "sending": frozenset({"queued", "sent", "delivered", "undelivered", "failed", "unconfirmed"}),
    "sent": frozenset({"delivered", "undelivered", "unconfirmed"}),
    "unconfirmed": frozenset({"delivered", "undelivered"}),
    "delivered": frozenset(),
    "undelivered": frozenset(),
    "failed": frozenset(),
    "expired": frozenset(),
}

ONE_HAND_OVER: Final = "A message is submitted once for each claim, and again only after a recorded resend"
CLAIM_FIRST: Final = "A worker submits nothing that waits elsewhere or that another has claimed"
REFUND_ONCE: Final = "A message is refunded once, exactly if it did not arrive"
NOT_TAKEN: Final = "A message that a carrier took is neither failed nor expired"
NO_WAY_BACK: Final = "A status never goes back"
ONE_PLACE: Final = "An unfinished message waits in exactly one place"
PROVEN: Final = "A message is delivered only if a carrier took it"
HEARD: Final = "A message whose receipt is kept is not sent again"
FEW_RESENDS: Final = "A message is sent again at most as often as the limit says"


class Worker(NamedTuple):
    """A process: what it holds of the message, and how long ago it renewed its lease."""

    alive: bool = True
    # Listed in `workers`; the others delete it when they declare it dead.
    listed: bool = True
    # fresh: it may submit. half: it may not any more. stale: others may declare it dead.
    beat: str = "fresh"
    # none, unsure (the commit of its claim is unknown), held, submitted, or the answer: ok, busy, refused,
    # lost.
    memory: str = "none"
    # Submitted and not at the carrier yet.
    outbound: bool = False


class State(NamedTuple):
    status: str = "queued"
    # queue, in_flight, retries, doubts, or none.
    place: str = "queue"
    owner: int = NOBODY
    lease: int = NOBODY
    workers: tuple[Worker, Worker] = (Worker(), Worker())
    # The carrier's message id is recorded.
    known: bool = False
    doubted: bool = False
    resends: int = 0
    retries: int = 0
    refunds: int = 0
    # How often the carrier took it.
    taken: int = 0
    # Receipts that the carrier will send, that are on their way, and that matched nothing yet.
    due: str = ""
    arriving: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    # The worker for which the message was claimed with its accept, until it came there; and whether it may
    # come: not if it was lost on its way, nor if that worker has lost its bind or its life since.
    coming_to: int = NOBODY
    may_come: bool = False
    # The accept may still claim it.
    is_new: bool = True
    # Faults that may still happen.
    kills: int = 2
    cuts: int = 1


class Limits(NamedTuple):
    kills: int
    cuts: int
    resends: int
    retries: int
    # How many receipts of the carrier may be on their way.
    receipts: int


SMALL: Final = Limits(kills=1, cuts=0, resends=1, retries=0, receipts=1)
MIDDLE: Final = Limits(kills=1, cuts=1, resends=1, retries=1, receipts=2)
LARGE: Final = Limits(kills=2, cuts=1, resends=2, retries=1, receipts=2)


class DeliveryModel:
    """The engine as it is, or with one of the faults in `TWINS`."""

    # Each action, and the function of the product that does it; None for what the world does.
    functions: Final[Mapping[str, str | None]] = {
        "lease": "tumira.delivery.store.binds.lease",
        "beat": "tumira.delivery.supervisor.Supervisor._renew_leases",
        "claim": "tumira.delivery.store.queue.claim",
        "claim with the accept": "tumira.sending.direct.claims.ClaimGroup.claim",
        "the message comes": "tumira.delivery.direct_offers.DirectOffers.took",
        "give it to the queue": "tumira.delivery.follow_up.give_back_claims",
        "claim, commit unknown": "tumira.delivery.dispatcher.Dispatcher._commit",
        "make sure of the claim": "tumira.delivery.dispatcher.Dispatcher._make_sure",
        "find a lost claim": "tumira.delivery.supervisor.Supervisor._find_lost_claims",
        "find the claim of a worker that is gone": "tumira.delivery.store.waiting.adopt_orphans",
        "submit": "tumira.delivery.sender.Sender.take",
        "record": "tumira.delivery.settle.settle",
        "record, commit unknown": "tumira.delivery.recorder.Recorder._record_again",
        "declare dead": "tumira.delivery.follow_up.take_over_from_dead",
        "retry": "tumira.delivery.follow_up.resume_due",
        "end the doubt": "tumira.delivery.follow_up.resume_due",
        "expire": "tumira.delivery.follow_up.expire",
        "settle the receipt": "tumira.delivery.recorder.Recorder.receive",
        "keep the receipt": "tumira.delivery.store.receipts.insert_unmatched",
        "match the kept receipt": "tumira.delivery.follow_up.retry_unmatched_receipts",
        "stop waiting for a receipt": "tumira.delivery.follow_up.give_up_receipts",
        "time passes": None,
        "the carrier takes it": None,
        "the carrier is busy": None,
        "the carrier refuses it": None,
        "the carrier reports": None,
        "the message is lost on its way": None,
        "the connection breaks": None,
        "the worker is killed": None,
        "the worker starts": None,
    }

    def __init__(self, twin: str = "", limits: Limits = SMALL, *, in_doubt: str = "resend") -> None:
        assert not twin or twin in TWINS
        self._twin = twin
        self._limits = limits
        self._resend = in_doubt == "resend"

    def start(self) -> State:
        return State(kills=self._limits.kills, cuts=self._limits.cuts)

    def is_done(self, state: State) -> bool:
        return state.status in FINAL

    def broken(self, state: State) -> str | None:
        if state.taken > 1 + state.resends:
            return ONE_HAND_OVER
        if state.refunds != (state.status in REFUNDED):
            return REFUND_ONCE
        if state.taken and state.status in {"failed", "expired"}:
            return NOT_TAKEN
        if (state.place == "none") != (state.status == "sent" or state.status in FINAL):
            return ONE_PLACE
        if state.status == "delivered" and not state.taken:
            return PROVEN
        return FEW_RESENDS if state.resends > self._limits.resends else None

    def steps(self, state: State) -> Iterator[Step[State]]:
        for number in WORKERS:
            worker = state.workers[number]
            yield from self._world(state, number, worker)
            if worker.alive:
                yield from self._leases(state, number, worker)
                yield from self._claims(state, number, worker)
                yield from self._answers(state, number, worker)
        if any(worker.alive for worker in state.workers):
            yield from self._maintenance(state)
            yield from self._receipts(state)

    def same(self, state: State) -> State:
        """Return one of all the states that differ in nothing that matters."""
        settled = state.status in FINAL and state.status != "unconfirmed"
        if settled and self._twin != "refunds every receipt":
            state = state._replace(due="", arriving=(), kept=())
        is_held = any(one.memory != "none" or one.outbound for one in state.workers)
        may_be_held = state.coming_to != NOBODY and self._twin in _LATE_TWINS
        if state.place == "none" and not (is_held or may_be_held):
            # Nothing will be claimed or submitted any more, whoever is alive.
            return state._replace(
                workers=(Worker(), Worker()), lease=NOBODY, coming_to=NOBODY, may_come=False
            )
        first, second = state.workers
        # The two workers are alike.
        if second < first:
            owner, lease, coming_to = (
                1 - one if one in WORKERS else one for one in (state.owner, state.lease, state.coming_to)
            )
            state = state._replace(workers=(second, first), owner=owner, lease=lease, coming_to=coming_to)
        return state

    def _step(self, action: str, before: State, after: State, breaks: str | None = None) -> Step[State]:
        if after.status != before.status and after.status not in _ONWARD[before.status]:
            breaks = breaks or NO_WAY_BACK
        return Step(action, after, breaks)

    # Faults, and the carrier.

    def _world(self, state: State, number: int, worker: Worker) -> Iterator[Step[State]]:
        if worker.listed and worker.beat != "stale":
            later = "half" if worker.beat == "fresh" else "stale"
            # For a living worker this is a fault: it stopped, or could not reach the database.
            yield Step("time passes", _set(state, number, worker, beat=later), is_fault=worker.alive)
        if worker.alive and state.kills and state.workers[1 - number].alive:
            killed = worker._replace(alive=False, memory="none")
            yield Step(
                "the worker is killed",
                _part(_put(state, number, killed)._replace(kills=state.kills - 1), number),
                is_fault=True,
            )
        if not worker.alive and not worker.listed:
            yield Step("the worker starts", _put(state, number, Worker(beat="half")))
        if worker.outbound:
            yield from self._carrier(state, number, worker._replace(outbound=False))
        if state.cuts and worker.alive and worker.memory == "submitted":
            # What is on its way may still arrive.
            cut = worker._replace(memory="lost")
            yield Step(
                "the connection breaks", _put(state, number, cut)._replace(cuts=state.cuts - 1), is_fault=True
            )

    def _carrier(self, state: State, number: int, worker: Worker) -> Iterator[Step[State]]:
        """Take or refuse what arrived; the answer reaches the worker, or is lost with its connection."""
        ends = (state.due,) if state.due else ("delivered", "undelivered")
        listens = worker.memory == "submitted"
        for answer in ("ok", "busy", "refused", "lost") if listens else ("lost",):
            heard = _set(state, number, worker, memory=answer) if listens else _put(state, number, worker)
            if answer in {"ok", "lost"} and (answer == "ok" or not listens or state.cuts):
                cuts = state.cuts - (listens and answer == "lost")
                for end in ends:
                    yield Step(
                        "the carrier takes it", heard._replace(taken=state.taken + 1, due=end, cuts=cuts)
                    )
            elif answer == "busy" and state.retries < self._limits.retries:
                yield Step("the carrier is busy", heard)
            elif answer == "refused":
                yield Step("the carrier refuses it", heard)

    # Leases.

    def _leases(self, state: State, number: int, worker: Worker) -> Iterator[Step[State]]:
        if state.lease == number:
            yield Step("beat", _set(state, number, worker, beat="fresh", listed=True))
        else:
            # Its bind is gone, so it disconnects and forgets what it held.
            after = _set(state, number, worker, beat="fresh", listed=True, memory="none")
            yield Step("beat", _part(after, number))
        holder = None if state.lease == NOBODY else state.workers[state.lease]
        free = holder is None or holder.beat == "stale"
        if worker.listed and worker.beat == "fresh" and free and worker.memory == "none":
            yield Step("lease", state._replace(lease=number))
        other = 1 - number
        is_late = state.workers[other].beat == "stale" or self._twin == "declares dead too early"
        if state.workers[other].listed and is_late:
            yield self._step("declare dead", state, self._declare_dead(state, other))

    def _declare_dead(self, state: State, dead: int) -> State:
        gone = _set(state, dead, state.workers[dead], listed=False)
        if gone.lease == dead:
            gone = gone._replace(lease=NOBODY)
        if gone.place != "in_flight" or gone.owner != dead:
            return gone
        if self._twin == "puts a dead worker's claims back into the queue":
            return gone._replace(place="queue", status="queued", owner=NOBODY)
        return gone._replace(place="doubts", owner=NOBODY, doubted=True)

    # Claim and submit.

    def _claims(self, state: State, number: int, worker: Worker) -> Iterator[Step[State]]:
        mine = state.place == "in_flight" and state.owner == number
        yield from self._direct_claims(state, number, worker)
        if (
            state.place == "queue"
            and state.lease == number
            and worker.memory == "none"
            and worker.beat == "fresh"
        ):
            claimed = state._replace(place="in_flight", owner=number, status="sending", is_new=False)
            yield self._step("claim", state, _set(claimed, number, worker, memory="held"))
            for unknown in (claimed, state):
                after = _set(unknown, number, worker, memory="unsure")
                yield self._step("claim, commit unknown", state, after)
        if worker.memory == "unsure":
            yield Step(
                "make sure of the claim", _set(state, number, worker, memory="held" if mine else "none")
            )
        if mine and worker.memory == "none" and self._twin != "forgets lost claims":
            if state.coming_to == number:
                # It never came, and is refused if it still does.
                after = state._replace(place="queue", status="queued", owner=NOBODY)
                if self._twin != "takes a message that it gave to the queue":
                    after = after._replace(coming_to=NOBODY, may_come=False)
                yield self._step("give it to the queue", state, after)
            else:
                after = state._replace(place="doubts", owner=NOBODY, doubted=True)
                yield Step("find a lost claim", after)
        may_submit = {"held", "unsure"} if self._twin == "submits before the commit" else {"held"}
        believes = worker.beat == "fresh" or self._twin == "believes in its lease for too long"
        if worker.memory in may_submit and believes and not worker.outbound:
            after = _set(state, number, worker, memory="submitted", outbound=True)
            # An earlier hand-over may have been proven since; then this is the resend that was recorded.
            yield Step("submit", after, None if mine or state.place == "none" else CLAIM_FIRST)

    def _direct_claims(self, state: State, number: int, worker: Worker) -> Iterator[Step[State]]:
        """Claim a message for a bind as it is accepted, and pass it on."""
        if state.is_new and state.place == "queue" and worker.memory == "none":
            claimed = state._replace(place="in_flight", owner=number, status="sending", is_new=False)
            # The web process may believe an old offer, of a worker that has lost its bind since.
            comes = state.lease == number and worker.alive
            if worker.listed:
                coming = claimed._replace(coming_to=number, may_come=comes)
                yield self._step("claim with the accept", state, coming)
            if state.kills < self._limits.kills:
                yield self._step("claim with the accept", state, claimed._replace(owner=GONE))
            if self._twin == "passes a message on before the commit" and state.lease == number:
                # The commit fails, and the caller tries again: now it goes into the queue.
                early = _set(state, number, worker, memory="held")
                yield Step("claim with the accept", early._replace(is_new=False))
        if state.coming_to == number and state.may_come:
            lost = state._replace(may_come=False)
            yield Step("the message is lost on its way", lost, is_fault=True)
            if worker.memory == "none" and worker.alive:
                come = _set(state, number, worker, memory="held")
                if self._twin != "forgets that a message came":
                    come = come._replace(coming_to=NOBODY)
                yield Step("the message comes", come._replace(may_come=False))

    # The carrier's answer.

    def _answers(self, state: State, number: int, worker: Worker) -> Iterator[Step[State]]:
        if worker.memory in {"ok", "busy", "refused", "lost"}:
            written = self._write(state, number, worker.memory)
            yield self._step("record", state, _set(written, number, worker, memory="none"))
            if written != state:
                yield self._step("record, commit unknown", state, written)

    def _write(self, state: State, number: int, answer: str) -> State:
        mine = state.place == "in_flight" and state.owner == number
        if answer == "ok":
            # The carrier has it, whoever has claimed it since.
            known = state._replace(known=True)
            if self._twin == "records a late answer over a final status":
                return known._replace(status="sent", place="none", owner=NOBODY)
            if state.status in {"queued", "sending"}:
                return known._replace(status="sent", place="none", owner=NOBODY)
            return known
        if not mine and self._twin != "records answers for claims that it lost":
            return state
        if answer == "busy":
            return state._replace(place="retries", owner=NOBODY, status="queued", retries=state.retries + 1)
        if answer == "lost":
            return state._replace(place="doubts", owner=NOBODY, doubted=True)
        return self._end(state, "failed")

    def _end(self, state: State, status: str) -> State:
        """End a message that no carrier has, as far as we know."""
        if state.doubted and self._twin != "fails a message that was in doubt":
            return state._replace(status="unconfirmed", place="none", owner=NOBODY)
        return state._replace(status=status, place="none", owner=NOBODY, refunds=state.refunds + 1)

    # Maintenance.

    def _maintenance(self, state: State) -> Iterator[Step[State]]:
        if state.owner == GONE:
            after = state._replace(place="doubts", owner=NOBODY, doubted=True)
            yield Step("find the claim of a worker that is gone", after)
        if state.place == "retries":
            yield Step("retry", state._replace(place="queue"))
        if state.place == "doubts" and (
            not state.kept or self._twin == "resends without looking for receipts"
        ):
            if self._resend and state.resends < self._limits.resends:
                again = state._replace(place="queue", status="queued", resends=state.resends + 1)
                yield self._step("end the doubt", state, again, HEARD if state.kept else None)
            else:
                yield self._step("end the doubt", state, state._replace(place="none", status="unconfirmed"))
        waits = {"queue", "retries"}
        if self._twin == "expires what is in flight":
            waits = {"queue", "retries", "in_flight"}
        if state.place in waits:
            yield self._step("expire", state, self._end(state, "expired"))
        if state.status == "sent":
            yield self._step("stop waiting for a receipt", state, state._replace(status="unconfirmed"))

    # Receipts.

    def _receipts(self, state: State) -> Iterator[Step[State]]:
        if state.due and len(state.arriving) + len(state.kept) < self._limits.receipts:
            yield Step("the carrier reports", state._replace(arriving=(*state.arriving, state.due)))
        can_match = state.known or state.doubted
        if state.arriving:
            rest = state.arriving[1:]
            if can_match:
                after = self._settle(state, state.arriving[0])._replace(arriving=rest)
                yield self._step("settle the receipt", state, after)
            else:
                kept = state._replace(arriving=rest, kept=(*state.kept, state.arriving[0]))
                yield Step("keep the receipt", kept)
        if state.kept and can_match:
            after = self._settle(state, state.kept[0])._replace(kept=state.kept[1:])
            yield self._step("match the kept receipt", state, after)

    def _settle(self, state: State, end: str) -> State:
        final = state.status in FINAL and state.status != "unconfirmed"
        if final and self._twin != "refunds every receipt":
            return state
        refunds = state.refunds + (end == "undelivered")
        return state._replace(status=end, place="none", owner=NOBODY, refunds=refunds)


TWINS: Final[Sequence[str]] = (
    "puts a dead worker's claims back into the queue",
    "declares dead too early",
    "believes in its lease for too long",
    "submits before the commit",
    "forgets lost claims",
    "records a late answer over a final status",
    "records answers for claims that it lost",
    "fails a message that was in doubt",
    "expires what is in flight",
    "refunds every receipt",
    "resends without looking for receipts",
    "passes a message on before the commit",
    "takes a message that it gave to the queue",
    "forgets that a message came",
)
# In these a message may still come when all is over.
_LATE_TWINS: Final = frozenset({"takes a message that it gave to the queue"})


def _part(state: State, number: int) -> State:
    """Lose what is on its way to a worker: its bind has another lease, or the worker is gone."""
    return state._replace(may_come=False) if state.coming_to == number else state


def _put(state: State, number: int, worker: Worker) -> State:
    workers = (worker, state.workers[1]) if number == 0 else (state.workers[0], worker)
    return state._replace(workers=workers)


def _set(state: State, number: int, worker: Worker, **changes: object) -> State:
    return _put(state, number, worker._replace(**changes))  # type: ignore[arg-type]
