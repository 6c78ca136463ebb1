"""HTTP calls to providers, which always tell whether a failed call may have arrived."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

CONNECT_S: Final = 10.0
ANSWER_S: Final = 15.0
BODY_MAX: Final = 1 << 20

# The request was not sent, or not completely: the provider cannot have acted on it.
_UNHEARD: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


# Loading the certificate authorities takes 20 ms, so all providers share them.
_shared_tls: Final = functools.cache(functools.partial(httpx.create_ssl_context, trust_env=False))


class NoAnswerError(Exception):
    """A call without a usable answer; `may_have_arrived` where the provider may have acted on it."""

    def __init__(self, problem: str, *, may_have_arrived: bool) -> None:
        super().__init__(problem)
        self.problem = problem
        self.may_have_arrived = may_have_arrived


@dataclass(frozen=True, slots=True)
class HttpReply:
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
        """Make one call; raises NoAnswerError, which never contains the address or the body."""
        try:
            async with self._client.stream(
                method, url, headers=headers, content=content, json=json, auth=auth
            ) as response:
                body = bytearray()
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > BODY_MAX:
                        raise NoAnswerError("the answer was too long", may_have_arrived=True)
                return HttpReply(response.status_code, bytes(body))
        except _UNHEARD as error:
            raise NoAnswerError(f"not reached ({type(error).__name__})", may_have_arrived=False) from None
        except httpx.HTTPError as error:
            raise NoAnswerError(f"no answer ({type(error).__name__})", may_have_arrived=True) from None

    async def close(self) -> None:
        await self._client.aclose()
