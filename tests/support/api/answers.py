"""Checks that all tests of the API share."""

import re
from collections.abc import Mapping
from typing import Any, Final

import httpx

from tumira.core import errors
from tumira.core.errors import Refusal

RATE_HEADERS: Final = (
    "RateLimit-Policy",
    "RateLimit",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
)
WAITABLE: Final = (
    errors.IdempotencyInProgress,
    errors.RateLimited,
    errors.SpendLimitReached,
    errors.ServiceUnavailable,
)
CHALLENGING: Final = (errors.Unauthenticated, errors.InsufficientScope)

MONEY: Final = re.compile(r"[0-9]+\.[0-9]{4}")
TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}\+00:00")
_DIGITS: Final = "[0-9a-hjkmnp-tv-z]{26}"
BATCH_ID: Final = re.compile("bat_" + _DIGITS)
MESSAGE_ID: Final = re.compile("msg_" + _DIGITS)
REQUEST_ID: Final = re.compile("req_" + _DIGITS)


Shape = Mapping[str, type | re.Pattern[str]]


def assert_shape(value: Any, shape: Shape) -> None:
    """Check that an object has exactly these fields, each of its type or in its form."""
    assert isinstance(value, dict)
    assert set(value) == set(shape)
    for field, expected in shape.items():
        if isinstance(expected, type):
            # Not isinstance: in Python, but not in JSON, true is an integer.
            assert type(value[field]) is expected, field
        else:
            assert isinstance(value[field], str), field
            assert expected.fullmatch(value[field]), (field, value[field])


def assert_refused(response: httpx.Response, refusal: type[Refusal]) -> dict[str, Any]:
    """Check everything that a refusal's class says about its answer, and return the envelope's inside."""
    assert response.status_code == refusal.status, response.text
    assert response.headers["Content-Type"] == "application/json"
    document = response.json()
    assert_shape(document, {"error": dict})
    error: dict[str, Any] = document["error"]
    assert_shape(error, {"code": str, "message": str, "retryable": bool, "details": list, "request_id": str})
    assert error["code"] == refusal.code
    assert error["retryable"] is refusal.retryable
    assert error["message"].endswith("."), error["message"]
    assert error["request_id"] == response.headers["X-Request-Id"]
    for detail in error["details"]:
        assert {"code", "message"} <= set(detail)
    assert ("Retry-After" in response.headers) == issubclass(refusal, WAITABLE)
    assert int(response.headers.get("Retry-After", "1")) >= 1
    assert ("WWW-Authenticate" in response.headers) == issubclass(refusal, CHALLENGING)
    assert ("Allow" in response.headers) == issubclass(refusal, errors.MethodNotAllowed)
    return error


def faults(error: Mapping[str, Any]) -> list[tuple[str, str]]:
    for detail in error["details"]:
        assert_shape(detail, {"field": str, "code": str, "message": str})
    return [(detail["field"], detail["code"]) for detail in error["details"]]


def assert_rate_headers(response: httpx.Response) -> None:
    """Check that the headers of the rate limit are there, and that the new and the old ones agree."""
    limit, remaining, reset_s = (
        int(response.headers[name])
        for name in ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
    )
    assert response.headers["RateLimit-Policy"] == f'"account";q={limit};w=60'
    assert response.headers["RateLimit"] == f'"account";r={remaining};t={reset_s}'
    assert 0 <= remaining <= limit
    # Above 600 a minute a call counts until the second in which it was made has left the window.
    assert 0 <= reset_s <= (60 if limit <= 600 else 61)


def assert_no_rate_headers(response: httpx.Response) -> None:
    """Check that an answer to nobody in particular says nothing about an account's limit."""
    assert not [name for name in RATE_HEADERS if name in response.headers]
