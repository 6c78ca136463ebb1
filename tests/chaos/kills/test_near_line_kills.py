"""A node that is killed loses some counts of texts near the line, and nothing else."""

import asyncio
import signal
from typing import Final

import pytest

from tests.support.content.near_line import find_near_text
from tests.support.postgres.databases import execute
from tests.support.processes.service import Caller, Service, new_caller, run_on, run_web
from tests.support.sending.batchers import broken_promises
from tumira.identity import manage_accounts

SENDS: Final = 3


def send_near(node: Service, caller: Caller) -> None:
    for _ in range(SENDS):
        assert node.send(caller, body=find_near_text()).status_code == 202


@pytest.mark.long
def test_a_killed_node_loses_counts_and_no_mark_and_the_others_write_theirs(database_url: str) -> None:
    caller = asyncio.run(new_caller(database_url))
    run_on(database_url, manage_accounts.review, caller.id, consent=True)
    with run_web(database_url) as killed, run_web(database_url) as first, run_web(database_url) as second:
        for node in (killed, first, second):
            send_near(node, caller)
        # It has not written yet, or has written all of it.
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait(30)
    # The others have ended in order, and have written what they had.
    marks = execute(database_url, "SELECT near_line FROM batches WHERE account_id = $1", caller.id)
    assert [row["near_line"] for row in marks] == [True] * 3 * SENDS
    (counted,) = execute(database_url, "SELECT sum(messages)::bigint FROM near_line_days")
    (sample,) = execute(database_url, "SELECT text, messages FROM near_line_texts")
    assert counted[0] == sample["messages"]
    assert sample["messages"] in (2 * SENDS, 3 * SENDS)
    assert sample["text"] == find_near_text()
    assert run_on(database_url, broken_promises) == []
