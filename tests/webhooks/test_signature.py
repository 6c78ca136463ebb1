"""Signatures after Standard Webhooks."""

import json
from datetime import UTC, datetime
from typing import Final

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.support.webhooks.verifiers import verify_with_npm
from tumira.webhooks.signature import read_secret, sign, write_secret

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

NEW: Final = bytes(range(32))
OLD: Final = bytes(range(32, 64))
BODY: Final = json.dumps(
    {"type": "message.delivered", "data": {"reference": "Tšhelete €5 \N{PARTY POPPER}"}}
).encode()


@pytest.mark.parametrize(("secret", "event_id", "at_s", "body", "signature"), VECTORS)
def test_the_known_vectors_are_signed_as_the_reference_library_signs_them(
    secret: str, event_id: str, at_s: int, body: bytes, signature: str
) -> None:
    assert sign([read_secret(secret)], event_id, at_s, body) == signature


def test_a_secret_reads_as_it_was_written() -> None:
    written = write_secret(NEW)
    assert written.startswith("whsec_")
    assert read_secret(written) == read_secret(written.removeprefix("whsec_")) == NEW


@pytest.mark.parametrize(
    "text", ["whsec_?", "whsec_AAA", "whsec_AAAA AAAA", "whsec_\u00e9\u00e9\u00e9\u00e9"]
)
def test_what_is_no_secret_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_secret(text)


def headers(*secrets: bytes, body: bytes = BODY, late_s: int = 0) -> dict[str, str]:
    at_s = int(datetime.now(UTC).timestamp()) - late_s
    return {
        "webhook-id": "evt_01",
        "webhook-timestamp": str(at_s),
        "webhook-signature": sign(secrets, "evt_01", at_s, body),
    }


def test_the_packages_of_python_and_node_accept_both_secrets_of_a_rotation_and_refuse_the_rest() -> None:
    good = [headers(NEW), headers(NEW, OLD), headers(OLD, NEW)]
    bad = [
        headers(OLD),
        headers(NEW, body=BODY + b" "),
        headers(NEW, late_s=600),
        {**headers(NEW), "webhook-id": "evt_02"},
        {**headers(NEW), "webhook-timestamp": headers(NEW, late_s=1)["webhook-timestamp"]},
    ]
    verifier = Webhook(write_secret(NEW))
    for one in good:
        assert verifier.verify(BODY.decode(), one)["type"] == "message.delivered"
    for one in bad:
        with pytest.raises(WebhookVerificationError):
            verifier.verify(BODY.decode(), one)
    verdicts = verify_with_npm(write_secret(NEW), [(one, BODY) for one in (*good, *bad)])
    assert verdicts[: len(good)] == [True] * len(good)
    assert all(isinstance(verdict, str) for verdict in verdicts[len(good) :]), verdicts
