"""Three PostgreSQL servers under Patroni, and nodes that use them.

with run_patroni(home) as cluster:
    cluster.machines.leader().kill()    # a power cut; another one is promoted without our help
"""

import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.support.chaos.balancers import balancer_environment, find_program
from tests.support.chaos.cluster import CARRIER, WEBS, WORKERS, Nodes, start_nodes
from tests.support.chaos.machines import DEPLOY, EXAMPLES, MACHINES, ROLE, STOP_S, Machine
from tests.support.chaos.namespaces import Network, open_network
from tests.support.chaos.node import until
from tests.support.delivery.carrier_process import CarrierProcess
from tests.support.processes.ports import free_port
from tests.support.processes.programs import tumira

START_S: Final = 120.0

# As docs/high-availability.md has it.
SQL_SET_UP: Final = (
    "CREATE ROLE tumira LOGIN PASSWORD '{password}'",
    "GRANT pg_monitor TO tumira",
    "CREATE DATABASE tumira OWNER tumira",
)


class Machines:
    """The three machines, whose primary Patroni chooses."""

    def __init__(self, machines: Sequence[Machine], secret: str) -> None:
        self.all = machines
        self._secret = secret

    @property
    def url(self) -> str:
        """The address that nodes get: all servers, in an order that never changes."""
        hosts = ",".join(f"{one.address}:5432" for one in self.all)
        return f"{self.url_at(hosts)}?target_session_attrs=read-write"

    def url_at(self, hosts: str) -> str:
        return f"postgresql://{ROLE}:{self._secret}@{hosts}/{ROLE}"

    def leader(self) -> Machine:
        """Wait for a machine that Patroni calls the primary, and return it."""
        found: list[Machine] = []

        def look() -> bool:
            found[:] = [one for one in self.all if one.is_leader()]
            return len(found) == 1

        until(look, self.said, START_S)
        return found[0]

    def others(self, machine: Machine) -> Sequence[Machine]:
        return [one for one in self.all if one is not machine]

    def standby(self) -> Machine:
        """Return the machine of a standby; commits wait for both."""
        return self.others(self.leader())[0]

    def etcd_leader(self) -> Machine:
        (found,) = [one for one in self.all if one.is_etcd_leader()]
        return found

    def move_etcd_leader(self, to: Machine) -> None:
        """Make the etcd of a machine the leader."""
        status = to.ask_etcd("/v3/maintenance/status")
        assert status is not None
        target = status["header"]["member_id"]
        until(lambda: self._moved_etcd_leader(target) and to.is_etcd_leader(), "etcd's leader does not move")

    def _moved_etcd_leader(self, target: str) -> bool:
        return any(
            one.ask_etcd("/v3/maintenance/transfer-leadership", targetID=target) is not None
            for one in self.all
        )

    def members(self) -> Sequence[Mapping[str, Any]]:
        """Return what Patroni says of its members."""
        return next((told for one in self.all if (told := one.members())), ())

    def is_whole(self, *, synchronous: bool = True) -> bool:
        """Tell whether all see the same primary, which both others follow."""
        views = [one.members() for one in self.all]
        roles = [{one["name"]: one["role"] for one in members} for members in views]
        states = [one["state"] for members in views for one in members if one["role"] != "leader"]
        timelines = {one.get("timeline") for members in views for one in members}
        wanted = ["leader", *(2 * ["quorum_standby" if synchronous else "replica"])]
        return (
            all(sorted(seen.values()) == wanted and seen == roles[0] for seen in roles)
            and set(states) == {"streaming"}
            and len(timelines) == 1
        )

    def wait_until_whole(self, *, synchronous: bool = True) -> None:
        until(lambda: self.is_whole(synchronous=synchronous), self.said, START_S)

    def switch_over(self, to: Machine) -> None:
        """Ask Patroni to make another machine the primary, as `patronictl switchover` does."""
        leader = self.leader()
        answer = leader.ask(
            "/switchover",
            "POST",
            json={"leader": leader.name, "candidate": to.name},
            auth=("patroni", self._secret),
            timeout_s=60,
        )
        assert answer is not None
        assert answer.status_code == httpx.codes.OK, answer.text

    def said(self) -> str:
        return f"{self.members()}\n" + "\n".join(f"{one.name}: {one.log[-3000:]}" for one in self.all)


@contextmanager
def run_machines(home: Path, network: Network, **changes: Any) -> Iterator[Machines]:
    """Run all three with an empty, migrated database; `changes` are to the settings that members share."""
    secret = secrets.token_hex()
    with ExitStack() as stack:
        machines = Machines(
            [Machine(home, network[name], network, secret, changes) for name in MACHINES], secret
        )
        for one in machines.all:
            stack.callback(one.stop)
            one.start()
        began = time.monotonic()
        machines.wait_until_whole(synchronous=changes.get("synchronous_mode", True) is not False)
        print(f"three servers run after {time.monotonic() - began:.1f} s")
        for statement in SQL_SET_UP:
            machines.leader().execute(statement.format(password=secret))
        done = tumira("migrate", database_url=machines.url, data_dir=home / "data")
        assert done.returncode == 0, done.stderr
        yield machines


@dataclass(frozen=True, slots=True, kw_only=True)
class PatroniCluster(Nodes):
    """Nodes whose database Patroni keeps available."""

    machines: Machines

    @contextmanager
    def cut_off(self, machine: Machine) -> Iterator[None]:
        """Cut a machine off from the two others; nodes still reach all three."""
        with ExitStack() as stack:
            for other in self.machines.others(machine):
                stack.enter_context(self.network.apart(machine.name, other.name))
            yield


@contextmanager
def run_patroni(home: Path, **changes: Any) -> Iterator[PatroniCluster]:
    """Run all of it, with no account yet; webs are ready, workers are about to be."""
    with ExitStack() as stack:
        network = stack.enter_context(open_network([*WEBS, *WORKERS, *MACHINES, CARRIER]))
        print(network.told)
        carrier = CarrierProcess(home / "texts.jsonl", network[CARRIER])
        stack.callback(carrier.kill)
        machines = stack.enter_context(run_machines(home, network, **changes))
        yield start_nodes(PatroniCluster, stack, home, network, carrier, machines.url, machines=machines)


@contextmanager
def run_database_proxy(home: Path, machines: Machines) -> Iterator[str]:
    """Run our example of HAProxy before the three servers, and give the address of the database behind it."""
    port, settings = free_port(), home / "haproxy.cfg"
    text = (DEPLOY / "haproxy.cfg").read_text()
    assert text.count("127.0.0.1:5000") == 2
    text = text.replace("127.0.0.1:5000", f"127.0.0.1:{port}")
    for example, machine in zip(EXAMPLES, machines.all, strict=True):
        assert text.count(example) == 1
        text = text.replace(example, machine.address)
    settings.write_text(text)
    with (home / "haproxy.log").open("wb") as log:
        process = subprocess.Popen(
            [find_program("haproxy"), "-db", "-f", str(settings)],
            env=balancer_environment(),
            stdout=log,
            stderr=log,
        )
    try:
        yield machines.url_at(f"127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(STOP_S)
