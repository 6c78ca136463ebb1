"""Scopes, revoked keys, suspended accounts and spending limits."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import httpx
import pytest

from tests.support.api.answers import assert_no_rate_headers, assert_rate_headers, assert_refused
from tests.support.processes.service import Caller, Service
from tumira.accounts.api_keys import Scope
from tumira.core import errors
from tumira.core.ids import KEY, KeyId, read_id
from tumira.identity.manage_accounts import limit, suspend
from tumira.identity.manage_keys import create_key, revoke_key

MANY: Final = tuple(f"+2637712{number:05}" for number in range(60))
DAY_S: Final = 86_400

# Each operation with the scope that it needs.
OPERATIONS: Final = {
    "live send": Scope.SEND,
    "dry run": Scope.SEND,
    "batch": Scope.READ,
    "message": Scope.READ,
    "balance": Scope.ACCOUNT,
    "pricing": Scope.ACCOUNT,
}


def operate(service: Service, caller: Caller, operation: str, batch: dict[str, Any]) -> httpx.Response:
    if operation in {"live send", "dry run"}:
        return service.send(caller, dry_run=operation == "dry run")
    paths = {
        "batch": f"/batches/{batch['batch_id']}",
        "message": f"/messages/{batch['messages'][0]['message_id']}",
        "balance": "/balance",
        "pricing": "/pricing",
    }
    return service.call(caller, "GET", paths[operation])


def open_with_batch(service: Service) -> tuple[Caller, dict[str, Any]]:
    caller = service.open_account()
    batch_id = service.send(caller).json()["batch_id"]
    batch: dict[str, Any] = service.call(caller, "GET", f"/batches/{batch_id}").json()["data"]
    return caller, batch


def add_key(service: Service, caller: Caller, *scopes: Scope) -> Caller:
    _, key = service.run(create_key, caller.id, "another", scopes)
    return replace(caller, key=key)


def revoke(service: Service, caller: Caller) -> None:
    key_id = read_id(KEY, caller.key_id)
    assert key_id is not None
    service.run(revoke_key, KeyId(key_id))


def last_used_at(service: Service, caller: Caller) -> Any:
    return service.sql("SELECT last_used_at FROM api_keys WHERE account_id = $1", caller.id)[0][0]


@pytest.mark.parametrize("scope", Scope)
def test_a_key_does_what_its_scope_allows_and_nothing_else(service: Service, scope: Scope) -> None:
    caller, batch = open_with_batch(service)
    only, all_others = add_key(service, caller, scope), add_key(service, caller, *(set(Scope) - {scope}))
    for operation, needed in OPERATIONS.items():
        allowed, forbidden = (only, all_others) if scope is needed else (all_others, only)
        answer = operate(service, allowed, operation, batch)
        assert answer.status_code == (202 if operation == "live send" else 200), operation
        refused = operate(service, forbidden, operation, batch)
        assert_rate_headers(refused)
        assert needed in assert_refused(refused, errors.InsufficientScope)["message"]
        challenge = f'Bearer realm="tumira", error="insufficient_scope", scope="{needed}"'
        assert refused.headers["WWW-Authenticate"] == challenge
    assert service.balance(caller) == Decimal("99.92")


def test_a_call_beyond_the_scope_does_not_count(service: Service) -> None:
    caller = service.open_account(rate=60, scopes=[Scope.ACCOUNT])
    assert service.send(caller).headers["X-RateLimit-Remaining"] == "60"
    assert service.call(caller, "GET", "/balance").headers["X-RateLimit-Remaining"] == "59"


def test_a_revoked_key_is_refused_from_the_next_call_and_other_keys_work_on(service: Service) -> None:
    caller, batch = open_with_batch(service)
    other = add_key(service, caller, *Scope)
    revoke(service, caller)
    for operation in OPERATIONS:
        refused = operate(service, caller, operation, batch)
        assert_refused(refused, errors.ApiKeyRevoked)
        assert_no_rate_headers(refused)
        challenge = 'Bearer realm="tumira", error="invalid_token", error_description="revoked API key"'
        assert refused.headers["WWW-Authenticate"] == challenge
        assert operate(service, other, operation, batch).is_success
    # With a wrong secret it is only invalid.
    answer = service.call(caller.key[:-32] + "0" * 32, "GET", "/balance")
    assert_refused(answer, errors.InvalidApiKey)


def test_a_suspended_account_reads_but_cannot_send_until_it_is_let_again(service: Service) -> None:
    caller, batch = open_with_batch(service)
    headers = {"Idempotency-Key": "order-1042"}
    first = service.send(caller, headers)
    service.run(suspend, caller.id, suspended=True)
    for operation, needed in OPERATIONS.items():
        answer = operate(service, caller, operation, batch)
        assert_rate_headers(answer)
        if needed is Scope.SEND:
            assert_refused(answer, errors.AccountSuspended)
        else:
            assert answer.status_code == 200
    assert_refused(service.send(caller, to=MANY), errors.AccountSuspended)
    assert_refused(service.send(caller, headers), errors.AccountSuspended)
    assert service.balance(caller) == Decimal("99.92")
    service.run(suspend, caller.id, suspended=False)
    assert service.send(caller, headers).content == first.content
    assert all(operate(service, caller, operation, batch).is_success for operation in OPERATIONS)


def test_the_last_use_of_a_key_is_written_at_most_once_a_minute(service: Service) -> None:
    caller = service.open_account()
    assert last_used_at(service, caller) is None
    service.send(caller)
    first = last_used_at(service, caller)
    assert first is not None
    for seconds, is_news in ((0, False), (55, False), (10, True)):
        service.sql(
            "UPDATE api_keys SET last_used_at = last_used_at - $1::interval WHERE account_id = $2",
            timedelta(seconds=seconds),
            caller.id,
        )
        before = last_used_at(service, caller)
        service.call(caller, "GET", "/balance")
        assert (last_used_at(service, caller) != before) == is_news
    assert last_used_at(service, caller) >= first


def set_daily_limit(service: Service, caller: Caller, daily_limit: Decimal | None) -> None:
    service.run(limit, caller.id, rate_limit=None, daily_limit=daily_limit, change_daily=True)


@pytest.mark.parametrize(("to", "cost"), [(MANY[:2], "0.0800"), (MANY, "2.4000")], ids=["small", "large"])
def test_an_account_spends_up_to_its_own_limit_and_no_more_on_a_day(
    service: Service, to: tuple[str, ...], cost: str
) -> None:
    caller = service.open_account()
    set_daily_limit(service, caller, 2 * Decimal(cost))
    assert [service.send(caller, to=to).status_code for _ in range(2)] == [202, 202]
    assert_refused(service.send(caller, to=to, dry_run=True), errors.SpendLimitReached)
    assert_refused(service.send(caller, to=to[0]), errors.SpendLimitReached)
    assert service.send(caller, to="+15550100").status_code == 202
    refused = service.send(caller, to=to)
    detail = assert_refused(refused, errors.SpendLimitReached)["details"][0]
    amounts = {name: detail[name] for name in ("required", "spent_today", "daily_limit")}
    both = f"{2 * Decimal(cost):.4f}"
    assert amounts == {"required": cost, "spent_today": both, "daily_limit": both}
    assert service.balance(caller) == 100 - 2 * Decimal(cost)
    # The day ends at midnight where the customers are, two hours before that of UTC.
    now = service.sql("SELECT extract(epoch FROM now())::bigint")[0][0]
    assert abs(int(refused.headers["Retry-After"]) - (DAY_S - (now + 7200) % DAY_S)) <= 5
    service.sql("UPDATE accounts SET spent_on = spent_on - 1 WHERE id = $1", caller.id)
    assert [service.send(caller, to=to).status_code for _ in range(3)] == [202, 202, 429]
    set_daily_limit(service, caller, None)
    assert service.send(caller, to=to).status_code == 202
    # A limit of nothing lets nothing be spent.
    set_daily_limit(service, caller, Decimal(0))
    assert_refused(service.send(caller), errors.SpendLimitReached)
