"""An uploaded file: faults by row, confirmation, and each message sent once."""

import csv
import html
import io
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final
from uuid import UUID

import httpx
import pytest

from tests.support.identity.people import Person, alert, at_once, count, goes_to, run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tumira.core.ids import UPLOAD, AccountId, UploadId, write_id
from tumira.html.form_body import FILE_BYTES_MAX
from tumira.identity import manage_accounts
from tumira.postgres.pool import Database
from tumira.uploads.send import send_next_chunk

PAGE: Final = "/dashboard/upload"
MESSAGE: Final = "Dear {name}, your parcel is here."
BEFORE_ALL: Final = UploadId(UUID(int=0))
ADVERT: Final = "BIG SALE this weekend only! Get 50% off all shoes and bags. Shop now and save big!"
HOSTILE: Final = "<script>alert(1)</script>\"'&{{ 7 * 7 }}"

_TAG: Final = re.compile(r"<[^>]*>")
_AGREED: Final = re.compile(r'name="agreed" value="([^"]*)"')


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as service:
        yield service


@dataclass(frozen=True, slots=True)
class Customer:
    service: Service
    person: Person
    account_id: AccountId

    def get(self, path: str) -> httpx.Response:
        return self.person.browser.get(path)

    def check(
        self, data: bytes | str, message: str = MESSAGE, name: str = "p.csv", **fields: str
    ) -> httpx.Response:
        content = data.encode() if isinstance(data, str) else data
        return self.person.browser.post(
            PAGE, data={"message": message, **fields}, files={"file": (name, content, "text/csv")}
        )

    def checked(self, rows: int = 3, **fields: str) -> str:
        path = goes_to(self.check(sheet(rows), **fields))
        assert path is not None
        return path

    def confirm(self, path: str, agreed: str | None = None) -> httpx.Response:
        if agreed is None:
            found = _AGREED.search(self.get(f"{path}/send").text)
            assert found is not None
            agreed = found[1]
        return self.person.browser.post(f"{path}/send", data={"agreed": agreed})

    def messages(self) -> int:
        return count(self.service, "SELECT count(*) FROM messages WHERE account_id = $1", self.account_id)

    def set(self, change: str) -> None:
        self.service.sql(f"UPDATE accounts SET {change} WHERE id = $1", self.account_id)


@pytest.fixture
def customer(service: Service) -> Customer:
    person = sign_up(service)
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)
    service.run(manage_accounts.credit, row["id"], Decimal(100), note="for tests", actor="test")
    return Customer(service, person, row["id"])


def sheet(rows: int, header: str = "to,name") -> str:
    return "\n".join([header, *(f"+2637712{place:05},Person {place}" for place in range(rows))])


def words(page: httpx.Response) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", page.text)).split())


async def send_everything(database: Database) -> None:
    for _ in range(100):
        if await send_next_chunk(database, BEFORE_ALL) is None:
            return


def test_a_file_is_checked_row_by_row_and_priced_by_country(customer: Customer) -> None:
    rows = [
        "to,name",
        "+263771200001,Anna",
        "0771200002,Ben",
        "12,Cara",
        "+27821230001,Dan",
        "+15551234567,Eve",
    ]
    path = goes_to(customer.check("\n".join([*rows, "+263771200001,Anna"]), country="ZW", reference="spring"))
    assert path is not None

    page = customer.get(path)

    said = words(page)
    assert "3 of 6 rows can be sent" in said
    assert "Zimbabwe 2 2 US$0.08" in said
    assert "South Africa 1 1 US$0.02" in said
    assert "US$0.10 in all" in said
    for line, code in ((4, "INVALID_NUMBER"), (6, "UNSUPPORTED_DESTINATION"), (7, "DUPLICATE")):
        assert re.search(rf"Row {line} .*?{code}", said)
    assert "Dear Ben, your parcel is here." in said
    assert '<button aria-describedby="total">Send</button>' in page.text
    assert customer.messages() == 0


def test_what_was_confirmed_is_sent_and_its_progress_shown(customer: Customer) -> None:
    path = customer.checked(1200, reference="spring")
    asked = customer.get(f"{path}/send")
    assert "Send 1,200 messages?" in words(asked)
    assert "US$48.00 in all" in words(asked)
    assert "Dear Person 0, your parcel is here." in words(asked)

    assert goes_to(customer.confirm(path)) == path

    waiting = customer.get(path)
    assert "0 of 1,200 messages submitted." in words(waiting)
    assert 'http-equiv="refresh"' in waiting.text
    customer.service.run(send_next_chunk, BEFORE_ALL)
    fragment = customer.get(f"{path}/progress")
    assert 'value="1000"' in fragment.text
    assert 'data-part="open"' in fragment.text
    customer.service.run(send_everything)
    done = customer.get(path)
    assert "1,200 of 1,200 messages submitted: all of them are on their way." in words(done)
    assert "refresh" not in done.text
    links = re.findall(r"/dashboard/batches/(bat_\w+)", done.text)
    assert len(links) == 2
    for link in links:
        assert "spring" in customer.get(f"/dashboard/batches/{link}").text
    assert customer.messages() == 1200
    assert "p.csv" in customer.get(PAGE).text


def test_pressing_confirm_many_times_at_once_sends_once(customer: Customer) -> None:
    path = customer.checked(5)
    answers = at_once([lambda: customer.confirm(path, "0.2000") for _ in range(8)])
    assert {goes_to(answer) for answer in answers} == {path}
    customer.service.run(send_everything)
    assert goes_to(customer.confirm(path, "0.2000")) == path
    assert goes_to(customer.get(f"{path}/send")) == path
    customer.service.run(send_everything)
    assert customer.messages() == 5


@pytest.mark.parametrize("agreed", ["", "0.1", "NaN", "-1", "Infinity", "1e400", "x" * 500])
def test_another_amount_than_it_costs_sends_nothing_and_is_shown_again(
    customer: Customer, agreed: str
) -> None:
    path = customer.checked()
    answer = customer.confirm(path, agreed)
    assert answer.status_code == httpx.codes.CONFLICT
    assert "The prices have changed" in alert(answer)
    assert _AGREED.search(answer.text)[1] == "0.1200"  # type: ignore[index]
    customer.service.run(send_everything)
    assert customer.messages() == 0


def test_a_file_that_costs_too_much_is_refused_whole_and_says_what_is_missing(customer: Customer) -> None:
    path = customer.checked(2501)
    assert "US$0.04 is missing" in words(customer.get(path))
    answer = customer.confirm(path)
    assert answer.status_code == httpx.codes.PAYMENT_REQUIRED
    assert "US$0.04 is missing. Nothing was sent" in alert(answer)
    customer.set("daily_limit = 1, balance = balance + 100")
    assert "limit for a day is US$1.00" in alert(customer.confirm(path))
    customer.set("daily_limit = NULL, call_limit = 2")
    assert "your limit per call is US$2.00" in alert(customer.confirm(path))
    customer.set("suspended_at = now()")
    assert "suspended" in alert(customer.confirm(path))
    customer.service.run(send_everything)
    assert customer.messages() == 0


def test_a_file_that_was_stopped_says_why_and_is_resumed_with_one_press(customer: Customer) -> None:
    path = customer.checked(1500)
    customer.confirm(path)
    customer.service.run(send_next_chunk, BEFORE_ALL)
    customer.set("suspended_at = now()")
    customer.service.run(send_everything)
    page = customer.get(path)
    assert "The account was suspended." in words(page)
    assert "<button>Resume</button>" in page.text
    customer.set("suspended_at = NULL")
    agreed = _AGREED.search(page.text)
    assert agreed is not None
    assert goes_to(customer.confirm(path, agreed[1])) == path
    customer.service.run(send_everything)
    assert "1,500 of 1,500" in words(customer.get(path))
    assert customer.messages() == 1500


def workbook() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return held.getvalue()


REFUSED: Final[dict[str, tuple[Callable[[], bytes], str]]] = {
    "10,001 rows": (lambda: sheet(10_001).encode(), "The file has 10,001 rows; at most 10,000"),
    "nothing": (lambda: b"", "The file is empty"),
    "a header alone": (lambda: b"to,name\n", "nothing below it"),
    "a workbook": (workbook, "save it as CSV"),
    "binary": (lambda: bytes(range(256)) * 50, "as CSV"),
    "a quote never closed": (lambda: b'to,name\n+263771200001,"Anna\n' + b"x,y\n" * 9000, "not closed"),
    "mixed encodings": (
        lambda: "to,name\n+263771200001,Zoë\n".encode() + b"+263771200002,Andr\xe9\n",
        "encoding",
    ),
    "51 columns": (lambda: b"to" + b",a" * 50 + b"\n+263771200001\n", "51 columns"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_cannot_be_read_is_refused_in_words_beside_its_field(
    customer: Customer, kind: str
) -> None:
    make, said = REFUSED[kind]
    answer = customer.check(make(), reference="kept")
    assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert said in alert(answer)
    assert said in html.unescape(answer.text.partition('id="file-fault">')[2].partition("</p>")[0])
    # What was filled in is still there.
    assert html.escape(MESSAGE) in answer.text
    assert 'value="kept"' in answer.text
    assert (
        count(customer.service, "SELECT count(*) FROM uploads WHERE account_id = $1", customer.account_id)
        == 0
    )


FILLED: Final[dict[str, tuple[dict[str, str], str]]] = {
    "no message": ({"message": " "}, "Message : Write the message."),
    "an invisible message": ({"message": "\u200b\xa0"}, "Message : Write the message."),
    "an unknown column": (
        {"message": "Dear {nmae}"},
        "The file has no column for {nmae}",
    ),
    "a country that is none": ({"country": "XX"}, "Country of short numbers : Choose one of the list."),
    "a long reference": ({"reference": "x" * 65}, "Reference : At most 64 characters."),
}


@pytest.mark.parametrize("kind", FILLED)
def test_what_was_filled_in_wrongly_is_said_beside_its_field(customer: Customer, kind: str) -> None:
    fields, said = FILLED[kind]
    answer = customer.check(sheet(2), **fields)
    assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert said in alert(answer)
    assert "Please choose the file again." in answer.text


def test_a_form_without_a_file_is_asked_for_one(customer: Customer) -> None:
    answer = customer.check(b"", name="")
    assert "CSV file : Choose a file." in alert(answer)


@pytest.mark.parametrize("declared", [True, False])
def test_a_file_of_fifty_megabytes_is_refused_in_words(customer: Customer, *, declared: bool) -> None:
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
    piece = b"+263771200001,Anna\n" * 55_189
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    if declared:
        headers["Content-Length"] = str(len(head) + 50 * len(piece))
    answer = customer.person.browser.post(PAGE, content=iter([head, *[piece] * 50]), headers=headers)
    assert answer.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE
    assert "larger than 5 MB" in alert(answer)


def test_a_file_of_the_largest_size_is_read(customer: Customer) -> None:
    line = "+263771200001," + "x" * 600 + "\n"
    data = ("to,name\n" + line * 9000)[:FILE_BYTES_MAX].encode()
    assert goes_to(customer.check(data, "Your parcel is here.")) is not None
    assert customer.check(data.ljust(FILE_BYTES_MAX + 1)).status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE


BROKEN: Final[dict[str, tuple[str, bytes]]] = {
    "no boundary": ("multipart/form-data", b"x"),
    "another type": ("text/csv", b"to\n"),
    "a plain form": ("application/x-www-form-urlencoded", b"message=a"),
    "nothing at all": ("multipart/form-data; boundary=x", b""),
    "no end": (
        "multipart/form-data; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb',
    ),
    "no form": ("multipart/form-data; boundary=x", b"hello"),
    "a boundary of 300": (f"multipart/form-data; boundary={'x' * 300}", b"hello"),
    "a long header": (
        "multipart/form-data; boundary=x",
        b"--x\r\nA: " + b"a" * 9000 + b"\r\n\r\n\r\n--x--\r\n",
    ),
    "many fields": (
        "multipart/form-data; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n' * 200 + b"--x--\r\n",
    ),
    "two files": (
        "multipart/form-data; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nb\r\n' * 2 + b"--x--\r\n",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_form_with_a_file_is_refused_in_words(customer: Customer, kind: str) -> None:
    content_type, body = BROKEN[kind]
    answer = customer.person.browser.post(PAGE, content=body, headers={"Content-Type": content_type})
    assert answer.status_code in {httpx.codes.BAD_REQUEST, httpx.codes.UNSUPPORTED_MEDIA_TYPE}
    assert "<h1" in answer.text


def download(customer: Customer, path: str) -> Sequence[Sequence[str]]:
    answer = customer.get(f"{path}/bad-rows.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"].startswith('attachment; filename="bad-rows-upl_')
    return list(csv.reader(io.StringIO(answer.content.decode("utf-8-sig"))))


def test_bad_rows_are_paged_and_downloaded_with_reasons_and_suggestions(customer: Customer) -> None:
    rows = [f"077120{place:04},Person {place}" for place in range(250)]
    path = goes_to(customer.check("\n".join(["to,name", "+263771200001,Anna", *rows])))
    assert path is not None

    first = customer.get(path)
    second = customer.get(f"{path}?after=102")
    last = customer.get(f"{path}?after=202")

    assert "250 rows cannot be sent" in words(first)
    shown = [
        re.findall(r"Row </span>([0-9,]+)</th>\n<td data-name=\"What", page.text)
        for page in (first, second, last)
    ]
    assert [(one[0], one[-1], len(one)) for one in shown] == [
        ("3", "102", 100),
        ("103", "202", 100),
        ("203", "252", 50),
    ]
    assert f'href="{path}?after=102#bad"' in first.text
    assert 'rel="next"' not in last.text
    table = download(customer, path)
    assert table[0] == ["to", "name", "row", "code", "reason", "suggestion"]
    assert len(table) == 251
    assert table[1][:4] == ["0771200000", "Person 0", "3", "INVALID_NUMBER"]
    assert "+263771200000" in table[1][5]


def test_a_corrected_download_can_be_sent(customer: Customer) -> None:
    path = goes_to(customer.check("0771200001;Anna\n+263771200002;Ben", "Dear {column2}, it is here."))
    assert path is not None
    (header, row) = download(customer, path)
    assert header[:2] == ["to", "column2"]
    again = goes_to(
        customer.check(f"{','.join(header)}\n{row[5].split()[0]},{row[1]}", "Dear {column2}, it is here.")
    )
    assert again is not None
    assert "1 of 1 row can be sent" in words(customer.get(again))


def test_a_column_of_emoji_is_counted_as_it_is_sent(customer: Customer) -> None:
    text = "\n".join(["to,face", *(f"+26377120{place:04},{'😀' * 20}" for place in range(3))])
    path = goes_to(customer.check(text, "Dear customer, your parcel is here: {face}{face}"))
    assert path is not None
    assert "Zimbabwe 3 6 US$0.24" in words(customer.get(path))


def test_marketing_is_refused_row_by_row(customer: Customer) -> None:
    text = f'to,text\n+263771200001,"{ADVERT}"\n+263771200002,Your parcel is here.'
    page = customer.get(str(goes_to(customer.check(text, "{text}"))))
    assert "1 of 2 rows can be sent" in words(page)
    assert "CONTENT_REJECTED" in words(page)


def test_a_file_of_which_nothing_can_be_sent_offers_no_button(customer: Customer) -> None:
    path = goes_to(customer.check("to\n12\n13", "Your parcel is here."))
    assert path is not None
    page = customer.get(path)
    assert "None of the 2 rows can be sent." in words(page)
    assert "Send</button>" not in page.text
    assert goes_to(customer.get(f"{path}/send")) == path
    assert customer.confirm(path, "0").status_code == httpx.codes.CONFLICT


def test_files_of_others_and_ids_that_are_none_are_not_found(customer: Customer, service: Service) -> None:
    path = customer.checked()
    stranger = sign_up(service).browser
    unknown = f"{PAGE}/{write_id(UPLOAD, UUID(int=1))}"
    for one in (path, unknown, f"{PAGE}/upl_x", f"{PAGE}/bat_{path[-26:]}"):
        for answer in (
            stranger.get(one),
            stranger.get(f"{one}/send"),
            stranger.get(f"{one}/progress"),
            stranger.get(f"{one}/bad-rows.csv"),
            stranger.post(f"{one}/send", data={"agreed": "0.12"}),
        ):
            assert answer.status_code == httpx.codes.NOT_FOUND
    assert customer.get(path).status_code == httpx.codes.OK
