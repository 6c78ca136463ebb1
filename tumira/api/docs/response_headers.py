"""Which headers stand on which answer?"""

from collections.abc import Mapping
from typing import Any, Final

from tumira.accounts.rate_limit import WINDOW_S
from tumira.api.docs.examples import REQUEST_ID

_COUNT: Final = {"type": "integer", "minimum": 0}

HEADERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Allow": {
        "description": "The methods that this address takes.",
        "schema": {"type": "string", "examples": ["GET, HEAD"]},
    },
    "Cache-Control": {
        "description": "Answers are not to be kept by caches.",
        "schema": {"type": "string", "const": "no-store"},
    },
    "Idempotency-Replayed": {
        "description": "`true` when this answer was first given to an earlier call; absent otherwise.",
        "schema": {"type": "string", "const": "true"},
    },
    "RateLimit": {
        "description": "How many calls are left (`r`), and in how many seconds one more is (`t`).",
        "schema": {
            "type": "string",
            "pattern": '^"account";r=[0-9]+;t=[0-9]+$',
            "examples": ['"account";r=59;t=60'],
        },
    },
    "RateLimit-Policy": {
        "description": "How many calls (`q`) the account may make in how many seconds (`w`).",
        "schema": {
            "type": "string",
            "pattern": f'^"account";q=[0-9]+;w={WINDOW_S}$',
            "examples": [f'"account";q=60;w={WINDOW_S}'],
        },
    },
    "Retry-After": {
        "description": "After how many seconds the call can be repeated.",
        "schema": {**_COUNT, "examples": [12]},
    },
    "WWW-Authenticate": {
        "description": "What a key must be or have, after RFC 6750.",
        "schema": {"type": "string", "pattern": "^Bearer ", "examples": ['Bearer realm="tumira"']},
    },
    "X-RateLimit-Limit": {
        "description": "The same as `q` of `RateLimit-Policy`.",
        "schema": {**_COUNT, "examples": [60]},
    },
    "X-RateLimit-Remaining": {
        "description": "The same as `r` of `RateLimit`.",
        "schema": {**_COUNT, "examples": [59]},
    },
    "X-RateLimit-Reset": {
        "description": "The same as `t` of `RateLimit`, in seconds.",
        "schema": {**_COUNT, "examples": [60]},
    },
    "X-Request-Id": {
        "description": "The id of this call: yours if you sent a fitting one, else a new one.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$", "examples": [REQUEST_ID]},
    },
}

_ALWAYS: Final = ("X-Request-Id", "Cache-Control")
_RATE: Final = (
    "RateLimit-Policy",
    "RateLimit",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
)
# Whose account it is was not asked yet, and may not have been where the service could not go on.
_ACCOUNT_UNKNOWN: Final = frozenset([401, 405, 408, 431])
_ACCOUNT_PERHAPS_KNOWN: Final = frozenset([400, 429, 500, 503])

# By status, what else stands there: always (True), or with some codes only (False).
_MORE: Final[Mapping[int, Mapping[str, bool]]] = {
    202: {"Idempotency-Replayed": False},
    401: {"WWW-Authenticate": True},
    403: {"WWW-Authenticate": False},
    405: {"Allow": True},
    409: {"Retry-After": False},
    429: {"Retry-After": True},
    503: {"Retry-After": True},
}


def headers_of(status: int) -> Mapping[str, bool]:
    """Return the headers of an answer, each with whether it is always there."""
    headers = dict.fromkeys(_ALWAYS, True)
    headers.update(_MORE.get(status, {}))
    if status not in _ACCOUNT_UNKNOWN:
        headers.update(dict.fromkeys(_RATE, status not in _ACCOUNT_PERHAPS_KNOWN))
    return headers
