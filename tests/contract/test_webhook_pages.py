"""Can customers set up, watch and repair their own endpoints, see what was sent, and nobody else's?"""

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

import httpx
import pytest
from starlette.applications import Starlette

from tests.support.people import (
    SESSION,
    VERIFICATION,
    Person,
    alert,
    count,
    goes_to,
    run_behind_proxy,
    sign_up,
)
from tests.support.receivers import Responder, answer, closed_port, ok, run_receiver
from tests.support.service import Service
from tests.support.webhook_calls import Names
from tumira.actions.event_payloads import low_balance_data
from tumira.actions.gate import Gate
from tumira.actions.manage_webhooks import ENDPOINTS_MAX
from tumira.actions.tell_events import News, tell_events
from tumira.config.payments import Payments
from tumira.dashboard.pages import webhooks
from tumira.dashboard.pages.webhooks import PAGE, WEBHOOKS, Pages
from tumira.dashboard.visits import Services, private
from tumira.engine.notifier import Notifier
from tumira.html import assets
from tumira.html.cookies import Cookie
from tumira.html.layout import Look
from tumira.ids import ENDPOINT, EVENT, AccountId, EndpointId, EventId, new_id, read_id, write_id
from tumira.outbound.webhook_client import Resolver, default_tls
from tumira.rules.codes import CodeLimits
from tumira.rules.events import SUBSCRIBABLE
from tumira.rules.money import parse
from tumira.store import deliveries
from tumira.store.database import KEY_LOOKUPS, Database
from tumira.store.deliveries import Attempt

URL: Final = "http://127.0.0.1:9/hook"
SECRET: Final = re.compile(r"whsec_[0-9A-Za-z+/]{43}=")
HOSTILE: Final = "\"><script>alert(1)</script>' {{7*7}}"
UNKNOWN: Final = "end_" + "0" * 26


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a service whose endpoints may be on this machine."""
    with run_behind_proxy(server_url, TUMIRA_WEBHOOKS_ALLOW_PRIVATE="1") as running:
        yield running


@pytest.fixture(scope="module")
def strict(server_url: str) -> Iterator[Service]:
    """Give a service as it is for strangers."""
    with run_behind_proxy(server_url) as running:
        yield running


@pytest.fixture(scope="module")
def stranger(strict: Service) -> Person:
    """Give somebody at that service, who has no endpoint."""
    return sign_up(strict)


@pytest.fixture(scope="module")
def owner(service: Service) -> Person:
    """Give somebody whose endpoint others would like to have."""
    return sign_up(service)


@pytest.fixture(scope="module")
def owned(owner: Person) -> str:
    """Give that endpoint, which nobody changes."""
    return add(owner)


@pytest.fixture(scope="module")
def eve(service: Service) -> Person:
    """Give somebody who tries to reach what is not hers."""
    return sign_up(service)


def add(person: Person, url: str = URL, description: str = "", types: Sequence[str] = SUBSCRIBABLE) -> str:
    """Add an endpoint, and return its id."""
    page = post(person, "", url=url, description=description, type=types)
    assert page.status_code == 200, alert(page)
    found = re.search(rf"{WEBHOOKS}/(end_\w+)\">Try it out", page.text)
    assert found is not None
    return found[1]


def post(person: Person, below: str, **fields: Any) -> httpx.Response:
    return person.browser.post(WEBHOOKS + below, data=fields)


def show(person: Person, endpoint: str, query: str = "") -> str:
    page = person.browser.get(f"{WEBHOOKS}/{endpoint}{query}")
    assert page.status_code == 200
    return page.text


def uuid(prefix: str, text: str) -> UUID:
    found = read_id(prefix, text)
    assert found is not None
    return found


def stored(service: Service, endpoint: str) -> Mapping[str, Any]:
    (row,) = service.sql("SELECT * FROM webhook_endpoints WHERE id = $1", uuid(ENDPOINT, endpoint))
    return dict(row)


def account_of(service: Service, person: Person) -> AccountId:
    return AccountId(service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)[0]["id"])


def changes_of(service: Service, person: Person) -> Sequence[tuple[str, str, str]]:
    rows = service.sql(
        "SELECT what, actor, address, detail FROM changes WHERE account_id = $1"
        " AND what LIKE ANY('{endpoint%,key%}') ORDER BY id",
        account_of(service, person),
    )
    assert all(row["address"] == person.browser.headers["x-forwarded-for"] for row in rows)
    return [(row["what"], row["actor"], row["detail"]) for row in rows]


def tell(service: Service, person: Person, number: int = 1) -> Sequence[EventId]:
    """Have so many events happen to somebody, and return those."""
    account_id = account_of(service, person)
    balance, threshold = parse("0.96"), parse("1")
    assert balance is not None
    assert threshold is not None
    data = low_balance_data(balance, threshold)

    async def write(database: Database) -> None:
        async with database.transaction() as connection:
            news = [News(account_id, "balance.low", data=data)] * number
            await tell_events(connection, news, datetime.now(UTC))

    service.run(write)
    rows = service.sql(
        "SELECT id FROM events WHERE account_id = $1 ORDER BY sequence DESC LIMIT $2", account_id, number
    )
    return [EventId(row["id"]) for row in reversed(rows)]


def put_attempts(service: Service, endpoint: str, made: Sequence[Attempt]) -> None:
    async def write(database: Database) -> None:
        async with database.transaction() as connection:
            await deliveries.add_attempts(connection, made)

    assert all(one.endpoint_id == uuid(ENDPOINT, endpoint) for one in made)
    service.run(write)


def attempt(endpoint: str, event_id: EventId, sequence: int = 1, **values: Any) -> Attempt:
    at = values.pop("at", datetime.now(UTC))
    fields = {"status": 500, "problem": None, "answer": "", "next_at": None} | values
    return Attempt(
        new_id(int(at.timestamp() * 1000)),
        EndpointId(uuid(ENDPOINT, endpoint)),
        event_id,
        sequence,
        "balance.low",
        1,
        at,
        12,
        **fields,
    )


@asynccontextmanager
async def delivering(service: Service) -> AsyncIterator[None]:
    """Deliver as a worker does."""
    database = Database(service.url, settings=KEY_LOOKUPS)
    notifier = Notifier(
        database,
        "worker-1",
        allow_private=True,
        resolve=Resolver(),
        tls=default_tls(),
        clock=lambda: datetime.now(UTC),
    )
    task = asyncio.create_task(notifier.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await database.close()


# Setting up.


def test_a_new_endpoint_is_listed_and_its_secret_is_shown_this_once(service: Service) -> None:
    person = sign_up(service)
    assert "no endpoint yet" in person.browser.get(WEBHOOKS).text
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


def test_an_endpoint_is_told_of_what_was_ticked(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person, types=["message.failed", "message.delivered", "nonsense", "webhook.test"])
    assert stored(service, endpoint)["types"] == ["message.delivered", "message.failed"]
    page = show(person, endpoint)
    assert len(re.findall(r'name="type"[^>]* checked', page)) == 2


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "Write where we shall send events"),
        ("hooks.example.com", "must begin with https://"),
        ("http://hooks.example.com/", "must begin with https://"),
        ("https://10.0.0.1/", "must name the host"),
        ("https://[::1]/", "must name the host"),
        ("https://localhost/", "no name on the public internet"),
        ("https://a:b@hooks.example.com/", "no user and password"),
        ("https://hooks.example.com:5432/", "that of PostgreSQL"),
        ("https://hooks.example.com/#x", "no fragment"),
        ("https://hooks.example.com/" + "x" * 2048, "at most 2,048 characters"),
        ("javascript:alert(1)", "must begin with https://"),
    ],
)
def test_an_address_that_we_do_not_call_is_refused_beside_its_field(
    stranger: Person, url: str, words: str
) -> None:
    refused = post(stranger, "", url=url, description="kept words", type=["message.failed"])
    assert refused.status_code == 422
    assert alert(refused).startswith("Please look at this again: URL :")
    assert words in alert(refused)
    fault = re.search(r'<p class="fault" id="url-fault">(.*?)</p>', refused.text)
    assert fault is not None
    assert words in html.unescape(fault[1])
    assert 'value="kept words"' in refused.text
    assert len(re.findall(r'name="type"[^>]* checked', refused.text)) == 1
    assert "no endpoint yet" in stranger.browser.get(WEBHOOKS).text


async def test_a_name_that_leads_inside_is_refused_and_one_that_leads_nowhere_yet_is_told_of(
    strict: Service, stranger: Person
) -> None:
    database = Database(strict.url, connections_max=2)
    services = Services(
        database=database,
        gate=cast("Gate", None),
        look=Look(Path(webhooks.__file__).parents[1]),
        session=Cookie(SESSION, strict.base, 3600),
        verification=Cookie(VERIFICATION, strict.base, 3600),
        code_limits=cast("CodeLimits", None),
        public_url=strict.base,
        webhooks_allow_private=False,
        payments=Payments(),
    )
    pages = Pages(Names(["203.0.113.7", "10.0.0.1"], OSError()))
    app = Starlette(
        routes=[private(services, WEBHOOKS, pages.add, "POST"), assets.route(services.look.assets)]
    )
    fields = {"url": "https://hooks.example.com/inside", "type": list(SUBSCRIBABLE)}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url=strict.base, cookies={SESSION: stranger.session}
    ) as browser:
        refused = await browser.post(WEBHOOKS, data=fields)
        added = await browser.post(WEBHOOKS, data=fields)
    await database.close()
    assert refused.status_code == 422
    assert "URL : hooks.example.com resolves to an address that is not public." in alert(refused)
    assert added.status_code == 200
    assert "It cannot be called yet: hooks.example.com does not resolve to an address." in added.text
    service_rows = strict.sql("DELETE FROM webhook_endpoints RETURNING url")
    assert [row["url"] for row in service_rows] == [fields["url"]]


def test_all_faults_are_shown_at_once_and_a_description_is_short_and_plain(service: Service) -> None:
    person = sign_up(service)
    refused = post(person, "", url="", description="x")
    assert "URL :" in alert(refused)
    assert "Events : Tick at least one." in alert(refused)
    for description, words in (("x" * 201, "at most 200 fit"), ("a\u202eb", "cannot be shown")):
        refused = post(person, "", url=URL, description=description, type=SUBSCRIBABLE)
        assert refused.status_code == 422
        assert f"Description (optional) : The description has {'' if len(description) < 9 else '201 '}" in (
            alert(refused)
        )
        assert words in alert(refused)


def test_a_sixth_endpoint_and_the_same_address_twice_are_refused(service: Service) -> None:
    person = sign_up(service)
    add(person)
    twice = post(person, "", url=URL, type=SUBSCRIBABLE)
    assert twice.status_code == 422
    assert "URL : The account has an endpoint with this URL already" in alert(twice)
    for number in range(ENDPOINTS_MAX - 1):
        add(person, f"{URL}/{number}")
    assert "the most there can be" in person.browser.get(WEBHOOKS).text
    sixth = post(person, "", url=f"{URL}/more", type=SUBSCRIBABLE)
    assert sixth.status_code == 422
    assert "the most there can be: remove one first" in alert(sixth)
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
    assert "Events : Tick at least one." in alert(refused)
    refused = post(person, f"/{endpoint}/change", url="ftp://x", type=SUBSCRIBABLE)
    assert "URL : The URL must begin with" in alert(refused)
    assert stored(service, endpoint) == row


# Whose they are.


def owned_routes() -> Sequence[tuple[str, str]]:
    """Return every page about one endpoint, as the dashboard has them."""
    found = [
        (method, route.path)
        for route in webhooks.routes(cast("Services", None))
        for method in route.methods or ()
        if "{id}" in route.path and method != "HEAD"
    ]
    assert len(found) >= 10
    return found


@pytest.mark.parametrize(("method", "path"), owned_routes())
def test_an_endpoint_of_somebody_else_looks_like_one_that_does_not_exist(
    service: Service, owner: Person, owned: str, eve: Person, method: str, path: str
) -> None:
    endpoint = owned
    noted = changes_of(service, owner)
    (event_id,) = tell(service, owner)
    made = attempt(endpoint, event_id)
    put_attempts(service, endpoint, [made])
    before = stored(service, endpoint)
    path = path.replace("{event}", write_id(EVENT, event_id))
    path = path.replace("{attempt}", write_id(webhooks.ATTEMPT, made.id))
    fields = {
        "url": "http://127.0.0.1:9/eve",
        "type": list(SUBSCRIBABLE),
        "since": str(datetime.now(UTC).date()),
        "seen": before["changed_at"].isoformat(),
    }
    data = fields if method == "POST" else None
    foreign, unknown, malformed = (
        eve.browser.request(method, path.replace("{id}", one), data=data)
        for one in (endpoint, UNKNOWN, "end_' OR 1=1 --")
    )
    assert foreign.status_code == unknown.status_code == malformed.status_code == 404
    assert foreign.text == unknown.text == malformed.text
    assert stored(service, endpoint) == before
    assert endpoint not in eve.browser.get(WEBHOOKS).text
    assert changes_of(service, owner) == noted
    assert not any("eve" in detail or endpoint in detail for *_, detail in changes_of(service, eve))
    waiting = "SELECT (SELECT count(*) FROM {0}_retries WHERE endpoint_id = $1)"
    waiting += " + (SELECT count(*) FROM {0}_replays WHERE endpoint_id = $1)"
    assert count(service, waiting.format("webhook"), uuid(ENDPOINT, endpoint)) == 0


def test_somebody_elses_tries_and_events_cannot_be_reached_through_an_endpoint_of_ones_own(
    service: Service, owner: Person, owned: str, eve: Person
) -> None:
    own = add(eve)
    (event_id,) = tell(service, owner)
    made = attempt(owned, event_id)
    put_attempts(service, owned, [made])
    theirs = f"{WEBHOOKS}/{own}/attempts/{write_id(webhooks.ATTEMPT, made.id)}"
    assert eve.browser.get(theirs).status_code == 404
    refused = post(eve, f"/{own}/replay/{write_id(EVENT, event_id)}")
    unknown = post(eve, f"/{own}/replay/{write_id(EVENT, new_id(1))}")
    assert refused.status_code == unknown.status_code == 409
    assert alert(refused) == alert(unknown) == "The event is not kept any more, so it cannot be sent again."


def test_nothing_is_done_for_another_site(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person)
    for below in ("", f"/{endpoint}/rotate", f"/{endpoint}/remove", f"/{endpoint}/test"):
        refused = person.browser.post(WEBHOOKS + below, headers={"Sec-Fetch-Site": "cross-site"})
        assert refused.status_code == 403


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
    post(person, f"/{endpoint}/rotate", seen=seen)
    post(person, f"/{endpoint}/remove")
    page = person.browser.post("/dashboard/keys", data={"name": "till", "scope": "messages:send"})
    key_id = "key_" + re.findall(r"tmr_(\w{26})_", page.text)[0]
    for _ in range(2):
        person.browser.post(f"/dashboard/keys/{key_id}/revoke")
    place = f"http://127.0.0.1:9 ({endpoint})"
    assert changes_of(service, person) == [
        ("endpoint added", "owner", place),
        ("endpoint paused", "owner", place),
        ("endpoint resumed", "owner", place),
        ("endpoint changed", "owner", f"{place}: URL, description"),
        ("endpoint secret rotated", "owner", place),
        ("endpoint removed", "owner", place),
        ("key created", "owner", f"till ({key_id})"),
        ("key revoked", "owner", f"till ({key_id})"),
    ]


def test_an_endpoint_is_paused_and_resumed_with_what_waited_or_from_now_on(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person)
    assert goes_to(post(person, f"/{endpoint}/pause")) == f"{WEBHOOKS}/{endpoint}?done=paused"
    tell(service, person, 3)
    page = show(person, endpoint, "?done=paused")
    assert "The endpoint is paused." in page
    assert "3 events" in page
    assert "Send test" not in page
    refused = post(person, f"/{endpoint}/test")
    assert (refused.status_code, alert(refused)) == (409, "The endpoint is paused: resume it first.")

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
    rotated = post(person, f"/{endpoint}/rotate", seen=html.unescape(seen))
    (secret,) = set(SECRET.findall(rotated.text))
    assert rotated.headers["cache-control"] == "no-store"
    after = stored(service, endpoint)
    assert after["old_secret"] == before["secret"]
    assert after["old_secret_until"] > datetime.now(UTC) + timedelta(hours=23)
    assert "the old one signs as well until" in show(person, endpoint)
    assert secret not in show(person, endpoint)
    for again in (html.unescape(seen), "", "yesterday", "2026-11-16T08:00:00"):
        refused = post(person, f"/{endpoint}/rotate", seen=again)
        assert refused.status_code == 409
        assert "its secret is as it was" in alert(refused)
        assert not SECRET.search(refused.text)
    assert stored(service, endpoint) == after


def test_removing_asks_and_then_leaves_nothing(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person)
    assert "Do you want that?" in show(person, endpoint)
    assert goes_to(post(person, f"/{endpoint}/remove")) == f"{WEBHOOKS}?removed=1"
    assert "The endpoint is removed" in person.browser.get(f"{WEBHOOKS}?removed=1").text
    assert person.browser.get(f"{WEBHOOKS}/{endpoint}").status_code == 404
    assert post(person, f"/{endpoint}/remove").status_code == 404


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
    assert "Nothing has arrived since" in page
    assert "25 failures in a row" in page
    assert "Rests until" in page
    page = show(person, disabled)
    assert "Disabled: It answered 410 Gone. Put that right, then resume it" in page
    assert "Resume with what waited" in page


# What was sent.


async def test_a_try_is_shown_exactly_as_it_was_sent_and_answered(service: Service) -> None:
    person = sign_up(service)
    thanks = b'{"thanks": "<b>\xff</b>"}'
    async with run_receiver(answer(202, body=thanks)) as receiver, delivering(service):
        page = await asyncio.to_thread(post, person, "", url=receiver.url, type=SUBSCRIBABLE)
        (secret,) = set(SECRET.findall(page.text))
        endpoint = re.findall(r"end_\w+", page.text)[0]
        (event_id,) = tell(service, person)
        await receiver.wait(requests=1)
        tested = await asyncio.to_thread(post, person, f"/{endpoint}/test")
        page_after = await asyncio.to_thread(person.browser.get, goes_to(tested) or "")
    assert "The test arrived: your server answered 202" in page_after.text
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
    assert "The test did not arrive: Connection refused." in page.text
    assert "1 failure in a row" in page.text


def test_without_a_worker_a_test_is_on_its_way_and_so_many_wait_at_most(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person)
    tested = post(person, f"/{endpoint}/test")
    page = person.browser.get(goes_to(tested) or "")
    assert "there is no answer yet" in page.text
    service.sql(
        "INSERT INTO webhook_retries SELECT $1, 0, gen_random_uuid(), 0, now(), now()"
        " FROM generate_series(1, 19)",
        uuid(ENDPOINT, endpoint),
    )
    refused = post(person, f"/{endpoint}/test")
    assert refused.status_code == 409
    assert "Enough tests wait" in alert(refused)


def test_after_a_rotation_an_older_try_is_shown_without_a_signature_that_it_never_had(
    service: Service,
) -> None:
    person = sign_up(service)
    endpoint = add(person)
    (event_id,) = tell(service, person)
    made = attempt(endpoint, event_id)
    put_attempts(service, endpoint, [made])
    path = f"{WEBHOOKS}/{endpoint}/attempts/{write_id(webhooks.ATTEMPT, made.id)}"
    before = person.browser.get(path).text
    assert "webhook-signature: v1," in before
    assert "was changed after" not in before
    post(person, f"/{endpoint}/rotate", seen=stored(service, endpoint)["changed_at"].isoformat())
    after = person.browser.get(path).text
    assert "webhook-signature" not in after
    assert "The endpoint was changed after this try" in after
    # Nothing can be made again of an event that is gone.
    service.sql("DELETE FROM events WHERE id = $1", event_id)
    assert "The event is not kept any more" in person.browser.get(path).text


def test_tries_are_paged_newest_first(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person)
    (event_id,) = tell(service, person)
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
    assert "no older tries" in show(person, endpoint, f"?before={names[-1]}")


def test_what_others_wrote_is_shown_as_text(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person, URL + "/?a=<b>&c='d'", description=HOSTILE)
    (event_id,) = tell(service, person)
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
    """Wait until a statement finds nothing."""
    for _ in range(400):
        if not count(service, statement, *arguments):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(statement)


async def replaying(
    service: Service, respond: Responder, fields: Mapping[str, str] | None, again: int
) -> Sequence[str]:
    """Send three events, the last of them answered so; ask for some of them, and return which came again."""
    person = sign_up(service)
    async with run_receiver(ok) as receiver, delivering(service):
        endpoint = await asyncio.to_thread(add, person, receiver.url)
        event_ids = tell(service, person, 2)
        await receiver.wait(requests=2)
        receiver.respond = respond
        event_ids = [*event_ids, *tell(service, person)]
        await receiver.wait(requests=3)
        receiver.respond = ok
        unrecorded = "SELECT 3 - count(*) FROM webhook_attempts WHERE endpoint_id = $1"
        await until(service, unrecorded, uuid(ENDPOINT, endpoint))
        # As when it was given up: what comes again comes because somebody wanted it.
        service.sql("DELETE FROM webhook_retries WHERE endpoint_id = $1", uuid(ENDPOINT, endpoint))
        if fields is None:
            path = f"/{endpoint}/replay/{write_id(EVENT, event_ids[0])}"
            answered = await asyncio.to_thread(post, person, path)
            assert goes_to(answered) == f"{WEBHOOKS}/{endpoint}?done=replayed"
        else:
            answered = await asyncio.to_thread(post, person, f"/{endpoint}/replay", **fields)
            assert (goes_to(answered) or "").startswith(f"{WEBHOOKS}/{endpoint}?done=replayed-many&count=")
        await receiver.wait(requests=3 + again)
        names = [write_id(EVENT, event_id) for event_id in event_ids]
        return [str(names.index(one.headers["webhook-id"])) for one in receiver.requests[3:]]


def today() -> str:
    return str((datetime.now(UTC) + timedelta(hours=2)).date())


async def test_one_event_is_sent_once_more(service: Service) -> None:
    assert await replaying(service, ok, None, 1) == ["0"]


async def test_what_failed_is_sent_once_more_and_nothing_else(service: Service) -> None:
    fields = {"since": today(), "what": "failed"}
    assert await replaying(service, answer(400), fields, 1) == ["2"]


async def test_everything_since_a_day_is_sent_once_more(service: Service) -> None:
    fields = {"since": today(), "what": "everything"}
    assert sorted(await replaying(service, ok, fields, 3)) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("since", "words"),
    [
        ("", "Write a day that has begun"),
        ("tomorrow", "Write a day that has begun"),
        ("2999-01-01", "Write a day that has begun"),
        ("9999-12-31", "Write a day that has begun"),
        ("0001-01-01", "Write a day that has begun"),
        ("2020-01-01", "Events are kept for 30 days"),
    ],
)
def test_a_day_that_makes_no_sense_is_refused_beside_its_field(
    owner: Person, owned: str, since: str, words: str
) -> None:
    refused = post(owner, f"/{owned}/replay", since=since, what="failed")
    assert refused.status_code == 422
    assert f"Since : {words}" in alert(refused)


def test_where_there_is_nothing_to_send_once_more_the_page_says_so(service: Service) -> None:
    person = sign_up(service)
    endpoint = add(person)
    for what in ("failed", "everything", "nonsense"):
        answered = post(person, f"/{endpoint}/replay", since=today(), what=what)
        assert goes_to(answered) == f"{WEBHOOKS}/{endpoint}?done=replayed-many&count=0"
    assert "nothing to send once more" in show(person, endpoint, "?done=replayed-many&count=0")
