"""Endpoints are added, changed and removed by their owner only."""

import html
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Final, cast

import pytest

from tests.support.identity.people import (
    NAME,
    PASSWORD,
    Person,
    alert,
    count,
    goes_to,
    page_text,
    run_behind_proxy,
    sign_up,
)
from tests.support.processes.service import Service
from tests.support.webhooks.calls import Names
from tests.support.webhooks.pages import (
    SECRET,
    URL,
    account_of,
    add,
    add_events,
    attempt,
    post,
    put_attempts,
    show,
    stored,
    uuid,
)
from tumira.core.ids import ENDPOINT, EVENT, new_id, write_id
from tumira.dashboard.pages import webhooks
from tumira.dashboard.pages.webhooks import WEBHOOKS, EndpointForm
from tumira.dashboard.session import CustomerSession, Services
from tumira.events import SUBSCRIBABLE
from tumira.html.form_body import FormBody
from tumira.webhooks.manage import ENDPOINTS_MAX

UNKNOWN: Final = "end_" + "0" * 26


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url, TUMIRA_WEBHOOKS_ALLOW_PRIVATE="1") as running:
        yield running


@pytest.fixture(scope="module")
def strict(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        yield running


@pytest.fixture(scope="module")
def stranger(strict: Service) -> Person:
    return sign_up(strict)


@pytest.fixture(scope="module")
def owner(service: Service) -> Person:
    return sign_up(service)


@pytest.fixture(scope="module")
def owned(owner: Person) -> str:
    return add(owner)


@pytest.fixture(scope="module")
def eve(service: Service) -> Person:
    return sign_up(service)


def changes_of(service: Service, person: Person) -> Sequence[tuple[str, str, str]]:
    rows = service.sql(
        "SELECT what, actor, address, detail FROM changes WHERE account_id = $1"
        " AND what LIKE ANY('{endpoint%,key%}') ORDER BY id",
        account_of(service, person),
    )
    assert all(row["address"] == person.browser.headers["x-forwarded-for"] for row in rows)
    return [(row["what"], row["actor"], row["detail"]) for row in rows]


# Setting up.


def test_a_new_endpoint_is_listed_and_its_secret_is_shown_this_once(service: Service) -> None:
    person = sign_up(service)
    assert "no endpoints yet" in person.browser.get(WEBHOOKS).text
    page = post(person, "", url=URL, description="Shop", type=SUBSCRIBABLE)
    (secret,) = set(SECRET.findall(page.text))
    assert page.headers["cache-control"] == "no-store"
    endpoint = re.findall(r"end_\w+", page.text)[0]
    for path in (WEBHOOKS, f"{WEBHOOKS}/{endpoint}"):
        shown = person.browser.get(path)
        assert URL in shown.text
        assert "Shop" in shown.text
        assert secret not in shown.text
        assert shown.headers["cache-control"] == "no-store"
    assert stored(service, endpoint)["types"] is None
    # It is told of what was ticked.
    endpoint = add(
        person, URL + "/2", types=["message.failed", "message.delivered", "nonsense", "webhook.test"]
    )
    assert stored(service, endpoint)["types"] == ["message.delivered", "message.failed"]
    assert len(re.findall(r'name="type"[^>]* checked', show(person, endpoint))) == 2


def test_what_is_wrong_with_an_endpoint_is_said_beside_its_field(stranger: Person) -> None:
    for url, words in (
        ("", "Enter the URL that receives events"),
        ("http://hooks.example.com/", "must begin with https://"),
        ("https://10.0.0.1/", "must name the host"),
        ("https://hooks.example.com/" + "x" * 2048, "at most 2,048 characters"),
        ("javascript:alert(1)", "must begin with https://"),
    ):
        refused = post(stranger, "", url=url, description="kept words", type=["message.failed"])
        assert refused.status_code == 422
        assert alert(refused).startswith("There is a problem URL :")
        assert words in alert(refused)
        fault = re.search(r'<p class="fault" id="url-fault">(.*?)</p>', refused.text)
        assert fault is not None
        assert words in html.unescape(fault[1])
        assert 'value="kept words"' in refused.text
        assert len(re.findall(r'name="type"[^>]* checked', refused.text)) == 1
    both = post(stranger, "", url="", description="x")
    assert "URL :" in alert(both)
    assert "Events : Choose at least one." in alert(both)
    fields = {"url": "https://hooks.example.com/", "type": SUBSCRIBABLE}
    for description, words in (("x" * 201, "at most 200 characters"), ("a\u202eb", "cannot be shown")):
        refused = post(stranger, "", description=description, **fields)
        assert refused.status_code == 422
        assert "Description (optional) :" in alert(refused)
        assert words in alert(refused)
    assert "no endpoints yet" in stranger.browser.get(WEBHOOKS).text


async def test_a_name_that_leads_inside_is_refused_and_one_that_leads_nowhere_yet_is_told_of() -> None:
    resolve = Names(["203.0.113.7", "10.0.0.1"], OSError())
    services = SimpleNamespace(webhooks_allow_private=False, resolve=resolve)
    session = cast("CustomerSession", SimpleNamespace(services=services))
    body = FormBody({"url": ["https://hooks.example.com/inside"], "type": list(SUBSCRIBABLE)})
    refused, doubtful = EndpointForm.parse(body), EndpointForm.parse(body)
    assert await webhooks.look_at(session, refused) is None
    assert refused.faults == {"url": "hooks.example.com resolves to an address that is not public."}
    doubt = await webhooks.look_at(session, doubtful)
    assert (doubt, doubtful.faults) == ("hooks.example.com does not resolve to an address.", {})


def test_a_sixth_endpoint_and_the_same_address_twice_are_refused(service: Service) -> None:
    person = sign_up(service)
    add(person)
    twice = post(person, "", url=URL, type=SUBSCRIBABLE)
    assert twice.status_code == 422
    assert "URL : You already have an endpoint with this URL." in alert(twice)
    for number in range(ENDPOINTS_MAX - 1):
        add(person, f"{URL}/{number}")
    assert "the most an account can have" in person.browser.get(WEBHOOKS).text
    sixth = post(person, "", url=f"{URL}/more", type=SUBSCRIBABLE)
    assert sixth.status_code == 422
    assert "can have 5 endpoints at most. Remove one first." in alert(sixth)
    assert sixth.text.count('class="address main"') == ENDPOINTS_MAX


def test_what_an_endpoint_is_can_be_changed(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person, description="before")
    changed = post(
        person, f"/{endpoint}/change", url=URL + "/new", description="after", type=["message.failed"]
    )
    assert goes_to(changed) == f"{WEBHOOKS}/{endpoint}?done=changed"
    row = stored(service, endpoint)
    assert (row["url"], row["description"], row["types"]) == (URL + "/new", "after", ["message.failed"])
    refused = post(person, f"/{endpoint}/change", url="ftp://x", description="after")
    assert refused.status_code == 422
    assert 'value="ftp://x"' in refused.text
    assert "Events : Choose at least one." in alert(refused)
    refused = post(person, f"/{endpoint}/change", url="ftp://x", type=SUBSCRIBABLE)
    assert "URL : The URL must begin with" in alert(refused)
    assert stored(service, endpoint) == row


# Whose they are.


OWNED: Final = [
    (method, route.path)
    for route in webhooks.routes(cast("Services", None))
    for method in route.methods or ()
    if "{id}" in route.path and method != "HEAD"
]


def test_an_endpoint_of_somebody_else_looks_like_one_that_does_not_exist(
    service: Service, owner: Person, owned: str, eve: Person
) -> None:
    noted = changes_of(service, owner)
    (event_id,) = add_events(service, owner)
    made = attempt(owned, event_id)
    put_attempts(service, owned, [made])
    before = stored(service, owned)
    fields = {
        "url": "http://127.0.0.1:9/eve",
        "type": list(SUBSCRIBABLE),
        "since": str(datetime.now(UTC).date()),
        "seen": before["changed_at"].isoformat(),
    }
    for method, route in OWNED:
        path = route.replace("{event}", write_id(EVENT, event_id))
        path = path.replace("{attempt}", write_id(webhooks.ATTEMPT, made.id))
        foreign, unknown, malformed = (
            eve.browser.request(method, path.replace("{id}", one), data=fields if method == "POST" else None)
            for one in (owned, UNKNOWN, "end_' OR 1=1 --")
        )
        assert foreign.status_code == unknown.status_code == malformed.status_code == 404, route
        assert page_text(foreign) == page_text(unknown) == page_text(malformed)
    assert stored(service, owned) == before
    assert owned not in eve.browser.get(WEBHOOKS).text
    assert changes_of(service, owner) == noted
    assert changes_of(service, eve) == []
    for table in ("webhook_retries", "webhook_replays"):
        waiting = f"SELECT count(*) FROM {table} WHERE endpoint_id = $1"
        assert count(service, waiting, uuid(ENDPOINT, owned)) == 0


def test_somebody_elses_tries_and_events_cannot_be_reached_through_an_endpoint_of_ones_own(
    service: Service, owner: Person, owned: str, eve: Person
) -> None:
    own = add(eve)
    (event_id,) = add_events(service, owner)
    made = attempt(owned, event_id)
    put_attempts(service, owned, [made])
    theirs = f"{WEBHOOKS}/{own}/attempts/{write_id(webhooks.ATTEMPT, made.id)}"
    assert eve.browser.get(theirs).status_code == 404
    refused = post(eve, f"/{own}/replay/{write_id(EVENT, event_id)}")
    unknown = post(eve, f"/{own}/replay/{write_id(EVENT, new_id(1))}")
    assert refused.status_code == unknown.status_code == 409
    assert alert(refused) == alert(unknown) == "The event is no longer kept, so it cannot be resent."


# Changing its state.


def test_every_change_is_noted_with_who_made_it_and_where_and_without_the_secret(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person, URL + "/token-1234")
    post(person, f"/{endpoint}/pause")
    post(person, f"/{endpoint}/pause")
    post(person, f"/{endpoint}/resume")
    post(person, f"/{endpoint}/change", url=URL, description="new", type=SUBSCRIBABLE)
    post(person, f"/{endpoint}/change", url=URL, description="new", type=SUBSCRIBABLE)
    seen = stored(service, endpoint)["changed_at"].isoformat()
    post(person, f"/{endpoint}/rotate", password=PASSWORD, seen=seen)
    assert "It gets no more events." in show(person, endpoint)
    assert goes_to(post(person, f"/{endpoint}/remove")) == f"{WEBHOOKS}?removed=1"
    assert "The endpoint was removed" in person.browser.get(f"{WEBHOOKS}?removed=1").text
    assert person.browser.get(f"{WEBHOOKS}/{endpoint}").status_code == 404
    page = person.browser.post(
        "/dashboard/keys", data={"name": "till", "scope": "messages:send", "password": PASSWORD}
    )
    key_id = "key_" + re.findall(r"tmr_(\w{26})_", page.text)[0]
    for _ in range(2):
        person.browser.post(f"/dashboard/keys/{key_id}/revoke")
    place = f"http://127.0.0.1:9 ({endpoint})"
    assert changes_of(service, person) == [
        ("endpoint added", NAME, place),
        ("endpoint paused", NAME, place),
        ("endpoint resumed", NAME, place),
        ("endpoint changed", NAME, f"{place}: URL, description"),
        ("endpoint secret rotated", NAME, place),
        ("endpoint removed", NAME, place),
        ("key created", NAME, f"till ({key_id})"),
        ("key revoked", NAME, f"till ({key_id})"),
    ]


def test_an_endpoint_is_paused_and_resumed_with_what_waited_or_from_now_on(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person)
    assert goes_to(post(person, f"/{endpoint}/pause")) == f"{WEBHOOKS}/{endpoint}?done=paused"
    add_events(service, person, 3)
    page = show(person, endpoint, "?done=paused")
    assert "The endpoint is paused." in page
    assert "3 events" in page
    assert "Send test" not in page
    refused = post(person, f"/{endpoint}/test")
    assert (refused.status_code, alert(refused)) == (409, "The endpoint is paused. Resume it first.")

    assert goes_to(post(person, f"/{endpoint}/resume")) == f"{WEBHOOKS}/{endpoint}?done=resumed"
    assert (stored(service, endpoint)["state"], stored(service, endpoint)["position"]) == ("active", 0)
    post(person, f"/{endpoint}/pause")
    resumed = post(person, f"/{endpoint}/resume-from-now")
    assert goes_to(resumed) == f"{WEBHOOKS}/{endpoint}?done=resumed-from-now"
    assert (stored(service, endpoint)["state"], stored(service, endpoint)["position"]) == ("active", 3)
    assert "0 events" in show(person, endpoint)


def test_a_secret_is_rotated_once_however_often_the_page_is_sent(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person)
    before = stored(service, endpoint)
    page = show(person, endpoint)
    (seen,) = re.findall(r'name="seen" value="([^"]*)"', page)
    rotated = post(person, f"/{endpoint}/rotate", password=PASSWORD, seen=html.unescape(seen))
    (secret,) = set(SECRET.findall(rotated.text))
    assert rotated.headers["cache-control"] == "no-store"
    after = stored(service, endpoint)
    assert after["old_secret"] == before["secret"]
    assert after["old_secret_until"] > datetime.now(UTC) + timedelta(hours=23)
    assert "the old one also signs until" in show(person, endpoint)
    assert secret not in show(person, endpoint)
    for again in (html.unescape(seen), "", "yesterday", "2026-11-16T08:00:00"):
        refused = post(person, f"/{endpoint}/rotate", password=PASSWORD, seen=again)
        assert refused.status_code == 409
        assert "its secret was not changed" in alert(refused)
        assert not SECRET.search(refused.text)
    assert stored(service, endpoint) == after


def test_a_failing_and_a_disabled_endpoint_are_pointed_out(service: Service) -> None:
    person = sign_up(service)
    failing, disabled = add(person), add(person, URL + "/2")
    service.sql(
        "UPDATE webhook_endpoints SET failures = 25, failing_since = now() - interval '2 hours',"
        " warnings = 1, rest_until = now() + interval '5 minutes' WHERE id = $1",
        uuid(ENDPOINT, failing),
    )
    service.sql(
        "UPDATE webhook_endpoints SET state = 'disabled', reason = 'It answered 410 Gone.' WHERE id = $1",
        uuid(ENDPOINT, disabled),
    )
    listed = person.browser.get(WEBHOOKS).text
    assert listed.count('class="notice warning"') == 2
    page = show(person, failing)
    assert "Failing since" in page
    assert "25 failures in a row" in page
    assert "Paused until" in page
    assert "Test and resume" in page
    assert "Next attempt" not in page
    page = show(person, disabled)
    assert "Disabled: It answered 410 Gone. Fix your server, then resume the endpoint" in page
    assert "Resume from now on" in page
