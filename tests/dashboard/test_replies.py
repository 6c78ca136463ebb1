"""Replies, conversations and opt-outs in the dashboard."""

import csv
import html
import io
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import httpx
import pytest

from tests.dashboard.test_upload import Uploader, send_everything, sign_in
from tests.support.identity.customers import words
from tests.support.identity.people import alert, goes_to
from tests.support.processes.service import Service
from tests.support.uploads.workbooks import pack, text_rows, xlsx_parts
from tumira.core.ids import AccountId, MessageId, ReplyId, new_id
from tumira.postgres.pool import Database
from tumira.replies import opt_outs
from tumira.replies import store as replies
from tumira.replies.opt_outs import OptOutSource
from tumira.replies.store import Reply
from tumira.uploads.workbooks.write import write_xlsx

REPLIES: Final = "/dashboard/replies"
OPT_OUTS: Final = "/dashboard/opt-outs"
NUMBER: Final = "+263771200001"
TEXT: Final = "Your parcel 1042 is ready at our counter."
NASTY: Final = "<script>alert(1)</script> & {{ 7 * 7 }}"


@pytest.fixture
def customer(service: Service) -> Uploader:
    return sign_in(service)


async def _insert(database: Database, account_id: AccountId, number: str, texts: Sequence[str]) -> None:
    async with database.transaction() as connection:
        for place, text in enumerate(texts):
            at = datetime.now(UTC)
            await replies.insert(
                connection,
                Reply(
                    ReplyId(new_id(int(at.timestamp() * 1000) + place)),
                    account_id,
                    1,
                    number,
                    "33123",
                    text,
                    1,
                    1 if text else 2,
                    MessageId(new_id(0)),
                    "stop" if text == "STOP" else None,
                    at,
                ),
            )


def received(customer: Uploader, *texts: str, number: str = NUMBER) -> None:
    customer.service.run(_insert, customer.caller.id, number, texts)


async def _opt_out(database: Database, account_id: AccountId, *numbers: str) -> None:
    async with database.transaction() as connection:
        await opt_outs.add(connection, account_id, numbers, OptOutSource.REPLY)


def opted_out(customer: Uploader) -> Sequence[str]:
    rows = customer.service.sql("SELECT number FROM opt_outs WHERE account_id = $1", customer.caller.id)
    return sorted(row["number"] for row in rows)


def test_replies_are_shown_searched_and_downloaded(customer: Uploader) -> None:
    assert "No replies yet" in customer.page(REPLIES)
    received(customer, "Thanks", NASTY, "STOP", "")
    received(customer, "From another", number="+27821230001")
    page = customer.page(REPLIES)
    assert html.escape(NASTY, quote=False) in page.replace("&#34;", '"')
    assert "opted out" in words(page)
    assert words(page).index("From another") < words(page).index("Thanks")
    assert "(incomplete)" in page
    found = words(customer.page(REPLIES + "?text=THANK"))
    assert "Thanks" in found
    assert "From another" not in found
    assert customer.ask(REPLIES + "?number=12").status_code == 422
    assert "From another" in words(customer.page(REPLIES + "?number=%2B27821230001"))
    assert "Thanks" not in words(customer.page(REPLIES + "?number=%2B27821230001"))
    rows = list(csv.DictReader(io.StringIO(customer.ask(REPLIES + ".csv").text)))
    assert [row["text"] for row in rows][-1] == "Thanks"
    assert {row["from"] for row in rows} == {NUMBER, "+27821230001"}
    assert rows[0]["reply_id"].startswith("rpl_")


def test_a_long_list_has_pages(customer: Uploader) -> None:
    received(customer, *(f"reply {place}" for place in range(60)))
    path: str | None = REPLIES
    seen: list[str] = []
    while path is not None:
        page = customer.page(path)
        seen += re.findall(r"reply \d+", words(page))
        older = re.search(r'href="([^"]+)" rel="next"', page)
        path = None if older is None else html.unescape(older[1])
    assert seen == [f"reply {place}" for place in reversed(range(60))]


def test_nobody_sees_replies_and_opt_outs_of_another(service: Service, customer: Uploader) -> None:
    received(customer, "For me alone")
    service.run(_opt_out, customer.caller.id, NUMBER)
    other = sign_in(service)
    for path in (REPLIES, REPLIES + ".csv", f"{REPLIES}/{NUMBER[1:]}", OPT_OUTS, OPT_OUTS + ".csv"):
        page = other.ask(path).text
        assert "For me alone" not in page
        assert "1200001</a>" not in page
    assert goes_to(other.post(OPT_OUTS + "/remove", number=NUMBER)) == OPT_OUTS + "?removed=1"
    assert opted_out(customer) == [NUMBER]


def test_a_conversation_shows_both_sides_in_order(customer: Uploader) -> None:
    customer.service.send(customer.caller, to=NUMBER, body=TEXT)
    received(customer, "Thanks", NASTY)
    page = customer.page(f"{REPLIES}/{NUMBER[1:]}")
    said = words(page)
    assert said.index(TEXT) < said.index("Thanks")
    assert "<script>alert" not in page
    assert customer.ask(f"{REPLIES}/nobody").status_code == 404
    assert "nothing came back" in customer.page(f"{REPLIES}/263771209999")


def test_numbers_are_added_imported_searched_and_removed(customer: Uploader) -> None:
    assert "Nobody has opted out" in customer.page(OPT_OUTS)
    said = words(customer.post(OPT_OUTS, numbers=f"{NUMBER}, 0771200002\n12, {NUMBER}").text)
    assert "2 numbers were added." in said
    assert "not a mobile number that we send to" in said
    assert opted_out(customer) == [NUMBER, "+263771200002"]
    file = f"name,phone\nAnna,{NUMBER}\nBen,+27821230001\nCara,none\n"
    page = customer.request(
        "POST", OPT_OUTS + "/import", files={"file": ("p.csv", file.encode(), "text/csv")}
    )
    said = words(page.text)
    assert "1 number was added. 1 was already in the list." in said
    assert "none" in said
    assert opted_out(customer) == [NUMBER, "+263771200002", "+27821230001"]
    assert "imported" in words(customer.page(OPT_OUTS + "?number=%2B27821230001"))
    assert "not in the list" in customer.page(OPT_OUTS + "?number=%2B263771209999")
    rows = list(csv.DictReader(io.StringIO(customer.ask(OPT_OUTS + ".csv").text)))
    assert {(row["number"], row["source"]) for row in rows} == {
        (NUMBER, "page"),
        ("+263771200002", "page"),
        ("+27821230001", "import"),
    }
    assert goes_to(customer.post(OPT_OUTS + "/remove", number=NUMBER)) == OPT_OUTS + "?removed=1"
    assert NUMBER not in opted_out(customer)
    files = {"file": ("p.xlsx", write_xlsx([("name", "phone"), ("Dan", "+27821230004")]))}
    assert "1 number was added." in words(customer.request("POST", OPT_OUTS + "/import", files=files).text)
    what = customer.service.sql(
        "SELECT what FROM changes WHERE account_id = $1 ORDER BY id", customer.caller.id
    )
    added, removed = "numbers opted out", "opt-out removed"
    assert [row["what"] for row in what][-4:] == [added, added, removed, added]


def test_opt_outs_are_imported_from_the_sheet_that_was_chosen(customer: Uploader) -> None:
    data = pack(xlsx_parts({"Gone": text_rows(["phone"], [NUMBER]), "Here": text_rows(["0771200009"])}))

    def bring(**fields: str) -> httpx.Response:
        return customer.request("POST", OPT_OUTS + "/import", data=fields, files={"file": ("m.xlsx", data)})

    asked = bring()
    assert asked.status_code == 422
    assert "Several sheets" in alert(asked)
    assert '<option value="Gone">' in asked.text
    assert opted_out(customer) == []
    assert "1 number was added." in words(bring(sheet="Gone").text)
    assert opted_out(customer) == [NUMBER]


def test_a_form_without_numbers_and_a_file_that_is_none_are_refused(customer: Uploader) -> None:
    assert customer.post(OPT_OUTS, numbers=" ").status_code == 422
    for data in (b"", b"PK\x03\x04 a workbook"):
        page = customer.request("POST", OPT_OUTS + "/import", files={"file": ("p.csv", data, "text/csv")})
        assert page.status_code == 422
    assert opted_out(customer) == []


def test_the_composer_says_who_has_opted_out(customer: Uploader) -> None:
    customer.service.run(_opt_out, customer.caller.id, NUMBER)
    draft = {"recipients": f"{NUMBER} +263771200002", "message": TEXT, "reference": ""}
    page = customer.post("/dashboard/compose", **draft)
    assert "This recipient has opted out of your messages." in words(page.text)
    assert "1 recipient" in words(page.text)
    code = customer.post("/dashboard/compose", **{**draft, "message": "Your code is 493817."})
    assert "opted out" not in words(code.text)


def test_a_file_leaves_them_out_when_it_is_checked_and_when_it_is_sent(customer: Uploader) -> None:
    customer.service.run(_opt_out, customer.caller.id, NUMBER)
    rows = f"to,name\n{NUMBER},Anna\n+263771200002,Ben\n+263771200003,Cara\n"
    path = customer.checked(rows)
    said = words(customer.page(path))
    assert "2 of 3 rows can be sent" in said
    assert "This recipient has opted out of your messages." in said
    customer.confirm(path)
    customer.service.run(_opt_out, customer.caller.id, "+263771200003")
    customer.service.run(send_everything)
    found = customer.service.sql("SELECT recipient FROM messages WHERE account_id = $1", customer.caller.id)
    assert [row["recipient"] for row in found] == ["+263771200002"]
    assert "opted out of your messages since" in words(customer.page(path))
    assert customer.service.balance(customer.caller) == Decimal("99.96")
