"""What the files in `deploy/patroni` promise; `tests/chaos/test_patroni.py` runs them."""

import re
import subprocess
from typing import Any

import pytest

from tests.support.chaos.balancers import balancer_environment, find_program
from tests.support.chaos.machines import DEPLOY, EXAMPLES, MACHINES, read_etcd_settings, read_settings
from tests.support.chaos.patroni import SQL_SET_UP
from tests.support.processes.programs import CHECKOUT

PAGE = (CHECKOUT / "docs" / "high-availability.md").read_text()


@pytest.fixture(scope="module")
def shared() -> Any:
    return read_settings()["bootstrap"]["dcs"]


def test_a_commit_is_on_two_servers_before_it_is_answered(shared: Any) -> None:
    assert shared["synchronous_mode"] == "quorum"
    assert shared["synchronous_mode_strict"] is True
    assert shared["synchronous_node_count"] == 2
    # YAML reads a bare `on` as a truth, and PostgreSQL would get "True".
    assert shared["postgresql"]["parameters"]["synchronous_commit"] == "on"


def test_a_lost_primary_is_replaced_in_time_and_follows_when_it_returns(shared: Any) -> None:
    assert shared["ttl"] == 20
    assert shared["loop_wait"] + 2 * shared["retry_timeout"] <= shared["ttl"]
    assert shared["primary_start_timeout"] + shared["primary_stop_timeout"] < shared["ttl"]
    assert shared["postgresql"]["use_pg_rewind"] is True
    assert shared["failsafe_mode"] is True
    # An absent standby, or a server that is silent, is noticed before the lease ends.
    assert shared["postgresql"]["parameters"]["wal_sender_timeout"] == "5s"


def test_nobody_gets_in_without_a_password() -> None:
    rules = [rule.split() for rule in read_settings()["postgresql"]["pg_hba"]]
    assert {rule[-1] for rule in rules} == {"scram-sha-256"}
    roles = {one["username"] for one in read_settings()["postgresql"]["authentication"].values()}
    # The superuser comes by the socket of its own machine only.
    assert {rule[2] for rule in rules if rule[0] == "host"} == roles - {"postgres"} | {"tumira"}


def test_all_files_and_the_page_name_the_same_machines() -> None:
    settings = read_settings()
    assert settings["etcd3"]["hosts"] == [f"{address}:2379" for address in EXAMPLES]
    cluster = [f"{name}=http://{address}:2380" for name, address in zip(MACHINES, EXAMPLES, strict=True)]
    assert read_etcd_settings()["ETCD_INITIAL_CLUSTER"].split(",") == cluster
    proxy = (DEPLOY / "haproxy.cfg").read_text()
    assert re.findall(r" server (\S+) (\S+)", proxy) == [
        (name, f"{address}:5432") for name, address in zip(MACHINES, EXAMPLES, strict=True)
    ]
    assert "@" + ",".join(f"{address}:5432" for address in EXAMPLES) + "/tumira?" in PAGE
    assert all(statement.format(password="…") in PAGE for statement in SQL_SET_UP)


def test_haproxy_takes_its_file() -> None:
    command = [find_program("haproxy"), "-c", "-q", "-f", str(DEPLOY / "haproxy.cfg")]
    done = subprocess.run(command, env=balancer_environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
