"""Every metric moves when what it measures does.

One gateway is driven through what happens to gateways: it waits for its worker, submits to a carrier that
loses answers and refuses, is paid, tells, mails, and loses its database. Its metrics are read all the while.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from prometheus_client import generate_latest

from scripts.metrics_list import listed, rules
from tests.support.carriers.bulksms import BulkSmsServer
from tests.support.carriers.server import CarrierServer, run_carrier
from tests.support.chaos.node import until
from tests.support.mail.server import mail_server
from tests.support.postgres.databases import clone, execute
from tests.support.processes.ports import free_port
from tests.support.processes.programs import CHECKOUT
from tests.support.processes.service import NO_TLS, Caller, Service
from tests.support.processes.watched import Watched, read_samples, watch_web
from tests.support.topups.paynow_server import paynow_server
from tests.support.uploads.files import check_file
from tests.support.webhooks.receivers import run_receiver
from tests.support.webhooks.world import DATA
from tumira.carriers.manage import add_carrier, add_http_carrier, new_access
from tumira.carriers.routes.manage import add_route
from tumira.core import metrics
from tumira.core.ids import UploadId, new_id
from tumira.core.settings import Encryption, Smtp
from tumira.core.settings.payments import Payments, read_payments
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.supervisor import CarrierTerms
from tumira.events import NewEvent, record_events
from tumira.mail import outbox
from tumira.operations.audit import runs
from tumira.operations.audit.checks import CHECKS
from tumira.operations.audit.runs import Finding
from tumira.postgres import partitions
from tumira.postgres.pool import KEY_LOOKUPS, Database
from tumira.simulator.replies import send_reply
from tumira.simulator.smsc import run_smsc
from tumira.topups.providers.paynow_messages import Wallet
from tumira.topups.start import start_paynow
from tumira.uploads import send as send_file
from tumira.uploads import store as uploads
from tumira.uploads.check_rows import Wanted
from tumira.uploads.price import price_rest
from tumira.webhooks import manage
from tumira.worker import run_worker

BOARD: Final = CHECKOUT / "deploy" / "grafana" / "tumira.json"
REFUSED: Final = "+263771209905"
TRIED_AGAIN: Final = "+2637712{place}9907"
LOST_ONCE: Final = "+2637712{place}9909"
WAIT_S: Final = 120
ROUNDS: Final = 8
LOOK_S: Final = 0.3
# No other test has carriers of these names, whose samples would be there from the beginning in this process.
FIRST: Final = "metered"
SECOND: Final = "metered-http"
# So long that messages whose answer is lost can be seen in flight.
PATIENT: Final = SmppTimeouts(response_s=4.0, enquire_after_s=2.0, enquire_answer_s=2.0, bind_s=3.0)

# A version does not change while it runs, and a standby is lost in tests/chaos/test_failover.py.
STILL: Final = frozenset({"tumira_build_info", "tumira_standby_missing"})

LISTED: Final = {one.name: one for one in listed()}


@dataclass(slots=True)
class Watch:
    """Everything that was ever read, by sample."""

    seen: dict[str, set[float]] = field(default_factory=dict)
    now: dict[str, float] = field(default_factory=dict)
    # What was there from the beginning.
    first: set[str] = field(default_factory=set)

    def begin(self, text: str) -> None:
        self.first.update(read_samples(text))
        self.note(text)

    def note(self, text: str) -> None:
        for name, value in read_samples(text).items():
            # Whatever is no number counts once, and unlike any number.
            self.seen.setdefault(name, set()).add(-1.0 if math.isnan(value) else value)
            self.now[name] = value

    def moved(self, name: str) -> bool:
        """Tell whether some sample of a metric had more than one value, or came in the meantime."""
        samples = (f"{name}_count", f"{name}_sum") if LISTED[name].type == "histogram" else (name,)
        own = {key: values for key, values in self.seen.items() if key.partition("{")[0] in samples}
        return any(len(values) > 1 or key not in self.first for key, values in own.items())


def page(base: str) -> str:
    return httpx.get(f"{base}/metrics", timeout=30, trust_env=False, verify=NO_TLS).text


@dataclass(frozen=True, slots=True)
class World:
    """The gateway, and where its parts show their metrics."""

    watch: Watch
    web: Watched
    service: Service
    caller: Caller
    worker_base: str
    data_dir: Path

    async def look(self, *, worker: bool = True) -> None:
        self.watch.note(await asyncio.to_thread(page, self.web.base))
        if worker:
            self.watch.note(await asyncio.to_thread(page, self.worker_base))

    async def until(
        self, condition: Callable[[Mapping[str, float]], bool], what: str, wait_s: float = WAIT_S
    ) -> None:
        """Read metrics until they say something."""
        async with asyncio.timeout(wait_s):
            while True:
                await self.look()
                if condition(self.watch.now):
                    return
                await asyncio.sleep(LOOK_S)
        raise AssertionError(what)

    async def run(self, action: Callable[..., Awaitable[Any]], *arguments: Any, **named: Any) -> Any:
        return await asyncio.to_thread(self.service.run, action, *arguments, **named)

    async def sql(self, statement: str, *arguments: Any) -> list[Any]:
        return await asyncio.to_thread(self.service.sql, statement, *arguments)

    async def send(self, *to: str, **fields: Any) -> httpx.Response:
        return await asyncio.to_thread(self.service.send, self.caller, to=list(to), **fields)


async def put_mail(database: Database) -> None:
    async with database.transaction() as connection:
        expires_at = datetime.now(UTC) + timedelta(minutes=10)
        await outbox.insert(connection, new_id(1), "tariro@example.org", "Code", "Your code", expires_at)


async def tell(database: Database, caller: Caller) -> None:
    async with database.transaction() as connection:
        await record_events(connection, [NewEvent(caller.id, "balance.low", data=DATA)], datetime.now(UTC))


async def upload(database: Database, caller: Caller) -> None:
    data = b"to\n+263771200041\n+263771200042\n"
    wanted = Wanted("people.csv", data, "Your parcel is here.", None, None)
    upload_id = await check_file(database, caller.id, wanted)
    async with database.connection() as connection:
        found = await uploads.find(connection, caller.id, UploadId(upload_id))  # type: ignore[arg-type]
        assert found is not None
        offer = await price_rest(connection, found)
    await send_file.confirm(database, caller.id, found.id, offer.total_cost)


async def break_audit(database: Database) -> None:
    finding = Finding(CHECKS[0], [{"row": 1}])
    await runs.record(database, "test", datetime.now(UTC), [finding])


async def leave_waiting(world: World, customer: str, payments: Payments) -> None:
    """Have something of everything wait for a worker, which is not there yet."""
    world.watch.begin(await asyncio.to_thread(page, world.web.base))
    world.watch.begin(generate_latest(metrics.WORKER).decode())
    assert (await world.send("+263771200031")).status_code == 202
    assert (await world.send(*[f"+2637712{place:05}" for place in range(500, 520)])).status_code == 202
    assert (await world.send("+263771200031", body="Sale! 50% off all shoes, buy now!")).status_code == 422
    account_id = world.caller.id
    await world.run(manage.add_endpoint, account_id, customer, None, "", allow_private=True)
    await world.run(tell, world.caller)
    await world.run(put_mail)
    await world.run(upload, world.caller)
    wallet, phone = Wallet.ECOCASH, "+263771200077"
    await world.run(start_paynow, payments, account_id, wallet, Decimal(5), phone)
    # As if workers had been away for weeks, and an operator had not looked for as long.
    week = await world.sql("SELECT max(relname) AS name FROM pg_class WHERE relname ~ '^incidents_20..w..$'")
    await world.sql(f"DROP TABLE {week[0]['name']}")
    await world.run(break_audit)
    await world.sql(
        "INSERT INTO ledger_proofs (account_id, broken_at) VALUES ($1, now())"
        " ON CONFLICT (account_id) DO UPDATE SET broken_at = now()",
        account_id,
    )
    await world.sql("INSERT INTO nodes (id, version, last_step) VALUES ('another', '0.1.0', 9999)")
    await world.sql(
        "INSERT INTO usdt_cursors (chain_id, contract, block_number, block_hash) VALUES (56, 'c', 1, 'h')"
    )
    await asyncio.to_thread(httpx.get, f"{world.web.base}/docs", trust_env=False, verify=NO_TLS)
    await asyncio.sleep(1.1)
    await world.look(worker=False)


def keep_calls_waiting(world: World) -> None:
    held = world.service.holding("SELECT FROM accounts WHERE id = $1 FOR UPDATE", world.caller.id)
    with ThreadPoolExecutor(1) as callers:
        with held:
            call = callers.submit(world.service.send, world.caller)
            until(lambda: _is_waiting(world), "no call waits")
        assert call.result().status_code in {202, 503}


def _is_waiting(world: World) -> bool:
    world.watch.note(page(world.web.base))
    return world.watch.now["tumira_gate_waiting_calls"] > 0


async def work(world: World, port: int, provider: CarrierServer, smtp: Smtp, payments: Payments) -> None:
    """Let a worker do all that waits, with a carrier that loses answers and refuses."""
    database = Database(world.service.url, settings=KEY_LOOKUPS)
    working = asyncio.create_task(
        run_worker(
            database,
            carriers=CarrierTerms(smpp=PATIENT),
            webhooks_allow_private=True,
            smtp=smtp,
            payments=payments,
            public_url="http://127.0.0.1",
            metrics_at=("127.0.0.1", int(world.worker_base.rpartition(":")[2])),
            data_dir=world.data_dir,
        )
    )
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                with suppress(httpx.TransportError):
                    await world.look()
                    break
                await asyncio.sleep(LOOK_S)
        await world.run(add_carrier, FIRST, f"smpp://a:b@127.0.0.1:{port}?doubt_wait=2", None, 100)
        # It serves no country, because another one does, and tells the credit left.
        access = new_access(provider.profile, provider.url, provider.settings, provider.secrets)
        await world.run(add_http_carrier, SECOND, access, None, 200)
        await world.run(
            add_route, country="ZA", network=None, carrier=FIRST, priority=1, cost=Decimal(1), currency="USD"
        )
        await world.sql(
            "INSERT INTO unmatched_receipts (carrier_id, recipient, state, receipt, received_at, next_try_at)"
            " SELECT id, '263771200099', 'DELIVRD', '', now(), now() + interval '1 day' FROM carriers LIMIT 1"
        )
        await meet_waiting(world)
        await claim_directly(world)
        await world.until(
            lambda now: now.get('tumira_receipt_seconds_count{country="ZW"}', 0) > 0, "receipts"
        )
        await send_reply(port, "+263771200099", "Tumira", "Who is this?")
        await world.until(lambda _now: world.watch.moved("tumira_replies_total"), "replies")
        await world.until(
            lambda now: now["tumira_mails_waiting"] == now["tumira_uploads_waiting"] == 0, "waits"
        )
        await world.until(lambda now: now["tumira_partition_weeks_left"] == partitions.WEEKS_AHEAD, "weeks")
        await world.until(
            lambda now: any(key.startswith("tumira_carrier_balance") for key in now), "credit left"
        )
        await world.until(lambda now: now['tumira_webhook_events_waiting{state="active"}'] == 0, "events")
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
        await database.close()


async def meet_waiting(world: World) -> None:
    """Send messages that wait for a moment, until a look has met them; on a busy machine it may miss some."""
    for place in range(ROUNDS):
        await world.send(REFUSED, TRIED_AGAIN.format(place=place), LOST_ONCE.format(place=place))
        with suppress(TimeoutError):
            for gauge in ("tumira_in_flight_messages", "tumira_doubt_messages", "tumira_retry_messages"):
                await world.until(partial(_has_moved, world.watch, gauge), gauge, WAIT_S / ROUNDS)
            return
    raise AssertionError("no look met a message in flight, in doubt and to be tried again")


async def claim_directly(world: World) -> None:
    """Send until the worker, which is on the same machine, offers places."""
    async with asyncio.timeout(WAIT_S):
        while not world.watch.moved("tumira_messages_claimed_directly_total"):
            assert (await world.send("+263771200033")).status_code == 202
            await world.look()


def _has_moved(watch: Watch, gauge: str, _now: Mapping[str, float]) -> bool:
    return len(watch.seen[gauge]) > 1


async def lose_database(world: World, server_url: str) -> None:
    name = urlsplit(world.service.url).path.removeprefix("/")
    await asyncio.to_thread(execute, server_url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    try:
        away = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = $1"
        await asyncio.to_thread(execute, server_url, away, name)
        async with asyncio.timeout(WAIT_S):
            while world.watch.now["tumira_database_up"] == 1:
                await world.look(worker=False)
        assert "tumira_queue_messages" not in await asyncio.to_thread(page, world.web.base)
    finally:
        await asyncio.to_thread(execute, server_url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def watch(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Watch]:
    """Drive a gateway through everything, and give what its metrics said."""
    folder = tmp_path_factory.mktemp("metrics")
    with clone(server_url) as url, mail_server() as mail, paynow_server() as paynow:
        environment = {
            "TUMIRA_DATA_DIR": str(folder / "data"),
            "TUMIRA_LOG_LEVEL": "warning",
            "TUMIRA_OTLP_URL": f"http://127.0.0.1:{free_port()}",
            "TUMIRA_OTLP_SAMPLE": "1",
        }
        payments = read_payments(paynow.environment)
        smtp = Smtp(
            "127.0.0.1",
            int(mail.url.rpartition(":")[2]),
            Encryption.WHEN_OFFERED,
            None,
            None,
            "T",
            "t@example.org",
        )
        async with run_receiver() as customer, run_smsc() as smsc:
            with watch_web(url, folder / "web.log", **environment) as (web, service):
                caller = await asyncio.to_thread(service.open_account)
                worker_base = f"http://127.0.0.1:{free_port()}"
                world = World(Watch(), web, service, caller, worker_base, folder / "data")
                await leave_waiting(world, customer.url, payments)
                (folder / "data").mkdir()
                await asyncio.to_thread(keep_calls_waiting, world)
                with run_carrier(BulkSmsServer()) as provider:
                    await work(world, smsc.port, provider, smtp, payments)
                await lose_database(world, server_url)
        yield world.watch


@pytest.mark.parametrize("name", [name for name in LISTED if name not in STILL])
def test_every_metric_moves(watch: Watch, name: str) -> None:
    assert watch.moved(name), {key: values for key, values in watch.seen.items() if key.startswith(name)}


def test_nothing_is_shown_that_is_not_listed(watch: Watch) -> None:
    names = {key.partition("{")[0] for key in watch.seen if key.startswith("tumira_")}
    known = {
        name + suffix
        for name, one in LISTED.items()
        for suffix in (("_bucket", "_sum", "_count") if one.type == "histogram" else ("",))
    }
    assert names <= known, names - known


def test_no_sample_names_an_account_or_a_number(watch: Watch) -> None:
    shown = "\n".join(watch.seen)
    assert "+263" not in shown
    assert "26377" not in shown
    assert "acc_" not in shown


def test_every_metric_is_on_the_board_and_the_board_knows_no_others() -> None:
    shown = json.loads(BOARD.read_text())
    asked = " ".join(
        target["expr"] for panel in shown["panels"] for target in panel.get("targets", ()) if target["expr"]
    )
    missing = [name for name in LISTED if name not in asked]
    assert missing == []
    known = {name + suffix for name in LISTED for suffix in ("", "_bucket", "_sum", "_count")}
    words = {word for word in _words(asked) if word.startswith("tumira_")}
    assert words <= known, words - known
    places = [tuple(panel["gridPos"].values()) for panel in shown["panels"]]
    assert len(set(places)) == len(places)


def test_every_alert_looks_at_metrics_that_there_are() -> None:
    known = {name + suffix for name in LISTED for suffix in ("", "_bucket", "_sum", "_count")}
    for rule in rules():
        words = {word for word in _words(rule.expression) if word.startswith("tumira_")}
        assert words <= known, (rule.name, words - known)


def _words(text: str) -> set[str]:
    return set("".join(one if one.isalnum() or one == "_" else " " for one in text).split())
