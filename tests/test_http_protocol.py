"""The HTTP server bounds what a client may send, and how long it may take.

Spoken to over plain sockets, because HTTP clients send nothing of the kind.
"""

import json
import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final, cast

import httpx
import pytest

from tests.support.chaos.node import until
from tests.support.postgres.databases import clone
from tests.support.processes.impatient_web import run_impatient_web
from tests.support.processes.service import NO_TLS, Service, send_request
from tumira import http_protocol
from tumira.postgres.pool import Database
from tumira.web import Web

HOST: Final = b"Host: a\r\n"
WAIT_S: Final = 30
MANY: Final = 20
HOURS_S: Final = 10_000


@pytest.fixture(scope="module")
def impatient(server_url: str) -> Iterator[Service]:
    with (
        clone(server_url) as url,
        run_impatient_web(
            url, HEAD_S=0.5, BODY_S=0.5, KEEP_ALIVE_S=0.5, UNREAD_S=1, BODY_RATE=10_000_000
        ) as web,
    ):
        yield web


def connected(service: Service, wait_s: float = WAIT_S) -> socket.socket:
    host, _, port = service.base.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), wait_s)


def read_to_end(line: socket.socket) -> bytes:
    pieces = []
    try:
        while piece := line.recv(65_536):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


def send_all(line: socket.socket, pieces: Sequence[bytes]) -> bool:
    try:
        for piece in pieces:
            line.sendall(piece)
    except OSError:
        return False
    return True


def ask(service: Service, *pieces: bytes) -> bytes:
    with connected(service) as line:
        send_all(line, pieces)
        return read_to_end(line)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def error_of(answer: bytes) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    error = json.loads(body)["error"]
    assert f"x-request-id: {error['request_id']}".encode() in head
    return dict(error)


def is_alive(service: Service) -> bool:
    return httpx.get(f"{service.base}/healthz", trust_env=False, verify=NO_TLS).is_success


def head(path: bytes, *headers: bytes, method: bytes = b"GET") -> bytes:
    return b"%s %s HTTP/1.1\r\n%s%s" % (method, path, HOST, b"".join(one + b"\r\n" for one in headers))


LONG: Final = b"a" * (http_protocol.HEAD_OCTETS_MAX + 1)
TOO_LARGE: Final = {
    "a header": [head(b"/api/v1/balance", b"X-Long: " + LONG), b"\r\n"],
    "a header without an end": [head(b"/api/v1/balance"), b"X-Long: ", *[LONG[:8_000]] * 20],
    "a name": [head(b"/api/v1/balance", LONG + b": a"), b"\r\n"],
    "the address": [b"GET /api/v1/balance?", LONG, LONG],
    "many headers": [head(b"/api/v1/balance", *[b"X-A: a"] * http_protocol.HEADERS_MAX), b"\r\n"],
    "small headers without an end": [head(b"/api/v1/balance"), *[b"X-A: a\r\n" * 1_000] * 20],
}


@pytest.mark.parametrize("pieces", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_head_that_is_too_large_is_refused(service: Service, pieces: Sequence[bytes]) -> None:
    answer = ask(service, *pieces)
    assert status_of(answer) == 431
    assert error_of(answer)["code"] == "HEADERS_TOO_LARGE"
    assert b"\r\nconnection: close\r\n" in answer


def test_a_head_within_the_limits_is_taken_however_it_comes(service: Service) -> None:
    spare = 200
    value = b"a" * (http_protocol.HEAD_OCTETS_MAX - spare)
    large = head(b"/healthz", b"X-Long: " + value, b"Connection: close") + b"\r\n"
    numerous = (
        head(b"/healthz", *[b"X-A: a"] * (http_protocol.HEADERS_MAX - 2), b"Connection: close") + b"\r\n"
    )
    for request in (large, numerous):
        assert status_of(ask(service, request)) == 200
        assert status_of(ask(service, *[request[at : at + 999] for at in range(0, len(request), 999)])) == 200


def test_what_came_before_a_head_is_not_counted_to_it(service: Service) -> None:
    """A body that arrives together with the next request is not a part of that request's head."""
    body = b"a" * http_protocol.HEAD_OCTETS_MAX * 3
    first = head(b"/healthz", b"Content-Length: %d" % len(body)) + b"\r\n" + body
    second = head(b"/healthz", b"X-Long: " + b"a" * 20_000, b"Connection: close") + b"\r\n"
    answers = ask(service, first + second[:-10_000], second[-10_000:])
    assert answers.count(b"HTTP/1.1 200 OK") == 2


def test_trailers_and_chunk_extensions_are_bounded_and_no_headers(service: Service) -> None:
    caller = service.open_account()
    body = b'{"channel":"sms","to":"+263771200001","body":"Your code is 493817."}'
    start = head(
        b"/api/v1/messages",
        b"Authorization: Bearer " + caller.key.encode(),
        b"Content-Type: application/json",
        b"Transfer-Encoding: chunked",
        b"Connection: close",
        method=b"POST",
    )
    chunk = b"%x\r\n%s\r\n" % (len(body), body)
    answer = ask(service, start, b"\r\n", chunk, b"0\r\nIdempotency-Key: a\r\n\r\n")
    assert status_of(answer) == 202

    for endless in (b"0\r\nX-Long: ", b"1;"):
        answer = ask(service, start, b"\r\n", chunk, endless, *[LONG[:8_000]] * 20)
        assert status_of(answer) == 400
        assert error_of(answer)["code"] == "MALFORMED_REQUEST"
    assert service.sql("SELECT count(*) FROM batches WHERE account_id = $1", caller.id)[0][0] == 1


def ask_at_once(service: Service, *requests: bytes) -> Sequence[bytes]:
    with ExitStack() as open_lines:
        lines = [open_lines.enter_context(connected(service)) for _ in requests]
        for line, request in zip(lines, requests, strict=True):
            line.sendall(request)
        return [read_to_end(line) for line in lines]


def names_of(answer: bytes) -> Sequence[bytes]:
    first, *lines = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")
    return [first, *(line.partition(b":")[0] for line in lines)]


def proxied(request: bytes) -> bytes:
    """Return a request that goes through ASGI, because a proxy may decide about its answer."""
    return request.replace(b"\r\nHost", b"\r\nX-Forwarded-Proto: http\r\nHost")


def test_a_send_is_answered_alike_however_it_comes(service: Service) -> None:
    """Small sends of a known key do not go through ASGI, unless there is something special about them."""
    caller = service.open_account()
    plain = send_request(caller.key, keep=False)
    start, _, body = plain.partition(b"\r\n\r\n")
    padded = b"%b\r\n\r\n%b%b" % (
        start.replace(b"Content-Length: ", b"Content-Length: 200"),
        body,
        b" " * 20_000,
    )
    padded = padded[: padded.index(b"\r\n\r\n") + 4 + int(b"200%d" % len(body))]
    chunked = start.replace(b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked")
    ways: dict[str, Sequence[bytes]] = {
        "a key not known yet": [plain],
        "at once": [plain],
        "in pieces": [start, b"\r\n\r\n", body[:10], body[10:]],
        "large": [padded],
        "in chunks": [chunked + b"\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)],
        "announced": [start, b"\r\nExpect: 100-continue\r\n\r\n", body],
        "by HTTP/1.0": [plain.replace(b"HTTP/1.1", b"HTTP/1.0")],
        "through a proxy": [proxied(plain)],
    }
    expected = None
    for way, pieces in ways.items():
        answer = ask(service, *pieces).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert status_of(answer) == 202, (way, answer)
        expected = expected or names_of(answer)
        assert names_of(answer) == expected, way
    stored = service.sql("SELECT count(*) FROM batches WHERE account_id = $1", caller.id)[0][0]
    assert stored == len(ways)


def test_sends_in_one_packet_are_answered_in_order(service: Service) -> None:
    caller = service.open_account()
    ask(service, send_request(caller.key, keep=False))
    requests = [
        send_request(caller.key, keep=place < MANY).replace(b"\r\n", b"\r\nX-Request-Id: %d\r\n" % place, 1)
        for place in range(MANY + 1)
    ]
    answers = ask(service, b"".join(requests))
    assert answers.count(b"HTTP/1.1 202 Accepted") == len(requests)
    ids = [int(part.partition(b"\r\n")[0]) for part in answers.split(b"x-request-id: ")[1:]]
    assert ids == list(range(len(requests)))
    assert answers.count(b"\r\nconnection: close\r\n") == 1


def test_a_refused_send_is_answered_alike_however_it_comes(service: Service) -> None:
    caller = service.open_account(balance="0")
    request = send_request(caller.key, keep=False)
    wrong = request.replace(b'"sms"', b'"fax"')
    ask(service, request)
    for one, status in ((request, 402), (wrong, 422)):
        first, second = ask(service, one), ask(service, proxied(one))
        assert (status_of(first), status_of(second)) == (status, status)
        assert names_of(first) == names_of(second)
        assert {**error_of(first), "request_id": ""} == {**error_of(second), "request_id": ""}


FORMS: Final = (b"/dashboard/sign-in", b"/dashboard/upload", b"/operator/sign-in")


def test_half_a_request_is_answered_408_and_counts_for_nothing(impatient: Service) -> None:
    caller = impatient.open_account()
    request = send_request(caller.key, keep=True)
    # What is JSON already, with white space announced behind it.
    longer = request.replace(b"Content-Length: ", b"Content-Length: 9")
    fields = (
        b"Content-Type: application/x-www-form-urlencoded",
        b"Sec-Fetch-Site: same-origin",
        b"Content-Length: 100",
    )
    api = [head(b"/api/v1/balance"), request[:-1], longer]
    page = b"GET /dashboard/sign-in HTTP/1.1\r\n"
    forms = [head(path, *fields, method=b"POST") + b"\r\nphone=" for path in FORMS]
    answers = ask_at_once(impatient, *api, page, *forms, b"", b"\r\n", head(b"/healthz") + b"\r\n")

    for answer in answers[:3]:
        error = error_of(answer)
        assert (status_of(answer), error["code"], error["retryable"]) == (408, "REQUEST_TIMEOUT", True)
    assert (status_of(answers[3]), b"content-type: text/plain" in answers[3]) == (408, True)
    # A page that asks for a session first has answered before the body is missed.
    assert {status_of(answer) for answer in answers[4:7]} <= {303, 408}
    # Who says nothing does not stay, nor who says nothing more.
    assert answers[7:9] == [b"", b""]
    assert status_of(answers[9]) == 200
    assert impatient.sql("SELECT count(*) FROM batches WHERE account_id = $1", caller.id)[0][0] == 0
    window = impatient.sql("SELECT call_times FROM accounts WHERE id = $1", caller.id)[0][0]
    assert list(window) == []


def test_who_does_not_read_an_answer_is_cut_off(impatient: Service) -> None:
    request = head(b"/docs") + b"\r\n"
    with connected(impatient) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        line.setblocking(False)  # noqa: FBT003 - a socket's own method

        def is_cut_off() -> bool:
            try:
                return line.send(request * 8) == 0
            except BlockingIOError:
                return False
            except OSError:
                return True

        until(is_cut_off, "who reads nothing is kept")
    assert is_alive(impatient)


def test_requests_that_wait_for_answers_are_bounded(service: Service) -> None:
    """Many requests in one packet: some are answered in order, and then the connection ends."""
    count = http_protocol.PIPELINED_MAX * 20
    answers = ask(service, (head(b"/readyz") + b"\r\n") * count)
    answered = answers.count(b"HTTP/1.1 200 OK")
    assert 1 <= answered <= http_protocol.PIPELINED_MAX + 1
    assert answers.count(b"connection: close") == 1
    few = (head(b"/readyz") + b"\r\n") * 5 + head(b"/readyz", b"Connection: close") + b"\r\n"
    assert ask(service, few).count(b"HTTP/1.1 200 OK") == 6


def test_connections_are_bounded_and_idle_ones_make_room(server_url: str) -> None:
    limits = {"CONNECTIONS_MAX": 20, "CROWDED_S": 2, "KEEP_ALIVE_S": HOURS_S}
    with clone(server_url) as url, run_impatient_web(url, **limits) as web, ExitStack() as open_lines:
        first = open_lines.enter_context(connected(web))
        # However slow this machine is, at some time there are too many.
        for _ in range(50 * limits["CONNECTIONS_MAX"]):
            last = open_lines.enter_context(connected(web))
            if select.select([last], [], [], 0.01)[0]:
                break
        assert status_of(read_to_end(last)) == 503
        # Those that came before have said nothing, and go.
        assert read_to_end(first) == b""
        until(lambda: is_alive(web), "there is no room")


ODD: Final = {
    "two hosts": (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "the same host twice": (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    "no host in HTTP/1.0": (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
    "two hosts in HTTP/1.0": (b"GET /healthz HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "HTTP/0.9": (b"GET /healthz\r\n\r\n", 400),
    "options of the server": (b"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 204),
    "a star": (b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "no slash": (b"GET healthz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a whole URL": (b"GET http://a/healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 200),
    "a whole URL without a path": (b"GET http://a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 200),
    "another scheme": (b"GET ftp://a/healthz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a tunnel": (b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a fragment": (b"GET /healthz#a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "an upgrade": (
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        200,
    ),
    "nonsense": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
}


def test_an_odd_request_is_answered_for_what_it_is_and_counted(service: Service) -> None:
    answers = ask_at_once(service, *(request for request, _ in ODD.values()))
    found = dict(zip(ODD, map(status_of, answers), strict=True))
    assert found == {name: status for name, (_, status) in ODD.items()}
    shown = httpx.get(f"{service.base}/metrics", trust_env=False, verify=NO_TLS).text
    assert 'tumira_page_requests_total{face="server",status="400"}' in shown


def test_an_api_call_with_two_hosts_gets_the_envelope(service: Service) -> None:
    answer = ask(service, b"GET /api/v1/balance HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
    assert error_of(answer)["code"] == "MALFORMED_REQUEST"


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/docs", "/healthz", "/nothing"])
async def test_answers_are_not_sniffed_and_keep_browsers_to_https(path: str) -> None:
    web, of_https = (
        Web(Database("postgresql://nowhere"), public_url=url) for url in ("", "https://sms.example")
    )
    plain, behind_tls = await fetch(web, f"http://a{path}"), await fetch(web, f"https://a{path}")
    configured = await fetch(of_https, f"http://a{path}")
    for answer in (plain, behind_tls, configured):
        assert answer.headers.get_list("X-Content-Type-Options") == ["nosniff"]
    assert "Strict-Transport-Security" not in plain.headers
    for answer in (behind_tls, configured):
        assert answer.headers.get_list("Strict-Transport-Security") == ["max-age=31536000"]


async def fetch(web: Web, url: str) -> httpx.Response:
    transport = httpx.ASGITransport(cast("Any", web), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport) as client:
        return await client.get(url)


@pytest.mark.long
def test_large_heads_cost_little_time_and_memory(service: Service) -> None:
    """160 MB of one header took 26 s of the event loop, and 40 MB of small ones took 434 MB."""
    before = cost_of(service)
    piece = b"a" * 65_536
    for pieces in ([head(b"/"), b"X-Long: ", *[piece] * 2_500], [head(b"/"), *[b"X-A: a\r\n" * 8_000] * 600]):
        began = time.monotonic()
        with connected(service) as line:
            assert not send_all(line, pieces)
        assert is_alive(service)
        assert time.monotonic() - began < WAIT_S
    after = cost_of(service)
    assert after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"] < 2
    assert after["process_resident_memory_bytes"] - before["process_resident_memory_bytes"] < 50_000_000


@pytest.mark.long
def test_half_sent_requests_are_let_go_with_the_limits_as_they_are(service: Service) -> None:
    """Slow heads, slow bodies and silence on many connections at once, while others are answered."""
    caller = service.open_account()
    request = send_request(caller.key, keep=True)
    with ExitStack() as open_lines:
        lines = [
            open_lines.enter_context(connected(service, http_protocol.KEEP_ALIVE_S + WAIT_S))
            for _ in range(3 * MANY)
        ]
        for line, sent in zip(lines, [request[:40], request[:-1], b""] * MANY, strict=True):
            line.sendall(sent)
        assert service.send(caller).status_code == 202
        answers = [read_to_end(line) for line in lines]
    assert [status_of(answer) if answer else None for answer in answers] == [408, 408, None] * MANY


def cost_of(service: Service) -> dict[str, float]:
    shown = httpx.get(f"{service.base}/metrics", trust_env=False, verify=NO_TLS).text
    lines = [line.split(" ") for line in shown.splitlines() if line.startswith("process_")]
    return {line[0]: float(line[1]) for line in lines}
