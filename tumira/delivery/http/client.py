"""HTTP calls to carriers, which always tell whether a failed call may have arrived.

Redirects are not followed, and no proxy is taken from the environment.
"""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import httpx

from tumira.carriers.http.carrier import HttpCarrier
from tumira.carriers.http.values import HttpAnswer, HttpRequest
from tumira.delivery.http.connections import (
    ANSWER_BYTES_MAX,
    IDLE_S,
    AnswerLostError,
    CarrierConnections,
    RequestNotSentError,
    connect_problem,
)

# Calls beside those of the window: tokens, look-ups and the balance.
CONNECTIONS_MORE: Final = 2
TOKEN_USED: Final = 0.8

_UNAUTHORIZED: Final = 401
# The request was not sent, or not a single octet of it: the carrier cannot have acted on it.
_UNHEARD: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)

# Loading the certificate authorities takes 20 ms, so all carriers share them.
_shared_tls: Final = functools.cache(functools.partial(httpx.create_ssl_context, trust_env=False))


@dataclass(frozen=True, slots=True)
class HttpTimeouts:
    connect_s: float = 5
    # For the whole answer; then the message is in doubt. Shorter ones make doubts, not speed.
    answer_s: float = 30
    # Without any answer while calls wait for one; then nothing more is submitted until one comes.
    quiet_s: float = 15
    # Before a call whose answer was lost is repeated, where that is safe.
    repeat_s: float = 1
    # After the carrier refused our account: before it is tried again, doubled each time.
    stop_s: float = 60
    stop_max_s: float = 900
    # Between two looks for messages to ask about, and between two looks at the balance.
    ask_s: float = 1
    balance_s: float = 300


DEFAULT_TIMEOUTS: Final = HttpTimeouts()


class AccessDeniedError(Exception):
    """The carrier gives us no token."""


class CarrierClient:
    """Calls one carrier, with a token where it wants one."""

    def __init__(
        self,
        http: HttpCarrier,
        connections: int,
        timing: HttpTimeouts = DEFAULT_TIMEOUTS,
        proxy: str | None = None,
    ) -> None:
        self._http = http
        self._calls: CarrierConnections | _ProxiedCalls
        if proxy is None:
            self._calls = CarrierConnections(timing.connect_s, timing.answer_s)
        else:
            self._calls = _ProxiedCalls(connections + CONNECTIONS_MORE, timing, proxy)
        self._token = ""
        self._token_until = 0.0
        self._renewing = asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    async def call(self, write: Callable[[str], HttpRequest]) -> HttpAnswer:
        """Make a call; `write` gets the token, and is called again if the carrier no longer knows that.

        Raises RequestNotSentError, AnswerLostError or AccessDeniedError.
        """
        if not self._http.has_token:
            return await self._calls.send(write(""))
        token = await self.find_token()
        answer = await self._calls.send(write(token))
        if answer.status != _UNAUTHORIZED:
            return answer
        if self._token == token:
            self._token_until = 0.0
        return await self._calls.send(write(await self.find_token()))

    async def find_token(self) -> str:
        """Return the token, a new one when the old one is close to its end."""
        async with self._renewing:
            if self._loop.time() >= self._token_until:
                try:
                    answer = await self._calls.send(self._http.token_request())
                except AnswerLostError as error:
                    # The message itself was not sent.
                    raise RequestNotSentError(f"no token: {error}") from None
                found = self._http.read_token(answer)
                if found is None:
                    raise AccessDeniedError(f"no token: HTTP {answer.status}")
                self._token = found.token
                self._token_until = self._loop.time() + TOKEN_USED * found.lifetime_s
            return self._token

    async def close(self) -> None:
        await self._calls.close()


class _ProxiedCalls:
    """Calls through a proxy, which few carriers need, by a general client."""

    def __init__(self, connections: int, timing: HttpTimeouts, proxy: str) -> None:
        self._call_s = timing.connect_s + timing.answer_s
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(timing.answer_s, connect=timing.connect_s),
            follow_redirects=False,
            trust_env=False,
            verify=_shared_tls(),
            proxy=proxy,
            limits=httpx.Limits(
                max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=IDLE_S
            ),
        )

    async def send(self, request: HttpRequest) -> HttpAnswer:
        try:
            # The limits of the client are for each read: an answer may come octet by octet.
            async with asyncio.timeout(self._call_s):
                return await self._exchange(request)
        except _UNHEARD as error:
            raise RequestNotSentError(f"not reached ({_words(error)})") from None
        except (TimeoutError, httpx.TimeoutException):
            raise AnswerLostError("no answer came in time") from None
        except httpx.HTTPError as error:
            raise AnswerLostError(f"the answer was lost ({type(error).__name__})") from None

    async def _exchange(self, request: HttpRequest) -> HttpAnswer:
        headers = [*request.headers, ("Accept-Encoding", "identity")]
        async with self._client.stream(
            request.method, request.url, headers=headers, content=request.body or None
        ) as response:
            body = bytearray()
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > ANSWER_BYTES_MAX:
                    raise AnswerLostError("the answer was too long")
            names = {name.lower(): value for name, value in response.headers.items()}
            return HttpAnswer(response.status_code, names, bytes(body))

    async def close(self) -> None:
        await self._client.aclose()


def _words(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return connect_problem(cause)
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
