"""BulkSMS, JSON API v1 (fact sheet, section 6)."""

import re
from typing import Any, ClassVar, Final

from tests.support.carriers.server import (
    Answer,
    Call,
    Callback,
    CarrierServer,
    SentText,
    as_json,
    json_callback,
)

_ERRORS: Final = "https://developer.bulksms.com/json/v1/errors"
_WORDS: Final = {
    "enroute": ("SENT", None),
    "delivered": ("DELIVERED", None),
    "undelivered": ("FAILED", "HANDSET_ERROR"),
    "expired": ("FAILED", "EXPIRED"),
    "rejected": ("FAILED", "BLOCKED"),
    "mystery": ("TELEPORTED", None),
}


class BulkSmsServer(CarrierServer):
    profile = "bulksms"
    settings: ClassVar = {"user": "bulk-token"}
    secrets: ClassVar = {"password": "bulk-secret"}
    base = "/v1"

    def answer(self, call: Call) -> Answer:
        if call.user != "bulk-token:bulk-secret":
            return self.bad_credentials()
        match call.method, call.path:
            case "POST", "/messages":
                return self._send(call)
            case "GET", "/messages":
                name, _, reference = call.query["filter"].partition("=")
                assert name == "userSuppliedId"
                found = self.find(reference=reference)
                return as_json(200, [_message(found, found.state)] if found else [])
            case "GET", "/profile":
                return as_json(
                    200, {"id": "1", "credits": {"balance": 1234.5, "limit": 0, "isTransferAllowed": True}}
                )
            case "GET", path if path.startswith("/messages/"):
                found = self.find(id=path.removeprefix("/messages/"))
                return (
                    as_json(200, _message(found, found.state))
                    if found
                    else _error(404, "not-found", "Not Found")
                )
            case _:
                return _error(404, "not-found", "Not Found")

    def _send(self, call: Call) -> Answer:
        asked = call.json
        if (
            not isinstance(asked, list)
            or len(asked) != 1
            or not re.fullmatch(r"\+?[0-9]{8,15}", asked[0]["to"])
        ):
            return _error(400, "malformed-request", "Bad Request")
        [one] = asked
        if len(one.get("userSuppliedId", "")) > 20:
            return _error(400, "validation-error", "Bad Request")
        number = int(call.query["deduplication-id"])
        assert 0 < number < 2**31
        text = one["body"]
        if call.query.get("auto-unicode") != "true" and one.get("encoding") != "UNICODE":
            text = text.encode("ascii", "replace").decode()
        sent = SentText(
            recipient=one["to"].removeprefix("+"),
            text=text,
            sender=one.get("from", ""),
            reference=one.get("userSuppliedId", ""),
            unicode=one.get("encoding") == "UNICODE",
        )
        # A repeat is answered as before, and nothing is sent.
        return self.submit_once(str(number), sent, self.accepted)

    def accepted(self, text: SentText) -> Answer:
        return as_json(201, [_message(text, "accepted")])

    def refused_number(self, text: SentText) -> Answer:
        told = _message(text, "accepted")
        told["status"] = {"id": "FAILED.NOT_SENT", "type": "FAILED", "subtype": "NOT_SENT"}
        return as_json(201, [told])

    def no_credit(self) -> Answer:
        return _error(403, "insufficient-credits", "Insufficient credits")

    def bad_credentials(self) -> Answer:
        return _error(401, "authentication-failed", "Authentication failed")

    def failed(self) -> Answer:
        return _error(500, "internal-error", "Internal error")

    def report(self, text: SentText, state: str, *, forged: bool) -> Callback:
        told = _message(text, state)
        if forged:
            told |= {"id": "99999999", "userSuppliedId": "not-ours"}
        return json_callback([told])

    def reply(self, number: str, to: str, text: str) -> Callback:
        told = {"id": "R1", "type": "RECEIVED", "from": number, "to": to, "body": text}
        status = {"id": "RECEIVED.null", "type": "RECEIVED", "subtype": None}
        submission = {"id": "R1", "date": "2026-11-15T10:00:00Z"}
        return json_callback(
            [{**told, "status": status, "submission": submission, "relatedSentMessageId": "1"}]
        )


def _message(text: SentText, state: str) -> dict[str, Any]:
    kind, subtype = ("ACCEPTED", None) if state == "accepted" else _WORDS[state]
    return {
        "id": text.id,
        "type": "SENT",
        "from": text.sender,
        "to": text.recipient,
        "body": text.text,
        "encoding": "UNICODE" if text.unicode else "TEXT",
        "status": {"id": f"{kind}.{subtype or 'null'}", "type": kind, "subtype": subtype},
        "submission": {"id": f"S{text.id}", "date": "2026-11-15T10:00:00Z"},
        "userSuppliedId": text.reference,
        "numberOfParts": None,
        "creditCost": None,
    }


def _error(status: int, name: str, title: str) -> Answer:
    return as_json(
        status, {"type": f"{_ERRORS}#{name}", "title": title, "status": status, "detail": f"{title}."}
    )
