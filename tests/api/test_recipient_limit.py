"""Too many passcodes to a number or its neighbours are rejected, unbilled and told to the owner."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import httpx

from tests.support.processes.service import Caller, Service
from tumira.accounts.passcode_limits import PasscodeLimits
from tumira.identity.manage_accounts import set_passcode_limits

LIMIT: Final = "RECIPIENT_LIMIT"
NUMBER: Final = "+263771200001"
PRICE: Final = Decimal("0.04")
LIMITS: Final = PasscodeLimits(is_on=True, number=3, number_day=5, range=6)


def number(place: int) -> str:
    return f"+26377121{place:04}"


def guarded(service: Service, limits: PasscodeLimits = LIMITS) -> Caller:
    caller = service.open_account(balance="10")
    service.run(set_passcode_limits, caller.id, lambda _: limits)
    return caller


def rejected(answer: httpx.Response) -> Sequence[Any]:
    assert answer.status_code == httpx.codes.ACCEPTED, answer.text
    found: Sequence[Any] = answer.json()["rejected"]
    return found


def test_the_code_after_the_last_is_rejected_and_costs_nothing(service: Service) -> None:
    caller = guarded(service)
    for _ in range(3):
        assert rejected(service.send(caller, to=NUMBER)) == []
    answer = service.send(caller, to=NUMBER)
    assert rejected(answer) == [{"to": NUMBER, "code": LIMIT}]
    assert answer.json()["total_cost"] == "0.0000"
    assert service.balance(caller) == Decimal(10) - 3 * PRICE
    # Any other text to the number is sent.
    assert rejected(service.send(caller, to=NUMBER, body="Your order is ready.")) == []


def test_the_others_of_a_send_are_sent_and_billed(service: Service) -> None:
    caller = guarded(service)
    for _ in range(3):
        service.send(caller, to=NUMBER)
    answer = service.send(caller, to=[f" {NUMBER} ", "+27821230001"])
    assert rejected(answer) == [{"to": f" {NUMBER} ", "code": LIMIT}]
    cost = Decimal(answer.json()["total_cost"])
    assert cost > 0
    assert service.balance(caller) == Decimal(10) - 3 * PRICE - cost
    (row,) = service.sql("SELECT count(*) FROM messages WHERE recipient = $1", "+27821230001")
    assert row[0] == 1


def test_a_range_is_stopped_and_its_owner_told(service: Service) -> None:
    caller = guarded(service)
    sends = [rejected(service.send(caller, to=number(place))) for place in range(9)]
    assert [len(one) for one in sends] == [0] * 6 + [1] * 3
    (stop,) = service.sql("SELECT prefix, kind, count FROM code_stops WHERE account_id = $1", caller.id)
    assert tuple(stop) == ("+26377121", "range", 3)
    # It stays stopped when its codes are older than ten minutes.
    service.sql("UPDATE code_ranges SET codes = '' WHERE account_id = $1", caller.id)
    assert rejected(service.send(caller, to=number(20))) == [{"to": number(20), "code": LIMIT}]


def test_a_dry_run_answers_the_same_and_counts_nothing(service: Service) -> None:
    caller = guarded(service)
    for _ in range(9):
        assert rejected_of_dry_run(service, caller) == []
    for _ in range(3):
        service.send(caller, to=NUMBER)
    assert rejected_of_dry_run(service, caller) == [{"to": NUMBER, "code": LIMIT}]


def rejected_of_dry_run(service: Service, caller: Caller) -> Sequence[Any]:
    answer = service.send(caller, to=NUMBER, dry_run=True)
    assert answer.status_code == httpx.codes.OK, answer.text
    found: Sequence[Any] = answer.json()["rejected"]
    return found


def test_what_is_refused_or_repeated_is_not_counted(service: Service) -> None:
    caller = guarded(service)
    key = {"Idempotency-Key": "only-once"}
    for _ in range(5):
        assert rejected(service.send(caller, headers=key, to=NUMBER)) == []
    advert = "Your code is 493817. BIG SALE this weekend only! Get 50% off all shoes. Shop now and save big!"
    for _ in range(5):
        service.send(caller, to=NUMBER, body=advert)
    assert [len(rejected(service.send(caller, to=NUMBER))) for _ in range(3)] == [0, 0, 1]


def test_many_recipients_and_accounts_without_the_guard_are_not_counted(service: Service) -> None:
    caller = guarded(service)
    many = [number(place) for place in range(11)]
    for _ in range(4):
        assert rejected(service.send(caller, to=many)) == []
    off = guarded(service, PasscodeLimits(is_on=False, number=3, number_day=5, range=6))
    for _ in range(8):
        assert rejected(service.send(off, to=NUMBER)) == []
    assert service.sql("SELECT FROM code_ranges WHERE account_id = ANY($1)", [caller.id, off.id]) == []
