"""Routing, methods, request ids and API keys."""

from collections.abc import Callable
from typing import Final

import httpx
import pytest

from tests.support.api.answers import REQUEST_ID, assert_no_rate_headers, assert_rate_headers, assert_refused
from tests.support.processes.service import NO_TLS, Service
from tumira.core import errors

GET_PATHS: Final = ("/balance", "/pricing", "/batches/bat_0", "/messages/msg_0", "/openapi.json")


def request(
    service: Service, method: str, path: str, headers: dict[bytes, bytes] | None = None
) -> httpx.Response:
    return httpx.request(
        method, service.base + path, headers=headers or {}, trust_env=False, verify=NO_TLS, timeout=40
    )


@pytest.mark.parametrize(
    "path",
    [
        *("/api/", "/api/v1", "/api/v1/", "/api/v2/balance", "/api/v1/nothing", "/api/v1/nothing/at/all"),
        *("/api/v1//balance", "/api/v1/balance/", "/api/v1/messages/", "/api/v1/batches", "/api/v1/BALANCE"),
        *("/api/v1/balance.json", "/api/v1/balance%00", "/api/v1/%FF", "/api/../api/v1/nothing"),
        "/api/v1/messages/msg_0/parts",
    ],
)
def test_an_unknown_address_under_api_answers_404_in_the_envelope(service: Service, path: str) -> None:
    for method in ("GET", "POST", "PATCH", "OPTIONS"):
        answer = request(service, method, path)
        assert_refused(answer, errors.NotFound)
        assert_no_rate_headers(answer)


def test_another_method_answers_405_and_says_which_are_allowed(service: Service) -> None:
    for path, allow, methods in (
        *(
            (path, "GET, HEAD", ("POST", "PUT", "DELETE", "OPTIONS", "PROPFIND", "TRACE"))
            for path in GET_PATHS
        ),
        ("/messages", "POST", ("GET", "PUT", "PATCH", "DELETE", "OPTIONS")),
    ):
        for method in methods:
            answer = service.call(None, method, path)
            assert_refused(answer, errors.MethodNotAllowed)
            assert_no_rate_headers(answer)
            assert answer.headers["Allow"] == allow, (method, path)


def test_head_answers_as_get_does_without_the_body(service: Service) -> None:
    caller = service.open_account()
    batch_id = service.send(caller).json()["batch_id"]
    for path in ("/balance", "/pricing", f"/batches/{batch_id}", "/batches/bat_0"):
        get, head = (service.call(caller, method, path) for method in ("GET", "HEAD"))
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert_rate_headers(head)
        if get.status_code == 200:
            assert head.headers["Content-Length"] == get.headers["Content-Length"]
    refused = service.call(None, "HEAD", "/messages")
    assert (refused.status_code, refused.headers["Allow"], refused.content) == (405, "POST", b"")
    assert service.call(None, "HEAD", "/balance").status_code == 401


@pytest.mark.parametrize("path", ["/nothing", "/api", "/apis/v1/balance", "/healthz/nothing"])
def test_outside_api_an_unknown_address_answers_a_page(service: Service, path: str) -> None:
    answer = request(service, "GET", path)
    assert answer.status_code == 404
    assert answer.headers["Content-Type"].startswith("text/html")
    assert "404" in answer.text
    assert REQUEST_ID.fullmatch(answer.headers["X-Request-Id"])


@pytest.mark.parametrize("identifier", ["7", "A.b_C-9", "x" * 64])
def test_a_safe_request_id_is_given_back(service: Service, identifier: str) -> None:
    caller = service.open_account()
    headers = {"X-Request-Id": identifier}
    answers = [
        service.send(caller, headers),
        service.call(None, "GET", "/balance", headers=headers),
        service.call(None, "GET", "/nothing", headers=headers),
        request(service, "GET", "/nothing", {b"X-Request-Id": identifier.encode()}),
    ]
    assert [answer.headers["X-Request-Id"] for answer in answers] == [identifier] * len(answers)
    assert [answer.json()["error"]["request_id"] for answer in answers[1:3]] == [identifier] * 2


def test_an_unsafe_or_missing_request_id_is_replaced_by_one_of_its_own(service: Service) -> None:
    unsafe = (b"", b"x" * 65, b"a b", b"a\tb", b"a/b", b'"a"', b"<b>", b"\xc3\xa9", b"\xff")
    made = []
    for headers in ({}, *({b"X-Request-Id": identifier} for identifier in unsafe)):
        answer = request(service, "GET", "/api/v1/balance", headers)
        assert_refused(answer, errors.MissingApiKey)
        made.append(answer.headers["X-Request-Id"])
    assert all(REQUEST_ID.fullmatch(identifier) for identifier in made)
    assert len(set(made)) == len(made)


def test_a_call_without_a_bearer_key_is_challenged_without_an_error(service: Service) -> None:
    key = service.open_account().key.encode()
    for value in (None, b"", b"Bearer", b"Basic dXNlcjpwYXNz", b"Token " + key):
        headers = {} if value is None else {b"Authorization": value}
        answer = request(service, "GET", "/api/v1/balance", headers)
        assert_refused(answer, errors.MissingApiKey)
        assert_no_rate_headers(answer)
        # RFC 6750, section 3.1: no error code for a request that carries no authentication at all.
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="tumira"'
    for scheme in (b"Bearer ", b"bearer ", b"BEARER "):
        assert request(service, "GET", "/api/v1/balance", {b"Authorization": scheme + key}).status_code == 200


SPOILT: Final[tuple[Callable[[str], str], ...]] = (
    lambda key: key[:-1],
    lambda key: key + "0",
    lambda key: key.upper(),
    lambda key: key.replace("tmr_", "tmx_"),
    lambda key: key[:30] + "_" + "0" * 32,
    lambda key: "tmr_" + "0" * 26 + key[30:],
    lambda key: "tmr_" + "z" * 26 + key[30:],
    lambda key: key + "é",
    lambda key: f'"{key}"',
    lambda _key: "x" * 4000,
)


def test_a_key_that_is_not_one_of_ours_is_an_invalid_token(service: Service) -> None:
    key = service.open_account().key
    for place, spoil in enumerate(SPOILT):
        headers = {b"Authorization": f"Bearer {spoil(key)}".encode()}
        answer = request(service, "GET", "/api/v1/balance", headers)
        assert answer.status_code == 401, place
        assert_refused(answer, errors.InvalidApiKey)
        assert_no_rate_headers(answer)
        challenge = answer.headers["WWW-Authenticate"]
        assert challenge.startswith('Bearer realm="tumira", error="invalid_token", error_description="')
