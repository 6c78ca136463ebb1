"""Batches and messages of an account: lists, search, progress, timelines and downloads."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import pytest

from tests.support.identity.customers import ONE, Customer, link, open_session, words
from tests.support.processes.service import Service
from tumira.carriers.manage import add_carrier
from tumira.core.ids import BATCH, MESSAGE, new_id, read_id, write_id
from tumira.pricing.phone_numbers import write_phone

BATCHES: Final = "/dashboard/batches"
MESSAGES: Final = "/dashboard/messages"
LOCAL_TIME: Final = timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class Sender(Customer):
    """A customer who looks for what they sent."""

    def found(self, **query: str) -> Sequence[str]:
        return re.findall(rf'href="{BATCHES}/(bat_\w+)"', self.page(BATCHES, **query))

    def end(self, batch_id: str, status: str = "delivered", *, refunded: bool = False) -> None:
        paid_back = "total_cost" if refunded else "0"
        self.service.sql(
            "UPDATE batches SET status = 'completed', pending = 0, completed_at = now(),"
            f" refunded = {paid_back} WHERE id = $1",
            read_id(BATCH, batch_id),
        )
        self.service.sql(
            "UPDATE messages SET status = $2, sent_at = now(),"
            " refunded_at = CASE WHEN $3 THEN now() END WHERE batch_id = $1",
            read_id(BATCH, batch_id),
            status,
            refunded,
        )

    def messages(self, batch_id: str) -> Sequence[str]:
        rows = self.service.sql(
            "SELECT id FROM messages WHERE batch_id = $1 ORDER BY id", read_id(BATCH, batch_id)
        )
        return [write_id(MESSAGE, row["id"]) for row in rows]

    def fill(self, count: int) -> None:
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        ids = [new_id(now_ms - 1000 * place) for place in range(count)]
        self.service.sql(
            "INSERT INTO batches (id, account_id, created_at, completed_at, recipients, pending, segments,"
            " total_cost, status, channel, reference)"
            " SELECT id, $2, now(), now(), 0, 0, 1, 0, 'completed', 'sms', 'many'"
            " FROM unnest($1::uuid[]) AS id",
            ids,
            self.caller.id,
        )


@pytest.fixture
def customer(service: Service) -> Sender:
    return sign_in(service)


def sign_in(service: Service) -> Sender:
    caller = service.open_account()
    return Sender(service, caller, open_session(service, caller))


def test_somebody_without_batches_is_told_what_to_do_next(customer: Sender) -> None:
    page = customer.page(BATCHES)
    assert "You have not sent anything yet." in words(page)
    assert link(page, "Send a message") == "/dashboard/compose"
    assert 'role="search"' not in page


def test_batches_are_listed_newest_first_25_a_page(customer: Sender) -> None:
    sent = [customer.send(reference=f"order-{place}") for place in range(27)][::-1]
    first = customer.page(BATCHES)
    assert customer.found() == sent[:25]
    assert link(first, "Newest") is None
    older = link(first, "Older")
    assert older is not None
    second = customer.page(older)
    assert re.findall(rf'href="{BATCHES}/(bat_\w+)"', second) == sent[25:]
    assert link(second, "Older") is None
    assert link(second, "Newest") == BATCHES


def test_a_search_finds_by_number_reference_status_and_dates_together(customer: Sender) -> None:
    two = "+27821230001"
    queued = customer.send(ONE, two, reference="a")
    delivered = customer.send(ONE, reference="a")
    customer.end(delivered)
    refunded = customer.send(two, reference="b & c")
    customer.end(refunded, "failed", refunded=True)
    sign_in(customer.service).send(ONE, two, reference="a")
    today = (datetime.now(UTC) + LOCAL_TIME).date()
    yesterday, tomorrow = str(today - timedelta(days=1)), str(today + timedelta(days=1))
    for query, expected in (
        ({"number": " 00263 77-120 0001"}, [delivered, queued]),
        ({"number": "077 120 0001"}, [delivered, queued]),
        ({"number": two, "status": "refunded"}, [refunded]),
        ({"number": ONE, "reference": "a", "status": "queued"}, [queued]),
        ({"reference": " b & c "}, [refunded]),
        ({"reference": "b"}, []),
        ({"status": "queued"}, [queued]),
        ({"status": "processing"}, []),
        ({"status": "completed"}, [refunded, delivered]),
        ({"status": "refunded"}, [refunded]),
        ({"from": str(today), "to": str(today)}, [refunded, delivered, queued]),
        ({"from": tomorrow}, []),
        ({"to": yesterday}, []),
        ({"from": yesterday, "to": tomorrow, "reference": "a"}, [delivered, queued]),
    ):
        assert customer.found(**query) == expected, query


def test_a_day_begins_and_ends_at_the_local_midnight(customer: Sender) -> None:
    batch_id = customer.send()
    at = datetime.now(UTC).replace(hour=22, minute=0, second=0, microsecond=0) - timedelta(days=1)
    moved = new_id(int(at.timestamp() * 1000))
    customer.service.sql(
        "INSERT INTO batches SELECT (jsonb_populate_record(b, jsonb_build_object('id', $2::uuid))).*"
        " FROM batches b WHERE id = $1",
        read_id(BATCH, batch_id),
        moved,
    )
    day = at.date() + timedelta(days=1)
    name = write_id(BATCH, moved)
    assert name in customer.found(**{"from": str(day), "to": str(day)})
    assert name not in customer.found(to=str(day - timedelta(days=1)))


def test_a_search_by_number_leads_to_its_message(customer: Sender) -> None:
    batch_id = customer.send("+263771200002", ONE)
    page = customer.page(BATCHES, number="077 120 0001")
    assert f'value="{write_phone(ONE)}"' in page
    assert link(page, "History") == f"{MESSAGES}/{customer.messages(batch_id)[1]}"
    assert "To +263 77 120 0001" in words(page)
    page = customer.page(BATCHES, reference="unheard of", number=ONE)
    assert "Nothing matches this search." in words(page)
    assert link(page, "Clear") == BATCHES
    assert 'value="unheard of"' in page


def test_whatever_is_in_the_address_the_page_answers_and_says_why_beside_the_field(customer: Sender) -> None:
    batch_id = customer.send()
    for query, name in (
        ({"number": "077120000"}, "number"),
        ({"status": "lost"}, "status"),
        ({"to": "9999-12-31"}, "to"),
        ({"from": "2026-11-16", "to": "2026-11-15"}, "to"),
    ):
        response = customer.ask(BATCHES, **query)
        assert response.status_code == 422
        assert response.text.count('role="alert"') == 1
        assert f'href="#{name}"' in response.text
        assert f'aria-describedby="{name}-fault"' in response.text
        assert not re.search(rf"{BATCHES}/bat_", response.text)
        assert customer.ask(BATCHES + ".csv", **query).status_code == 422
    for text in ("reference=%00", "number=%00%ff", "status=&status=x", "reference=%ed%a0%80", "%"):
        assert customer.ask(f"{BATCHES}?{text}").status_code in {200, 422}, text
    for path in (
        f"{BATCHES}?before=42",
        f"{BATCHES}?before=",
        f"{BATCHES}/bat_42",
        f"{BATCHES}/42/progress",
        f"{BATCHES}/42/messages.csv",
        f"{MESSAGES}/{write_id(BATCH, new_id(1))}",
        f"{BATCHES}/{batch_id}?status=lost",
        f"{BATCHES}/{batch_id}?after=42",
    ):
        assert customer.ask(path).status_code == 404, path


def test_foreign_batches_and_messages_look_like_unknown_ones(customer: Sender) -> None:
    stranger = sign_in(customer.service)
    batch_id = stranger.send(reference="theirs")
    message_id = stranger.messages(batch_id)[0]
    unknown = new_id(int(datetime.now(UTC).timestamp() * 1000))
    for path, real, name in (
        (BATCHES + "/{}", batch_id, write_id(BATCH, unknown)),
        (BATCHES + "/{}/progress", batch_id, write_id(BATCH, unknown)),
        (BATCHES + "/{}/messages.csv", batch_id, write_id(BATCH, unknown)),
        (MESSAGES + "/{}", message_id, write_id(MESSAGE, unknown)),
    ):
        assert stranger.ask(path.format(real)).status_code == 200
        foreign, missing = customer.ask(path.format(real)), customer.ask(path.format(name))
        # Each answer has an id of its own.
        said, expected = (re.sub(r"req_\w+", "", answer.text) for answer in (foreign, missing))
        assert (foreign.status_code, said) == (404, expected)
        assert missing.status_code == 404
    assert customer.found(before=write_id(BATCH, UUID(int=(1 << 128) - 1))) == []


def test_a_batch_shows_its_message_and_status(customer: Sender) -> None:
    numbers = [f"+26377120{place:04d}" for place in range(4)]
    batch_id = customer.send(*numbers, reference="order-7", body="Your code is 493817.")
    customer.service.sql(
        "UPDATE messages SET status = 'delivered' WHERE batch_id = $1 AND recipient = $2",
        read_id(BATCH, batch_id),
        numbers[0],
    )
    page = customer.page(f"{BATCHES}/{batch_id}")
    said = words(page)
    for expected in (
        "Reference order-7",
        "Recipients 4",
        "Segments each 1",
        "Cost US$0.16",
        "Your code is 493817.",
        "1 of 4 messages done.",
        "queued 3",
        "delivered 1",
        "Refunded US$0.00",
        f"{numbers[0]} Zimbabwe delivered US$0.04",
    ):
        assert expected in said, expected
    assert re.findall(r'<rect class="(\w+)" x="(\d+)" y="0" width="(\d+)"', page) == [
        ("queued", "0", "750"),
        ("delivered", "750", "250"),
    ]
    assert page.count('role="status"') == 1
    assert " style=" not in page


def test_a_page_follows_a_batch_until_it_is_completed(customer: Sender) -> None:
    batch_id = customer.send()
    path = f"{BATCHES}/{batch_id}"
    page = customer.page(path)
    assert link(page, "Refresh") == f"/dashboard/batches/{batch_id}"
    assert re.search(r'<script src="/static/live\.\w+\.js" defer data-', page)
    assert f'data-ask="{path}/progress"' in page

    fragment = customer.ask(path + "/progress")
    assert fragment.headers["cache-control"] == "no-store"
    assert 'data-part="open"' in fragment.text
    assert "<html" not in fragment.text
    assert set(re.findall(r'data-live="(\w+)"', fragment.text)) == set(re.findall(r'data-live="(\w+)"', page))

    customer.end(batch_id)
    fragment = customer.ask(path + "/progress")
    assert 'data-part="ended"' in fragment.text
    assert "1 of 1 message done." in words(fragment.text)
    assert "Refresh" not in customer.page(path)
    customer.service.sql("UPDATE batches SET body = NULL WHERE id = $1", read_id(BATCH, batch_id))
    erased = "The text was erased. Texts are kept for 7 days after a batch is completed."
    assert erased in words(customer.page(path))


def test_messages_come_fifty_a_page_and_by_status(customer: Sender) -> None:
    numbers = [f"+26377121{place:04d}" for place in range(230)]
    batch_id = customer.send(*numbers)
    customer.service.sql(
        "UPDATE messages SET status = 'failed', failure_reason = 'NO_ROUTE'"
        " WHERE batch_id = $1 AND recipient = ANY($2)",
        read_id(BATCH, batch_id),
        numbers[::2],
    )
    for query, expected in (("", numbers), ("?status=failed", numbers[::2]), ("?status=sent", [])):
        shown: list[str] = []
        path: str | None = f"{BATCHES}/{batch_id}{query}"
        for _ in range(10):
            if path is None:
                break
            page = customer.page(path.partition("#")[0])
            on_page = re.findall(rf'href="{MESSAGES}/msg_\w+">(\+\d+)</a>', page)
            assert len(on_page) <= 50
            shown.extend(on_page)
            path = link(page, "Next")
        assert shown == expected, query
    failed = words(customer.page(f"{BATCHES}/{batch_id}", status="failed"))
    assert "No carrier serves this country." in failed
    assert "No message has this status now." in words(customer.page(f"{BATCHES}/{batch_id}", status="sent"))


def test_a_message_is_told_in_plain_words_with_the_carriers_below(customer: Sender) -> None:
    batch_id = customer.send(reference="order-7")
    (message_id,) = customer.messages(batch_id)
    identifier = read_id(MESSAGE, message_id)
    path = f"{MESSAGES}/{message_id}"
    assert "Waiting to be sent." in words(customer.page(path))

    sql = customer.service.sql
    customer.service.run(add_carrier, "example", "smpp://tester:secret@127.0.0.1:2775", None, 100)
    sql(
        "INSERT INTO in_flight (message_id, worker, bind, carrier_id)"
        " SELECT $1, 'machine-seven', 'machine-seven/1', id FROM carriers",
        identifier,
    )
    page = customer.page(path)
    assert "Being handed to the mobile network." in words(page)
    assert "machine-seven" not in page

    sql("INSERT INTO incidents (message_id, kind, detail) VALUES ($1, 'retry', 'RMSGQFUL <i>')", identifier)
    sql("INSERT INTO incidents (message_id, kind, detail) VALUES ($1, 'doubt', 'the line fell')", identifier)
    sql("INSERT INTO incidents (message_id, kind) VALUES ($1, 'resend')", identifier)
    customer.end(batch_id, "undelivered", refunded=True)
    sql("UPDATE messages SET failure_reason = 'ABSENT_SUBSCRIBER' WHERE id = $1", identifier)
    sql(
        "INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id)"
        " VALUES ($1, 'revenue', 'customer', 0.04, $2, $3)",
        customer.caller.id,
        read_id(BATCH, batch_id),
        identifier,
    )
    page = customer.page(path)
    told, _, technical = page.partition("<details")
    for sentence in (
        f"Message to {write_phone(ONE)}".replace("\xa0", " "),
        "undelivered The carrier reported that it was not delivered.",
        "The phone was off or out of coverage. ABSENT_SUBSCRIBER",
        "Country Zimbabwe",
        "Cost US$0.04 Refunded US$0.04",
        "Accepted and charged.",
        "The network could not take it at that moment. We try again.",
        "The network may or may not have the message.",
        "so we sent it again.",
        "Refunded to your balance.",
    ):
        assert sentence in words(told), sentence
    assert "RMSGQFUL" not in told
    assert "RMSGQFUL &lt;i&gt;" in technical
    assert link(page, "Batch") == f"{BATCHES}/{batch_id}"
    assert len(re.findall(r'<time datetime="[^"]+\+00:00">', told)) >= 6


def test_the_messages_of_a_batch_are_downloaded_whole(customer: Sender) -> None:
    numbers = [f"+26377122{place:04d}" for place in range(300)]
    batch_id = customer.send(*numbers)
    customer.end(batch_id, "failed", refunded=True)
    rows = customer.table(f"{BATCHES}/{batch_id}/messages.csv")
    assert [row["number"] for row in rows] == numbers
    assert [row["message_id"] for row in rows] == customer.messages(batch_id)
    first = rows[0]
    assert (first["country"], first["status"], first["cost_usd"]) == ("ZW", "failed", "0.0400")
    assert first["refunded_usd"] == "0.0400"
    assert datetime.fromisoformat(first["sent_at_utc"]).utcoffset() == timedelta()
    assert first["delivered_at_utc"] == ""


def test_a_search_is_downloaded_piece_by_piece_with_nothing_left_out(customer: Sender) -> None:
    customer.fill(600)
    other = customer.send(reference="another")
    everything = customer.table(BATCHES + ".csv")
    assert len({row["batch_id"] for row in everything}) == len(everything) == 601
    assert [row["batch_id"] for row in everything] == sorted(
        (row["batch_id"] for row in everything), reverse=True
    )
    assert len(customer.table(BATCHES + ".csv", reference="many", status="completed")) == 600
    (row,) = customer.table(BATCHES + ".csv", number=ONE)
    assert (row["batch_id"], row["number"]) == (other, ONE)
    assert (row["message_id"], row["message_status"]) == (customer.messages(other)[0], "queued")
    assert datetime.fromisoformat(row["created_at_utc"]).utcoffset() == timedelta()
    assert customer.table(BATCHES + ".csv", status="refunded") == []
