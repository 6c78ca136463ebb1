"""P11: no text goes out under a name that is not granted to its account, whichever node revoked it."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import httpx
import pytest

from tests.support.chaos.two_nodes import TwoNodes, run_two_nodes
from tests.support.delivery.engine import Engine, numbers
from tests.support.identity.operators import OperatorBrowser, new_operator
from tests.support.processes.service import Caller
from tumira.accounts.store import SYSTEM
from tumira.audit_log import OWNER, Actor
from tumira.core.ids import SENDER_NAME, write_id
from tumira.sender_names import manage
from tumira.sender_names.manage import NameRequest
from tumira.sender_names.store import SenderName
from tumira.simulator.smsc import run_smsc

DEFAULT: Final = "Tumira"
NAMES: Final = ("Moyo Stores", "Ncube Farm")
NOTICE: Final = "Your parcel 1042 is ready at our counter."
# Slow enough that messages wait while names come and go.
TPS: Final = 60
STEP: Final = 10


async def decide(
    nodes: TwoNodes, operator: OperatorBrowser, node: int, name: SenderName, decision: str
) -> None:
    """Decide about a name on the console of a node."""
    path = f"{nodes.webs[node].base}/operator/sender-names/{write_id(SENDER_NAME, name.id)}/{decision}"
    form = {"place": "ZW", "note": "Asked by the network"}
    answer = await asyncio.to_thread(operator.browser.post, path, data=form)
    assert answer.status_code == httpx.codes.SEE_OTHER, answer.text


async def send_while_names_come_and_go(engine: Engine, waiting: int, *mistakes: str) -> tuple[set[str], int]:
    """Revoke names on one node and grant them on the other, while the workers of both hand messages over.

    Return the senders that were used, and how many messages were claimed under a name that was not granted.
    """
    async with run_smsc() as smsc, run_two_nodes(engine) as nodes:
        await engine.add_carrier("one", smsc.port, binds=2, tps=TPS, window=4)
        operator = await asyncio.to_thread(new_operator, nodes.webs[0])
        callers = {name: await engine.open_account() for name in NAMES}
        names = [await ask(engine, caller, name) for name, caller in callers.items()]
        for name in names:
            await decide(nodes, operator, 1, name, "grant")
        await nodes.start_workers(*mistakes)
        for place, caller in enumerate(callers.values()):
            await nodes.send(1, caller, numbers(waiting, place * waiting), NOTICE)
        total = 2 * waiting
        # When each name was revoked for certain, by the clock of the database.
        revoked: list[tuple[str, datetime, datetime]] = []
        for name in itertools.cycle(names):
            await nodes.until_taken(min(total, await nodes.taken() + STEP))
            await decide(nodes, operator, 0, name, "revoke")
            gone = await nodes.statements_ended()
            await nodes.until_taken(min(total, await nodes.taken() + STEP))
            revoked.append((name.name, gone, await nodes.now()))
            if await nodes.taken() == total:
                break
            await decide(nodes, operator, 1, name, "grant")
        await engine.until_all("delivered")
        texts = [text for text in smsc.texts if text.text == NOTICE]
        assert len(texts) == total
        used = {text.sender for text in texts}
        return used, await count_wrong(engine, callers, revoked)


async def ask(engine: Engine, caller: Caller, name: str) -> SenderName:
    request = NameRequest(name, ["ZW"], "We tell customers that their parcels are here.")
    return await manage.ask(engine.database, caller.id, request, Actor(OWNER))


async def count_wrong(
    engine: Engine, callers: Mapping[str, Caller], revoked: Sequence[tuple[str, datetime, datetime]]
) -> int:
    own = {caller.id: name for name, caller in callers.items()}
    parts = await engine.rows(
        "SELECT m.account_id, p.sender, p.claimed_at FROM parts p JOIN messages m ON m.id = p.message_id"
        " WHERE m.account_id <> $1",
        SYSTEM,
    )
    return sum(
        part["sender"] not in {DEFAULT, own[part["account_id"]]}
        or any(part["sender"] == name and gone < part["claimed_at"] < back for name, gone, back in revoked)
        for part in parts
    )


@pytest.mark.long
@pytest.mark.parametrize("waiting", [50, 300])
async def test_a_name_that_one_node_revokes_is_used_by_no_other(engine: Engine, waiting: int) -> None:
    used, wrong = await send_while_names_come_and_go(engine, waiting)
    assert used == {DEFAULT, *NAMES}, "it shows nothing unless all of them were used"
    assert wrong == 0


@pytest.mark.long
async def test_workers_that_remember_names_are_found_out(engine: Engine) -> None:
    assert (await send_while_names_come_and_go(engine, 50, "remember_names"))[1] > 0
