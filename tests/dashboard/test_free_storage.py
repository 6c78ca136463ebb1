"""An account that pays nothing can have only so much stored."""

from typing import Final

import httpx

from tests.support.api.answers import assert_rate_headers, assert_refused
from tests.support.processes.service import Caller, Service
from tumira.core import errors
from tumira.pricing.quote import UNBILLED_OCTETS_MAX

ZW: Final = "+263771200001"


def stored(service: Service, caller: Caller) -> int:
    texts = service.sql(
        "SELECT coalesce(sum(octet_length(body)), 0) FROM batches WHERE account_id = $1", caller.id
    )
    answers = service.sql(
        "SELECT coalesce(sum(octet_length(response)), 0) FROM idempotency_keys WHERE account_id = $1",
        caller.id,
    )
    return int(texts[0][0] + answers[0][0])


def fill(service: Service, caller: Caller, key: str, entries: list[str]) -> httpx.Response:
    return service.send(caller, {"Idempotency-Key": key}, to=entries, body="😀" * 150)


def test_an_over_long_recipient_is_rejected_and_not_kept_whole(service: Service) -> None:
    caller = service.open_account(balance="0")
    entries = ["x" * 200_000, "é" * 64, " " * 60 + "1" * 5, "+" + "1" * 62, " " * 100 + "+15550100"]
    answer = fill(service, caller, "filling", entries)
    assert answer.status_code == 202
    assert answer.json()["rejected"] == [
        {"to": "x" * 63 + "…", "code": "INVALID_NUMBER"},
        {"to": "é" * 64, "code": "INVALID_NUMBER"},
        {"to": "1" * 5, "code": "INVALID_NUMBER"},
        {"to": "+" + "1" * 62, "code": "INVALID_NUMBER"},
        {"to": "+15550100", "code": "UNSUPPORTED_DESTINATION"},
    ]
    assert stored(service, caller) < 3_000
    again = fill(service, caller, "filling", entries)
    assert (again.content, again.headers["Idempotency-Replayed"]) == (answer.content, "true")


def test_what_costs_nothing_is_stored_up_to_a_limit_a_day(service: Service) -> None:
    caller = service.open_account(balance="1")
    first = fill(service, caller, "filling", ["x"])
    counted = service.sql("SELECT unbilled_today FROM accounts WHERE id = $1", caller.id)[0][0]
    assert stored(service, caller) < counted < 10_000
    # As if there had been many more of them.
    service.sql("UPDATE accounts SET unbilled_today = $2 WHERE id = $1", caller.id, UNBILLED_OCTETS_MAX - 500)

    refused = service.send(caller, to="x")
    assert_refused(refused, errors.RateLimited)
    assert_rate_headers(refused)
    assert 0 < int(refused.headers["Retry-After"]) <= 86_400
    assert_refused(service.send(caller, to="x", dry_run=True), errors.RateLimited)
    # What was stored is given again, and what is paid for is sent.
    assert fill(service, caller, "filling", ["x"]).content == first.content
    assert service.send(caller, to=[ZW, "x"]).status_code == 202
    assert service.send(caller, to="x").status_code == 429

    service.sql("UPDATE accounts SET spent_on = spent_on - 1 WHERE id = $1", caller.id)
    assert service.send(caller, to="x").status_code == 202
    counted = service.sql("SELECT unbilled_today FROM accounts WHERE id = $1", caller.id)[0][0]
    assert counted < 10_000
