"""A sign-up code reaches the phone, and opens the account."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx
import pytest

from tests.support.identity.people import (
    NOTHING_KEPT,
    PASSWORD,
    begin_sign_up,
    code_in,
    goes_to,
    is_signed_in,
    set_password,
    sign_in,
    verify,
)
from tests.support.postgres.databases import complete, execute
from tests.support.processes.programs import Node, new_home, running, tumira
from tests.support.processes.service import NO_TLS
from tumira.accounts.store import SYSTEM
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.postgres.embedded.server import attach
from tumira.postgres.pool import Database

PATIENCE_S: Final = 30
ANNA: Final = "+263771200101"
BEN: Final = "+27821230102"
CHIPO: Final = "+263771200103"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with new_home() as home, running(home) as one:
        yield one


def database_url(node: Node) -> str:
    url = attach(node.home / "data")
    assert url is not None
    return url


def command(node: Node, *arguments: str) -> Any:
    done = tumira(*arguments, "--json", **node.settings)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def browser_at(node: Node) -> httpx.Client:
    return httpx.Client(base_url=node.base, limits=NOTHING_KEPT, timeout=30, trust_env=False, verify=NO_TLS)


def texts_at(node: Node, phone: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        browser_at(node).get("/simulator/messages.json", params={"to": phone}).json()
    )
    return found


def first_true(condition: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, why
        time.sleep(0.05)


def text_number(node: Node, phone: str, number: int) -> str:
    first_true(lambda: len(texts_at(node, phone)) >= number, f"{phone} got no text {number}")
    return str(texts_at(node, phone)[number - 1]["text"])


async def erase_codes(url: str) -> int:
    database = Database(url, connections_max=1)
    try:
        return await run_task(
            database, next(task for task in MAINTENANCE_TASKS if task.name == "erase codes")
        )
    finally:
        await database.close()


@pytest.mark.long
def test_the_code_reaches_the_phone_and_opens_the_account_and_nobody_pays(node: Node) -> None:
    browser = browser_at(node)
    assert goes_to(begin_sign_up(browser, ANNA)) == "/dashboard/verify"
    text = text_number(node, ANNA, 1)
    assert text.startswith("Tumira: ")
    assert "It is valid for 10 minutes." in text
    assert goes_to(verify(browser, code_in(text))) == "/dashboard"
    assert is_signed_in(browser)

    url = database_url(node)
    first_true(
        lambda: execute(url, "SELECT FROM batches WHERE completed_at IS NULL") == [],
        "the receipt did not come",
    )
    (sent,) = execute(
        url,
        "SELECT m.account_id, m.status, m.cost, b.total_cost, b.refunded FROM messages m"
        " JOIN batches b ON b.id = m.batch_id WHERE m.recipient = $1",
        ANNA,
    )
    assert tuple(sent) == (SYSTEM, "delivered", 0, 0, 0)
    # Small sends are the first lane, and its clock has moved; nothing ever stood in the other.
    assert {row["lane"] for row in execute(url, "SELECT lane FROM clocks")} == {0}
    assert execute(url, "SELECT balance FROM accounts WHERE id = $1", SYSTEM)[0]["balance"] == 0
    assert execute(url, "SELECT FROM transfers WHERE batch_id IS NOT NULL") == []
    assert command(node, "audit")["ok"]
    assert text not in node.said()


@pytest.mark.long
def test_an_account_of_the_operators_gets_its_password_by_the_phone(node: Node) -> None:
    command(
        node, "account", "create", "--phone", BEN, "--name", "Ben", "--business", "Garage", "--balance", "5"
    )
    browser = browser_at(node)
    assert goes_to(browser.post("/dashboard/forgotten", data={"phone": BEN})) == "/dashboard/new-password"
    text = text_number(node, BEN, 1)
    assert "choose a new password" in text
    assert goes_to(set_password(browser, code_in(text), PASSWORD)) == "/dashboard"
    assert "US$5.00" in browser.get("/dashboard").text
    assert goes_to(sign_in(browser_at(node), BEN)) == "/dashboard"


@pytest.mark.long
def test_a_code_is_erased_once_it_is_of_no_more_use(node: Node) -> None:
    url = database_url(node)
    mine = "SELECT body FROM batches WHERE account_id = $1"
    begin_sign_up(browser_at(node), CHIPO)
    text_number(node, CHIPO, 1)
    first_true(
        lambda: execute(url, "SELECT FROM batches WHERE completed_at IS NULL") == [], "a receipt did not come"
    )
    before = execute(url, mine, SYSTEM)
    assert before
    complete(erase_codes(url))
    assert execute(url, mine, SYSTEM) == before

    execute(url, "UPDATE batches SET completed_at = completed_at - interval '10 minutes'")

    def is_erased() -> bool:
        # Whether it is ours or the node's own task that does it.
        complete(erase_codes(url))
        return {row["body"] for row in execute(url, mine, SYSTEM)} == {None}

    first_true(is_erased, "the code is still there")
    assert command(node, "audit")["ok"]
