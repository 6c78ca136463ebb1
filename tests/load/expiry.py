"""How fast an account's queue expires, and how its calls fare meanwhile.

One account has a long queue that is past its validity all at once, behind messages of others that are not. A
process of its own runs the task that expires it, while the account goes on sending, a call at a time. Run it
with the number of messages, and that of the others:

    python -m tests.load.expiry 20000 1000000
"""

import asyncio
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from tests.support.delivery.engine import Engine, open_engine
from tests.support.postgres.databases import clone, run_server
from tests.support.postgres.embedded import quick_directory
from tests.support.processes.service import Caller
from tests.support.sending.batchers import send_call
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.postgres.pool import KEY_LOOKUPS, Database
from tumira.sending import lifecycle
from tumira.sending.types import Answered

TASK: Final = next(one for one in MAINTENANCE_TASKS if one.name == "expire waiting messages")
BATCH: Final = 1_000
FILL_MAX: Final = 50_000
PAUSE_S: Final = 0.01

# Places of messages that were accepted tomorrow, in front of all others. Only the queue is filled: nothing
# else of them is looked at, and they go before the audit.
FILL: Final = """
INSERT INTO queue (country, lane, turn, message_id)
SELECT 'ZW', 1, -number,
       (lpad(to_hex(((extract(epoch FROM now()) + 86400) * 1000)::bigint), 12, '0')
        || '7000a' || lpad(to_hex(number), 15, '0'))::uuid
  FROM generate_series($1::integer, $2::integer) AS number
"""


async def fill(engine: Engine, caller: Caller, count: int, others: int) -> None:
    for first in range(0, count, BATCH):
        to = [f"+2637712{first + place:05}" for place in range(min(BATCH, count - first))]
        await engine.send(caller, to)
    for first in range(0, others, FILL_MAX):
        await engine.rows(FILL, first + 1, min(others, first + FILL_MAX))


async def expire_all(url: str, count: int) -> tuple[int, float]:
    """Run the task until that number of messages has expired; return the number and the seconds."""
    # Everything that waits is too late, but not what was accepted tomorrow.
    lifecycle.HAND_OVER_MIN = timedelta(hours=24, minutes=1)  # type: ignore[misc]
    database = Database(url, settings=KEY_LOOKUPS)
    ended = 0
    began = time.monotonic()
    try:
        while ended < count:
            ended += await run_task(database, TASK)
    finally:
        await database.close()
    return ended, time.monotonic() - began


def _expire(url: str, count: int, results: "multiprocessing.Queue[tuple[int, float]]") -> None:
    results.put(asyncio.run(expire_all(url, count)))


async def measure(url: str, count: int, others: int) -> tuple[float, Sequence[float], Sequence[float]]:
    """Return expiries a second, and how long calls took before and meanwhile."""
    async with open_engine(url) as engine:
        caller = await engine.open_account()
        await fill(engine, caller, count, others)
        spawn = multiprocessing.get_context("spawn")
        results: multiprocessing.Queue[tuple[int, float]] = spawn.Queue()
        process = spawn.Process(target=_expire, args=(url, count, results))
        before = [await _call(engine, caller) for _ in range(100)]
        process.start()

        async def begun() -> bool:
            return bool(await engine.rows("SELECT FROM messages WHERE status = 'expired' LIMIT 1"))

        await engine.until(begun, "nothing expires")
        meanwhile = []
        while process.is_alive():
            meanwhile.append(await _call(engine, caller))
            await asyncio.sleep(PAUSE_S)
        ended, took_s = results.get()
        process.join()
        await engine.rows("DELETE FROM queue WHERE turn < 0")
        assert await engine.audit() == []
    return ended / took_s, before, meanwhile


async def _call(engine: Engine, caller: Caller) -> float:
    began = time.monotonic()
    decision = await engine.batcher.ask(send_call(caller, ["+27821230001"], "Your code is 493817."))
    assert isinstance(decision, Answered), decision
    return time.monotonic() - began


def _words(times_s: Sequence[float]) -> str:
    hundredths = statistics.quantiles(times_s, n=100)
    return f"p50 {hundredths[49] * 1000:.1f} ms, p99 {hundredths[98] * 1000:.1f} ms ({len(times_s)} calls)"


if __name__ == "__main__":
    with run_server(quick_directory()) as server_url, clone(server_url) as database_url:
        rate, quiet, busy = asyncio.run(measure(database_url, int(sys.argv[1]), int(sys.argv[2])))
    print(f"{rate:.0f} expiries a second; calls before: {_words(quiet)}; meanwhile: {_words(busy)}")
