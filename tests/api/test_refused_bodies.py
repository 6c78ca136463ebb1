"""Bodies that are refused: no JSON, too deep, too large, of another type."""

import gzip
import json
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest

from tests.support.api.answers import assert_rate_headers, assert_refused
from tests.support.processes.service import Caller, Service
from tumira.core import errors
from tumira.core.errors import Refusal

SEND: Final = b'{"channel": "sms", "to": "+263771200001", "body": "Hello"}'
BODY_BYTES_MAX: Final = 256 * 1024


def post(
    service: Service, caller: Caller, content: Any, content_type: str = "application/json", **headers: str
) -> httpx.Response:
    return service.call(
        caller, "POST", "/messages", content=content, headers={"Content-Type": content_type, **headers}
    )


def in_pieces(content: bytes, size: int = 10_000) -> Iterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def assert_only_refused(
    service: Service, caller: Caller, answer: httpx.Response, refusal: type[Refusal]
) -> None:
    assert_refused(answer, refusal)
    assert_rate_headers(answer)
    assert service.balance(caller) == 100


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b" \n", id="white space"),
        pytest.param(b"[]", id="an array"),
        pytest.param(b"[" + SEND + b"]", id="an object in an array"),
        pytest.param(b'"text"', id="a string"),
        pytest.param(b"null", id="null"),
        pytest.param(b"true", id="true"),
        pytest.param(b"42", id="a number"),
        pytest.param(SEND[:-1], id="half an object"),
        pytest.param(SEND + b"}", id="a brace too many"),
        pytest.param(SEND + SEND, id="two objects"),
        pytest.param(SEND[:-1] + b",}", id="a comma too many"),
        pytest.param(SEND.replace(b'"', b"'"), id="wrong quotes"),
        pytest.param(b"// a comment\n" + SEND, id="a comment"),
        pytest.param(SEND.replace(b"Hello", b"Hel\nlo"), id="a bare line break in a string"),
        pytest.param(SEND.replace(b"Hello", rb"Hel\xlo"), id="an unknown escape"),
        pytest.param(SEND.replace(b"Hello", rb"Hel\u00e"), id="half an escape"),
        pytest.param(SEND.replace(b"Hello", b"Hell\xf6"), id="Latin-1"),
        pytest.param(SEND.replace(b"Hello", b"\xed\xa0\x80"), id="a surrogate in UTF-8"),
        pytest.param(SEND.replace(b"Hello", b"\xc0\x80"), id="an overlong NUL"),
        pytest.param(SEND.decode().encode("utf-16"), id="UTF-16"),
        pytest.param(SEND.decode().encode("utf-32-le"), id="UTF-32"),
        pytest.param(b"\xef\xbb\xbf" + SEND, id="a byte order mark"),
        pytest.param(SEND[:-1] + b', "dry_run": NaN}', id="NaN"),
        pytest.param(SEND[:-1] + b', "dry_run": Infinity}', id="Infinity"),
        pytest.param(SEND[:-1] + b', "dry_run": -Infinity}', id="minus Infinity"),
        pytest.param(SEND[:-1] + b', "dry_run": ' + b"9" * 5000 + b"}", id="a number of 5,000 digits"),
        pytest.param(SEND[:-1] + b', "dry_run": 01}', id="a leading zero"),
        pytest.param(SEND[:-1] + b', "body": "Hello"}', id="a field given twice"),
        pytest.param(SEND[:-1] + b', "b\\u006fdy": "Bye"}', id="a field given twice in two spellings"),
        pytest.param(SEND[:-1] + b', "x": {"y": 1, "y": 2}}', id="an inner field given twice"),
        pytest.param(SEND[:-1] + b', "\\ud800": 1, "\\ud800": 2}', id="half a character twice"),
        pytest.param(b"[" * 100_000, id="100,000 brackets"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="100,000 arrays"),
        pytest.param(b'{"a":' * 40_000 + b"1" + b"}" * 40_000, id="40,000 objects"),
    ],
)
def test_what_is_not_one_json_object_is_malformed(service: Service, content: bytes) -> None:
    caller = service.open_account()
    answer = post(service, caller, content, **{"Idempotency-Key": "order-1042"})
    assert_only_refused(service, caller, answer, errors.MalformedRequest)
    # The same call without the fault, and with the same key.
    assert post(service, caller, SEND, **{"Idempotency-Key": "order-1042"}).status_code == 202


@pytest.mark.parametrize(("opening", "inside", "closing"), [("[", "", "]"), ('{"a":', "1", "}")])
def test_deep_json_is_refused_at_any_depth_and_never_fails_on_our_side(
    service: Service, opening: str, inside: str, closing: str
) -> None:
    caller = service.open_account()
    codes = set()
    # Somewhere in between lies the depth at which reading ends, and beside it the one at which writing does.
    for depth in (1, 10, 100, 500, *range(940, 1000, 2), 2000):
        content = f'{{"x": {opening * depth}{inside}{closing * depth}}}'
        for headers in ({}, {"Idempotency-Key": "order-1042"}):
            answer = post(service, caller, content, **headers)
            codes.add(answer.json()["error"]["code"])
    assert codes == {"VALIDATION_FAILED", "MALFORMED_REQUEST"}


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1e-999", "9" * 4000, "-0", "1.0"])
def test_extreme_numbers_are_values_of_a_wrong_type_and_nothing_worse(service: Service, number: str) -> None:
    caller = service.open_account()
    content = SEND[:-1] + f', "dry_run": {number}}}'.encode()
    for headers in ({}, {"Idempotency-Key": "order-1042"}):
        answer = post(service, caller, content, **headers)
        assert_only_refused(service, caller, answer, errors.ValidationFailed)
        assert answer.json()["error"]["details"][0]["field"] == "dry_run"


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        'application/json; charset="utf-8"',
        "application/json ; charset = utf-8",
    ],
)
def test_json_in_utf_8_is_taken_however_it_is_announced(service: Service, content_type: str) -> None:
    assert post(service, service.open_account(), SEND, content_type).status_code == 202


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "text/json",
        "application/jsonp",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/vnd.api+json",
        "application/json, text/plain",
        "application/json; charset=iso-8859-1",
        "application/json; charset=utf-16",
        "application/json; charset=",
        "*/*",
    ],
)
def test_any_other_media_type_is_refused(service: Service, content_type: str) -> None:
    caller = service.open_account()
    answer = post(service, caller, SEND, content_type)
    assert_only_refused(service, caller, answer, errors.UnsupportedMediaType)


def test_a_body_without_a_media_type_is_refused(service: Service) -> None:
    caller = service.open_account()
    for content in (SEND, b""):
        answer = service.call(caller, "POST", "/messages", content=content)
        assert_only_refused(service, caller, answer, errors.UnsupportedMediaType)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity, gzip"])
def test_a_compressed_body_is_refused(service: Service, encoding: str) -> None:
    caller = service.open_account()
    content = gzip.compress(SEND) if "gzip" in encoding else SEND
    answer = post(service, caller, content, **{"Content-Encoding": encoding})
    assert_only_refused(service, caller, answer, errors.UnsupportedMediaType)
    assert post(service, caller, SEND, **{"Content-Encoding": "identity"}).status_code == 202


@pytest.mark.parametrize("chunked", [False, True])
def test_256_kib_are_taken_and_one_byte_more_is_refused(service: Service, *, chunked: bool) -> None:
    caller = service.open_account()
    for excess in (1, 2, 100_000, 3_000_000):
        content = SEND.ljust(BODY_BYTES_MAX + excess)
        answer = post(service, caller, in_pieces(content) if chunked else content)
        assert_only_refused(service, caller, answer, errors.PayloadTooLarge)
    content = SEND.ljust(BODY_BYTES_MAX)
    answer = post(service, caller, in_pieces(content) if chunked else content)
    assert answer.status_code == 202


def test_a_text_as_long_as_a_body_can_be_is_refused_for_its_segments(service: Service) -> None:
    caller = service.open_account()
    document = json.loads(SEND)
    for character in ("a", "€", "я", "\N{GRINNING FACE}"):
        size = len(character.encode())
        document["body"] = character * ((BODY_BYTES_MAX - 200) // size)
        content = json.dumps(document, ensure_ascii=False).encode()
        assert_only_refused(service, caller, post(service, caller, content), errors.TooManySegments)


def test_an_escaped_pair_of_surrogates_is_one_character(service: Service) -> None:
    caller = service.open_account()
    answer = post(service, caller, SEND.replace(b"Hello", rb"\ud83d\ude00" * 35))
    assert (answer.status_code, answer.json()["segments"]) == (202, 1)
