"""Decides about a run, from what carriers and receivers saw and what the database holds; no code of ours."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Final
from uuid import UUID

import asyncpg

from tests.proof.history.checks import FINAL, LATER, REFUNDED
from tests.proof.simulation.carrier import TEMPORARY, Submit
from tests.proof.simulation.database import START, START_S
from tests.proof.simulation.template import BALANCE
from tests.proof.simulation.world import SMALLER, TIMING, World

# A claim may be recorded as over while what was submitted is on its way.
CLAIM_SLACK_S: Final = 0.05
# While binds move between workers, both have a share of the rate for a moment.
SHARES_S: Final = 8.0
# The shortest wait after a refusal, less a quarter of it, and that of a doubt.
RETRY_MIN_S: Final = 0.7
# A circuit that opened stays open for five seconds.
OPEN_S: Final = 4.8
REFUSALS_MAX: Final = next(value for _, name, value in SMALLER if name == "REFUSALS_MAX")

# How a receipt can end a message.
REPORTED: Final = frozenset({"delivered", "undelivered", "expired"})

Row = asyncpg.Record


@dataclass(frozen=True, slots=True)
class Facts:
    """What the database holds at the end."""

    messages: Sequence[Row]
    accounts: Sequence[Row]
    transfers: Sequence[Row]
    events: Sequence[Row]
    statuses: Sequence[Row]
    claims: Sequence[Row]
    incidents: Sequence[Row]
    batches: Sequence[Row]


def read_facts(url: str) -> Facts:
    return asyncio.run(_read_facts(url))


async def _read_facts(url: str) -> Facts:
    connection = await asyncpg.connect(url, server_settings={"search_path": "sim"})
    try:
        return Facts(
            messages=await connection.fetch("SELECT * FROM messages"),
            accounts=await connection.fetch("SELECT id, balance FROM accounts"),
            transfers=await connection.fetch("SELECT * FROM transfers"),
            events=await connection.fetch("SELECT * FROM events ORDER BY account_id, sequence"),
            statuses=await connection.fetch("SELECT * FROM sim_statuses ORDER BY number"),
            claims=await connection.fetch("SELECT * FROM sim_claims ORDER BY number"),
            incidents=await connection.fetch("SELECT * FROM incidents"),
            batches=await connection.fetch("SELECT * FROM batches"),
        )
    finally:
        await connection.close()


def check(world: World, facts: Facts) -> Mapping[str, Sequence[str]]:
    """Return what each check found; a run that keeps the promises finds nothing."""
    found = {name: list(find(world, facts)) for name, find in CHECKS.items()}
    found["world"] = [*world.problems, *(one for carrier in world.carriers for one in carrier.problems)]
    return {name: problems for name, problems in found.items() if problems}


def _submits(world: World) -> Mapping[str, Sequence[Submit]]:
    """Return by number all segments that reached a carrier; each number gets one message."""
    found: dict[str, list[Submit]] = defaultdict(list)
    for carrier in world.carriers:
        for submit in carrier.submits:
            found[submit.to].append(submit)
    return found


def check_hand_overs(world: World, facts: Facts) -> Iterator[str]:
    """Find segments that were submitted again, but not after a refusal or for a resend after a doubt."""
    resends = Counter(row["message_id"] for row in facts.incidents if row["kind"] == "resend")
    submits = _submits(world)
    known = {row["recipient"] for row in facts.messages}
    yield from (f"nobody sent a message to {number}" for number in submits if number not in known)
    for message in facts.messages:
        possible = Counter(
            one.part for one in submits.get(message["recipient"], ()) if one.status == 0 or one.status is None
        )
        for part, count in possible.items():
            if count > 1 + resends[message["id"]]:
                yield (
                    f"part {part} of {message['recipient']} was handed over {count} times, "
                    f"with {resends[message['id']]} resends"
                )


def check_waits(world: World, facts: Facts) -> Iterator[str]:
    """Find segments that were refused for now, or in doubt, and submitted again without a wait."""
    del facts
    for number, submits in _submits(world).items():
        parts: dict[int, list[Submit]] = defaultdict(list)
        for one in submits:
            parts[one.part].append(one)
        for own in parts.values():
            for before, after in pairwise(sorted(own, key=lambda one: one.written_at)):
                if before.status in TEMPORARY and before.answered_at is not None:
                    wait_s = after.written_at - before.answered_at
                    if wait_s < RETRY_MIN_S:
                        yield f"{number} was submitted again {wait_s:.3f} s after a refusal"
                elif before.status in {0, None} and after.written_at - before.written_at < RETRY_MIN_S:
                    yield f"{number} was submitted again {after.written_at - before.written_at:.3f} s later"


def check_claims(world: World, facts: Facts) -> Iterator[str]:
    """Nothing is submitted outside a claim that the database knew of."""
    claims: dict[UUID, list[tuple[float, float]]] = defaultdict(list)
    for row in facts.claims:
        own, at_s = claims[row["message_id"]], _loop_s(row["at"])
        if row["is_begun"]:
            own.append((at_s, float("inf")))
        else:
            own[-1] = (own[-1][0], at_s)
    submits = _submits(world)
    for message in facts.messages:
        own = claims[message["id"]]
        if message["segments"] > 1 and message["status"] in REPORTED and own:
            # The receipt of one segment can end a message while its worker submits the next.
            own[-1] = (own[-1][0], float("inf"))
        for one in submits.get(message["recipient"], ()):
            if not any(began <= one.written_at <= ended + CLAIM_SLACK_S for began, ended in own):
                yield f"{one.to} was submitted at {one.written_at:.3f}, outside {own}"


def check_endings(world: World, facts: Facts) -> Iterator[str]:
    """Find messages that did not end as their carrier said, or not at all."""
    submits = _submits(world)
    told: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for carrier in world.carriers:
        for receipt in carrier.receipts:
            if receipt.submit is not None:
                told[receipt.to][receipt.submit.part].add(receipt.state)
    for message in facts.messages:
        own, number, status = submits.get(message["recipient"], ()), message["recipient"], message["status"]
        taken = {one.part for one in own if one.is_taken}
        states = told.get(number, {})
        if status in {"queued", "sending"}:
            yield f"{number} is still {status}"
        is_rejected = any("REJECTD" in one for one in states.values())
        if status == "failed" and len(taken) == message["segments"] and not is_rejected:
            yield f"{number} is failed, and a carrier has it"
        if status == "delivered" and not all(
            "DELIVRD" in states.get(part, ()) for part in range(1, message["segments"] + 1)
        ):
            yield f"{number} is delivered, and no carrier said so"
        if status in {"undelivered", "expired"} and not any(one - {"DELIVRD"} for one in states.values()):
            yield f"{number} is {status}, and no carrier said so"
        if status == "sent" and not taken:
            yield f"{number} is sent, and no carrier has it"
        sure = {one.part for one in own if one.status == 0 and one.state is not None and _in_time(one)}
        if status == "sent" and len(sure) == message["segments"]:
            yield f"{number} is sent, although its receipts came"


def _in_time(submit: Submit) -> bool:
    return submit.answered_at is not None and submit.answered_at - submit.written_at < TIMING.response_s


def check_money(world: World, facts: Facts) -> Iterator[str]:
    """Money adds up: a debit for each send, one refund for each message that was not delivered."""
    sent = {send.batch_id for send in world.sends}
    if len(sent) != len(facts.batches):
        yield f"{len(sent)} sends were answered, and {len(facts.batches)} are there"
    refunds = Counter(row["message_id"] for row in facts.transfers if row["message_id"] is not None)
    amounts: dict[UUID, Decimal] = defaultdict(Decimal)
    for row in facts.transfers:
        if row["message_id"] is not None:
            amounts[row["message_id"]] += row["amount"]
    back: dict[UUID, Decimal] = defaultdict(Decimal)
    for message in facts.messages:
        wanted = int(message["status"] in REFUNDED)
        number, count = message["recipient"], refunds[message["id"]]
        if count != wanted:
            yield f"{number} is {message['status']} and was refunded {count} times"
        if wanted and amounts[message["id"]] != message["cost"]:
            yield f"{number} cost {message['cost']}, and {amounts[message['id']]} was given back"
        if wanted:
            back[message["account_id"]] += message["cost"]
    paid: dict[UUID, Decimal] = defaultdict(Decimal)
    for send in world.sends:
        paid[send.account.id] += Decimal(send.cost)
    for account in facts.accounts:
        identifier = account["id"]
        if identifier not in {caller.id for caller in world.template.callers}:
            continue
        wanted_balance = BALANCE - paid[identifier] + back[identifier]
        if account["balance"] != wanted_balance:
            yield f"a balance is {account['balance']} and should be {wanted_balance}"


def check_statuses(world: World, facts: Facts) -> Iterator[str]:
    """No status goes back, and each change begins where the last one ended."""
    del world
    last: dict[UUID, str] = {}
    for row in facts.statuses:
        old, new = row["old"], row["new"]
        if row["message_id"] in last and last[row["message_id"]] != old:
            yield f"a message was {last[row['message_id']]} and left {old}"
        if old is not None and old != new and new not in LATER[old]:
            yield f"a message was {old} and became {new}"
        last[row["message_id"]] = new


def check_events(world: World, facts: Facts) -> Iterator[str]:
    """Events are numbered without a hole, tell each ending and refund once, and reach their receiver."""
    by_account: dict[UUID, list[Row]] = defaultdict(list)
    for row in facts.events:
        by_account[row["account_id"]].append(row)
    for rows in by_account.values():
        if [row["sequence"] for row in rows] != list(range(1, len(rows) + 1)):
            yield f"the sequence has holes: {[row['sequence'] for row in rows]}"
    told = Counter((row["message_id"], row["type"]) for row in facts.events)
    for message in facts.messages:
        status = message["status"]
        if status in FINAL and told[message["id"], f"message.{status}"] != 1:
            yield f"{told[message['id'], f'message.{status}']} events tell that a message is {status}"
        wanted = int(status in REFUNDED)
        refunds = told[message["id"], "message.refunded"]
        if refunds != wanted:
            yield f"{refunds} events tell a refund of a message that is {status}"
    for place, caller in enumerate(world.template.callers):
        yield from _check_receiver(world, place, by_account.get(caller.id, []))


def _check_receiver(world: World, place: int, rows: Sequence[Row]) -> Iterator[str]:
    receiver = world.receivers[place]
    yield from receiver.problems
    taken = {call.sequence for call in receiver.calls if call.is_accepted}
    missing = {row["sequence"] for row in rows} - taken
    if missing:
        yield f"{receiver.name} never took {sorted(missing)}"
    said: dict[int, tuple[str, bytes]] = {}
    orders: dict[str, dict[int, str]] = defaultdict(dict)
    for call in receiver.calls:
        if said.setdefault(call.sequence, (call.event_id, call.body)) != (call.event_id, call.body):
            yield f"{receiver.name} was told two things with the number {call.sequence}"
        status = call.type.removeprefix("message.")
        if status in LATER:
            orders[call.data["message_id"]][call.sequence] = status
    types = {row["sequence"]: row["type"] for row in rows}
    for sequence in said:
        if sequence not in types:
            yield f"{receiver.name} was told an event {sequence} that is not there"
    for events in orders.values():
        for old, new in pairwise(events[number] for number in sorted(events)):
            if new not in LATER[old]:
                yield f"{receiver.name} was told {old} and then {new}"


def check_rate(world: World, facts: Facts) -> Iterator[str]:
    """No carrier gets more than its rate, and a bucket that holds a quarter of a second of it."""
    del facts
    for carrier in world.carriers:
        if not carrier.tps:
            continue
        bucket = max(1.0, carrier.tps / 4)
        sessions: dict[int, list[float]] = defaultdict(list)
        for submit in carrier.submits:
            sessions[submit.session].append(submit.written_at)
        everything = sorted(at for times in sessions.values() for at in times)
        groups = [(times, bucket + 1) for times in sessions.values()]
        groups.append((everything, 2 * bucket + 2 + carrier.tps * SHARES_S))
        for times, slack in groups:
            excess = _excess(sorted(times), carrier.tps)
            if excess > slack:
                yield f"{carrier.name} got {excess:.1f} submits more than its rate of {carrier.tps} allows"


def _excess(times: Sequence[float], rate: float) -> float:
    """Return by how many, at most, the times within any stretch exceed the rate."""
    worst = current = 0.0
    for before, at in pairwise([times[0], *times] if times else []):
        current = max(0.0, current - rate * (at - before)) + 1
        worst = max(worst, current)
    return worst


def check_circuit(world: World, facts: Facts) -> Iterator[str]:
    """After some refusals in a row nothing more is submitted for a while."""
    del facts
    for carrier in world.carriers:
        sessions: dict[int, list[Submit]] = defaultdict(list)
        for submit in carrier.submits:
            sessions[submit.session].append(submit)
        for submits in sessions.values():
            for opened_at in _openings(submits):
                early = [one for one in submits if opened_at + 0.2 < one.written_at < opened_at + OPEN_S]
                if early:
                    yield f"{carrier.name} refused, and got {len(early)} more within {OPEN_S} s"


def _openings(submits: Sequence[Submit]) -> Iterator[float]:
    """Return when refusals in a row should have opened the circuit."""
    answered = [one for one in submits if one.answered_at is not None]
    refusals = 0
    for one in sorted(answered, key=lambda one: one.answered_at or 0.0):
        if one.status not in TEMPORARY:
            refusals = 0
        elif _in_time(one):
            refusals += 1
            if refusals == REFUSALS_MAX:
                yield one.answered_at or 0.0


def _loop_s(at: datetime) -> float:
    return (at - START).total_seconds() + START_S


CHECKS: Final[Mapping[str, Callable[[World, Facts], Iterator[str]]]] = {
    "hand-overs": check_hand_overs,
    "waits": check_waits,
    "claims": check_claims,
    "endings": check_endings,
    "money": check_money,
    "statuses": check_statuses,
    "events": check_events,
    "rate": check_rate,
    "circuit": check_circuit,
}
