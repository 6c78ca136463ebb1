"""Clickatell One API (fact sheet, section 5)."""

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

_WORDS: Final = {
    "enroute": (4, "DELIVERED_TO_GATEWAY"),
    "delivered": (5, "DEVICE_ACK"),
    "undelivered": (23, "DELIVERY_FAILURE"),
    "expired": (20, "EXPIRED"),
    "rejected": (21, "STOPPED"),
    "mystery": (77, "TELEPORTED"),
}


class ClickatellServer(CarrierServer):
    profile = "clickatell"
    settings: ClassVar = {}
    secrets: ClassVar = {"key": "clickatell-key=="}
    base = "/v1"

    def answer(self, call: Call) -> Answer:
        if call.headers.get("authorization") != "clickatell-key==":
            return self.bad_credentials()
        match call.method, call.path:
            case "POST", "/message":
                return self._send(call)
            case "GET", "/balance":
                return as_json(200, {"balance": 56.25, "currency": "ZAR"})
            case _:
                return Answer(404, b"")

    def _send(self, call: Call) -> Answer:
        [asked] = call.json["messages"]
        if asked["channel"] != "sms" or not re.fullmatch(r"[0-9]{8,15}", asked["to"]):
            return _refused(400, 27, "Invalid request")
        return self.submit(
            SentText(
                recipient=asked["to"],
                text=asked["content"],
                sender=asked.get("from", ""),
                reference=asked.get("clientMessageId", ""),
            )
        )

    def accepted(self, text: SentText) -> Answer:
        told = {"apiMessageId": text.id, "accepted": True, "to": text.recipient, "error": None}
        return as_json(202, {"messages": [told], "error": None})

    def refused_number(self, text: SentText) -> Answer:
        error = {"code": 25, "description": "Invalid or missing To number."}
        told = {"apiMessageId": None, "accepted": False, "to": text.recipient, "error": error}
        return as_json(207, {"messages": [told], "error": None})

    def no_credit(self) -> Answer:
        return _refused(402, 20, "No credit left")

    def bad_credentials(self) -> Answer:
        return _refused(401, 1, "Invalid or missing integration API key")

    def throttled(self) -> Answer:
        return _refused(400, 43, "Maximum messages per second exceeded")

    def failed(self) -> Answer:
        return _refused(503, 19, "Temporary internal error")

    def report(self, text: SentText, state: str, *, forged: bool) -> Callback:
        code, word = _WORDS[state]
        told: dict[str, Any] = {
            "channel": "sms",
            "messageId": "not-ours" if forged else text.id,
            "clientMessageId": "not-ours" if forged else text.reference,
            "statusCode": code,
            "status": word,
            "timestamp": 1_794_000_000_000,
        }
        return json_callback({"event": {"messageStatusUpdate": [told]}})

    def reply(self, number: str, to: str, text: str) -> Callback:
        told = {"messageId": "R1", "fromNumber": number, "toNumber": to, "timestamp": 1_794_000_000_000}
        escaped = "".join(f"%{octet:02x}" for octet in text.encode("utf-16-be"))
        return json_callback({**told, "text": escaped, "charset": "UTF-16BE"})


def _refused(status: int, code: int, words: str) -> Answer:
    return as_json(status, {"messages": [], "error": {"code": code, "description": words}})
