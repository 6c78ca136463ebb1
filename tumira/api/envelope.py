"""Answers of the API: the error envelope, and the headers of every answer."""

from collections.abc import MutableMapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tumira.accounts.rate_limit import WINDOW_S
from tumira.api.schemas import encode
from tumira.core.errors import Refusal, Unauthenticated
from tumira.sending.types import Quota

Header = tuple[bytes, bytes]

JSON: Final = b"application/json"
# Browsers must not guess another type from the content.
NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")
# Browsers use https alone for a year; for this name, not for subdomains, which may not be ours.
HTTPS_ONLY: Final = (b"strict-transport-security", b"max-age=31536000")


class Answer(Struct, frozen=True):
    status: int
    body: bytes
    headers: Sequence[Header] = ()
    # The code of a refusal.
    code: str | None = None


def refuse(refusal: Refusal, request_id: str, quota: Quota | None = None) -> Answer:
    """Write a refusal as the error envelope."""
    error: MutableMapping[str, Any] = {
        "code": refusal.code,
        "message": refusal.message,
        "retryable": refusal.retryable,
        "details": refusal.details,
        "request_id": request_id,
    }
    headers = [(name.lower().encode(), value.encode()) for name, value in refusal.headers]
    if isinstance(refusal, Unauthenticated):
        headers.append((b"www-authenticate", refusal.challenge.encode()))
    if refusal.retry_after_s is not None:
        headers.append((b"retry-after", str(refusal.retry_after_s).encode()))
    return Answer(refusal.status, encode({"error": error}), [*headers, *rate_headers(quota)], refusal.code)


def rate_headers(quota: Quota | None) -> Sequence[Header]:
    """Return how many calls are left, in the headers of the draft standard and in the older ones."""
    if quota is None:
        return ()
    limit, remaining, reset_s = quota.limit, quota.place.remaining, quota.place.reset_s
    return (
        (b"ratelimit-policy", b'"account";q=%d;w=%d' % (limit, WINDOW_S)),
        (b"ratelimit", b'"account";r=%d;t=%d' % (remaining, reset_s)),
        (b"x-ratelimit-limit", b"%d" % limit),
        (b"x-ratelimit-remaining", b"%d" % remaining),
        (b"x-ratelimit-reset", b"%d" % reset_s),
    )
