"""A call with its retries, as steps that the synchronous and the asynchronous client carry out alike.

A flow yields a request to make, and gets its answer or the error that came instead; or it yields seconds to
wait.
"""

import json
import re
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from tumira_client.codes import BY_CODE
from tumira_client.errors import ApiError, NoAnswerError, SendInterruptedError, TumiraError
from tumira_client.models import Balance, Batch, Message, Price, SegmentPrice, Sent, SentMany
from tumira_client.numbers import complete
from tumira_client.retry import (
    Failure,
    Pacer,
    Policy,
    chunk_key,
    chunks,
    now_utc_s,
    read_retry_after,
    wait_s,
)

Result = TypeVar("Result")

_RANDOM: Final = SystemRandom()
_KEY: Final = re.compile("[!-~]{6,64}")
_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError)
_OK: Final = range(200, 300)


class Request(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes | None = None


class Answer(NamedTuple):
    """An answer; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


Flow = Generator[Request | float, Answer | Exception | None, Result]


@dataclass(frozen=True, slots=True)
class Flows:
    """The calls of one client."""

    api_key: str = field(repr=False)
    country: str | None
    policy: Policy
    pacer: Pacer = field(default_factory=Pacer)

    def send(
        self, to: str | Sequence[str], body: str, reference: str | None, idempotency_key: str | None
    ) -> Flow[Sent]:
        numbers = [complete(one, self.country) for one in ([to] if isinstance(to, str) else to)]
        return (yield from self._send(numbers, body, reference, _checked_key(idempotency_key)))

    def send_many(
        self, to: Sequence[str], body: str, reference: str | None, idempotency_key: str | None
    ) -> Flow[SentMany]:
        key = _checked_key(idempotency_key)
        sent: list[Sent] = []
        parts = chunks([complete(one, self.country) for one in to])
        for index, numbers in enumerate(parts):
            try:
                sent.append((yield from self._send(numbers, body, reference, chunk_key(key, index))))
            except TumiraError as error:
                raise SendInterruptedError(idempotency_key=key, batches=sent, count=len(parts)) from error
        return SentMany(key, sent)

    def price(self, to: str | Sequence[str], body: str) -> Flow[Price]:
        total: Price | None = None
        parts = chunks([complete(one, self.country) for one in ([to] if isinstance(to, str) else to)])
        for numbers in parts or [[]]:
            payload = {"channel": "sms", "to": numbers, "body": body, "dry_run": True}
            price = yield from self._call("POST", "/messages", lambda json, _: Price.read(json), payload)
            total = price if total is None else total.plus(price)
        assert total is not None  # noqa: S101 - there is at least one part
        return total

    def batch(self, batch_id: str) -> Flow[Batch]:
        path = f"/batches/{quote(batch_id, safe='')}"
        return (yield from self._call("GET", path, lambda json, _: Batch.read(json["data"])))

    def message(self, message_id: str) -> Flow[Message]:
        path = f"/messages/{quote(message_id, safe='')}"
        return (yield from self._call("GET", path, lambda json, _: Message.read(json["data"])))

    def balance(self) -> Flow[Balance]:
        return (yield from self._call("GET", "/balance", lambda json, _: Balance.read(json)))

    def prices(self) -> Flow[Sequence[SegmentPrice]]:
        def read(json: Mapping[str, Any], _: Answer) -> Sequence[SegmentPrice]:
            return [SegmentPrice.read(one) for one in json["data"]]

        return (yield from self._call("GET", "/pricing", read))

    def _send(self, numbers: Sequence[str], body: str, reference: str | None, key: str) -> Flow[Sent]:
        payload = {"channel": "sms", "to": numbers, "body": body}
        if reference is not None:
            payload["reference"] = reference

        def read(json: Mapping[str, Any], answer: Answer) -> Sent:
            return Sent.read(json, key, replayed=answer.headers.get("idempotency-replayed") == "true")

        return (yield from self._call("POST", "/messages", read, payload, key))

    def _call(
        self,
        method: str,
        path: str,
        read: Callable[[Mapping[str, Any], Answer], Result],
        payload: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Flow[Result]:
        """Make a call until there is an answer or no time; every try of a send has the same key."""
        request = self._request(method, path, payload, key)
        began = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            pause = self.pacer.pause_s(time.monotonic())
            # A longer pause than there is time for is not waited for: the service says what to do.
            if 0 < pause <= self.policy.give_up_s - (time.monotonic() - began):
                yield pause
            given = yield request
            if isinstance(given, Answer):
                self.pacer.note(given.headers, time.monotonic())
                if given.status in _OK:
                    try:
                        return read(json.loads(given.content), given)
                    except _UNREADABLE:
                        pass
            failure, error = _read_failure(given, key)
            if isinstance(error, ApiError) and error.code == "RATE_LIMITED":
                self.pacer.note({}, time.monotonic(), failure.retry_after_s)
            wait = wait_s(self.policy, attempt, time.monotonic() - began, failure, _RANDOM.random())
            if wait is None:
                raise error from (given if isinstance(given, Exception) else None)
            yield wait

    def _request(self, method: str, path: str, payload: Mapping[str, Any] | None, key: str | None) -> Request:
        headers = {"Authorization": f"Bearer {self.api_key}", "Accept": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        if payload is None:
            return Request(method, path, headers)
        headers["Content-Type"] = "application/json"
        return Request(method, path, headers, json.dumps(payload).encode())


def _checked_key(key: str | None) -> str:
    if key is None:
        return str(uuid.uuid4())
    if not _KEY.fullmatch(key):
        raise ValueError("An idempotency key has 6 to 64 visible ASCII characters.")
    return key


def _read_failure(given: Answer | Exception | None, key: str | None) -> tuple[Failure, TumiraError]:
    if not isinstance(given, Answer):
        error = NoAnswerError(f"No answer: {given}", idempotency_key=key)
        return Failure(status=None, retryable=None, retry_after_s=None), error
    retry_after_s = read_retry_after(given.headers.get("retry-after"), now_utc_s())
    refusal = None if given.status in _OK else _read_refusal(given, retry_after_s, key)
    if refusal is not None:
        return Failure(given.status, refusal.retryable, retry_after_s), refusal
    unreadable = NoAnswerError(
        f"The answer with status {given.status} is not one of Tumira; check the address.",
        idempotency_key=key,
    )
    return Failure(given.status, None, retry_after_s), unreadable


def _read_refusal(answer: Answer, retry_after_s: float | None, key: str | None) -> ApiError | None:
    """Read the error envelope; None if a server in between answered."""
    try:
        body = json.loads(answer.content)["error"]
        return BY_CODE.get(body["code"], ApiError)(
            code=str(body["code"]),
            status=answer.status,
            message=str(body["message"]),
            retryable=body["retryable"] is True,
            details=list(body["details"]),
            request_id=str(body["request_id"]),
            retry_after_s=retry_after_s,
            idempotency_key=key,
        )
    except _UNREADABLE:
        return None
