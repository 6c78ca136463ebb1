"""Bluedot, Zimbabwe, and the platform that it runs on (fact sheet, section 3)."""

import re
import secrets
from collections.abc import Mapping
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
    "enroute": "Pending",
    "delivered": "Delivered",
    "undelivered": "Undeliverable",
    "expired": "Expired",
    "rejected": "DND",
    "mystery": "Teleported",
}


class BluedotServer(CarrierServer):
    profile = "bluedot"
    settings: ClassVar = {"api_id": "API123"}
    secrets: ClassVar = {"api_password": "bluedot-password"}
    base = "/api"

    def answer(self, call: Call) -> Answer:
        fields: Mapping[str, Any] = call.query if call.method == "GET" else call.json
        if (fields.get("api_id"), fields.get("api_password")) != ("API123", "bluedot-password"):
            return self.bad_credentials()
        match call.method, call.path:
            case "POST", "/SendSMS":
                return self._send(fields)
            case "GET", "/GetDeliveryStatus":
                found = self.find(id=fields.get("message_id", ""), reference=fields.get("uid", ""))
                return as_json(200, _report(found, found.state) if found else {"Remarks": "No record found"})
            case "GET", "/CheckBalance":
                return as_json(200, {"BalanceAmount": 41.5, "CurrenceCode": "USD"})
            case _:
                return Answer(404, b"")

    def _send(self, asked: Mapping[str, Any]) -> Answer:
        assert asked["sms_type"] == "T"
        assert {asked[name] for name in ("templateid", "V1", "V2", "V3", "V4", "V5")} == {""}
        if not re.fullmatch(r"[0-9]{8,15}", asked["phonenumber"]):
            return _refused("Invalid phone number")
        is_unicode = {"T": False, "U": True}[asked["encoding"]]
        text = asked["textmessage"]
        return self.submit(
            SentText(
                recipient=asked["phonenumber"],
                text=text if is_unicode else text.encode("ascii", "replace").decode(),
                sender=asked.get("sender_id", ""),
                reference=asked["uid"],
                callback_url=asked.get("callback_url", ""),
                unicode=is_unicode,
                validity=asked["ValidityPeriodInSeconds"],
                id=str(1 + secrets.randbelow(10**9)),
            )
        )

    def accepted(self, text: SentText) -> Answer:
        told = {"message_id": int(text.id), "status": "S", "remarks": "Message Submitted Sucessfully"}
        return as_json(200, told | {"uid": text.reference})

    def refused_number(self, text: SentText) -> Answer:
        return _refused(f"Invalid phone number {text.recipient}")

    def no_credit(self) -> Answer:
        return _refused("Insufficient credit")

    def bad_credentials(self) -> Answer:
        return _refused("Invalid API ID or password")

    def throttled(self) -> Answer:
        return _refused("Too many requests")

    def failed(self) -> Answer:
        return _refused("Internal error")

    def report(self, text: SentText, state: str, *, forged: bool) -> Callback:
        told = _report(text, state)
        if forged:
            told |= {"message_id": 5, "uid": "not-ours"}
        return json_callback(told)


def _refused(words: str) -> Answer:
    return as_json(200, {"message_id": 0, "status": "F", "remarks": words})


def _report(text: SentText, state: str) -> dict[str, Any]:
    return {
        "message_id": int(text.id),
        "PhoneNumber": text.recipient,
        "DLRStatus": _WORDS[state],
        "SMSID": f"S{text.id}",
        "ErrorCode": "0",
        "ErrorDescription": "",
        "uid": text.reference,
        "MessageParts": text.parts,
        "ClientCost": 0.012,
    }
