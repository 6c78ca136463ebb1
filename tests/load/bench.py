"""The benchmark of `make bench`: rates, and ratios of values measured in the same run.

`make bench ARGS='single passcodes'` runs the sections of these names only.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import asyncpg

from tests.load import kannel
from tests.load.end_to_end import (
    fill_queue,
    measure_bulk,
    measure_latency,
    measure_single,
    postmaster_of,
    run_peer,
    run_stack,
)
from tests.load.generator import request
from tests.load.screening import measure_judge
from tests.load.webhooks import add_endpoint, measure_deliveries
from tests.support.postgres.databases import clone, run_server
from tests.support.processes.service import Caller, Service, run_web
from tumira.accounts import store as accounts
from tumira.core.ids import BatchId, message_ids, new_id
from tumira.pricing.quote import Leg, Quote, ValidRequest
from tumira.sending import insert
from tumira.sending.insert import Debit, NewBatch

PATH: Final = "/api/v1/messages"
BODY: Final = "Your code is 493817. Do not share it with anyone, ever."
RECIPIENTS: Final = 1000
ROUNDS: Final = 3
NUMBERS: Final = [f"+2637712{number:05}" for number in range(RECIPIENTS)]


async def _bare(url: str, caller: Caller, calls: int) -> float:
    """Run the accept's writes straight on the database, call after call; return messages a second."""
    connection = await asyncpg.connect(url)
    quote = Quote(NUMBERS, [0] * RECIPIENTS, [Leg("ZW", Decimal("0.04"), RECIPIENTS)], [], 1, Decimal(40), 1)
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
                    NewBatch(batch_id, caller.id, datetime.now(UTC), wanted, quote, 1, ids, turns),
                )
                account = await accounts.lock(connection, caller.id)
                debit = Debit(caller.id, batch_id, Decimal(40), None, None, b"{}")
                await insert.write(connection, [(account, debit.amount)], {}, [], [debit])
        return calls * RECIPIENTS / (time.perf_counter() - began)
    finally:
        await connection.close()


def _load(service: Service, connections: int, count: int, requests: Sequence[str]) -> dict[str, Any]:
    host, port = service.base.removeprefix("http://").split(":")
    before = _cpu_s(service)
    done = subprocess.run(
        [sys.executable, "-m", "tests.load.generator", host, port, str(connections), str(count)],
        input="\n".join(json.dumps(one) for one in requests),
        capture_output=True,
        check=True,
        text=True,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    assert set(result["statuses"]) == {"202"}, result["statuses"]
    return {**result, "web_cpu_s": _cpu_s(service) - before}


def _cpu_s(service: Service) -> float:
    with open(f"/proc/{service.process.pid}/stat", encoding="ascii") as stat:  # noqa: PTH123 - not a real file
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
    single = [
        request(PATH, caller.key, {"channel": "sms", "to": NUMBERS[place], "body": BODY})
        for place, caller in enumerate(callers)
    ]
    _load(service, connections, 500, single)
    label = f"single sends, {connections} connections"
    rates = [_show(f"  {label}", _load(service, connections, 6000, single), 1) for _ in range(ROUNDS)]
    rate = _median(f"(c) {label}", rates)
    print(f"    against the goal of 2,000/s              {rate / 2000:.2f}")
    print(f"    against 3,400/s, the aim                 {rate / 3400:.2f}\n")


def _measure_bulk(server: str) -> None:
    with run_stack(server, postmaster_of(server)) as stack:
        caller = stack.service.open_account(balance="100000000", rate=1_000_000)
        measure_bulk(stack, caller, 5, "  warming up")
        rate = measure_bulk(stack, caller, 100, "(d) end to end, 100,000 messages, never analysed")
        print(f"    against the goal of 4,000/s              {rate / 4000:.2f}")
        with stack.service.holding("SELECT count(*) FROM batches"):
            held = measure_bulk(stack, caller, 100, "(e) the same beside a transaction held open")
        print(f"    ratio (e)/(d)                            {held / rate:.2f}\n")


def _measure_submitted(server: str) -> None:
    """Measure single sends end to end, without webhooks and with, beside Kannel with its callbacks."""
    postmaster = postmaster_of(server)
    with run_peer("smsc") as smsc, run_stack(server, postmaster, port=smsc.port) as stack:
        callers = [stack.service.open_account(balance="100000", rate=1_000_000) for _ in range(16)]
        measure_single(stack, smsc, callers, 16, 500)
        for connections in (16, 64):
            rates = [measure_single(stack, smsc, callers, connections, 5000) for _ in range(ROUNDS)]
            _median(f"(f) single sends handed over, {connections} connections", rates)
    with (
        run_peer("smsc") as smsc,
        run_peer("sink") as sink,
        run_stack(server, postmaster, port=smsc.port) as stack,
    ):
        caller = stack.service.open_account(balance="100000", rate=1_000_000)
        add_endpoint(stack, caller, sink.port)
        measure_single(stack, smsc, [caller], 16, 500)
        single = {}
        for connections in (16, 64):
            rates = [measure_single(stack, smsc, [caller], connections, 5000) for _ in range(ROUNDS)]
            single[connections] = _median(f"(i) with a webhook on, {connections} connections", rates)
        sink.wait_for(500 + 2 * ROUNDS * 5000)
    _measure_kannel(single)


def _measure_passcodes(server: str) -> None:
    postmaster = postmaster_of(server)
    with run_peer("smsc") as smsc, run_stack(server, postmaster, port=smsc.port) as stack:
        caller = stack.service.open_account(balance="100000", rate=1_000_000)
        measure_single(stack, smsc, [caller], 16, 500)
        idle = measure_latency(stack, smsc, caller, "(g) passcodes, 50/s, nothing else")
    with run_peer("smsc") as smsc, run_stack(server, postmaster, port=smsc.port, tps=500) as stack:
        caller = stack.service.open_account(balance="100000000", rate=1_000_000)
        fill_queue(stack, caller, 200)
        beside = measure_latency(stack, smsc, caller, "(h) passcodes, 50/s, 200,000 bulk messages wait")
    p50, p99 = (after / before for after, before in zip(beside, idle, strict=True))
    print(f"    ratio (h)/(g)                            p50 {p50:.2f}   p99 {p99:.2f}   (goal: 2)\n")


def _measure_webhooks(server: str) -> None:
    alone, beside = measure_deliveries(server, postmaster_of(server))
    print(f"    (w) against the goal of 2,000/s          {alone / 2000:.2f}")
    print(f"    ratio (x)/(w)                            {beside / alone:.2f}   (goal: 0.90)\n", flush=True)


def _measure_kannel(single: Mapping[int, float]) -> None:
    if not kannel.is_installed():
        print("Kannel is not installed (Debian: `apt-get install kannel`): nothing to compare with.")
        return
    for connections, rate in single.items():
        rates = [kannel.measure(connections, 5000) for _ in range(ROUNDS)]
        accepted, handed_over = (statistics.median(column) for column in zip(*rates, strict=True))
        label = f"(k) Kannel in memory, {connections} connections"
        print(f"{label:<44} {handed_over:>9,.0f}/s   accepted {accepted:,.0f}/s")
        print(
            f"    ratio (i)/(k)                            {rate / handed_over:.2f}   (goal: 0.60)",
            flush=True,
        )


def _measure_accepts(server: str) -> None:
    with clone(server) as url, run_web(url) as service:
        _measure_large(service, service.open_account(balance="100000000", rate=1_000_000))
        callers = [service.open_account(balance="100000", rate=1_000_000) for _ in range(16)]
        for connections in (16, 64):
            _measure_single(service, callers, connections)


SECTIONS: Final[Mapping[str, Callable[[str], None]]] = {
    "content": lambda _server: measure_judge(),
    "accept": _measure_accepts,
    "bulk": _measure_bulk,
    "single": _measure_submitted,
    "passcodes": _measure_passcodes,
    "webhooks": _measure_webhooks,
}


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
    with run_server() as server:
        for name in names:
            SECTIONS[name](server)


if __name__ == "__main__":
    main()
