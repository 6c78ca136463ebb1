"""The URL of a carrier: parsing, errors, and the hidden password."""

from dataclasses import replace
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.carriers.url import ALPHABETS, REFUNDS, CarrierSettings, lacks_password, parse, write

DEFAULTS = CarrierSettings(
    host="smpp.example.com",
    port=2775,
    tls=False,
    system_id="user",
    password="hushhush",
    bind_mode="transceiver",
    binds=1,
    window_size=64,
    tps=200,
    source="Tumira",
    in_doubt="resend",
    doubt_wait_s=30,
    refund=("failed", "expired", "undelivered"),
)
PLAIN = "smpp://user:hushhush@smpp.example.com"


def refusal(url: str) -> str:
    line = verdict(url)
    assert line is not None
    assert line.endswith(".")
    assert "\n" not in line
    return line


def verdict(url: str) -> str | None:
    try:
        parse(url)
    except ValueError as error:
        return str(error)
    return None


def test_what_is_not_given_has_its_default_and_is_not_written() -> None:
    for end in ("", ":2775/", "?"):
        assert parse(PLAIN + end) == DEFAULTS
    assert write(DEFAULTS) == "smpp://user:***@smpp.example.com:2775?window=64&tps=200"
    assert "hushhush" not in repr(DEFAULTS)
    url = (
        "smpps://us%40er:x@[::1]:3550?window=9&tps=0&bind=pair&binds=2&source=My%20Shop&in_doubt=hold&refund="
    )
    assert write(parse(url)) == url.replace(":x@", ":***@")
    assert parse(url).refund == ()


def test_every_parameter_is_read() -> None:
    url = (
        "smpp://us%40er:p%3Aa%2F%25@192.0.2.1:10000?window=10&tps=0&bind=pair&binds=32&source=%2B263771200001"
        "&in_doubt=hold&doubt_wait=86400&refund=undelivered,failed&sender_fallback=1&alphabet=latin1&tls=1"
    )
    assert parse(url) == CarrierSettings(
        host="192.0.2.1",
        port=10000,
        tls=True,
        system_id="us@er",
        password="p:a/%",
        bind_mode="pair",
        binds=32,
        window_size=10,
        tps=0,
        source="+263771200001",
        in_doubt="hold",
        doubt_wait_s=86400,
        refund=("failed", "undelivered"),
        sender_fallback=True,
        alphabet="latin1",
    )


def test_smpps_means_tls_on_the_same_port() -> None:
    secure = replace(DEFAULTS, tls=True)
    assert parse(PLAIN.replace("smpp:", "smpps:")) == secure
    assert parse(PLAIN.replace("smpp:", "smpps:") + "?tls=1") == secure
    assert parse(PLAIN + "?tls=0") == DEFAULTS
    assert "contradict" in refusal(PLAIN.replace("smpp:", "smpps:") + "?tls=0")


@pytest.mark.parametrize(
    ("place", "host", "port"),
    [
        ("[2001:db8::1]", "2001:db8::1", 2775),
        ("[2001:DB8:0::1]:2776", "2001:db8::1", 2776),
        ("[::1]:1", "::1", 1),
        ("SMPP.Example.com:65535", "smpp.example.com", 65535),
        ("localhost", "localhost", 2775),
    ],
)
def test_hosts_are_names_or_addresses(place: str, host: str, port: int) -> None:
    found = parse(f"smpp://user:hushhush@{place}")
    assert (found.host, found.port) == (host, port)
    assert parse(write(found).replace("***", "hushhush")) == found


@pytest.mark.parametrize(
    "place", ["", ":2775", "2001:db8::1", "[2001:db8::1", "[smpp]", "[::1]2775", "a b", "a/b"]
)
def test_what_is_no_host_is_refused(place: str) -> None:
    line = refusal(f"smpp://user:hushhush@{place}")
    assert "host" in line or "port" in line


@pytest.mark.parametrize(
    "source",
    ["T", "My Shop", "A{}€", "123", "+27821230001", "1" * 15, "ABCDEFGHIJK", "12a"],
)
def test_a_source_is_a_name_or_a_number(source: str) -> None:
    assert parse(f"{PLAIN}?source={quote(source)}").source == source


@pytest.mark.parametrize(
    "source", ["", "12", "+12", "1" * 16, "ABCDEFGHIJKL", "ABCDEFGHI€{", "花", "12.4", " Tumira", "A\nB"]
)
def test_any_other_source_is_refused(source: str) -> None:
    assert refusal(f"{PLAIN}?source={quote(source)}").startswith("source must have 1 to 11 GSM-7 characters")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("window=0", "window must be a whole number from 1 to 10000."),
        ("window=10001", "window must be a whole number from 1 to 10000."),
        ("window", "window must be"),
        ("window=6.4", "window must be"),
        ("window=" + "9" * 5000, "window must be"),
        ("window=\N{ARABIC-INDIC DIGIT FIVE}", "window must be"),
        ("tps=100001", "tps must be a whole number from 0 to 100000."),
        ("binds=33", "binds must be a whole number from 1 to 32."),
        ("doubt_wait=0", "doubt_wait must be a whole number from 1 to 86400."),
        ("bind=receiver", "bind must be transceiver or pair."),
        ("in_doubt=drop", "in_doubt must be resend or hold."),
        ("refund=delivered", "refund must list some of failed,expired,undelivered"),
        ("alphabet=utf8", "alphabet must be gsm7 or latin1 or ascii."),
        ("tls=yes", "tls must be 0 or 1."),
        ("window=1&tps=1&window=2", "The URL has window twice. Give it once."),
        ("colour=red", "no parameter colour. Allowed: window, tps, bind, binds, source, in_doubt"),
        ("window=1&", "no parameter …. Allowed: window"),
        ("window=%zz", "The value of window is not percent-encoded"),
    ],
)
def test_a_wrong_parameter_is_named(query: str, words: str) -> None:
    assert words in refusal(f"{PLAIN}?{query}")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "must begin with smpp://"),
        ("http://user:hushhush@smpp.example.com", "must begin with smpp://"),
        ("smpp://smpp.example.com", "Enter the URL as"),
        ("smpp://user@smpp.example.com", "Enter the URL as"),
        ("smpp://:hushhush@smpp.example.com", "The user must have 1 to 15 characters"),
        (f"smpp://{'u' * 16}:hushhush@smpp.example.com", "The user must have 1 to 15 characters"),
        ("smpp://user:hushhush9@smpp.example.com", "The password must have 0 to 8 characters"),
        ("smpp://us er:hushhush@smpp.example.com", "The user may have visible ASCII"),
        ("smpp://user:hush%@smpp.example.com", "The password may have visible ASCII"),
        ("smpp://user:hush%00@smpp.example.com", "The password may have visible ASCII"),
        ("smpp://user:hush?hus@smpp.example.com", "Enter the URL as"),
        ("smpp://user:hu@h?hus@smpp.example.com", "Enter the URL as"),
        ("smpp://user:hushhush@smpp.example.com#x", "Enter the URL as"),
        ("smpp://user:hushhush@smpp.example.com:0", "The port must be a whole number from 1 to 65535."),
        ("smpp://user:***@smpp.example.com", "Enter the carrier's real password"),
    ],
)
def test_a_url_that_is_none_is_refused_without_its_password(url: str, words: str) -> None:
    line = refusal(url)
    assert words in line
    assert "hu" not in line


def test_a_password_beside_the_url_is_taken_as_it_is() -> None:
    found = parse("smpp://user@host", "a%2F:@?#")
    assert found == parse("smpp://user:a%252F%3A%40%3F%23@host")
    assert parse("smpp://user@host", "").password == parse("smpp://user:@host").password == ""
    for url, password in (
        ("smpp://user:@host", "secret"),
        ("smpp://host", "secret"),
        ("smpp://user@host", "***"),
        ("smpp://user@host", "secret\n"),
        ("smpp://user@host", "secretsecret"),
    ):
        with pytest.raises(ValueError, match=r"\A[^\n]+\Z") as refused:
            parse(url, password)
        assert "cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "lacks"),
    [
        ("smpp://user@host", True),
        ("smpps://user@host:2775?tps=1", True),
        ("smpp://user:@host", False),
        ("smpp://@host", False),
        ("main", False),
    ],
)
def test_it_is_known_whether_a_password_has_to_be_asked_for(url: str, lacks: bool) -> None:  # noqa: FBT001 - a case
    assert lacks_password(url) is lacks


visible = st.characters(min_codepoint=0x21, max_codepoint=0x7E)
any_settings = st.builds(
    CarrierSettings,
    host=st.sampled_from(["smpp.example.com", "192.0.2.1", "::1", "a", "2001:db8::1"]),
    port=st.integers(1, 65535),
    tls=st.booleans(),
    system_id=st.text(visible, min_size=1, max_size=15),
    password=st.text(visible, max_size=8),
    bind_mode=st.sampled_from(["transceiver", "pair"]),
    binds=st.integers(1, 32),
    window_size=st.integers(1, 10_000),
    tps=st.integers(0, 100_000),
    source=st.sampled_from(["Tumira", "My Shop", "A&=#€", "B?@%+", "12345", "+27821230001"]),
    in_doubt=st.sampled_from(["resend", "hold"]),
    doubt_wait_s=st.integers(1, 86_400),
    sender_fallback=st.booleans(),
    alphabet=st.sampled_from(ALPHABETS),
    refund=st.sets(st.sampled_from(REFUNDS)).map(lambda some: tuple(one for one in REFUNDS if one in some)),
)


@given(any_settings)
def test_what_is_written_is_read_as_the_same(given_settings: CarrierSettings) -> None:
    password = quote(given_settings.password, safe="").replace("*", "%2A")
    assert parse(write(given_settings).replace(":***@", f":{password}@", 1)) == given_settings


@given(st.text(), st.text(), st.text())
def test_any_text_at_all_is_read_or_refused_in_one_line(user: str, place: str, query: str) -> None:
    line = verdict(f"smpp://{user}:Zq7%23xW@{place}?{query}") or ""
    assert "\n" not in line
    assert "Zq7" not in line
