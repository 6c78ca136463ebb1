"""Journeys of an uploaded file: checked, confirmed, sent, stopped and resumed, also without scripts."""

import io
import time
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Final
from uuid import UUID

import openpyxl
import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import (
    PHONE,
    Opener,
    bring_session,
    inspect,
    press,
    take_faults,
)
from tests.support.hand import WAYS, Hand, Way, ways
from tests.support.identity.people import Person, run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tests.support.uploads.workbooks import ods, ods_rows
from tumira.core.ids import UPLOAD, AccountId, UploadId, new_id, write_id
from tumira.html.form_body import FILE_BYTES_MAX
from tumira.identity import manage_accounts
from tumira.postgres.pool import Database
from tumira.uploads import checks as file_checks
from tumira.uploads.send import send_next_chunk

PAGE: Final = "/dashboard/upload"
MESSAGE: Final = "Dear {name}, your parcel is at the desk. Collect it by Friday."
# Progress that comes in moves what stands below it a little.
SHIFT_MAX: Final = 0.1
BEFORE_ALL: Final = UploadId(UUID(int=0))
DROP: Final = """([text, names]) => {
  const moved = new DataTransfer();
  names.forEach((name) => moved.items.add(new File([text], name, { type: "text/csv" })));
  const zone = document.getElementById("drop");
  for (const kind of ["dragenter", "dragover", "drop"]) {
    zone.dispatchEvent(new DragEvent(kind, { dataTransfer: moved, bubbles: true, cancelable: true }));
  }
}"""


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as service:
        yield service


@pytest.fixture
def person(service: Service) -> Person:
    person = sign_up(service)
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)
    service.run(manage_accounts.credit, row["id"], Decimal(100), note="for tests", actor="test")
    return person


def visit(page: Page, service: Service, person: Person) -> Page:
    bring_session(page, service.base, person.session)
    page.goto(PAGE)
    return page


def sheet(rows: int, bad: int = 0) -> bytes:
    lines = [f"+2637712{place:05},Person {place}" for place in range(rows)]
    return "\n".join(["to,name", *(f"{place:03},Short {place}" for place in range(bad)), *lines]).encode()


def check(page: Page, data: bytes, message: str = MESSAGE) -> None:
    file = {"name": "customers.csv", "mimeType": "text/csv", "buffer": data}
    page.get_by_label("CSV file").set_input_files(file)  # type: ignore[arg-type]
    page.get_by_label("Message").fill(message)
    press(page, "Check")


async def send_everything(database: Database) -> None:
    for _ in range(100):
        if await send_next_chunk(database, BEFORE_ALL) is None:
            return


def test_a_file_is_checked_sent_stopped_and_resumed(
    service: Service, person: Person, open_page: Opener
) -> None:
    page = visit(open_page(service.base, viewport=PHONE), service, person)
    check(page, b"", "Dear {nmae}")
    expect(page.get_by_role("alert")).to_contain_text("The file is empty")
    take_faults(page)
    inspect(page, "upload-refused", SHIFT_MAX)
    check(page, sheet(1200, bad=4))
    expect(page.locator("h1")).to_have_text("customers.csv")
    page.get_by_text("Rows that can be sent").click()
    expect(page.get_by_text("Dear Person 0, your parcel")).to_be_visible()
    press(page, "Send")
    expect(page.locator("h1")).to_have_text("Send 1,200 messages?")
    press(page, "Confirm")
    expect(page.get_by_text("0 of 1,200 messages sent, 0 done.")).to_be_visible()
    service.run(send_next_chunk, BEFORE_ALL)
    expect(page.get_by_text("1,000 of 1,200 messages sent, 0 done.")).to_be_visible()
    service.sql("UPDATE accounts SET suspended_at = now() WHERE phone = $1", person.phone)
    service.run(send_everything)
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    inspect(page, "upload-stopped", SHIFT_MAX)
    service.sql("UPDATE accounts SET suspended_at = NULL WHERE phone = $1", person.phone)
    press(page, "Resume")
    service.run(send_everything)
    expect(page.get_by_text("1,200 of 1,200 messages sent, 0 done.")).to_be_visible()
    page.get_by_text("2 batches").click()
    page.get_by_role("link", name="Rows 1,006 to 1,205").click()
    expect(page.locator("h1")).to_contain_text("Batch of")


@ways()
def test_a_message_is_corrected_without_choosing_the_file_again(
    service: Service, open_page: Opener, way: Way
) -> None:
    person = sign_up(service, f"+26377120000{WAYS.index(way)}")
    hand = Hand.open(open_page, service.base, way)
    page = visit(hand.page, service, person)
    hand.inspect("upload-empty")
    sample = hand.download(page.get_by_role("link", name="Download a sample file")).read_bytes()
    data = sample + b"0242000000,Landline,1.00\n"
    hand.choose_file(
        "Spreadsheet or CSV file", {"name": "customers.csv", "mimeType": "text/csv", "buffer": data}
    )
    hand.fill("Message", "Dear {nmae}, your balance is {amount}.")
    hand.button("Check")
    hand.expect_refused("no column {nmae}")
    expect(page.get_by_text("We still have customers.csv")).to_be_visible()
    hand.fill("Message", "Dear {name}, your balance is {amount}." + "." * 160)
    if way.javascript:
        expect(page.locator(".size")).to_contain_text("2 segments")
        expect(page.locator(".each")).to_contain_text("US$0.08 to Zimbabwe")
    hand.inspect(f"upload-kept-{way.javascript}", SHIFT_MAX)
    hand.fill("Message", "Dear {name}, your balance is {amount}.")
    hand.button("Check")
    expect(page.get_by_text("of 4 rows can be sent")).to_be_visible()
    expect(page.get_by_text("This is not a mobile number in Zimbabwe.")).to_be_visible()
    hand.inspect(f"upload-checked-{way.javascript}")
    hand.link("Edit message")
    hand.fill("Message", "Dear {name}, you owe {amount}.")
    hand.button("Check")
    # The account has no balance yet.
    expect(page.get_by_text("Your balance is US$0.12 too low.")).to_be_visible()
    hand.button("Send")
    expect(page.get_by_text("Dear Tendai Moyo, you owe 12.50.")).to_be_visible()
    hand.inspect(f"upload-confirm-{way.javascript}")


def workbook() -> bytes:
    """Return a workbook as an office keeps it: numbers as numbers, dates, amounts, and a second sheet."""
    book = openpyxl.Workbook()
    people = book.active
    people.title = "Owing"
    for row in (
        ("phone", "name", "owes", "due"),
        (263771200001, "Tendai Moyo", 12.5, date(2026, 11, 30)),
        (771200002, "Rudo Ncube", 1234, date(2026, 12, 1)),
        (263771000000, "Lost Digits", 1, date(2026, 12, 1)),
    ):
        people.append(row)
    for line in range(2, 5):
        people[f"C{line}"].number_format = '"US$"#,##0.00'
        people[f"D{line}"].number_format = "d mmmm yyyy"
    book.create_sheet("Paid").append(("+263771200009", "Paid Already"))
    written = io.BytesIO()
    book.save(written)
    return written.getvalue()


def document() -> bytes:
    """Return the first sheet of the same as LibreOffice saves it."""
    rows = [
        ("phone", "name", "owes", "due"),
        ("263771200001", "Tendai Moyo", "US$12.50", "30 November 2026"),
        ("771200002", "Rudo Ncube", "US$1,234.00", "1 December 2026"),
        ("2.63771E+11", "Lost Digits", "US$1.00", "1 December 2026"),
    ]
    return ods(ods_rows(*rows))


@ways()
def test_a_workbook_is_checked_after_its_sheet_was_chosen(
    service: Service, open_page: Opener, way: Way
) -> None:
    person = sign_up(service, f"+26377120001{WAYS.index(way)}")
    hand = Hand.open(open_page, service.base, way)
    page = visit(hand.page, service, person)
    message = "Dear {name}, you owe {owes} by {due}."
    for name, data in (("owing.xlsx", workbook()), ("owing.ods", document())):
        page.goto(PAGE)
        hand.choose_file("Spreadsheet or CSV file", {"name": name, "mimeType": "", "buffer": data})
        hand.fill("Message", message)
        hand.button("Check")
        if name == "owing.xlsx":
            hand.expect_refused("Several sheets of this workbook have rows.")
            expect(page.get_by_text("We still have owing.xlsx")).to_be_visible()
            hand.inspect(f"upload-sheets-{way.javascript}", SHIFT_MAX)
            hand.select("Sheet", "Owing")
            hand.button("Check")
            expect(page.locator("h1")).to_have_text("owing.xlsx, Owing")
        expect(page.get_by_text("of 3 rows can be sent")).to_be_visible()
        expect(page.get_by_text("The spreadsheet has changed this number.")).to_be_visible()
        hand.unfold("Rows that can be sent")
        said = "Dear Rudo Ncube, you owe US$1,234.00 by 1 December 2026."
        expect(page.get_by_text(said)).to_be_visible()
        hand.inspect(f"upload-workbook-{name}-{way.javascript}", SHIFT_MAX)


@pytest.mark.long
def test_the_whole_way_works_without_scripts(service: Service, person: Person, open_page: Opener) -> None:
    page = visit(open_page(service.base, javascript=False), service, person)
    check(page, sheet(12, bad=1))
    press(page, "Send")
    press(page, "Confirm")
    expect(page.get_by_text("0 of 12 messages sent, 0 done.")).to_be_visible()
    service.run(send_everything)
    # The page loads itself again.
    expect(page.get_by_text("12 of 12 messages sent, 0 done.")).to_be_visible()


@pytest.mark.long
def test_a_dropped_file_is_taken_and_several_or_one_too_large_are_not_even_sent(
    service: Service, person: Person, open_page: Opener
) -> None:
    page = visit(open_page(service.base), service, person)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.method))
    check(page, bytes(FILE_BYTES_MAX + 1))
    expect(page.locator("#file-fault")).to_have_text(
        "The file is larger than 5 MB. Split it and upload the parts."
    )
    assert "POST" not in asked
    page.evaluate(DROP, [sheet(3).decode(), ["a.csv", "b.csv"]])
    expect(page.locator("#file-fault")).to_have_text("Choose one file only.")
    page.evaluate(DROP, [sheet(3).decode(), ["dropped.csv"]])
    expect(page.locator("#file-fault")).to_have_text("")
    press(page, "Check")
    expect(page.locator("h1")).to_have_text("dropped.csv")


async def begin_check(database: Database, account_id: AccountId, upload_id: UploadId) -> None:
    async with database.transaction() as connection:
        await file_checks.begin(connection, account_id, upload_id, "customers.csv")


async def fail_check(database: Database, upload_id: UploadId, problem: str) -> None:
    async with database.transaction() as connection:
        await file_checks.fail(connection, upload_id, problem)


@pytest.mark.long
def test_the_page_of_a_file_that_is_being_checked_follows_it(
    service: Service, person: Person, open_page: Opener
) -> None:
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)
    upload_id = UploadId(new_id(time.time_ns() // 1_000_000))
    service.run(begin_check, row["id"], upload_id)
    # However long this test takes, the check is alive.
    where = "WHERE upload_id = $1"
    service.sql(f"UPDATE file_checks SET alive_at = now() + interval '1 hour' {where}", upload_id)
    page = visit(open_page(service.base, viewport=PHONE), service, person)

    page.goto(f"{PAGE}/{write_id(UPLOAD, upload_id)}")

    expect(page.get_by_role("status")).to_have_text("Waiting for other files to be checked.")
    service.sql(f"UPDATE file_checks SET rows = 10000, done = 3500 {where}", upload_id)
    expect(page.get_by_role("status")).to_have_text("3,500 of 10,000 rows checked.")
    expect(page.get_by_role("progressbar")).to_have_js_property("value", 3500)
    service.run(fail_check, upload_id, "This file takes too long to check. Split it into parts.")
    expect(page.get_by_role("alert")).to_contain_text("Split it into parts.")
    inspect(page, "upload-not-checked", SHIFT_MAX)


@pytest.mark.long
@pytest.mark.parametrize(
    "javascript", [True, pytest.param(False, marks=pytest.mark.long)], ids=["scripts", "no scripts"]
)
def test_a_refused_message_is_sent_for_review_and_the_file_is_kept(
    service: Service, person: Person, open_page: Opener, *, javascript: bool
) -> None:
    page = visit(open_page(service.base, viewport=PHONE, javascript=javascript), service, person)
    offer = "BIG SALE for {name} this weekend only! Get 50% off all shoes and bags. Shop now!"
    if javascript:
        file = {"name": "customers.csv", "mimeType": "text/csv", "buffer": sheet(3)}
        page.get_by_label("CSV file").set_input_files(file)  # type: ignore[arg-type]
        page.get_by_label("Message").fill(offer)
    else:
        check(page, sheet(3), offer)
        page.get_by_role("link", name="Ask for a review").click()
    expect(page.locator("#verdict mark").first).to_be_visible()
    page.locator("#verdict summary").click()
    page.get_by_label("Why do people need it?").fill("Members asked for it.")
    press(page, "Send for review")
    expect(page.get_by_role("status").first).to_contain_text("sent for review")
    expect(page.get_by_label("Message")).to_have_value(offer)
    expect(page.get_by_text("We still have customers.csv")).to_be_visible()
    inspect(page, "upload-review", SHIFT_MAX)
    # Enter in a field checks the file and asks for nothing else.
    page.get_by_label("Reference (optional)").press("Enter")
    expect(page.get_by_text("of 3 rows can be sent")).to_be_visible()
