"""A message and a file are scheduled, changed and cancelled by mouse, by keyboard and without scripts."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from playwright.sync_api import FilePayload, expect

from tests.dashboard.test_scheduled import id_of, sign_in
from tests.support.browser import Opener, bring_session
from tests.support.hand import Hand, Way, ways
from tests.support.identity.customers import ONE
from tests.support.postgres.databases import clone
from tests.support.processes.service import Service, run_web
from tests.support.schedules.sends import make_due, start_due
from tumira.core.days import local_time

ORDER: Final = "Your order 1042 has been shipped and will arrive on Friday."
FILE: Final = FilePayload(
    name="people.csv", mimeType="text/csv", buffer=f"to,name\n{ONE},Tariro\n+27821230001,Rudo\n".encode()
)


@pytest.fixture(scope="module")
def dashboard(server_url: str) -> Iterator[Service]:
    with clone(server_url) as url, run_web(url) as running:
        yield running


def choose_time(hand: Hand, days: int, clock: str) -> None:
    day = local_time(datetime.now(UTC)) + timedelta(days=days)
    hand.fill("Day", f"{day:%Y-%m-%d}")
    hand.fill("Time", clock)


@ways("phone by mouse")
def test_a_message_is_scheduled_changed_and_begins(dashboard: Service, open_page: Opener, way: Way) -> None:
    customer = sign_in(dashboard)
    hand = Hand.open(open_page, dashboard.base, way)
    page = hand.page
    bring_session(page, dashboard.base, customer.token)
    page.goto("/dashboard/compose")
    hand.fill("Recipients", ONE)
    hand.fill("Message", ORDER)
    hand.unfold("Send later")
    # Too soon: said under the field, with a time that does.
    choose_time(hand, 0, "00:00")
    hand.button("Send")
    expect(page.locator("#clock-fault")).to_contain_text("at least 5 minutes from now")
    choose_time(hand, 2, "08:30")
    hand.button("Send")
    expect(page.locator("h1")).to_have_text("Send this message later?")
    hand.inspect("schedule-confirm")
    hand.button("Schedule")
    expect(page.get_by_role("status").first).to_contain_text("The money is held until then")
    expect(hand.main).to_contain_text("08:30, Harare time (UTC+02:00)")
    hand.inspect("schedule")
    hand.link("Edit text and recipients")
    expect(page.locator("h1")).to_have_text("Edit scheduled message")
    hand.fill("Recipients", f"{ONE} +27821230001")
    hand.button("Send")
    hand.button("Schedule")
    expect(hand.main).to_contain_text("US$0.06 comes back to your balance")
    choose_time(hand, 3, "09:15")
    hand.button("Save time")
    expect(page.locator("h1")).to_contain_text("09:15")
    dashboard.run(make_due, id_of(page.url.partition("?")[0]))
    assert dashboard.run(start_due) == 1
    page.goto("/dashboard/scheduled")
    expect(hand.main).to_contain_text("Nothing is scheduled")
    hand.inspect("scheduled")
    hand.link(ORDER)
    hand.link("See the batch")
    expect(page).to_have_url(re.compile(r"/dashboard/batches/bat_"))
    assert len(customer.batches()) == 1


@ways()
def test_a_file_is_scheduled_and_cancelled(dashboard: Service, open_page: Opener, way: Way) -> None:
    customer = sign_in(dashboard)
    hand = Hand.open(open_page, dashboard.base, way)
    page = hand.page
    bring_session(page, dashboard.base, customer.token)
    page.goto("/dashboard/upload")
    hand.choose_file("Spreadsheet or CSV file", FILE)
    hand.fill("Message", "Dear {name}, your parcel is here.")
    hand.button("Check")
    hand.button("Send")
    hand.unfold("Send later")
    choose_time(hand, 2, "08:30")
    hand.inspect("upload-later")
    hand.button("Schedule")
    expect(hand.main).to_contain_text("people.csv")
    expect(hand.main).to_contain_text("US$0.06 comes back to your balance")
    # Another text, without the file.
    hand.button("Edit text or file")
    expect(page.locator("h1")).to_have_text("Edit scheduled file")
    hand.inspect("upload-edit")
    hand.fill("Message", "Dear {name}, your parcel waits at our counter until Friday.")
    hand.button("Check")
    expect(hand.main).to_contain_text("This changes your send of")
    hand.inspect("upload-changed")
    hand.button("Continue")
    expect(page.locator("h1")).to_contain_text("Change the send of")
    hand.inspect("upload-change-confirm")
    choose_time(hand, 3, "09:45")
    hand.button("Save changes")
    expect(page.locator("h1")).to_contain_text("09:45")
    expect(hand.main).to_contain_text("waits at our counter until Friday")
    hand.button("Cancel this send")
    expect(page.get_by_role("status").first).to_contain_text("The money is back in your balance")
    page.goto("/dashboard/ledger")
    expect(hand.main).to_contain_text("Released from a scheduled send")
    assert not customer.batches()
