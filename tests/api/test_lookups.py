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


def get(service: Service, caller: Caller, path: str) -> dict[str, Any]:
    answer = service.call(caller, "GET", path)
    assert answer.status_code == 200, answer.text
    assert_rate_headers(answer)
    assert_shape(answer.json(), {"data": dict})
    data: dict[str, Any] = answer.json()["data"]
    return data


def send(service: Service, caller: Caller, **fields: Any) -> dict[str, Any]:
    answer = service.send(caller, **fields)
    assert answer.status_code == 202, answer.text
    return get(service, caller, f"/batches/{answer.json()['batch_id']}")


def test_a_batch_and_its_messages_have_exactly_the_fields_of_the_specification(service: Service) -> None:
    caller = service.open_account()
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    batch = send(service, caller, to=[ZW, ZA], body="a" * 161, reference="order-1042")
    assert_shape(batch, BATCH_VIEW)
    assert before <= datetime.fromisoformat(batch["created_at"]) <= datetime.now(UTC)
    messages = batch.pop("messages")
    assert [(message["to"], message["country"], message["cost"]) for message in messages] == [
        (ZW, "ZW", "0.0800"),
        (ZA, "ZA", "0.0400"),
    ]
    for message in messages:
        assert_shape(message, MESSAGE_VIEW)
        assert (message["status"], message["segments"]) == ("queued", 2)
        assert get(service, caller, f"/messages/{message['message_id']}") == message
    del batch["created_at"], batch["batch_id"]
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


@pytest.mark.parametrize("count", [50, 1000])
def test_messages_stand_in_the_order_of_the_recipients(service: Service, count: int) -> None:
    to = [f"+2637712{number * 7919 % 100_000:05}" for number in range(count // 2)]
    to += [f"+2782123{number * 7919 % 10_000:04}" for number in range(count // 2, count)]
    messages = send(service, service.open_account(), to=to)["messages"]
    assert [message["to"] for message in messages] == to
    message_ids = [message["message_id"] for message in messages]
    assert message_ids == sorted(message_ids)


def test_the_reference_is_returned_as_sent_and_null_when_none_was_given(service: Service) -> None:
    caller = service.open_account()
    for reference in ("", "  rändiges \N{KEY} ", "r" * 64, "\N{KEY}" * 64, ' "\\\n'):
        assert send(service, caller, reference=reference)["reference"] == reference
    assert_shape(send(service, caller), {**BATCH_VIEW, "reference": NONE})


def test_fields_are_null_or_absent_until_they_are_known_and_costs_are_not_lowered(service: Service) -> None:
    caller = service.open_account()
    batch = send(service, caller, to=[ZW, ZA])
    batch_id, paths = batch["batch_id"], [f"/messages/{one['message_id']}" for one in batch["messages"]]

    def change(**columns: Any) -> dict[str, Any]:
        changes = ", ".join(f"{column} = ${place}" for place, column in enumerate(columns, start=2))
        message_id = read_id(MESSAGE, batch["messages"][0]["message_id"])
        service.sql(f"UPDATE messages SET {changes} WHERE id = $1", message_id, *columns.values())
        return get(service, caller, paths[0])

    message = change(status="sent", sent_at=datetime(2026, 3, 1, 8, 5, 9, 7000, UTC))
    assert_shape(message, {**MESSAGE_VIEW, "sent_at": TIME})
    assert message["sent_at"] == "2026-03-01T08:05:09.007+00:00"
    harare = datetime.fromisoformat("2026-03-01T10:05:12.345678+02:00")
    message = change(status="delivered", delivered_at=harare)
    assert_shape(message, {**MESSAGE_VIEW, "sent_at": TIME, "delivered_at": TIME})
    assert (message["status"], message["delivered_at"]) == ("delivered", "2026-03-01T08:05:12.345+00:00")
    message = change(status="failed", sent_at=None, delivered_at=None, failure_reason="UNKNOWN_SUBSCRIBER")
    assert_shape(message, {**MESSAGE_VIEW, "failure_reason": str})
    message = change(refunded_at=datetime(2026, 3, 1, 8, 5, 9, 0, UTC))
    assert_shape(message, {**MESSAGE_VIEW, "failure_reason": str, "refunded_at": TIME})
    assert message["refunded_at"] == "2026-03-01T08:05:09.000+00:00"
    assert_shape(get(service, caller, paths[1]), MESSAGE_VIEW)

    for status in ("processing", "completed"):
        statement = "UPDATE batches SET refunded = 0.04, status = $1 WHERE id = $2"
        service.sql(statement, status, read_id(BATCH, batch_id))
        after = get(service, caller, f"/batches/{batch_id}")
        assert (after["status"], after["total_cost"], after["refunded"]) == (status, "0.0600", "0.0400")
    assert after["messages"][0] == message
    assert [one["cost"] for one in after["messages"]] == ["0.0400", "0.0200"]
    assert service.balance(caller) == Decimal("99.94"), "looking up changes nothing"


def test_the_balance_follows_sends_and_credits_at_once(service: Service) -> None:
    caller = service.open_account(balance="1234567")

    def look() -> Any:
        answer = service.call(caller, "GET", "/balance")
        assert_rate_headers(answer)
        return answer.json()

    assert look() == {"balance": "1234567.0000", "currency": "USD"}
    assert service.send(caller).json()["balance_after"] == look()["balance"] == "1234566.9600"
    service.run(credit, caller.id, Decimal("0.0190"), note="Gift", actor="test")
    assert look()["balance"] == "1234566.9790"


def test_pricing_lists_active_and_announced_prices_with_exactly_their_fields(service: Service) -> None:
    answer = service.call(service.open_account(), "GET", "/pricing")
    assert_rate_headers(answer)
    said = answer.json()
    assert set(said) == {"data", "currency"}
    assert said["currency"] == "USD"
    names = ("channel", "country", "status", "price_usd")
    assert all(set(price) == set(names) for price in said["data"])
    assert sorted(tuple(price[name] for name in names) for price in said["data"]) == [
        ("sms", "ZA", "active", "0.0200"),
        ("sms", "ZW", "active", "0.0400"),
        ("sms", "ZW", "coming_soon", "0.0190"),
    ]


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
    "a letter outside the alphabet": lambda text: text[:-1] + "u",
    "other digits": lambda text: text[:-1] + "%D9%A3",
    "the account's prefix": lambda text: "acc_" + text[4:],
    "the other endpoint's prefix": lambda text: ("msg_" if text.startswith("bat_") else "bat_") + text[4:],
    "over 128 bits": lambda text: text[:4] + "z" * 26,
    "a NUL": lambda text: text + "%00",
    "not UTF-8": lambda text: text[:4] + "%FF",
    "SQL": lambda text: text + "'%20OR%20true--",
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
