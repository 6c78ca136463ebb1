"""A file that is expensive to check delays no other caller, and its owner sees the progress."""

import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.chaos.node import until
from tests.support.identity.people import Person, goes_to, run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tests.support.uploads.files import MESSAGE, expensive_file
from tumira.content.classifier import classify
from tumira.core.ids import UPLOAD, AccountId, UploadId, new_id, write_id
from tumira.postgres.pool import Database
from tumira.uploads import check_rows
from tumira.uploads import checks as file_checks

PAGE: Final = "/dashboard/upload"
TICKS: Final = os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as service:
        yield service


def processor_s(service: Service) -> float:
    """Return the seconds of the processor that the web process itself has taken."""
    fields = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(one) for one in fields[11:13]) / TICKS


def cost_s(rows: int) -> float:
    """Return the processor time that the texts of an expensive file take here."""
    names = [line.partition(",")[2] for line in expensive_file(rows).data.decode().splitlines()[1:]]
    begun = time.thread_time()
    for name in names:
        classify(MESSAGE.replace("{name}", name))
    return time.thread_time() - begun


def checks(service: Service) -> int:
    found = 0
    for children in Path(f"/proc/{service.process.pid}/task").glob("*/children"):
        for pid in children.read_text().split():
            try:
                found += check_rows.__name__.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
    return found


def post(person: Person, rows: int) -> httpx.Response:
    wanted = expensive_file(rows)
    return person.browser.post(
        PAGE, data={"message": wanted.message}, files={"file": (wanted.file_name, wanted.data, "text/csv")}
    )


def post_and_hang_up(service: Service, person: Person, rows: int) -> None:
    wanted = expensive_file(rows)
    request = httpx.Request(
        "POST",
        service.base + PAGE,
        data={"message": wanted.message},
        files={"file": (wanted.file_name, wanted.data, "text/csv")},
        headers={"Cookie": f"tumira_session={person.session}", "Sec-Fetch-Site": "same-origin"},
    )
    head = f"POST {PAGE} HTTP/1.1\r\n" + "".join(
        f"{name}: {value}\r\n" for name, value in request.headers.items()
    )
    address = urlsplit(service.base)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(head.encode() + b"\r\n" + request.read())
        until(lambda: checks(service), "no process began to check")


def account_of(service: Service, person: Person) -> AccountId:
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)
    return AccountId(row["id"])


def test_a_check_ends_when_the_browser_hangs_up(service: Service) -> None:
    person = sign_up(service)
    post_and_hang_up(service, person, 9000)
    until(lambda: not checks(service), "a check went on that nobody waits for")
    assert service.sql("SELECT FROM uploads WHERE account_id = $1", account_of(service, person)) == []


async def begin(database: Database, account_id: AccountId, upload_id: UploadId) -> None:
    async with database.transaction() as connection:
        await file_checks.begin(connection, account_id, upload_id, "people.csv")


def words(page: httpx.Response) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.text).split())


def test_the_page_of_a_file_shows_how_far_its_check_is_and_why_it_ended(service: Service) -> None:
    person = sign_up(service)
    upload_id = UploadId(new_id(1))
    service.run(begin, account_of(service, person), upload_id)
    path = f"{PAGE}/{write_id(UPLOAD, upload_id)}"

    def change(values: str) -> None:
        service.sql(f"UPDATE file_checks SET {values} WHERE upload_id = $1", upload_id)

    waiting = person.browser.get(path)
    assert "Waiting for other files to be checked." in words(waiting)
    assert '<noscript><meta http-equiv="refresh" content="3"></noscript>' in waiting.text
    change("rows = 10000, done = 2500")
    page = person.browser.get(path)
    assert "2,500 of 10,000 rows checked." in words(page)
    assert '<progress max="10000" value="2500"' in page.text
    part = person.browser.get(f"{path}/progress")
    assert "2,500 of 10,000 rows checked." in words(part)
    assert 'data-part="open"' in part.text
    assert sign_up(service).browser.get(path).status_code == httpx.codes.NOT_FOUND
    assert person.browser.get(f"{path}/send").status_code == httpx.codes.NOT_FOUND

    change("alive_at = now() - interval '1 minute'")
    assert "The check was interrupted on our side." in words(person.browser.get(path))
    change("problem = 'Split it <b>up</b>.'")
    page = person.browser.get(path)
    assert "Split it &lt;b&gt;up&lt;/b&gt;." in page.text
    assert 'http-equiv="refresh"' not in page.text
    assert 'data-part="reload"' in person.browser.get(f"{path}/progress").text


@pytest.mark.long
def test_the_most_expensive_file_delays_no_other_call_and_ends_with_its_caller(service: Service) -> None:
    attacker = sign_up(service)
    other = service.open_account(rate=6000)
    before = processor_s(service)

    path = goes_to(post(attacker, 10_000))

    assert path is not None
    answered = 0
    while "Checking every row" in words(attacker.browser.get(path)):
        assert service.call(other, "GET", "/balance").status_code == httpx.codes.OK
        answered += 1
        time.sleep(1)
    assert answered
    assert "Result" in words(attacker.browser.get(path))
    assert 3 * (processor_s(service) - before) < cost_s(10_000)

    for _ in range(3):
        post_and_hang_up(service, attacker, 10_000)
        until(lambda: not checks(service), "a check went on that nobody waits for")
    (row,) = service.sql(
        "SELECT count(*) AS count FROM uploads WHERE account_id = $1", account_of(service, attacker)
    )
    assert row["count"] == 1
