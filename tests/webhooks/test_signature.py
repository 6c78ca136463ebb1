"""Signatures after Standard Webhooks."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tumira.webhooks.signature import SECRET_BYTES, read_secret, sign, write_secret

# Secret, event, Unix seconds, body and the signature that the reference library makes of them.
VECTORS: Final = (
    (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLjSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
        "v1,q6KMVIJHk4Gs770FfR5f591Ftx7uVJSGl5wHV1ri978=",
    ),
    (
        "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "evt_01",
        1794708000,
        (
            b'{"type":"message.delivered","timestamp":"2026-11-15T02:00:00Z",'
            b'"data":{"message_id":"msg_1","status":"delivered"}}'
        ),
        "v1,LumhaqNddWi5y/2IwAvDpbDKitBPGXRRinS+NaFSLyw=",
    ),
)

secrets = st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES)
event_ids = st.from_regex(r"evt_[0-9a-z]{26}", fullmatch=True)
times = st.integers(0, 2**33)


@pytest.mark.parametrize(("secret", "event_id", "at_s", "body", "signature"), VECTORS)
def test_the_known_vectors_are_signed_as_the_reference_library_signs_them(
    secret: str, event_id: str, at_s: int, body: bytes, signature: str
) -> None:
    assert sign([read_secret(secret)], event_id, at_s, body) == signature


@given(secrets, event_ids, times, st.binary(max_size=300))
def test_what_is_signed_is_id_time_and_body_joined_by_dots(
    secret: bytes, event_id: str, at_s: int, body: bytes
) -> None:
    signed = event_id.encode() + b"." + str(at_s).encode() + b"." + body
    expected = base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
    assert sign([secret], event_id, at_s, body) == f"v1,{expected}"


@given(secrets, secrets, event_ids, times, st.binary(max_size=300))
def test_after_a_rotation_there_are_two_signatures_the_new_one_first(
    new: bytes, old: bytes, event_id: str, at_s: int, body: bytes
) -> None:
    both = sign([new, old], event_id, at_s, body).split(" ")
    assert both == [sign([new], event_id, at_s, body), sign([old], event_id, at_s, body)]


@given(secrets)
def test_a_secret_reads_as_it_was_written(secret: bytes) -> None:
    written = write_secret(secret)
    assert written.startswith("whsec_")
    assert read_secret(written) == secret
    assert read_secret(written.removeprefix("whsec_")) == secret


@pytest.mark.parametrize(
    "text", ["whsec_?", "whsec_AAA", "whsec_AAAA AAAA", "whsec_\u00e9\u00e9\u00e9\u00e9"]
)
def test_what_is_no_secret_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_secret(text)


def headers(secret_list: list[bytes], body: bytes, at_s: int) -> dict[str, str]:
    return {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(at_s),
        "webhook-signature": sign(secret_list, "evt_1", at_s, body),
    }


NEW: Final = bytes(range(32))
OLD: Final = bytes(range(32, 64))
BODY: Final = b'{"type":"balance.low","data":{}}'


def now_s() -> int:
    return int(datetime.now(UTC).timestamp())


def test_the_reference_library_accepts_both_secrets_after_a_rotation() -> None:
    signed = headers([NEW, OLD], BODY, now_s())
    for secret in (NEW, OLD):
        assert Webhook(write_secret(secret)).verify(BODY, signed) == {"type": "balance.low", "data": {}}


def test_the_reference_library_refuses_what_was_changed_on_the_way() -> None:
    signed = headers([NEW], BODY, now_s())
    later = {**signed, "webhook-timestamp": str(now_s() + 1)}
    other = {**signed, "webhook-id": "evt_2"}
    old = headers([NEW], BODY, now_s() - 301)
    for body, changed, secret in (
        (BODY + b" ", signed, NEW),
        (BODY, later, NEW),
        (BODY, other, NEW),
        (BODY, old, NEW),
        (BODY, signed, OLD),
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(write_secret(secret)).verify(body, changed)
