"""Cookies that scripts cannot read and other sites cannot make a browser send."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

TOKEN_MAX: Final = 100


class Cookie:
    """A cookie with a token; behind TLS its `__Host-` name keeps sibling hosts from planting one."""

    def __init__(self, name: str, public_url: str, max_age_s: int) -> None:
        self._secure = public_url.startswith("https://")
        self.name: Final = f"__Host-{name}" if self._secure else name
        self._max_age_s = max_age_s

    def read(self, request: Request) -> str | None:
        token = request.cookies.get(self.name)
        return token if token and len(token) <= TOKEN_MAX else None

    def set(self, response: Response, token: str) -> None:
        response.set_cookie(
            self.name,
            token,
            max_age=self._max_age_s,
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="lax",
        )

    def delete(self, response: Response) -> None:
        response.delete_cookie(self.name, path="/", secure=self._secure, httponly=True, samesite="lax")
