"""The page of an endpoint shows its attempts and sends events again."""

import asyncio
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.identity.people import PASSWORD, Person, alert, count, goes_to, run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tests.support.webhooks.pages import (
    HOSTILE,
    SECRET,
    URL,
    add,
    add_events,
    attempt,
    delivering,
    post,
    put_attempts,
    show,
    stored,
    uuid,
)
from tests.support.webhooks.receivers import Responder, answer, closed_port, ok, run_receiver
from tumira.core.ids import ENDPOINT, EVENT, EventId, write_id
from tumira.dashboard.pages import webhooks
from tumira.dashboard.pages.webhooks import PAGE, WEBHOOKS
from tumira.events import SUBSCRIBABLE
from tumira.html.page import write_moment


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url, TUMIRA_WEBHOOKS_ALLOW_PRIVATE="1") as running:
        yield running


@pytest.fixture(scope="module")
def owner(service: Service) -> Person:
    return sign_up(service)


@pytest.fixture(scope="module")
def owned(owner: Person) -> str:
    return add(owner)


# What was sent.


async def test_a_try_is_shown_exactly_as_it_was_sent_and_answered(service: Service) -> None:
    person = sign_up(service)
    thanks = b'{"thanks": "<b>\xff</b>"}'
    async with run_receiver(answer(202, body=thanks)) as receiver, delivering(service):
        page = await asyncio.to_thread(post, person, "", url=receiver.url, type=SUBSCRIBABLE)
        (secret,) = set(SECRET.findall(page.text))
        endpoint = re.findall(r"end_\w+", page.text)[0]
        (event_id,) = add_events(service, person)
        await receiver.wait(requests=1)
        tested = await asyncio.to_thread(post, person, f"/{endpoint}/test")
        page_after = await asyncio.to_thread(person.browser.get, goes_to(tested) or "")
    assert "The test was delivered: your server answered 202" in page_after.text
    links = re.findall(rf'href="({WEBHOOKS}/{endpoint}/attempts/att_\w+)"', page_after.text)
    assert len(set(links)) == 2
    shown = {}
    for link in set(links):
        text = person.browser.get(link).text
        sent, answered = (
            html.unescape(one) for one in re.findall(r"<pre[^>]*><code>(.*?)</code>", text, re.DOTALL)
        )
        assert answered == thanks.decode(errors="replace")
        assert secret not in text
        assert secret.removeprefix("whsec_") not in text
        head, _, body = sent.partition("\n\n")
        first, *lines = head.splitlines()
        assert first == "POST /hook HTTP/1.1"
        headers = dict(line.split(": ", 1) for line in lines)
        shown[headers["webhook-id"]] = (headers, body)
    assert len(shown) == 2
    for request in receiver.requests:
        headers, body = shown[request.headers["webhook-id"]]
        assert (headers, body.encode()) == (dict(request.headers), request.body)
        assert list(headers) == list(request.headers)
        assert json.loads(body)["type"] in {"balance.low", "webhook.test"}
    assert write_id(EVENT, event_id) in shown


async def test_a_test_that_fails_says_why(service: Service) -> None:
    person = sign_up(service)
    with closed_port() as port:
        async with delivering(service):
            endpoint = await asyncio.to_thread(add, person, f"http://127.0.0.1:{port}/")
            tested = await asyncio.to_thread(post, person, f"/{endpoint}/test")
            page = await asyncio.to_thread(person.browser.get, goes_to(tested) or "")
    assert "The test was not delivered: Connection refused." in page.text
    assert "1 failure since" in page.text


def test_without_a_worker_a_test_is_on_its_way_and_so_many_wait_at_most(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person)
    tested = post(person, f"/{endpoint}/test")
    page = person.browser.get(goes_to(tested) or "")
    assert "your server has not answered yet" in page.text
    service.sql(
        "INSERT INTO webhook_retries SELECT $1, 0, gen_random_uuid(), 0, now(), now()"
        " FROM generate_series(1, 19)",
        uuid(ENDPOINT, endpoint),
    )
    refused = post(person, f"/{endpoint}/test")
    assert refused.status_code == 409
    assert "Too many tests are waiting." in alert(refused)


def pause(service: Service, endpoint: str, retries: Sequence[EventId] = ()) -> None:
    """Let an endpoint fail as often as it takes to be paused for five minutes."""
    service.sql(
        "UPDATE webhook_endpoints SET failures = 25, failing_since = now() - interval '2 hours',"
        " rest_until = now() + interval '5 minutes', position = 1 WHERE id = $1",
        uuid(ENDPOINT, endpoint),
    )
    for number, event_id in enumerate(retries, 1):
        service.sql(
            "INSERT INTO webhook_retries VALUES ($1, $2, $3, 3, now(), now() + interval '2 hours')",
            uuid(ENDPOINT, endpoint),
            number,
            event_id,
        )


def test_a_test_and_what_is_resent_end_a_pause_at_once(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person)
    (event_id,) = add_events(service, person)
    put_attempts(service, endpoint, [attempt(endpoint, event_id, status=500)])
    for below, fields in (
        ("/test", {}),
        (f"/replay/{write_id(EVENT, event_id)}", {}),
        ("/replay", {"since": today(), "what": "failed"}),
        ("/replay", {"since": today(), "what": "everything"}),
    ):
        pause(service, endpoint)
        page = show(person, endpoint)
        assert ("Paused until" in page, "Test and resume" in page) == (True, True)
        assert goes_to(post(person, f"/{endpoint}{below}", **fields)) is not None
        assert stored(service, endpoint)["rest_until"] is None, below
        assert "Paused until" not in show(person, endpoint)


def test_a_paused_or_disabled_endpoint_is_tested_and_resumed_with_one_press(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person)
    for state in ("paused", "disabled"):
        service.sql("UPDATE webhook_endpoints SET state = $1, reason = 'Gone.'", state)
        assert "/test-and-resume" in show(person, endpoint)
        tested = post(person, f"/{endpoint}/test-and-resume")
        assert "?test=evt_" in (goes_to(tested) or "")
        assert (stored(service, endpoint)["state"], stored(service, endpoint)["reason"]) == ("active", None)


def test_the_page_names_one_time_of_the_next_attempt_and_that_is_when_it_comes(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person)
    (event_id,) = add_events(service, person)
    made = attempt(endpoint, event_id, status=500)
    put_attempts(service, endpoint, [made])
    path = f"/{endpoint}/attempts/{write_id(webhooks.ATTEMPT, made.id)}"
    assert next_attempt(show(person, endpoint)) == "now"
    pause(service, endpoint, [event_id])
    # While it is paused, nothing is tried before the pause ends; the retry itself is due later.
    assert next_attempt(show(person, endpoint)) is None
    (due,) = service.sql("SELECT due_at FROM webhook_retries WHERE event_id = $1", event_id)
    assert next_attempt(person.browser.get(WEBHOOKS + path).text) == write_moment(due["due_at"])[:-3]
    service.sql("UPDATE webhook_endpoints SET rest_until = NULL, failures = 3")
    assert next_attempt(show(person, endpoint)) == write_moment(due["due_at"])[:-3]
    service.sql("UPDATE webhook_endpoints SET state = 'paused'")
    assert next_attempt(show(person, endpoint)) is None
    assert next_attempt(person.browser.get(WEBHOOKS + path).text) == "none"


def next_attempt(page: str) -> str | None:
    found = re.search(r"<dt>Next attempt</dt><dd>(?:<time[^>]*>)?([^<]*)<", page)
    return None if found is None else found[1]


def test_after_a_rotation_an_older_try_is_shown_without_a_signature_that_it_never_had(
    service: Service,
) -> None:
    person = sign_up(service)
    endpoint = add(person)
    (event_id,) = add_events(service, person)
    made = attempt(endpoint, event_id)
    put_attempts(service, endpoint, [made])
    path = f"{WEBHOOKS}/{endpoint}/attempts/{write_id(webhooks.ATTEMPT, made.id)}"
    before = person.browser.get(path).text
    assert "webhook-signature: v1," in before
    assert "has changed since" not in before
    post(
        person,
        f"/{endpoint}/rotate",
        password=PASSWORD,
        seen=stored(service, endpoint)["changed_at"].isoformat(),
    )
    after = person.browser.get(path).text
    assert "webhook-signature" not in after
    assert "The endpoint has changed since this attempt." in after
    # Nothing can be made again of an event that is gone.
    service.sql("DELETE FROM events WHERE id = $1", event_id)
    assert "The event is no longer kept" in person.browser.get(path).text


def test_tries_are_paged_newest_first(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person)
    (event_id,) = add_events(service, person)
    began = datetime.now(UTC) - timedelta(minutes=10)
    made = [
        attempt(endpoint, event_id, at=began + timedelta(seconds=second)) for second in range(2 * PAGE + 3)
    ]
    put_attempts(service, endpoint, made)
    names = [write_id(webhooks.ATTEMPT, one.id) for one in reversed(made)]
    query, seen = "", []
    for expected in (PAGE, PAGE, 3):
        page = show(person, endpoint, query)
        found = re.findall(r"/attempts/(att_\w+)\"", page)
        assert len(found) == expected
        seen += found
        older = re.search(r'href="[^"]*(\?before=att_\w+)#attempts" rel="next"', page)
        query = "" if older is None else older[1]
    assert seen == names
    assert query == ""
    assert person.browser.get(f"{WEBHOOKS}/{endpoint}?before=x").status_code == 404
    assert "no older attempts" in show(person, endpoint, f"?before={names[-1]}")


def test_what_others_wrote_is_shown_as_text(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person, URL + "/?a=<b>&c='d'", description=HOSTILE)
    (event_id,) = add_events(service, person)
    made = attempt(endpoint, event_id, answer=HOSTILE)
    failed = attempt(endpoint, event_id, status=None, problem=HOSTILE)
    put_attempts(service, endpoint, [made, failed])
    service.sql(
        "UPDATE webhook_endpoints SET state = 'disabled', reason = $2 WHERE id = $1",
        uuid(ENDPOINT, endpoint),
        HOSTILE,
    )
    paths = [
        WEBHOOKS,
        f"{WEBHOOKS}/{endpoint}",
        f"{WEBHOOKS}/{endpoint}?done=%3Cscript%3E&count=%3Cscript%3E&test=%3Cscript%3E",
        *(f"{WEBHOOKS}/{endpoint}/attempts/{write_id(webhooks.ATTEMPT, one.id)}" for one in (made, failed)),
    ]
    for path in paths:
        page = person.browser.get(path)
        assert page.status_code == 200
        assert "<script>" not in page.text
        assert "<b>" not in page.text
        if "done" not in path:
            assert HOSTILE in html.unescape(page.text)


# Sending once more.


async def until(service: Service, statement: str, *arguments: Any) -> None:
    for _ in range(400):
        if not count(service, statement, *arguments):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(statement)


async def replaying(
    service: Service, respond: Responder, asked: Sequence[tuple[Mapping[str, str] | None, Sequence[int]]]
) -> None:
    """Send three events, the last of them answered so; each time the owner asks, those named come again."""
    person = sign_up(service)
    async with run_receiver(ok) as receiver, delivering(service):
        endpoint = await asyncio.to_thread(add, person, receiver.url)
        event_ids = add_events(service, person, 2)
        await receiver.wait(requests=2)
        receiver.respond = respond
        event_ids = [*event_ids, *add_events(service, person)]
        await receiver.wait(requests=3)
        receiver.respond = ok
        unrecorded = "SELECT 3 - count(*) FROM webhook_attempts WHERE endpoint_id = $1"
        await until(service, unrecorded, uuid(ENDPOINT, endpoint))
        # As when it was given up: what comes again comes because somebody wanted it.
        service.sql("DELETE FROM webhook_retries WHERE endpoint_id = $1", uuid(ENDPOINT, endpoint))
        names = [write_id(EVENT, event_id) for event_id in event_ids]
        for fields, again in asked:
            before = len(receiver.requests)
            if fields is None:
                answered = await asyncio.to_thread(post, person, f"/{endpoint}/replay/{names[0]}")
                assert goes_to(answered) == f"{WEBHOOKS}/{endpoint}?done=replayed"
            else:
                answered = await asyncio.to_thread(post, person, f"/{endpoint}/replay", **fields)
                assert (goes_to(answered) or "").startswith(
                    f"{WEBHOOKS}/{endpoint}?done=replayed-many&count="
                )
            await receiver.wait(requests=before + len(again))
            came = [names.index(one.headers["webhook-id"]) for one in receiver.requests[before:]]
            assert sorted(came) == again


def today() -> str:
    return str((datetime.now(UTC) + timedelta(hours=2)).date())


async def test_one_event_or_everything_since_a_day_is_sent_once_more(service: Service) -> None:
    everything = {"since": today(), "what": "everything"}
    await replaying(service, ok, [(None, [0]), (everything, [0, 1, 2])])


async def test_what_failed_is_sent_once_more_and_nothing_else(service: Service) -> None:
    await replaying(service, answer(400), [({"since": today(), "what": "failed"}, [2])])


def test_a_day_that_makes_no_sense_is_refused_beside_its_field(owner: Person, owned: str) -> None:
    for since, words in (
        ("", "Enter today or an earlier day"),
        ("tomorrow", "Enter today or an earlier day"),
        ("9999-12-31", "Enter today or an earlier day"),
        ("0001-01-01", "Enter today or an earlier day"),
        ("2020-01-01", "Events are kept for 30 days"),
    ):
        refused = post(owner, f"/{owned}/replay", since=since, what="failed")
        assert refused.status_code == 422
        assert f"Since : {words}" in alert(refused)


def test_where_there_is_nothing_to_send_once_more_the_page_says_so(owner: Person, owned: str) -> None:
    for what in ("failed", "everything", "nonsense"):
        answered = post(owner, f"/{owned}/replay", since=today(), what=what)
        assert goes_to(answered) == f"{WEBHOOKS}/{owned}?done=replayed-many&count=0"
    assert "nothing to resend" in show(owner, owned, "?done=replayed-many&count=0")
