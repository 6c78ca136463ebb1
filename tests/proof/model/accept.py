"""The model of the accept path: groups that commit ahead of the disk, one flusher, a claim, and crashes.

Two callers use the same Idempotency-Key and a third one another key; the balance covers one message. The log
of PostgreSQL is one sequence, and a crash, or a fail-over, cuts off what is not durable.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tests.proof.model.explore import Step

KEYS: Final = ("a", "a", "b")
BALANCE: Final = 1

DURABLE: Final = "A message whose caller got a 202 is stored permanently"
ONE_BILL: Final = "One Idempotency-Key is billed once"
COVERED: Final = "No balance is below zero"
BILLED: Final = "Nothing is submitted that is not stored and billed"


class Caller(NamedTuple):
    # idle, decided (its group has read and not committed), committed, answered, refused, or unknown.
    state: str = "idle"
    # What its group has read: the key was used, and what is left of the balance.
    key_used: bool = False
    left: int = 0
    # How much of the log has to be durable for its answer, and by which connection of the flusher.
    position: int = 0
    ticket: int = 0
    retries: int = 1


class State(NamedTuple):
    # Committed transactions, in order: `a` and `b` are accepts by their key, `claim a` is a claim.
    log: tuple[str, ...] = ()
    durable: int = 0
    locked: bool = False
    callers: tuple[Caller, ...] = (Caller(), Caller(), Caller())
    # The flush in progress: how much of the log it began with.
    flushing: int | None = None
    # The number of the flusher's connection.
    connection: int = 0
    handed_over: str = ""
    crashes: int = 2


class AcceptModel:
    """The accept path as it is, or with one of the faults in `TWINS`."""

    # Each action, and the function of the product that does it; None for what the world does.
    functions: Final[Mapping[str, str | None]] = {
        "lock and read": "tumira.sending.lookups.lock_and_read",
        "commit": "tumira.sending.charge.Charges.write",
        "replay": "tumira.sending.decide.Decider.decide",
        "refuse": "tumira.sending.decide.Decider.decide",
        "begin a flush": "tumira.postgres.flusher.Flusher.call_when_durable",
        "end a flush": "tumira.postgres.flusher.Flusher.call_when_durable",
        "lose the proof": "tumira.postgres.flusher.Flusher._lose",
        "claim": "tumira.delivery.store.queue.claim",
        "PostgreSQL crashes": None,
        "the caller tries again": None,
    }

    def __init__(self, twin: str = "", crashes: int = 2) -> None:
        assert not twin or twin in TWINS
        self._twin = twin
        self._crashes = crashes

    def start(self) -> State:
        return State(crashes=self._crashes)

    def same(self, state: State) -> State:
        first, second, third = state.callers
        # The first two callers are alike.
        return state._replace(callers=(second, first, third)) if second < first else state

    def is_done(self, state: State) -> bool:
        return all(one.state in {"answered", "refused", "unknown"} for one in state.callers)

    def broken(self, state: State) -> str | None:
        for key, caller in zip(KEYS, state.callers, strict=True):
            if caller.state == "answered" and key not in state.log:
                return DURABLE
        bills = [entry for entry in state.log if entry in KEYS]
        if len(set(bills)) < len(bills):
            return ONE_BILL
        if len(bills) > BALANCE:
            return COVERED
        return BILLED if state.handed_over and state.handed_over not in state.log else None

    def steps(self, state: State) -> Iterator[Step[State]]:
        for number in range(len(KEYS)):
            yield from self._call(state, number, KEYS[number], state.callers[number])
        yield from self._flush(state)
        yield from self._claim(state)
        if state.crashes:
            yield Step("PostgreSQL crashes", self._crash(state))

    def _call(self, state: State, number: int, key: str, caller: Caller) -> Iterator[Step[State]]:
        if caller.state == "idle" and (not state.locked or self._twin == "does not lock the account"):
            left = BALANCE - sum(entry in KEYS for entry in state.log)
            read = caller._replace(
                state="decided", key_used=key in state.log, left=left, ticket=state.connection
            )
            yield Step("lock and read", _put(state, number, read)._replace(locked=True))
        if caller.state == "decided":
            yield self._decide(state._replace(locked=False), number, key, caller)
        if caller.state == "committed" and caller.ticket != state.connection:
            yield Step("lose the proof", _put(state, number, caller._replace(state="unknown")))
        if caller.state == "unknown" and caller.retries:
            yield Step("the caller tries again", _put(state, number, Caller(retries=caller.retries - 1)))

    def _decide(self, state: State, number: int, key: str, caller: Caller) -> Step[State]:
        waits = caller._replace(state="committed", position=len(state.log))
        if caller.key_used:
            if self._twin == "replays an answer that is not durable":
                return Step("replay", _put(state, number, waits._replace(state="answered")))
            return Step("replay", _put(state, number, waits))
        if caller.left < 1:
            return Step("refuse", _put(state, number, caller._replace(state="refused")))
        log = (*state.log, key)
        if self._twin == "answers before the disk":
            return Step("commit", _put(state._replace(log=log), number, waits._replace(state="answered")))
        if self._twin == "passes a message on before the disk":
            state = state._replace(handed_over=key)
        return Step("commit", _put(state._replace(log=log), number, waits._replace(position=len(log))))

    def _flush(self, state: State) -> Iterator[Step[State]]:
        if state.flushing is None:
            if any(caller.state == "committed" for caller in state.callers):
                yield Step("begin a flush", state._replace(flushing=len(state.log)))
            return
        callers = tuple(self._answer(state, caller) for caller in state.callers)
        durable = max(state.durable, state.flushing)
        after = state._replace(callers=callers, durable=durable, flushing=None)
        for key, before, now in zip(KEYS, state.callers, callers, strict=True):
            # A message that was claimed with its accept is passed on with the answer.
            if now.state == "answered" and before.state != "answered":
                after = after._replace(handed_over=key)
        yield Step("end a flush", after)

    def _answer(self, state: State, caller: Caller) -> Caller:
        assert state.flushing is not None
        if caller.state != "committed":
            return caller
        ours = caller.ticket == state.connection or self._twin == "takes any connection for proof"
        proven = caller.position <= state.flushing or self._twin == "answers all who wait"
        return caller._replace(state="answered") if ours and proven else caller

    def _claim(self, state: State) -> Iterator[Step[State]]:
        for key in set(state.log) & set(KEYS):
            if f"claim {key}" in state.log:
                continue
            log = (*state.log, f"claim {key}")
            # It waits for the disk, and so proves all before it.
            durable = state.durable if self._twin == "claims without waiting for the disk" else len(log)
            yield Step("claim", state._replace(log=log, durable=durable, handed_over=key))

    def _crash(self, state: State) -> State:
        callers = tuple(
            one._replace(state="unknown") if one.state == "decided" else one for one in state.callers
        )
        return state._replace(
            log=state.log[: state.durable],
            locked=False,
            flushing=None,
            connection=state.connection + 1,
            callers=callers,
            crashes=state.crashes - 1,
        )


TWINS: Final[Sequence[str]] = (
    "answers before the disk",
    "answers all who wait",
    "takes any connection for proof",
    "replays an answer that is not durable",
    "does not lock the account",
    "claims without waiting for the disk",
    "passes a message on before the disk",
)


def _put(state: State, number: int, caller: Caller) -> State:
    callers = tuple(caller if place == number else one for place, one in enumerate(state.callers))
    return state._replace(callers=callers)
