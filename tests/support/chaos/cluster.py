"""A cluster of web nodes, workers, two database servers and a carrier."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx

from tests.support.chaos.namespaces import Network, open_network
from tests.support.chaos.node import (
    BALANCE,
    PATIENCE_S,
    Account,
    Callers,
    NodeProcess,
    Rows,
    Sent,
    UrlReader,
    check_promises,
    until,
)
from tests.support.delivery.carrier_process import CarrierProcess
from tests.support.postgres.databases import complete
from tests.support.postgres.standby import Pair, run_pair
from tests.support.processes.service import NO_TLS, Caller, new_caller
from tumira.accounts.rate_limit import WINDOW_S
from tumira.carriers.manage import add_carrier
from tumira.core.ids import BATCH, AccountId, read_id
from tumira.postgres.pool import Database

WEBS: Final = ("web1", "web2")
WORKERS: Final = ("worker1", "worker2")
SERVERS: Final = ("north", "south")
CARRIER: Final = "carrier"

BINDS: Final = 2
WINDOW: Final = 30

LIMIT: Final = 60

# Whether the standby has on its disk what the primary had written up to a place.
SQL_FLUSHED: Final = """
SELECT coalesce(bool_or(flush_lsn >= $1::text::pg_lsn), false)
  FROM pg_stat_replication
 WHERE sync_state = 'sync'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Web nodes, workers and a carrier that share a database, by the names of the places."""

    network: Network
    nodes: "dict[str, NodeProcess]"
    bases: "dict[str, str]"
    carrier: CarrierProcess
    reader: UrlReader
    settings: "dict[str, Any]"
    began: float = field(default_factory=time.monotonic)

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:5.1f} s: {what}", flush=True)

    def open_account(self, rate: int = 1_000_000) -> Caller:
        return complete(new_caller(self.settings["database_url"], str(BALANCE), rate))

    def wait_until_ready(self) -> None:
        """Wait until both web nodes are ready to take calls."""
        until(lambda: all(self.status(name) == httpx.codes.OK for name in WEBS), self.said)

    def status(self, name: str) -> int:
        """Ask a web node whether it is ready; 0 when nobody answers."""
        try:
            url = f"{self.bases[name]}/readyz"
            return httpx.get(url, timeout=10, trust_env=False, verify=NO_TLS).status_code
        except httpx.TransportError:
            return 0

    def wait_until_bound(self) -> None:
        """Wait until every bind is held by a worker and bound."""
        bound = "SELECT FROM binds WHERE state = 'bound' AND leased_until > clock_timestamp()"
        until(lambda: len(self.reader.rows(bound)) == BINDS, self.said)

    def kill(self, name: str) -> None:
        """Kill a web, a worker or the carrier, and start another in its place."""
        if name == CARRIER:
            self.carrier.kill()
            self.carrier.start()
        else:
            self.nodes[name].kill()
            self.nodes[name].start()

    def revive(self) -> None:
        """Start nodes again that gave up because the database was away as they started."""
        for node in self.nodes.values():
            if node.process.poll() is not None:
                node.start()

    def check(self, everybody: "dict[AccountId, Callers]", unfinished: Sequence[str] = ()) -> Account:
        """Check all promises to each account, and that nothing reached the carrier that nobody sent."""
        arrived = self.carrier.counts()
        accounts = []
        for account_id, callers in everybody.items():
            (row,) = self.reader.rows("SELECT phone FROM accounts WHERE id = $1", account_id)
            own = {one: count for one, count in arrived.items() if one[1] in callers.begun}
            accounts.append(check_promises(self.reader.rows, callers, own, unfinished, row["phone"]))
            arrived -= Counter(own)
        assert not arrived, f"nobody sent {arrived}"
        return Account(
            sum(one.messages for one in accounts),
            sum(one.doubted for one in accounts),
            sum(one.resent for one in accounts),
            sum(one.copies for one in accounts),
        )

    def said(self) -> str:
        return "\n".join(f"{name}: {node.said()[-2000:]}" for name, node in self.nodes.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster(Nodes):
    """Nodes with a primary and its standby."""

    pair: Pair

    def fail_over(self) -> None:
        self.pair.kill_primary()
        self.pair.promote()
        self.rebuild()

    def restart_primary(self) -> None:
        self.pair.kill_primary()
        self.pair.primary.start()
        self.pair.wait_for_sync()

    def rebuild(self) -> None:
        """Make the other server the standby, and wait until it has what the primary took alone."""
        self.pair.rebuild()
        primary = self.pair.primary
        here = primary.execute("SELECT pg_current_wal_lsn()::text")[0][0]
        until(lambda: primary.execute(SQL_FLUSHED, here)[0][0], "the standby does not catch up")


@contextmanager
def run_cluster(home: Path, *, loopback: bool = False) -> Iterator[Cluster]:
    """Run all of it, with no account yet; webs are ready, workers are about to be.

    To be called from the main thread, as `run_pair` is.
    """
    with ExitStack() as stack:
        network = stack.enter_context(open_network([*WEBS, *WORKERS, *SERVERS, CARRIER], loopback=loopback))
        print(network.told)
        carrier = CarrierProcess(home / "texts.jsonl", network[CARRIER])
        stack.callback(carrier.kill)
        north, south = (network[name] for name in SERVERS)
        pair = stack.enter_context(
            run_pair(
                home,
                addresses=(north.address, south.address),
                ports=(north.free_port(), south.free_port()),
                prefixes=(north.prefix, south.prefix),
            )
        )
        yield start_nodes(Cluster, stack, home, network, carrier, pair.url, pair=pair)


AnyNodes = TypeVar("AnyNodes", bound=Nodes)


def start_nodes(
    kind: type[AnyNodes],
    stack: ExitStack,
    home: Path,
    network: Network,
    carrier: CarrierProcess,
    url: str,
    **more: Any,
) -> AnyNodes:
    """Start webs, wait until they are ready, and start workers; all end with the stack."""
    complete(_add_carrier(url, carrier))
    settings = {"database_url": url, "data_dir": home / "data"}
    nodes: dict[str, NodeProcess] = {}
    bases: dict[str, str] = {}
    for name in WEBS:
        place = network[name]
        port = place.free_port()
        bases[name] = f"http://{place.address}:{port}"
        nodes[name] = NodeProcess(
            "web", home / f"{name}.log", place.prefix, host=place.address, port=port, **settings
        )
        stack.callback(nodes[name].kill)
    cluster = kind(
        network=network,
        nodes=nodes,
        bases=bases,
        carrier=carrier,
        reader=UrlReader(url),
        settings=settings,
        **more,
    )
    cluster.wait_until_ready()
    for name in WORKERS:
        nodes[name] = NodeProcess("worker", home / f"{name}.log", network[name].prefix, **settings)
        stack.callback(nodes[name].kill)
    return cluster


async def _add_carrier(url: str, carrier: CarrierProcess) -> None:
    database = Database(url, connections_max=1)
    address = f"smpp://cluster:secret@{carrier.place.address}:{carrier.port}"
    await add_carrier(
        database, "cluster", f"{address}?window={WINDOW}&tps=0&binds={BINDS}&doubt_wait=2", None, 100
    )
    await database.close()


@dataclass(slots=True)
class Hurried:
    """Callers of one account, one for each node, that send as fast as they may and repeat nothing."""

    bases: Sequence[str]
    key: str
    name: str
    # Once its minute is used up it asks less often: how often it is refused proves nothing more.
    refused_pause_s: float = 0.05
    accepted: list[Sent] = field(default_factory=list)
    begun: dict[str, Sequence[str]] = field(default_factory=dict)
    answers: Counter[int] = field(default_factory=Counter)
    _stop: threading.Event = field(default_factory=threading.Event)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(len(self.bases)) as pool:
            callers: list[Future[None]] = [pool.submit(self._run, base) for base in self.bases]
            try:
                yield
            finally:
                self._stop.set()
            for caller in callers:
                caller.result(PATIENCE_S)

    def _run(self, base: str) -> None:
        with httpx.Client(timeout=15, trust_env=False, verify=NO_TLS) as client:
            while not self._stop.is_set():
                status = self._send(client, base)
                self.answers[status] += 1
                if status != httpx.codes.ACCEPTED:
                    self._stop.wait(self.refused_pause_s)

    def _send(self, client: httpx.Client, base: str) -> int:
        """Send one text to one number, and return how that was answered; 0 for not at all."""
        number = next(self._numbers)
        # No passcode: those to numbers beside each other are limited.
        to, body = f"+2782123{number % 9900:04}", f"Your order {self.name}-{number} is ready."
        self.begun[body] = [to]
        try:
            answer = client.post(
                f"{base}/api/v1/messages",
                headers={"Authorization": f"Bearer {self.key}"},
                json={"channel": "sms", "to": to, "body": body},
            )
        except httpx.TransportError:
            return 0
        if answer.status_code == httpx.codes.ACCEPTED:
            batch_id = read_id(BATCH, answer.json()["batch_id"])
            assert batch_id is not None
            self.accepted.append(Sent(batch_id, [to], body))
        return answer.status_code


def accepted_at(rows: Rows, account_id: AccountId) -> Sequence[datetime]:
    """Return when the sends of an account were accepted, by the database's clock, oldest first."""
    statement = "SELECT created_at FROM batches WHERE account_id = $1 ORDER BY created_at"
    return [row["created_at"] for row in rows(statement, account_id)]


def check_window(times: Sequence[datetime]) -> None:
    """Check that no 60 seconds hold more calls than the limit, and the first 60 seconds exactly as many."""
    window = timedelta(seconds=WINDOW_S)
    for early, late in zip(times, times[LIMIT:], strict=False):
        assert late - early >= window, f"{LIMIT + 1} calls between {early} and {late}"
    assert sum(one - times[0] < window for one in times) == LIMIT, times
