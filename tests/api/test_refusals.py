"""Every declared refusal can be met and answers as declared, and of several faults the first is named."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.api.answers import assert_no_rate_headers, assert_rate_headers, assert_refused
from tests.support.postgres.databases import clone, execute
from tests.support.processes.service import Caller, Service, run_web
from tumira.accounts.api_keys import Scope
from tumira.core import errors
from tumira.core.errors import Refusal
from tumira.core.ids import KEY, KeyId, read_id
from tumira.identity.manage_keys import revoke_key

ZW: Final = "+263771200001"
POISON: Final = "+263771299999"
SLOW: Final = "+263771288888"
MANY: Final = tuple(f"+2637712{number:05}" for number in range(60))
GATE: Final = 4711
JSON: Final = {"Content-Type": "application/json"}
USED_KEY: Final = "used-already"

# One number makes the insert of a row fail, and one makes it wait for whoever holds the gate. The waiting has
# no limit of its own, unlike that of the transaction around it.
STUMBLE: Final = (
    f"""
CREATE FUNCTION stumble() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$
BEGIN
    IF NEW.recipient = '{POISON}' THEN
        RAISE EXCEPTION 'something nobody foresaw';
    ELSIF NEW.recipient = '{SLOW}' THEN
        PERFORM pg_advisory_xact_lock({GATE});
    END IF;
    RETURN NEW;
END $$
""",
    "CREATE TRIGGER stumble BEFORE INSERT ON messages FOR EACH ROW EXECUTE FUNCTION stumble()",
)


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a service whose database stumbles over two numbers."""
    with clone(server_url) as url, run_web(url) as running:
        for statement in STUMBLE:
            running.sql(statement)
        yield running


@dataclass(slots=True)
class Attempt:
    """A send that would succeed; each fault spoils one thing about it."""

    fields: dict[str, Any] = field(
        default_factory=lambda: {"channel": "sms", "to": [ZW], "body": "Hello", "reference": "second"}
    )
    headers: dict[str, str] = field(default_factory=lambda: dict(JSON))
    account: list[str] = field(default_factory=lambda: ["weight = 1"])
    secret: str | None = None
    tail: str = ""

    def make(self, service: Service) -> httpx.Response:
        caller = service.open_account()
        # Before the account is spoilt, a send of another payload uses up the key.
        assert service.send(caller, {"Idempotency-Key": USED_KEY}).status_code == 202
        service.sql(f"UPDATE accounts SET {', '.join(self.account)} WHERE id = $1", caller.id)
        key = caller.key if self.secret is None else caller.key[:-32] + self.secret
        content = json.dumps(self.fields) + self.tail
        return service.call(key, "POST", "/messages", content=content, headers=self.headers)


FULL_WINDOW: Final = """
rate_limit = 1, call_counts = '{1}', call_times = ARRAY[(extract(epoch FROM now()) * 1000000)::bigint]
"""
ADVERT: Final = "Get 50% off all shoes this weekend only! Shop now. "

# In the order in which the service checks, each with the fault that it refuses.
FAULTS: Final[dict[type[Refusal], Callable[[Attempt], object]]] = {
    errors.InvalidApiKey: lambda attempt: setattr(attempt, "secret", "0" * 32),
    errors.AccountSuspended: lambda attempt: attempt.account.append("suspended_at = now()"),
    errors.RateLimited: lambda attempt: attempt.account.append(FULL_WINDOW),
    errors.UnsupportedMediaType: lambda attempt: attempt.headers.update({"Content-Type": "text/plain"}),
    errors.PayloadTooLarge: lambda attempt: setattr(attempt, "tail", attempt.tail + " " * 300_000),
    errors.MalformedRequest: lambda attempt: setattr(attempt, "tail", "}" + attempt.tail),
    errors.InvalidIdempotencyKey: lambda attempt: attempt.headers.update({"Idempotency-Key": "short"}),
    errors.IdempotencyConflict: lambda attempt: attempt.headers.setdefault("Idempotency-Key", USED_KEY),
    errors.ValidationFailed: lambda attempt: attempt.fields.update(sender="Shop"),
    errors.ChannelNotAvailable: lambda attempt: attempt.fields.update(channel="telegram"),
    errors.TooManyRecipients: lambda attempt: attempt.fields.update(to=[ZW] * 1001),
    errors.TooManySegments: lambda attempt: attempt.fields.update(body="a" * 766),
    errors.ContentRejected: lambda attempt: attempt.fields.update(body=ADVERT + attempt.fields["body"]),
    errors.SpendLimitReached: lambda attempt: attempt.account.append("daily_limit = 0"),
    errors.InsufficientBalance: lambda attempt: attempt.account.append("balance = 0"),
}


@pytest.mark.parametrize("first", [*FAULTS, None], ids=lambda refusal: refusal.code if refusal else "none")
def test_of_all_faults_the_one_that_is_checked_first_is_named(
    service: Service, first: type[Refusal] | None
) -> None:
    attempt = Attempt()
    remaining = [] if first is None else list(FAULTS)[list(FAULTS).index(first) :]
    for refusal in remaining:
        FAULTS[refusal](attempt)
    answer = attempt.make(service)
    if first is None:
        assert answer.status_code == 202
    else:
        assert_answers_as_declared(answer, first)


def call_without_a_key(service: Service, _caller: Caller) -> httpx.Response:
    return service.call(None, "GET", "/balance")


def call_with_a_revoked_key(service: Service, caller: Caller) -> httpx.Response:
    assert service.call(caller, "GET", "/balance").status_code == 200
    key_id = read_id(KEY, caller.key_id)
    assert key_id is not None
    service.run(revoke_key, KeyId(key_id))
    return service.call(caller, "GET", "/balance")


def send_with_a_reading_key(service: Service, _caller: Caller) -> httpx.Response:
    return service.send(service.open_account(scopes=[Scope.READ, Scope.ACCOUNT]))


def look_up_what_is_not_there(service: Service, caller: Caller) -> httpx.Response:
    return service.call(caller, "GET", "/batches/bat_0")


def delete_the_balance(service: Service, caller: Caller) -> httpx.Response:
    return service.call(caller, "DELETE", "/balance")


def repeat_a_large_send_that_has_not_finished(service: Service, caller: Caller) -> httpx.Response:
    headers, to = {"Idempotency-Key": "order-1042"}, [SLOW, *MANY]
    with ThreadPoolExecutor(1) as threads, service.holding(f"SELECT pg_advisory_xact_lock({GATE})"):
        first = threads.submit(service.send, caller, headers, to=to)
        deadline = time.monotonic() + 10
        while not service.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
            assert time.monotonic() < deadline
        repeated = service.send(caller, headers, to=to)
    assert first.result().status_code == 202
    assert service.send(caller, headers, to=to).content == first.result().content
    assert service.balance(caller) == 100 - 61 * Decimal("0.04")
    return repeated


def stumble_over_a_row_that_cannot_be_written(service: Service, caller: Caller) -> httpx.Response:
    innocents = [service.open_account() for _ in range(7)]
    headers = {"Idempotency-Key": "order-1042"}
    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(service.send, caller, headers, to=[ZW, POISON])
        others = [threads.submit(service.send, innocent) for innocent in innocents]
    assert [other.result().status_code for other in others] == [202] * 7
    assert service.balance(caller) == 100
    assert service.send(caller, headers, to=[ZW]).status_code == 202
    assert service.send(caller, to=[POISON, *MANY]).status_code == 500
    return first.result()


SCENARIOS: Final[dict[type[Refusal], Callable[[Service, Caller], httpx.Response]]] = {
    errors.MissingApiKey: call_without_a_key,
    errors.ApiKeyRevoked: call_with_a_revoked_key,
    errors.InsufficientScope: send_with_a_reading_key,
    errors.NotFound: look_up_what_is_not_there,
    errors.MethodNotAllowed: delete_the_balance,
    errors.IdempotencyInProgress: repeat_a_large_send_that_has_not_finished,
    errors.InternalError: stumble_over_a_row_that_cannot_be_written,
}

# Before an account is known, and when its state could not be read, there is nothing to say about its rate.
WITHOUT_RATE: Final = (errors.Unauthenticated, errors.MethodNotAllowed)
PERHAPS_WITHOUT_RATE: Final = (errors.InternalError, errors.ServiceUnavailable)


def assert_answers_as_declared(answer: httpx.Response, refusal: type[Refusal]) -> None:
    assert_refused(answer, refusal)
    assert answer.headers["Cache-Control"] == "no-store"
    if issubclass(refusal, WITHOUT_RATE):
        assert_no_rate_headers(answer)
    elif not issubclass(refusal, PERHAPS_WITHOUT_RATE):
        assert_rate_headers(answer)


@pytest.mark.parametrize("refusal", SCENARIOS, ids=lambda refusal: refusal.code)
def test_a_declared_refusal_can_be_met_and_answers_as_declared(
    service: Service, refusal: type[Refusal]
) -> None:
    assert_answers_as_declared(SCENARIOS[refusal](service, service.open_account()), refusal)


def test_every_declared_refusal_is_met_by_a_test() -> None:
    # In `tests/test_http_protocol.py`, because they are met before a request reaches the API.
    of_the_protocol = {errors.RequestTimeout, errors.HeadersTooLarge}
    assert {*FAULTS, *SCENARIOS, errors.ServiceUnavailable, *of_the_protocol} == set(errors.all_refusals())


def test_an_insufficient_balance_says_how_much_is_missing(service: Service) -> None:
    answer = service.send(service.open_account(balance="0.04"), to=MANY[:2])
    detail = assert_refused(answer, errors.InsufficientBalance)["details"][0]
    amounts = {name: detail[name] for name in ("required", "available", "shortfall")}
    assert amounts == {"required": "0.0800", "available": "0.0400", "shortfall": "0.0400"}


def test_a_call_is_answered_503_while_the_database_is_away_and_works_when_it_is_back(
    server_url: str, database_url: str
) -> None:
    name = urlsplit(database_url).path.removeprefix("/")
    headers = {"Idempotency-Key": "order-1042"}
    with run_web(database_url) as service:
        caller = service.open_account()
        for known in (False, True):
            execute(server_url, f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
            execute(
                server_url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
            )
            for answer in (service.send(caller, headers), service.call(caller, "GET", "/balance")):
                assert_answers_as_declared(answer, errors.ServiceUnavailable)
            execute(server_url, f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")
            answer = service.send(caller, headers)
            assert (answer.status_code, "Idempotency-Replayed" in answer.headers) == (202, known)
        assert service.balance(caller) == Decimal("99.96")
