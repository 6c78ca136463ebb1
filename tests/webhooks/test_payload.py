"""Payloads: the same bytes on every attempt, whatever happened to the message since."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tumira.api.schemas import write_message
from tumira.core.ids import (
    BATCH,
    MESSAGE,
    AccountId,
    BatchId,
    EventId,
    MessageId,
    ReplyId,
    message_ids,
    new_id,
    write_id,
)
from tumira.core.ids import REPLY as REPLY_PREFIX
from tumira.events import EVENT_TYPES, SUBSCRIBABLE, Event, is_subscribed, parse_types
from tumira.replies.store import Reply
from tumira.sending.batches import Batch, Message
from tumira.sending.low_balance import low_balance_data
from tumira.webhooks.payload import PAYLOADS, reply_of, webhook_test_data, write_payload

NOW: Final = datetime(2026, 11, 15, 8, 30, 0, 123_456, tzinfo=UTC)
NOW_MS: Final = int(NOW.timestamp() * 1000)
ACCOUNT_ID: Final = AccountId(new_id(NOW_MS))
BATCH_ID: Final = BatchId(new_id(NOW_MS))
MESSAGE_ID: Final = MessageId(message_ids(BATCH_ID, 1)[0])

QUEUED: Final = Message(
    id=MESSAGE_ID,
    recipient="+263771200001",
    country="ZW",
    status="queued",
    segments=1,
    cost=Decimal("0.0400"),
    sent_at=None,
    delivered_at=None,
    failure_reason=None,
    refunded_at=None,
)
SENT: Final = replace(QUEUED, status="sent", sent_at=NOW - timedelta(seconds=5))
UNCONFIRMED: Final = replace(SENT, status="unconfirmed")
DELIVERED: Final = replace(SENT, status="delivered", delivered_at=NOW)
UNDELIVERED: Final = replace(SENT, status="undelivered", failure_reason="ABSENT_SUBSCRIBER")
EXPIRED: Final = replace(QUEUED, status="expired", failure_reason="QUEUE_EXPIRED")
FAILED: Final = replace(QUEUED, status="failed", failure_reason="NO_ROUTE")
COMPLETED: Final = Batch(
    id=BATCH_ID,
    status="completed",
    channel="sms",
    reference="order-1042",
    recipients=1,
    segments=1,
    total_cost=Decimal("0.0400"),
    refunded=Decimal(0),
    created_at=NOW - timedelta(seconds=9),
    pending=0,
    completed_at=NOW,
)


REPLY: Final = Reply(
    id=ReplyId(new_id(NOW_MS)),
    account_id=ACCOUNT_ID,
    carrier_id=1,
    number="+263771200001",
    destination="33123",
    text="Yes, I will be there.",
    parts=1,
    total=2,
    message_id=MESSAGE_ID,
    meaning=None,
    received_at=NOW,
)


def event(type_: str, at: datetime = NOW, data: str | None = None) -> Event:
    return Event(EventId(new_id(NOW_MS)), ACCOUNT_ID, 7, type_, MESSAGE_ID, BATCH_ID, at, data)


def payload(type_: str, message: Message | None, batch: Batch | None = COMPLETED) -> Any:
    return json.loads(write_payload(event(type_), message, batch))


def refunded(message: Message, at: datetime = NOW) -> Message:
    return replace(message, refunded_at=at)


# What each event is written with, and how the row may stand when the event is told again.
LATER: Final = [
    ("message.sent", SENT, SENT),
    ("message.sent", SENT, DELIVERED),
    ("message.sent", SENT, UNDELIVERED),
    ("message.sent", SENT, refunded(UNDELIVERED)),
    ("message.sent", SENT, refunded(replace(UNDELIVERED, status="expired"))),
    ("message.sent", SENT, UNCONFIRMED),
    ("message.unconfirmed", UNCONFIRMED, UNCONFIRMED),
    ("message.unconfirmed", UNCONFIRMED, DELIVERED),
    ("message.unconfirmed", UNCONFIRMED, UNDELIVERED),
    # The clock of the worker that refunds may be behind that of the one before.
    ("message.unconfirmed", UNCONFIRMED, refunded(UNDELIVERED, NOW - timedelta(seconds=1))),
    ("message.unconfirmed", replace(UNCONFIRMED, sent_at=None), replace(DELIVERED, sent_at=None)),
    ("message.delivered", DELIVERED, DELIVERED),
    *(
        (type_, row, later)
        for type_, row in (
            ("message.undelivered", UNDELIVERED),
            ("message.expired", EXPIRED),
            ("message.failed", FAILED),
        )
        for later in (row, refunded(row, NOW + timedelta(days=2)))
    ),
    *(
        (type_, refunded(row), refunded(row))
        for type_, row in (
            ("message.undelivered", UNDELIVERED),
            ("message.expired", EXPIRED),
            ("message.failed", FAILED),
            ("message.refunded", UNDELIVERED),
            ("message.refunded", EXPIRED),
            ("message.refunded", FAILED),
        )
    ),
]


@pytest.mark.parametrize(("type_", "then", "later"), LATER)
def test_an_event_says_the_same_whatever_became_of_its_message(
    type_: str, then: Message, later: Message
) -> None:
    told = event(type_)
    assert write_payload(told, later, COMPLETED) == write_payload(told, then, COMPLETED)


@pytest.mark.parametrize(("type_", "then", "later"), LATER)
def test_an_event_shows_the_message_as_the_api_showed_it_then(
    type_: str, then: Message, later: Message
) -> None:
    data = payload(type_, later)["data"]
    more = {"batch_id": write_id(BATCH, BATCH_ID), "reference": "order-1042"}
    assert data == {**json.loads(write_message(then))["data"], **more}


def test_a_payload_is_small_plain_json_in_one_order() -> None:
    body = write_payload(event("message.delivered"), DELIVERED, COMPLETED)
    assert body.decode() == (
        '{"type":"message.delivered","timestamp":"2026-11-15T08:30:00.123+00:00","sequence":7,"data":{'
        f'"message_id":"{write_id(MESSAGE, MESSAGE_ID)}","to":"+263771200001","country":"ZW",'
        '"status":"delivered","segments":1,"cost":"0.0400","sent_at":"2026-11-15T08:29:55.123+00:00",'
        f'"delivered_at":"2026-11-15T08:30:00.123+00:00","batch_id":"{write_id(BATCH, BATCH_ID)}",'
        '"reference":"order-1042"}}'
    )


def test_a_batch_without_a_reference_has_null_there() -> None:
    assert payload("message.sent", SENT, replace(COMPLETED, reference=None))["data"]["reference"] is None


def test_a_completed_batch_is_told_without_its_messages() -> None:
    told = payload("batch.completed", None, replace(COMPLETED, refunded=Decimal("0.0400")))
    assert told["data"] == {
        "batch_id": write_id(BATCH, BATCH_ID),
        "status": "completed",
        "channel": "sms",
        "reference": "order-1042",
        "recipients": 1,
        "segments": 1,
        "total_cost": "0.0400",
        "refunded": "0.0400",
        "currency": "USD",
        "created_at": "2026-11-15T08:29:51.123+00:00",
    }


def test_an_event_of_a_reply_is_written_from_the_reply() -> None:
    reply_id = write_id(REPLY_PREFIX, REPLY.id)
    told = event("reply.received", data=json.dumps({"reply_id": reply_id}))
    assert reply_of(told) == REPLY.id
    assert reply_of(event("message.sent")) is None
    assert json.loads(write_payload(told, None, None, REPLY))["data"] == {
        "reply_id": reply_id,
        "from": "+263771200001",
        "to": "33123",
        "text": "Yes, I will be there.",
        "complete": False,
        "received_at": "2026-11-15T08:30:00.123+00:00",
        "message_id": write_id(MESSAGE, MESSAGE_ID),
    }
    erased = replace(REPLY, text=None, number="+263•erased", message_id=None)
    data = json.loads(write_payload(told, None, None, erased))["data"]
    assert (data["from"], data["text"], data["message_id"]) == ("+263•erased", None, None)


def test_a_low_balance_and_a_test_say_what_was_kept_with_them() -> None:
    low = event("balance.low", data=low_balance_data(Decimal("0.9600"), Decimal(1)))
    assert json.loads(write_payload(low, None, None))["data"] == {
        "balance": "0.9600",
        "threshold": "1.0000",
        "currency": "USD",
    }
    test = event("webhook.test", data=webhook_test_data())
    assert list(json.loads(write_payload(test, None, None))["data"]) == ["message"]


def test_every_type_has_a_payload_and_only_a_test_cannot_be_chosen() -> None:
    assert tuple(PAYLOADS) == EVENT_TYPES
    assert {type_ for type_, _, _ in LATER} == {one for one in EVENT_TYPES if one.startswith("message.")}
    assert (*SUBSCRIBABLE, "webhook.test") == EVENT_TYPES


@pytest.mark.parametrize("text", ["", "  ", "all"])
def test_all_types_are_chosen_by_naming_none(text: str) -> None:
    assert parse_types(text) is None
    assert all(is_subscribed(None, type_) for type_ in EVENT_TYPES)


def test_some_types_are_chosen_by_name() -> None:
    types = parse_types("batch.completed, message.delivered,batch.completed")
    assert types == ["message.delivered", "batch.completed"]
    assert [type_ for type_ in EVENT_TYPES if is_subscribed(types, type_)] == [*types, "webhook.test"]


@pytest.mark.parametrize("text", ["message.lost", "message.sent,", "all,message.sent", "webhook.test"])
def test_a_type_that_cannot_be_chosen_is_refused_with_the_choices(text: str) -> None:
    with pytest.raises(ValueError, match=r"There is no event .* name some of message\.sent, .*, or all\."):
        parse_types(text)
