"""Receipts that match nothing and endpoints that fail, shown to operators and repaired by admins."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import httpx
import pytest

from tests.support.identity.operators import OperatorBrowser, new_operator
from tests.support.identity.people import alert, goes_to, run_behind_proxy
from tests.support.processes.service import Caller, Service
from tests.support.sending.batchers import broken_promises
from tumira.core.ids import ENDPOINT, MESSAGE, EndpointId, new_id, read_id, write_id
from tumira.delivery.manage_carriers import add_carrier
from tumira.delivery.receipt_rules import key
from tumira.identity.store.operators import Role
from tumira.webhooks import manage
from tumira.webhooks.endpoints import BEHIND_MIN

RECEIPTS: Final = "/operator/receipts"
WEBHOOKS: Final = "/operator/webhooks"
HOSTILE: Final = "\"><script>alert(1)</script>' {{7*7}}"
BODY: Final = "Your code is 493817."

_places: Final = iter(range(100_000))


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        for name in ("main", "spare"):
            running.run(add_carrier, name, "smpp://user:secret@127.0.0.1:2775?refund=undelivered", None, 100)
        yield running


@pytest.fixture(scope="module")
def admin(service: Service) -> OperatorBrowser:
    return new_operator(service)


@pytest.fixture(scope="module")
def viewer(service: Service) -> OperatorBrowser:
    return new_operator(service, Role.VIEWER)


@pytest.fixture(scope="module")
def caller(service: Service) -> Caller:
    return service.open_account()


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that a carrier took."""

    id: UUID
    shown: str
    number: str


def send(service: Service, caller: Caller, carrier_ref: str, carrier: str = "main", body: str = BODY) -> Sent:
    number = f"+2637712{next(_places):05}"
    assert service.send(caller, to=number, body=body).json()["accepted"] == 1
    (message,) = service.sql(
        "WITH moved AS ("
        "    UPDATE messages SET status = 'sent', sent_at = now() WHERE recipient = $1 RETURNING id, segments"
        "), left_behind AS ("
        "    DELETE FROM queue WHERE message_id = (SELECT id FROM moved)"
        "), taken AS ("
        "    INSERT INTO parts (message_id, number, attempt, carrier_id, carrier_ref, carrier_key,"
        "                       claimed_at, submitted_at, answered_at)"
        "    SELECT moved.id, number, 0, c.id, $2, $3, now(), now(), now()"
        "      FROM moved, generate_series(1, segments) AS number, carriers c WHERE c.name = $4"
        ") SELECT id FROM moved",
        number,
        carrier_ref,
        key(carrier_ref),
        carrier,
    )
    return Sent(message["id"], write_id(MESSAGE, message["id"]), number)


def keep(service: Service, carrier_ref: str | None, number: str, state: str = "DELIVRD") -> int:
    (row,) = service.sql(
        "INSERT INTO unmatched_receipts (carrier_id, carrier_ref, recipient, state, error, receipt,"
        " received_at, next_try_at)"
        " SELECT id, $1, $2, $3, '000', $4, now(), now() + interval '1 minute' FROM carriers"
        "  WHERE name = 'main' RETURNING id",
        carrier_ref,
        number.removeprefix("+"),
        state,
        f"id:{carrier_ref} stat:{state} err:000 text:{BODY}",
    )
    return int(row["id"])


def page_of(operator: OperatorBrowser, path: str) -> str:
    page = operator.browser.get(path)
    assert page.status_code == 200, page.text
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", page.text)).split())


def post(operator: OperatorBrowser, path: str, **fields: str) -> httpx.Response:
    return operator.browser.post(path, data=fields)


def choice(sent: Sent, part: int = 1) -> str:
    return f"{sent.shown}.{part}.0"


def status(service: Service, sent: Sent) -> str:
    return str(service.sql("SELECT status FROM messages WHERE id = $1", sent.id)[0]["status"])


def kept(service: Service, receipt_id: int) -> bool:
    return bool(service.sql("SELECT FROM unmatched_receipts WHERE id = $1", receipt_id))


def last_change(service: Service) -> dict[str, Any]:
    (row,) = service.sql("SELECT * FROM operator_changes ORDER BY id DESC LIMIT 1")
    return dict(row)


@pytest.mark.parametrize(
    ("in_receipt", "in_answer", "other_number", "words"),
    [
        ("smsc1-8801", "8801", False, "if the id had not “smsc1-” in front"),
        ("8802", "not at all alike", False, "if the id did not count"),
        ("0xab8802", "AB8802", False, "if 0x in front of the id did not count"),
        ("34883", "8843", True, "if the id were written in hexadecimal, and the number did not count"),
        ("8844", "34884", True, "if the id were read as hexadecimal, and the number did not count"),
        (None, "8805", False, "if the id did not count"),
    ],
)
def test_a_receipt_shows_how_it_would_match(
    service: Service,
    viewer: OperatorBrowser,
    caller: Caller,
    *,
    in_receipt: str | None,
    in_answer: str,
    other_number: bool,
    words: str,
) -> None:
    sent = send(service, caller, in_answer)
    receipt_id = keep(service, in_receipt, "+263771299123" if other_number else sent.number)
    for path in (RECEIPTS, f"{RECEIPTS}/{receipt_id}"):
        page = page_of(viewer, path)
        assert f"ould match {sent.shown} {words}" in page
    service.sql("DELETE FROM unmatched_receipts")


def test_neither_number_nor_text_is_shown(service: Service, admin: OperatorBrowser, caller: Caller) -> None:
    sent = send(service, caller, "9901")
    receipt_id = keep(service, "x-9901", sent.number)
    for path in (RECEIPTS, f"{RECEIPTS}/{receipt_id}"):
        text = admin.browser.get(path).text
        assert f"••••••{sent.number[-3:]}" in text
        assert sent.number[4:] not in text
        assert "493817" not in text
    service.sql("DELETE FROM unmatched_receipts")


def test_what_several_have_in_common_is_said_once(
    service: Service, viewer: OperatorBrowser, caller: Caller
) -> None:
    for place in range(3):
        sent = send(service, caller, f"77001{place}")
        keep(service, f"gw:77001{place}", sent.number)
    page = page_of(viewer, RECEIPTS)
    assert "3 receipts on this page over main would match if the id had not “gw:” in front" in page
    service.sql("DELETE FROM unmatched_receipts")


def test_a_receipt_over_another_carrier_is_told_as_such(
    service: Service, viewer: OperatorBrowser, caller: Caller
) -> None:
    sent = send(service, caller, "5501", carrier="spare")
    receipt_id = keep(service, "5501", sent.number)
    page = page_of(viewer, f"{RECEIPTS}/{receipt_id}")
    assert f"Would match {sent.shown} if it had come over spare, which has the message" in page
    service.sql("DELETE FROM unmatched_receipts")


def test_numbers_are_found_without_their_country_too(
    service: Service, viewer: OperatorBrowser, caller: Caller
) -> None:
    sent = send(service, caller, "5502")
    receipt_id = keep(service, "zz5502zz", "0" + sent.number[4:])
    assert sent.shown in page_of(viewer, f"{RECEIPTS}/{receipt_id}")
    service.sql("DELETE FROM unmatched_receipts")


@pytest.mark.parametrize(("state", "ends"), [("DELIVRD", "delivered"), ("UNDELIV", "undelivered")])
def test_an_admin_matches_a_receipt_by_hand_and_the_message_is_settled(
    service: Service, admin: OperatorBrowser, state: str, ends: str
) -> None:
    caller = service.open_account()
    sent = send(service, caller, f"66-{state}")
    paid = service.balance(caller)
    receipt_id = keep(service, f"x66-{state}", sent.number, state)
    answer = post(
        admin, f"{RECEIPTS}/{receipt_id}/match", segment=choice(sent), note=" The carrier \n said so. "
    )
    assert goes_to(answer) == RECEIPTS + "?done=matched"
    assert (status(service, sent), kept(service, receipt_id)) == (ends, False)
    assert (service.balance(caller) > paid) == (ends == "undelivered")
    noted = last_change(service)
    assert (noted["what"], noted["account_id"]) == ("receipt matched by hand", caller.id)
    assert noted["actor"] == f"operator:{admin.name}"
    assert sent.shown in noted["detail"]
    assert noted["detail"].endswith("The carrier said so.")
    assert sent.number[4:] not in noted["detail"]
    owner = service.sql("SELECT what, detail FROM changes WHERE account_id = $1 ORDER BY id", caller.id)
    assert tuple(owner[-1]) == (
        "message matched with its receipt by hand",
        f"{sent.shown}, {state}",
    )
    types = [row["type"] for row in service.sql("SELECT type FROM events WHERE account_id = $1", caller.id)]
    assert f"message.{ends}" in types
    # Pressed twice, the second time finds nothing.
    again = post(admin, f"{RECEIPTS}/{receipt_id}/match", segment=choice(sent), note="again")
    assert again.status_code == 404


def test_one_segment_of_several_is_matched(service: Service, admin: OperatorBrowser, caller: Caller) -> None:
    sent = send(service, caller, "6701", body="The meeting begins at nine. " * 8)
    first, second = (keep(service, f"p{place}-6701", sent.number) for place in (1, 2))
    assert goes_to(post(admin, f"{RECEIPTS}/{first}/match", segment=choice(sent, 1), note="one"))
    assert status(service, sent) == "sent"
    refused = post(admin, f"{RECEIPTS}/{second}/match", segment=choice(sent, 1), note="the same again")
    assert (refused.status_code, kept(service, second)) == (422, True)
    assert goes_to(post(admin, f"{RECEIPTS}/{second}/match", segment=choice(sent, 2), note="two"))
    assert status(service, sent) == "delivered"


def test_a_message_that_has_ended_or_does_not_fit_is_not_matched(
    service: Service, admin: OperatorBrowser, caller: Caller
) -> None:
    ended, other = send(service, caller, "6801"), send(service, caller, "999999")
    first = keep(service, "q6801", ended.number)
    assert goes_to(post(admin, f"{RECEIPTS}/{first}/match", segment=choice(ended), note="first"))
    second = keep(service, "q6801", ended.number, "UNDELIV")
    path = f"{RECEIPTS}/{second}"
    assert "but that has ended as delivered, so nothing follows from it" in page_of(admin, path)
    for wrong in (choice(ended), choice(other), choice(ended, 9), "msg_1.1.1", "", HOSTILE):
        refused = post(admin, path + "/match", segment=wrong, note="a note")
        assert (refused.status_code, kept(service, second)) == (422, True)
        assert "Message" in alert(refused)
        assert HOSTILE not in refused.text
    assert (status(service, ended), status(service, other)) == ("delivered", "sent")
    service.sql("DELETE FROM unmatched_receipts")


def test_a_receipt_is_dismissed_with_a_note(service: Service, admin: OperatorBrowser, caller: Caller) -> None:
    sent = send(service, caller, "6901")
    receipt_id = keep(service, "nonsense", sent.number)
    path = f"{RECEIPTS}/{receipt_id}"
    for note in ("", " \n ", "x" * 201):
        refused = post(admin, path + "/dismiss", why=note)
        assert (refused.status_code, kept(service, receipt_id)) == (422, True)
        assert "Note" in alert(refused)
    assert goes_to(post(admin, path + "/dismiss", why=HOSTILE)) == RECEIPTS + "?done=dismissed"
    assert (kept(service, receipt_id), status(service, sent)) == (False, "sent")
    noted = last_change(service)
    assert noted["what"] == "receipt dismissed"
    assert noted["detail"].startswith(f"DELIVRD for ••••••{sent.number[-3:]}, nonsense, over main: ")
    assert admin.browser.get(path).status_code == 404
    assert post(admin, path + "/dismiss", why="again").status_code == 404


def test_receipts_come_page_by_page_and_hostile_ones_stay_text(
    service: Service, viewer: OperatorBrowser
) -> None:
    assert "Every receipt has found its message." in page_of(viewer, RECEIPTS)
    for place in range(30):
        keep(service, f"{HOSTILE}{place}", "27")
    first = viewer.browser.get(RECEIPTS).text
    assert "<script>alert" not in first
    assert "{{7*7}}29" in html.unescape(first)
    older = re.search(r"\?before=\d+", first)
    assert older is not None
    second = html.unescape(viewer.browser.get(RECEIPTS + older[0]).text)
    assert ("{{7*7}}4<" in second, "{{7*7}}5<" in second) == (True, False)
    for query in ("?before=", "?before=-1", "?before=9" + "9" * 40, "?before=x"):
        assert viewer.browser.get(RECEIPTS + query).status_code == 200
    for wrong in ("0", "x", "9" * 40, "-1"):
        assert viewer.browser.get(f"{RECEIPTS}/{wrong}").status_code == 404
    service.sql("DELETE FROM unmatched_receipts")


def add_endpoint(service: Service, caller: Caller, host: str) -> str:
    endpoint, _ = service.run(
        manage.add_endpoint,
        caller.id,
        f"https://{host}/hooks/s3cr3t-path?token=s3cr3t",
        None,
        "",
        allow_private=False,
    )
    return write_id(ENDPOINT, endpoint.id)


def uuid(endpoint: str) -> EndpointId:
    identifier = read_id(ENDPOINT, endpoint)
    assert identifier is not None
    return EndpointId(identifier)


def spoil(service: Service, endpoint: str, setting: str, *values: object) -> None:
    service.sql(f"UPDATE webhook_endpoints SET {setting} WHERE id = $1", uuid(endpoint), *values)


def add_attempt(
    service: Service, endpoint: str, sequence: int, answered: int | None, problem: str | None = None
) -> None:
    service.sql(
        "INSERT INTO webhook_attempts (id, endpoint_id, event_id, sequence, type, number, at, duration_ms,"
        " status, problem, answer)"
        " VALUES ($1, $2, $1, $3, 'message.delivered', 1, now(), 5, $4, $5, 's3cr3t-answer')",
        new_id(int(datetime.now(UTC).timestamp() * 1000)),
        uuid(endpoint),
        sequence,
        answered,
        problem,
    )


def test_endpoints_in_trouble_are_listed_and_their_secrets_are_not(
    service: Service, viewer: OperatorBrowser, caller: Caller
) -> None:
    failing, disabled, behind, paused, well = (
        add_endpoint(service, caller, f"{name}.example.com")
        for name in ("failing", "disabled", "behind", "paused", "well")
    )
    hours = datetime.now(UTC) - timedelta(hours=3)
    spoil(service, failing, "failures = 7, failing_since = $2", hours)
    add_attempt(service, failing, 1, 500)
    add_attempt(service, failing, 2, None, "The connection was refused.")
    spoil(
        service, disabled, "state = 'disabled', reason = 'It answered 410 Gone.', failing_since = $2", hours
    )
    spoil(service, paused, "state = 'paused', failing_since = $2", hours)
    service.sql(
        "INSERT INTO event_counters VALUES ($1, $2)"
        " ON CONFLICT (account_id) DO UPDATE SET last = excluded.last + event_counters.last",
        caller.id,
        BEHIND_MIN,
    )
    spoil(service, behind, "position = 0, worker = 'one', leased_until = now()")
    page = page_of(viewer, WEBHOOKS)
    assert (
        page.index("failing.example.com")
        < page.index("behind.example.com")
        < page.index("disabled.example.com")
    )
    assert "paused.example.com" not in page
    assert "well.example.com" not in page
    assert "The connection was refused." in page
    assert "in 7 attempts" in page
    assert "It answered 410 Gone." in page
    assert "s3cr3t" not in viewer.browser.get(WEBHOOKS).text
    assert "Enable" not in page
    assert well


def test_an_admin_enables_an_endpoint_again_and_replays_what_failed(
    service: Service, admin: OperatorBrowser
) -> None:
    caller = service.open_account()
    endpoint = add_endpoint(service, caller, "broken.example.com")
    path = f"{WEBHOOKS}/{endpoint}"
    hours = datetime.now(UTC) - timedelta(hours=3)
    spoil(service, endpoint, "state = 'disabled', reason = 'no', failures = 30, failing_since = $2", hours)
    refused = post(admin, path + "/replay", period="1 day")
    assert refused.status_code == 422
    assert "The endpoint is disabled: enable it first." in alert(refused)
    assert goes_to(post(admin, path + "/enable", from_now="no")) == WEBHOOKS + "?done=enabled"
    (row,) = service.sql("SELECT * FROM webhook_endpoints WHERE id = $1", uuid(endpoint))
    assert (row["state"], row["reason"], row["failures"], row["failing_since"]) == ("active", None, 0, None)
    assert service.sql("SELECT FROM webhook_bells WHERE endpoint_id = $1", row["id"])
    assert "broken.example.com" not in page_of(admin, WEBHOOKS)
    assert (last_change(service)["what"], last_change(service)["account_id"]) == (
        "endpoint resumed",
        caller.id,
    )
    assert "s3cr3t" not in last_change(service)["detail"]

    assert goes_to(post(admin, path + "/replay", period="1 day")) == WEBHOOKS + "?done=nothing"
    add_attempt(service, endpoint, 3, 500)
    add_attempt(service, endpoint, 4, 204)
    assert goes_to(post(admin, path + "/replay", period="1 day")) == WEBHOOKS + "?replayed=1"
    retries = service.sql("SELECT sequence FROM webhook_retries WHERE endpoint_id = $1", row["id"])
    assert [one["sequence"] for one in retries] == [3]
    assert last_change(service)["what"] == "failed events replayed"
    told = service.sql("SELECT what FROM changes WHERE account_id = $1 ORDER BY id", caller.id)
    assert [one["what"] for one in told][-2:] == ["endpoint resumed", "failed events replayed"]
    spoil(service, endpoint, "state = 'paused'")
    refused = post(admin, path + "/enable", from_now="yes")
    assert "Its owner has paused the endpoint, and alone resumes it." in alert(refused)
    spoil(service, endpoint, "state = 'active'")
    assert goes_to(post(admin, path + "/enable", from_now="yes")) == WEBHOOKS + "?done=enabled-from-now"
    assert not service.sql("SELECT FROM webhook_retries WHERE endpoint_id = $1", row["id"])


def test_endpoints_come_page_by_page(service: Service, admin: OperatorBrowser) -> None:
    service.sql("DELETE FROM webhook_endpoints")
    service.sql(
        "INSERT INTO webhook_endpoints (id, account_id, url, secret, position, failures, failing_since)"
        " SELECT gen_random_uuid(), $1, 'https://h' || place || '.example.com/', sha256(''), 0, 1,"
        "        now() - interval '1 minute' * (place % 4)"
        "   FROM generate_series(1, 30) AS place",
        service.open_account().id,
    )
    seen: list[str] = []
    path = WEBHOOKS
    for _ in range(2):
        page = admin.browser.get(path).text
        seen += re.findall(r"h\d+\.example\.com</h2>", page)
        after = re.search(r"\?after=[\w.]+", page)
        path = WEBHOOKS + (after[0] if after else "")
    assert (len(seen), len(set(seen)), path) == (30, 30, WEBHOOKS)
    for query in ("?after=", "?after=0.1.end_x", "?after=9.1.1", "?replayed=" + "9" * 30, "?replayed=x"):
        assert admin.browser.get(WEBHOOKS + query).status_code == 200
    assert post(admin, WEBHOOKS + "/end_" + "0" * 26 + "/enable", from_now="no").status_code == 404
    assert post(admin, WEBHOOKS + "/nonsense/replay", period="1 day").status_code == 404
    endpoint = add_endpoint(service, service.open_account(), "last.example.com")
    assert post(admin, f"{WEBHOOKS}/{endpoint}/replay", period="1 year").status_code == 422


def test_whatever_was_matched_by_hand_the_books_add_up(service: Service) -> None:
    # The counters of events, which this file has moved by itself, are another matter.
    assert {name for name in service.run(broken_promises) if "event" not in name} == set()
