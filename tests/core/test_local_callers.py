"""Requests from this machine, told from those that a proxy passed on."""

from typing import Final

import pytest

from tumira.core.local_callers import is_local

HOST: Final = (b"host", b"127.0.0.1:8080")


@pytest.mark.parametrize(
    ("peer", "own", "host"),
    [
        ("127.0.0.1", "127.0.0.1", b"127.0.0.1:8080"),
        ("127.0.0.1", "127.0.0.1", b"127.0.0.1"),
        ("127.0.0.1", "127.0.0.1", b"LocalHost:8080"),
        ("127.8.9.1", "127.0.0.1", b"127.8.9.1:80"),
        ("::1", "::1", b"[::1]:8080"),
        ("::1", "::1", b"[::1]"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", b"localhost:8080"),
        ("192.0.2.7", "192.0.2.7", b"192.0.2.7:8080"),
        ("2001:db8::7", "2001:db8::7", b"[2001:DB8::7]:8080"),
    ],
)
def test_a_program_on_this_machine_is_local(peer: str, own: str, host: bytes) -> None:
    assert is_local(peer, own, "1.1", [(b"accept", b"*/*"), (b"host", host)])


PROXY_HEADERS: Final = (
    *(b"forwarded", b"via", b"x-real-ip", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"),
    *(b"x-forwarded-server", b"x-forwarded", b"cf-connecting-ip", b"true-client-ip"),
    b"x-original-forwarded-for",
)


@pytest.mark.parametrize("name", PROXY_HEADERS)
def test_what_came_through_a_proxy_is_not_local(name: bytes) -> None:
    for value in (b"", b"127.0.0.1", b"for=127.0.0.1"):
        assert not is_local("127.0.0.1", "127.0.0.1", "1.1", [HOST, (name, value)])


def test_a_proxy_that_says_nothing_is_known_by_its_protocol() -> None:
    assert not is_local("127.0.0.1", "127.0.0.1", "1.0", [HOST])


@pytest.mark.parametrize("peer", ["192.0.2.1", "10.0.0.1", "0.0.0.0", "2001:db8::1", "", "unix", None])  # noqa: S104 - compared
def test_who_connects_from_elsewhere_is_not_local(peer: str | None) -> None:
    assert not is_local(peer, "192.0.2.7", "1.1", [HOST])


@pytest.mark.parametrize(
    "host",
    [
        b"sms.example",
        b"127.0.0.1.sms.example:8080",
        b"localhost.sms.example",
        b"localhost:8080@sms.example",
        b"192.0.2.7:8080",
        b"[2001:db8::1]:8080",
        b"0.0.0.0:8080",
        b"2130706433",
        b"",
        b"\xff",
    ],
)
def test_a_site_that_was_pointed_at_this_machine_is_not_local(host: bytes) -> None:
    assert not is_local("127.0.0.1", "127.0.0.1", "1.1", [(b"host", host)])


@pytest.mark.parametrize("hosts", [[], [HOST, HOST], [HOST, (b"host", b"sms.example")]])
def test_without_one_host_nobody_is_local(hosts: list[tuple[bytes, bytes]]) -> None:
    assert not is_local("127.0.0.1", "127.0.0.1", "1.1", hosts)
