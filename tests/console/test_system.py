"""The system page, the heartbeat of nodes, audits and operators."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Final

import asyncpg
import httpx
import pytest

from tests.support.console.operators import ACTOR, walk
from tests.support.identity.customers import words
from tests.support.identity.people import alert, at_once, count, goes_to, new_browser, new_phone
from tests.support.postgres.databases import complete
from tests.support.processes.service import Service
from tumira import VERSION, audit_log
from tumira.audit_log import Actor
from tumira.console.pages.system import write_size
from tumira.core.ids import ACCOUNT, OPERATOR, write_id
from tumira.operations.audit import runs
from tumira.operations.audit.checks import CHECKS
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_maintenance, run_task
from tumira.postgres import partitions
from tumira.postgres.migrate import known
from tumira.postgres.nodes import NodeRole
from tumira.postgres.pool import KEY_LOOKUPS, Database
from tumira.runtime import heartbeat

SYSTEM: Final = "/operator/system"
CHANGES: Final = "/operator/changes"
TASK: Final = {task.name: task for task in MAINTENANCE_TASKS}
WAIT_TRIES: Final = 2_000


def shown(admin: httpx.Client, path: str = SYSTEM) -> str:
    page = admin.get(path)
    assert page.status_code == 200
    return words(page.text)


def finish_all(service: Service) -> None:
    service.sql(
        "UPDATE audits SET started_at = now(), finished_at = now(), broken = '{}' WHERE finished_at IS NULL"
    )


def test_version_database_and_steps_are_shown(service: Service, admin: httpx.Client) -> None:
    page = shown(admin)
    assert f"Version {VERSION}" in page
    assert "Up to date" in page
    assert known()[-1].name in page
    assert re.search(r"Database size \S+ MB", page)
    assert f"Partitions {partitions.WEEKS_AHEAD} weeks ahead" in page
    assert "No worker is running" in page
    service.sql("INSERT INTO workers (id) VALUES ('host:1:alive')")
    service.sql("INSERT INTO workers (id, seen_at) VALUES ('host:2:gone', now() - interval '1 minute')")
    page = shown(admin)
    assert re.search(r"host:1:alive .*? Running host:2:gone .*? Not responding", page)
    service.sql("DELETE FROM workers")


@pytest.mark.parametrize(("role", "title"), [("web", "Web processes"), ("webhooks", "Webhook processes")])
def test_a_process_without_carriers_says_that_it_lives_until_it_ends(
    service: Service, admin: httpx.Client, role: NodeRole, title: str
) -> None:
    async def live(database: Database) -> tuple[str, str]:
        async with heartbeat(database, role, every_s=0.01) as node:
            for _ in range(WAIT_TRIES):
                async with database.connection() as connection:
                    beat = "SELECT seen_at > started_at FROM nodes WHERE id = $1"
                    if await connection.fetchval(beat, node):
                        break
                await asyncio.sleep(0.01)
            return node, await asyncio.to_thread(shown, admin)

    async def live_without_a_database() -> None:
        async with heartbeat(Database("postgresql://nobody@127.0.0.1:1/nothing"), "web", every_s=0.01):
            await asyncio.sleep(0)

    service.sql("INSERT INTO nodes (id, version, seen_at) VALUES ('gone', '0', now() - interval '2 days')")
    node, page = service.run(live)
    # Under its title, perhaps below other processes of its kind.
    listed = re.search(rf".*(Web processes|Webhook processes).*?{node} {VERSION} .*? Running", page)
    assert listed is not None
    assert listed[1] == title
    assert not service.sql("SELECT FROM nodes WHERE id = ANY($1)", [node, "gone"])
    complete(live_without_a_database())


def test_an_audit_is_asked_for_run_by_a_worker_and_shown(service: Service, admin: httpx.Client) -> None:
    finish_all(service)
    before = count(service, "SELECT count(*) FROM audits")
    answers = at_once([lambda: admin.post(SYSTEM + "/audit")] * 4)
    assert sorted(str(goes_to(one)).partition("=")[2] for one in answers) == ["asked"] + ["waiting"] * 3
    assert count(service, "SELECT count(*) FROM audits") == before + 1
    assert "disabled" in admin.get(SYSTEM).text
    assert service.run(runs.run_next)
    assert not service.run(runs.run_next)
    page = shown(admin)
    assert "All checks passed" in page
    assert ACTOR in page
    (row,) = service.sql("SELECT * FROM audits ORDER BY id DESC LIMIT 1")
    assert row["asked_at"] <= row["started_at"] <= row["finished_at"]
    assert (row["broken"], row["problem"]) == ("{}", None)
    assert count(service, "SELECT count(*) FROM operator_changes WHERE what = 'audit asked for'") == 1


def test_what_is_broken_is_shown_with_its_rows(service: Service, admin: httpx.Client) -> None:
    finish_all(service)
    (broken,) = service.sql(
        "INSERT INTO accounts (id, phone, name, business, balance)"
        " VALUES (gen_random_uuid(), '+27821239998', 'x', 'x', 7) RETURNING id"
    )
    service.sql("INSERT INTO ledger_proofs (account_id, broken_at) VALUES ($1, now())", broken["id"])
    assert service.run(runs.ask_audit, Actor("cli:test"))
    assert service.run(runs.run_next)
    # A promise of an older version may have had another name.
    service.sql("UPDATE audits SET broken = broken || '{\"older\": []}' WHERE broken <> '{}'")
    page = shown(admin)
    assert "2 checks failed" in page
    assert next(check.promise for check in CHECKS if check.name == "balance") in page
    assert f'{{"balance": "7.0000", "transfers": "0", "account_id": "{broken["id"]}"}}' in page
    assert "ledger does not add up to its balance" in page
    assert write_id(ACCOUNT, broken["id"]) in page
    for table in ("ledger_proofs WHERE account_id", "accounts WHERE id"):
        service.sql(f"DELETE FROM {table} = $1", broken["id"])


def test_two_workers_never_run_one_audit_and_a_dead_ones_is_begun_again(service: Service) -> None:
    finish_all(service)
    assert service.run(runs.ask_audit, Actor("cli:test"))

    async def race(url: str) -> tuple[list[bool], bool]:
        one, other = (Database(url, connections_max=3) for _ in range(2))
        try:
            async with runs.alone(one) as line:
                assert line is not None
                kept_out = await runs.run_next(other)
                async with one.connection() as connection:
                    assert await runs.SQL_MARK_STARTED.value(connection) is not None
            # It was begun, and its worker is gone; of two who find it one takes it.
            ran = await asyncio.gather(runs.run_next(one), runs.run_next(other))
            return list(ran), kept_out
        finally:
            await one.close()
            await other.close()

    ran, kept_out = complete(race(service.url))
    assert not kept_out
    assert sum(ran) == 1
    assert not service.sql("SELECT FROM audits WHERE finished_at IS NULL")


def test_a_worker_finds_what_was_asked_for_by_itself(service: Service) -> None:
    finish_all(service)
    assert service.run(runs.ask_audit, Actor("cli:test"))

    async def work(url: str) -> None:
        database = Database(url, connections_max=3, settings=KEY_LOOKUPS)
        working = asyncio.create_task(run_maintenance(database))
        try:
            for _ in range(WAIT_TRIES):
                async with database.connection() as connection:
                    if not await runs.SQL_IS_WAITING.value(connection):
                        return
                await asyncio.sleep(0.01)
            raise AssertionError("nobody ran the audit")
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await database.close()

    complete(work(service.url))


def test_an_audit_that_takes_too_long_is_stopped_and_says_so(service: Service, admin: httpx.Client) -> None:
    finish_all(service)
    assert service.run(runs.ask_audit, Actor("cli:test"))
    with service.holding("LOCK TABLE idempotency_keys IN ACCESS EXCLUSIVE MODE"):
        assert service.run(runs.run_next, run_s=0.5)
    (row,) = service.sql("SELECT broken, problem FROM audits ORDER BY id DESC LIMIT 1")
    assert row["broken"] is None
    assert "Stopped after" in row["problem"]
    assert "Not finished" in shown(admin)
    assert not service.sql(
        "SELECT FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%idempotency_keys%'"
        " AND pid <> pg_backend_pid()"
    )


def test_every_night_has_one_audit_and_old_ones_are_forgotten(service: Service) -> None:
    finish_all(service)
    hour = (datetime.now(UTC) + timedelta(hours=2)).hour
    always, never = range(24), range(hour + 2, hour + 3)

    async def ask(database: Database, night: range) -> int:
        async with database.transaction() as connection:
            return await runs.ask_nightly(connection, night)

    assert [service.run(ask, night) for night in (never, always, always)] == [0, 1, 0]
    finish_all(service)
    assert service.run(ask, always) == 0
    service.sql("UPDATE audits SET asked_at = asked_at - interval '24 hours' WHERE asked_by = 'every night'")
    assert service.run(ask, always) == 1
    finish_all(service)
    # By the worker's own clock it is one hour or another; it never asks twice.
    assert service.run(run_task, TASK["ask for the nightly audit"]) == 0
    service.sql(
        "INSERT INTO audits (asked_by, asked_at, finished_at)"
        " SELECT 'old', now() - days * interval '1 day', now() FROM unnest(ARRAY[401, 399]) AS days"
    )
    assert service.run(run_task, TASK["forget old audits"]) == 1
    assert count(service, "SELECT count(*) FROM audits WHERE asked_by = 'old'") == 1
    service.sql("DELETE FROM audits WHERE asked_by = 'old'")


def test_an_operator_is_added_reset_and_removed_and_their_password_shown_once(
    service: Service, admin: httpx.Client
) -> None:
    def password(page: httpx.Response) -> str:
        (found,) = re.findall(r'<code id="password"[^>]*>([^<]+)</code>', page.text)
        return str(found)

    phone = new_phone()
    # A local number is completed for the country of the admin.
    form = {"name": "Nyasha New", "phone": f"0{phone[3:5]} {phone[5:]}", "role": "viewer"}
    added = admin.post(SYSTEM + "/operators", data=form)
    assert phone in added.text
    given = password(added)
    assert given not in admin.get(SYSTEM).text
    assert "Has not signed in yet" in shown(admin)
    entered = new_browser(service).post("/operator/sign-in", data={"phone": phone, "password": given})
    assert goes_to(entered) == "/operator/set-up"
    again = admin.post(SYSTEM + "/operators", data=form)
    assert (again.status_code, "operator already" in alert(again)) == (422, True)

    (row,) = service.sql("SELECT id FROM operators WHERE phone = $1", phone)
    path = f"{SYSTEM}/operators/{write_id(OPERATOR, row['id'])}"
    assert password(admin.post(path + "/reset")) != given
    assert goes_to(admin.post(path + "/remove")) == SYSTEM + "?done=removed"
    assert [admin.post(f"{path}/{what}").status_code for what in ("remove", "reset")] == [404, 404]
    changes = "SELECT actor, what FROM operator_changes WHERE position($1 IN detail) > 0 ORDER BY id"
    assert [tuple(change) for change in service.sql(changes, phone)] == [
        (ACTOR, "operator added"),
        (ACTOR, "operator's password reset"),
        (ACTOR, "operator removed"),
    ]


def test_what_cannot_be_an_operator_is_refused_and_no_operator_locks_themselves_out(
    service: Service, admin: httpx.Client
) -> None:
    for field, value in (("name", ""), ("name", "x" * 101), ("phone", "12"), ("role", "owner")):
        form = {"name": "Nobody", "phone": new_phone(), "role": "viewer", field: value}
        refused = admin.post(SYSTEM + "/operators", data=form)
        assert refused.status_code == 422
        assert f'id="{field}-fault"' in refused.text
    (own,) = service.sql("SELECT id FROM operators WHERE name = 'Rudo Operator'")
    for what in ("reset", "remove"):
        refused = admin.post(f"{SYSTEM}/operators/{write_id(OPERATOR, own['id'])}/{what}")
        assert (refused.status_code, "yourself" in refused.text) == (409, True)
        assert admin.post(f"{SYSTEM}/operators/x/{what}").status_code == 404
    shown(admin)


def test_changes_go_on_without_gap_or_repetition_and_are_found_by_who_and_whose(
    service: Service, admin: httpx.Client
) -> None:
    mine, other = service.open_account(), service.open_account()

    async def note(database: Database) -> None:
        async with database.transaction() as connection:
            for number in range(120):
                account = mine.id if number % 3 == 0 else other.id if number % 3 == 1 else None
                actor = Actor("cli:ann & co" if number % 2 else "cli:ben", None)
                await audit_log.record_by_operator(connection, actor, "something", f"n{number:03}", account)

    service.run(note)
    for asked, wanted in (
        ("", range(120)),
        ("?actor=cli:ann+%26+co", range(1, 120, 2)),
        (f"?account={mine.account_id}", range(0, 120, 3)),
        (f"?account={mine.account_id}&actor=cli:ann+%26+co", range(3, 120, 6)),
    ):
        seen = walk(admin, CHANGES + asked, "Older", r'<td class="detail">(n[0-9]{3})</td>')
        assert seen[:120] == [f"n{number:03}" for number in reversed(wanted)]
    assert "No changes match the filter." in shown(admin, CHANGES + "?actor=nobody")
    assert "No older changes." in shown(admin, CHANGES + "?before=0")
    wrong = admin.get(CHANGES, params={"account": "me"})
    assert (wrong.status_code, "Enter an account ID" in alert(wrong)) == (422, True)
    for query in (
        "before=x",
        "before=" + "9" * 400,
        "before=-1",
        "before=٣",
        "actor=%00",
        "actor=" + "x" * 5_000,
    ):
        assert admin.get(f"{CHANGES}?{query}").status_code == 200, query


def test_a_size_is_written_with_few_figures() -> None:
    sizes = (0, 999, 1000, 12_345_678, 5 * 10**15)
    assert [write_size(size) for size in sizes] == ["0 bytes", "999 bytes", "1 kB", "12.3 MB", "5,000 TB"]


def test_a_connection_that_ran_an_audit_is_gone_afterwards(service: Service) -> None:
    async def hold(database: Database) -> bool:
        async with runs.alone(database) as first, runs.alone(database) as second:
            assert isinstance(first, asyncpg.Connection)
            assert second is None
        async with runs.alone(database) as third:
            return third is not None

    assert service.run(hold)
