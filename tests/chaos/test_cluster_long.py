"""A cluster over two hundred random kills, and with two primaries at a time.

`CLUSTER_SEED` chooses another sequence of kills, `CLUSTER_KILLS` another number of them.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest

from tests.support.chaos.cluster import (
    CARRIER,
    LIMIT,
    WEBS,
    WORKERS,
    Cluster,
    Hurried,
    accepted_at,
    check_window,
    run_cluster,
)
from tests.support.chaos.node import Callers, Load, audit, until, wait_until_final
from tests.support.processes.programs import new_home
from tumira.core.ids import AccountId

CALLERS: Final = 3
# So that the numbers last: each gets one text only.
LARGE_MAX: Final = 60
PAUSE_S: Final = 0.3
# Between two kills, before some sends more are waited for; now and then they come right after each other.
GAP_MAX_S: Final = 2.0
SETTLED_S: Final = 180.0

FAIL_OVER: Final = "fail over"
RESTART: Final = "restart primary"
VICTIMS: Final = (*WEBS, *WORKERS, CARRIER, FAIL_OVER, RESTART)
# At the end only the database dies: the death of a worker would hide what it does not get over.
LAST_VICTIMS: Final = (RESTART, FAIL_OVER) * 5

SPLITS: Final = 4
# Longer than a lease, and than any wait for a server that does not answer.
SPLIT_S: Final = 15.0


SQL_SENT: Final = """
SELECT count(*) AS stuck, count(*) FILTER (WHERE p.submitted_at > $1) AS late
  FROM messages m
  JOIN parts p ON p.message_id = m.id
 WHERE m.status = 'sent'
"""


def kill(cluster: Cluster, victim: str) -> None:
    if victim == FAIL_OVER:
        cluster.fail_over()
    elif victim == RESTART:
        cluster.restart_primary()
    else:
        cluster.kill(victim)


def kill_now_and_then(cluster: Cluster, load: Load, chance: random.Random, kills: int) -> None:
    done: Counter[str] = Counter()
    chosen = [chance.choice(VICTIMS) for _ in range(kills - len(LAST_VICTIMS))]
    for number, victim in enumerate([*chosen, *LAST_VICTIMS], start=1):
        time.sleep(chance.uniform(0, GAP_MAX_S))
        cluster.revive()
        if chance.random() < 0.8:
            load.wait_for(chance.randint(1, 5))
        kill(cluster, victim)
        done[victim] += 1
        if number % 10 == 0:
            cluster.say(f"{number} kills, {load.messages} messages accepted, {load.refused}, {dict(done)}")


def keep_alive(cluster: Cluster, what: Callable[[], object]) -> bool:
    cluster.revive()
    return bool(what())


def no_more_receipts(cluster: Cluster) -> bool:
    """Tell whether the messages that wait for a receipt have become no fewer in a while."""
    count = "SELECT count(*) FROM messages WHERE status = 'sent'"
    before = cluster.reader.rows(count)
    time.sleep(3)
    return cluster.reader.rows(count) == before


def settle_and_check(cluster: Cluster, everybody: "dict[AccountId, Callers]") -> None:
    rows = cluster.reader.rows
    cluster.say("the load ends")
    until(lambda: keep_alive(cluster, lambda: rows("SELECT FROM binds WHERE state = 'bound'")), cluster.said)
    wait_until_final(rows, ("queued", "sending"), SETTLED_S)
    until(lambda: no_more_receipts(cluster), "receipts still come", SETTLED_S)
    cluster.say("no message waits any more")
    # A carrier that was killed owed some receipts: these messages were handed over, and stay sent.
    (stuck,) = rows(SQL_SENT, cluster.carrier.started_at)
    left = cluster.check(everybody, unfinished=["sent"])
    print(f"{left}; {stuck['stuck']} without a receipt")
    assert stuck["late"] == 0, "the carrier that lives owes no receipt"
    audit(**cluster.settings)
    cluster.say("the audit finds nothing")


def load_for(cluster: Cluster, key: str, seed: int) -> Load:
    first, *others = (cluster.bases[name] for name in WEBS)
    return Load(first, key, seed, large_max=LARGE_MAX, pause_s=PAUSE_S, more_bases=others)


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_two_hundred_kills_lose_nothing_and_repeat_only_what_was_in_doubt() -> None:
    seed = int(os.environ.get("CLUSTER_SEED", "1"))
    kills = int(os.environ.get("CLUSTER_KILLS", "200"))
    print(f"seed {seed}, {kills} kills")
    with new_home() as home, run_cluster(home) as cluster:
        caller, limited = cluster.open_account(), cluster.open_account(LIMIT)
        load = load_for(cluster, caller.key, seed)
        hurried = Hurried(list(cluster.bases.values()), limited.key, "hurried", refused_pause_s=0.2)
        with load.running(CALLERS), hurried.running():
            cluster.wait_until_bound()
            kill_now_and_then(cluster, load, random.Random(seed), kills)
            until(lambda: keep_alive(cluster, lambda: cluster.status(WEBS[0]) == 200), cluster.said)
            load.wait_for(20)
        settle_and_check(cluster, {caller.id: load, limited.id: hurried})
        check_window(accepted_at(cluster.reader.rows, limited.id))
        assert set(load.refused) <= {503}
        assert set(hurried.answers) <= {0, 202, 429, 503}, hurried.answers


@contextmanager
def split(cluster: Cluster) -> Iterator[None]:
    """Let half of the nodes reach the primary alone, and the others the standby alone."""
    primary, standby = cluster.pair.primary.name, cluster.pair.standby.name
    with ExitStack() as stack:
        stack.enter_context(cluster.network.apart(primary, standby))
        for node in (WEBS[0], WORKERS[0]):
            stack.enter_context(cluster.network.apart(node, standby))
        for node in (WEBS[1], WORKERS[1]):
            stack.enter_context(cluster.network.apart(node, primary))
        yield


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_primary_that_is_cut_off_and_replaced_accepts_nothing_and_hands_nothing_over_twice() -> None:
    with new_home() as home, run_cluster(home) as cluster:
        if not cluster.network.isolated:
            pytest.skip(cluster.network.told)
        caller = cluster.open_account()
        load = load_for(cluster, caller.key, seed=2)
        with load.running(CALLERS):
            cluster.wait_until_bound()
            for _ in range(SPLITS):
                load.wait_for(20)
                with split(cluster):
                    # Nobody ends the old primary: it goes on to take connections, and cannot commit.
                    cluster.pair.promote()
                    cluster.say(f"{cluster.pair.primary.name} is a primary too")
                    time.sleep(SPLIT_S)
                    load.wait_for(20)
                cluster.say(f"{cluster.pair.standby.name} is ended; refused: {load.refused}")
                cluster.pair.standby.kill()
                cluster.rebuild()
        settle_and_check(cluster, {caller.id: load})
        assert set(load.refused) <= {503}
