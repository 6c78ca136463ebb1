"""What does a browser keep for us? Tokens that scripts cannot read and other sites cannot make it send."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

TOKEN_MAX: Final = 100


class Cookie:
    """One cookie; behind TLS its name keeps other hosts of the same domain from planting one."""

    def __init__(self, name: str, public_url: str, max_age_s: int) -> None:
        self._secure = public_url.startswith("https://")
        self.name: Final = f"__Host-{name}" if self._secure else name
        self._max_age_s = max_age_s

    def read(self, request: Request) -> str | None:
        """Return the token that the browser has."""
        token = request.cookies.get(self.name)
        return token if token and len(token) <= TOKEN_MAX else None

    def give(self, response: Response, token: str) -> None:
        """Let the browser keep a token."""
        response.set_cookie(
            self.name,
            token,
            max_age=self._max_age_s,
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="lax",
        )

    def take(self, response: Response) -> None:
        """Let the browser forget it."""
        response.delete_cookie(self.name, path="/", secure=self._secure, httponly=True, samesite="lax")
