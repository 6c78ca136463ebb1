"""An uploaded file: faults by row, confirmation, and each message sent once."""

import csv
import html
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

import httpx
import pytest

from tests.support.identity.customers import Customer, link, open_session, words
from tests.support.identity.people import alert, count, goes_to
from tests.support.postgres.databases import clone
from tests.support.processes.service import Service, run_web
from tests.support.uploads.workbooks import pack, text_rows, xlsx, xlsx_parts
from tumira.accounts.passcode_limits import PasscodeLimits
from tumira.audit_log import OPERATOR
from tumira.content.review import add_template
from tumira.content.templates import TemplateVerdict
from tumira.core.ids import UPLOAD, UploadId, write_id
from tumira.html.form_body import FILE_BYTES_MAX
from tumira.identity.manage_accounts import set_passcode_limits
from tumira.postgres.pool import Database
from tumira.uploads.send import send_next_chunk

PAGE: Final = "/dashboard/upload"
MESSAGE: Final = "Dear {name}, your parcel is here."
BEFORE_ALL: Final = UploadId(UUID(int=0))
ADVERT: Final = "BIG SALE this weekend only! Get 50% off all shoes and bags. Shop now and save big!"
HOSTILE: Final = "<script>alert(1)</script>\"'&{{ 7 * 7 }}"

FACES: Final = "\U0001f600" * 20

_AGREED: Final = re.compile(r'name="agreed" value="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Uploader(Customer):
    """A customer who sends files."""

    def check(
        self, data: bytes | str, message: str = MESSAGE, name: str = "p.csv", **fields: str
    ) -> httpx.Response:
        content = data.encode() if isinstance(data, str) else data
        return self.request(
            "POST", PAGE, data={"message": message, **fields}, files={"file": (name, content, "text/csv")}
        )

    def checked(self, data: bytes | str, message: str = MESSAGE, **fields: str) -> str:
        path = goes_to(self.check(data, message, **fields))
        assert path is not None
        return path

    def confirm(self, path: str, agreed: str | None = None) -> httpx.Response:
        if agreed is None:
            found = _AGREED.search(self.ask(f"{path}/send").text)
            assert found is not None
            agreed = found[1]
        return self.post(f"{path}/send", agreed=agreed)

    def messages(self) -> int:
        return count(self.service, "SELECT count(*) FROM messages WHERE account_id = $1", self.caller.id)

    def set(self, change: str) -> None:
        self.service.sql(f"UPDATE accounts SET {change} WHERE id = $1", self.caller.id)


def sign_in(service: Service) -> Uploader:
    caller = service.open_account("100")
    return Uploader(service, caller, open_session(service, caller))


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with clone(server_url) as url, run_web(url, changes=["wait_for_checks"]) as running:
        yield running


@pytest.fixture
def customer(service: Service) -> Uploader:
    return sign_in(service)


def sheet(rows: int, header: str = "to,name") -> str:
    return "\n".join([header, *(f"+2637712{place:05},Person {place}" for place in range(rows))])


async def send_everything(database: Database) -> None:
    for _ in range(100):
        if await send_next_chunk(database, BEFORE_ALL) is None:
            return


def test_a_file_is_checked_row_by_row_and_priced_by_country(customer: Uploader) -> None:
    rows = [
        "to,name",
        "+263771200001,Anna",
        "0771200002,Ben",
        "12,Cara",
        "+27821230001,Dan",
        "+15551234567,Eve",
    ]
    path = customer.checked("\n".join([*rows, "+263771200001,Anna"]), country="ZW", reference="spring")
    page = customer.page(path)
    said = words(page)
    assert "3 of 6 rows can be sent" in said
    assert "Zimbabwe 2 2 US$0.08" in said
    assert "South Africa 1 1 US$0.02" in said
    assert "US$0.10 in total" in said
    for line, reason in ((4, "too short"), (6, "not send to this country"), (7, "same text to this number")):
        assert re.search(rf"Row\s+{line} .*?{reason}", said)
    assert "Dear Ben, your parcel is here." in said
    assert '<button aria-describedby="total">Send</button>' in page
    assert customer.messages() == 0


@pytest.mark.long
def test_what_was_confirmed_is_sent_and_its_progress_shown(customer: Uploader) -> None:
    path = customer.checked(sheet(1200), reference="spring")
    asked = customer.page(f"{path}/send")
    assert "Send 1,200 messages?" in words(asked)
    assert "US$48.00 in total" in words(asked)
    assert "Dear Person 0, your parcel is here." in words(asked)

    assert goes_to(customer.confirm(path)) == path

    waiting = customer.page(path)
    assert "0 of 1,200 messages sent, 0 done." in words(waiting)
    assert 'http-equiv="refresh"' in waiting
    customer.service.run(send_next_chunk, BEFORE_ALL)
    fragment = customer.ask(f"{path}/progress")
    assert "1,000 of 1,200 messages sent, 0 done." in words(fragment.text)
    assert 'data-part="open"' in fragment.text
    customer.service.run(send_everything)
    done = customer.page(path)
    assert "1,200 of 1,200 messages sent, 0 done." in words(done)
    links = re.findall(r"/dashboard/batches/(bat_\w+)", done)
    assert len(links) == 2
    for one in links:
        assert "spring" in customer.page(f"/dashboard/batches/{one}")
    assert customer.messages() == 1200
    assert "p.csv" in customer.page(PAGE)
    # Who presses again, or goes back to the question, sees what was sent.
    assert goes_to(customer.confirm(path, "48.0000")) == path
    assert goes_to(customer.ask(f"{path}/send")) == path


def test_another_amount_than_it_costs_sends_nothing_and_is_shown_again(customer: Uploader) -> None:
    path = customer.checked(sheet(3))
    for agreed in ("", "0.1", "NaN", "-1", "Infinity", "1e400", "x" * 500):
        answer = customer.confirm(path, agreed)
        assert answer.status_code == httpx.codes.CONFLICT, agreed
        assert "The prices have changed" in alert(answer)
        assert 'name="agreed" value="0.1200"' in answer.text
    customer.service.run(send_everything)
    assert customer.messages() == 0


def test_a_file_that_costs_too_much_is_refused_whole_and_says_what_is_missing(customer: Uploader) -> None:
    path = customer.checked(sheet(2501))
    assert "Your balance is US$0.04 too low." in words(customer.page(path))
    answer = customer.confirm(path)
    assert answer.status_code == httpx.codes.PAYMENT_REQUIRED
    assert "Nothing was sent. You need US$0.04 more" in alert(answer)
    customer.set("daily_limit = 1, balance = balance + 100")
    assert "your limit is US$1.00 per day" in alert(customer.confirm(path))
    customer.set("daily_limit = NULL, call_limit = 2")
    assert "your limit of US$2.00 per send" in alert(customer.confirm(path))
    customer.set("suspended_at = now()")
    assert "suspended" in alert(customer.confirm(path))
    customer.service.run(send_everything)
    assert customer.messages() == 0


def test_a_file_that_was_stopped_says_why_and_is_resumed_with_one_press(customer: Uploader) -> None:
    path = customer.checked(sheet(1500))
    customer.confirm(path)
    customer.service.run(send_next_chunk, BEFORE_ALL)
    customer.set("suspended_at = now()")
    customer.service.run(send_everything)
    page = customer.page(path)
    assert "Your account was suspended." in words(page)
    assert "<button>Resume</button>" in page
    customer.set("suspended_at = NULL")
    agreed = _AGREED.search(page)
    assert agreed is not None
    assert goes_to(customer.confirm(path, agreed[1])) == path
    customer.service.run(send_everything)
    assert "1,500 of 1,500" in words(customer.page(path))
    assert customer.messages() == 1500


def test_a_refused_message_is_sent_for_review_from_the_form_which_keeps_the_file(customer: Uploader) -> None:
    offer = f"{ADVERT} Dear {{name}}, see you there."
    refused = customer.checked(sheet(2), message=offer)
    form = link(customer.page(refused), "Ask for a review")
    assert form is not None
    assert 'formaction="/dashboard/upload/review"' in customer.page(form.partition("#")[0])
    fields = {"message": offer, "note": "They asked for it.", "country": "ZW", "reference": "spring"}
    files = {"file": ("p.csv", sheet(2).encode(), "text/csv")}
    asked = customer.request("POST", f"{PAGE}/review", data=fields, files=files)
    assert asked.status_code == httpx.codes.OK
    said = words(asked.text)
    assert "Your text was sent for review. You will find the answer in Settings, under Refused texts." in said
    assert "You sent this text for review on" in said
    assert "We still have p.csv ." in said
    assert "Send for review" not in said
    (row,) = customer.service.sql(
        "SELECT text, review_note FROM content_refusals WHERE account_id = $1", customer.caller.id
    )
    assert tuple(row) == (offer, "They asked for it.")
    customer.service.run(
        add_template, offer, customer.caller.id, TemplateVerdict.ALLOW, note="Fine.", actor=OPERATOR
    )
    assert "2 of 2 rows can be sent" in words(customer.page(customer.checked(sheet(2), message=offer)))
    again = customer.request("POST", f"{PAGE}/review", data=fields, files=files)
    assert "This text can be sent as it is. No review is needed." in words(again.text)
    assert goes_to(customer.ask(f"{PAGE}/review")) == PAGE
    # A row that is refused for its own words has no text that could be reviewed here.
    own = customer.page(customer.checked(f'to,text\n+263771200001,"{ADVERT}"', message="{text}"))
    assert "refused as marketing" in words(own)
    assert "Ask for a review" not in words(own)


def test_what_was_filled_in_wrongly_is_said_beside_its_field(customer: Uploader) -> None:
    for data, fields, field, said in (
        (sheet(10_001), {}, "file", "The file has 10,001 rows; the limit is 10,000"),
        ("", {}, "file", "The file is empty"),
        (sheet(2), {"message": "\u200b\xa0"}, "message", "Enter a message."),
        (sheet(2), {"message": "Dear {nmae}"}, "message", "The file has no column {nmae}"),
        (sheet(2), {"country": "XX"}, "country", "Choose a country from the list."),
        (sheet(2), {"reference": "x" * 65}, "reference", "Enter at most 64 characters."),
        ("", {"name": ""}, "file", "Choose a file."),
    ):
        filled = {"message": MESSAGE, "reference": "kept", **fields}
        answer = customer.check(data, **filled)
        assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY, said
        assert said in alert(answer)
        assert said in html.unescape(answer.text.partition(f'id="{field}-fault">')[2].partition("</p>")[0])
        # What was filled in is still there, and so is the file, unless that was wrong.
        assert html.escape(filled["message"]) in answer.text
        assert f'value="{filled["reference"]}"' in answer.text
        assert ("We still have" in answer.text) == (field != "file")
    uploads = "SELECT count(*) FROM uploads WHERE account_id = $1"
    assert count(customer.service, uploads, customer.caller.id) == 0


def kept_in(page: str) -> str:
    found = re.search(r'<input type="hidden" name="kept" value="(fil_[0-9a-z]+)">', page)
    assert found is not None
    return found[1]


def test_a_file_is_kept_over_corrections_of_its_message(customer: Uploader) -> None:
    refused = customer.check(sheet(2), "Dear {nmae}", name="people.csv", reference="spring", country="ZA")
    assert "We still have people.csv" in words(refused.text)
    assert 'required aria-describedby="file-hint' not in refused.text
    kept = kept_in(refused.text)
    # The browser sends an empty file if none was chosen again.
    path = goes_to(customer.check("", "Dear {name}, hello.", name="", kept=kept, country="ZW"))
    assert path is not None
    page = customer.page(path)
    assert "2 of 2 rows can be sent" in words(page)
    assert "people.csv" in page
    # The message is corrected after the check, too.
    (again,) = re.findall(r'href="(/dashboard/upload\?file=fil_[0-9a-z]+)"', page)
    form = customer.page(again)
    assert "Dear {name}, hello.</textarea>" in form
    assert '<option value="ZW" selected>' in form
    assert kept_in(form) == kept
    assert goes_to(customer.check("", "Hello {name}.", name="", kept=kept)) not in {None, path}
    # Another file replaces it, and nobody else has it.
    other = sign_in(customer.service)
    assert other.ask(again).status_code == httpx.codes.NOT_FOUND
    assert "We no longer have this file." in alert(other.check("", name="", kept=kept))
    assert customer.checked(sheet(3)) != path
    assert "We no longer have this file." in alert(customer.check("", name="", kept=kept))
    customer.service.sql("UPDATE kept_files SET kept_at = now() - interval '25 hours'")
    assert "Edit message" not in customer.page(path)


def test_the_sample_file_can_be_sent(customer: Uploader) -> None:
    answer = customer.ask(PAGE + "/sample.csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="sample.csv"'
    form = customer.page(PAGE)
    assert 'href="/dashboard/upload/sample.csv"' in form
    assert '<option value="ZW" selected>' in form
    assert "Price of one message: US$0.04 to Zimbabwe" in words(form)
    message = "Dear {name}, your balance is {amount}."
    path = customer.checked(answer.content, message, country="ZW")
    assert "3 of 3 rows can be sent" in words(customer.page(path))


@pytest.mark.long
def test_the_sample_workbook_can_be_sent(customer: Uploader) -> None:
    answer = customer.ask(PAGE + "/sample.xlsx")
    assert answer.headers["content-disposition"] == 'attachment; filename="sample.xlsx"'
    assert 'href="/dashboard/upload/sample.xlsx"' in customer.page(PAGE)
    path = customer.checked(answer.content, "Dear {name}, your balance is {amount}.", country="ZW")
    page = words(customer.page(path))
    assert "3 of 3 rows can be sent" in page
    assert "Dear Tendai Moyo, your balance is 12.50." in page


def test_a_sheet_of_a_workbook_is_chosen_and_the_workbook_kept(customer: Uploader) -> None:
    def rows(name: str) -> str:
        return text_rows(("to", "name"), ("0771200001", name), ("12", "Short"))

    data = pack(xlsx_parts({"May": rows("Anna"), "Jun & Jul": rows("Ben"), "Notes": "<row/>"}))
    asked = customer.check(data, name="people.xlsx", country="ZW")
    assert asked.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert "Several sheets of this workbook have rows." in alert(asked)
    assert "We still have people.xlsx" in words(asked.text)
    assert re.findall(r'<option value="([^"]*)"[^>]*>', asked.text)[:2] == ["May", "Jun &amp; Jul"]
    kept = kept_in(asked.text)
    # A wrong message beside the choice: the sheet stays chosen.
    refused = customer.check("", "Dear {nmae}", name="", kept=kept, sheet="Jun & Jul")
    assert "no column {nmae}" in alert(refused)
    assert '<option value="Jun &amp; Jul" selected>' in refused.text
    path = goes_to(customer.check("", name="", kept=kept, sheet="Jun & Jul", country="ZW"))
    assert path is not None
    page = customer.page(path)
    assert "people.xlsx, Jun &amp; Jul" in page
    assert "1 of 2 rows can be sent" in words(page)
    assert "Dear Ben, your parcel is here." in words(page)
    assert re.search(r"Row\s+3 .*?too short", words(page))
    form = customer.page(link(page, "Edit message") or "")
    assert '<option value="Jun &amp; Jul" selected>' in form
    # A sheet that is not there is asked for again, and a new file has its own sheets.
    assert "Several sheets" in alert(customer.check("", name="", kept=kept, sheet="April"))
    assert goes_to(customer.check(xlsx(rows("Cara")), name="c.xlsx", sheet="April")) is not None


@pytest.mark.long
def test_hidden_rows_are_sent_and_said_to_be_hidden(customer: Uploader) -> None:
    hidden = text_rows(("+263771200002", "Ben"), ("+263771200003", "Cara")).replace(
        "<row>", '<row hidden="1">'
    )
    rows = text_rows(("to", "name"), ("+263771200001", "Anna")) + hidden
    page = words(customer.page(customer.checked(xlsx(rows))))
    assert "3 of 3 rows can be sent" in page
    assert "2 rows are hidden in your sheet" in page


@pytest.mark.long
def test_a_cell_that_shows_an_error_is_not_sent(customer: Uploader) -> None:
    row = '<row><c><v>263771200001</v></c><c t="e"><f>1/0</f><v>#DIV/0!</v></c></row>'
    page = words(customer.page(customer.checked(xlsx(text_rows(("to", "name")) + row))))
    assert "0 of 1 row can be sent" in page
    assert "“name” shows #DIV/0!. Correct this cell in your spreadsheet and save the file again." in page


@pytest.mark.parametrize("declared", [True, False])
def test_a_file_of_fifty_megabytes_is_refused_in_words(customer: Uploader, *, declared: bool) -> None:
    piece = b"+263771200001,Anna\n" * 55_189
    headers = {"Content-Type": f"{FORM}; boundary=x"}
    if declared:
        headers["Content-Length"] = str(len(FILE_HEAD) + 50 * len(piece))
    answer = customer.request("POST", PAGE, headers, content=iter([FILE_HEAD, *[piece] * 50]))
    assert answer.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE
    assert "larger than 5 MB" in alert(answer)


def test_a_file_of_the_largest_size_is_looked_at_and_no_larger_one(customer: Uploader) -> None:
    assert "not a CSV file" in alert(customer.check(bytes(FILE_BYTES_MAX)))
    assert customer.check(bytes(FILE_BYTES_MAX + 1)).status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE


FORM: Final = "multipart/form-data"
FIELD_HEAD: Final = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n'
FILE_HEAD: Final = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
END: Final = b"--x--\r\n"


def test_what_is_no_form_with_a_file_is_refused_in_words(customer: Uploader) -> None:
    for kind, body in (
        (FORM, b"x"),
        ("application/x-www-form-urlencoded", b"message=a"),
        (f"{FORM}; boundary=x", b""),
        (f"{FORM}; boundary=x", FIELD_HEAD + b"b"),
        (f"{FORM}; boundary=x", b"hello"),
        (f"{FORM}; boundary={'x' * 300}", b"hello"),
        (f"{FORM}; boundary=x", b"--x\r\nA: " + b"a" * 9000 + b"\r\n\r\n\r\n" + END),
        (f"{FORM}; boundary=x", (FIELD_HEAD + b"b\r\n") * 200 + END),
        (f"{FORM}; boundary=x", (FILE_HEAD + b"b\r\n") * 2 + END),
    ):
        answer = customer.request("POST", PAGE, {"Content-Type": kind}, content=body)
        assert answer.status_code in {httpx.codes.BAD_REQUEST, httpx.codes.UNSUPPORTED_MEDIA_TYPE}, body
        assert "<h1" in answer.text


def download(customer: Uploader, path: str) -> Sequence[Sequence[str]]:
    answer = customer.ask(f"{path}/bad-rows.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"].startswith('attachment; filename="bad-rows-upl_')
    return list(csv.reader(io.StringIO(answer.content.decode("utf-8-sig"))))


def test_bad_rows_are_paged_and_downloaded_with_reasons_and_suggestions(customer: Uploader) -> None:
    rows = [f"077120{place:04},Person {place}" for place in range(250)]
    path = customer.checked("\n".join(["to,name", "+263771200001,Anna", *rows]))
    first, second, last = (customer.page(path + query) for query in ("", "?after=102", "?after=202"))
    assert "250 rows are left out" in words(first)
    shown = [
        re.findall(r"Row&nbsp;</span>([0-9,]+)</th>\n<td data-name=\"Content", page)
        for page in (first, second, last)
    ]
    assert [(one[0], one[-1], len(one)) for one in shown] == [
        ("3", "102", 100),
        ("103", "202", 100),
        ("203", "252", 50),
    ]
    assert f'href="{path}?after=102#bad"' in first
    assert 'rel="next"' not in last
    table = download(customer, path)
    assert table[0] == ["to", "name", "row", "code", "reason", "suggestion"]
    assert len(table) == 251
    assert table[1][:4] == ["0771200000", "Person 0", "3", "INVALID_NUMBER"]
    assert "+263771200000" in table[1][5]


def test_a_corrected_download_can_be_sent(customer: Uploader) -> None:
    message = "Dear {column2}, it is here."
    path = customer.checked("0771200001;Anna\n+263771200002;Ben", message)
    (header, row) = download(customer, path)
    assert header[:2] == ["to", "column2"]
    again = customer.checked(f"{','.join(header)}\n{row[5].split()[0]},{row[1]}", message)
    assert "1 of 1 row can be sent" in words(customer.page(again))


def test_each_row_is_judged_and_counted_with_its_own_text(customer: Uploader) -> None:
    text = f'to,text\n+263771200001,"{ADVERT}"\n+263771200002,Your parcel is here.'
    page = words(customer.page(customer.checked(text, "{text}")))
    assert "1 of 2 rows can be sent" in page
    assert "1 refused as marketing" in page
    text = "\n".join(["to,face", *(f"+26377120{place:04},{FACES}" for place in range(3))])
    path = customer.checked(text, "Dear customer, your parcel is here: {face}{face}")
    assert "Zimbabwe 3 6 US$0.24" in words(customer.page(path))


def test_a_file_of_which_nothing_can_be_sent_offers_no_button(customer: Uploader) -> None:
    path = customer.checked("to\n12\n13", "Your parcel is here.")
    page = customer.page(path)
    assert "None of the rows can be sent." in words(page)
    assert "Send</button>" not in page
    assert goes_to(customer.ask(f"{path}/send")) == path
    assert customer.confirm(path, "0").status_code == httpx.codes.CONFLICT


def test_files_of_others_and_ids_that_are_none_are_not_found(customer: Uploader, service: Service) -> None:
    path = customer.checked(sheet(3))
    caller = service.open_account()
    stranger = Customer(service, caller, open_session(service, caller))
    unknown = f"{PAGE}/{write_id(UPLOAD, UUID(int=1))}"
    for one in (path, unknown, f"{PAGE}/upl_x", f"{PAGE}/bat_{path[-26:]}"):
        asked = [stranger.ask(one + below) for below in ("", "/send", "/progress", "/bad-rows.csv")]
        for answer in (*asked, stranger.post(f"{one}/send", agreed="0.12")):
            assert answer.status_code == httpx.codes.NOT_FOUND
    assert customer.ask(path).status_code == httpx.codes.OK


def test_what_a_file_says_is_only_ever_text(customer: Uploader) -> None:
    cell = HOSTILE.replace('"', '""')
    data = f'to,<b>,text\n12,,"{cell}"\n+263771200001,,"{cell}"\n'
    path = customer.checked(data, "Your parcel is here. {text}", name="<script>.csv")
    assert HOSTILE in html.unescape(customer.page(path))
    for page in (customer.page(PAGE), customer.page(path), customer.page(f"{path}/send")):
        assert "<script>" not in page
        assert "<b>" not in page


def test_rows_that_are_no_longer_allowed_are_shown_before_and_after_the_send(customer: Uploader) -> None:
    def block(text: str) -> None:
        service = customer.service
        service.run(add_template, text, customer.caller.id, TemplateVerdict.BLOCK, note="", actor=OPERATOR)

    path = customer.checked(sheet(4))
    block("Dear Person 1, your parcel is here.")
    asked = customer.confirm(path)
    assert asked.status_code == httpx.codes.CONFLICT
    assert "1 row is no longer allowed and left out." in alert(asked)
    assert "Send 3 messages?" in words(asked.text)
    assert "Row 3 +263771200001" in words(asked.text)
    assert goes_to(customer.confirm(path)) == path
    block("Dear Person 2, your parcel is here.")
    customer.service.run(send_everything)
    done = customer.page(path)
    assert "2 of 2 messages sent, 0 done." in words(done)
    assert "2 rows were left out. They are not sent and cost nothing." in words(done)
    assert "Row 4 +263771200002" in words(done)


def test_a_stopped_passcode_of_a_small_file_is_left_out_and_shown(customer: Uploader) -> None:
    service, caller = customer.service, customer.caller
    limits = PasscodeLimits(is_on=True, number=1, number_day=1, range=9)
    service.run(set_passcode_limits, caller.id, lambda _: limits)
    assert service.send(caller, to="+263771200001").json()["rejected"] == []
    before = service.balance(caller)
    rows = "".join(f"+26377120000{place},49381{place}\n" for place in range(3))
    path = customer.checked(f"to,code\n{rows}", "Your code is {code}.")
    assert goes_to(customer.confirm(path)) == path
    service.run(send_everything)
    page = words(customer.page(path))
    assert "2 of 2 messages sent" in page
    assert "1 row was left out. It is not sent and costs nothing." in page
    assert "Row 3 +263771200001 Too many passcodes went to this number" in page
    assert service.balance(caller) == before - 2 * Decimal("0.04")
    (row,) = service.sql(
        "SELECT expires_at - created_at AS life FROM batches WHERE account_id = $1 AND recipients = 2",
        caller.id,
    )
    assert row["life"] == timedelta(minutes=10)
