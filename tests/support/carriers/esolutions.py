"""eSolutions BMG, Zimbabwe (fact sheet, section 2): receipts are polled."""

import re
from typing import Any, ClassVar, Final

from tests.support.carriers.server import Answer, Call, CarrierServer, SentText, as_json

_KEYS: Final = {
    "originator",
    "destination",
    "messageText",
    "messageReference",
    "messageDate",
    "messageValidity",
    "sendDateTime",
}
_WORDS: Final = {
    "enroute": "PENDING",
    "delivered": "DELIVERED",
    "undelivered": "FAILED",
    "expired": "FAILED",
    "rejected": "FAILED",
    "mystery": "TELEPORTED",
}


class ESolutionsServer(CarrierServer):
    profile = "esolutions"
    settings: ClassVar = {"user": "bmg-user"}
    secrets: ClassVar = {"password": "bmg-password"}
    base = "/bmg/api"

    def answer(self, call: Call) -> Answer:
        if call.user != "bmg-user:bmg-password":
            return self.bad_credentials()
        match call.method, call.path:
            case "POST", "/single":
                return self._send(call)
            case "POST", "/status/single":
                found = self.find(reference=call.json["messageReference"])
                return (
                    _answer(found, _WORDS[found.state]) if found else as_json(404, {"message": "Not found"})
                )
            case _:
                return as_json(404, {"message": "No such path"})

    def _send(self, call: Call) -> Answer:
        asked = call.json
        is_right = (
            set(asked) >= _KEYS - {"originator"}
            and re.fullmatch(r"[0-9]{8,15}", asked["destination"])
            and re.fullmatch(r"20[0-9]{12}", asked["messageDate"])
        )
        if not is_right:
            return as_json(400, {"message": "Bad request"})
        # With either it would be a message for later.
        assert asked["messageValidity"] == asked["sendDateTime"] == ""
        return self.submit(
            SentText(
                recipient=asked["destination"],
                text=asked["messageText"],
                sender=asked.get("originator", ""),
                reference=asked["messageReference"],
            )
        )

    def accepted(self, text: SentText) -> Answer:
        return _answer(text, "PENDING")

    def refused_number(self, text: SentText) -> Answer:
        return _answer(text, "FAILED", "Destination not supported")

    def no_credit(self) -> Answer:
        return _answer(SentText("263771200000", ""), "FAILED", "Insufficient balance")

    def bad_credentials(self) -> Answer:
        return as_json(401, {"message": "Unauthorized"})

    def failed(self) -> Answer:
        return as_json(500, {"message": "Internal error"})

    def report(self, text: SentText, state: str, *, forged: bool) -> None:
        """Call nobody: they are asked."""
        del text, state, forged


def _answer(text: SentText, word: str, narrative: str = "") -> Answer:
    told: dict[str, Any] = {
        "messageId": text.id,
        "status": word,
        "destination": text.recipient,
        "originator": text.sender,
        "charge": 2,
        "messageReference": text.reference,
        "scheduled": False,
        "isLocal": True,
        "narrative": narrative,
    }
    return as_json(200, told)
