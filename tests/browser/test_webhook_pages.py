"""Can everybody set up, watch and repair an endpoint in a browser, on any screen, and without scripts too?"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import (
    DESKTOP,
    PHONE,
    WIDE,
    Opener,
    Viewport,
    check_accessibility,
    layout_shift,
    overflows,
    screenshot,
    wire_bytes,
)
from tests.support.identity.people import SESSION, Person, run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tumira.core.ids import ENDPOINT, AccountId, EndpointId, EventId, new_id, read_id
from tumira.events import NewEvent, record_events
from tumira.postgres.pool import Database
from tumira.sending.low_balance import low_balance_data
from tumira.webhooks import attempts
from tumira.webhooks.attempts import Attempt

WEBHOOKS: Final = "/dashboard/webhooks"
URL: Final = "http://127.0.0.1:9/hook"
LONG: Final = URL + "/" + "a-path-without-an-end-" * 12
FIRST_BYTES_MAX: Final = 60_000
NEXT_BYTES_MAX: Final = 15_000
SHIFT_MAX: Final = 0.01
TRIES: Final = 30

LOOKS: Final = [
    pytest.param(PHONE, False, id="phone, light"),
    pytest.param(DESKTOP, True, id="desktop, dark", marks=pytest.mark.long),
    pytest.param(PHONE, True, id="phone, dark", marks=pytest.mark.long),
    pytest.param(DESKTOP, False, id="desktop, light", marks=pytest.mark.long),
    pytest.param(WIDE, False, id="wide, light", marks=pytest.mark.long),
]


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a service whose endpoints may be on this machine; nobody delivers."""
    with run_behind_proxy(server_url, TUMIRA_WEBHOOKS_ALLOW_PRIVATE="1") as running:
        yield running


def come_in(page: Page, service: Service, person: Person) -> None:
    page.context.add_cookies([{"name": SESSION, "value": person.session, "url": service.base}])


def add(person: Person, url: str, description: str, types: list[str]) -> str:
    page = person.browser.post(WEBHOOKS, data={"url": url, "description": description, "type": types})
    found = re.search(rf"{WEBHOOKS}/(end_\w+)\">Try it out", page.text)
    assert found is not None, page.text
    return found[1]


async def fill(database: Database, account_id: AccountId, endpoint_id: EndpointId) -> None:
    """Let events happen, and be tried in many ways."""
    now = datetime.now(UTC)
    async with database.transaction() as connection:
        data = low_balance_data(Decimal("0.96"), Decimal(1))
        await record_events(connection, [NewEvent(account_id, "balance.low", data=data)] * TRIES, now)
        rows = await connection.fetch(
            "SELECT id, sequence FROM events WHERE account_id = $1 ORDER BY sequence", account_id
        )
        answers = ((204, None, ""), (500, None, "<h1>Oops</h1>" * 60), (None, "Connection refused.", ""))
        made = []
        for place, row in enumerate(rows):
            status, problem, answer = answers[place % 3]
            at = now + timedelta(milliseconds=place)
            made.append(
                Attempt(
                    new_id(int(at.timestamp() * 1000)),
                    endpoint_id,
                    EventId(row["id"]),
                    row["sequence"],
                    "balance.low",
                    1 + place % 3,
                    at,
                    37 * place,
                    status,
                    problem,
                    answer,
                    None if status == 204 else at + timedelta(minutes=5),
                )
            )
        await attempts.insert_attempts(connection, made)


@pytest.fixture(scope="module")
def person(service: Service) -> Person:
    """Give somebody with endpoints in every state."""
    one = sign_up(service)
    ids = [
        add(one, URL, "Web shop", ["message.delivered", "message.failed"]),
        add(one, LONG, "W" * 200, ["balance.low"]),
        add(one, URL + "/paused", "", ["batch.completed"]),
        add(one, URL + "/gone", "", ["batch.completed"]),
    ]
    failing, gone = (read_id(ENDPOINT, text) for text in (ids[1], ids[3]))
    assert failing is not None
    one.browser.post(f"{WEBHOOKS}/{ids[2]}/pause")
    service.sql(
        "UPDATE webhook_endpoints SET failures = 25, failing_since = now() - interval '2 hours',"
        " warnings = 1, rest_until = now() + interval '1 hour', succeeded_at = now() - interval '1 day'"
        " WHERE id = $1",
        failing,
    )
    service.sql(
        "UPDATE webhook_endpoints SET state = 'disabled', reason = 'It answered 410 Gone.' WHERE id = $1",
        gone,
    )
    account_id = service.sql("SELECT id FROM accounts WHERE phone = $1", one.phone)[0]["id"]
    service.run(fill, AccountId(account_id), EndpointId(failing))
    return one


@pytest.mark.parametrize(("viewport", "dark"), LOOKS)
def test_every_page_can_be_used_by_everybody(
    service: Service, person: Person, open_page: Opener, viewport: Viewport, *, dark: bool
) -> None:
    page = open_page(service.base, viewport=viewport, dark=dark)
    come_in(page, service, person)

    def look(name: str) -> None:
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        assert overflows(page) == []
        assert layout_shift(page) <= SHIFT_MAX, name
        check_accessibility(page)
        screenshot(page, name)

    page.goto(WEBHOOKS)
    look("webhooks")
    for name, url in (("failing", LONG), ("paused", URL + "/paused"), ("disabled", URL + "/gone")):
        page.goto(WEBHOOKS)
        page.get_by_role("table").get_by_role("link", name=url, exact=True).click()
        look(f"webhook-{name}")
    page.goto(WEBHOOKS)
    page.get_by_role("table").get_by_role("link", name=LONG, exact=True).click()
    page.get_by_role("row").nth(2).get_by_role("link").click()
    expect(page.get_by_role("heading", name="What was answered")).to_be_visible()
    look("webhook-attempt")


def test_the_pages_cost_little(service: Service, person: Person, open_page: Opener) -> None:
    page = open_page(service.base, viewport=PHONE)
    come_in(page, service, person)
    page.goto(WEBHOOKS)
    assert wire_bytes(page) < FIRST_BYTES_MAX
    page.get_by_role("table").get_by_role("link", name=LONG, exact=True).click()
    assert wire_bytes(page) < NEXT_BYTES_MAX


@pytest.mark.parametrize(
    ("viewport", "javascript"),
    [
        pytest.param(PHONE, True, id="phone"),
        pytest.param(DESKTOP, False, id="desktop without scripts", marks=pytest.mark.long),
    ],
)
def test_an_endpoint_is_set_up_looked_after_and_removed(
    service: Service, open_page: Opener, viewport: Viewport, *, javascript: bool
) -> None:
    newcomer = sign_up(service)
    page = open_page(service.base, viewport=viewport, javascript=javascript)
    come_in(page, service, newcomer)
    page.goto(WEBHOOKS)

    page.get_by_label("URL").fill("https://10.0.0.1:5432/")
    page.get_by_label("Description (optional)").fill("Shop")
    for type_ in page.get_by_role("checkbox").all():
        type_.uncheck()
    page.get_by_role("button", name="Add endpoint").click()
    expect(page.get_by_role("alert")).to_contain_text("Tick at least one.")
    expect(page.get_by_label("Description (optional)")).to_have_value("Shop")
    check_accessibility(page)
    page.get_by_label("URL").fill(URL)
    page.get_by_role("checkbox", name="message.failed").check()
    page.get_by_role("button", name="Add endpoint").click()
    expect(page.locator("#secret")).to_have_text(re.compile(r"whsec_\S{44}"))
    expect(page.get_by_role("button", name="Copy")).to_be_visible(visible=javascript)
    check_accessibility(page)

    page.get_by_role("link", name="Try it out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(URL)
    expect(page.locator("#secret")).to_have_count(0)
    page.get_by_role("button", name="Send test").click()
    expect(page.get_by_role("status")).to_contain_text("The test is on its way")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_contain_text("The endpoint is paused.")
    page.get_by_role("button", name="Resume with what waited").click()
    expect(page.get_by_role("status")).to_contain_text("The endpoint is active.")
    page.get_by_text("Rotate secret").click()
    page.get_by_role("button", name="Make a new secret").click()
    expect(page.locator("#secret")).to_have_text(re.compile(r"whsec_\S{44}"))
    page.get_by_label("Description (optional)").fill("Till")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Till", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Yes, remove the endpoint")).to_be_hidden()
    page.get_by_text("Remove", exact=True).click()
    page.get_by_role("button", name="Yes, remove the endpoint").click()
    expect(page.get_by_text("You have no endpoint yet.")).to_be_visible()


def test_what_failed_is_sent_once_more(service: Service, person: Person, open_page: Opener) -> None:
    page = open_page(service.base, viewport=PHONE)
    come_in(page, service, person)
    page.goto(WEBHOOKS)
    page.get_by_role("table").get_by_role("link", name=LONG, exact=True).click()
    page.get_by_role("button", name="Send once more").click()
    expect(page.get_by_role("status")).to_contain_text("sent once more")
    page.get_by_role("link", name="Older").click()
    expect(page.get_by_role("heading", name="Older tries")).to_be_visible()
    page.get_by_role("button", name="Replay").first.click()
    expect(page.get_by_role("status")).to_contain_text("The event")
