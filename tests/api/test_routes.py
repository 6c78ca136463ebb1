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


@pytest.mark.parametrize("with_key", [False, True])
@pytest.mark.parametrize(
    "path",
    [
        "/api/",
        "/api/v1",
        "/api/v1/",
        "/api/v2/balance",
        "/api/v1/nothing",
        "/api/v1/nothing/at/all",
        "/api/v1//balance",
        "/api/v1/balance/",
        "/api/v1/pricing/",
        "/api/v1/messages/",
        "/api/v1/batches/",
        "/api/v1/batches",
        "/api/v1/BALANCE",
        "/api/v1/balance.json",
        "/api/v1/balance%00",
        "/api/v1/%FF",
        "/api/../api/v1/nothing",
        "/api/v1/messages/msg_0/parts",
    ],
)
def test_an_unknown_address_under_api_answers_404_in_the_envelope(
    service: Service, path: str, *, with_key: bool
) -> None:
    key = service.open_account().key if with_key else ""
    headers = {b"Authorization": f"Bearer {key}".encode()} if with_key else {}
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        answer = request(service, method, path, headers)
        assert_refused(answer, errors.NotFound)
        assert_no_rate_headers(answer)


@pytest.mark.parametrize(
    ("path", "method", "allow"),
    [
        *(
            (path, method, "GET, HEAD")
            for path in GET_PATHS
            for method in ("POST", "PUT", "DELETE", "OPTIONS")
        ),
        *(("/messages", method, "POST") for method in ("GET", "PUT", "PATCH", "DELETE", "OPTIONS")),
        ("/balance", "PROPFIND", "GET, HEAD"),
        ("/balance", "TRACE", "GET, HEAD"),
    ],
)
def test_another_method_answers_405_and_says_which_are_allowed(
    service: Service, path: str, method: str, allow: str
) -> None:
    answer = service.call(None, method, path)
    assert_refused(answer, errors.MethodNotAllowed)
    assert_no_rate_headers(answer)
    assert answer.headers["Allow"] == allow


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


@pytest.mark.parametrize("identifier", ["a", "7", "order-1042", "A.b_C-9", "x" * 64, "req_0"])
def test_a_safe_request_id_is_given_back(service: Service, identifier: str) -> None:
    caller = service.open_account()
    headers = {"X-Request-Id": identifier}
    answers = [
        service.send(caller, headers),
        service.call(caller, "GET", "/balance", headers=headers),
        service.call(None, "GET", "/balance", headers=headers),
        service.call(None, "GET", "/nothing", headers=headers),
        service.call(None, "PUT", "/balance", headers=headers),
        request(service, "GET", "/nothing", {b"X-Request-Id": identifier.encode()}),
    ]
    assert [answer.headers["X-Request-Id"] for answer in answers] == [identifier] * len(answers)
    assert [answer.json()["error"]["request_id"] for answer in answers[2:5]] == [identifier] * 3


@pytest.mark.parametrize(
    "identifier",
    [b"", b"x" * 65, b"a b", b"a\tb", b"a/b", b"a,b", b'"a"', b"<b>", b"a;b", b"\xc3\xa9", b"\xff"],
)
def test_an_unsafe_request_id_is_replaced(service: Service, identifier: bytes) -> None:
    answer = request(service, "GET", "/api/v1/balance", {b"X-Request-Id": identifier})
    assert_refused(answer, errors.MissingApiKey)
    assert REQUEST_ID.fullmatch(answer.headers["X-Request-Id"])


def test_each_request_without_an_id_gets_one_of_its_own(service: Service) -> None:
    caller = service.open_account()
    ids = [service.call(caller, "GET", "/balance").headers["X-Request-Id"] for _ in range(10)]
    assert all(REQUEST_ID.fullmatch(identifier) for identifier in ids)
    assert len(set(ids)) == 10


@pytest.mark.parametrize("authorization", [None, b"", b"Bearer", b"Basic dXNlcjpwYXNz", b"Token {key}"])
def test_a_call_without_a_bearer_key_is_challenged_without_an_error(
    service: Service, authorization: bytes | None
) -> None:
    key = service.open_account().key.encode()
    headers = {} if authorization is None else {b"Authorization": authorization.replace(b"{key}", key)}
    answer = request(service, "GET", "/api/v1/balance", headers)
    assert_refused(answer, errors.MissingApiKey)
    assert_no_rate_headers(answer)
    # RFC 6750, section 3.1: no error code for a request that carries no authentication at all.
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="tumira"'


@pytest.mark.parametrize(
    "spoil",
    [
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
        lambda _key: "undefined",
    ],
)
def test_a_key_that_is_not_one_of_ours_is_an_invalid_token(
    service: Service, spoil: Callable[[str], str]
) -> None:
    key = service.open_account().key
    for text, status in ((key, 200), (spoil(key), 401)):
        headers = {b"Authorization": f"Bearer {text}".encode()}
        answer = request(service, "GET", "/api/v1/balance", headers)
        assert answer.status_code == status
    assert_refused(answer, errors.InvalidApiKey)
    assert_no_rate_headers(answer)
    challenge = answer.headers["WWW-Authenticate"]
    assert challenge.startswith('Bearer realm="tumira", error="invalid_token", error_description="')


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_schemes_name_is_read_in_any_case(service: Service, scheme: str) -> None:
    headers = {b"Authorization": f"{scheme} {service.open_account().key}".encode()}
    assert request(service, "GET", "/api/v1/balance", headers).status_code == 200
