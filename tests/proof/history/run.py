"""Runs a small cluster under faults, with all clients recording, and decides about the history."""

import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.proof.history.checks import CHECKS, check, list_repeated
from tests.proof.history.clients import Clients, ask_for_timelines
from tests.proof.history.cluster import Cluster, Ground, open_ground, run_cluster, until
from tests.proof.history.faults import FAULTS, LOSSES, PAIR_FAULTS, find_obstacles
from tests.proof.history.record import SUFFIX, History, Recorder, read_history

# Between two faults, before some sends more are waited for; now and then they come right after each other.
GAP_MAX_S: Final = 0.4
PROGRESS_S: Final = 45.0
# Sends before a fault that may lose what was accepted.
IN_WORK: Final = 5
EVENTS_S: Final = 30.0
# Until all messages are at their end, once all faults are healed.
SETTLED_S: Final = 90.0
# Of a budget, for the time until all messages are at their end and everything is checked: at least so long,
# and this share, because there is more to look at after more sends.
REST_S: Final = 25.0
REST_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was done, and what each check found."""

    seed: int
    seconds: float
    faults: Mapping[str, int]
    # By kind: what was hit, how often.
    details: Mapping[str, Mapping[str, int]]
    not_tried: Mapping[str, str]
    operations: Mapping[str, int]
    messages: int
    resent: int
    problems: Mapping[str, Sequence[str]]

    @property
    def holds(self) -> bool:
        return not any(self.problems.values())

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({"holds": self.holds, **asdict(self)}, indent=2) + "\n")


def run(
    histories: Path,
    kinds: Sequence[str],
    *,
    seed: int,
    seconds: float | None = None,
    count: int | None = None,
    sends: int = 3,
    twins: Sequence[str] = (),
    settled_s: float = SETTLED_S,
    standby: bool = False,
) -> Verdict:
    """Inflict faults of these kinds in turn, until the time or the count is over, heal them, and check.

    Each kind is inflicted once, however short the time is. The first comes after some sends; `twins` are
    mistakes of `changes.py`.
    """
    began = time.monotonic()
    ends_at = None if seconds is None else began + seconds - max(REST_S, REST_SHARE * seconds)
    with open_ground(standby=standby) as ground:
        verdict = run_on_ground(
            ground,
            histories,
            kinds,
            seed=seed,
            ends_at=ends_at,
            count=count,
            sends=sends,
            twins=twins,
            settled_s=settled_s,
        )
    return replace(verdict, seconds=round(time.monotonic() - began, 1))


def run_on_ground(
    ground: Ground,
    histories: Path,
    kinds: Sequence[str],
    *,
    seed: int,
    ends_at: float | None = None,
    count: int | None = None,
    sends: int = 3,
    twins: Sequence[str] = (),
    settled_s: float = SETTLED_S,
) -> Verdict:
    """Do the same where PostgreSQL runs already; `ends_at` is a time of the monotonic clock."""
    began = time.monotonic()
    chance = random.Random(seed)
    with run_cluster(ground, histories, twins) as cluster:
        cluster.say(f"{cluster.network.told}; seed {seed}")
        not_tried = find_obstacles(cluster, kinds)
        possible = [kind for kind in kinds if kind not in not_tried]
        recorder = Recorder(histories / f"faults{SUFFIX}")
        clients = Clients(cluster, seed)
        with clients.running():
            _make_progress(clients, sends)
            _inflict(cluster, clients, recorder, possible, chance, ends_at, count)
            cluster.say("all faults are healed")
            cluster.wait_until_ready()
            _make_progress(clients, 3)
        clients.settle(settled_s)
        cluster.say("no message waits any more")
        history = _complete(cluster, histories, min(EVENTS_S, settled_s))
    problems = check(history)
    return Verdict(
        seed=seed,
        seconds=round(time.monotonic() - began, 1),
        faults=dict(Counter(fault.told["kind"] for fault in history.noted("fault"))),
        details=_count_details(history),
        not_tried=not_tried,
        operations=dict(Counter(f"{one.what} {one.outcome}" for one in history.operations)),
        messages=sum(send.told["accepted"] for send in _first_sends(history).values()),
        resent=sum(one.told["resends"] for one in history.of("timeline", "ok")),
        problems=problems,
    )


def _inflict(
    cluster: Cluster,
    clients: Clients,
    recorder: Recorder,
    kinds: Sequence[str],
    chance: random.Random,
    ends_at: float | None,
    count: int | None,
) -> None:
    turn: list[str] = []
    done = 0
    # On a slow machine too each kind has its turn once.
    while kinds and (done < count if count is not None else done < len(kinds) or _is_early(ends_at)):
        if not turn:
            turn = chance.sample(list(kinds), len(kinds))
        kind = turn.pop()
        if kind in LOSSES:
            # There is something to lose only in the middle of work.
            _make_progress(clients, IN_WORK)
        detail = (FAULTS | PAIR_FAULTS)[kind](cluster, recorder, chance)
        recorder.note("fault", kind=kind, detail=detail)
        done += 1
        cluster.revive()
        if kind != "kill" or done % 25 == 0:
            cluster.say(f"{done}: {kind}, {detail}; {clients.sent} sends")
        time.sleep(chance.uniform(0, GAP_MAX_S))
        if chance.random() < 0.5:
            _make_progress(clients, 1)


def _is_early(ends_at: float | None) -> bool:
    return ends_at is None or time.monotonic() < ends_at


def _make_progress(clients: Clients, sends: int) -> None:
    """Wait until some more sends are accepted: a cluster that does nothing loses nothing."""
    wanted = clients.sent + sends

    def is_there() -> bool:
        clients.look_after()
        clients.cluster.revive()
        return clients.sent >= wanted

    until(is_there, clients.cluster.said, PROGRESS_S)


def _complete(cluster: Cluster, histories: Path, wait_s: float) -> History:
    """Wait for the last events, ask about repeated messages, and return the whole history."""
    find_missing = CHECKS["events"]
    deadline = time.monotonic() + wait_s
    while any(find_missing(read_history(histories))) and time.monotonic() < deadline:
        cluster.revive()
        time.sleep(1)
    ask_for_timelines(cluster, list_repeated(read_history(histories)))
    return read_history(histories)


def _count_details(history: History) -> Mapping[str, Mapping[str, int]]:
    found: dict[str, Counter[str]] = {}
    for fault in history.noted("fault"):
        # Figures differ each time, and tell nothing of what was hit.
        detail = " ".join(word for word in fault.told["detail"].split() if not word.isdecimal())
        found.setdefault(fault.told["kind"], Counter())[detail] += 1
    return {kind: dict(counts) for kind, counts in found.items()}


def _first_sends(history: History) -> Mapping[str, Any]:
    return {send.told["batch_id"]: send for send in history.of("send", "ok")}
