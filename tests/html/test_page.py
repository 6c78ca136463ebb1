"""Guards, cookies, form bodies, templates, assets and written values that all pages share."""

import csv
import gzip
import io
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tumira.console.session import PLACES
from tumira.core.settings.support import Support
from tumira.dashboard.session import NAVIGATION
from tumira.html import page as layout
from tumira.html.cookies import TOKEN_MAX, Cookie
from tumira.html.form_body import BODY_BYTES_MAX, FIELDS_MAX, read_body, read_fields
from tumira.html.guards import address_of, refuse_foreign_writes
from tumira.html.page import Assets, Templates, asset_route
from tumira.html.tables import neutral, write_rows

PUBLIC: Final = "https://tumira.example"
FORMULA: Final = tuple("=+-@|%\uff1d")
FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


def make_request(
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    client: str | None = "198.18.0.1",
    pieces: int = 1,
) -> Request:
    size = max(1, -(-len(body) // pieces))
    waiting = [body[start : start + size] for start in range(0, max(1, len(body)), size)]
    given_headers = {"Host": "tumira.example"} | dict(headers or {})

    async def receive() -> dict[str, Any]:
        chunk = waiting.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(waiting)}

    return Request(
        {
            "type": "http",
            "method": method,
            "path": "/",
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in given_headers.items()],
            "client": None if client is None else (client, 1),
        },
        receive,
    )


def is_refused(headers: Mapping[str, str], method: str = "POST", public_url: str = PUBLIC) -> bool:
    try:
        refuse_foreign_writes(make_request(method, headers), public_url)
    except HTTPException as refused:
        return refused.status_code == HTTPStatus.FORBIDDEN
    return False


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "null"},
        {"Origin": "https://tumira.example"},
    ],
)
def test_a_write_from_our_own_pages_is_let_through(headers: Mapping[str, str]) -> None:
    assert not is_refused(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": ""},
        {"Sec-Fetch-Site": "same-origin, cross-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://tumira.example"},
        {"Origin": ""},
        {"Origin": "null"},
        {"Origin": "https://tumira.example:8443"},
        {"Origin": "https://tumira.example.evil.example"},
        {"Origin": "https://eviltumira.example"},
        {"Origin": "https://tumira.example@evil.example"},
        {"Origin": "https://evil.example#tumira.example"},
        {"Origin": "https://tumira.example\\.evil.example"},
        {"Origin": "tumira.example"},
        {"Origin": "https://["},
    ],
)
def test_a_write_from_elsewhere_is_refused(headers: Mapping[str, str]) -> None:
    assert all(is_refused(headers, method) for method in ("POST", "PUT", "PATCH", "DELETE"))
    # Everybody may link to us.
    assert not any(is_refused(headers, method) for method in ("GET", "HEAD", "OPTIONS"))


def test_a_write_through_a_proxy_is_known_by_the_address_that_people_use() -> None:
    through = {"Origin": PUBLIC, "Host": "10.0.0.7:8080"}
    assert not is_refused(through)
    assert is_refused(through, public_url="https://another.example")
    # No public address and no host are nobody's, not everybody's.
    assert is_refused({"Origin": "null", "Host": ""}, public_url="")
    assert is_refused({"Origin": "https://evil.example", "Host": ""}, public_url="")


@pytest.mark.parametrize(
    ("client", "address"),
    [
        ("198.18.0.1", "198.18.0.1"),
        ("::ffff:198.18.0.1", "198.18.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("not an address", "not an address"),
        (None, ""),
    ],
)
def test_limits_count_against_what_a_subscriber_cannot_choose(client: str | None, address: str) -> None:
    assert address_of(make_request(client=client)) == address


async def refusal_of(request: Request) -> int:
    with pytest.raises(HTTPException) as refused:
        await read_fields(request)
    return refused.value.status_code


async def test_a_form_is_read_in_however_many_pieces_it_comes() -> None:
    body = b"name=Zo%C3%AB+Moyo&scope=a&scope=b&empty=&text=one%0D%0Atwo%0Dthree"
    for pieces in (1, 7, len(body)):
        form = await read_fields(make_request(headers=FORM, body=body, pieces=pieces))
        assert form.text("name") == "Zoë Moyo"
        assert form.getlist("scope") == ["a", "b"]
        assert form.raw("text") == "one\ntwo\nthree"
        assert (form.text("empty"), form.text("missing"), form.getlist("missing")) == ("", "", [])


async def test_what_is_no_form_is_refused() -> None:
    headers = {"Content-Type": "Application/X-WWW-Form-URLEncoded ; charset=UTF-8"}
    assert (await read_fields(make_request(headers=headers, body=b"a=1"))).text("a") == "1"
    for kind in ("", "text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded2"):
        assert await refusal_of(make_request(headers={"Content-Type": kind}, body=b"a=1")) == 415


async def test_a_form_that_is_too_large_is_refused_before_all_of_it_came() -> None:
    largest = b"a=" + b"x" * (BODY_BYTES_MAX - 2)
    assert len((await read_fields(make_request(headers=FORM, body=largest))).text("a")) == BODY_BYTES_MAX - 2
    assert await refusal_of(make_request(headers=FORM, body=largest + b"x")) == 413

    came = 0

    async def endless() -> AsyncGenerator[bytes, None]:
        nonlocal came
        while True:
            came += 65_536
            yield b"x" * 65_536

    request = make_request(headers=FORM)
    request.stream = endless  # type: ignore[method-assign]
    with pytest.raises(HTTPException) as refused:
        await read_body(request)
    assert refused.value.status_code == 413
    assert came <= BODY_BYTES_MAX + 65_536


async def test_a_form_with_too_many_fields_is_refused() -> None:
    fields = [b"a=1"] * FIELDS_MAX
    form = await read_fields(make_request(headers=FORM, body=b"&".join(fields)))
    assert len(form.getlist("a")) == FIELDS_MAX
    assert await refusal_of(make_request(headers=FORM, body=b"&".join([*fields, b"a=1"]))) == 400


async def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert await refusal_of(make_request(headers=FORM, body="name=Zoë".encode())) == 400
    form = await read_fields(make_request(headers=FORM, body=b"a=x%00y&b=%FF%FE&c=%ED%A0%80&d=%zz&%00=1"))
    assert form.raw("a") == "xy"
    for name in "bc":
        assert set(form.raw(name)) == {"\N{REPLACEMENT CHARACTER}"}
    assert form.raw("d") == "%zz"


@given(st.binary(max_size=200))
@settings(max_examples=50)
async def test_whatever_is_posted_is_read_or_refused_and_can_be_stored(body: bytes) -> None:
    try:
        read = (await read_fields(make_request(headers=FORM, body=b"a=" + body))).raw("a")
    except HTTPException as refused:
        read = str(refused.status_code)
    assert not {"\x00", "\r"} & set(read)
    read.encode()


@pytest.mark.parametrize(
    ("url", "name", "flags"),
    [(PUBLIC, "__Host-token", {"Secure"}), ("http://127.0.0.1:8080", "token", set())],
)
def test_a_cookie_hides_from_scripts_and_other_sites_and_behind_tls_from_other_hosts(
    url: str, name: str, flags: set[str]
) -> None:
    given_one, taken_back = Response(), Response()
    Cookie("token", url, 60).set(given_one, "abc")
    Cookie("token", url, 60).delete(taken_back)
    all_flags = {"HttpOnly", "SameSite=lax", "Path=/"} | flags
    first, *parts = given_one.headers["set-cookie"].split("; ")
    assert (first, set(parts)) == (f"{name}=abc", all_flags | {"Max-Age=60"})
    first, *parts = taken_back.headers["set-cookie"].split("; ")
    assert first == f'{name}=""'
    assert all_flags | {"Max-Age=0"} < set(parts)


@pytest.mark.parametrize(
    ("sent", "token"),
    [
        ("__Host-token=abc", "abc"),
        ("token=abc", None),
        ("__Host-token=", None),
        ("__Host-token=" + "x" * TOKEN_MAX, "x" * TOKEN_MAX),
        ("__Host-token=" + "x" * (TOKEN_MAX + 1), None),
        ("__Host-tokens=abc", None),
    ],
)
def test_a_token_is_read_from_its_own_cookie_alone(sent: str, token: str | None) -> None:
    assert Cookie("token", PUBLIC, 60).read(make_request(headers={"Cookie": sent})) == token


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("=1+1", "'=1+1"),
        ("+1+1", "'+1+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "\t'=1"),
        ("|calc", "'|calc"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("+263771200001+1", "'+263771200001+1"),
        ("+263771200001\n=1", "'+263771200001\n'=1"),
        ("Order 7;=1+1", "Order 7;'=1+1"),
        ('Order 7;"=1+1"', 'Order 7;\'"=1+1"'),
    ],
)
def test_a_cell_that_a_spreadsheet_would_calculate_becomes_text(cell: str, shown: str) -> None:
    assert neutral(cell) == shown


def test_other_cells_stay_as_they_are() -> None:
    for cell in ("", "Moyo", "a=b", "0.0400", "+263771200001", "1-2", "'=1", "a; b"):
        assert neutral(cell) == cell


def test_rows_are_written_as_any_reader_of_csv_expects() -> None:
    assert write_rows([("a", None, 7), ('say "hi"', "x,y", "one\r\ntwo")]) == (
        b'a,,7\r\n"say ""hi""","x,y","one\r\ntwo"\r\n'
    )
    assert write_rows([]) == b""


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@given(
    cells=st.lists(
        st.text(st.sampled_from("=+-@|%;,\"'\t\r\n\uff1dax7 ")) | st.just("+263771200001"),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=50)
def test_no_cell_begins_a_formula_whatever_a_spreadsheet_expects_between_cells(
    separator: str, cells: list[str]
) -> None:
    written = write_rows([cells]).decode()
    for row in csv.reader(io.StringIO(written, newline=""), delimiter=separator):
        for cell in row:
            begins = cell.lstrip("\t\r\n").partition(",")[0]
            assert not begins.startswith(FORMULA) or begins == "+263771200001", (cell, written)


@pytest.fixture
def look(tmp_path: Path) -> Templates:
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "own.js").write_text("'use strict';\n" * 100)
    (tmp_path / "static" / "secret.txt").write_text("not served")
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "one.html.jinja").write_text('<p title="{{ said }}">{{ said }}</p>')
    (tmp_path / "templates" / "asset.html.jinja").write_text("{{ asset('own.js') }}")
    return Templates(tmp_path)


def test_what_people_wrote_is_shown_and_never_carried_out(look: Templates) -> None:
    page = look.render("one.html.jinja", said="\"><script>alert('x')</script>{{7*7}}{% raw %}")
    assert "<script" not in page
    assert page.count("{{7*7}}{% raw %}") == 2
    assert page.count("&#34;&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;") == 2


def test_a_page_says_how_to_reach_the_operator_whatever_is_set(tmp_path: Path) -> None:
    for name in ("static", "templates"):
        (tmp_path / name).mkdir()
    (tmp_path / "templates" / "one.html.jinja").write_text(
        '{% from "parts.html.jinja" import support %}{{ support() }} {{ support(_("To close it")) }}'
    )
    reached = Support("+263 77 120 0001", "help@sms.example")
    links = (
        '<a href="tel:+263771200001">+263 77 120 0001</a>'
        ' or <a href="mailto:help@sms.example">help@sms.example</a>.'
    )
    assert Templates(tmp_path, reached).render("one.html.jinja") == (
        f"Contact support: {links} To close it: {links}"
    )
    unknown = "(the business that runs this Tumira service)."
    assert Templates(tmp_path).render("one.html.jinja") == (
        f"Contact support {unknown} To close it {unknown}"
    )


def test_a_page_that_lacks_a_value_is_not_shown(look: Templates) -> None:
    with pytest.raises(UndefinedError):
        look.render("one.html.jinja")


def test_a_page_forbids_what_it_does_not_need_and_is_not_kept(look: Templates) -> None:
    headers = look.page("one.html.jinja", said="").headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy.pop("default-src") == "'none'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert set(policy.values()) <= {"'self'", "'none'"}
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert headers["content-type"] == "text/html; charset=utf-8"


def test_values_are_written_for_people() -> None:
    for amount, usd, cost, exact, price in (
        ("0", "US$0.00", "US$0.00", "US$0.00", "US$0.00"),
        ("0.04", "US$0.04", "US$0.04", "US$0.04", "US$0.04"),
        ("0.019", "US$0.01", "US$0.02", "US$0.0190", "US$0.019"),
        ("4.9999", "US$4.99", "US$5.00", "US$4.9999", "US$4.9999"),
        ("100", "US$100.00", "US$100.00", "US$100.00", "US$100.00"),
        ("1234567.5", "US$1,234,567.50", "US$1,234,567.50", "US$1,234,567.50", "US$1234567.50"),
    ):
        writers = (layout.write_usd, layout.write_cost, layout.write_exact_usd, layout.write_price)
        assert tuple(write(Decimal(amount)) for write in writers) == (usd, cost, exact, price)
    # An amount that left has its sign in front, and is not shown as less than it is.
    assert layout.write_exact_usd(Decimal("-1234.5")) == "\N{MINUS SIGN}US$1,234.50"
    assert layout.write_usd(Decimal("-0.019")) == "\N{MINUS SIGN}US$0.02"
    assert layout.write_usd(Decimal("-0.0000")) == layout.write_cost(Decimal("-0.0010")) == "US$0.00"
    # Moments are those of Harare and Johannesburg.
    at = datetime(2026, 11, 15, 22, 30, 5, 123_456, tzinfo=UTC)
    assert layout.write_moment(at) == "16 Nov 2026, 00:30:05"
    assert layout.write_machine_time(at) == "2026-11-15T22:30:05.123+00:00"
    assert [layout.write_plural(n, "segment") for n in (1, 1000)] == ["1 segment", "1,000 segments"]
    assert layout.write_plural(2, "country", "countries") == "2 countries"
    assert layout.write_count(1_234_567) == "1,234,567"


def test_each_entry_of_a_navigation_has_an_icon_of_its_own(look: Templates, tmp_path: Path) -> None:
    (tmp_path / "templates" / "icon.html.jinja").write_text(
        '{% from "icons.html.jinja" import icon %}{{ icon(name) }}'
    )
    for navigation in (NAVIGATION, PLACES):
        icons = {item.icon for item in navigation} | {"leave", "menu"}
        drawn = {look.render("icon.html.jinja", name=icon) for icon in icons}
        assert len(drawn) == len(navigation) + 2


def get_asset(path: str, accepts: str = "") -> Request:
    request = make_request("GET", {"Accept-Encoding": accepts})
    request.scope["path"] = path
    return request


async def test_a_file_is_served_plain_or_compressed_and_kept_for_ever(look: Templates) -> None:
    path = look.render("asset.html.jinja")
    answer = asset_route(look.assets).endpoint
    plain = await answer(get_asset(path))
    compressed = await answer(get_asset(path, "br, gzip"))
    assert gzip.decompress(compressed.body) == plain.body == b"'use strict';\n" * 100
    assert compressed.headers["content-encoding"] == "gzip"
    for one in (plain, compressed):
        assert one.headers["content-type"].startswith("text/javascript")
        assert "immutable" in one.headers["cache-control"]
        assert one.headers["vary"] == "Accept-Encoding"
        assert one.headers["x-content-type-options"] == "nosniff"


async def test_nothing_else_is_served(look: Templates) -> None:
    for path in (
        "/static/own.js",
        "/static/own.000000000000.js",
        "/static/secret.txt",
        "/static/../templates/one.html.jinja",
        "/static//etc/passwd",
        "/static/",
    ):
        with pytest.raises(HTTPException) as refused:
            await asset_route(look.assets).endpoint(get_asset(path))
        assert refused.value.status_code == 404


def test_a_changed_file_has_another_address(look: Templates, tmp_path: Path) -> None:
    before = look.assets.path("own.js")
    (tmp_path / "static" / "own.js").write_text("'use strict'; // changed")
    after = Assets(tmp_path / "static").path("own.js")
    assert before != after
    with pytest.raises(KeyError):
        look.assets.path("unknown.js")
