"""The rate limit of accounts, and that of addresses that guess keys."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from typing import Final

import httpx
import pytest

from tests.support.api.answers import assert_no_rate_headers, assert_rate_headers, assert_refused
from tests.support.processes.service import NO_TLS, Caller, Service, run_web
from tumira.accounts.api_keys import Scope
from tumira.core import errors
from tumira.identity.manage_accounts import limit
from tumira.identity.manage_keys import create_key

GUESSES_MAX: Final = 60


def look(service: Service, caller: Caller) -> httpx.Response:
    return service.call(caller, "GET", "/balance")


def remaining(answer: httpx.Response) -> int:
    assert_rate_headers(answer)
    return int(answer.headers["X-RateLimit-Remaining"])


def shift(service: Service, caller: Caller, seconds: int) -> None:
    service.sql(
        """
        UPDATE accounts
           SET call_times = ARRAY(SELECT at - $1::bigint * 1000000 FROM unnest(call_times) at ORDER BY at)
         WHERE id = $2
        """,
        seconds,
        caller.id,
    )


def test_the_headers_count_down_and_the_next_place_comes_free_within_a_minute(service: Service) -> None:
    caller = service.open_account(rate=60)
    answers = [look(service, caller) for _ in range(3)]
    assert [remaining(answer) for answer in answers] == [59, 58, 57]
    for answer in answers:
        assert answer.headers["X-RateLimit-Limit"] == "60"
        assert answer.headers["RateLimit-Policy"] == '"account";q=60;w=60'
        assert "Retry-After" not in answer.headers
    assert answers[0].headers["X-RateLimit-Reset"] == "60"


def test_a_refused_call_is_not_processed_does_not_count_and_is_told_when_to_come_again(
    service: Service,
) -> None:
    caller = service.open_account(rate=2)
    assert service.send(caller).status_code == 202
    shift(service, caller, 45)
    assert service.send(caller).status_code == 202
    for _ in range(2):
        refused = service.send(caller)
        assert_refused(refused, errors.RateLimited)
        assert remaining(refused) == 0
        assert refused.headers["Retry-After"] == refused.headers["X-RateLimit-Reset"]
        assert 5 <= int(refused.headers["Retry-After"]) <= 15
        assert_refused(service.send(caller, dry_run=True), errors.RateLimited)
    assert service.balance(caller) == Decimal("99.92")
    shift(service, caller, 15)
    answer = look(service, caller)
    assert (answer.status_code, remaining(answer)) == (200, 0)
    assert 30 <= int(answer.headers["X-RateLimit-Reset"]) <= 45


def test_a_clock_that_was_set_back_locks_a_full_window_for_a_minute_only(service: Service) -> None:
    caller = service.open_account(rate=2)
    for _ in range(2):
        look(service, caller)
    # As if the database's clock had been an hour ahead until now.
    shift(service, caller, -3600)
    for _ in range(2):
        refused = look(service, caller)
        assert_refused(refused, errors.RateLimited)
        assert int(refused.headers["Retry-After"]) <= 61
    shift(service, caller, 61)
    assert look(service, caller).status_code == 200


COUNTED: Final[dict[str, Callable[[Service, Caller], httpx.Response]]] = {
    "live send": lambda service, caller: service.send(caller),
    "large send": lambda service, caller: service.send(caller, to=[f"+2637712{n:05}" for n in range(60)]),
    "dry run": lambda service, caller: service.send(caller, dry_run=True),
    "replay": lambda service, caller: service.send(caller, {"Idempotency-Key": "order-1042"}),
    "balance": lambda service, caller: service.call(caller, "GET", "/balance"),
    "HEAD": lambda service, caller: service.call(caller, "HEAD", "/pricing"),
    "batch that is not there": lambda service, caller: service.call(caller, "GET", "/batches/bat_0"),
    "message that is not there": lambda service, caller: service.call(caller, "GET", "/messages/msg_0"),
    "402": lambda service, caller: service.send(caller, to=[f"+2637712{n:05}" for n in range(1000)]),
    "413": lambda service, caller: service.send(caller, body="a" * 300_000),
    "415": lambda service, caller: service.call(caller, "POST", "/messages"),
    "422": lambda service, caller: service.send(caller, to=[]),
}


def test_every_call_that_is_processed_counts_whatever_its_outcome_and_whichever_its_key(
    service: Service,
) -> None:
    caller, other = service.open_account(balance="20", rate=60), service.open_account(rate=60)
    _, second_key = service.run(create_key, caller.id, "second", list(Scope))
    service.send(caller, {"Idempotency-Key": "order-1042"})
    left = 59
    for name, call in COUNTED.items():
        for key in (caller.key, second_key):
            left -= 1
            assert remaining(call(service, replace(caller, key=key))) == left, name
    assert_refused(service.call(caller, "POST", "/nothing"), errors.NotFound)
    assert_refused(service.call(caller, "POST", "/pricing"), errors.MethodNotAllowed)
    assert remaining(look(service, caller)) == left - 1, "what reaches no endpoint does not count"
    assert remaining(look(service, other)) == 59


def test_a_changed_limit_counts_from_the_next_call(service: Service) -> None:
    caller = service.open_account(rate=2)

    def change(rate_limit: int) -> None:
        service.run(limit, caller.id, rate_limit=rate_limit, daily_limit=None, change_daily=False)

    assert [look(service, caller).status_code for _ in range(3)] == [200, 200, 429]
    change(4)
    answers = [look(service, caller) for _ in range(3)]
    assert [(answer.status_code, remaining(answer)) for answer in answers] == [(200, 1), (200, 0), (429, 0)]
    assert answers[0].headers["X-RateLimit-Limit"] == "4"
    change(1)
    assert_refused(look(service, caller), errors.RateLimited)
    change(1000)
    assert remaining(look(service, caller)) == 995


@pytest.mark.parametrize(("rate", "calls"), [(60, 80), (601, 610)])
def test_never_more_calls_pass_than_the_limit_however_many_come_at_once(
    service: Service, rate: int, calls: int
) -> None:
    caller = service.open_account(rate=rate)
    headers = {"Authorization": f"Bearer {caller.key}"}
    with (
        httpx.Client(trust_env=False, verify=NO_TLS, headers=headers, timeout=30) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        answers = list(threads.map(lambda _: client.get(f"{service.base}/api/v1/balance"), range(calls)))
    assert Counter(answer.status_code for answer in answers) == {200: rate, 429: calls - rate}
    passed = sorted(remaining(answer) for answer in answers if answer.status_code == 200)
    assert passed == list(range(rate))
    counts = service.sql("SELECT call_counts FROM accounts WHERE id = $1", caller.id)[0][0]
    assert sum(counts) == rate
    # Above 600 a minute the calls of a second share an entry.
    assert len(counts) <= (61 if rate > 600 else rate)


def test_whoever_guesses_at_keys_is_slowed_down_and_good_keys_are_not(database_url: str) -> None:
    # A process of its own: it remembers the guesses from an address, which here is everybody's.
    with run_web(database_url) as service:
        caller = service.open_account()
        guesses = ["nonsense", caller.key[:-32] + "0" * 32, "tmr_" + "0" * 26 + "_" + "0" * 32]
        for place in range(GUESSES_MAX):
            assert_refused(service.call(guesses[place % 3], "GET", "/balance"), errors.InvalidApiKey)
        for guess in guesses:
            refused = service.call(guess, "GET", "/balance")
            assert_refused(refused, errors.RateLimited)
            assert_no_rate_headers(refused)
            assert 1 <= int(refused.headers["Retry-After"]) <= 60
        assert_refused(service.call(None, "GET", "/balance"), errors.MissingApiKey)
        assert service.send(caller).status_code == 202
