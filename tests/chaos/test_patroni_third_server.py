"""A primary that does not know of its successor confirms nothing that the successor lacks; its twin does.

Patroni of the primary is killed, and its PostgreSQL goes on. Patroni of the third server votes for the
successor, and hangs before it can point its PostgreSQL there, so that this still follows the old primary.
Sends go to the old primary alone, as those of a node would that knows no other.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import pytest

from tests.support.chaos.machines import MACHINES, Machine
from tests.support.chaos.namespaces import open_network
from tests.support.chaos.node import until
from tests.support.chaos.patroni import START_S, Machines, run_machines
from tests.support.postgres.databases import complete, execute
from tests.support.processes.programs import new_home
from tests.support.processes.service import Caller, new_caller
from tests.support.sending.batchers import open_batchers, send_call
from tumira.core.errors import ServiceUnavailable
from tumira.sending.types import Answered, Decision, Refused

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

# How much longer etcd knows the third server than the old primary: long enough for the election, because a
# server that etcd has forgotten is not asked for its vote.
KNOWN_S: Final = 8
LOOK_S: Final = 0.05

BEFORE: Final = "Your order 1 is ready."
UNMANAGED: Final = "Your order 2 is ready."
LATE: Final = "Your order 3 is ready."
RESUMED: Final = "Your order 4 is ready."


@dataclass(slots=True)
class Split:
    """Two primaries, the older of which has the third server."""

    machines: Machines
    old: Machine
    successor: Machine
    third: Machine
    caller: Caller
    acknowledged: set[str] = field(default_factory=set)
    # Whether a commit of the last send was seen to wait for standbys.
    has_waited: bool = False

    def send(self, machine: Machine, body: str) -> bool:
        """Send to one server alone, and tell whether that was answered 202."""
        decision, self.has_waited = complete(_ask(machine, self.caller, body))
        if isinstance(decision, Answered):
            self.acknowledged.add(body)
            return True
        assert isinstance(decision, Refused)
        assert isinstance(decision.refusal, ServiceUnavailable)
        return False

    def let_the_successor_take_over(self) -> None:
        self.old.kill_patroni()
        assert self.send(self.old, UNMANAGED)
        until(self._votes_in_time, self.machines.said)
        self.third.hang_patroni()
        until(self.successor.is_leader, self.machines.said, START_S)
        # It confirms nothing as long as it is alone.
        until(lambda: synchronous(self.successor) == "ANY 1 (*)", self.machines.said)

    def _votes_in_time(self) -> bool:
        """Tell whether the lease of the old primary will end well before that of the third server."""
        leader, member = self.old.read_etcd("leader"), self.old.read_etcd(f"members/{self.third.name}")
        return leader is not None and member is not None and 0 < leader.lease_s <= member.lease_s - KNOWN_S

    def check_held(self) -> None:
        """Check that the old primary takes writes, and that the third server alone follows it."""
        assert self.old.takes_writes()
        assert self.successor.takes_writes()
        assert followers(self.old) == {self.third.name}
        assert followers(self.successor) == set()

    def resume(self) -> None:
        """Let the third server go to the successor, and wait until that confirms again."""
        self.third.thaw()
        until(lambda: followers(self.successor) == {self.third.name}, self.machines.said, START_S)
        until(lambda: self.send(self.successor, RESUMED), self.machines.said, START_S)
        until(lambda: is_replica(self.third), self.machines.said, START_S)
        # What only the old primary and the third server had is undone.
        until(lambda: texts(self.third) == texts(self.successor), self.machines.said)


async def _ask(machine: Machine, caller: Caller, body: str) -> tuple[Decision, bool]:
    has_waited = False
    async with open_batchers(machine.url, 1) as batchers:
        asked = asyncio.create_task(batchers.batchers[0].ask(send_call(caller, body=body)))
        while not asked.done():
            # Looked at meanwhile: a send that is given up cancels its commit.
            has_waited = has_waited or has_waiting_commit(machine)
            await asyncio.sleep(LOOK_S)
        return await asked, has_waited


def texts(machine: Machine) -> set[str]:
    """Return the texts of the sends that a server has."""
    return {row["body"] for row in execute(machine.url, "SELECT body FROM batches")}


def synchronous(machine: Machine) -> str:
    """Return for whom its commits wait."""
    named = machine.execute("SHOW synchronous_standby_names")[0][0]
    assert isinstance(named, str)
    return named


def followers(machine: Machine) -> set[str]:
    rows = machine.execute("SELECT application_name FROM pg_stat_replication WHERE state = 'streaming'")
    return {row["application_name"] for row in rows}


def is_replica(machine: Machine) -> bool:
    """Tell whether its Patroni calls it a standby that answers."""
    answer = machine.ask("/replica")
    return answer is not None and answer.status_code == httpx.codes.OK


def has_waiting_commit(machine: Machine) -> bool:
    return bool(machine.execute("SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))


@contextmanager
def split_cluster(count: int, **changes: Any) -> Iterator[Split]:
    """Run three servers whose commits wait for this many standbys, until two of them are a primary."""
    with (
        new_home() as home,
        open_network(MACHINES) as network,
        run_machines(home, network, **changes) as machines,
    ):
        try:
            old = machines.leader()
            successor, third = machines.others(old)
            standbys = f"{successor.name},{third.name}"
            until(lambda: synchronous(old) == f"ANY {count} ({standbys})", machines.said)
            # With any one of two, a standby needs the vote of the other; with both it has everything.
            agreed = old.read_etcd("sync")
            assert agreed is not None
            assert json.loads(agreed.text) == {
                "leader": old.name,
                "sync_standby": standbys,
                "quorum": 2 - count,
            }
            split = Split(machines, old, successor, third, complete(new_caller(old.url)))
            assert split.send(old, BEFORE)
            split.let_the_successor_take_over()
            # Nobody told it.
            assert synchronous(old) == f"ANY {count} ({standbys})"
            split.check_held()
            yield split
        finally:
            # To stop them in good order takes longer, and nobody needs what they have.
            for one in machines.all:
                one.end()


def test_an_old_primary_confirms_nothing_that_its_successor_lacks() -> None:
    with split_cluster(2) as split:
        assert not split.send(split.old, LATE)
        assert split.has_waited
        # The third server has it, and that is not enough.
        until(lambda: LATE in texts(split.third), split.machines.said)
        split.check_held()
        assert texts(split.successor) == split.acknowledged == {BEFORE, UNMANAGED}
        split.resume()
        assert texts(split.successor) == split.acknowledged == {BEFORE, UNMANAGED, RESUMED}


def test_with_a_count_of_one_an_acknowledged_send_is_lost() -> None:
    """The twin: any one of two standbys is enough, and the old primary still has one."""
    with split_cluster(1, synchronous_node_count=1) as split:
        assert f"Got quorum vote from {split.third.name}" in split.successor.log
        assert split.send(split.old, LATE)
        split.check_held()
        assert split.acknowledged - texts(split.successor) == {LATE}
        split.resume()
        assert split.acknowledged - texts(split.successor) == {LATE}
