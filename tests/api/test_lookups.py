"""Looking up batches, messages, the balance and prices."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import httpx
import pytest

from tests.support.api.answers import (
    BATCH_ID,
    MESSAGE_ID,
    MONEY,
    RATE_HEADERS,
    TIME,
    Shape,
    assert_rate_headers,
    assert_refused,
    assert_shape,
)
from tests.support.processes.service import Caller, Service
from tumira.core import errors
from tumira.core.ids import BATCH, MESSAGE, read_id, write_id
from tumira.identity.manage_accounts import credit

ZW: Final = "+263771200001"
ZA: Final = "+27821230001"

NONE: Final = type(None)
BATCH_VIEW: Final[Shape] = {
    "batch_id": BATCH_ID,
    "status": str,
    "channel": str,
    "reference": str,
    "recipients": int,
    "segments": int,
    "total_cost": MONEY,
    "refunded": MONEY,
    "currency": str,
    "created_at": TIME,
    "messages": list,
}
MESSAGE_VIEW: Final[Shape] = {
    "message_id": MESSAGE_ID,
    "to": str,
    "country": str,
    "status": str,
    "segments": int,
    "cost": MONEY,
    "sent_at": NONE,
    "delivered_at": NONE,
}
PRICE_VIEW: Final[Shape] = {"channel": str, "country": str, "price_usd": MONEY, "status": str}


def get_batch(service: Service, caller: Caller, batch_id: str) -> dict[str, Any]:
    answer = service.call(caller, "GET", f"/batches/{batch_id}")
    assert answer.status_code == 200, answer.text
    assert_rate_headers(answer)
    assert_shape(answer.json(), {"data": dict})
    data: dict[str, Any] = answer.json()["data"]
    return data


def get_message(service: Service, caller: Caller, message_id: str) -> dict[str, Any]:
    answer = service.call(caller, "GET", f"/messages/{message_id}")
    assert answer.status_code == 200, answer.text
    assert_rate_headers(answer)
    assert_shape(answer.json(), {"data": dict})
    data: dict[str, Any] = answer.json()["data"]
    return data


def send(service: Service, caller: Caller, **fields: Any) -> dict[str, Any]:
    answer = service.send(caller, **fields)
    assert answer.status_code == 202, answer.text
    return get_batch(service, caller, answer.json()["batch_id"])


def set_on_message(service: Service, message_id: str, **columns: Any) -> None:
    changes = ", ".join(f"{column} = ${place}" for place, column in enumerate(columns, start=2))
    service.sql(
        f"UPDATE messages SET {changes} WHERE id = $1", read_id(MESSAGE, message_id), *columns.values()
    )


def test_a_batch_has_exactly_the_fields_of_the_specification(service: Service) -> None:
    caller = service.open_account()
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    batch = send(service, caller, to=[ZW, ZA], body="a" * 161, reference="order-1042")
    assert_shape(batch, BATCH_VIEW)
    assert before <= datetime.fromisoformat(batch["created_at"]) <= datetime.now(UTC)
    del batch["messages"], batch["created_at"], batch["batch_id"]
    assert batch == {
        "status": "queued",
        "channel": "sms",
        "reference": "order-1042",
        "recipients": 2,
        "segments": 2,
        "total_cost": "0.1200",
        "refunded": "0.0000",
        "currency": "USD",
    }


def test_a_message_has_exactly_the_fields_of_the_specification(service: Service) -> None:
    caller = service.open_account()
    listed = send(service, caller, to=[ZW, ZA], body="a" * 161)["messages"]
    assert [message["to"] for message in listed] == [ZW, ZA]
    assert [message["country"] for message in listed] == ["ZW", "ZA"]
    assert [message["cost"] for message in listed] == ["0.0800", "0.0400"]
    for message in listed:
        assert_shape(message, MESSAGE_VIEW)
        assert (message["status"], message["segments"]) == ("queued", 2)
        assert get_message(service, caller, message["message_id"]) == message


@pytest.mark.parametrize("count", [50, 1000])
def test_messages_stand_in_the_order_of_the_recipients(service: Service, count: int) -> None:
    caller = service.open_account()
    to = [f"+2637712{number * 7919 % 100_000:05}" for number in range(count // 2)]
    to += [f"+2782123{number * 7919 % 10_000:04}" for number in range(count // 2, count)]
    batch = send(service, caller, to=to)
    assert [message["to"] for message in batch["messages"]] == to
    message_ids = [message["message_id"] for message in batch["messages"]]
    assert message_ids == sorted(message_ids)


@pytest.mark.parametrize("fields", [{}, {"reference": "order-1042"}, {"reference": "  rändiges \N{KEY} "}])
def test_the_reference_is_returned_as_sent_and_null_when_none_was_given(
    service: Service, fields: dict[str, str]
) -> None:
    batch = send(service, service.open_account(), **fields)
    assert batch["reference"] == fields.get("reference")
    assert_shape(batch, BATCH_VIEW if fields else {**BATCH_VIEW, "reference": NONE})


def test_sent_at_and_delivered_at_are_null_until_they_are_known(service: Service) -> None:
    caller = service.open_account()
    message_id = send(service, caller)["messages"][0]["message_id"]
    assert_shape(get_message(service, caller, message_id), MESSAGE_VIEW)
    set_on_message(service, message_id, status="sent", sent_at=datetime(2026, 3, 1, 8, 5, 9, 7000, UTC))
    message = get_message(service, caller, message_id)
    assert_shape(message, {**MESSAGE_VIEW, "sent_at": TIME})
    assert message["sent_at"] == "2026-03-01T08:05:09.007+00:00"
    harare = datetime.fromisoformat("2026-03-01T10:05:12.345678+02:00")
    set_on_message(service, message_id, status="delivered", delivered_at=harare)
    message = get_message(service, caller, message_id)
    assert_shape(message, {**MESSAGE_VIEW, "sent_at": TIME, "delivered_at": TIME})
    assert message["delivered_at"] == "2026-03-01T08:05:12.345+00:00"
    assert message["status"] == "delivered"


def test_failure_reason_and_refunded_at_are_absent_until_they_are_set(service: Service) -> None:
    caller = service.open_account()
    batch = send(service, caller, to=[ZW, ZA])
    message_id, other_id = (message["message_id"] for message in batch["messages"])
    set_on_message(service, message_id, status="failed", failure_reason="UNKNOWN_SUBSCRIBER")
    message = get_message(service, caller, message_id)
    assert_shape(message, {**MESSAGE_VIEW, "failure_reason": str})
    assert message["failure_reason"] == "UNKNOWN_SUBSCRIBER"
    set_on_message(service, message_id, refunded_at=datetime(2026, 3, 1, 8, 5, 9, 0, UTC))
    message = get_message(service, caller, message_id)
    assert_shape(message, {**MESSAGE_VIEW, "failure_reason": str, "refunded_at": TIME})
    assert message["refunded_at"] == "2026-03-01T08:05:09.000+00:00"
    assert_shape(get_message(service, caller, other_id), MESSAGE_VIEW)
    assert get_batch(service, caller, batch["batch_id"])["messages"][0] == message


def test_costs_are_not_lowered_by_refunds(service: Service) -> None:
    caller = service.open_account()
    batch = send(service, caller, to=[ZW, ZA])
    message_id = batch["messages"][0]["message_id"]
    set_on_message(service, message_id, status="expired", refunded_at=datetime.now(UTC))
    service.sql("UPDATE batches SET refunded = 0.04 WHERE id = $1", read_id(BATCH, batch["batch_id"]))
    after = get_batch(service, caller, batch["batch_id"])
    assert (after["total_cost"], after["refunded"]) == ("0.0600", "0.0400")
    assert [message["cost"] for message in after["messages"]] == ["0.0400", "0.0200"]


@pytest.mark.parametrize(
    ("balance", "shown"),
    [("0.0190", "0.0190"), ("1234567", "1234567.0000")],
)
def test_the_balance_has_exactly_its_two_fields(service: Service, balance: str, shown: str) -> None:
    answer = service.call(service.open_account(balance=balance), "GET", "/balance")
    assert answer.status_code == 200
    assert_rate_headers(answer)
    assert_shape(answer.json(), {"balance": MONEY, "currency": str})
    assert answer.json() == {"balance": shown, "currency": "USD"}


def test_the_balance_follows_sends_and_credits_at_once(service: Service) -> None:
    caller = service.open_account(balance="5")
    after = service.send(caller).json()["balance_after"]
    assert service.call(caller, "GET", "/balance").json()["balance"] == after == "4.9600"
    service.run(credit, caller.id, Decimal(1), note="Gift", actor="test")
    assert service.call(caller, "GET", "/balance").json()["balance"] == "5.9600"


def test_pricing_lists_active_and_announced_prices_with_exactly_their_fields(service: Service) -> None:
    answer = service.call(service.open_account(), "GET", "/pricing")
    assert answer.status_code == 200
    assert_rate_headers(answer)
    assert_shape(answer.json(), {"data": list, "currency": str})
    assert answer.json()["currency"] == "USD"
    for price in answer.json()["data"]:
        assert_shape(price, PRICE_VIEW)
    prices = {
        (price["channel"], price["country"], price["status"], price["price_usd"])
        for price in answer.json()["data"]
    }
    assert len(answer.json()["data"]) == len(prices)
    assert prices == {
        ("sms", "ZW", "active", "0.0400"),
        ("sms", "ZA", "active", "0.0200"),
        ("sms", "ZW", "coming_soon", "0.0190"),
    }


def without_request_id(answer: httpx.Response) -> tuple[int, bytes, dict[str, str]]:
    body = answer.content.replace(answer.headers["X-Request-Id"].encode(), b"")
    varying = {"x-request-id", "date", *(name.lower() for name in RATE_HEADERS)}
    return (
        answer.status_code,
        body,
        {name: value for name, value in answer.headers.items() if name not in varying},
    )


MISSPELLINGS: Final[dict[str, Callable[[str], str]]] = {
    "upper case": str.upper,
    "one digit less": lambda text: text[:-1],
    "one digit more": lambda text: text + "0",
    "a letter outside the alphabet": lambda text: text[:-1] + "u",
    "other digits": lambda text: text[:-1] + "%D9%A3",
    "no prefix": lambda text: text[4:],
    "only the prefix": lambda text: text[:4],
    "the account's prefix": lambda text: "acc_" + text[4:],
    "the other endpoint's prefix": lambda text: ("msg_" if text.startswith("bat_") else "bat_") + text[4:],
    "over 128 bits": lambda text: text[:4] + "z" * 26,
    "nil": lambda text: text[:4] + "0" * 26,
    "white space": lambda text: text + "%20",
    "a NUL": lambda text: text + "%00",
    "not UTF-8": lambda text: text[:4] + "%FF",
    "SQL": lambda text: text + "'%20OR%20true--",
    "very long": lambda text: text * 100,
}


@pytest.mark.parametrize(("path", "prefix"), [("/batches/", BATCH), ("/messages/", MESSAGE)])
def test_foreign_unknown_and_malformed_ids_get_one_and_the_same_answer(
    service: Service, path: str, prefix: str
) -> None:
    owner, stranger = service.open_account(), service.open_account()
    batch = send(service, owner)
    own_id = batch["batch_id"] if prefix == BATCH else batch["messages"][0]["message_id"]
    identifier = read_id(prefix, own_id)
    assert identifier is not None
    unknown_id = write_id(prefix, type(identifier)(int=identifier.int ^ 1))
    assert service.call(owner, "GET", path + own_id).status_code == 200
    foreign = service.call(stranger, "GET", path + own_id)
    assert_refused(foreign, errors.NotFound)
    assert_rate_headers(foreign)
    expected = without_request_id(foreign)
    assert without_request_id(service.call(owner, "GET", path + unknown_id)) == expected
    for name, misspell in MISSPELLINGS.items():
        for caller in (owner, stranger):
            answer = service.call(caller, "GET", path + misspell(own_id))
            assert without_request_id(answer) == expected, name


def test_the_batchs_status_is_shown_as_it_stands(service: Service) -> None:
    caller = service.open_account()
    batch_id = send(service, caller)["batch_id"]
    for status in ("queued", "processing", "completed"):
        service.sql("UPDATE batches SET status = $1 WHERE id = $2", status, read_id(BATCH, batch_id))
        assert get_batch(service, caller, batch_id)["status"] == status


def test_lookups_change_nothing_but_the_window(service: Service) -> None:
    caller = service.open_account()
    batch = send(service, caller)
    for _ in range(2):
        assert get_batch(service, caller, batch["batch_id"]) == batch
        assert service.balance(caller) == Decimal("99.96")
