"""Masking of numbers and quoted values in log lines."""

import pytest

from tumira.core.logging import mask_numbers, masked_error, without_quotes


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("to +263771234567 again", "to +26377•••567 again"),
        ("263771234567", "26377•••567"),
        ("dest_addr:263771234567, next", "dest_addr:26377•••567, next"),
        ("/messages.json?to=+27821230001", "/messages.json?to=+27821•••001"),
        ("+1234567", "+12•••67"),
        ("bat_01kabc263771234567", "bat_01kabc263771234567"),
        ("2026-11-16T10:32:47.123456Z", "2026-11-16T10:32:47.123456Z"),
        ("took 0.1234567890123 s", "took 0.1234567890123 s"),
        ("count 500", "count 500"),
    ],
)
def test_numbers_are_masked_and_nothing_else(text: str, masked: str) -> None:
    assert mask_numbers(text) == masked


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "invalid input for query argument $1: 'Your code isn\\'t 49' (a str)",
            "invalid input for query argument $1: '…' (a str)",
        ),
        (
            'null value in column "recipient" of relation "messages"',
            'null value in column "recipient" of relation "messages"',
        ),
        ('invalid input syntax for type uuid: "Your code"', 'invalid input syntax for type uuid: "…"'),
        ("argument $1: 'Your code is 49... (a str is expected)", "argument $1: '…'"),
        ("argument $1: ['Your', \"code's\", b'49']", "argument $1: ['…', \"…\", b'…']"),
        ("the server's disk doesn't answer", "the server's disk doesn't answer"),
    ],
)
def test_what_an_error_quotes_is_left_out(text: str, said: str) -> None:
    assert without_quotes(text) == said


def test_an_error_as_python_writes_it_keeps_its_words_without_their_quotes() -> None:
    assert masked_error(repr(ConnectionRefusedError(111, "no line to +263771234567"))) == (
        "ConnectionRefusedError(111, 'no line to +26377•••567')"
    )
    assert masked_error(repr(ValueError("bad value: 'Your code'"))) == "ValueError(\"bad value: '…'\")"
    assert masked_error(repr(KeyError("Your code"))) == "KeyError(…)"
    assert masked_error(repr(UnicodeDecodeError("utf-8", b"Your code\xff", 9, 10, "why"))) == (
        "UnicodeDecodeError(…)"
    )
    assert masked_error("OSError") == "OSError"
