"""Twilio Programmable Messaging (fact sheet, section 9)."""

import base64
import hashlib
import hmac
import re
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, urlsplit

from tests.support.carriers.server import (
    Answer,
    Call,
    Callback,
    CarrierServer,
    SentText,
    as_json,
    form_callback,
)

_ACCOUNT: Final = "AC00000000000000000000000000000001"
_TOKEN: Final = "test-token-not-real"
_WORDS: Final = {
    "enroute": ("sent", None),
    "delivered": ("delivered", None),
    "undelivered": ("undelivered", 30003),
    "expired": ("undelivered", 30008),
    "rejected": ("failed", 30007),
    "mystery": ("teleported", None),
}


class TwilioServer(CarrierServer):
    profile = "twilio"
    settings: ClassVar = {"account": _ACCOUNT}
    secrets: ClassVar = {"auth_token": _TOKEN}
    base = "/2010-04-01"

    def answer(self, call: Call) -> Answer:
        if call.user != f"{_ACCOUNT}:{_TOKEN}":
            return self.bad_credentials()
        place = f"/Accounts/{_ACCOUNT}/Messages"
        if (call.method, call.path) == ("POST", f"{place}.json"):
            return self._send(call)
        found = self.find(id=call.path.removeprefix(f"{place}/").removesuffix(".json"))
        if call.method == "GET" and found:
            return as_json(200, _message(found, found.state))
        return _error(404, 20404, "The requested resource was not found")

    def _send(self, call: Call) -> Answer:
        asked = call.form
        if not re.fullmatch(r"\+[0-9]{8,15}", asked["To"]) or not 0 < len(asked["Body"]) <= 1600:
            return _error(400, 21211, "Invalid 'To' Phone Number")
        if not 1 <= int(asked["ValidityPeriod"]) <= 36000:
            return _error(400, 21600, "Validity period out of range")
        callback = asked.get("StatusCallback", "")
        text = SentText(
            recipient=asked["To"].removeprefix("+"),
            text=asked["Body"],
            sender=asked.get("From", ""),
            # The provider knows none; tests find it in the address that it was given.
            reference=parse_qs(urlsplit(callback).query).get("ref", [""])[0],
            callback_url=callback,
            validity=int(asked["ValidityPeriod"]),
        )
        text.id = f"SM{text.id:0>32}"
        return self.submit(text)

    def accepted(self, text: SentText) -> Answer:
        return as_json(201, {**_message(text, "enroute"), "status": "queued"})

    def refused_number(self, text: SentText) -> Answer:
        return _error(400, 21211, f"The 'To' number +{text.recipient} is not a valid phone number.")

    def no_credit(self) -> Answer:
        return _error(400, 30002, "Account suspended")

    def bad_credentials(self) -> Answer:
        return _error(401, 20003, "Authenticate")

    def throttled(self) -> Answer:
        return _error(429, 20429, "Too Many Requests")

    def failed(self) -> Answer:
        return _error(500, 20500, "An internal server error has occurred")

    def report(self, text: SentText, state: str, *, forged: bool) -> Callback:
        word, code = _WORDS[state]
        fields = {
            "MessageSid": text.id,
            "MessageStatus": word,
            "To": f"+{text.recipient}",
            "From": text.sender,
        }
        if code:
            fields["ErrorCode"] = str(code)
        signature = _sign(text.callback_url or self.callback_url, fields, "guessed" if forged else _TOKEN)
        return form_callback(fields, **{"X-Twilio-Signature": signature})

    def reply(self, number: str, to: str, text: str) -> Callback:
        fields = {"MessageSid": "SM0R", "From": number, "To": to, "Body": text}
        return form_callback(fields, **{"X-Twilio-Signature": _sign(self.callback_url, fields, _TOKEN)})


def _sign(url: str, fields: dict[str, str], token: str) -> str:
    signed = url
    for name, value in sorted(fields.items()):
        signed += name + value
    return base64.b64encode(hmac.digest(token.encode(), signed.encode(), hashlib.sha1)).decode()


def _message(text: SentText, state: str) -> dict[str, Any]:
    word, code = _WORDS[state]
    return {
        "sid": text.id,
        "status": word,
        "to": f"+{text.recipient}",
        "from": text.sender,
        "body": text.text,
        "num_segments": "1",
        "price": None,
        "error_code": code,
        "error_message": None,
    }


def _error(status: int, code: int, words: str) -> Answer:
    return as_json(status, {"code": code, "message": words, "status": status})
