"""URL parsing that every subject shares; each subject tests its own limits and messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.core import urls


def test_a_url_is_split_into_its_parts() -> None:
    url = urls.parse("HTTPS://me:p%40ss@Host.Example:8443/a/b?c=d#e")
    assert url == urls.Url(
        "https", "me:p%40ss@Host.Example:8443", "me", "p%40ss", "host.example", 8443, "/a/b", "c=d", "e"
    )
    several = urls.parse("postgresql://one:1,two:2/db", many_hosts=True)
    assert several is not None
    assert (several.authority, several.host, several.port) == ("one:1,two:2", "", None)


@pytest.mark.parametrize(
    "text", ["http://host:port", "http://host:65536", "http://[::1", "http://one:1,two:2"]
)
def test_a_url_that_cannot_be_split_is_none(text: str) -> None:
    assert urls.parse(text) is None


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("host", ("host", None)),
        ("host:", ("host", "")),
        ("host:1:2", ("host", "1:2")),
        ("[::1]", ("[::1]", None)),
        ("[::1]:80", ("[::1]", "80")),
        ("[::1", ("[::1", None)),
        ("[::1]80", None),
    ],
)
def test_a_port_is_split_from_its_host(text: str, split: tuple[str, str | None] | None) -> None:
    assert urls.split_port(text) == split


@pytest.mark.parametrize(
    ("text", "port"), [("1", 1), ("65535", 65535), ("0", None), ("65536", None), ("", None), ("²", None)]
)
def test_a_port_is_a_number_from_1_to_65535(text: str, port: int | None) -> None:
    assert urls.parse_port(text) == port


def test_names_and_addresses_are_recognised() -> None:
    assert [urls.is_host(text) for text in ("a.example", "a_b", "192.0.2.1", "::1")] == [True] * 4
    assert [urls.is_host(text) for text in ("", "-a", "a..b", "a b", "x:1", "a" * 64)] == [False] * 6
    assert [urls.is_loopback(text) for text in ("localhost", "127.9.9.9", "::1")] == [True] * 3
    assert [urls.is_loopback(text) for text in ("localhost.example", "192.0.2.1")] == [False] * 2
    assert urls.write_authority("::1", 80) == "[::1]:80"
    assert urls.write_authority("a.example") == "a.example"


def test_percent_encoding_is_undone_only_if_it_is_one() -> None:
    assert urls.unescape("a%40b+c") == "a@b+c"
    assert [urls.unescape(text) for text in ("50%", "%zz", "%ff")] == [None] * 3


@given(st.text(max_size=60))
def test_no_text_makes_a_parser_fail(text: str) -> None:
    urls.parse(text)
    urls.parse(text, many_hosts=True)
    urls.split_port(text)
    urls.parse_port(text)
    urls.parse_ipv6(f"[{text}]")
    urls.unescape(text)
