"""Decides whether a history keeps the promises, from nothing but what clients and peers recorded.

It knows the documented contract and none of our code; another service with this API could be judged by it.
Only an answered send is promised to survive a crash of the database. What was read in the last moment before
one may have shown what was not yet on disk (docs/decisions/0046), so such reads prove nothing.

| Recorded | By | Given | Told |
|---|---|---|---|
| `send` | customer | account, key, to, body | response (as text), batch_id, accepted, cost, after |
| `batch` | customer | batch_id | recipients, cost, messages: id, to, status, cost, refunded |
| `balance` | customer | account | balance |
| `call` | customer with a limit | | |
| `credit` | operator | account, amount | |
| `timeline` | operator | message_id | resends |
| `open`, note | operator | | account, balance |
| `clock`, note | operator | | (the database's clock jumped) |
| `crash`, note | operator | | since (when the database crashed, at the earliest) |
| `text`, note | carrier | | to, text |
| `event`, note | customer's endpoint | | id, account, sequence, type, data |
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

from tests.proof.history.money import Step, UndecidedError, find_contradiction
from tests.proof.history.record import History, Operation

LIMIT: Final = 60
WINDOW_S: Final = 60.0
# For so long before a crash a commit may not be on disk: some turns of PostgreSQL's own writer.
UNSURE_S: Final = 2.0

# What may follow each status, in whichever number of steps.
LATER: Final[Mapping[str, frozenset[str]]] = {
    "queued": frozenset(
        {"sending", "sent", "delivered", "undelivered", "expired", "unconfirmed", "failed"},
    ),
    # Back in the queue, to be tried again, is the one way back.
    "sending": frozenset({"queued", "sent", "delivered", "undelivered", "expired", "unconfirmed", "failed"}),
    "sent": frozenset({"delivered", "undelivered", "expired", "unconfirmed"}),
    "unconfirmed": frozenset({"delivered", "undelivered", "expired"}),
    "delivered": frozenset(),
    "undelivered": frozenset(),
    "expired": frozenset(),
    "failed": frozenset(),
}
WAITING: Final = frozenset({"queued", "sending"})
REFUNDED: Final = frozenset({"failed", "expired", "undelivered"})
# A carrier has the message, or had it.
HANDED_OVER: Final = frozenset({"sent", "delivered", "undelivered"})
FINAL: Final = frozenset(LATER) - WAITING - {"sent"}

Check = Callable[[History], Iterator[str]]


def check(history: History) -> Mapping[str, Sequence[str]]:
    """Return what each check found; a history without faults finds nothing."""
    return {name: list(find(history)) for name, find in CHECKS.items()}


def check_keys(history: History) -> Iterator[str]:
    """One Idempotency-Key has one answer and one batch, which stays and has what was sent."""
    owners: dict[str, str] = {}
    accepted: dict[str, Operation] = {}
    for key, sends in _by_key(history).items():
        answered = [send for send in sends if send.outcome == "ok"]
        answers = {send.told["response"] for send in answered}
        if len(answers) > 1:
            yield f"{key} had {len(answers)} answers: {sorted(answers)[:2]}"
        for send in answered:
            accepted.setdefault(send.told["batch_id"], send)
            if owners.setdefault(send.told["batch_id"], key) != key:
                yield f"{send.told['batch_id']} is the batch of {owners[send.told['batch_id']]} and {key}"
        if any(send.told.get("code") == "IDEMPOTENCY_CONFLICT" for send in sends):
            yield f"{key} was taken for another payload"
        if not answered and any(send.outcome == "unknown" for send in sends):
            yield f"{key} was never answered, although all faults were healed"
    for look in history.of("batch"):
        send_or_none = accepted.get(look.given["batch_id"])
        if send_or_none is None or look.began < send_or_none.ended:
            continue
        if look.outcome == "fail":
            yield f"{look.given['batch_id']} was accepted and is not there"
        elif look.outcome == "ok" and not _is_same(send_or_none, look):
            yield f"{look.given['batch_id']} is not what was accepted: {look.told}"


def _is_same(send: Operation, look: Operation) -> bool:
    numbers = [message["to"] for message in look.told["messages"]]
    return (
        sorted(numbers) == sorted(send.given["to"])
        and look.told["recipients"] == send.told["accepted"]
        and look.told["cost"] == send.told["cost"]
    )


def check_money(history: History) -> Iterator[str]:
    """All balances that were told follow from one order of top-ups, charges and refunds."""
    for opened in history.noted("open"):
        account = opened.told["account"]
        steps = [*_movements(history, account), *_reads(history, account)]
        try:
            found = find_contradiction(_units(opened.told["balance"]), steps)
        except UndecidedError as error:
            found = f"undecided: {error}"
        if found is not None:
            yield f"{account}: {found}"
    for message in _last_looks(history).values():
        if message["refunded"] != (message["status"] in REFUNDED):
            yield f"{message['id']} is {message['status']} and refunded: {message['refunded']}"


def _movements(history: History, account: str) -> Iterator[Step]:
    refunded_by = _first_refunds(history)
    for key, sends in _by_key(history).items():
        answered = [send for send in sends if send.outcome == "ok"]
        if not answered or answered[0].given["account"] != account:
            continue
        began = min(send.began for send in sends)
        told = answered[0].told
        yield Step(key, began, answered[0].ended, -_units(told["cost"]), _units(told["after"]))
        for message_id, (at, cost) in refunded_by.get(told["batch_id"], {}).items():
            yield Step(f"refund of {message_id}", began, at, cost)
    for credit in history.of("credit"):
        if credit.given["account"] == account and credit.outcome != "fail":
            yield Step("credit", credit.began, credit.ended, _units(credit.given["amount"]))


def _reads(history: History, account: str) -> Iterator[Step]:
    for read in _sure(history, "balance"):
        if read.given["account"] == account:
            yield Step(f"read at {read.ended:.3f}", read.began, read.ended, 0, _units(read.told["balance"]))


def _first_refunds(history: History) -> Mapping[str, Mapping[str, tuple[float, int]]]:
    """Return by batch and message until when each refund had happened, and what it gave back."""
    found: dict[str, dict[str, tuple[float, int]]] = defaultdict(dict)
    for look in history.of("batch", "ok"):
        for message in look.told["messages"]:
            if message["refunded"]:
                found[look.given["batch_id"]].setdefault(message["id"], (look.ended, _units(message["cost"])))
    return found


def check_hand_overs(history: History) -> Iterator[str]:
    """Texts reach a carrier once, and again for each resend after a doubt; and no others do."""
    bodies: dict[str, str] = {}
    begun: set[tuple[str, str]] = set()
    for send in history.of("send"):
        begun.update((number, send.given["body"]) for number in send.given["to"])
        if send.outcome == "ok":
            bodies[send.told["batch_id"]] = send.given["body"]
    arrived = Counter((text.told["to"], text.told["text"]) for text in history.noted("text"))
    yield from (f"nobody sent {text}" for text in arrived if text not in begun)
    resends = {one.given["message_id"]: one.told["resends"] for one in history.of("timeline", "ok")}
    for message in _last_looks(history).values():
        status, count = message["status"], arrived[message["to"], bodies.get(message["batch_id"], "")]
        if count > 1 + resends.get(message["id"], 0):
            yield f"{message['id']} was handed over {count} times, of {resends.get(message['id'], 0)} resends"
        if count == 0 and status in HANDED_OVER:
            yield f"{message['id']} is {status}, and no carrier had it"
        if count > 0 and status == "failed":
            yield f"{message['id']} is failed, and a carrier has it"


def list_repeated(history: History) -> Sequence[str]:
    """Return the messages that a carrier had more than once, about which the product is to be asked."""
    arrived = Counter((text.told["to"], text.told["text"]) for text in history.noted("text"))
    bodies = {send.told["batch_id"]: send.given["body"] for send in history.of("send", "ok")}
    return [
        message["id"]
        for message in _last_looks(history).values()
        if arrived[message["to"], bodies.get(message["batch_id"], "")] > 1
    ]


def check_ends(history: History) -> Iterator[str]:
    """No accepted message is left behind: once faults are healed each comes to a carrier or to its end."""
    looks = _last_looks(history)
    yield from (f"{one['id']} is still {one['status']}" for one in looks.values() if one["status"] in WAITING)
    seen = {message["batch_id"] for message in looks.values()}
    for send in history.of("send", "ok"):
        if send.told["batch_id"] not in seen:
            yield f"{send.told['batch_id']} was not looked at"


def check_statuses(history: History) -> Iterator[str]:
    """No status goes back, whichever node is asked, and no event says so either."""
    seen: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for look in history.of("batch", "ok"):
        for message in look.told["messages"]:
            seen[message["id"]].append((look.began, look.ended, message["status"]))
    for message_id, looks in seen.items():
        for place, (began, _, status) in enumerate(looks):
            before = {old for _, ended, old in looks[:place] if ended < began}
            if any(status != old and status not in LATER[old] for old in before):
                yield f"{message_id} was {sorted(before)} and then {status}"
    for message_id, events in _message_events(history).items():
        for old, new in pairwise(events):
            if new not in LATER[old]:
                yield f"the events of {message_id} say {old} and then {new}"


def _message_events(history: History) -> Mapping[str, Sequence[str]]:
    """Return the statuses that events told of each message, in the order of their sequence."""
    told: dict[str, dict[int, str]] = defaultdict(dict)
    for event in history.noted("event"):
        kind = event.told["type"].removeprefix("message.")
        if kind in LATER:
            told[event.told["data"]["message_id"]][event.told["sequence"]] = kind
    return {one: [events[place] for place in sorted(events)] for one, events in told.items()}


def check_events(history: History) -> Iterator[str]:
    """Events have the numbers from 1 on without a hole, one event each, and none is missing at the end."""
    numbers: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    ids: dict[str, int] = {}
    for event in history.noted("event"):
        told = event.told
        numbers[told["account"]][told["sequence"]].add(told["id"])
        if ids.setdefault(told["id"], told["sequence"]) != told["sequence"]:
            yield f"{told['id']} has the numbers {ids[told['id']]} and {told['sequence']}"
    for account, sequences in numbers.items():
        missing = set(range(1, max(sequences) + 1)) - sequences.keys()
        if missing:
            yield f"{account} lacks {len(missing)} of {max(sequences)} events: {sorted(missing)[:5]}"
        for sequence, several in sequences.items():
            if len(several) > 1:
                yield f"{account} has {len(several)} events {sequence}: {sorted(several)}"
    told_of = _message_events(history)
    for message in _last_looks(history).values():
        if message["status"] in FINAL and message["status"] not in told_of.get(message["id"], ()):
            yield f"no event says that {message['id']} is {message['status']}"


def check_rate(history: History) -> Iterator[str]:
    """Never more than 60 calls in any 60 seconds, all nodes together, by a clock that does not jump."""
    calls = sorted(_sure(history, "call"), key=lambda one: one.began)
    jumps = [jump.at for jump in history.noted("clock")]
    for place, first in enumerate(calls):
        end = first.began + WINDOW_S
        # Those that began and ended within, so that they surely took effect there.
        inside = [call for call in calls[place:] if call.ended < end]
        if len(inside) > LIMIT and not any(first.began <= jump <= end for jump in jumps):
            yield f"{len(inside)} calls within {WINDOW_S:g} s from {first.began:.3f}"
            return


def _sure(history: History, what: str) -> Sequence[Operation]:
    """Return the reads of a kind that no crash of the database can have made untrue."""
    crashes = [(crash.told["since"] - UNSURE_S, crash.at) for crash in history.noted("crash")]
    return [
        one
        for one in history.of(what, "ok")
        if not any(since < one.ended and one.began < until for since, until in crashes)
    ]


def _by_key(history: History) -> Mapping[str, Sequence[Operation]]:
    """Return the sends of each key, those that were answered first in front."""
    found: dict[str, list[Operation]] = defaultdict(list)
    for send in history.of("send"):
        found[send.given["key"]].append(send)
    return found


def _last_looks(history: History) -> Mapping[str, Mapping[str, Any]]:
    """Return each message as it was told last."""
    return {
        message["id"]: {**message, "batch_id": look.given["batch_id"]}
        for look in history.of("batch", "ok")
        for message in look.told["messages"]
    }


def _units(amount: str) -> int:
    """Return an amount of dollars in ten-thousandths."""
    return int(Decimal(amount) * 10_000)


CHECKS: Final[Mapping[str, Check]] = {
    "keys": check_keys,
    "money": check_money,
    "hand-overs": check_hand_overs,
    "ends": check_ends,
    "statuses": check_statuses,
    "events": check_events,
    "rate": check_rate,
}
