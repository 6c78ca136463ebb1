"""Every declared refusal can be met and answers as declared."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from http.client import HTTPConnection
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.api.answers import assert_no_rate_headers, assert_rate_headers, assert_refused
from tests.support.postgres.databases import clone, execute
from tests.support.processes.impatient_web import run_impatient_web
from tests.support.processes.service import Caller, Service, run_web
from tumira.accounts.api_keys import Scope
from tumira.core import errors
from tumira.core.errors import Refusal
from tumira.core.ids import KEY, KeyId, read_id
from tumira.identity.manage_accounts import limit, suspend
from tumira.identity.manage_keys import revoke_key

ZW: Final = "+263771200001"
POISON: Final = "+263771299999"
SLOW: Final = "+263771288888"
MANY: Final = tuple(f"+2637712{number:05}" for number in range(60))
GATE: Final = 4711
JSON: Final = {"Content-Type": "application/json"}

# One number makes the insert of a row fail, and one makes it wait for whoever holds the gate. The waiting has
# no limit of its own, unlike that of the transaction around it.
STUMBLE: Final = f"""
CREATE FUNCTION stumble() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$
BEGIN
    IF NEW.recipient = '{POISON}' THEN
        RAISE EXCEPTION 'something nobody foresaw';
    ELSIF NEW.recipient = '{SLOW}' THEN
        PERFORM pg_advisory_xact_lock({GATE});
    END IF;
    RETURN NEW;
END $$
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where refusals are provoked: a sound service, and one whose database stumbles over some numbers."""

    service: Service
    stumbling: Service


@pytest.fixture(scope="module")
def stage(server_url: str, service: Service) -> Iterator[Stage]:
    with clone(server_url) as url, run_web(url) as stumbling:
        stumbling.sql(STUMBLE)
        stumbling.sql(
            "CREATE TRIGGER stumble BEFORE INSERT ON messages FOR EACH ROW EXECUTE FUNCTION stumble()"
        )
        yield Stage(service, stumbling)


Scenario = Callable[[Stage], httpx.Response]
SCENARIOS: Final[dict[type[Refusal], Scenario]] = {}


def provokes(refusal: type[Refusal]) -> Callable[[Scenario], Scenario]:
    def register(scenario: Scenario) -> Scenario:
        assert refusal not in SCENARIOS
        SCENARIOS[refusal] = scenario
        return scenario

    return register


@provokes(errors.MalformedRequest)
def send_half_a_document(stage: Stage) -> httpx.Response:
    caller, content = stage.service.open_account(), f'{{"channel": "sms", "to": "{ZW}", "body": "Hello"}}'
    assert post(stage.service, caller, content).status_code == 202
    return post(stage.service, caller, content[:-1])


@provokes(errors.InvalidIdempotencyKey)
def send_with_a_short_key(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account()
    assert stage.service.send(caller, {"Idempotency-Key": "123456"}).status_code == 202
    return stage.service.send(caller, {"Idempotency-Key": "12345"})


@provokes(errors.MissingApiKey)
def call_without_a_key(stage: Stage) -> httpx.Response:
    assert stage.service.call(stage.service.open_account(), "GET", "/balance").status_code == 200
    return stage.service.call(None, "GET", "/balance")


@provokes(errors.InvalidApiKey)
def call_with_another_secret(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account()
    assert stage.service.call(caller, "GET", "/balance").status_code == 200
    return stage.service.call(caller.key[:-1] + ("0" if caller.key[-1] != "0" else "1"), "GET", "/balance")


@provokes(errors.ApiKeyRevoked)
def call_with_a_revoked_key(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account()
    assert stage.service.call(caller, "GET", "/balance").status_code == 200
    key_id = read_id(KEY, caller.key_id)
    assert key_id is not None
    stage.service.run(revoke_key, KeyId(key_id))
    return stage.service.call(caller, "GET", "/balance")


@provokes(errors.InsufficientBalance)
def spend_more_than_there_is(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account(balance="2")
    assert stage.service.send(caller, to=MANY[:49]).json()["balance_after"] == "0.0400"
    return stage.service.send(caller, to=MANY[:2])


@provokes(errors.InsufficientScope)
def send_with_a_reading_key(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account(scopes=[Scope.READ, Scope.ACCOUNT])
    assert stage.service.call(caller, "GET", "/balance").status_code == 200
    return stage.service.send(caller)


@provokes(errors.AccountSuspended)
def send_while_suspended(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account()
    assert stage.service.send(caller).status_code == 202
    stage.service.run(suspend, caller.id, suspended=True)
    return stage.service.send(caller)


@provokes(errors.NotFound)
def look_up_what_is_not_there(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account()
    batch_id = stage.service.send(caller).json()["batch_id"]
    assert stage.service.call(caller, "GET", f"/batches/{batch_id}").status_code == 200
    return stage.service.call(caller, "GET", f"/batches/{batch_id[:-1]}")


@provokes(errors.MethodNotAllowed)
def delete_the_balance(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account()
    assert stage.service.call(caller, "GET", "/balance").status_code == 200
    return stage.service.call(caller, "DELETE", "/balance")


@provokes(errors.IdempotencyConflict)
def send_something_else_under_the_same_key(stage: Stage) -> httpx.Response:
    caller, headers = stage.service.open_account(), {"Idempotency-Key": "order-1042"}
    assert stage.service.send(caller, headers).status_code == 202
    return stage.service.send(caller, headers, body="Something else")


@provokes(errors.IdempotencyInProgress)
def repeat_a_large_send_that_has_not_finished(stage: Stage) -> httpx.Response:
    service, headers = stage.stumbling, {"Idempotency-Key": "order-1042"}
    caller = service.open_account()
    with ThreadPoolExecutor(1) as threads, service.holding(f"SELECT pg_advisory_xact_lock({GATE})"):
        first = threads.submit(service.send, caller, headers, to=[SLOW, *MANY])
        wait_until_somebody_waits(service)
        repeated = service.send(caller, headers, to=[SLOW, *MANY])
    assert first.result().status_code == 202
    assert service.send(caller, headers, to=[SLOW, *MANY]).content == first.result().content
    assert service.balance(caller) == 100 - 61 * Decimal("0.04")
    return repeated


@provokes(errors.PayloadTooLarge)
def send_a_byte_too_many(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account()
    content = f'{{"channel": "sms", "to": "{ZW}", "body": "Hello"}}'.ljust(256 * 1024)
    assert post(stage.service, caller, content).status_code == 202
    return post(stage.service, caller, content + " ")


@provokes(errors.RequestTimeout)
def promise_more_than_is_sent(stage: Stage) -> httpx.Response:
    with run_impatient_web(stage.service.url, BODY_S=0.5) as service:
        caller = service.open_account()
        assert service.send(caller).status_code == 202
        # Not httpx: it keeps its promises.
        line = HTTPConnection(service.base.removeprefix("http://"), timeout=30)
        headers = {"Authorization": f"Bearer {caller.key}", "Content-Length": "100", **JSON}
        line.request("POST", "/api/v1/messages", "{", headers)
        with closing(line), line.getresponse() as answer:
            return httpx.Response(answer.status, headers=answer.getheaders(), content=answer.read())


@provokes(errors.HeadersTooLarge)
def send_a_header_too_many(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account()
    headers = {f"X-{number}": "a" for number in range(90)}
    assert stage.service.call(caller, "GET", "/balance", headers=headers).status_code == 200
    headers = {f"X-{number}": "a" for number in range(100)}
    return stage.service.call(caller, "GET", "/balance", headers=headers)


@provokes(errors.UnsupportedMediaType)
def send_a_form(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account()
    assert stage.service.send(caller).status_code == 202
    return stage.service.send(caller, {"Content-Type": "application/x-www-form-urlencoded"})


@provokes(errors.ValidationFailed)
def mistype_a_field(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account()
    assert stage.service.send(caller, dry_run=True).status_code == 200
    return stage.service.send(caller, dryrun=True)


@provokes(errors.ChannelNotAvailable)
def send_by_whatsapp(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account()
    assert stage.service.send(caller, channel="sms").status_code == 202
    assert_refused(stage.service.send(caller, channel="telegram"), errors.ChannelNotAvailable)
    return stage.service.send(caller, channel="whatsapp")


@provokes(errors.TooManyRecipients)
def name_a_number_too_many(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account()
    assert stage.service.send(caller, to=[ZW] * 1000).status_code == 202
    return stage.service.send(caller, to=[ZW] * 1001)


@provokes(errors.TooManySegments)
def write_six_segments(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account()
    assert stage.service.send(caller, body="a" * 765).status_code == 202
    return stage.service.send(caller, body="a" * 766)


@provokes(errors.ContentRejected)
def send_an_advert(stage: Stage) -> httpx.Response:
    caller, order = stage.service.open_account(), "Your order 1042 is on its way."
    assert stage.service.send(caller, body=order).status_code == 202
    return stage.service.send(caller, body=f"{order} Get 50% off all shoes this weekend only! Shop now.")


@provokes(errors.RateLimited)
def call_too_often(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account(rate=1)
    assert stage.service.call(caller, "GET", "/balance").status_code == 200
    return stage.service.call(caller, "GET", "/balance")


@provokes(errors.SpendLimitReached)
def spend_past_the_own_limit(stage: Stage) -> httpx.Response:
    caller = stage.service.open_account()
    stage.service.run(limit, caller.id, rate_limit=None, daily_limit=Decimal("0.04"), change_daily=True)
    assert stage.service.send(caller).status_code == 202
    return stage.service.send(caller)


@provokes(errors.InternalError)
def stumble_over_a_row_that_cannot_be_written(stage: Stage) -> httpx.Response:
    service = stage.stumbling
    caller, innocents = service.open_account(), [service.open_account() for _ in range(7)]
    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(service.send, caller, {"Idempotency-Key": "order-1042"}, to=[ZW, POISON])
        others = [threads.submit(service.send, innocent) for innocent in innocents]
    assert [other.result().status_code for other in others] == [202] * 7
    assert service.balance(caller) == 100
    assert service.send(caller, {"Idempotency-Key": "order-1042"}, to=[ZW]).status_code == 202
    assert service.send(caller, to=[POISON, *MANY]).status_code == 500
    return first.result()


@provokes(errors.ServiceUnavailable)
def send_while_somebody_holds_the_account(stage: Stage) -> httpx.Response:
    service = stage.service
    caller, other = service.open_account(), service.open_account()
    with service.holding("SELECT 1 FROM accounts WHERE id = $1 FOR UPDATE", caller.id):
        with ThreadPoolExecutor(1) as threads:
            refused = threads.submit(service.send, caller)
            assert service.send(other).status_code == 202
            assert not refused.done()
        assert refused.result().status_code == 503
    assert service.send(caller).json()["balance_after"] == "99.9600"
    return refused.result()


def post(service: Service, caller: Caller, content: str) -> httpx.Response:
    return service.call(caller, "POST", "/messages", content=content, headers=JSON)


def wait_until_somebody_waits(service: Service) -> None:
    deadline = time.monotonic() + 10
    while not service.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
        assert time.monotonic() < deadline


# Before an account is known, and when its state could not be read, there is nothing to say about its rate.
WITHOUT_RATE: Final = (
    errors.Unauthenticated,
    errors.MethodNotAllowed,
    errors.RequestTimeout,
    errors.HeadersTooLarge,
)
PERHAPS_WITHOUT_RATE: Final = (errors.InternalError, errors.ServiceUnavailable)


@pytest.mark.parametrize("refusal", SCENARIOS, ids=lambda refusal: refusal.code)
def test_a_declared_refusal_can_be_met_and_answers_as_declared(stage: Stage, refusal: type[Refusal]) -> None:
    answer = SCENARIOS[refusal](stage)
    assert_refused(answer, refusal)
    assert answer.headers["Cache-Control"] == "no-store"
    if issubclass(refusal, WITHOUT_RATE):
        assert_no_rate_headers(answer)
    elif not issubclass(refusal, PERHAPS_WITHOUT_RATE):
        assert_rate_headers(answer)


def test_every_declared_refusal_has_a_scenario() -> None:
    assert {refusal.code for refusal in errors.all_refusals()} == {refusal.code for refusal in SCENARIOS}
    assert set(errors.all_refusals()) == set(SCENARIOS)


def test_an_insufficient_balance_says_how_much_is_missing(stage: Stage) -> None:
    error = assert_refused(spend_more_than_there_is(stage), errors.InsufficientBalance)
    detail = error["details"][0]
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
                assert_refused(answer, errors.ServiceUnavailable)
            execute(server_url, f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")
            answer = service.send(caller, headers)
            assert (answer.status_code, "Idempotency-Replayed" in answer.headers) == (202, known)
        assert service.balance(caller) == Decimal("99.96")
