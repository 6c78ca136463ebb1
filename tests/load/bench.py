"""The benchmark of `make bench`: rates, and ratios of values measured in the same run.

`make bench ARGS='single passcodes'` runs the sections of these names only.
"""

import argparse
import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import asyncpg

from tests.load.carrier import Manners
from tests.load.end_to_end import (
    BODY,
    NUMBERS,
    PATH,
    RECIPIENTS,
    fill_queue,
    measure_bulk,
    measure_latency,
    run_load,
    single_sends,
)
from tests.load.generator import request
from tests.load.goals import Goals
from tests.load.guard import measure_guard
from tests.load.http_window import measure_http
from tests.load.node import run_stack
from tests.load.one_bind import measure_one_bind
from tests.load.peers import run_carrier_peer
from tests.load.processor import postmaster_of, process_cpu_s
from tests.load.screening import measure_judge
from tests.load.single import measure_singles
from tests.load.webhooks import measure_deliveries
from tests.load.window import measure_windows
from tests.support.postgres.databases import clone, execute, run_server
from tests.support.processes.service import Caller, Service, run_web
from tumira.accounts import store as accounts
from tumira.core.ids import BatchId, message_ids, new_id
from tumira.pricing.legs import split_by_network
from tumira.pricing.quote import Leg, Quote, ValidRequest
from tumira.sending import insert
from tumira.sending.insert import Debit, NewBatch

ROUNDS: Final = 3
FLUSHES: Final = 200
DAY: Final = timedelta(days=1)


async def _bare(url: str, caller: Caller, calls: int) -> float:
    """Run the accept's writes straight on the database, call after call; return messages a second."""
    connection = await asyncpg.connect(url)
    quote = Quote(NUMBERS, [0] * RECIPIENTS, [Leg("ZW", Decimal("0.04"), RECIPIENTS)], [], 1, Decimal(40), 1)
    split = split_by_network(quote, None, {})
    wanted = ValidRequest("sms", NUMBERS, BODY, None, dry_run=False)
    try:
        began = time.perf_counter()
        for turn in range(calls):
            batch_id = BatchId(new_id(time.time_ns() // 1_000_000))
            turns = range(turn * RECIPIENTS * 1000, (turn + 1) * RECIPIENTS * 1000, 1000)
            ids = message_ids(batch_id, RECIPIENTS)
            async with connection.transaction():
                await insert.insert_batch(
                    connection,
                    NewBatch(
                        batch_id,
                        caller.id,
                        datetime.now(UTC),
                        wanted,
                        quote,
                        1,
                        ids,
                        turns,
                        *split,
                        DAY,
                    ),
                )
                account = await accounts.lock(connection, caller.id)
                debit = Debit(caller.id, batch_id, Decimal(40), None, None, b"{}")
                await insert.write(connection, [(account, debit.amount)], {}, [], [debit], {})
        return calls * RECIPIENTS / (time.perf_counter() - began)
    finally:
        await connection.close()


def _load(service: Service, connections: int, count: int, requests: Sequence[str]) -> dict[str, Any]:
    host, port = service.base.removeprefix("http://").split(":")
    before = process_cpu_s(service.process.pid)
    result = run_load((host, int(port)), connections, count, requests)
    return {**result, "web_cpu_s": process_cpu_s(service.process.pid) - before}


def _show(label: str, result: dict[str, Any], recipients: int) -> float:
    rate = float(result["per_second"]) * recipients
    web, load = (result[part] / result["seconds"] for part in ("web_cpu_s", "own_cpu_s"))
    print(
        f"{label:<44} {rate:>9,.0f}/s   p50 {result['p50_ms']:6.1f} ms   p99 {result['p99_ms']:6.1f} ms   "
        f"web {web:4.0%} cpu   load {load:4.0%} cpu",
        flush=True,
    )
    return rate


def _median(label: str, values: Sequence[float]) -> float:
    middle = statistics.median(values)
    print(f"{label:<44} {middle:>9,.0f}/s   (median of {len(values)})", flush=True)
    return middle


def _measure_large(service: Service, caller: Caller) -> None:
    large = [request(PATH, caller.key, {"channel": "sms", "to": NUMBERS, "body": BODY})]
    _load(service, 2, 5, large)
    bare: list[float] = []
    through: dict[str, list[float]] = {"one caller": [], "four callers": []}
    for _ in range(ROUNDS):
        bare.append(asyncio.run(_bare(service.url, caller, 40)))
        for (label, rates), connections in zip(through.items(), (1, 4), strict=True):
            result = _load(service, connections, 40 * connections, large)
            rates.append(_show(f"  1,000 recipients a call, {label}", result, RECIPIENTS))
    print()
    bare_rate = _median("(a) accept straight on the database, messages", bare)
    for label, rates in through.items():
        http_rate = _median(f"(b) through HTTP, {label}, messages", rates)
        print(f"    ratio (b)/(a)                            {http_rate / bare_rate:.2f}   (goal: 0.60)")
    print()


def _measure_single(service: Service, callers: Sequence[Caller], connections: int) -> None:
    single = single_sends(callers)
    _load(service, connections, 500, single)
    label = f"single sends, {connections} connections"
    rates = [_show(f"  {label}", _load(service, connections, 6000, single), 1) for _ in range(ROUNDS)]
    rate = _median(f"(c) {label}", rates)
    print(f"    against the goal of 2,000/s              {rate / 2000:.2f}")
    print(f"    against 3,400/s, the aim                 {rate / 3400:.2f}\n")


def _measure_accepts(server: str, _goals: Goals) -> None:
    with clone(server) as url, run_web(url) as service:
        _measure_large(service, service.open_account(balance="100000000", rate=1_000_000))
        callers = [service.open_account(balance="100000", rate=1_000_000) for _ in range(16)]
        for connections in (16, 64):
            _measure_single(service, callers, connections)


def _measure_bulk(server: str, _goals: Goals) -> None:
    with run_stack(server, postmaster_of(server)) as stack:
        caller = stack.open_account()
        measure_bulk(stack, caller, 5, "  warming up")
        rate = measure_bulk(stack, caller, 100, "(d) end to end, 100,000 messages, never analysed")
        print(f"    against the goal of 4,000/s              {rate / 4000:.2f}")
        with stack.service.holding("SELECT count(*) FROM batches"):
            held = measure_bulk(stack, caller, 100, "(e) the same beside a transaction held open")
        print(f"    ratio (e)/(d)                            {held / rate:.2f}\n")


def _measure_passcodes(server: str, goals: Goals) -> None:
    postmaster = postmaster_of(server)
    with run_carrier_peer() as carrier, run_stack(server, postmaster, port=carrier.port) as stack:
        caller = stack.open_account()
        measure_latency(stack, carrier, caller, "  warming up", 100)
        idle = measure_latency(stack, carrier, caller, "(g) passcodes, 50/s, nothing else")
    with run_carrier_peer() as carrier, run_stack(server, postmaster, port=carrier.port, tps=500) as stack:
        caller = stack.open_account()
        fill_queue(stack, caller, 200)
        measure_latency(stack, carrier, caller, "  warming up", 100)
        beside = measure_latency(stack, carrier, caller, "(h) passcodes, 50/s, 200,000 bulk messages wait")
        stack.change_window(carrier, 10)
        carrier.behave(Manners(answer_ms=50, window=10))
        measure_latency(stack, carrier, caller, "(y) the same, window 10, answers after 50 ms")
        assert carrier.counts()["exceeding"] == 0, carrier.counts()
    print()
    for name, goal_ms, alone, crowded in zip(("p50", "p99"), (3, 10), idle, beside, strict=True):
        goals.at_most(f"passcodes at 50/s, request to carrier, {name}", goal_ms, alone, " ms")
        text = f"passcodes beside 200,000 waiting messages ÷ without, {name}"
        goals.at_most(text, 1.5, crowded / alone, more=f" ({crowded:.1f} ms)")


def _measure_webhooks(server: str, _goals: Goals) -> None:
    alone, beside = measure_deliveries(server)
    print(f"    (w) against the goal of 2,000/s          {alone / 2000:.2f}")
    print(f"    ratio (x)/(w)                            {beside / alone:.2f}   (goal: 0.90)\n", flush=True)


SECTIONS: Final[Mapping[str, Callable[[str, Goals], None]]] = {
    "content": lambda _server, _goals: measure_judge(),
    "accept": _measure_accepts,
    "bulk": _measure_bulk,
    "window": measure_windows,
    "http": measure_http,
    "bind": measure_one_bind,
    "single": measure_singles,
    "passcodes": _measure_passcodes,
    "guard": measure_guard,
    "webhooks": _measure_webhooks,
}


def _show_disk(server: str) -> None:
    """Print how long the disk of the database takes for a flush; every accept waits for one."""
    directory = execute(server, "SHOW data_directory")[0][0]
    times_ms = []
    with tempfile.NamedTemporaryFile(dir=Path(directory).parent) as file:
        for _ in range(FLUSHES):
            file.write(bytes(8192))
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times_ms.append((time.perf_counter() - began) * 1000)
    times_ms.sort()
    p50, p99 = times_ms[FLUSHES // 2], times_ms[int(FLUSHES * 0.99)]
    print(f"{'a flush of the disk (fdatasync)':<44} p50 {p50:6.2f} ms   p99 {p99:6.2f} ms\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("section", nargs="*", help=f"all without one: {', '.join(SECTIONS)}")
    names = parser.parse_args().section or list(SECTIONS)
    if unknown := set(names) - set(SECTIONS):
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    print(
        f"{os.cpu_count()} cores; PostgreSQL with fsync on, all processes and the load share them.\n",
        flush=True,
    )
    # So that all processes are stopped, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    goals = Goals()
    with run_server() as server:
        _show_disk(server)
        for name in names:
            SECTIONS[name](server, goals)
    goals.show()


if __name__ == "__main__":
    main()
