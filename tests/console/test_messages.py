"""Operators find any message by number or id, with its outcome; searches of numbers are recorded."""

import re
from typing import Final

import httpx
import pytest

from tests.support.console.operators import NASTY, walk
from tests.support.identity.customers import link, words
from tests.support.identity.people import alert, count, goes_to, sign_up
from tests.support.processes.service import Caller, Service
from tumira.core.ids import BATCH, MESSAGE, BatchId, MessageId, write_id
from tumira.sending.lifecycle import FAILURE_REASONS

MESSAGES: Final = "/operator/messages"
BATCHES: Final = MESSAGES + "/batches"
NUMBER: Final = "+263771200007"
SECRET: Final = "Your code is 730415."
SHORT: Final = "••••••007"
SEARCHES: Final = "SELECT count(*) FROM operator_changes WHERE what = 'number searched'"


@pytest.fixture(scope="module")
def caller(service: Service) -> Caller:
    caller = service.open_account()
    service.sql("UPDATE accounts SET business = 'Nyathi Pharmacy' WHERE id = $1", caller.id)
    return caller


def send(service: Service, caller: Caller, *to: str) -> tuple[BatchId, list[MessageId]]:
    """Send a text, and return the batch and its messages in the order of their numbers."""
    sent = service.send(caller, to=list(to), body=SECRET)
    assert sent.status_code == 202, sent.text
    rows = service.sql("SELECT id, batch_id FROM messages ORDER BY id DESC LIMIT $1", len(to))
    return rows[0]["batch_id"], [row["id"] for row in reversed(rows)]


def search(browser: httpx.Client, text: str) -> httpx.Response:
    return browser.get(MESSAGES, params={"q": text})


def settle(service: Service, message_id: MessageId) -> None:
    """Let a carrier have taken a message and report that it did not arrive."""
    service.sql(
        "WITH carrier AS (INSERT INTO carriers (name, host, port, tls, system_id, password, bind_mode, binds,"
        " window_size, tps, source, in_doubt, doubt_wait_s, refund, priority)"
        " VALUES ('econet-main', 'h', 1, false, '', '', 'pair', 1, 1, 0, '', 'hold', 30, '{}', 1)"
        " ON CONFLICT (name) DO UPDATE SET priority = 1 RETURNING id)"
        " INSERT INTO parts (message_id, number, attempt, carrier_id, carrier_ref, carrier_key, claimed_at,"
        " submitted_at, answered_at, state, error, receipt, received_at)"
        " SELECT $1, 1, 0, id, 'ref-77', 'ref-77', '2026-11-01 10:00', '2026-11-01 10:00:01+00',"
        " '2026-11-01 10:00:02+00', 'UNDELIV', '027', $2, '2026-11-01 10:00:30+00' FROM carrier",
        message_id,
        f"id:ref-77 stat:UNDELIV text:{SECRET}",
    )
    service.sql(
        "UPDATE messages SET status = 'undelivered', failure_reason = 'ABSENT_SUBSCRIBER',"
        " sent_at = now(), refunded_at = now() WHERE id = $1",
        message_id,
    )
    service.sql(
        "INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id)"
        " SELECT account_id, 'revenue', 'customer', cost, batch_id, id FROM messages WHERE id = $1",
        message_id,
    )


def test_a_message_is_found_by_its_number_in_every_form(
    service: Service, admin: httpx.Client, viewer: httpx.Client, caller: Caller
) -> None:
    _, (message_id,) = send(service, caller, NUMBER)
    settle(service, message_id)
    before = count(service, SEARCHES)
    forms = (NUMBER, "0771200007", "771200007", "077 120-0007", "00263 77 120 0007", " 263771200007 ")
    for text in forms:
        page = search(admin, text)
        assert page.status_code == 200, page.text
        said = words(page.text)
        for part in (
            "Messages to +263",
            "Nyathi Pharmacy",
            "undelivered",
            FAILURE_REASONS["ABSENT_SUBSCRIBER"],
            "econet-main",
            "1 Nov 2026, 12:00:01",
            "1 Nov 2026, 12:00:30",
            "US$0.04",
        ):
            assert part in said, (text, part)
        assert SECRET not in page.text
    # A viewer may search too, and every search is recorded, without the whole number.
    assert "Nyathi Pharmacy" in search(viewer, NUMBER).text
    assert count(service, SEARCHES) == before + len(forms) + 1
    (row,) = service.sql("SELECT * FROM operator_changes ORDER BY id DESC LIMIT 1")
    assert row["actor"] == "operator:Vimbai Viewer"
    assert row["detail"] == f"{SHORT}: newest {write_id(MESSAGE, message_id)}"
    assert SHORT in admin.get("/operator/changes").text


def test_a_search_without_a_country_code_looks_in_every_country(
    service: Service, admin: httpx.Client, caller: Caller
) -> None:
    for number in ("+263771230009", "+27771230009"):
        send(service, caller, number)
    page = words(search(admin, "0771230009").text)
    for number in ("+263\xa077\xa0123\xa00009", "+27\xa077\xa0123\xa00009"):
        assert f"Nyathi Pharmacy {number}".replace("\xa0", " ") in page.replace("\xa0", " ")


def test_what_cannot_be_found_is_explained_and_nothing_else_is_recorded(
    service: Service, admin: httpx.Client
) -> None:
    before = count(service, SEARCHES)
    assert admin.get(MESSAGES).status_code == 200
    for text in ("nobody", NASTY, "12", "+447700900123", "msg_1", "x" * 500):
        refused = search(admin, text)
        assert (refused.status_code, "Enter a phone number" in alert(refused)) == (422, True), text
        assert NASTY not in refused.text
    assert count(service, SEARCHES) == before
    assert "No messages to this number." in search(admin, "+263771299999").text
    assert count(service, SEARCHES) == before + 1
    for prefix, path in ((MESSAGE, MESSAGES), (BATCH, BATCHES)):
        name = prefix + "0" * 26
        assert goes_to(search(admin, name)) == f"{path}/{name}"
        assert admin.get(f"{path}/{name}").status_code == 404
    assert admin.get(MESSAGES, params={"q": NUMBER, "before": "x"}).status_code == 404


def test_many_messages_to_a_number_are_turned_page_by_page(
    service: Service, admin: httpx.Client, caller: Caller
) -> None:
    number = "+263771200088"
    sent = [write_id(MESSAGE, send(service, caller, number)[1][0]) for _ in range(30)]
    seen = walk(admin, f"{MESSAGES}?q=%2B{number[1:]}", "Older", r'href="/operator/messages/(msg_\w+)"')
    assert seen == sent[::-1]


def test_one_message_shows_its_timeline_and_neither_number_nor_text(
    service: Service, admin: httpx.Client, caller: Caller
) -> None:
    batch_id, (message_id, doubtful) = send(service, caller, NUMBER, "+263771200123")
    settle(service, message_id)
    path = f"{MESSAGES}/{write_id(MESSAGE, message_id)}"
    assert goes_to(search(admin, write_id(MESSAGE, message_id))) == path
    page = admin.get(path)
    said = words(page.text)
    for part in (
        f"Message to {SHORT}",
        "undelivered",
        "ABSENT_SUBSCRIBER",
        "Submitted to the carrier",
        "econet-main",
        "ref-77",
        "Receipt: econet-main · UNDELIV · 027",
        "Refunded US$0.04",
    ):
        assert part in said, part
    assert link(page.text, "Nyathi Pharmacy") == f"/operator/accounts/{caller.account_id}"
    for hidden in (NUMBER, NUMBER[1:], SECRET):
        assert hidden not in page.text
    batch_path = f"{BATCHES}/{write_id(BATCH, batch_id)}"
    assert link(page.text, write_id(BATCH, batch_id)) == batch_path
    # One that a carrier may have is in doubt.
    service.sql("DELETE FROM queue WHERE message_id = $1", doubtful)
    service.sql("UPDATE messages SET status = 'sending' WHERE id = $1", doubtful)
    service.sql("INSERT INTO retries VALUES ($1, now() + interval '1 hour', true, NULL)", doubtful)
    assert "In doubt" in words(admin.get(f"{MESSAGES}/{write_id(MESSAGE, doubtful)}").text)
    assert goes_to(search(admin, write_id(BATCH, batch_id))) == batch_path
    batch = admin.get(batch_path)
    said = words(batch.text)
    for part in ("Recipients 2", "Nyathi Pharmacy", "in doubt", SHORT, "••••••123", "US$0.08"):
        assert part in said, part
    assert NUMBER not in batch.text
    assert SECRET not in batch.text
    following = admin.get(batch_path, params={"after": write_id(MESSAGE, message_id)}).text
    assert SHORT not in following
    assert len(re.findall(r'href="/operator/messages/msg_', following)) == 1
    service.sql("DELETE FROM retries")


def test_a_code_of_our_own_is_found_too(service: Service, admin: httpx.Client) -> None:
    person = sign_up(service)
    page = search(admin, person.phone)
    assert "Tumira (codes and notices)" in words(page.text)
    found = re.search(r'href="(/operator/messages/msg_\w+)"', page.text)
    assert found is not None
    assert admin.get(found[1]).status_code == 200
