"""SMSPortal REST API v1 (fact sheet, section 4)."""

import re
import secrets
from base64 import b64encode
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
    "enroute": "SUBMITD",
    "delivered": "DELIVRD",
    "undelivered": "UNDELIV",
    "expired": "EXPIRED",
    "rejected": "BLIST",
    "mystery": "TELEPORTED",
}


# The same with a token first, as an operator would describe it.
TOKEN_PROFILE: Final = """
name = "with_token"
title = "A token first"

[settings]
key = { title = "Client ID and secret in Base64", secret = true }

[token]
method = "GET"
path = "/Authentication"
headers = { Authorization = "Basic {secret.key}" }
token = "token"
lifetime = "expiresInMinutes"
lifetime_unit = "minutes"

[headers]
Authorization = "Bearer {token}"

[send]
path = "/BulkMessages"
body.sendOptions = { senderId = "{sender}", validityPeriod = "{validity_h}" }
body.messages = [{ content = "{text}", destination = "{to}", customerId = "{reference}" }]
answer = { id = "eventId" }
rules = [{ when = { messages = { above = 0 } }, verdict = "taken" }]
"""


class SmsPortalServer(CarrierServer):
    """With Basic, or with the token that /Authentication gives."""

    profile = "smsportal"
    settings: ClassVar = {"client_id": "portal-client"}
    secrets: ClassVar = {"api_secret": "portal-secret", "callback_key": "portal-callback-key"}
    base = "/v1"

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[str] = []

    def answer(self, call: Call) -> Answer:
        has_user = call.user == "portal-client:portal-secret"
        if (call.method, call.path) == ("GET", "/Authentication") and has_user:
            self.tokens.append(secrets.token_hex(16))
            return as_json(200, {"token": self.tokens[-1], "schema": "JWT", "expiresInMinutes": 1440})
        bearer = call.headers.get("authorization", "").removeprefix("Bearer ")
        if not has_user and bearer not in self.tokens:
            return self.bad_credentials()
        if (call.method, call.path) != ("POST", "/BulkMessages"):
            return Answer(404, b"")
        asked = call.json
        [message] = asked["messages"]
        hours = asked["sendOptions"]["validityPeriod"]
        if not re.fullmatch(r"[0-9]{8,15}", message["destination"]) or type(hours) is not int:
            return as_json(400, {"statusCode": 400, "errors": [{"errorCode": "InvalidParameter.Format"}]})
        return self.submit(
            SentText(
                recipient=message["destination"],
                text=message["content"],
                sender=asked["sendOptions"].get("senderId", ""),
                reference=message["customerId"],
                validity=hours,
                id=str(secrets.randbelow(10**9)),
            )
        )

    def accepted(self, text: SentText) -> Answer:
        return as_json(200, _answer(text, messages=1))

    def refused_number(self, text: SentText) -> Answer:
        return as_json(200, _answer(text, messages=0, noNetwork=1))

    def no_credit(self) -> Answer:
        return as_json(403, {"statusCode": 403, "errors": [{"errorMessage": "Insufficient credits"}]})

    def bad_credentials(self) -> Answer:
        return as_json(401, {"statusCode": 401, "errors": [{"errorCode": "InvalidCredentials"}]})

    def expired_token(self) -> Answer:
        self.tokens.clear()
        return as_json(401, {"statusCode": 401, "errors": [{"errorCode": "AuthenticationToken.Expired"}]})

    def failed(self) -> Answer:
        return as_json(503, {"statusCode": 503, "errors": [{"errorMessage": "Service unavailable"}]})

    def report(self, text: SentText, state: str, *, forged: bool) -> Callback:
        told = {
            "Status": _WORDS[state],
            "EventId": int(text.id),
            "Mcc": "655",
            "Mnc": "01",
            "MsgCount": text.parts,
            "Msisdn": text.recipient,
            "Received": "2026-11-15T10:00:05Z",
            "UserReference": text.reference,
        }
        return json_callback(told, **{"X-Callback-Key": "guessed" if forged else "portal-callback-key"})

    def reply(self, number: str, to: str, text: str) -> Callback:
        del to
        told = {"IncomingID": 7, "sourcePhoneNumber": number, "incomingData": text}
        return json_callback(told, **{"X-Callback-Key": "portal-callback-key"})


class TokenServer(SmsPortalServer):
    profile = "with_token"
    profile_text = TOKEN_PROFILE
    settings: ClassVar = {}
    secrets: ClassVar = {"key": b64encode(b"portal-client:portal-secret").decode()}


def _answer(text: SentText, messages: int, **counts: int) -> dict[str, Any]:
    report = {"noNetwork": 0, "duplicates": 0, "optedOuts": 0, "faults": [], **counts}
    return {
        "cost": 0.24 * messages,
        "remainingBalance": 812.76,
        "eventId": int(text.id),
        "messages": messages,
        "parts": text.parts * messages,
        "costBreakdown": [],
        "errorReport": report,
    }
