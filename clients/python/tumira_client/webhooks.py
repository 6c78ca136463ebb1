"""Checks that an event comes from Tumira (Standard Webhooks, `v1`)."""

import binascii
import hmac
import json
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tumira_client.errors import WebhookError

TOLERANCE_S: Final = 300


@dataclass(frozen=True, slots=True)
class Event:
    """An event that Tumira sent; `id` is the same on every try."""

    id: str
    type: str
    timestamp: datetime
    sequence: int
    data: Mapping[str, Any]


class Webhooks:
    """Verifies events with the secret of an endpoint, or with several while it is being changed."""

    def __init__(self, *secrets: str, tolerance_s: float = TOLERANCE_S) -> None:
        if not secrets:
            raise ValueError("Name the signing secret of your endpoint, whsec_….")
        self._keys = [_read_secret(secret) for secret in secrets]
        self._tolerance_s = tolerance_s

    def verify(
        self, headers: Mapping[str, str | Sequence[str]], body: bytes, now_s: float | None = None
    ) -> Event:
        """Return the event, or raise `WebhookError`; `body` is the request's body before parsing."""
        event_id = self.check(headers, body, now_s)
        try:
            event = json.loads(body)
            return Event(
                id=event_id,
                type=event["type"],
                timestamp=datetime.fromisoformat(event["timestamp"]),
                sequence=event.get("sequence", 0),
                data=event["data"],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WebhookError("The signed body is not an event.") from error

    def check(
        self, headers: Mapping[str, str | Sequence[str]], body: bytes, now_s: float | None = None
    ) -> str:
        """Check the signature and the time, and return the event's id."""
        event_id, sent_at, signatures = (
            _header(headers, name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
        )
        if not re.fullmatch("[0-9]{1,12}", sent_at):
            raise WebhookError("The header webhook-timestamp is not a number of seconds.")
        if abs((time.time() if now_s is None else now_s) - int(sent_at)) > self._tolerance_s:
            raise WebhookError("The event is too old, or the clock of this machine is wrong.")
        signed = f"{event_id}.{sent_at}.".encode() + body
        given = [one.encode() for one in signatures.split(" ")]
        expected = [b"v1," + b64encode(hmac.digest(key, signed, "sha256")) for key in self._keys]
        # All are compared, so that the time does not say which one fits.
        matches = [hmac.compare_digest(own, one) for own in expected for one in given]
        if not any(matches):
            raise WebhookError("No signature fits: the secret or the body is another.")
        return event_id


def _read_secret(secret: str) -> bytes:
    try:
        key = b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error as error:
        raise ValueError("A signing secret is whsec_ and base64.") from error
    if not key:
        raise ValueError("A signing secret is whsec_ and base64.")
    return key


def _header(headers: Mapping[str, str | Sequence[str]], wanted: str) -> str:
    found = [value for name, value in headers.items() if name.lower() == wanted]
    values = [one for value in found for one in ([value] if isinstance(value, str) else value)]
    if len(values) != 1 or not values[0]:
        raise WebhookError(f"The header {wanted} is missing or given twice.")
    return values[0]
