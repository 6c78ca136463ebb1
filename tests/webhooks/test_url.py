"""The URLs that customers may give."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tumira.webhooks.url import URL_MAX, Target, parse

WIDE = {ord("0") + digit: 0xFF10 + digit for digit in range(10)}
PLAIN = "https://hooks.example.com/tumira"

# What is refused whatever is allowed, and a piece of what is said.
EVERYWHERE_REFUSED = {
    "hooks.example.com/tumira": "must begin with https://",
    "ftp://hooks.example.com/": "must begin with https://",
    "javascript:https://hooks.example.com/": "must begin with https://",
    "": "must begin with https://",
    "https:///tumira": "must name a host",
    "https://:8443/": "must name a host",
    "https://user:hushhush@hooks.example.com/": "no user and password",
    "https://@hooks.example.com/": "no user and password",
    "https://hooks.example.com/#part": "leave out the # and the rest",
    "https://hooks.example.com/#": "leave out the # and the rest",
    "https://hooks.example.com/a b": "write a space as %20",
    " https://hooks.example.com/": "write a space as %20",
    "https://hooks.example.com/\r\nx-header: 1": "line ends",
    "https://hooks.example.com/\n": "line ends",
    "ht\ttps://hooks.example.com/": "control characters",
    "https://hooks.example.com\0.example.net/": "control characters",
    "https://hooks.example.com/\N{NO-BREAK SPACE}": "no spaces",
    "https://hooks.example.com/\N{LINE SEPARATOR}": "line ends",
    "https://hooks.example.com/\N{RIGHT-TO-LEFT OVERRIDE}": "control characters",
    "https://hooks.example.com/\ud800": "control characters",
    "https://hooks.example.com\\@example.net/": "write it as %5C",
    "https://hooks%2eexample.com/": "must name a host",
    "https://hooks.example.com/100%": "write it as %25",
    "https://hooks..example.com/": "must name a host",
    "https://../": "must name a host",
    "https://-hooks.example.com/": "must name a host",
    f"https://{'a' * 64}.example.com/": "must name a host",
    f"https://{'a.' * 127}com/": "must name a host",
    "https://hooks.example.com℀.example.net/": "must name a host",
    "https://straße.example.com/": "begins with xn--",
    "https://hooks.example.com:0/": "a whole number from 1 to 65535",
    "https://hooks.example.com:65536/": "a whole number from 1 to 65535",
    "https://hooks.example.com:https/": "a whole number from 1 to 65535",
    "https://hooks.example.com:8443/".translate(WIDE): "a whole number from 1 to 65535",
    "https://hooks.example.com:443:443/": "",
    "https://hooks.example.com:+443/": "a whole number from 1 to 65535",
    "https://1.2.3.256/": "neither a name nor an address",
    "https://1.2.3.4.5/": "neither a name nor an address",
    "https://089.0.0.1/": "neither a name nor an address",
    "https://hooks.example.1/": "neither a name nor an address",
    "https://[2001:db8::1/": "",
    "https://[hooks.example.com]/": "must hold an IPv6 address",
    "https://[fe80::1%25eth0]/": "must hold an IPv6 address",
    "https://[2001:db8::1]x/": "can only have a port",
    PLAIN + "?" + "a" * URL_MAX: "at most 2,048 characters",
    PLAIN + "?" + "é" * 700: "each escape counted as three",
}

# What is refused unless private addresses are allowed.
PRIVATE_ONLY = {
    "must begin with https://": ["http://hooks.example.com/"],
    "not its address": [
        *(
            "https://192.0.2.1/",
            "https://8.8.8.8/",
            "https://127.0.0.1/",
            "https://127.1/",
            "https://0x7f.1/",
        ),
        *("https://0x7f000001/", "https://2130706433/", "https://0177.0.0.1/", "https://0/"),
        *("https://127.0.0.1./", "https://127.0.0.1/".translate(WIDE), "https://①②⑦.⓪.⓪.①/"),
        *("https://127。0。0。1/", "https://[::1]/", "https://[::ffff:127.0.0.1]/"),
        "https://[2001:4860:4860::8888]/",
    ],
    "is not a public host name": [
        *("https://localhost/", "https://LOCALHOST/", "https://localhost./", "https://hooks.localhost/"),
        *("https://printer.local/", "https://metadata.google.internal/", "https://router.home.arpa/"),
        "https://intranet/",
    ],
    "443, or 1024 or higher": [
        *("https://hooks.example.com:22/", "https://hooks.example.com:80/", "https://hooks.example.com:1023/")
    ],
    "used for PostgreSQL; choose another": ["https://hooks.example.com:5432/"],
    "used for Redis; choose another": ["https://hooks.example.com:6379/"],
    "used for SMPP; choose another": ["https://hooks.example.com:2775/"],
}


def verdict(url: str, *, allow_private: bool = False) -> str | None:
    try:
        parse(url, allow_private=allow_private)
    except ValueError as error:
        line = str(error)
        assert line.endswith(".")
        assert line.isprintable()
        assert len(line) < 500
        return line
    return None


def test_a_plain_url_is_read() -> None:
    target = parse(PLAIN, allow_private=False)
    assert target == Target(url=PLAIN, tls=True, host="hooks.example.com", port=443, path="/tumira")
    assert target.authority == "hooks.example.com"


@pytest.mark.parametrize(
    ("given_url", "called"),
    [
        ("HTTPS://Hooks.Example.COM", "https://hooks.example.com/"),
        ("https://hooks.example.com:443/a", "https://hooks.example.com/a"),
        ("https://hooks.example.com:/a", "https://hooks.example.com/a"),
        ("https://hooks.example.com:08443/a", "https://hooks.example.com:8443/a"),
        ("https://hooks.example.com./a", "https://hooks.example.com/a"),
        ("https://hooks.example.com?key=1", "https://hooks.example.com/?key=1"),
        ("https://hooks.example.com/?a=1&b=%20@:/?", "https://hooks.example.com/?a=1&b=%20@:/?"),
        ("https://hooks.example.com/é?ü={x}", "https://hooks.example.com/%C3%A9?%C3%BC=%7Bx%7D"),
        ("https://bücher.example.com/", "https://xn--bcher-kva.example.com/"),
        ("https://xn--bcher-kva.example.com/", "https://xn--bcher-kva.example.com/"),
        ("https://my_hooks.example.com:1024/", "https://my_hooks.example.com:1024/"),
        ("https://hooks.example.com/a/../b//c", "https://hooks.example.com/a/../b//c"),
    ],
)
def test_a_url_is_called_as_it_was_meant(given_url: str, called: str) -> None:
    assert parse(given_url, allow_private=False).url == called
    assert parse(called, allow_private=False).url == called


@pytest.mark.parametrize(("url", "words"), EVERYWHERE_REFUSED.items())
def test_a_url_that_cannot_be_called_is_refused_and_told_what_to_do(url: str, words: str) -> None:
    for allow_private in (False, True):
        refusal = str(verdict(url, allow_private=allow_private))
        assert refusal != "None"
        assert words in refusal or allow_private
        assert "hushhush" not in refusal


@pytest.mark.parametrize(("words", "urls"), PRIVATE_ONLY.items())
def test_a_url_that_leads_inside_is_refused_unless_that_is_allowed(words: str, urls: Sequence[str]) -> None:
    for url in urls:
        assert words in str(verdict(url)), url
        assert verdict(url, allow_private=True) is None


def test_odd_spellings_of_an_address_are_called_by_the_plain_one() -> None:
    for spelling in ("0x7f.1", "2130706433", "0177.0.0.1", "127.1", "127.0.1", "0x7F000001", "127.0.0.1."):
        assert parse(f"http://{spelling}:8080/", allow_private=True).host == "127.0.0.1"
    assert parse("http://0/", allow_private=True).host == "0.0.0.0"  # noqa: S104 - nobody listens there.


def test_an_ipv6_address_is_in_brackets_where_it_is_shown_and_bare_where_it_is_called() -> None:
    target = parse("http://[::0001]:8080/hook", allow_private=True)
    assert (target.host, target.authority) == ("::1", "[::1]:8080")
    assert target.url == "http://[::1]:8080/hook"
    assert parse("https://[::1]", allow_private=True).authority == "[::1]"


def test_a_host_header_leaves_out_the_default_port_of_its_own_scheme_only() -> None:
    assert parse("http://hooks.example.com:80/", allow_private=True).authority == "hooks.example.com"
    assert parse("http://hooks.example.com:443/", allow_private=True).authority == "hooks.example.com:443"


@given(st.text() | st.text().map(lambda text: PLAIN + text) | st.text().map(lambda text: "https://" + text))
@example("https://[::1]:8443/é")
def test_any_text_is_refused_in_words_or_read_the_same_again(text: str) -> None:
    for allow_private in (False, True):
        if verdict(text, allow_private=allow_private) is None:
            target = parse(text, allow_private=allow_private)
            assert parse(target.url, allow_private=allow_private) == target
            assert target.url.isascii()
            assert target.url.isprintable()
            assert target.path.startswith("/")
            assert len(target.url) <= URL_MAX
