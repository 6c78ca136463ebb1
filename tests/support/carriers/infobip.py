"""Infobip, /sms/3 (fact sheet, section 8)."""

import base64
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
    "pending": (1, "PENDING", 26, "PENDING_ACCEPTED"),
    "enroute": (3, "DELIVERED", 2, "DELIVERED_TO_OPERATOR"),
    "delivered": (3, "DELIVERED", 5, "DELIVERED_TO_HANDSET"),
    "undelivered": (2, "UNDELIVERABLE", 9, "UNDELIVERABLE_NOT_DELIVERED"),
    "expired": (4, "EXPIRED", 15, "EXPIRED_EXPIRED"),
    "rejected": (5, "REJECTED", 14, "REJECTED_DESTINATION"),
    "mystery": (77, "TELEPORTED", 770, "TELEPORTED_AWAY"),
}
_ERRORS: Final = {"undelivered": "EC_ABSENT_SUBSCRIBER"}


class InfobipServer(CarrierServer):
    profile = "infobip"
    settings: ClassVar = {"callback_user": "hook-user"}
    secrets: ClassVar = {"key": "infobip-key-123", "callback_password": "hook-password"}

    def answer(self, call: Call) -> Answer:
        if call.headers.get("authorization") != "App infobip-key-123":
            return self.bad_credentials()
        match call.method, call.path:
            case "POST", "/sms/3/messages":
                return self._send(call)
            case "GET", "/sms/3/logs":
                found = self.find(reference=call.query["messageId"])
                return as_json(200, {"results": [_result(found, found.state)] if found else []})
            case _:
                return as_json(404, {"requestError": {"serviceException": {"messageId": "NOT_FOUND"}}})

    def _send(self, call: Call) -> Answer:
        [asked] = call.json["messages"]
        [destination] = asked["destinations"]
        validity = asked["options"]["validityPeriod"]
        is_right = (
            re.fullmatch(r"[0-9]{8,15}", destination["to"])
            and len(destination["messageId"]) <= 200
            and validity["timeUnit"] == "SECONDS"
            and type(validity["amount"]) is int
            and 0 < validity["amount"] <= 48 * 3600
        )
        if not is_right:
            return as_json(400, {"requestError": {"serviceException": {"messageId": "BAD_REQUEST"}}})
        text = SentText(
            recipient=destination["to"],
            text=asked["content"]["text"],
            sender=asked.get("sender", ""),
            reference=destination["messageId"],
            callback_url=asked.get("webhooks", {}).get("delivery", {}).get("url", ""),
            validity=validity["amount"],
            id=destination["messageId"],
        )
        return self.submit_once(text.reference, text, _repeated)

    def accepted(self, text: SentText) -> Answer:
        return _answer(text, _WORDS["pending"])

    def refused_number(self, text: SentText) -> Answer:
        return _answer(text, (5, "REJECTED", 52, "REJECTED_DESTINATION"))

    def no_credit(self) -> Answer:
        return _answer(SentText("263771200000", ""), (5, "REJECTED", 12, "REJECTED_NOT_ENOUGH_CREDITS"))

    def bad_credentials(self) -> Answer:
        problem = {"messageId": "UNAUTHORIZED", "text": "Invalid login details"}
        return as_json(401, {"requestError": {"serviceException": problem}})

    def throttled(self) -> Answer:
        return as_json(
            429, {"requestError": {"serviceException": {"messageId": "TOO_MANY"}}}, **{"Retry-After": "2"}
        )

    def failed(self) -> Answer:
        return as_json(500, {"requestError": {"serviceException": {"messageId": "GENERAL_ERROR"}}})

    def report(self, text: SentText, state: str, *, forged: bool) -> Callback:
        password = "guessed" if forged else "hook-password"
        user = base64.b64encode(f"hook-user:{password}".encode()).decode()
        return json_callback({"results": [_result(text, state)]}, Authorization=f"Basic {user}")

    def reply(self, number: str, to: str, text: str) -> Callback:
        told = {"messageId": "R1", "from": number, "to": to, "text": text, "cleanText": text, "keyword": ""}
        user = base64.b64encode(b"hook-user:hook-password").decode()
        more = {"receivedAt": "2026-11-15T10:00:00.000+0000", "smsCount": 1}
        return json_callback({"results": [told | more]}, Authorization=f"Basic {user}")


def _repeated(text: SentText) -> Answer:
    return _answer(text, (5, "REJECTED", 23, "REJECTED_DUPLICATE_MESSAGE_ID"))


def _status(words: tuple[int, str, int, str]) -> dict[str, Any]:
    group, group_name, number, name = words
    return {
        "groupId": group,
        "groupName": group_name,
        "id": number,
        "name": name,
        "description": name.lower(),
    }


def _answer(text: SentText, words: tuple[int, str, int, str]) -> Answer:
    told = {"messageId": text.id, "status": _status(words), "destination": text.recipient}
    return as_json(200, {"bulkId": "B1", "messages": [told | {"details": {"messageCount": text.parts}}]})


def _result(text: SentText, state: str) -> dict[str, Any]:
    error = _ERRORS.get(state, "NO_ERROR")
    return {
        "bulkId": "B1",
        "messageId": text.id,
        "to": text.recipient,
        "sentAt": "2026-11-15T10:00:00.000+0000",
        "doneAt": "2026-11-15T10:00:05.000+0000",
        "messageCount": text.parts,
        "price": {"pricePerMessage": 0.011, "currency": "USD"},
        "status": _status(_WORDS[state]),
        "error": {"groupId": 0, "groupName": "OK", "id": 0, "name": error, "permanent": False},
        "mccMnc": "64804",
    }
