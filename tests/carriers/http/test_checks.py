"""Callbacks prove that they are the provider's."""

import base64
import hashlib
import hmac

import pytest

from tests.support.carriers.example import documented_profile
from tests.support.carriers.twilio import TwilioServer
from tests.support.carriers.vonage import VonageServer
from tumira.carriers.http.carrier import HttpCarrier
from tumira.carriers.http.checks import is_among, parse_networks, sign_twilio, sign_vonage
from tumira.carriers.http.profile import load_profile, parse_profile
from tumira.carriers.http.values import CallbackContent, CallbackMode, CallbackRefused, CallbackRequest

HOOK = "https://sms.example.com/hooks/carriers/AbC"
FORM = {"content-type": "application/x-www-form-urlencoded"}


def test_twilios_published_signatures() -> None:
    fields = {
        "CallSid": "CA1234567890ABCDE",
        "Caller": "+14158675310",
        "Digits": "1234",
        "From": "+14158675310",
        "To": "+18005551212",
    }
    url = "https://example.com/myapp.php?foo=1&bar=2"
    assert sign_twilio(url, fields, "12345") == "L/OH5YylLD5NRKLltdqwSvS0BnU="
    fields = {
        "MessageSid": "SM00000000000000000000000000000001",
        "MessageStatus": "delivered",
        "To": "+263771234567",
    }
    assert sign_twilio(f"{HOOK}?ref=r1", fields, "test-token-not-real") == "wvSazV+O42KpaiSXGes+UxRE7hg="


def twilio() -> HttpCarrier:
    return HttpCarrier(
        load_profile("twilio"), "https://api.example.com", TwilioServer.settings, TwilioServer.secrets
    )


def test_twilios_signature_covers_the_address_and_every_field() -> None:
    body = "MessageSid=SM00000000000000000000000000000001&MessageStatus=delivered&To=%2B263771234567"
    headers = {**FORM, "x-twilio-signature": "wvSazV+O42KpaiSXGes+UxRE7hg="}

    def read(
        query: str = "ref=r1", body: str = body, headers: dict[str, str] = headers, method: str = "POST"
    ) -> CallbackContent | CallbackRefused:
        return twilio().read_callback(
            CallbackRequest(method, HOOK, query, headers, body.encode(), "192.0.2.1")
        )

    good = read()
    assert isinstance(good, CallbackContent)
    assert [(one.reference, one.state) for one in good.reports] == [("r1", "DELIVRD")]
    assert (good.content_type, good.body) == ("text/xml", b"<Response/>")
    for changed in (
        read(query="ref=r2"),
        read(query=""),
        read(body=body.replace("delivered", "failed")),
        read(body=f"{body}&More=1"),
        read(body=f"{body}&MessageStatus=failed"),
        read(headers=FORM),
        read(headers={**FORM, "x-twilio-signature": "é"}),
        read(method="GET"),
        read(body='{"MessageSid": "SM1", "MessageStatus": "failed"}'),
    ):
        assert isinstance(changed, CallbackRefused)
        assert changed.status == 403


@pytest.mark.parametrize("method", ["md5hash", "md5", "sha1", "sha256", "sha512"])
def test_vonages_signatures(method: str) -> None:
    fields = {"messageId": "1", "status": "a&b=c", "sig": "ignored"}
    text = "&messageId=1&status=a_b_c"
    expected = (
        hashlib.md5(f"{text}secret".encode()).hexdigest()  # noqa: S324 - the provider's default
        if method == "md5hash"
        else hmac.new(b"secret", text.encode(), method).hexdigest()
    )
    assert sign_vonage(fields, "secret", method) == expected


def test_a_check_applies_once_its_secret_is_given() -> None:
    settings = VonageServer.settings
    unsigned = {"api_secret": "s"}
    carrier = HttpCarrier(load_profile("vonage"), "https://api.example.com", settings, unsigned)
    assert carrier.callback_mode is CallbackMode.OPEN
    signed = HttpCarrier(load_profile("vonage"), "https://api.example.com", settings, VonageServer.secrets)
    assert signed.callback_mode is CallbackMode.CHECKED
    request = CallbackRequest("GET", HOOK, "messageId=1&status=delivered", {}, b"", "192.0.2.1")
    assert isinstance(carrier.read_callback(request), CallbackContent)
    assert signed.read_callback(request) == CallbackRefused(403, "the check vonage failed")


def test_nothing_is_read_that_a_signature_does_not_cover() -> None:
    """A table is no part of what Vonage signs, so nothing in it counts."""
    signature = sign_vonage({"messageId": "1"}, "vonage-signature", "sha256")
    carrier = HttpCarrier(
        load_profile("vonage"), "https://api.example.com", VonageServer.settings, VonageServer.secrets
    )
    body = f'{{"nested": {{"status": "failed"}}, "messageId": "1", "sig": "{signature}"}}'
    headers = {"content-type": "application/json"}
    request = CallbackRequest("POST", HOOK, "", headers, body.encode(), "192.0.2.1")
    assert carrier.read_callback(request) == CallbackContent(body=b"")


def test_a_check_without_its_value_lets_nobody_pass() -> None:
    """A setting beside the secret is empty, and so is the header of a stranger."""
    text = documented_profile().replace(
        'value = "{secret.hook_key}"', 'value = "{setting.prefix}{secret.hook_key}"'
    )
    text = text.replace("[settings]", '[settings]\nprefix = { title = "Prefix", default = "" }')
    secrets = {"key": "k", "hook_key": "h"}
    carrier = HttpCarrier(parse_profile(text), "https://sms.example.com", {"user": "u"}, secrets)
    for headers in ({}, {"x-hook-key": ""}, {"x-hook-key": "h"}):
        request = CallbackRequest("POST", HOOK, "", headers, b'{"events": []}', "192.0.2.1")
        assert carrier.read_callback(request) == CallbackRefused(403, "the check header failed")


@pytest.mark.parametrize(("encoding", "prefix"), [("hex", "sha256="), ("base64", "")])
def test_a_signature_over_the_body(encoding: str, prefix: str) -> None:
    check = f"""kind = "hmac"
header = "X-Hook-Key"
key = "{{secret.hook_key}}"
encoding = "{encoding}"
prefix = "{prefix}"
"""
    text = documented_profile().replace(
        'kind = "header"\nheader = "X-Hook-Key"\nvalue = "{secret.hook_key}"\n', check
    )
    secrets = {"key": "k", "hook_key": "hook-key"}
    carrier = HttpCarrier(parse_profile(text), "https://sms.example.com", {"user": "u"}, secrets)
    assert carrier.callback_mode is CallbackMode.CHECKED
    body = b'{"events": [{"kind": "status", "id": "1", "state": "arrived"}]}'
    digest = hmac.digest(b"hook-key", body, "sha256")
    signature = prefix + (digest.hex() if encoding == "hex" else base64.b64encode(digest).decode())

    def read(method: str, query: str, body: bytes, signature: str) -> CallbackContent | CallbackRefused:
        headers = {"x-hook-key": signature, "content-type": "application/json"}
        return carrier.read_callback(CallbackRequest(method, HOOK, query, headers, body, "192.0.2.1"))

    good = read("POST", "", body, signature)
    assert isinstance(good, CallbackContent)
    assert [one.state for one in good.reports] == ["DELIVRD"]
    nothing = hmac.digest(b"hook-key", b"", "sha256")
    empty = prefix + (nothing.hex() if encoding == "hex" else base64.b64encode(nothing).decode())
    for changed in (
        read("POST", "", body + b" ", signature),
        read("POST", "", body, signature[:-2]),
        read("POST", "", body, ""),
        # A query is not signed.
        read("GET", "id=1&state=arrived", b"", empty),
        read("GET", "id=1&state=arrived", body, signature),
        read("POST", "id=1&state=arrived", b"", empty),
    ):
        assert changed == CallbackRefused(403, "the check hmac failed")


def test_addresses() -> None:
    networks = parse_networks("102.205.164.49, 192.0.2.0/24,2001:db8::/32")
    assert is_among("102.205.164.49", networks)
    assert is_among("192.0.2.77", networks)
    assert is_among("::ffff:192.0.2.77", networks)
    assert is_among("2001:db8::1", networks)
    assert not is_among("192.0.3.1", networks)
    assert not is_among("somewhere", networks)
    with pytest.raises(ValueError, match="callback_addresses"):
        parse_networks("example.com")


def test_probes_get_an_ok_and_unreadable_bodies_do_not() -> None:
    carrier = HttpCarrier(
        load_profile("bulksms"), "https://api.example.com", {"user": "u"}, {"password": "p"}
    )

    def read(method: str, body: bytes) -> CallbackContent | CallbackRefused:
        return carrier.read_callback(CallbackRequest(method, HOOK, "", {}, body, "192.0.2.1"))

    for method, body in (("GET", b""), ("POST", b""), ("POST", b"[]"), ("POST", b"[1, null, []]")):
        assert read(method, body) == CallbackContent(body=b"")
    assert read("POST", b"[{") == CallbackRefused(400, "the body cannot be read")
    assert read("POST", b"x" * 300_000) == CallbackRefused(413, "the body is too large")
    many = b"[" + b",".join([b'{"id":"1","status":{"type":"SENT"}}'] * 1001) + b"]"
    assert read("POST", many) == CallbackRefused(413, "more than 1000 receipts")
