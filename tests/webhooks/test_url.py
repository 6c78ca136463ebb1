"""The URLs that customers may give."""

from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tumira.webhooks.url import URL_MAX, Target, parse

WIDE = {ord("0") + digit: 0xFF10 + digit for digit in range(10)}
PLAIN = "https://hooks.example.com/tumira"

EVERYWHERE_REFUSED = {
    "no scheme": "hooks.example.com/tumira",
    "another scheme": "ftp://hooks.example.com/",
    "a scheme within": "javascript:https://hooks.example.com/",
    "nothing": "",
    "no host": "https:///tumira",
    "no host but a port": "https://:8443/",
    "user and password": "https://user:hushhush@hooks.example.com/",
    "user": "https://user@hooks.example.com/",
    "an empty user": "https://@hooks.example.com/",
    "fragment": "https://hooks.example.com/#part",
    "empty fragment": "https://hooks.example.com/#",
    "space": "https://hooks.example.com/a b",
    "space in front": " https://hooks.example.com/",
    "line end": "https://hooks.example.com/\r\nx-header: 1",
    "line end behind": "https://hooks.example.com/\n",
    "tab in the scheme": "ht\ttps://hooks.example.com/",
    "NUL": "https://hooks.example.com\0.example.net/",
    "no-break space": "https://hooks.example.com/\N{NO-BREAK SPACE}",
    "line separator": "https://hooks.example.com/\N{LINE SEPARATOR}",
    "direction mark": "https://hooks.example.com/\N{RIGHT-TO-LEFT OVERRIDE}",
    "half a pair": "https://hooks.example.com/\ud800",
    "backslash": "https://hooks.example.com\\@example.net/",
    "escape in the host": "https://hooks%2eexample.com/",
    "broken escape": "https://hooks.example.com/100%",
    "empty label": "https://hooks..example.com/",
    "dots only": "https://../",
    "hyphen in front": "https://-hooks.example.com/",
    "long label": f"https://{'a' * 64}.example.com/",
    "long name": f"https://{'a.' * 127}com/",
    "character that becomes a slash": "https://hooks.example.com℀.example.net/",
    "another name in browsers": "https://straße.example.com/",
    "port 0": "https://hooks.example.com:0/",
    "port too large": "https://hooks.example.com:65536/",
    "port in words": "https://hooks.example.com:https/",
    "port in other digits": "https://hooks.example.com:8443/".translate(WIDE),
    "two ports": "https://hooks.example.com:443:443/",
    "signed port": "https://hooks.example.com:+443/",
    "address that is none": "https://1.2.3.256/",
    "five numbers": "https://1.2.3.4.5/",
    "octal that is none": "https://089.0.0.1/",
    "name that ends in a number": "https://hooks.example.1/",
    "brackets not closed": "https://[2001:db8::1/",
    "brackets with a name": "https://[hooks.example.com]/",
    "brackets with a zone": "https://[fe80::1%25eth0]/",
    "something behind the brackets": "https://[2001:db8::1]x/",
    "too long": PLAIN + "?" + "a" * URL_MAX,
    "too long when escaped": PLAIN + "?" + "é" * 700,
}

PRIVATE_ONLY = {
    "no TLS": "http://hooks.example.com/",
    "address": "https://192.0.2.1/",
    "public address": "https://8.8.8.8/",
    "loopback": "https://127.0.0.1/",
    "short loopback": "https://127.1/",
    "hexadecimal loopback": "https://0x7f.1/",
    "hexadecimal number": "https://0x7f000001/",
    "decimal number": "https://2130706433/",
    "octal loopback": "https://0177.0.0.1/",
    "zero": "https://0/",
    "dot behind an address": "https://127.0.0.1./",
    "full-width digits": "https://127.0.0.1/".translate(WIDE),
    "circled digits": "https://①②⑦.⓪.⓪.①/",
    "ideographic dots": "https://127。0。0。1/",
    "IPv6 loopback": "https://[::1]/",
    "mapped loopback": "https://[::ffff:127.0.0.1]/",
    "public IPv6": "https://[2001:4860:4860::8888]/",
    "localhost": "https://localhost/",
    "localhost in capitals": "https://LOCALHOST/",
    "localhost with a dot": "https://localhost./",
    "below localhost": "https://hooks.localhost/",
    "below local": "https://printer.local/",
    "below internal": "https://metadata.google.internal/",
    "below home.arpa": "https://router.home.arpa/",
    "one label": "https://intranet/",
    "port of the system": "https://hooks.example.com:22/",
    "port 80": "https://hooks.example.com:80/",
    "last port of the system": "https://hooks.example.com:1023/",
    "PostgreSQL": "https://hooks.example.com:5432/",
    "Redis": "https://hooks.example.com:6379/",
    "SMPP": "https://hooks.example.com:2775/",
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


@pytest.mark.parametrize("allow_private", [False, True])
@pytest.mark.parametrize("url", EVERYWHERE_REFUSED.values(), ids=EVERYWHERE_REFUSED)
def test_a_url_that_cannot_be_called_is_refused(url: str, allow_private: bool) -> None:  # noqa: FBT001
    assert verdict(url, allow_private=allow_private) is not None


@pytest.mark.parametrize("url", PRIVATE_ONLY.values(), ids=PRIVATE_ONLY)
def test_a_url_that_leads_inside_is_refused_unless_that_is_allowed(url: str) -> None:
    assert verdict(url) is not None
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


_PUBLIC: Final = "https://hooks.example.com/tumira"
REFUSALS: Final = {
    _PUBLIC + "x" * 2048: "at most 2,048 characters",
    _PUBLIC + "é" * 500: "each escape counted as three",
    _PUBLIC + "/a b": "write a space as %20",
    _PUBLIC + "\\a": "write it as %5C",
    _PUBLIC + "#a": "leave out the # and the rest",
    _PUBLIC + "%zz": "write it as %25",
    "http://hooks.example.com/": "must begin with https://",
    "hooks.example.com": "must begin with https://",
    "https://user:hushhush@hooks.example.com/": "no user and password",
    "https://": "must name a host",
    "https://ß.example.com/": "begins with xn--",
    "https://127.0.0.1/": "not its address",
    "https://[::1]/": "not its address",
    "https://[::1]x/": "may only have a port",
    "https://[hooks]/": "must hold an IPv6 address",
    "https://1.2.3.4.5/": "neither a name nor an address",
    "https://localhost/": "give one that everybody can resolve",
    "https://metadata.internal/": "give one that everybody can resolve",
    "https://hooks.example.com:x/": "a whole number from 1 to 65535",
    "https://hooks.example.com:25/": "443 or one from 1024 on",
    "https://hooks.example.com:5432/": "that of PostgreSQL; choose another",
}


@pytest.mark.parametrize(("url", "words"), REFUSALS.items())
def test_each_refusal_says_what_to_do(url: str, words: str) -> None:
    assert words in str(verdict(url))


def test_a_refusal_does_not_repeat_a_password() -> None:
    assert "hushhush" not in str(verdict(EVERYWHERE_REFUSED["user and password"]))


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
