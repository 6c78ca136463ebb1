"""Sends and dry runs."""

from decimal import Decimal
from typing import Any, Final

import pytest

from tests.support.api.answers import BATCH_ID, assert_rate_headers, assert_refused
from tests.support.processes.service import Service
from tumira.audit_log import OPERATOR
from tumira.core import errors
from tumira.pricing.actions import add_destination, set_price
from tumira.pricing.destinations import Destination, Price, PriceStatus

ZW: Final = "+263771200001"
ZA: Final = "+27821230001"
FOREIGN: Final = "+15550100"
# Never completed here, and never billed.
LOCAL: Final = "0771200001"
LANDLINE: Final = "+263242000000"
EMOJI: Final = "\N{GRINNING FACE}"

TABLES: Final = ("batches", "messages", "queue", "flows", "transfers", "idempotency_keys")


def zimbabwean(count: int) -> list[str]:
    return [f"+2637712{number:05}" for number in range(count)]


def south_african(count: int) -> list[str]:
    return [f"+2782123{number:04}" for number in range(count)]


def row_counts(service: Service) -> dict[str, int]:
    return {table: service.sql(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


def test_one_call_makes_one_batch_one_debit_and_a_message_for_each_recipient(service: Service) -> None:
    caller = service.open_account()
    before = row_counts(service)
    answer = service.send(caller, to=[f" {ZW}", FOREIGN, ZA, ZW, LOCAL, LANDLINE, f"{ZA}\n"])
    after = row_counts(service)
    assert (answer.status_code, answer.headers["Content-Type"]) == (202, "application/json")
    assert_rate_headers(answer)
    said = answer.json()
    assert BATCH_ID.fullmatch(said["batch_id"])
    assert said == {
        "batch_id": said["batch_id"],
        "accepted": 2,
        "rejected": [
            {"to": FOREIGN, "code": "UNSUPPORTED_DESTINATION"},
            {"to": LOCAL, "code": "INVALID_NUMBER"},
            {"to": LANDLINE, "code": "INVALID_NUMBER"},
        ],
        "segments": 1,
        "total_cost": "0.0600",
        "currency": "USD",
        "balance_after": "99.9400",
    }
    added = {table: after[table] - before[table] for table in TABLES}
    expected = {"batches": 1, "messages": 2, "queue": 2, "flows": 2, "transfers": 1, "idempotency_keys": 0}
    assert added == expected
    assert service.balance(caller) == Decimal("99.94")
    batch = service.call(caller, "GET", f"/batches/{said['batch_id']}").json()["data"]
    assert [message["to"] for message in batch["messages"]] == [ZW, ZA]


def test_a_dry_run_answers_200_stores_and_bills_nothing_and_needs_no_balance(service: Service) -> None:
    caller = service.open_account(balance="0")
    before = row_counts(service)
    for to in (ZW, [ZW, ZA], zimbabwean(100)):
        answer = service.send(caller, {"Idempotency-Key": "dry-run-key"}, to=to, dry_run=True)
        assert answer.status_code == 200
        assert_rate_headers(answer)
    assert service.send(caller, to=[ZW, FOREIGN], dry_run=True).json() == {
        "dry_run": True,
        "accepted": 1,
        "rejected": [{"to": FOREIGN, "code": "UNSUPPORTED_DESTINATION"}],
        "segments": 1,
        "total_cost": "0.0400",
        "currency": "USD",
    }
    assert row_counts(service) == before
    spent = service.sql("SELECT spent_on, spent_today FROM accounts WHERE id = $1", caller.id)[0]
    assert tuple(spent) == (None, 0)
    assert_refused(service.send(caller, to=ZW), errors.InsufficientBalance)


@pytest.mark.parametrize(
    ("to", "body", "total_cost"),
    [
        (ZA, "a", "0.0200"),
        ([*zimbabwean(3), FOREIGN, *south_african(4)], "a" * 161, "0.4000"),
        ([ZW, f"{ZW} ", "nonsense", "nonsense"], EMOJI * 40, "0.0800"),
        ([*zimbabwean(60), *south_african(40)], "a" * 307, "9.6000"),
        (zimbabwean(1000), "я" * 71, "80.0000"),
    ],
)
def test_cost_is_recipients_times_segments_times_the_rate_and_a_dry_run_says_it(
    service: Service, to: Any, body: str, total_cost: str
) -> None:
    caller = service.open_account()
    dry = service.send(caller, to=to, body=body, dry_run=True).json()
    live = service.send(caller, to=to, body=body).json()
    assert live["total_cost"] == total_cost
    assert live["balance_after"] == f"{100 - Decimal(total_cost):.4f}"
    assert service.balance(caller) == 100 - Decimal(total_cost)
    del dry["dry_run"], live["batch_id"], live["balance_after"]
    assert dry == live


def test_a_dry_run_is_refused_as_the_live_send_would_be(service: Service) -> None:
    caller = service.open_account()
    faulty: list[dict[str, Any]] = [{"to": []}, {"channel": "fax"}, {"sender": "Shop"}, {"to": [ZW] * 1001}]
    for fields in faulty:
        dry, live = (
            service.send(caller, {"X-Request-Id": "same"}, dry_run=dry_run, **fields)
            for dry_run in (True, False)
        )
        assert (dry.status_code, dry.content) == (live.status_code, live.content)


@pytest.mark.parametrize("to", [FOREIGN, [FOREIGN, "nonsense"]])
def test_when_all_are_rejected_an_empty_batch_is_completed_at_once_and_costs_nothing(
    service: Service, to: str | list[str]
) -> None:
    caller = service.open_account(balance="0")
    answer = service.send(caller, to=to)
    assert (answer.status_code, answer.json()["accepted"]) == (202, 0)
    assert answer.json()["total_cost"] == answer.json()["balance_after"] == "0.0000"
    batch = service.call(caller, "GET", f"/batches/{answer.json()['batch_id']}").json()["data"]
    assert (batch["status"], batch["recipients"], batch["messages"]) == ("completed", 0, [])


@pytest.mark.parametrize(
    ("body", "segments", "encoding", "forced"),
    [("a" * 766, 6, "GSM-7", []), ("я" * 336, 6, "UCS-2", ["я"]), (EMOJI * 166, 6, "UCS-2", [EMOJI])],
)
def test_at_most_five_segments_are_sent(
    service: Service, body: str, segments: int, encoding: str, forced: list[str]
) -> None:
    caller = service.open_account()
    assert service.send(caller, body=body[:-1]).json()["segments"] == 5
    detail = assert_refused(service.send(caller, body=body), errors.TooManySegments)["details"][0]
    assert (detail["field"], detail["segments"], detail["segments_max"]) == ("body", segments, 5)
    assert (detail["encoding"], detail["ucs2_characters"]) == (encoding, forced)


def test_a_thousand_recipients_are_taken_and_one_more_is_refused(service: Service) -> None:
    caller = service.open_account()
    thousand = zimbabwean(1000)
    assert service.send(caller, to=thousand).json()["accepted"] == 1000
    for to in ([*thousand, ZA], [ZW] * 1001):
        detail = assert_refused(service.send(caller, to=to), errors.TooManyRecipients)["details"][0]
        assert (detail["field"], detail["recipients"], detail["recipients_max"]) == ("to", 1001, 1000)
    assert service.balance(caller) == 60


@pytest.mark.parametrize("numbers", [zimbabwean(126), south_african(251)], ids=["ZW", "ZA"])
def test_five_dollars_buy_exactly_as_many_messages_as_promised(service: Service, numbers: list[str]) -> None:
    caller = service.open_account(balance="5")
    assert_refused(service.send(caller, to=numbers), errors.InsufficientBalance)
    assert service.send(caller, to=numbers[1:]).json()["balance_after"] == "0.0000"
    assert_refused(service.send(caller, to=numbers[0]), errors.InsufficientBalance)


def test_a_new_country_is_a_row_and_can_be_sent_to_from_the_next_call(service: Service) -> None:
    caller, number = service.open_account(), "+999771200001"

    def verdict() -> tuple[int, str, list[dict[str, str]]]:
        document = service.send(caller, to=number).json()
        return document["accepted"], document["total_cost"], document["rejected"]

    refused = (0, "0.0000", [{"to": number, "code": "UNSUPPORTED_DESTINATION"}])
    assert verdict() == refused
    service.run(add_destination, Destination("XX", "999", "Nowhere", (9,)), OPERATOR)
    service.run(set_price, Price("sms", "XX", Decimal("0.01"), PriceStatus.COMING_SOON), OPERATOR)
    assert verdict() == refused
    service.run(set_price, Price("sms", "XX", Decimal("0.03"), PriceStatus.ACTIVE), OPERATOR)
    assert verdict() == (1, "0.0300", [])
