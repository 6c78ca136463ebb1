"""How is a provider called over HTTP, so that it is always known whether it may have heard us?"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

CONNECT_S: Final = 10.0
ANSWER_S: Final = 15.0
BODY_MAX: Final = 1 << 20

# Nothing left this machine, or not all of it: the other end cannot have acted on it.
_UNHEARD: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


# To read all the authorities takes some 20 ms, which each provider should not cost anew.
_shared_tls: Final = functools.cache(functools.partial(httpx.create_ssl_context, trust_env=False))


class NoAnswerError(Exception):
    """A provider that gave no answer that could be read; `was_heard` where it may have acted on the call."""

    def __init__(self, problem: str, *, was_heard: bool) -> None:
        super().__init__(problem)
        self.problem = problem
        self.was_heard = was_heard


@dataclass(frozen=True, slots=True)
class HttpReply:
    """What a provider answered."""

    status: int
    body: bytes = field(repr=False)


class ProviderClient:
    """Calls one provider. Redirects are not followed, and no proxy is taken from the environment."""

    def __init__(self, *, answer_s: float = ANSWER_S) -> None:
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(answer_s, connect=CONNECT_S),
            follow_redirects=False,
            trust_env=False,
            verify=_shared_tls(),
            limits=httpx.Limits(max_connections=16),
        )

    async def call(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        json: Any = None,
        auth: tuple[str, str] | None = None,
    ) -> HttpReply:
        """Make one call; raises NoAnswerError, whose words hold nothing of the address or the body."""
        try:
            async with self._client.stream(
                method, url, headers=headers, content=content, json=json, auth=auth
            ) as response:
                body = bytearray()
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > BODY_MAX:
                        raise NoAnswerError("the answer was too long", was_heard=True)
                return HttpReply(response.status_code, bytes(body))
        except _UNHEARD as error:
            raise NoAnswerError(f"not reached ({type(error).__name__})", was_heard=False) from None
        except httpx.HTTPError as error:
            raise NoAnswerError(f"no answer ({type(error).__name__})", was_heard=True) from None

    async def close(self) -> None:
        """End the connections."""
        await self._client.aclose()
