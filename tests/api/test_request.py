"""A posted send is parsed strictly, and every fault in its fields is listed at once."""

import gzip
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from tests.support.api.answers import assert_rate_headers, assert_refused
from tests.support.processes.service import Service
from tumira.api.request import BODY_BYTES_MAX, read_idempotency_key, read_send
from tumira.core import errors
from tumira.core.errors import FieldCode, Refusal
from tumira.sending.types import InvalidSend, Send

ZW: Final = "+263771200001"
FIELDS: Final = {"channel": "sms", "to": ZW, "body": "Hello"}
SEND: Final = json.dumps(FIELDS).encode()
LONE_HIGH: Final = "\ud83d"
LONE_LOW: Final = "\ude00"
NUL: Final = "\x00"
# Blanks of every width, ends of lines, and what has no width at all.
BLANK: Final = ("", " ", "\n\r\t", "\xa0", "\u2003\u3000", "\ufeff\u2060 \u200d", "\u3164\u2800", "\xad\x1b")


def refusal_of(
    body: bytes, content_type: str | None = "application/json", encoding: str | None = None, *keys: str
) -> Refusal:
    send = read_send(content_type, encoding, keys, body)
    assert isinstance(send, InvalidSend), send
    return send.refusal


def faults_of(changes: dict[str, Any]) -> Sequence[tuple[str, str]]:
    """Return the faults of a good request with these changes, where `...` takes a field away."""
    fields = {name: value for name, value in {**FIELDS, **changes}.items() if value is not ...}
    refusal = refusal_of(json.dumps(fields).encode())
    assert isinstance(refusal, errors.ValidationFailed), refusal
    assert refusal.details[0]["field"] in refusal.message
    return [(detail["field"], detail["code"]) for detail in refusal.details]


def test_a_good_request_is_read() -> None:
    send = read_send("application/json", None, ["order-1042"], SEND)
    assert isinstance(send, Send)
    assert send.request.to == [ZW]
    assert send.idempotency is not None
    assert send.idempotency.key == "order-1042"


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b" \n", b"[]", b"[" + SEND + b"]", b'"text"', b"null", b"true", b"42"),
        *(SEND[:-1], SEND + b"}", SEND + SEND, SEND[:-1] + b",}", SEND.replace(b'"', b"'")),
        b"// a comment\n" + SEND,
        *(SEND.replace(b"Hello", text) for text in (b"Hel\nlo", rb"Hel\xlo", rb"Hel\u00e", b"Hell\xf6")),
        # A surrogate in UTF-8, and an overlong NUL.
        *(SEND.replace(b"Hello", text) for text in (b"\xed\xa0\x80", b"\xc0\x80")),
        *(SEND.decode().encode("utf-16"), SEND.decode().encode("utf-32-le"), b"\xef\xbb\xbf" + SEND),
        *(
            SEND[:-1] + b', "dry_run": ' + value + b"}"
            for value in (b"NaN", b"Infinity", b"-Infinity", b"9" * 5000, b"01")
        ),
        # A field given twice: plainly, in two spellings, inside another field, and half a character.
        *(
            SEND[:-1] + again
            for again in (
                b', "body": "Hello"}',
                b', "b\\u006fdy": "Bye"}',
                b', "x": {"y": 1, "y": 2}}',
                b', "\\ud800": 1, "\\ud800": 2}',
            )
        ),
        *(b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 40_000 + b"1" + b"}" * 40_000),
    ],
    ids=lambda content: ascii(content)[:40],
)
def test_what_is_not_one_json_object_is_malformed(content: bytes) -> None:
    assert isinstance(refusal_of(content), errors.MalformedRequest)


@pytest.mark.parametrize(("opening", "inside", "closing"), [("[", "", "]"), ('{"a":', "1", "}")])
def test_deep_json_is_refused_at_any_depth_and_never_fails(opening: str, inside: str, closing: str) -> None:
    def code_of(depth: int, *headers: Any) -> str:
        return refusal_of(f'{{"x": {opening * depth}{inside}{closing * depth}}}'.encode(), *headers).code

    # The depth at which reading ends is another in each version of Python.
    fits, too_deep = 1, 2
    while code_of(too_deep) == "VALIDATION_FAILED":
        fits, too_deep = too_deep, 2 * too_deep
    while too_deep - fits > 1:
        middle = (fits + too_deep) // 2
        fits, too_deep = (middle, too_deep) if code_of(middle) == "VALIDATION_FAILED" else (fits, middle)
    # Beside it lies the depth at which writing ends, which a key needs.
    codes = {
        code_of(depth, *headers)
        for depth in (1, 10, 100, fits // 2, *range(fits - 100, fits + 100, 3), 2 * fits, 20 * fits)
        for headers in ((), ("application/json", None, "order-1042"))
    }
    assert codes == {"VALIDATION_FAILED", "MALFORMED_REQUEST"}


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1e-999", "9" * 4000, "-0", "1.0"])
def test_extreme_numbers_are_values_of_a_wrong_type_and_nothing_worse(number: str) -> None:
    content = SEND[:-1] + f', "dry_run": {number}}}'.encode()
    for keys in ((), ("order-1042",)):
        refusal = refusal_of(content, "application/json", None, *keys)
        assert isinstance(refusal, errors.ValidationFailed)
        assert [detail["field"] for detail in refusal.details] == ["dry_run"]


@pytest.mark.parametrize(
    "content_type",
    [
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
        "application/json ; charset = utf-8",
    ],
)
def test_json_in_utf_8_is_taken_however_it_is_announced(content_type: str) -> None:
    assert isinstance(read_send(content_type, "identity", [], SEND), Send)


@pytest.mark.parametrize(
    ("content_type", "encoding"),
    [
        (None, None),
        *(
            (other, None)
            for other in ("", "*/*", "text/plain", "application/jsonp", "application/vnd.api+json")
        ),
        *((f"application/json{more}", None) for more in (", text/plain", "; charset=utf-16", "; charset=")),
        *(("application/json", encoding) for encoding in ("gzip", "br", "identity, gzip")),
    ],
)
def test_any_other_media_type_and_compression_is_refused(
    content_type: str | None, encoding: str | None
) -> None:
    assert isinstance(refusal_of(SEND, content_type, encoding), errors.UnsupportedMediaType)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        *[({field: ...}, [(field, FieldCode.REQUIRED)]) for field in FIELDS],
        *[
            ({field: value}, [(field, FieldCode.WRONG_TYPE)])
            for field in ("channel", "body", "reference")
            for value in (None, True, 0, 1.5, ["sms"], {"text": "Hello"})
        ],
        *[({"to": value}, [("to", FieldCode.WRONG_TYPE)]) for value in (None, False, 263, {"0": ZW})],
        *[({"to": [ZW, value]}, [("to[1]", FieldCode.WRONG_TYPE)]) for value in (None, 263771200001, [ZW])],
        *[({"dry_run": value}, [("dry_run", FieldCode.WRONG_TYPE)]) for value in (None, "true", 0, [True])],
        ({"to": []}, [("to", FieldCode.EMPTY)]),
        *[({"body": blank}, [("body", FieldCode.EMPTY)]) for blank in BLANK],
        ({"reference": "r" * 65}, [("reference", FieldCode.TOO_LONG)]),
        *[
            ({"channel": value}, [("channel", FieldCode.INVALID_VALUE)])
            for value in ("", "SMS", " sms", "fax")
        ],
        *[
            ({field: f"{before}{bad}{after}"}, [(field, FieldCode.INVALID_CHARACTER)])
            for field in ("channel", "to", "body", "reference")
            for before, bad, after in (("", NUL, ""), ("sms", LONE_HIGH, ""), ("", LONE_LOW, "a"))
        ],
        *[
            ({"to": [ZW, bad, f"{ZW}{bad}"]}, [(f"to[{n}]", FieldCode.INVALID_CHARACTER) for n in (1, 2)])
            for bad in (NUL, LONE_HIGH, LONE_LOW + LONE_HIGH)
        ],
        # A mistyped dry_run must not become a bill.
        *[
            ({name: True}, [(name, FieldCode.UNKNOWN_FIELD)])
            for name in ("", "dryrun", "dryRun", "dry-run", "DRY_RUN", "dry_run ", "sender", "__proto__", NUL)
        ],
        ({LONE_HIGH: 1}, [(r"\ud83d", FieldCode.UNKNOWN_FIELD)]),
        ({"x" * 10_000: 1}, [("x" * 64, FieldCode.UNKNOWN_FIELD)]),
        (dict.fromkeys(FIELDS, ...), [(field, FieldCode.REQUIRED) for field in FIELDS]),
        (
            {
                "to": [ZW, 5, NUL],
                "body": "",
                "reference": "r" * 65,
                "dry_run": "yes",
                "sender": "x",
                "ttl": 1,
            },
            [
                ("to[1]", FieldCode.WRONG_TYPE),
                ("to[2]", FieldCode.INVALID_CHARACTER),
                ("body", FieldCode.EMPTY),
                ("reference", FieldCode.TOO_LONG),
                ("dry_run", FieldCode.WRONG_TYPE),
                ("sender", FieldCode.UNKNOWN_FIELD),
                ("ttl", FieldCode.UNKNOWN_FIELD),
            ],
        ),
        # A faulty field comes before a channel that is not available.
        ({"channel": "telegram", "body": ""}, [("body", FieldCode.EMPTY)]),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_every_fault_in_a_field_is_named(
    changes: dict[str, Any], expected: Sequence[tuple[str, FieldCode]]
) -> None:
    assert faults_of(changes) == [(field, code.value) for field, code in expected]


@pytest.mark.parametrize("channel", ["telegram", "whatsapp"])
def test_a_reserved_channel_is_not_available(channel: str) -> None:
    refusal = refusal_of(json.dumps({**FIELDS, "channel": channel}).encode())
    assert isinstance(refusal, errors.ChannelNotAvailable)
    assert channel in refusal.message


@pytest.mark.parametrize(
    ("changes", "first", "count"),
    [({"to": [5] * 1000}, "to[0]", 1000), ({f"x{place}": 1 for place in range(20_000)}, "x0", 20_000)],
    ids=["entries", "names"],
)
def test_a_flood_of_faults_is_counted_and_its_beginning_listed(
    changes: dict[str, Any], first: str, count: int
) -> None:
    refusal = refusal_of(json.dumps({**FIELDS, **changes}).encode())
    assert len(refusal.details) == 100
    assert refusal.details[0]["field"] == first
    assert refusal.message.startswith(f"{count} faults, the first 100 ")


@pytest.mark.parametrize("entry", [5, None, NUL, LONE_LOW, []])
def test_entries_past_the_limit_are_not_looked_at(entry: Any) -> None:
    assert faults_of({"to": [ZW] * 999 + [entry]})
    longer = json.dumps({**FIELDS, "to": [ZW] * 1000 + [entry]}).encode()
    assert isinstance(read_send("application/json", None, [], longer), Send)


def test_an_escaped_pair_of_surrogates_is_one_character() -> None:
    send = read_send("application/json", None, [], SEND.replace(b"Hello", rb"\ud83d\ude00"))
    assert isinstance(send, Send)
    assert send.request.body == "\N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("header", "key"),
    [
        *((key, key) for key in ("123456", "x" * 64, "!#$%&'()*+,-./:;<=>?@[]^_`{|}~", '"12345')),
        ('"quoted-key"', "quoted-key"),
        (r'"say\"hello\""', 'say"hello"'),
        (f'"{"x" * 64}"', "x" * 64),
    ],
)
def test_an_idempotency_key_of_6_to_64_visible_characters_is_taken(header: str, key: str) -> None:
    assert read_idempotency_key([header]) == key


@pytest.mark.parametrize(
    "headers",
    [
        *([key] for key in ("", "12345", "x" * 65, "with space", "with\ttab", "r\xe4ndigkeit")),
        *([f'"{key}"'] for key in ("12345", "with space", "x" * 65)),
        *(["order-1042", other] for other in ("order-1043", "order-1042")),
    ],
)
def test_any_other_idempotency_key_is_refused(headers: Sequence[str]) -> None:
    assert isinstance(read_idempotency_key(headers), errors.InvalidIdempotencyKey)


def in_pieces(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), 10_000):
        yield content[start : start + 10_000]


@pytest.mark.parametrize("chunked", [False, True])
def test_256_kib_are_taken_and_one_byte_more_is_refused(service: Service, *, chunked: bool) -> None:
    caller = service.open_account()
    headers = {"Content-Type": "application/json"}
    for excess, refusal in ((1, errors.PayloadTooLarge), (3_000_000, errors.PayloadTooLarge), (0, None)):
        content = SEND.ljust(BODY_BYTES_MAX + excess)
        answer = service.call(
            caller, "POST", "/messages", content=in_pieces(content) if chunked else content, headers=headers
        )
        if refusal is None:
            assert answer.status_code == 202
        else:
            assert_refused(answer, refusal)
            assert_rate_headers(answer)


def test_a_refused_body_costs_nothing_and_leaves_its_key_free(service: Service) -> None:
    caller = service.open_account()
    headers = {"Content-Type": "application/json", "Idempotency-Key": "order-1042"}
    for content, more, refusal in (
        (b"[" * 100_000, {}, errors.MalformedRequest),
        (gzip.compress(SEND), {"Content-Encoding": "gzip"}, errors.UnsupportedMediaType),
        (json.dumps({**FIELDS, "body": "\N{GRINNING FACE}" * 20_000}), {}, errors.TooManySegments),
        (json.dumps({**FIELDS, "body": LONE_LOW}), {}, errors.ValidationFailed),
    ):
        answer = service.call(caller, "POST", "/messages", content=content, headers={**headers, **more})
        assert_refused(answer, refusal)
    assert service.balance(caller) == 100
    assert service.call(caller, "POST", "/messages", content=SEND, headers=headers).status_code == 202
