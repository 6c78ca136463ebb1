"""A twin of `test_patroni.py` without synchronous mode, which loses what was acknowledged."""

from typing import Final

import pytest

from tests.support.chaos.cluster import WEBS
from tests.support.chaos.node import Load, until
from tests.support.chaos.patroni import run_patroni
from tests.support.processes.programs import new_home

CALLERS: Final = 3


@pytest.mark.long
@pytest.mark.timeout(600)
def test_without_synchronous_mode_acknowledged_sends_are_lost_and_the_check_says_so() -> None:
    with (
        new_home() as home,
        run_patroni(home, synchronous_mode=False, synchronous_mode_strict=False) as cluster,
    ):
        if not cluster.network.isolated:
            pytest.skip(cluster.network.told)
        caller, leader = cluster.open_account(), cluster.machines.leader()
        load = Load(cluster.bases[WEBS[0]], caller.key, seed=1, large_max=60, pause_s=0.2)
        with load.running(CALLERS):
            load.wait_for(10)
            with cluster.cut_off(leader):
                until(
                    lambda: any(one.is_leader() for one in cluster.machines.others(leader)),
                    cluster.machines.said,
                )
                load.wait_for(10)
        cluster.machines.wait_until_whole(synchronous=False)
        with pytest.raises(AssertionError, match="accepted and not there"):
            cluster.check({caller.id: load})
