"""Receipts that match nothing and endpoints that fail, shown to operators and repaired by admins."""

import html
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import httpx
import pytest

from tests.support.console.operators import ACTOR, NASTY, changes_of, last_change, walk
from tests.support.identity.people import alert, goes_to
from tests.support.processes.service import Caller, Service
from tests.support.sending.batchers import broken_promises
from tumira.carriers.manage import add_carrier
from tumira.core.ids import ENDPOINT, MESSAGE, EndpointId, write_id
from tumira.delivery.receipt_rules import key
from tumira.webhooks import manage
from tumira.webhooks.endpoints import BEHIND_MIN

RECEIPTS: Final = "/operator/receipts"
WEBHOOKS: Final = "/operator/webhooks"
BODY: Final = "Your code is 493817."

_places: Final = iter(range(100_000))


@pytest.fixture(scope="module", autouse=True)
def _carriers(service: Service) -> None:
    for name in ("main", "spare"):
        service.run(add_carrier, name, "smpp://user:secret@127.0.0.1:2775?refund=undelivered", None, 100)


@pytest.fixture(autouse=True)
def _no_receipts(service: Service) -> None:
    service.sql("DELETE FROM unmatched_receipts")


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
    return keep_some(service, [carrier_ref], number, state)[0]


def keep_some(service: Service, refs: list[str | None], number: str, state: str = "DELIVRD") -> list[int]:
    rows = service.sql(
        "INSERT INTO unmatched_receipts (carrier_id, carrier_ref, recipient, state, error, receipt,"
        " received_at, next_try_at)"
        " SELECT id, ref, $2, $3, '000', $4, now(), now() + interval '1 minute'"
        "   FROM carriers, unnest($1::text[]) WITH ORDINALITY AS given (ref, place)"
        "  WHERE name = 'main' ORDER BY place RETURNING id",
        refs,
        number.removeprefix("+"),
        state,
        f"stat:{state} err:000 text:{BODY}",
    )
    return [row["id"] for row in rows]


def page_of(operator: httpx.Client, path: str) -> str:
    page = operator.get(path)
    assert page.status_code == 200, page.text
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", page.text)).split())


def post(operator: httpx.Client, path: str, **fields: str) -> httpx.Response:
    return operator.post(path, data=fields)


def match(
    admin: httpx.Client, receipt_id: int, sent: Sent, part: int = 1, note: str = "a note"
) -> httpx.Response:
    form = {"segment": f"{sent.shown}.{part}.0", "note": note}
    return admin.post(f"{RECEIPTS}/{receipt_id}/match", data=form)


def status(service: Service, sent: Sent) -> str:
    return str(service.sql("SELECT status FROM messages WHERE id = $1", sent.id)[0]["status"])


def kept(service: Service, receipt_id: int) -> bool:
    return bool(service.sql("SELECT FROM unmatched_receipts WHERE id = $1", receipt_id))


def test_a_receipt_shows_how_it_would_match(service: Service, viewer: httpx.Client, caller: Caller) -> None:
    near, alike, spare, at_home = (
        send(service, caller, carrier_ref, carrier)
        for carrier_ref, carrier in (("8801", "main"), ("8843", "main"), ("5501", "spare"), ("5502", "main"))
    )
    hexadecimal = "would match if the ID were converted to hexadecimal and the number were ignored"
    other_carrier = "would match if it had come from spare"
    cases = {
        keep(
            service, "smsc1-8801", near.number
        ): f"{near.shown} would match if the ID did not start with “smsc1-”",
        keep(service, None, near.number): f"{near.shown} would match if the ID were ignored",
        keep(service, "34883", "263771299123"): f"{alike.shown} {hexadecimal}",
        keep(service, "5501", spare.number): f"{spare.shown} {other_carrier}",
        # Numbers are found without their country too.
        keep(service, "zz5502zz", "0" + at_home.number[4:]): at_home.shown,
    }
    listed = page_of(viewer, RECEIPTS)
    for receipt_id, words in cases.items():
        assert words in listed
        assert words in page_of(viewer, f"{RECEIPTS}/{receipt_id}")


def test_neither_number_nor_text_is_shown_and_what_several_have_in_common_is_said_once(
    service: Service, admin: httpx.Client, caller: Caller
) -> None:
    for place in range(3):
        sent = send(service, caller, f"77001{place}")
        receipt_id = keep(service, f"gw:77001{place}", sent.number)
    for path in (RECEIPTS, f"{RECEIPTS}/{receipt_id}"):
        text = admin.get(path).text
        assert f"••••••{sent.number[-3:]}" in text
        assert sent.number[4:] not in text
        assert "493817" not in text
    common = "3 receipts on this page from main would match if the ID did not start with “gw:”."
    assert common in page_of(admin, RECEIPTS)


@pytest.mark.parametrize(("state", "ends"), [("DELIVRD", "delivered"), ("UNDELIV", "undelivered")])
def test_an_admin_matches_a_receipt_by_hand_and_the_message_is_settled(
    service: Service, admin: httpx.Client, state: str, ends: str
) -> None:
    caller = service.open_account()
    sent = send(service, caller, f"66-{state}")
    paid = service.balance(caller)
    receipt_id = keep(service, f"x66-{state}", sent.number, state)
    answer = match(admin, receipt_id, sent, note=" The carrier \n said so. ")
    assert goes_to(answer) == RECEIPTS + "?done=matched"
    assert (status(service, sent), kept(service, receipt_id)) == (ends, False)
    assert (service.balance(caller) > paid) == (ends == "undelivered")
    noted = last_change(service)
    assert (noted["actor"], noted["what"], noted["account_id"]) == (
        ACTOR,
        "receipt matched by hand",
        caller.id,
    )
    assert sent.shown in noted["detail"]
    assert noted["detail"].endswith("The carrier said so.")
    assert sent.number[4:] not in noted["detail"]
    owner = service.sql("SELECT what, detail FROM changes WHERE account_id = $1 ORDER BY id", caller.id)
    assert tuple(owner[-1]) == ("message matched with its receipt by hand", f"{sent.shown}, {state}")
    types = [row["type"] for row in service.sql("SELECT type FROM events WHERE account_id = $1", caller.id)]
    assert f"message.{ends}" in types
    # Pressed twice, the second time finds nothing.
    assert match(admin, receipt_id, sent).status_code == 404


def test_a_segment_is_matched_once_and_only_with_what_fits(
    service: Service, admin: httpx.Client, caller: Caller
) -> None:
    sent, other = send(service, caller, "6701", body="The meeting. " * 16), send(service, caller, "999999")
    first, second = (keep(service, f"p{place}-6701", sent.number) for place in (1, 2))
    assert goes_to(match(admin, first, sent))
    assert status(service, sent) == "sent"
    assert (match(admin, second, sent).status_code, kept(service, second)) == (422, True)
    assert goes_to(match(admin, second, sent, 2))
    assert status(service, sent) == "delivered"

    late = keep(service, "p1-6701", sent.number, "UNDELIV")
    path = f"{RECEIPTS}/{late}"
    assert "has already ended as delivered, so it cannot change" in page_of(admin, path)
    for wrong in (f"{sent.shown}.1.0", f"{sent.shown}.9.0", f"{other.shown}.1.0", "msg_1.1.1", "", NASTY):
        refused = post(admin, path + "/match", segment=wrong, note="a note")
        assert (refused.status_code, kept(service, late)) == (422, True)
        assert "Message" in alert(refused)
        assert NASTY not in refused.text
    assert (status(service, sent), status(service, other)) == ("delivered", "sent")


def test_a_receipt_is_dismissed_with_a_note(service: Service, admin: httpx.Client, caller: Caller) -> None:
    sent = send(service, caller, "6901")
    receipt_id = keep(service, "nonsense", sent.number)
    path = f"{RECEIPTS}/{receipt_id}"
    for note in ("", " \n ", "x" * 201):
        refused = post(admin, path + "/dismiss", why=note)
        assert (refused.status_code, kept(service, receipt_id)) == (422, True)
        assert "Reason" in alert(refused)
    assert goes_to(post(admin, path + "/dismiss", why=NASTY)) == RECEIPTS + "?done=dismissed"
    assert (kept(service, receipt_id), status(service, sent)) == (False, "sent")
    noted = last_change(service)
    assert noted["what"] == "receipt dismissed"
    assert noted["detail"].startswith(f"DELIVRD for ••••••{sent.number[-3:]}, nonsense, over main: ")
    assert admin.get(path).status_code == 404
    assert post(admin, path + "/dismiss", why="again").status_code == 404


def test_receipts_come_page_by_page_and_hostile_ones_stay_text(
    service: Service, viewer: httpx.Client
) -> None:
    assert "All receipts have been matched." in page_of(viewer, RECEIPTS)
    keep_some(service, [f"{NASTY}{place}" for place in range(30)], "27")
    assert "<script>alert" not in viewer.get(RECEIPTS).text
    seen = walk(viewer, RECEIPTS, "Older receipts", r"\{\{7\*7\}\}(\d+)<")
    assert seen == [str(place) for place in reversed(range(30))]
    for query in ("?before=", "?before=-1", "?before=9" + "9" * 40, "?before=x"):
        assert viewer.get(RECEIPTS + query).status_code == 200
    for wrong in ("0", "x", "9" * 40, "-1"):
        assert viewer.get(f"{RECEIPTS}/{wrong}").status_code == 404


def add_endpoint(service: Service, caller: Caller, host: str) -> EndpointId:
    url = f"https://{host}/hooks/s3cr3t-path?token=s3cr3t"
    endpoint, _ = service.run(manage.add_endpoint, caller.id, url, None, "", allow_private=False)
    return endpoint.id


def path_of(endpoint: EndpointId, form: str) -> str:
    return f"{WEBHOOKS}/{write_id(ENDPOINT, endpoint)}/{form}"


def spoil(service: Service, endpoint: EndpointId, setting: str, *values: object) -> None:
    service.sql(f"UPDATE webhook_endpoints SET {setting} WHERE id = $1", endpoint, *values)


def add_attempt(service: Service, endpoint: EndpointId, sequence: int, answered: int | None = None) -> None:
    service.sql(
        "INSERT INTO webhook_attempts (id, endpoint_id, event_id, sequence, type, number, at, duration_ms,"
        " status, problem, answer)"
        " VALUES (uuidv7(), $1, uuidv7(), $2, 'message.delivered', 1, now(), 5, $3::smallint,"
        " CASE WHEN $3::smallint IS NULL THEN 'The connection was refused.' END, 's3cr3t-answer')",
        endpoint,
        sequence,
        answered,
    )


def test_endpoints_in_trouble_are_listed_and_their_secrets_are_not(
    service: Service, viewer: httpx.Client, caller: Caller
) -> None:
    failing, disabled, behind, paused, _ = (
        add_endpoint(service, caller, f"{name}.example.com")
        for name in ("failing", "disabled", "behind", "paused", "well")
    )
    hours = datetime.now(UTC) - timedelta(hours=3)
    spoil(service, failing, "failures = 7, failing_since = $2", hours)
    add_attempt(service, failing, 1, 500)
    add_attempt(service, failing, 2)
    spoil(service, disabled, "state = 'disabled', reason = 'It said 410 Gone.', failing_since = $2", hours)
    spoil(service, paused, "state = 'paused', failing_since = $2", hours)
    service.sql(
        "INSERT INTO event_counters VALUES ($1, $2)"
        " ON CONFLICT (account_id) DO UPDATE SET last = excluded.last + event_counters.last",
        caller.id,
        BEHIND_MIN,
    )
    spoil(service, behind, "position = 0, worker = 'one', leased_until = now()")
    page = page_of(viewer, WEBHOOKS)
    assert re.findall(r"(\w+)\.example\.com", page) == ["failing", "behind", "disabled"]
    for said in ("The connection was refused.", "7 failed attempts", "It said 410 Gone."):
        assert said in page
    assert "s3cr3t" not in viewer.get(WEBHOOKS).text
    assert "Enable" not in page


def test_an_admin_enables_an_endpoint_again_and_replays_what_failed(
    service: Service, admin: httpx.Client
) -> None:
    caller = service.open_account()
    endpoint = add_endpoint(service, caller, "broken.example.com")
    enable, replay = path_of(endpoint, "enable"), path_of(endpoint, "replay")
    hours = datetime.now(UTC) - timedelta(hours=3)
    spoil(service, endpoint, "state = 'disabled', reason = 'no', failures = 30, failing_since = $2", hours)
    refused = post(admin, replay, period="1 day")
    assert (refused.status_code, "disabled. Enable it first." in alert(refused)) == (422, True)
    assert goes_to(post(admin, enable, from_now="no")) == WEBHOOKS + "?done=enabled"
    (row,) = service.sql("SELECT * FROM webhook_endpoints WHERE id = $1", endpoint)
    assert (row["state"], row["reason"], row["failures"], row["failing_since"]) == ("active", None, 0, None)
    assert service.sql("SELECT FROM webhook_bells WHERE endpoint_id = $1", row["id"])
    assert "broken.example.com" not in page_of(admin, WEBHOOKS)
    (_, what, detail) = changes_of(service, caller.id)[-1]
    assert (what, "s3cr3t" in detail) == ("endpoint resumed", False)

    assert goes_to(post(admin, replay, period="1 day")) == WEBHOOKS + "?done=nothing"
    add_attempt(service, endpoint, 3, 500)
    add_attempt(service, endpoint, 4, 204)
    assert goes_to(post(admin, replay, period="1 day")) == WEBHOOKS + "?replayed=1"
    retries = service.sql("SELECT sequence FROM webhook_retries WHERE endpoint_id = $1", row["id"])
    assert [one["sequence"] for one in retries] == [3]
    assert changes_of(service, caller.id)[-1][1] == "failed events replayed"
    told = service.sql("SELECT what FROM changes WHERE account_id = $1 ORDER BY id", caller.id)
    assert [one["what"] for one in told][-2:] == ["endpoint resumed", "failed events replayed"]
    spoil(service, endpoint, "state = 'paused'")
    refused = post(admin, enable, from_now="yes")
    assert "Its owner has paused the endpoint, and alone resumes it." in alert(refused)
    spoil(service, endpoint, "state = 'active'")
    assert goes_to(post(admin, enable, from_now="yes")) == WEBHOOKS + "?done=enabled-from-now"
    assert not service.sql("SELECT FROM webhook_retries WHERE endpoint_id = $1", row["id"])


def test_endpoints_come_page_by_page(service: Service, admin: httpx.Client) -> None:
    service.sql("DELETE FROM webhook_endpoints")
    service.sql(
        "INSERT INTO webhook_endpoints (id, account_id, url, secret, position, failures, failing_since)"
        " SELECT gen_random_uuid(), $1, 'https://h' || place || '.example.com/', sha256(''), 0, 1,"
        "        now() - interval '1 minute' * (place % 4)"
        "   FROM generate_series(1, 30) AS place",
        service.open_account().id,
    )
    seen = walk(admin, WEBHOOKS, "More endpoints", r"(h\d+\.example\.com)</h2>")
    assert len(seen) == len(set(seen)) == 30
    for query in ("?after=", "?after=0.1.end_x", "?after=9.1.1", "?replayed=" + "9" * 30, "?replayed=x"):
        assert admin.get(WEBHOOKS + query).status_code == 200
    assert post(admin, WEBHOOKS + "/end_" + "0" * 26 + "/enable", from_now="no").status_code == 404
    assert post(admin, WEBHOOKS + "/nonsense/replay", period="1 day").status_code == 404
    endpoint = add_endpoint(service, service.open_account(), "last.example.com")
    assert post(admin, path_of(endpoint, "replay"), period="1 year").status_code == 422


def test_whatever_was_matched_by_hand_the_books_add_up(service: Service) -> None:
    # The counters of events, which this file has moved by itself, are another matter.
    assert {name for name in service.run(broken_promises) if "event" not in name} == set()
