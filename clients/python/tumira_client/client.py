"""The clients: `Tumira` waits for each answer, `AsyncTumira` is for asynchronous programs."""

import asyncio
import os
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, cast
from urllib.parse import urlsplit

import httpx

from tumira_client.flow import Answer, Flow, Flows, Request, Result
from tumira_client.models import Balance, Batch, Message, Price, SegmentPrice, Sent, SentMany
from tumira_client.retry import Policy

VERSION: Final = "0.1.0"
_PREFIX: Final = "/api/v1"
_POLICY: Final = Policy()
_HEADERS: Final = {"User-Agent": f"tumira-python/{VERSION}"}


class Tumira:
    """Sends messages and looks them up.

    The address and the API key come from `TUMIRA_URL` and `TUMIRA_API_KEY` unless given. With a `country`,
    `ZW` or `ZA`, local numbers are completed. All calls wait while the account has no calls left, and are
    repeated under `policy` without being billed twice.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        country: str | None = None,
        policy: Policy = _POLICY,
        http: httpx.Client | None = None,
    ) -> None:
        self._base = _base(url)
        self._flows = _flows(api_key, country, policy)
        self._http = http or httpx.Client(headers=_HEADERS)

    def send(
        self,
        to: str | Sequence[str],
        body: str,
        *,
        reference: str | None = None,
        idempotency_key: str | None = None,
    ) -> Sent:
        """Send a text to up to 1,000 recipients.

        Without an `idempotency_key` each call is another send; with one, the same call is sent and billed
        once within 72 hours.
        """
        return self._run(self._flows.send(to, body, reference, idempotency_key))

    def send_many(
        self,
        to: Sequence[str],
        body: str,
        *,
        reference: str | None = None,
        idempotency_key: str | None = None,
    ) -> SentMany:
        """Send a text to any number of recipients, 1,000 in a batch.

        Raises `SendInterruptedError` if it stops in the middle: repeat it with the key that the error holds.
        """
        return self._run(self._flows.send_many(to, body, reference, idempotency_key))

    def price(self, to: str | Sequence[str], body: str) -> Price:
        """Return what a send to any number of recipients would cost."""
        return self._run(self._flows.price(to, body))

    def batch(self, batch_id: str) -> Batch:
        return self._run(self._flows.batch(batch_id))

    def message(self, message_id: str) -> Message:
        return self._run(self._flows.message(message_id))

    def balance(self) -> Balance:
        return self._run(self._flows.balance())

    def prices(self) -> Sequence[SegmentPrice]:
        return self._run(self._flows.prices())

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, flow: Flow[Result]) -> Result:
        given: Answer | Exception | None = None
        try:
            while True:
                step = flow.send(given)
                given = None
                if isinstance(step, Request):
                    given = self._call(step)
                else:
                    time.sleep(step)
        except StopIteration as end:
            return cast("Result", end.value)

    def _call(self, request: Request) -> Answer | Exception:
        timeout_s = self._flows.policy.timeout_s
        deadline = time.monotonic() + timeout_s
        try:
            with self._http.stream(
                request.method,
                self._base + request.path,
                headers=request.headers,
                content=request.content,
                timeout=timeout_s,
                follow_redirects=False,
            ) as response:
                content = b""
                for part in response.iter_bytes():
                    content += part
                    # The timeout of httpx is for each read, so the sum is watched.
                    if time.monotonic() > deadline:
                        return httpx.ReadTimeout("The answer took too long.")
                return _answer(response, content)
        except httpx.RequestError as error:
            return error


class AsyncTumira:
    """As `Tumira`, for asynchronous programs."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        country: str | None = None,
        policy: Policy = _POLICY,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._base = _base(url)
        self._flows = _flows(api_key, country, policy)
        self._http = http or httpx.AsyncClient(headers=_HEADERS)

    async def send(
        self,
        to: str | Sequence[str],
        body: str,
        *,
        reference: str | None = None,
        idempotency_key: str | None = None,
    ) -> Sent:
        """Send a text to up to 1,000 recipients; see `Tumira.send`."""
        return await self._run(self._flows.send(to, body, reference, idempotency_key))

    async def send_many(
        self,
        to: Sequence[str],
        body: str,
        *,
        reference: str | None = None,
        idempotency_key: str | None = None,
    ) -> SentMany:
        """Send a text to any number of recipients; see `Tumira.send_many`."""
        return await self._run(self._flows.send_many(to, body, reference, idempotency_key))

    async def price(self, to: str | Sequence[str], body: str) -> Price:
        """Return what a send to any number of recipients would cost."""
        return await self._run(self._flows.price(to, body))

    async def batch(self, batch_id: str) -> Batch:
        return await self._run(self._flows.batch(batch_id))

    async def message(self, message_id: str) -> Message:
        return await self._run(self._flows.message(message_id))

    async def balance(self) -> Balance:
        return await self._run(self._flows.balance())

    async def prices(self) -> Sequence[SegmentPrice]:
        return await self._run(self._flows.prices())

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, flow: Flow[Result]) -> Result:
        given: Answer | Exception | None = None
        try:
            while True:
                step = flow.send(given)
                given = None
                if isinstance(step, Request):
                    given = await self._call(step)
                else:
                    await asyncio.sleep(step)
        except StopIteration as end:
            return cast("Result", end.value)

    async def _call(self, request: Request) -> Answer | Exception:
        timeout_s = self._flows.policy.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._http.request(
                    request.method,
                    self._base + request.path,
                    headers=request.headers,
                    content=request.content,
                    timeout=timeout_s,
                    follow_redirects=False,
                )
            return _answer(response, response.content)
        except TimeoutError:
            return httpx.ReadTimeout("The answer took too long.")
        except httpx.RequestError as error:
            return error


def _base(url: str | None) -> str:
    chosen = url or os.environ.get("TUMIRA_URL", "")
    parts = urlsplit(chosen)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("Give the address of your service, as https://sms.example.com, or set TUMIRA_URL.")
    return chosen.rstrip("/").removesuffix(_PREFIX) + _PREFIX


def _flows(api_key: str | None, country: str | None, policy: Policy) -> Flows:
    key = api_key or os.environ.get("TUMIRA_API_KEY", "")
    if not (key.isascii() and key.isprintable() and key):
        raise ValueError("Give an API key, tmr_…, or set TUMIRA_API_KEY.")
    return Flows(key, country, policy)


def _answer(response: httpx.Response, content: bytes) -> Answer:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Answer(response.status_code, headers, content)
