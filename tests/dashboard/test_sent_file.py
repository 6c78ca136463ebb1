"""A file that was sent: one entry in the list, one page with its result, one download, sent again once."""

import re
from typing import Final
from uuid import UUID

import httpx
import pytest

from tests.dashboard.test_upload import Uploader, send_everything, sheet
from tests.support.identity.customers import Customer, link, open_session, words
from tests.support.identity.people import at_once, goes_to
from tests.support.maintenance import run_named
from tests.support.processes.service import Service
from tumira.core.ids import BATCH, UPLOAD, UploadId, read_id, write_id
from tumira.uploads.send import send_next_chunk

BATCHES: Final = "/dashboard/batches"
PAGE: Final = "/dashboard/upload"
BEFORE_ALL: Final = UploadId(UUID(int=0))
BAD: Final = "12,Nobody"


@pytest.fixture
def customer(service: Service) -> Uploader:
    caller = service.open_account("200")
    return Uploader(service, caller, open_session(service, caller))


def send_file(customer: Uploader, rows: int = 3) -> str:
    path = customer.checked(sheet(rows) + "\n" + BAD)
    assert goes_to(customer.confirm(path)) == path
    customer.service.run(send_everything)
    return path


def end(customer: Uploader, *failed: str) -> None:
    """End everything: these failed, all others were delivered."""
    customer.service.sql(
        "UPDATE messages SET status = CASE WHEN recipient = ANY($2) THEN 'undelivered' ELSE 'delivered' END"
        " WHERE account_id = $1",
        customer.caller.id,
        list(failed),
    )
    customer.service.sql(
        "UPDATE batches SET status = 'completed', pending = 0, completed_at = now() WHERE account_id = $1",
        customer.caller.id,
    )


def number(place: int) -> str:
    return f"+2637712{place:05}"


def test_a_file_is_one_entry_with_its_totals_also_across_pages(customer: Uploader) -> None:
    first = customer.send(body="Your code is 123456.")
    path = send_file(customer, 2100)
    last = customer.send(reference="after")
    end(customer, *(number(place) for place in range(6)))
    page = customer.page(BATCHES)
    assert re.findall(r'<a class="main" href="([^"]+)"', page) == [
        f"{BATCHES}/{last}",
        path,
        f"{BATCHES}/{first}",
    ]
    said = words(page)
    assert "p.csv" in said
    assert "2,094 delivered · 6 failed 2,100 US$84.00" in said
    assert "Your code is 123456." in said
    # Where the list is filtered, the file is found by any of its batches.
    assert path in customer.page(BATCHES, status="completed")
    # A search by number shows the batch, which leads to its file.
    found = re.search(rf"{BATCHES}/bat_\w+", customer.page(BATCHES, number=number(5)))
    assert found is not None
    assert link(customer.page(found[0]), "p.csv") == path
    assert "Resend to" not in customer.page(found[0])
    customer.service.sql("UPDATE batches SET body = NULL WHERE account_id = $1", customer.caller.id)
    assert "Your code is" not in customer.page(BATCHES)


def test_its_page_shows_one_result_and_its_failures(customer: Uploader) -> None:
    path = customer.checked(sheet(1200) + "\n" + BAD)
    customer.confirm(path)
    customer.service.run(send_next_chunk, BEFORE_ALL)
    page = customer.page(path)
    assert "1,000 of 1,200 messages sent, 0 done." in words(page)
    assert f'data-ask="{path}/progress"' in page
    assert '<meta http-equiv="refresh"' in page
    customer.service.run(send_everything)
    assert "1,200 of 1,200 messages sent, 0 done." in words(customer.ask(f"{path}/progress").text)
    end(customer, number(3), number(1100))
    fragment = customer.ask(f"{path}/progress").text
    assert 'data-part="ended"' in fragment
    assert "Resend to 2 failed" in words(fragment)
    page = customer.page(path)
    said = words(page)
    assert "1,200 of 1,200 messages sent, 1,200 done." in said
    assert "delivered 1,198" in said
    assert "Charged US$48.00 of US$48.00" in said
    assert "1 row of the file was not sent and cost nothing." in said
    assert re.findall(r'href="/dashboard/messages/msg_\w+">(\+\d+)</a>', page) == [number(3), number(1100)]
    assert "http-equiv" not in page
    delivered = customer.page(path, status="delivered")
    assert len(re.findall(r'href="/dashboard/messages/', delivered)) == 50
    older = link(delivered, "Next")
    assert older is not None
    assert number(51) in customer.page(older.partition("#")[0])
    assert customer.ask(path, status="lost").status_code == httpx.codes.NOT_FOUND


def test_one_download_has_every_row(customer: Uploader) -> None:
    path = customer.checked(sheet(1200) + "\n" + BAD)
    customer.confirm(path)
    customer.service.run(send_next_chunk, BEFORE_ALL)
    customer.service.sql("UPDATE messages SET status = 'failed' WHERE recipient = $1", number(7))
    rows = customer.table(f"{path}/messages.csv")
    assert [int(row["row"]) for row in rows] == [*range(2, 1203)]
    assert [row["number"] for row in rows] == [*(number(place) for place in range(1200)), "12"]
    assert {row["status"] for row in rows[:1000]} == {"queued", "failed"}
    assert rows[7]["status"] == "failed"
    assert {row["status"] for row in rows[1000:1200]} == {"waiting"}
    assert (rows[-1]["status"], rows[-1]["failure_reason"]) == ("not_sent", "INVALID_NUMBER")
    ids = [row["message_id"] for row in rows[:1000]]
    assert len(set(ids)) == 1000


@pytest.mark.long
def test_the_failed_rows_are_sent_again_once_with_their_own_texts(customer: Uploader) -> None:
    path = send_file(customer, 1200)
    end(customer, number(3), number(4), number(1100))
    customer.service.sql("UPDATE messages SET recipient = '+263•erased' WHERE recipient = $1", number(4))
    asked = [goes_to(one) for one in at_once([lambda: customer.post(f"{path}/resend")] * 3)]
    (question,) = set(asked)
    assert question is not None
    assert question.endswith("/send")
    said = words(customer.page(question))
    assert "Send 2 messages?" in said
    assert "US$0.08" in said
    assert "Dear Person 3, your parcel is here." in said
    again = question.removesuffix("/send")
    balance = customer.service.balance(customer.caller)
    for _ in range(2):
        customer.confirm(again, "0.0800")
    customer.service.run(send_everything)
    texts = customer.service.sql(
        "SELECT m.recipient, m.body FROM messages m WHERE m.account_id = $1 AND m.status = 'queued'"
        " ORDER BY m.id",
        customer.caller.id,
    )
    assert [tuple(row) for row in texts] == [
        (number(3), "Dear Person 3, your parcel is here."),
        (number(1100), "Dear Person 1100, your parcel is here."),
    ]
    assert f"{balance - customer.service.balance(customer.caller):.2f}" == "0.08"
    assert "p.csv (resend)" in words(customer.page(again))
    page = customer.page(path)
    assert link(page, "see the result") == again
    assert "Resend to" not in page
    assert goes_to(customer.post(f"{path}/resend")) == question
    assert goes_to(customer.ask(question)) == again
    rows = customer.table(f"{again}/messages.csv")
    assert [row["row"] for row in rows] == ["5", "1102"]


def test_a_file_is_not_sent_again_while_it_is_open_or_without_failures(customer: Uploader) -> None:
    path = send_file(customer)
    assert goes_to(customer.post(f"{path}/resend")) == path
    end(customer)
    assert "Resend to" not in customer.page(path)
    assert goes_to(customer.post(f"{path}/resend")) == path
    checked = customer.checked(sheet(3))
    assert goes_to(customer.post(f"{checked}/resend")) == checked


def test_files_of_others_look_unknown(customer: Uploader, service: Service) -> None:
    path = send_file(customer)
    end(customer, number(1))
    caller = service.open_account()
    stranger = Customer(service, caller, open_session(service, caller))
    unknown = f"{PAGE}/{write_id(UPLOAD, UUID(int=1))}"
    for one in (path, unknown, f"{PAGE}/upl_x"):
        assert stranger.ask(f"{one}/messages.csv").status_code == httpx.codes.NOT_FOUND
        assert stranger.post(f"{one}/resend").status_code == httpx.codes.NOT_FOUND


@pytest.mark.long
def test_a_file_stays_one_entry_when_its_texts_are_erased_and_some_of_its_batches_are_gone(
    customer: Uploader,
) -> None:
    path = send_file(customer, 1200)
    end(customer, number(3))
    customer.service.sql("UPDATE uploads SET created_at = now() - interval '8 days'")
    customer.service.run(run_named, "forget old uploads")
    assert f'<a class="main" href="{path}"' in customer.page(BATCHES)
    said = words(customer.page(path))
    assert "1,200 of 1,200 messages sent, 1,200 done." in said
    assert "The text was erased. Texts of files are kept for 7 days." in said
    assert "Resend to" not in said
    assert goes_to(customer.post(f"{path}/resend")) == path
    rows = customer.table(f"{path}/messages.csv")
    assert [int(row["row"]) for row in rows] == [*range(2, 1202)]
    assert [row["number"] for row in rows] == [number(place) for place in range(1200)]
    assert customer.table(f"{path}/bad-rows.csv") == []
    (first, _) = re.findall(rf"{BATCHES}/(bat_\w+)", customer.page(path))
    for table, column in (("messages", "batch_id"), ("batches", "id")):
        customer.service.sql(f"DELETE FROM {table} WHERE {column} = $1", read_id(BATCH, first))
    assert "200 of 1,200 messages sent, 200 done." in words(customer.page(path))
    assert "200 delivered 1,200 US$8.00" in words(customer.page(BATCHES))
    assert len(customer.table(f"{path}/messages.csv")) == 200
