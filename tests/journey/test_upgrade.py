"""Do the release before and this one work on one database: before, beside and after each other?"""

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import httpx
import pytest

from tests.support.chaos.breakable import CarrierThread
from tests.support.chaos.node import NOT_IN_USE, until
from tests.support.identity.people import SESSION, is_signed_in, new_browser, sign_up
from tests.support.postgres.databases import execute, sibling
from tests.support.postgres.old_release import NEW, Release, old_release
from tests.support.processes.service import NO_TLS, Service, free_port, wait_until_ready

STOP_S: Final = 30
SENDS_BETWEEN: Final = 25
FILE: Final = "to,name\n" + "\n".join(f"+2782123{place:04},Person {place}" for place in range(30))


@pytest.fixture(scope="module")
def old() -> Iterator[Release]:
    """Give the release before this one."""
    with old_release() as release:
        yield release


@contextmanager
def empty_database(server_url: str, name: str) -> Iterator[str]:
    """Give a database without any table, and drop it at the end."""
    execute(server_url, f"CREATE DATABASE {name} TEMPLATE template0")
    try:
        yield sibling(server_url, name)
    finally:
        execute(server_url, f"DROP DATABASE {name} WITH (FORCE)")


@dataclass(frozen=True, slots=True)
class Place:
    """A database that several releases use, and a carrier."""

    url: str
    carrier: CarrierThread

    def run(self, release: Release, *arguments: str) -> Any:
        """Run a command that succeeds, and return what it prints as JSON."""
        done = release.run(*arguments, "--json", database_url=self.url, webhooks_allow_private=1)
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    def open_account(self, release: Release, phone: str) -> tuple[str, str]:
        """Open an account, and return its id and a key."""
        account: str = self.run(
            release,
            *("account", "create", "--phone", phone, "--name", "Rudo", "--business", "Rudo"),
            *("--balance", "1000", "--rate", "100000"),
        )["account_id"]
        key: str = self.run(release, "key", "create", "--account", account, "--name", "test")["key"]
        return account, key

    def account_of(self, release: Release, phone: str) -> str:
        """Return the id of the account of a number."""
        found = [one for one in self.run(release, "account", "list") if one["phone"] == phone]
        return str(found[0]["account_id"])

    def add_carrier(self, release: Release) -> None:
        """Have messages go to the carrier, over four connections that workers share."""
        address = f"smpp://tester:secret@127.0.0.1:{self.carrier.port}?tps=0&binds=4"
        self.run(release, "carrier", "add", "main", address)

    @contextmanager
    def web(self, release: Release) -> Iterator[Service]:
        """Run a web process."""
        port = free_port()
        settings = {"database_url": self.url, "port": port, "trusted_proxies": "127.0.0.1"}
        process = release.start("web", "--quiet", log_level="error", **settings)
        base = f"http://127.0.0.1:{port}"
        with ending(process):
            wait_until_ready(base, process)
            yield Service(base, self.url, process)

    @contextmanager
    def worker(self, release: Release) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a worker that has a connection to the carrier."""
        process = release.start(
            *("worker", "--quiet"), log_level="error", database_url=self.url, webhooks_allow_private=1
        )
        with ending(process):
            until(lambda: self._is_bound(process.pid), "the worker has no connection to the carrier")
            yield process

    def _is_bound(self, pid: int) -> bool:
        bound = "SELECT FROM binds WHERE state = 'bound' AND split_part(worker, ':', 2) = $1"
        return bool(execute(self.url, bound, str(pid)))

    def wait_until_final(self) -> None:
        """Wait until every message has come to its end."""
        until(lambda: not self.open_messages(), lambda: f"{self.open_messages()} messages are not final")

    def open_messages(self) -> int:
        """Count the messages that have not come to their end."""
        is_open = "SELECT count(*) FROM messages WHERE status IN ('queued', 'sending', 'sent')"
        return int(execute(self.url, is_open)[0][0])

    def check(self, *releases: Release) -> None:
        """Have each release audit the database."""
        for release in releases:
            done = release.run("audit", "--json", database_url=self.url)
            assert done.returncode == 0, done


@contextmanager
def ending(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Ask a process to end with the block, in good order."""
    try:
        yield
    finally:
        process.terminate()
        _, said = process.communicate(timeout=STOP_S)
    assert process.returncode == 0, said.decode()


def post(service: Service, key: str, to: str, text: str, idempotency_key: str | None = None) -> bytes:
    """Send one message that is accepted, and return the answer."""
    headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
    answer = service.call(
        key, "POST", "/messages", json={"channel": "sms", "to": to, "body": text}, headers=headers
    )
    assert answer.status_code == httpx.codes.ACCEPTED, answer.text
    return answer.content


def batch(service: Service, key: str, answer: bytes) -> Any:
    """Look up the batch of an answer."""
    found = service.call(key, "GET", f"/batches/{json.loads(answer)['batch_id']}")
    assert found.status_code == httpx.codes.OK, found.text
    return found.json()


class Endpoint:
    """A customer's server, which notes the events that it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        noted = self.events

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                noted.append((self.headers["webhook-id"], event["type"]))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_arguments: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Answer meanwhile."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


@pytest.mark.timeout(300)
def test_what_the_old_release_left_behind_is_all_there_for_the_new_one(server_url: str, old: Release) -> None:
    endpoint = Endpoint()
    with (
        empty_database(server_url, "tumira_upgraded") as url,
        CarrierThread() as carrier,
        endpoint.running(),
    ):
        place = Place(url, carrier)
        place.run(old, "migrate")
        account, key = place.open_account(old, "+263771200008")
        place.add_carrier(old)
        place.run(old, "webhook", "add", "--account", account, "--url", endpoint.url)
        with place.web(old) as web:
            with place.worker(old):
                delivered = post(web, key, "+263771200001", "Your code is 493817.", "delivered-1")
                refunded = post(web, key, f"+26377120{NOT_IN_USE}", "Your code is 493818.")
                place.wait_until_final()
            waiting = post(web, key, "+263771200002", "Your code is 493819.", "waiting-1")
            person = sign_up(web)
            account = place.account_of(old, person.phone)
            place.run(old, "account", "credit", account, "100", "--note", "test")
            upload(person.browser)
            before = [batch(web, key, answer) for answer in (delivered, refunded)]
            balance = web.call(key, "GET", "/balance").json()
        waiting_before = place.open_messages()
        told = len(endpoint.events)

        with place.web(NEW) as web:
            assert [batch(web, key, answer) for answer in (delivered, refunded)] == before
            assert web.call(key, "GET", "/balance").json() == balance
            assert post(web, key, "+263771200001", "Your code is 493817.", "delivered-1") == delivered
            assert post(web, key, "+263771200002", "Your code is 493819.", "waiting-1") == waiting
            assert is_signed_in(new_browser(web, **{SESSION: person.session}))
            assert place.open_messages() == waiting_before > 0
            with place.worker(NEW):
                until(
                    lambda: execute(url, "SELECT FROM uploads WHERE state = 'sent'"), "the file is not sent"
                )
                place.wait_until_final()
                until(lambda: len(endpoint.events) > told, "nobody is told")
            after = batch(web, key, waiting)
        place.check(NEW, old)
        assert after["data"]["status"] == "completed"
        counts = carrier.counts()
        assert set(counts.values()) == {1}
        assert sum(text.startswith("Dear Person") for _, text in counts) == 30
        identifiers = [identifier for identifier, _ in endpoint.events]
        assert len(set(identifiers)) == len(identifiers)
        assert {kind for _, kind in endpoint.events} >= {"message.delivered", "message.refunded"}


def upload(browser: httpx.Client) -> None:
    """Have a file checked and confirm it, so that a worker sends it."""
    checked = browser.post(
        "/dashboard/upload",
        data={"message": "Dear {name}, your parcel is here."},
        files={"file": ("p.csv", FILE.encode(), "text/csv")},
    )
    path = checked.headers["location"]
    page = browser.get(f"{path}/send").text
    agreed = page.split('name="agreed" value="', 1)[1].split('"', 1)[0]
    confirmed = browser.post(f"{path}/send", data={"agreed": agreed})
    assert confirmed.status_code == httpx.codes.SEE_OTHER, confirmed.text


class Sender:
    """A caller of one web process that notes what was accepted, and everything else as a failure."""

    def __init__(self, service: Service, key: str, first: int) -> None:
        self._service = service
        self._key = key
        self._first = first
        self._stop = threading.Event()
        self.accepted: list[str] = []
        self.failed: list[str] = []

    @contextmanager
    def sending(self) -> Iterator["Sender"]:
        """Send meanwhile."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()

    def wait_for_more(self) -> None:
        """Wait until some more was accepted."""
        wanted = len(self.accepted) + SENDS_BETWEEN
        until(lambda: len(self.accepted) >= wanted or self.failed, "nothing is accepted")
        assert self.failed == []

    def _run(self) -> None:
        with httpx.Client(timeout=30, trust_env=False, verify=NO_TLS) as client:
            while not self._stop.is_set():
                to = f"+2637712{self._first + len(self.accepted):05}"
                answer = client.post(
                    f"{self._service.base}/api/v1/messages",
                    headers={"Authorization": f"Bearer {self._key}"},
                    json={"channel": "sms", "to": to, "body": "Your code is 493817."},
                )
                if answer.status_code != httpx.codes.ACCEPTED:
                    self.failed.append(answer.text)
                    return
                self.accepted.append(to)
                self._stop.wait(0.02)


def both_send(senders: Sequence[Sender]) -> None:
    for sender in senders:
        sender.wait_for_more()


@pytest.mark.timeout(300)
def test_both_releases_work_beside_each_other_and_either_goes_on_alone(server_url: str, old: Release) -> None:
    with empty_database(server_url, "tumira_rolling") as url, CarrierThread() as carrier:
        place = Place(url, carrier)
        place.run(old, "migrate")
        _, key = place.open_account(old, "+263771200008")
        place.add_carrier(old)
        # Upwards: the old nodes run on while the first new one changes the schema, and are stopped later.
        with ExitStack() as new_nodes:
            with ExitStack() as old_nodes:
                old_web = old_nodes.enter_context(place.web(old))
                old_worker = old_nodes.enter_context(place.worker(old))
                first = old_nodes.enter_context(Sender(old_web, key, 0).sending())
                first.wait_for_more()
                new_web = new_nodes.enter_context(place.web(NEW))
                new_nodes.enter_context(place.worker(NEW))
                second = new_nodes.enter_context(Sender(new_web, key, 20_000).sending())
                both_send([first, second])
                refused = NEW.run("migrate", "--finish", database_url=url)
                check_finish(place, refused, [old_web.process.pid, old_worker.pid])
                both_send([first, second])
            second.wait_for_more()
            # Downwards: old nodes start on what the new ones made of the schema.
            with place.web(old) as again, place.worker(old), Sender(again, key, 40_000).sending() as third:
                both_send([second, third])
                new_nodes.close()
                third.wait_for_more()
                place.wait_until_final()
                place.check(old, NEW)
        accepted = [number for sender in (first, second, third) for number in sender.accepted]
        assert [sender.failed for sender in (first, second, third)] == [[], [], []]
        counts = carrier.counts()
        assert sorted(number for number, _ in counts) == sorted(accepted)
        assert set(counts.values()) == {1}
        assert execute(url, "SELECT FROM incidents") == []
        # Nobody is left who needs what the new release takes away.
        place.run(NEW, "migrate", "--finish")
        with place.web(NEW) as web:
            post(web, key, "+263771299000", "Your code is 493817.")
        place.check(NEW)


def check_finish(place: Place, done: "subprocess.CompletedProcess[str]", pids: Sequence[int]) -> None:
    """Check that nothing was taken from the old nodes, if there is anything to be taken."""
    posts = {name for name in NEW.migrations if name.endswith("_post.sql")}
    applied = {f"{row[0]}.sql" for row in execute(place.url, "SELECT name FROM schema_migrations")}
    if posts <= applied:
        return
    assert done.returncode == 1, done
    for pid in pids:
        assert f":{pid}:" in done.stderr
