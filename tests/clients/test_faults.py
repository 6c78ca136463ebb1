"""Clients as processes of their own, behind a proxy with faults: each message is sent and billed once."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.chaos.node import until
from tests.support.clients import LANGUAGES, finish, start, stop
from tests.support.clients.faulty_proxy import Fault, Seen, faulty_proxy
from tests.support.processes.service import Caller, Service
from tumira.identity import manage_accounts

BODY: Final = "Your order 1042 is ready."
PRICE: Final = Decimal("0.04")
# The first call meets the first fault, and so on; a fault that needs a retry is followed by a pass.
SENDS: Final = [
    Fault.CUT_AFTER,
    Fault.CUT_BEFORE,
    Fault.CUT_MIDDLE,
    Fault.LIMITED,
    Fault.UNAVAILABLE,
    Fault.GATEWAY_AFTER,
    Fault.SLOW,
    Fault.GARBAGE,
    Fault.NOT_JSON,
    Fault.OTHER_JSON,
]
MANY: Final = [f"077{1_200_000 + place:07}" for place in range(1_003)]


@dataclass(frozen=True, slots=True)
class Run:
    """What a client answered, what the proxy saw, and whose money it was."""

    answers: Sequence[Any]
    seen: Sequence[Seen]
    caller: Caller


def calls() -> Sequence[Sequence[Any]]:
    return [
        *(["send", f"077120{place:04}", BODY, {}] for place in range(len(SENDS))),
        ["send_many", MANY, BODY, {"idempotency_key": "many-1042"}],
        ["send_many", MANY, BODY, {"idempotency_key": "many-1042"}],
        ["send", ["0771200001", "+15550100", "x"], BODY, {"reference": "order-1042"}],
        ["balance", {}],
        ["price", [*MANY, "+27 82 123 0002"], BODY, {}],
        ["prices", {}],
    ]


def faults() -> Sequence[Fault]:
    each = [fault for one in SENDS for fault in (one, Fault.PASS)]
    # The second of two batches is written, and its answer lost.
    return [*each, Fault.PASS, Fault.CUT_AFTER, Fault.PASS, Fault.PASS, Fault.PASS, Fault.PACED]


@pytest.fixture(scope="module")
def runs(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Run]]:
    """Run all clients at the same time, each with an account of its own."""
    with ExitStack() as stack:
        begun = []
        for language in LANGUAGES:
            caller = service.open_account("100")
            proxy = stack.enter_context(faulty_proxy(service.base, faults()))
            # A language without its program is skipped below.
            with suppress(pytest.skip.Exception):
                process = start(language, tmp_path_factory.mktemp(language), proxy.base, caller.key, calls())
                stack.callback(stop, process)
                begun.append((language, process, proxy, caller))
        yield {
            language: Run(finish(process), proxy.seen, caller) for language, process, proxy, caller in begun
        }


@pytest.fixture(params=LANGUAGES)
def run(request: pytest.FixtureRequest, runs: Mapping[str, Run]) -> Run:
    if request.param not in runs:
        pytest.skip(f"the program for {request.param} is not installed")
    return runs[request.param]


def test_each_message_is_sent_and_billed_once(service: Service, run: Run) -> None:
    sends = run.answers[: len(SENDS)]
    assert [one.get("accepted") for one in sends] == [1] * len(SENDS), sends
    many, again = run.answers[len(SENDS) : len(SENDS) + 2]
    assert (many["accepted"], many["total_cost"], many["replayed"]) == (1_003, "40.1200", False)
    assert again == many | {"replayed": True}
    expected = len(SENDS) + 1_003 + 1
    assert counted(service, run.caller) == (len(SENDS) + 3, expected, len(SENDS) + 3, expected * PRICE)
    assert service.balance(run.caller) == 100 - expected * PRICE


def counted(service: Service, caller: Caller) -> tuple[int, int, int, Decimal]:
    """Count batches, messages and debits, and what was debited."""
    batches = service.sql(
        "SELECT count(*), sum(recipients) FROM batches WHERE account_id = $1 AND recipients > 0", caller.id
    )[0]
    messages = service.sql(
        "SELECT count(*) FROM messages m JOIN batches b ON b.id = m.batch_id WHERE b.account_id = $1",
        caller.id,
    )[0]
    debits = service.sql(
        "SELECT count(*), sum(amount) FROM transfers WHERE account_id = $1 AND to_book = 'revenue'", caller.id
    )[0]
    assert batches[1] == messages[0]
    return batches[0], messages[0], debits[0], debits[1]


def test_every_try_of_a_call_has_its_key_and_every_call_another(run: Run) -> None:
    keys = [one.key for one in run.seen]
    tries = [keys[place : place + 2] for place in range(0, 2 * len(SENDS), 2)]
    assert [first for first, second in tries if first != second] == []
    own = {first for first, _ in tries}
    assert len(own) == len(SENDS)
    assert [one["key"] for one in run.answers[: len(SENDS)]] == [first for first, _ in tries]
    many = keys[2 * len(SENDS) : 2 * len(SENDS) + 5]
    assert many == ["many-1042", many[1], many[1], "many-1042", many[1]]


def test_the_service_said_again_what_was_lost(run: Run) -> None:
    carried_out = {
        Fault.CUT_AFTER,
        Fault.CUT_MIDDLE,
        Fault.GATEWAY_AFTER,
        Fault.SLOW,
        Fault.GARBAGE,
        Fault.NOT_JSON,
        Fault.OTHER_JSON,
    }
    replayed = {fault for fault, one in zip(SENDS, run.answers, strict=False) if one["replayed"]}
    assert replayed == carried_out


def test_a_refusal_for_now_is_waited_for(run: Run) -> None:
    place = 2 * SENDS.index(Fault.LIMITED)
    assert run.seen[place + 1].at_s - run.seen[place].at_s >= 1
    paced = next(place for place, one in enumerate(run.seen) if one.fault is Fault.PACED)
    assert run.seen[paced + 1].at_s - run.seen[paced].at_s >= 1


def test_the_other_calls_answer_too(run: Run) -> None:
    some, balance, price, prices = run.answers[len(SENDS) + 2 :]
    assert (some["accepted"], some["rejected"]) == (
        1,
        [["+15550100", "UNSUPPORTED_DESTINATION"], ["x", "INVALID_NUMBER"]],
    )
    assert Decimal(balance["balance"]) == 100 - (len(SENDS) + 1_004) * PRICE
    assert price["total_cost"] == "40.1400"
    assert {"ZW", "ZA"} <= set(prices["prices"])


def ask(
    language: str, service: Service, caller: Caller, tmp_path: Path, *calls: Sequence[Any], url: str = ""
) -> Any:
    process: subprocess.Popen[str] = start(language, tmp_path, url or service.base, caller.key, calls)
    return finish(process)


@pytest.mark.long
@pytest.mark.parametrize(
    "language",
    [one if one == "python" else pytest.param(one, marks=pytest.mark.long) for one in LANGUAGES],
)
def test_a_send_to_many_that_stopped_is_resumed(service: Service, tmp_path: Path, language: str) -> None:
    caller = service.open_account("40")
    call = ["send_many", MANY, BODY, {}]
    (stopped,) = ask(language, service, caller, tmp_path, call)
    assert (stopped["error"], len(stopped["batches"])) == ("SendInterrupted", 1)
    cause = stopped["cause"]
    assert (cause["error"], cause["code"], cause["status"]) == (
        "InsufficientBalance",
        "INSUFFICIENT_BALANCE",
        402,
    )
    assert cause["details"][0]["shortfall"] == "0.1200"

    service.run(manage_accounts.credit, caller.id, Decimal(1), note="Test", actor="test")
    call = ["send_many", MANY, BODY, {"idempotency_key": stopped["key"]}]
    # More recipients under the same key are refused, and nothing is billed.
    changed = ["send_many", ["0771209999", *MANY], BODY, {"idempotency_key": stopped["key"]}]
    refused, resumed, batch, message, unknown = ask(
        language,
        service,
        caller,
        tmp_path,
        changed,
        call,
        ["batch", stopped["batches"][0], {}],
        ["message", "msg_00000000000000000000000000", {}],
        ["send", [], BODY, {}],
    )
    assert (refused["batches"], refused["cause"]["code"]) == ([], "IDEMPOTENCY_CONFLICT")
    assert (resumed["accepted"], resumed["batches"][0]) == (1_003, stopped["batches"][0])
    assert counted(service, caller) == (2, 1_003, 2, 1_003 * PRICE)
    assert (batch["status"], batch["to"][0], len(batch["ids"])) == ("queued", "+263771200000", 1_000)
    assert (message["error"], unknown["error"]) == ("NotFound", "ValidationFailed")
    assert unknown["details"][0]["field"] == "to"


@pytest.mark.long
@pytest.mark.parametrize("language", LANGUAGES)
def test_redirects_are_not_followed_and_tries_and_their_time_are_bounded(
    service: Service, tmp_path: Path, language: str
) -> None:
    caller = service.open_account("1")
    calls = [["send", "0771200001", BODY, {"idempotency_key": "order-1042"}]] * 3
    faults = [Fault.REDIRECT, *[Fault.UNAVAILABLE] * 6, Fault.DRIP, Fault.PASS]
    with faulty_proxy(service.base, faults) as proxy:
        moved, away, dripped = ask(language, service, caller, tmp_path, *calls, url=proxy.base)
    assert (moved["error"], moved["key"]) == ("NoAnswer", "order-1042")
    assert (away["error"], away["code"]) == ("ServiceUnavailable", "SERVICE_UNAVAILABLE")
    assert (dripped["accepted"], dripped["replayed"]) == (1, True)
    assert [one.fault for one in proxy.seen] == faults
    assert service.balance(caller) == 1 - PRICE


@pytest.mark.long
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_client_that_is_killed_at_any_moment_and_run_again_bills_once(
    service: Service, tmp_path: Path, language: str
) -> None:
    caller = service.open_account("100")
    call = ["send_many", MANY, BODY, {"idempotency_key": "killed-1042"}]
    for requests in (1, 2):
        kill_at(requests, language, service, caller, tmp_path, call)
    (whole,) = ask(language, service, caller, tmp_path, call)
    assert (whole["accepted"], whole["replayed"]) == (1_003, True)
    assert counted(service, caller) == (2, 1_003, 2, 1_003 * PRICE)


@pytest.mark.long
def test_clients_wait_a_minute_where_the_account_has_no_calls_left(
    service: Service, tmp_path_factory: pytest.TempPathFactory
) -> None:
    calls = [["send", f"077120000{place}", BODY, {}] for place in range(5)]
    with ExitStack() as stack:
        begun = []
        for language in LANGUAGES:
            caller = service.open_account("1", rate=3)
            proxy = stack.enter_context(faulty_proxy(service.base, []))
            process = start(language, tmp_path_factory.mktemp(language), proxy.base, caller.key, calls)
            stack.callback(stop, process)
            begun.append((process, proxy))
        for process, proxy in begun:
            assert [one["accepted"] for one in finish(process)] == [1] * 5
            # None was refused and repeated.
            times = [one.at_s for one in proxy.seen]
            assert len(times) == 5
            assert 50 < times[3] - times[0] < 100


def kill_at(
    requests: int, language: str, service: Service, caller: Caller, tmp_path: Path, call: Sequence[Any]
) -> None:
    """Kill a client that waits for the answer to its last request, which was carried out."""
    with faulty_proxy(service.base, [*[Fault.PASS] * (requests - 1), Fault.SLOW]) as proxy:
        process = start(language, tmp_path, proxy.base, caller.key, [call])
        until(lambda: len(proxy.seen) == requests, "the client does not call")
        stop(process)
