"""Contact lists and saved texts in the dashboard, and sends to lists."""

import csv
import html
import io
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import httpx
import pytest

from tests.dashboard.test_upload import ADVERT, Uploader, send_everything, sign_in
from tests.support.identity.customers import link, words
from tests.support.identity.people import alert, goes_to, page_text, sign_up
from tests.support.processes.service import Service
from tests.support.uploads.workbooks import pack, text_rows, xlsx_parts
from tumira.contacts.list_rules import LIST_NAME_MAX
from tumira.core.days import local_time
from tumira.core.ids import AccountId
from tumira.postgres.pool import Database
from tumira.replies.opt_outs import OptOutSource, add

LISTS: Final = "/dashboard/lists"
TEXTS: Final = "/dashboard/texts"
COMPOSE: Final = "/dashboard/compose"
NASTY: Final = "<script>alert(1)</script>&{{ 7 * 7 }}"
FILL: Final = """
INSERT INTO contacts (list_id, number, cells)
SELECT (SELECT id FROM contact_lists WHERE account_id = $1), '+26377' || lpad(place::text, 7, '0'), '{}'
  FROM generate_series(1, $2::integer) AS place
"""


@pytest.fixture
def customer(service: Service) -> Uploader:
    return sign_in(service)


def created(customer: Uploader, name: str = "Members") -> str:
    path = goes_to(customer.post(LISTS, name=name))
    assert path is not None
    return path.partition("?")[0]


def bring(customer: Uploader, path: str, text: str) -> httpx.Response:
    return customer.request("POST", path + "/import", files={"file": ("m.csv", text.encode(), "text/csv")})


def filled(customer: Uploader, name: str, *rows: str, heading: str = "to,name,amount") -> str:
    path = created(customer, name)
    assert bring(customer, path, "\n".join([heading, *rows])).status_code == 200
    return path


def id_of(path: str) -> str:
    return path.rpartition("/")[2]


def compose(customer: Uploader, message: str, *lists: str, **fields: str) -> httpx.Response:
    form = {"recipients": "", "message": message, "reference": "", **fields}
    chosen = [id_of(path) for path in lists]
    return customer.request("POST", COMPOSE, data={**form, "list": chosen})


def received(customer: Uploader) -> Sequence[tuple[str, str]]:
    rows = customer.service.sql(
        "SELECT m.recipient, coalesce(m.body, b.body) AS text FROM messages m"
        " JOIN batches b ON b.id = m.batch_id WHERE m.account_id = $1 ORDER BY m.recipient",
        customer.caller.id,
    )
    return [(row["recipient"], row["text"]) for row in rows]


async def _opt_out(database: Database, account_id: AccountId, number: str) -> None:
    async with database.transaction() as connection:
        await add(connection, account_id, [number], OptOutSource.REPLY)


def test_a_list_is_imported_searched_changed_and_downloaded(customer: Uploader) -> None:
    assert "No lists yet" in words(customer.page(LISTS))
    path = created(customer, "  Our \n members ")
    assert "This list has no contacts yet" in words(customer.page(path))
    answer = bring(
        customer, path, f"phone,name,amount\n0771200001,Ada,5\n0771200002,{NASTY},\n0771200001,,7\n12,X,"
    )
    said = words(answer.text)
    assert "2 contacts were added, 1 repeated row was merged." in said
    assert "1 row was left out" in said
    assert "too short" in said
    assert html.escape(NASTY) in answer.text
    assert "<script>alert" not in answer.text

    found = words(customer.page(path, q="077 120 0001"))
    assert "Ada 7" in found
    assert "alert(1)" not in found
    assert "No contact matches" in words(customer.page(path, q="nobody"))

    assert (
        goes_to(customer.post(path + "/contacts", number="0771200003", cell="=1+1")) == path + "?done=added"
    )
    refused = customer.post(path + "/contacts", number="0771200003", cell="Twice")
    assert refused.status_code == 422
    assert "already in the list" in alert(refused)
    edit = f"{path}/contacts/263771200003"
    assert "=1+1" in customer.page(edit)
    changed = customer.request("POST", edit, data={"number": "+263 77 120 0004", "cell": ["Cleo", "9"]})
    assert goes_to(changed) == path + "?done=saved"
    assert customer.ask(edit).status_code == 404
    assert customer.post(f"{path}/contacts/263771200004", number="1").status_code == 422

    rows = customer.table(path + "/contacts.csv")
    assert [dict(row) for row in rows] == [
        {"\ufeffto": "+263771200001", "name": "Ada", "amount": "7"},
        {"\ufeffto": "+263771200002", "name": NASTY, "amount": ""},
        {"\ufeffto": "+263771200004", "name": "Cleo", "amount": "9"},
    ]
    removed = customer.post(f"{path}/contacts/263771200004/remove")
    assert goes_to(removed) == path + "?done=removed"

    settings = path + "/settings"
    assert goes_to(customer.post(path + "/columns", column="Town")) == settings + "#columns"
    assert (
        goes_to(customer.post(path + "/columns/rename", old="amount", column="due")) == settings + "#columns"
    )
    assert goes_to(customer.post(path + "/columns/remove", old="name")) == settings + "#columns"
    assert customer.post(path + "/columns", column="to").status_code == 422
    assert "{due}" in words(customer.page(settings))
    assert customer.ask(path + "/contacts.csv").text.splitlines()[1] == "+263771200001,7,"
    assert goes_to(customer.post(path + "/rename", name="Guests")) == path + "?done=settings"
    assert customer.post(path + "/rename", name="x" * (LIST_NAME_MAX + 1)).status_code == 422
    assert customer.post(path + "/delete").status_code == 422
    assert goes_to(customer.post(path + "/delete", sure="1")) == LISTS + "?done=deleted"
    assert customer.ask(path).status_code == 404


def test_a_workbook_is_imported_after_its_sheet_was_chosen(customer: Uploader) -> None:
    path = created(customer)
    rows = text_rows(["phone", "name"], ["0771200001", "Ada"])
    data = pack(xlsx_parts({"People": rows, "Others": text_rows(["0771200009", "Zoe"])}))

    def bring_book(**fields: str) -> httpx.Response:
        return customer.request("POST", path + "/import", data=fields, files={"file": ("m.xlsx", data)})

    asked = bring_book()
    assert asked.status_code == 422
    assert "Several sheets" in alert(asked)
    assert '<option value="People">' in asked.text
    assert "1 contact was added." in words(bring_book(sheet="People").text)
    assert customer.ask(path + "/contacts.csv").text.splitlines()[1:] == ["+263771200001,Ada"]


def test_a_download_has_no_formulas(customer: Uploader) -> None:
    path = filled(customer, "Members", '0771200001,"=HYPERLINK(""http://x"")",@x')
    (row,) = list(csv.reader(io.StringIO(customer.ask(path + "/contacts.csv").text)))[1:]
    assert row == ["+263771200001", '\'=HYPERLINK("http://x")', "'@x"]


def test_a_long_list_has_pages(customer: Uploader) -> None:
    path = created(customer)
    customer.service.sql(FILL, customer.caller.id, 120)
    seen: list[str] = []
    following: str | None = path
    while following is not None:
        page = customer.page(following)
        seen += re.findall(r'/contacts/(\d+)"', page)
        found = link(page, "Next")
        following = found
    assert len(seen) == len(set(seen)) == 120


def test_everyone_in_the_lists_gets_their_own_text_once(customer: Uploader) -> None:
    members = filled(customer, "Members", "0771200001,Ada,5", "0771200002,Ben,7", "0771200003,Cleo,")
    staff = filled(customer, "Staff", "+263771200002,Benjamin,1", "0771200004,Dan,3")
    customer.service.run(_opt_out, customer.caller.id, "+263771200004")
    path = goes_to(
        compose(customer, "Dear {name}, your balance is {amount}.", members, staff, reference="may")
    )
    assert path is not None
    page = words(customer.page(path))
    assert "Members, Staff" in page
    assert "2 of 4 rows can be sent" in page
    assert "no value for “amount”" in page
    assert "opted out" in page
    assert "US$0.08 in total" in page
    assert customer.messages() == 0
    assert goes_to(customer.confirm(path)) == path
    # A list that changes afterwards does not change what is sent, and a second press sends nothing more.
    customer.post(f"{members}/contacts/263771200001/remove")
    customer.confirm(path, "0.0800")
    customer.service.run(send_everything)
    assert received(customer) == [
        ("+263771200001", "Dear Ada, your balance is 5."),
        ("+263771200002", "Dear Ben, your balance is 7."),
    ]


def test_a_text_without_places_goes_to_the_list_and_to_numbers_beside_it(customer: Uploader) -> None:
    members = filled(customer, "Members", "0771200001,Ada,5")
    path = goes_to(
        compose(customer, "We are closed on Friday.", members, recipients="0771200009, 0771200001")
    )
    assert path is not None
    assert "2 of 2 rows can be sent" in words(customer.page(path))
    customer.confirm(path)
    customer.service.run(send_everything)
    assert [number for number, _ in received(customer)] == ["+263771200001", "+263771200009"]


def test_the_time_that_was_chosen_goes_with_the_lists(customer: Uploader) -> None:
    members = filled(customer, "Members", "0771200001,Ada,5", "0771200002,Ben,7")
    at = datetime.now(UTC) + timedelta(days=2)
    wrong = compose(customer, "Dear {name}.", members, day="", clock="08:30")
    assert (wrong.status_code, "Choose a day." in alert(wrong)) == (422, True)
    assert 'value="08:30"' in wrong.text
    day = f"{local_time(at):%Y-%m-%d}"
    path = str(goes_to(compose(customer, "Dear {name}.", members, day=day, clock="08:30")))
    page = customer.page(path + "/send")
    assert f'value="{day}"' in page
    assert 'value="08:30"' in page
    assert "Send now instead" in words(page)
    found = re.search(r'name="agreed" value="([^"]*)"', page)
    assert found is not None
    made = customer.post(path + "/schedule", agreed=found[1], day=day, clock="08:30")
    schedule = str(goes_to(made)).partition("?")[0]
    assert schedule.startswith("/dashboard/scheduled/")
    assert f"{local_time(at):%-d %b %Y}, 08:30" in words(customer.page(schedule))
    assert customer.messages() == 0

    # A scheduled message goes to a list instead, and stays one send.
    confirm = customer.post(
        COMPOSE, recipients="0771200003", message="Hello there.", reference="", day=day, clock="09:00"
    )
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', confirm.text))
    schedule = str(goes_to(customer.post(COMPOSE + "/confirm", **fields))).partition("?")[0]
    form = customer.page(schedule + "/edit")
    assert "Send to lists" in words(form)
    path = str(
        goes_to(compose(customer, "Dear {name}.", members, day=day, clock="09:00", schedule=id_of(schedule)))
    )
    page = customer.page(path + "/send")
    assert "Change the send of" in words(page)
    changed = customer.post(path + "/schedule", agreed="0.0800", day=day, clock="10:00")
    assert str(goes_to(changed)).partition("?")[0] == schedule
    assert "Dear {name}." in words(customer.page(schedule))


def test_what_is_wrong_with_a_send_to_lists_is_said_in_compose(customer: Uploader) -> None:
    members, empty = filled(customer, "Members", "0771200001,Ada,5"), created(customer, "Nobody")
    for refused, said in (
        (compose(customer, "Dear {nmae}", members), "no column {nmae}"),
        (compose(customer, "Dear {name", members), "write it twice"),
        (compose(customer, " ", members), "Enter a message"),
        (compose(customer, "Hello", empty), "no contacts"),
        (compose(customer, "Hello", members, reference="x" * 65), "at most 64 characters"),
    ):
        assert refused.status_code == 422, said
        assert said in alert(refused)
    # Nothing was sent for it, and the list is still chosen.
    again = compose(customer, "Dear {nmae}", members).text
    assert re.search(rf'value="{id_of(members)}" checked', again)


def test_more_contacts_than_one_send_reaches_are_sent_in_parts(customer: Uploader) -> None:
    path = created(customer)
    customer.service.sql(FILL, customer.caller.id, 10_003)
    asked = compose(customer, "Hello", path)
    assert asked.status_code == 422
    assert "Choose a part" in alert(asked)
    assert "Contacts 10,001 to 10,003" in words(asked.text)
    last = goes_to(compose(customer, "Hello", path, part="2"))
    assert last is not None
    page = words(customer.page(last))
    assert "Members (10,001 to 10,003)" in page
    assert "3 of 3 rows can be sent" in page


def test_compose_says_that_braces_are_sent_as_they_are(customer: Uploader) -> None:
    answer = compose(customer, "Dear {name}, hello.", recipients="0771200001")
    assert "Braces are sent as they are written" in words(answer.text)
    assert "Braces" not in words(compose(customer, "Dear Ada, hello.", recipients="0771200001").text)


def test_a_text_is_saved_with_its_verdict_and_used(customer: Uploader) -> None:
    assert "No texts yet" in words(customer.page(TEXTS))
    assert (
        goes_to(customer.post(TEXTS, name="Parcel", message="Dear {name}, it is here."))
        == TEXTS + "?done=saved"
    )
    assert goes_to(customer.post(TEXTS, name="Sale", message=ADVERT)) == TEXTS + "?done=refused"
    page = customer.page(TEXTS)
    parcel, sale = link(page, "Parcel"), link(page, "Sale")
    assert parcel is not None
    assert sale is not None
    assert "This text is refused" in words(customer.page(sale))
    asked = customer.post(TEXTS + "/review", text=id_of(sale), name="Sale", message=ADVERT, note="Please")
    assert "was sent for review" in words(asked.text)
    assert "You sent this text for review" in words(customer.page(sale))
    assert customer.post(TEXTS, name="parcel", message="x").status_code == 422
    assert customer.post(parcel, name="Parcel", message="Dear {name").status_code == 422
    customer.post(parcel, name="Parcel", message="Dear {name}, it came.")

    assert "Dear {name}, it came." in customer.page(f"{COMPOSE}?text={id_of(parcel)}")
    assert "Dear {name}, it came." in customer.page(f"/dashboard/upload?text={id_of(parcel)}")
    members = filled(customer, "Members", "0771200001,Ada,5")
    inserted = compose(customer, "Old", members, recipients="0771200002", insert="1", text=id_of(parcel)).text
    assert "Dear {name}, it came." in inserted
    assert "0771200002" in inserted
    assert re.search(rf'value="{id_of(members)}" checked', inserted)
    kept = customer.request(
        "POST",
        "/dashboard/upload/text",
        data={"message": "Old", "text": id_of(parcel)},
        files={"file": ("p.csv", b"to,name\n0771200001,Ada", "text/csv")},
    )
    assert "Dear {name}, it came." in kept.text
    assert "We still have p.csv" in words(kept.text)
    assert goes_to(customer.post(parcel + "/delete")) == TEXTS + "?done=deleted"
    assert customer.ask(parcel).status_code == 404


def test_a_batch_and_a_file_become_lists_and_texts(customer: Uploader) -> None:
    batch_id = customer.send("+263771200001", "+263771200002", body="Code {x}: your order is ready.")
    page = customer.page(f"/dashboard/batches/{batch_id}")
    source, text = link(page, "Save recipients as a list"), link(page, "Save this text")
    assert source is not None
    assert text is not None
    assert "begins with 2 recipients" in words(customer.page(source.partition("#")[0]))
    path = goes_to(customer.post(LISTS, name="From a batch", source=batch_id))
    assert path is not None
    assert "2 contacts" in words(customer.page(path))
    # What was sent as written is saved so that it is sent as written again.
    assert "Code {{x}}: your order is ready." in html.unescape(customer.page(text))

    sent = customer.checked("to,name\n+263771200003,Ada", "Dear {name}, it is {{here}}.")
    customer.confirm(sent)
    customer.service.run(send_everything)
    page = customer.page(sent)
    text = link(page, "Save this text")
    assert text is not None
    assert "Dear Ada, it is {{here}}." in html.unescape(customer.page(text))
    path = goes_to(customer.post(LISTS, name="From a file", source=id_of(sent)))
    assert path is not None
    assert "1 contact" in words(customer.page(path))


def test_nobody_sees_or_uses_lists_and_texts_of_another(service: Service, customer: Uploader) -> None:
    path = filled(customer, "Members", "0771200001,Ada,5")
    customer.post(TEXTS, name="Secret", message="Our secret text")
    text = link(customer.page(TEXTS), "Secret")
    batch_id = customer.send("+263771200001")
    assert text is not None
    other = sign_in(service)
    for mine in (path, path + "/settings", path + "/contacts.csv", path + "/contacts/263771200001", text):
        unknown = mine.replace(id_of(path), "lst_" + "0" * 26).replace(id_of(text), "txt_" + "0" * 26)
        foreign, missing = other.ask(mine), other.ask(unknown)
        assert foreign.status_code == missing.status_code == 404, mine
        assert page_text(foreign) == page_text(missing)
    for route, fields in (
        ("/contacts", {"number": "0771200009"}),
        ("/contacts/263771200001", {"number": "0771200009"}),
        ("/contacts/263771200001/remove", {}),
        ("/rename", {"name": "Mine"}),
        ("/columns", {"column": "x"}),
        ("/columns/remove", {"old": "name"}),
        ("/delete", {"sure": "1"}),
    ):
        assert other.post(path + route, **fields).status_code == 404
    assert bring(other, path, "to\n0771200009").status_code == 404
    assert other.post(text, name="x", message="x").status_code == 404
    assert other.post(text + "/delete").status_code == 404
    assert other.ask(f"{LISTS}?from={batch_id}").status_code == 404
    assert other.ask(f"{TEXTS}/new?from={batch_id}").status_code == 404
    assert "Our secret" not in other.page(f"{COMPOSE}?text={id_of(text)}&list={id_of(path)}")
    assert "Our secret" not in compose(other, "Old", insert="1", text=id_of(text)).text
    refused = compose(other, "Hello {name}", path)
    assert refused.status_code == 422
    assert "no contacts" in alert(refused)
    assert other.messages() == 0
    assert [dict(row)["name"] for row in customer.table(path + "/contacts.csv")] == ["Ada"]


def test_a_closed_account_keeps_no_lists_and_texts(service: Service) -> None:
    person = sign_up(service)
    person.browser.post(LISTS, data={"name": "Members"})
    person.browser.post(TEXTS, data={"name": "Hello", "message": "Hello"})
    kept = (
        "SELECT (SELECT count(*) FROM contact_lists WHERE account_id = a.id),"
        " (SELECT count(*) FROM saved_texts WHERE account_id = a.id) FROM accounts a WHERE phone = $1"
    )
    assert [tuple(row) for row in service.sql(kept, person.phone)] == [(1, 1)]
    closed = person.browser.post(
        "/dashboard/settings/close", data={"word": "CLOSE", "password_to_close": person.password}
    )
    assert closed.status_code in {200, 303}, closed.text
    assert [tuple(row) for row in service.sql(kept, person.phone)] == [(0, 0)]
