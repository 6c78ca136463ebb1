"""The order in which faults of a send are found."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

import httpx
import pytest

from tests.support.api.answers import assert_refused
from tests.support.processes.service import Caller, Service
from tumira.core import errors
from tumira.core.errors import Refusal

ZW: Final = "+263771200001"
USED_KEY: Final = "used-already"
FULL_WINDOW: Final = """
rate_limit = 1, call_counts = '{1}', call_times = ARRAY[(extract(epoch FROM now()) * 1000000)::bigint]
"""


@dataclass(slots=True)
class Attempt:
    """A send that would succeed; each fault spoils one thing about it."""

    fields: dict[str, Any] = field(
        default_factory=lambda: {"channel": "sms", "to": [ZW], "body": "Hello", "reference": "second"}
    )
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    account: list[str] = field(default_factory=lambda: ["weight = 1"])
    secret: str | None = None
    tail: str = ""

    def make(self, service: Service, caller: Caller) -> httpx.Response:
        # Before the account is spoilt, a send of another payload uses up the key.
        assert service.send(caller, {"Idempotency-Key": USED_KEY}).status_code == 202
        service.sql(f"UPDATE accounts SET {', '.join(self.account)} WHERE id = $1", caller.id)
        return service.call(
            caller if self.secret is None else caller.key[:-32] + self.secret,
            "POST",
            "/messages",
            content=json.dumps(self.fields) + self.tail,
            headers=self.headers,
        )


def wrong_secret(attempt: Attempt) -> None:
    attempt.secret = "0" * 32


def suspended(attempt: Attempt) -> None:
    attempt.account.append("suspended_at = now()")


def full_window(attempt: Attempt) -> None:
    attempt.account.append(FULL_WINDOW)


def not_json_by_its_type(attempt: Attempt) -> None:
    attempt.headers["Content-Type"] = "text/plain"


def too_large(attempt: Attempt) -> None:
    attempt.tail += " " * 300_000


def not_json(attempt: Attempt) -> None:
    attempt.tail = "}" + attempt.tail


def key_too_short(attempt: Attempt) -> None:
    attempt.headers["Idempotency-Key"] = "short"


def key_used(attempt: Attempt) -> None:
    attempt.headers.setdefault("Idempotency-Key", USED_KEY)


def unknown_field(attempt: Attempt) -> None:
    attempt.fields["sender"] = "Shop"


def reserved_channel(attempt: Attempt) -> None:
    attempt.fields["channel"] = "telegram"


def too_many_recipients(attempt: Attempt) -> None:
    attempt.fields["to"] = [ZW] * 1001


def too_many_segments(attempt: Attempt) -> None:
    attempt.fields["body"] += "a" * 766


def promotional(attempt: Attempt) -> None:
    attempt.fields["body"] = "Get 50% off all shoes this weekend only! Shop now. " + attempt.fields["body"]


def over_the_own_limit(attempt: Attempt) -> None:
    attempt.account.append("daily_limit = 0")


def no_balance(attempt: Attempt) -> None:
    attempt.account.append("balance = 0")


Fault = Callable[[Attempt], None]

# In the order in which the service checks.
FAULTS: Final[dict[Fault, type[Refusal]]] = {
    wrong_secret: errors.InvalidApiKey,
    suspended: errors.AccountSuspended,
    full_window: errors.RateLimited,
    not_json_by_its_type: errors.UnsupportedMediaType,
    too_large: errors.PayloadTooLarge,
    not_json: errors.MalformedRequest,
    key_too_short: errors.InvalidIdempotencyKey,
    key_used: errors.IdempotencyConflict,
    unknown_field: errors.ValidationFailed,
    reserved_channel: errors.ChannelNotAvailable,
    too_many_recipients: errors.TooManyRecipients,
    too_many_segments: errors.TooManySegments,
    promotional: errors.ContentRejected,
    over_the_own_limit: errors.SpendLimitReached,
    no_balance: errors.InsufficientBalance,
}


def name_of(fault: Fault) -> str:
    return fault.__name__


def test_an_attempt_without_faults_succeeds(service: Service) -> None:
    assert Attempt().make(service, service.open_account()).status_code == 202


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_alone_is_named(service: Service, fault: Fault) -> None:
    attempt = Attempt()
    fault(attempt)
    assert_refused(attempt.make(service, service.open_account()), FAULTS[fault])


@pytest.mark.parametrize(("first", "second"), list(combinations(FAULTS, 2)), ids=name_of)
def test_of_two_faults_the_one_that_is_checked_first_is_named(
    service: Service, first: Fault, second: Fault
) -> None:
    attempt = Attempt()
    first(attempt)
    second(attempt)
    assert_refused(attempt.make(service, service.open_account()), FAULTS[first])


def test_of_all_faults_the_first_is_named_and_each_that_is_repaired_uncovers_the_next(
    service: Service,
) -> None:
    remaining = list(FAULTS)
    while remaining:
        attempt = Attempt()
        for fault in remaining:
            fault(attempt)
        assert_refused(attempt.make(service, service.open_account()), FAULTS[remaining.pop(0)])
