"""Sends and dry runs."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any, Final

import httpx
import pytest

from tests.support.api.answers import (
    BATCH_ID,
    MONEY,
    Shape,
    assert_rate_headers,
    assert_refused,
    assert_shape,
)
from tests.support.processes.service import Caller, Service
from tumira.audit_log import OPERATOR
from tumira.core import errors
from tumira.pricing.actions import add_destination, set_price
from tumira.pricing.destinations import Destination, Price, PriceStatus

ZW: Final = "+263771200001"
ZA: Final = "+27821230001"
FOREIGN: Final = "+15550100"
EMOJI: Final = "\N{GRINNING FACE}"
NO_BREAK_SPACE: Final = "\N{NO-BREAK SPACE}"

SEND_RESPONSE: Final[Shape] = {
    "batch_id": BATCH_ID,
    "accepted": int,
    "rejected": list,
    "segments": int,
    "total_cost": MONEY,
    "currency": str,
    "balance_after": MONEY,
}
DRY_RUN_RESPONSE: Final[Shape] = {
    "dry_run": bool,
    "accepted": int,
    "rejected": list,
    "segments": int,
    "total_cost": MONEY,
    "currency": str,
}
BOTH_SAY: Final = ("accepted", "rejected", "segments", "total_cost", "currency")
TABLES: Final = ("batches", "messages", "queue", "flows", "transfers", "idempotency_keys")


def zimbabwean(count: int, first: int = 0) -> list[str]:
    return [f"+2637712{number:05}" for number in range(first, first + count)]


def south_african(count: int) -> list[str]:
    return [f"+2782123{number:04}" for number in range(count)]


def numbers_of(service: Service, caller: Caller, answer: httpx.Response) -> list[str]:
    batch = service.call(caller, "GET", f"/batches/{answer.json()['batch_id']}").json()["data"]
    return [message["to"] for message in batch["messages"]]


def row_counts(service: Service) -> dict[str, int]:
    return {table: service.sql(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


def test_a_live_send_answers_202_with_exactly_the_fields_of_the_specification(service: Service) -> None:
    answer = service.send(service.open_account(), to=[ZW, FOREIGN])
    assert answer.status_code == 202
    assert answer.headers["Content-Type"] == "application/json"
    assert_shape(answer.json(), SEND_RESPONSE)
    assert_rate_headers(answer)
    assert answer.json() == {
        "batch_id": answer.json()["batch_id"],
        "accepted": 1,
        "rejected": [{"to": FOREIGN, "code": "UNSUPPORTED_DESTINATION"}],
        "segments": 1,
        "total_cost": "0.0400",
        "currency": "USD",
        "balance_after": "99.9600",
    }


def test_a_dry_run_answers_200_with_exactly_its_fields(service: Service) -> None:
    answer = service.send(service.open_account(), to=[ZW, FOREIGN], dry_run=True)
    assert answer.status_code == 200
    assert_shape(answer.json(), DRY_RUN_RESPONSE)
    assert_rate_headers(answer)
    assert answer.json() == {
        "dry_run": True,
        "accepted": 1,
        "rejected": [{"to": FOREIGN, "code": "UNSUPPORTED_DESTINATION"}],
        "segments": 1,
        "total_cost": "0.0400",
        "currency": "USD",
    }


def test_one_call_makes_one_batch_one_debit_and_a_message_for_each_recipient(service: Service) -> None:
    caller = service.open_account()
    before = row_counts(service)
    answer = service.send(caller, to=[ZW, ZA, FOREIGN, ZW])
    after = row_counts(service)
    added = {table: after[table] - before[table] for table in ("batches", "messages", "queue", "transfers")}
    assert added == {"batches": 1, "messages": 2, "queue": 2, "transfers": 1}
    assert answer.json()["balance_after"] == "99.9400"
    assert service.balance(caller) == Decimal("99.94")


def test_a_single_string_is_a_single_recipient(service: Service) -> None:
    caller = service.open_account()
    single, listed = service.send(caller, to=ZW), service.send(caller, to=[ZW])
    assert numbers_of(service, caller, single) == numbers_of(service, caller, listed) == [ZW]
    for answer in (single, listed):
        assert answer.json()["accepted"] == 1
        assert answer.json()["rejected"] == []


def test_duplicates_merge_after_trimming_and_keep_the_first_place(service: Service) -> None:
    caller = service.open_account()
    to = [f" {ZW}", ZA, ZW, f"{ZA}\n", "+263771200002", f"{ZW}\t", f"{NO_BREAK_SPACE}{ZA}"]
    answer = service.send(caller, to=to)
    assert answer.json()["accepted"] == 3
    assert answer.json()["rejected"] == []
    assert answer.json()["total_cost"] == "0.1000"
    assert numbers_of(service, caller, answer) == [ZW, ZA, "+263771200002"]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (FOREIGN, "UNSUPPORTED_DESTINATION"),
        ("+447700900123", "UNSUPPORTED_DESTINATION"),
        ("+2607712000", "UNSUPPORTED_DESTINATION"),
        ("+1555010", "UNSUPPORTED_DESTINATION"),
        ("+155501001234567", "UNSUPPORTED_DESTINATION"),
        ("+155501", "INVALID_NUMBER"),
        ("+1555010012345678", "INVALID_NUMBER"),
        ("+26377120000", "INVALID_NUMBER"),
        ("+2637712000011", "INVALID_NUMBER"),
        ("+2782123000", "INVALID_NUMBER"),
        ("+278212300011", "INVALID_NUMBER"),
        ("263771200001", "INVALID_NUMBER"),
        ("00263771200001", "INVALID_NUMBER"),
        ("0771200001", "INVALID_NUMBER"),
        ("+263 771 200 001", "INVALID_NUMBER"),
        ("+263-771-200-001", "INVALID_NUMBER"),
        ("tel:+263771200001", "INVALID_NUMBER"),
        ("+26377120000O", "INVALID_NUMBER"),
        ("+٢٦٣٧٧١٢٠٠٠٠١", "INVALID_NUMBER"),
        ("++263771200001", "INVALID_NUMBER"),
        ("+", "INVALID_NUMBER"),
        (" ", "INVALID_NUMBER"),
        ("", "INVALID_NUMBER"),
    ],
)
def test_a_number_that_is_not_sent_to_is_rejected_with_its_reason_and_the_rest_proceeds(
    service: Service, number: str, code: str
) -> None:
    answer = service.send(service.open_account(), to=[number, ZW])
    assert answer.status_code == 202
    assert_shape(answer.json()["rejected"][0], {"to": str, "code": str})
    assert answer.json()["rejected"] == [{"to": number, "code": code}]
    assert answer.json()["accepted"] == 1
    assert answer.json()["total_cost"] == "0.0400"


def test_rejected_echoes_the_callers_text_in_the_order_given_and_once_for_duplicates(
    service: Service,
) -> None:
    to = [f" {FOREIGN}", ZW, "nonsense", FOREIGN, "nonsense ", "+447700900123", ZA]
    answer = service.send(service.open_account(), to=to)
    assert answer.json()["rejected"] == [
        {"to": f" {FOREIGN}", "code": "UNSUPPORTED_DESTINATION"},
        {"to": "nonsense", "code": "INVALID_NUMBER"},
        {"to": "+447700900123", "code": "UNSUPPORTED_DESTINATION"},
    ]


@pytest.mark.parametrize("to", [FOREIGN, [FOREIGN, "nonsense"]])
def test_when_all_are_rejected_an_empty_batch_is_completed_at_once_and_costs_nothing(
    service: Service, to: str | list[str]
) -> None:
    caller = service.open_account(balance="0")
    answer = service.send(caller, to=to)
    assert answer.status_code == 202
    assert_shape(answer.json(), SEND_RESPONSE)
    assert answer.json()["accepted"] == 0
    assert len(answer.json()["rejected"]) == (1 if isinstance(to, str) else len(to))
    assert answer.json()["total_cost"] == answer.json()["balance_after"] == "0.0000"
    batch = service.call(caller, "GET", f"/batches/{answer.json()['batch_id']}").json()["data"]
    assert (batch["status"], batch["recipients"], batch["messages"]) == ("completed", 0, [])
    assert service.send(caller, to=to, dry_run=True).status_code == 200


@pytest.mark.parametrize(
    ("zimbabweans", "south_africans", "body", "total_cost"),
    [
        (1, 0, "a", "0.0400"),
        (0, 1, "a", "0.0200"),
        (3, 4, "a", "0.2000"),
        (3, 4, "a" * 161, "0.4000"),
        (2, 1, EMOJI * 36, "0.2000"),
        (7, 11, "a" * 765, "2.5000"),
        (60, 40, "a" * 307, "9.6000"),
    ],
)
def test_cost_is_recipients_times_segments_times_the_rate_of_each_country(
    service: Service, zimbabweans: int, south_africans: int, body: str, total_cost: str
) -> None:
    caller = service.open_account()
    to = [*zimbabwean(zimbabweans), FOREIGN, *south_african(south_africans)]
    answer = service.send(caller, to=to, body=body)
    assert answer.status_code == 202
    assert answer.json()["total_cost"] == total_cost
    assert answer.json()["balance_after"] == f"{100 - Decimal(total_cost):.4f}"
    assert service.balance(caller) == 100 - Decimal(total_cost)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("body", "segments"),
    [
        ("a", 1),
        ("a" * 160, 1),
        ("a" * 161, 2),
        ("a" * 306, 2),
        ("a" * 307, 3),
        ("a" * 765, 5),
        ("a" * 766, 6),
        ("€" * 80, 1),
        ("€" * 80 + "a", 2),
        ("я" * 70, 1),
        ("я" * 71, 2),
        ("я" * 134, 2),
        ("я" * 135, 3),
        ("я" * 335, 5),
        ("я" * 336, 6),
        (EMOJI * 35, 1),
        (EMOJI * 36, 2),
        # No pair of UTF-16 units is cut, so a part of 67 holds 33 emoji.
        (EMOJI * 165, 5),
        (EMOJI * 166, 6),
    ],
)
def test_segments_are_counted_by_encoding_and_at_most_five_are_sent(
    service: Service, body: str, segments: int, *, dry_run: bool
) -> None:
    caller = service.open_account()
    answer = service.send(caller, body=body, dry_run=dry_run)
    if segments > 5:
        detail = assert_refused(answer, errors.TooManySegments)["details"][0]
        assert (detail["field"], detail["segments"], detail["segments_max"]) == ("body", segments, 5)
        assert detail["encoding"] == ("GSM-7" if body.startswith("a") else "UCS-2")
        assert detail["ucs2_characters"] == ([] if body.startswith("a") else [body[0]])
        assert service.balance(caller) == 100
    else:
        assert answer.status_code == (200 if dry_run else 202)
        assert answer.json()["segments"] == segments
        assert answer.json()["total_cost"] == f"{segments * Decimal('0.04'):.4f}"


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_thousand_recipients_are_taken_and_one_more_is_refused(service: Service, *, dry_run: bool) -> None:
    caller = service.open_account()
    thousand = zimbabwean(1000)
    assert service.send(caller, to=thousand, dry_run=dry_run).json()["accepted"] == 1000
    balance = service.balance(caller)
    for to in ([*thousand, ZA], [ZW] * 1001):
        detail = assert_refused(service.send(caller, to=to, dry_run=dry_run), errors.TooManyRecipients)[
            "details"
        ][0]
        assert (detail["field"], detail["recipients"], detail["recipients_max"]) == ("to", 1001, 1000)
    assert service.balance(caller) == balance == (100 if dry_run else 60)


def test_a_dry_run_stores_and_bills_nothing_and_needs_no_balance(service: Service) -> None:
    caller = service.open_account(balance="0")
    before = row_counts(service)
    for to in (ZW, [ZW, ZA, FOREIGN], zimbabwean(100)):
        answer = service.send(caller, {"Idempotency-Key": "dry-run-key"}, to=to, dry_run=True)
        assert answer.status_code == 200
    assert row_counts(service) == before
    spent = service.sql("SELECT spent_on, spent_today FROM accounts WHERE id = $1", caller.id)[0]
    assert tuple(spent) == (None, 0)
    assert_refused(service.send(caller, to=ZW), errors.InsufficientBalance)


@pytest.mark.parametrize(
    ("to", "body"),
    [
        (ZW, "a"),
        ([ZW, ZA, FOREIGN], "a" * 161),
        ([ZW, f"{ZW} ", "nonsense", "nonsense"], EMOJI * 40),
        ([FOREIGN], "a"),
        (zimbabwean(51), "a"),
        (zimbabwean(1000), "я" * 71),
    ],
)
def test_a_dry_run_says_what_the_live_send_then_does(service: Service, to: Any, body: str) -> None:
    caller = service.open_account()
    dry = service.send(caller, to=to, body=body, dry_run=True).json()
    live = service.send(caller, to=to, body=body).json()
    assert {field: dry[field] for field in BOTH_SAY} == {field: live[field] for field in BOTH_SAY}
    assert service.balance(caller) == 100 - Decimal(dry["total_cost"])


@pytest.mark.parametrize(
    "fields",
    [{"to": []}, {"body": ""}, {"channel": "fax"}, {"channel": "telegram"}, {"sender": "Shop"}, {"to": 5}],
)
def test_a_dry_run_is_refused_as_the_live_send_would_be(service: Service, fields: dict[str, Any]) -> None:
    caller = service.open_account()
    dry = service.send(caller, {"X-Request-Id": "same"}, dry_run=True, **fields)
    live = service.send(caller, {"X-Request-Id": "same"}, dry_run=False, **fields)
    assert (dry.status_code, dry.content) == (live.status_code, live.content)


@pytest.mark.parametrize(
    ("prefix", "digits", "count"), [("+2637712", 5, 125), ("+2782123", 4, 250)], ids=["ZW", "ZA"]
)
def test_five_dollars_buy_exactly_as_many_messages_as_promised(
    service: Service, prefix: str, digits: int, count: int
) -> None:
    numbers: Sequence[str] = [f"{prefix}{number:0{digits}}" for number in range(count + 1)]
    one_call, single_calls = (service.open_account(balance="5", rate=1000) for _ in range(2))
    assert_refused(service.send(one_call, to=numbers), errors.InsufficientBalance)
    assert service.send(one_call, to=numbers[:count]).json()["balance_after"] == "0.0000"
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: service.send(single_calls, to=number), numbers))
    assert Counter(answer.status_code for answer in answers) == {202: count, 402: 1}
    assert service.balance(single_calls) == 0
    for caller in (one_call, single_calls):
        assert_refused(service.send(caller, to=numbers[count]), errors.InsufficientBalance)


@pytest.mark.parametrize("reference", ["", "order-1042", "r" * 64, EMOJI * 64, ' "\\\n'])
def test_a_reference_of_up_to_64_characters_is_taken_as_it_is(service: Service, reference: str) -> None:
    caller = service.open_account()
    answer = service.send(caller, reference=reference)
    assert answer.status_code == 202
    batch = service.call(caller, "GET", f"/batches/{answer.json()['batch_id']}").json()["data"]
    assert batch["reference"] == reference
    assert_refused(service.send(caller, reference=reference.ljust(65, "r")), errors.ValidationFailed)


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
