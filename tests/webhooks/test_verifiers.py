"""The verifiers of PyPI and npm accept our signatures."""

import json
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.support.webhooks.verifiers import verify_with_npm
from tumira.webhooks.signature import sign, write_secret

SECRET, OLD, OTHER = bytes(range(32)), bytes(range(1, 33)), bytes(range(2, 34))
BODY = json.dumps(
    {"type": "message.delivered", "data": {"reference": "Tšhelete €5 \N{PARTY POPPER}"}}
).encode()


def headers(*secrets: bytes, body: bytes = BODY, late_s: int = 0) -> dict[str, str]:
    at_s = int(datetime.now(UTC).timestamp()) - late_s
    return {
        "webhook-id": "evt_01",
        "webhook-timestamp": str(at_s),
        "webhook-signature": sign(secrets, "evt_01", at_s, body),
    }


def good_and_bad() -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    good = [headers(SECRET), headers(SECRET, OLD), headers(OLD, SECRET)]
    return good, [headers(OTHER), headers(SECRET, body=BODY + b" "), headers(SECRET, late_s=600)]


def test_the_package_of_pypi_accepts_ours_and_refuses_others() -> None:
    verifier = Webhook(write_secret(SECRET))
    good, bad = good_and_bad()
    for one in good:
        assert verifier.verify(BODY.decode(), one)["type"] == "message.delivered"
    for one in bad:
        with pytest.raises(WebhookVerificationError):
            verifier.verify(BODY.decode(), one)


def test_the_package_of_npm_accepts_ours_and_refuses_others() -> None:
    good, bad = good_and_bad()

    verdicts = verify_with_npm(write_secret(SECRET), [(one, BODY) for one in (*good, *bad)])

    assert verdicts[: len(good)] == [True] * len(good)
    assert all(isinstance(verdict, str) for verdict in verdicts[len(good) :]), verdicts
