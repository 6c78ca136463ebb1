"""`tumira serve`: start, welcome, recovery and stop."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest

from tests.support.postgres.databases import clone
from tests.support.postgres.embedded import wait_for
from tests.support.processes.callers import Callers
from tests.support.processes.programs import (
    STOP_S,
    WORKERS,
    Node,
    Process,
    descendants,
    finish,
    new_home,
    one_line,
    part_of,
    read_terminal,
    running,
    start,
    tumira,
    wait_until_gone,
)
from tests.support.processes.service import Service, run_web
from tests.support.topups.servers import listening
from tumira.core.errors import OPERATOR_EXIT_CODE
from tumira.serve import STOP_S as PART_STOP_S

DEAD_URL: Final = "postgresql://tumira:secret@127.0.0.1:1/tumira"
SQL_WEEKS: Final = """
SELECT oid::regclass::text, pg_get_expr(relpartbound, oid)
  FROM pg_class
  JOIN pg_inherits ON inhrelid = oid
 WHERE inhparent = $1::text::regclass
 ORDER BY 1
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Give a directory whose database is made by the first node that runs in it."""
    with new_home() as path:
        yield path


@pytest.fixture(scope="module")
def shared() -> Iterator[Node]:
    with new_home() as path, running(path, webhooks_allow_private=1) as node:
        yield node


def demo(node: Node) -> Any:
    done = tumira("demo", "--json", **node.settings)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def send(node: Node, key: str) -> str:
    answer = httpx.post(
        f"{node.base}/api/v1/messages",
        headers={"Authorization": f"Bearer {key}"},
        json={"channel": "sms", "to": "+263771200001", "body": "Your code is 493817."},
        trust_env=False,
    )
    assert answer.status_code == 202, answer.text
    return str(answer.json()["batch_id"])


def has_batch(node: Node, key: str, batch_id: str) -> bool:
    answer = httpx.get(
        f"{node.base}/api/v1/batches/{batch_id}", headers={"Authorization": f"Bearer {key}"}, trust_env=False
    )
    return answer.status_code == httpx.codes.OK


def calls_counted(node: Node) -> float:
    text = httpx.get(f"{node.base}/metrics", trust_env=False).text
    assert "# TYPE tumira_api_calls_total counter" in text
    found = re.search(
        r'^tumira_api_calls_total\{operation="sendMessages",status="202"\} (\S+)$', text, re.MULTILINE
    )
    return float(found[1]) if found else 0.0


def test_a_newcomer_is_welcomed_and_sends_a_first_message(shared: Node) -> None:
    said = shared.said()
    assert f"  Console    {shared.base}/operator\n" in said
    assert f"  API        {shared.base}/api/v1\n" in said
    assert f"  Reference  {shared.base}/docs\n" in said
    assert "tumira demo` in another terminal: it prints a first message to send." in said
    paths = ("/healthz", "/readyz", "/docs", "/operator", "/simulator", "/nothing")
    assert [shared.status(path) for path in paths] == [200, 200, 200, 303, 200, 404]
    counted = calls_counted(shared)

    told = tumira("demo", **shared.settings)
    assert (told.returncode, told.stderr) == (0, "")
    (pasted,) = re.findall(r"^curl .*", told.stdout, re.MULTILINE | re.DOTALL)
    curl = f"{pasted.strip()} --silent --write-out '\n%{{http_code}}'"
    answered = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, check=True, timeout=30)

    body, status = answered.stdout.splitlines()
    assert status == "202", body
    assert json.loads(body)["accepted"] == 2
    assert calls_counted(shared) == counted + 1


def is_complete(node: Node, key: str, batch_id: str) -> bool:
    answer = httpx.get(
        f"{node.base}/api/v1/batches/{batch_id}", headers={"Authorization": f"Bearer {key}"}, trust_env=False
    )
    return bool(answer.json()["data"]["status"] == "completed")


@pytest.mark.skipif(len(WORKERS) == 1, reason="one core")
def test_webhooks_are_sent_by_a_process_of_their_own(shared: Node) -> None:
    told: list[str] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["type"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Write nothing."""

    made = demo(shared)
    part = shared.part("webhooks")
    assert part is not None
    with listening(Receiver) as port:
        words = ("--account", made["account_id"], "--url", f"http://127.0.0.1:{port}/")
        added = tumira("webhook", "add", *words, "--events", "message.delivered", **shared.settings)
        assert added.returncode == 0, added.stderr
        os.kill(part.pid, signal.SIGSTOP)
        try:
            batch_id = send(shared, made["key"])
            wait_for(lambda: is_complete(shared, made["key"], batch_id))
            assert told == []
        finally:
            os.kill(part.pid, signal.SIGCONT)
        wait_for(lambda: told == ["message.delivered"])


@pytest.mark.long
def test_the_demo_can_be_asked_again(shared: Node) -> None:
    first, second = demo(shared), demo(shared)

    assert list(first) == ["account_id", "balance", "key_id", "key", "curl"]
    assert first["account_id"] == second["account_id"]
    assert has_batch(shared, second["key"], send(shared, first["key"]))


def test_a_second_start_says_so_and_leaves_the_first_alone(shared: Node) -> None:
    twice = one_line(tumira("serve", **shared.settings), OPERATOR_EXIT_CODE)
    assert twice.startswith(
        f"Error: Tumira already runs on {shared.settings['data_dir']}, at {shared.base}: stop"
    )
    elsewhere = Node(shared.home)
    line = one_line(tumira("serve", **elsewhere.settings), OPERATOR_EXIT_CODE)
    assert line.startswith(f"Error: Tumira already runs as process {shared.process.pid} on ")
    assert shared.status("/readyz") == 200


@pytest.mark.long
def test_a_taken_port_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = one_line(tumira("serve", data_dir=tmp_path / "data", port=port), OPERATOR_EXIT_CODE)

    assert line == (
        f"Error: Port {port} on 127.0.0.1 cannot be used (Address already in use): stop what uses it, "
        "or set TUMIRA_PORT or TUMIRA_HOST."
    )
    assert not (tmp_path / "data").exists()


@pytest.mark.long
def test_a_database_that_is_away_is_said_in_one_line() -> None:
    line = one_line(tumira("audit", database_url=DEAD_URL))

    assert line.startswith("Error: The database cannot be reached; check TUMIRA_DATABASE_URL.")
    assert "secret" not in line


@pytest.mark.long
def test_a_node_waits_for_a_database_that_is_away_and_says_so_once() -> None:
    commands = {"serve": "Waiting for", "web": "web waits for", "worker": "worker waits for"}
    nodes = [start(name, database_url=DEAD_URL, port=Node(Path("/")).port) for name in commands]
    for node, waits in zip(nodes, commands.values(), strict=True):
        assert node.stderr is not None
        line = node.stderr.readline().decode()
        assert line.startswith(
            f"{waits} the database. The database cannot be reached; check TUMIRA_DATABASE_URL."
        )
        assert "secret" not in line
    # More than one try is made.
    time.sleep(1.5)
    for node in nodes:
        node.terminate()
    done = [finish(node) for node in nodes]
    assert [(one.returncode, one.stderr) for one in done] == [(0, "Stopped.\n"), (0, ""), (0, "")]


@pytest.mark.long
def test_serve_begins_when_its_database_comes(server_url: str, tmp_path: Path) -> None:
    with clone(server_url) as url:
        [socket_dir] = parse_qs(urlsplit(url).query)["host"]
        link = tmp_path / "socket"
        node = Node(tmp_path, database_url=url.replace(quote(socket_dir), quote(str(link))))
        del node.settings["simulator_port"]
        node.start()
        try:
            node.wait_for_words("Waiting for the database.")
            link.symlink_to(socket_dir)
            node.wait_until_ready()
            assert node.status("/readyz") == 200
            assert node.stop() == 0
        finally:
            node.abandon()


@pytest.mark.long
def test_the_demo_is_not_for_a_database_of_somebody_else() -> None:
    line = one_line(tumira("demo", database_url=DEAD_URL))

    assert "TUMIRA_DATABASE_URL" in line
    assert "tumira account create" in line


@pytest.mark.long
def test_settings_come_from_a_file_too_and_what_is_wrong_with_them_ends_it(home: Path) -> None:
    node = Node(home)
    settings = "".join(f"TUMIRA_{name.upper()}={value}\n" for name, value in node.settings.items())
    (home / ".env").write_text(f"# Ours\n{settings}TUMIRA_PUBLIC_URL='https://sms.example/'\n")
    node.settings = {}
    node.start()
    try:
        node.wait_until_ready()
        assert "  API        https://sms.example/api/v1\n" in node.said()
        assert node.status("/readyz") == 200
        told = tumira("demo", cwd=home)
        assert "curl https://sms.example/api/v1/messages" in told.stdout

        (home / ".env").write_text(f"{settings}TUMIRA_KEEP_WEEKS=nonsense\n")
        kill(node, "worker")
        assert node.process.wait(STOP_S) == OPERATOR_EXIT_CODE
        assert "Error: TUMIRA_KEEP_WEEKS is 'nonsense'" in node.said()
        assert node.said().endswith(
            "Error: worker cannot run here; its last line above says what to put right.\n"
        )
    finally:
        node.abandon()
        (home / ".env").unlink()


def kill(node: Node, name: str) -> Process:
    part = node.part(name)
    assert part is not None
    os.kill(part.pid, signal.SIGKILL)
    return part


@pytest.mark.long
def test_what_is_killed_is_started_again_ctrl_c_stops_everything_and_nothing_is_lost(home: Path) -> None:
    node = Node(home)
    ours, theirs = pty.openpty()
    # setsid makes the terminal theirs, so that Ctrl-C reaches them as it would from a keyboard.
    node.start(prefix=["setsid", "--ctty"], stdin=theirs)
    os.close(theirs)
    node.wait_until_ready()
    key = demo(node)["key"]
    parts = ("web", *WORKERS)
    for name in parts:
        kill(node, name)
        node.wait_for_words(f"{name} ended with code -9; starting it again.")
        wait_for(partial(node.part, name))
    wait_for(lambda: node.status("/readyz") == 200)
    batch_id = send(node, key)
    others = [node.part(name) for name in parts]
    ready = node.said().count("Tumira is ready again.")
    kill(node, "postgres")
    node.wait_for_words("Tumira is ready again.", count=ready + 1)
    assert has_batch(node, key, batch_id)
    assert [node.part(name) for name in parts] == others
    running_parts = descendants(node.process.pid)
    assert {*parts} <= {part_of(part.words) for part in running_parts}

    began = time.monotonic()
    os.write(ours, b"\x03")
    assert node.process.wait(STOP_S) == 0
    # No part had to be waited for until it was ended.
    assert time.monotonic() - began < PART_STOP_S
    assert "Press Ctrl-C to stop.\n" in node.said()
    assert "Stopping …\n" in node.said()
    assert node.said().endswith("Stopped.\n")
    assert read_terminal(ours) == "^C"
    os.close(ours)
    assert [part.words for part in running_parts if part.lives] == []

    with running(home) as again:
        assert has_batch(again, key, batch_id)


@pytest.mark.long
@pytest.mark.parametrize("part", ["postgres", "web"])
def test_a_stop_while_it_starts_is_heard(home: Path, part: str) -> None:
    node = Node(home)
    node.start()
    wait_for(partial(node.part, part))
    parts = descendants(node.process.pid)

    assert node.stop(signal.SIGTERM) == 0, node.said()

    assert node.said().endswith("Stopped.\n")
    assert "is ready" not in node.said()
    assert [one.words for one in parts if one.lives] == []


@pytest.mark.long
def test_a_part_that_cannot_start_is_tried_again_less_and_less_often(home: Path) -> None:
    with running(home) as node:
        web = node.part("web")
        with take_port_of("simulator", node):
            node.wait_for_words("cannot be used for the simulator (Address already in use)", count=3)
        node.wait_for_words("Tumira is ready again.")
        assert node.part("web") == web
        said = node.said()
        # With waits of half a second, one and two after the first try, however fast a try is.
        assert said.count("cannot be used for the simulator") < 8
        assert said.count("simulator ended with code 1; starting it again.") == 1


@contextmanager
def take_port_of(name: str, node: Node) -> Iterator[None]:
    while True:
        wait_for(partial(node.part, name))
        wait_until_gone([kill(node, name)])
        with suppress(OSError), socket.create_server(("127.0.0.1", node.simulator_port)):
            yield
            return


@pytest.mark.long
def test_serve_can_be_started_at_once_after_it_was_killed(home: Path) -> None:
    node = Node(home)
    node.start()
    node.wait_until_ready()
    web = node.part("web")
    assert web is not None
    # It is slow to notice, and holds the port meanwhile.
    os.kill(web.pid, signal.SIGSTOP)
    node.process.kill()
    node.process.wait()
    node.start()
    try:
        wait_for(lambda: node.process.poll() is not None or catches(node.process.pid, signal.SIGTERM))
        time.sleep(0.5)
        os.kill(web.pid, signal.SIGCONT)
        node.wait_for_words("Press Ctrl-C to stop.", count=2)
        assert node.status("/readyz") == 200
    finally:
        if web.lives:
            os.kill(web.pid, signal.SIGKILL)
        node.abandon()


def catches(pid: int, number: signal.Signals) -> bool:
    caught = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return caught is not None and int(caught[1], 16) >> (number - 1) & 1 == 1


@pytest.mark.long
def test_when_serve_was_killed_the_rest_ends_by_itself(home: Path) -> None:
    node = Node(home)
    node.start()
    node.wait_until_ready()
    key = demo(node)["key"]
    batch_id = send(node, key)
    parts = descendants(node.process.pid)
    assert len(parts) > 3

    node.process.kill()
    node.process.wait()

    wait_until_gone(parts)
    with running(home) as again:
        assert has_batch(again, key, batch_id)


@pytest.mark.long
def test_a_call_under_way_is_answered_when_the_node_stops(server_url: str) -> None:
    with clone(server_url) as url, run_web(url) as service:
        callers = Callers(service.base, service.open_account(balance="1000", rate=1_000_000).key)
        with callers.calling():
            callers.wait_for_more()
            callers.node_stops_at = time.monotonic()
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(STOP_S) == 0
        accepted = service.sql("SELECT count(*) FROM batches")[0][0]

    assert callers.failed == []
    assert callers.statuses == {202: accepted}


@pytest.mark.long
def test_a_node_is_not_ready_without_its_migrations_or_when_the_weeks_run_out(server_url: str) -> None:
    def ready(service: Service) -> tuple[int, str]:
        answer = httpx.get(f"{service.base}/readyz", trust_env=False)
        return answer.status_code, answer.json().get("problem", "")

    with clone(server_url) as url, run_web(url) as service:
        (row,) = service.sql("DELETE FROM schema_migrations WHERE number = 1 RETURNING name, checksum")
        status, problem = ready(service)
        assert (status, "tumira migrate" in problem) == (503, True)
        assert httpx.get(f"{service.base}/healthz", trust_env=False).status_code == 200
        service.sql("INSERT INTO schema_migrations (number, name, checksum) VALUES (1, $1, $2)", *row)

        # Of ten weeks, from the last one to the eighth ahead, these leave this one and two more.
        for table in ("batches", "messages"):
            weeks = service.sql(SQL_WEEKS, table)
            for week, _ in weeks[4:]:
                service.sql(f"ALTER TABLE {table} DETACH PARTITION {week}")
            assert ready(service)[0] == 200
            week, bounds = weeks[3]
            service.sql(f"ALTER TABLE {table} DETACH PARTITION {week}")
            status, problem = ready(service)
            assert (status, "1 weeks" in problem) == (503, True)
            service.sql(f"ALTER TABLE {table} ATTACH PARTITION {week} {bounds}")
