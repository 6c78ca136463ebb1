"""A cluster under load while the primary, a worker and a web node die, and while connections are cut.

The short cases are `test_failover.py`, `test_engine_chaos.py` and `tests/journey/test_drain.py`.
Each node has a network namespace of its own where that is allowed, and a loopback address where not.
"""

import time
from typing import Final

import pytest

from tests.support.chaos.cluster import (
    CARRIER,
    LIMIT,
    SERVERS,
    WEBS,
    Cluster,
    Hurried,
    accepted_at,
    check_window,
    run_cluster,
)
from tests.support.chaos.node import Load, audit, until, wait_until_final
from tests.support.processes.programs import new_home
from tumira.accounts.rate_limit import WINDOW_S
from tumira.delivery.supervisor import LEASE_S

CALLERS: Final = 3
# A message in doubt waits for its dead worker's lease, for a receipt, and maybe for all of that again.
SETTLED_S: Final = 90.0
CUT_S: Final = 3.0


def load_for(cluster: Cluster, key: str) -> Load:
    first, *others = (cluster.bases[name] for name in WEBS)
    return Load(first, key, seed=1, large_max=100, pause_s=0.2, more_bases=others)


def cut_lines(cluster: Cluster, load: Load) -> None:
    """Let nothing through between a web and the primary, and between a worker and its carrier."""
    cluster.say("web1 cannot reach the primary, nor worker1 the carrier")
    with (
        cluster.network.apart("web1", cluster.pair.primary.name),
        cluster.network.apart("worker1", CARRIER),
    ):
        time.sleep(CUT_S)
    load.wait_for(10)


def cut_off_worker(cluster: Cluster, load: Load) -> None:
    """Let a worker reach the carrier but no database, until others take it for dead."""
    cluster.say("worker1 cannot reach the database")
    with cluster.network.apart("worker1", SERVERS[0]), cluster.network.apart("worker1", SERVERS[1]):
        time.sleep(LEASE_S + CUT_S)
    load.wait_for(10)


def fail_over(cluster: Cluster, load: Load) -> None:
    cluster.say("the primary is killed")
    cluster.pair.kill_primary()
    cluster.pair.promote()
    load.wait_for(5)
    cluster.say("the new primary accepts")
    cluster.pair.rebuild()
    load.wait_for(5)


def kill_nodes(cluster: Cluster, load: Load, *names: str) -> None:
    for name in names:
        cluster.say(f"{name} is killed")
        cluster.kill(name)
    load.wait_for(20)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_fail_over_kills_and_cut_lines_lose_nothing_and_keep_every_limit() -> None:
    with new_home() as home, run_cluster(home) as cluster:
        steady, early, late = cluster.open_account(), cluster.open_account(LIMIT), cluster.open_account(LIMIT)
        rows, bases = cluster.reader.rows, list(cluster.bases.values())
        load = load_for(cluster, steady.key)
        # One uses its minute up before the primary dies, the other while it does.
        first, second = Hurried(bases, early.key, "early"), Hurried(bases, late.key, "late")
        with first.running():
            with load.running(CALLERS):
                cluster.wait_until_bound()
                load.wait_for(10)
                if cluster.network.isolated:
                    cut_lines(cluster, load)
                with second.running():
                    fail_over(cluster, load)
                    kill_nodes(cluster, load, "worker2", "web2")
                    until(lambda: second.answers[429], lambda: f"not all were accepted: {second.answers}")
                if cluster.network.isolated:
                    cut_off_worker(cluster, load)
            cluster.say(f"{load.messages} messages were accepted; refused: {load.refused}")
            wait_until_final(rows, wait_s=SETTLED_S)
            cluster.say("all are final; who used its minute up waits for another")
            until(lambda: len(first.accepted) > LIMIT, lambda: f"{first.answers}", WINDOW_S + SETTLED_S)
        wait_until_final(rows, wait_s=SETTLED_S)
        print(cluster.check({steady.id: load, early.id: first, late.id: second}))
        check_window(accepted_at(rows, early.id))
        check_window(accepted_at(rows, late.id))
        audit(**cluster.settings)
        assert set(load.refused) <= {503}
        assert set(first.answers | second.answers) <= {0, 202, 429, 503}
        cluster.say("end")


# Where namespaces are not allowed the test above does the same.
@pytest.mark.long
@pytest.mark.timeout(300)
def test_nodes_on_loopback_lose_nothing_either() -> None:
    with new_home() as home, run_cluster(home, loopback=True) as cluster:
        caller = cluster.open_account()
        load = load_for(cluster, caller.key)
        with load.running(CALLERS):
            cluster.wait_until_bound()
            load.wait_for(10)
            fail_over(cluster, load)
            kill_nodes(cluster, load, "web2")
        wait_until_final(cluster.reader.rows, wait_s=SETTLED_S)
        print(cluster.check({caller.id: load}))
        audit(**cluster.settings)
        assert set(load.refused) <= {503}
        cluster.say("end")
