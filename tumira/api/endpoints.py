"""The five endpoints of the API."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from msgspec import Struct

from tumira.accounts.api_keys import KeySecret, Scope
from tumira.api import schemas
from tumira.api.callers import Callers
from tumira.api.envelope import Answer, rate_headers, refuse
from tumira.api.request import BODY_BYTES_MAX, read_send
from tumira.core.errors import NotFound, RequestTimeout
from tumira.core.ids import BATCH, MESSAGE, AccountId, BatchId, MessageId, read_id
from tumira.core.tracing import Tracer
from tumira.postgres.pool import Database
from tumira.sending import batches
from tumira.sending.batcher import Batcher
from tumira.sending.types import Admitted, Answered, Call, Decision, Priced, Refused

Receive = Callable[[], Awaitable[Mapping[str, Any]]]


@dataclass(slots=True)
class ApiRequest:
    id: str
    address: str
    headers: Sequence[tuple[bytes, bytes]]
    receive: Receive
    path_id: str
    # The first of each name.
    _first: Mapping[bytes, bytes] = field(init=False)

    def __post_init__(self) -> None:
        self._first = dict(reversed(self.headers))

    def header(self, name: bytes) -> str | None:
        value = self._first.get(name)
        return None if value is None else value.decode("latin-1")

    def header_all(self, name: bytes) -> Sequence[str]:
        if name not in self._first:
            return ()
        return [value.decode("latin-1") for key, value in self.headers if key == name]

    async def body(self) -> bytes | None:
        """Read the body; None if it is larger than allowed, of which no more than that is kept."""
        chunks: list[bytes] = []
        size = 0
        while True:
            event = await self.receive()
            if event["type"] == "http.disconnect":
                # The body is incomplete; the caller has gone, or got its answer from the server.
                raise RequestTimeout
            chunk = event.get("body", b"")
            size += len(chunk)
            if size <= BODY_BYTES_MAX:
                chunks.append(chunk)
            if not event.get("more_body", False):
                break
            if size > BODY_BYTES_MAX:
                return None
        return b"".join(chunks) if size <= BODY_BYTES_MAX else None


@dataclass(frozen=True, slots=True)
class ApiServices:
    database: Database
    callers: Callers
    batcher: Batcher
    tracer: Tracer | None = None


async def send_messages(services: ApiServices, request: ApiRequest) -> Answer:
    began_ns = time.time_ns()
    secret = await services.callers.identify(request.header(b"authorization"), request.address)
    call = read_call(secret, request, await request.body())
    return answer_send(services, request, await services.batcher.ask(call), began_ns)


def read_call(secret: KeySecret, request: ApiRequest, body: bytes | None) -> Call:
    """Parse a posted send; `body` is None when it was larger than allowed."""
    send = read_send(
        request.header(b"content-type"),
        request.header(b"content-encoding"),
        request.header_all(b"idempotency-key"),
        body,
    )
    return Call(secret.account_id, secret.key_id, Scope.SEND, send, request.id)


def answer_send(services: ApiServices, request: ApiRequest, decision: Decision, began_ns: int) -> Answer:
    """Write the answer to a posted send."""
    match decision:
        case Answered(quota, response, replayed):
            if services.tracer is not None and not replayed:
                services.tracer.accepted(response, began_ns, time.time_ns())
            replay = [(b"idempotency-replayed", b"true")] if replayed else []
            return Answer(202, response, [*rate_headers(quota), *replay])
        case Priced(quota, _):
            return Answer(200, schemas.write_priced(decision), rate_headers(quota))
        case Refused(refusal, quota):
            return refuse(refusal, request.id, quota)
    raise AssertionError(decision)


# Finds an object and writes it as JSON, or returns None.
Find = Callable[[Database, AccountId, str, Admitted], Awaitable[bytes | None]]


async def look_up(services: ApiServices, request: ApiRequest, scope: Scope, find: Find) -> Answer:
    secret = await services.callers.identify(request.header(b"authorization"), request.address)
    decision = await services.batcher.ask(Call(secret.account_id, secret.key_id, scope, None, request.id))
    if isinstance(decision, Refused):
        return refuse(decision.refusal, request.id, decision.quota)
    assert isinstance(decision, Admitted)
    found = await find(services.database, secret.account_id, request.path_id, decision)
    if found is None:
        return refuse(NotFound("You have nothing with this id."), request.id, decision.quota)
    return Answer(200, found, rate_headers(decision.quota))


async def find_batch(
    database: Database, account_id: AccountId, text: str, _admitted: Admitted
) -> bytes | None:
    batch_id = read_id(BATCH, text)
    if batch_id is None:
        return None
    async with database.connection() as connection:
        batch = await batches.find(connection, account_id, BatchId(batch_id))
        if batch is None:
            return None
        messages, _ = await batches.list_messages(connection, account_id, batch.id)
    return schemas.write_batch(batch, messages)


async def find_message(
    database: Database, account_id: AccountId, text: str, _admitted: Admitted
) -> bytes | None:
    message_id = read_id(MESSAGE, text)
    if message_id is None:
        return None
    async with database.connection() as connection:
        message = await batches.find_message(connection, account_id, MessageId(message_id))
    return None if message is None else schemas.write_message(message)


async def find_balance(_database: Database, _account_id: AccountId, _text: str, admitted: Admitted) -> bytes:
    """Return the balance at the time when the call was admitted."""
    return schemas.write_balance(admitted.balance)


async def find_prices(_database: Database, _account_id: AccountId, _text: str, admitted: Admitted) -> bytes:
    """Return the prices at the time when the call was admitted."""
    return schemas.write_pricing(admitted.tariff.prices)


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """One operation; the OpenAPI document is made from these."""

    method: str
    path: str
    operation: str
    summary: str
    scope: Scope
    handle: Callable[[ApiServices, ApiRequest], Awaitable[Answer]]
    answers: Mapping[int, type[Struct]]


def _lookup(
    path: str, operation: str, summary: str, scope: Scope, find: Find, answer: type[Struct]
) -> ApiEndpoint:
    handle = partial(look_up, scope=scope, find=find)
    return ApiEndpoint("GET", path, operation, summary, scope, handle, {200: answer})


ENDPOINTS: Final = (
    ApiEndpoint(
        "POST",
        "/messages",
        "sendMessages",
        "Send a batch, or price it with `dry_run`",
        Scope.SEND,
        send_messages,
        {202: schemas.SendResponse, 200: schemas.DryRunResponse},
    ),
    _lookup(
        "/messages/{id}",
        "getMessage",
        "Look up one message",
        Scope.READ,
        find_message,
        schemas.MessageResponse,
    ),
    _lookup(
        "/batches/{id}",
        "getBatch",
        "Look up a batch with every recipient's outcome",
        Scope.READ,
        find_batch,
        schemas.BatchResponse,
    ),
    _lookup(
        "/balance", "getBalance", "Read the balance", Scope.ACCOUNT, find_balance, schemas.BalanceResponse
    ),
    _lookup(
        "/pricing", "getPricing", "Read the price list", Scope.ACCOUNT, find_prices, schemas.PricingResponse
    ),
)
