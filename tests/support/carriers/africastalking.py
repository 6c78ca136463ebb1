"""Africa's Talking (fact sheet, section 7)."""

import re
from typing import Any, ClassVar, Final

from tests.support.carriers.server import (
    Answer,
    Call,
    Callback,
    CarrierServer,
    SentText,
    as_json,
    form_callback,
)

_WORDS: Final = {
    "enroute": ("Submitted", None),
    "delivered": ("Success", None),
    "undelivered": ("Failed", "UserDoesNotExist"),
    # Their filter threw it away.
    "expired": ("Expired", None),
    "rejected": ("Rejected", "UserInBlackList"),
    "mystery": ("Teleported", None),
}


class AfricasTalkingServer(CarrierServer):
    profile = "africastalking"
    settings: ClassVar = {"username": "tumira-app"}
    secrets: ClassVar = {"api_key": "africas-key"}
    base = "/version1"

    def answer(self, call: Call) -> Answer:
        if call.headers.get("apikey") != "africas-key":
            return self.bad_credentials()
        assert call.headers["accept"] == "application/json"
        match call.method, call.path:
            case "POST", "/messaging":
                return self._send(call)
            case "GET", "/user" if call.query == {"username": "tumira-app"}:
                return as_json(200, {"UserData": {"balance": "KES 1785.50"}})
            case _:
                return Answer(404, b"")

    def _send(self, call: Call) -> Answer:
        asked = call.form
        if asked["username"] != "tumira-app" or asked["bulkSMSMode"] != "1":
            return self.bad_credentials()
        if not re.fullmatch(r"\+[0-9]{8,15}", asked["to"]):
            return as_json(201, {"SMSMessageData": {"Message": "InvalidPhoneNumber", "Recipients": []}})
        text = SentText(
            recipient=asked["to"].removeprefix("+"), text=asked["message"], sender=asked.get("from", "")
        )
        text.id = f"ATXid_{text.id}"
        return self.submit(text)

    def accepted(self, text: SentText) -> Answer:
        return _answer(text, 101, "Success", text.id)

    def refused_number(self, text: SentText) -> Answer:
        return _answer(text, 403, "InvalidPhoneNumber", "None")

    def no_credit(self) -> Answer:
        return _answer(SentText("263771200000", ""), 405, "InsufficientBalance", "None")

    def bad_credentials(self) -> Answer:
        return Answer(401, b"The supplied authentication is invalid", "text/plain")

    def failed(self) -> Answer:
        return _answer(SentText("263771200000", ""), 500, "InternalServerError", "None")

    def report(self, text: SentText, state: str, *, forged: bool) -> Callback:
        word, reason = _WORDS[state]
        fields = {
            "id": "ATXid_not_ours" if forged else text.id,
            "status": word,
            "phoneNumber": f"+{text.recipient}",
            "networkCode": "64804",
            "retryCount": "0",
        }
        return form_callback(fields | ({"failureReason": reason} if reason else {}))

    def reply(self, number: str, to: str, text: str) -> Callback:
        fields = {
            "date": "2026-11-15 10:00:00",
            "from": number,
            "id": "R1",
            "linkId": "L1",
            "text": text,
            "to": to,
        }
        return form_callback(fields | {"networkCode": "64804"})


def _answer(text: SentText, code: int, word: str, number: str) -> Answer:
    recipient: dict[str, Any] = {
        "statusCode": code,
        "number": f"+{text.recipient}",
        "status": word,
        "cost": "KES 0.8000" if number != "None" else "0",
        "messageId": number,
    }
    words = "Sent to 1/1 Total Cost: KES 0.8000"
    return as_json(201, {"SMSMessageData": {"Message": words, "Recipients": [recipient]}})
