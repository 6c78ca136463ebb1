"""Vonage SMS API (fact sheet, section 10): an id and a receipt for each part."""

import hashlib
import hmac
import re
import secrets
from typing import Any, ClassVar, Final

from tests.support.carriers.server import (
    Answer,
    Call,
    Callback,
    CarrierServer,
    SentText,
    as_json,
    form_callback,
    json_callback,
)

_KEY: Final = b"vonage-signature"
_WORDS: Final = {
    "enroute": ("buffered", "0"),
    "delivered": ("delivered", "0"),
    "undelivered": ("failed", "2"),
    "expired": ("expired", "1"),
    "rejected": ("rejected", "6"),
    "mystery": ("teleported", "0"),
}
_PART: Final = 153


class VonageServer(CarrierServer):
    profile = "vonage"
    settings: ClassVar = {"api_key": "vonage-key", "signature_method": "sha256"}
    secrets: ClassVar = {"api_secret": "vonage-secret", "signature_secret": _KEY.decode()}

    def answer(self, call: Call) -> Answer:
        if (call.method, call.path) != ("POST", "/sms/json"):
            return Answer(404, b"")
        asked = call.form
        if (asked.get("api_key"), asked.get("api_secret")) != ("vonage-key", "vonage-secret"):
            return self.bad_credentials()
        is_right = (
            re.fullmatch(r"[0-9]{8,15}", asked["to"])
            and 20_000 <= int(asked["ttl"]) <= 604_800_000
            and asked["type"] in {"text", "unicode"}
            and len(asked["client-ref"]) <= 40
        )
        if not is_right:
            return _refused("3", "Invalid value")
        text = asked["text"]
        return self.submit(
            SentText(
                recipient=asked["to"],
                text=text,
                sender=asked.get("from", ""),
                reference=asked["client-ref"],
                callback_url=asked.get("callback", ""),
                unicode=asked["type"] == "unicode",
                validity=int(asked["ttl"]),
                parts=1 if len(text) <= 160 else -(-len(text) // _PART),
                id=secrets.token_hex(8).upper(),
            )
        )

    def accepted(self, text: SentText) -> Answer:
        parts = [
            {
                "to": text.recipient,
                "message-id": _part_id(text, number),
                "status": "0",
                "remaining-balance": "3.14159",
                "message-price": "0.03330000",
                "network": "64804",
            }
            for number in range(text.parts)
        ]
        return as_json(200, {"message-count": str(text.parts), "messages": parts})

    def refused_number(self, text: SentText) -> Answer:
        return _refused("33", f"Number {text.recipient} de-activated")

    def no_credit(self) -> Answer:
        return _refused("9", "Partner quota exceeded")

    def bad_credentials(self) -> Answer:
        return _refused("4", "Bad Credentials")

    def throttled(self) -> Answer:
        return _refused("1", "Throttled")

    def failed(self) -> Answer:
        return _refused("5", "Internal Error")

    def report(self, text: SentText, state: str, *, forged: bool, part: int = 0) -> Callback:
        word, code = _WORDS[state]
        fields = {
            "messageId": _part_id(text, part),
            "msisdn": text.recipient,
            "to": text.sender,
            "status": word,
            "err-code": code,
            "price": "0.03330000",
            "network-code": "64804",
            "client-ref": text.reference,
            "message-timestamp": "2026-11-15 10:00:05",
            "scts": "2611151000",
        }
        return form_callback(_signed(fields, b"guessed" if forged else _KEY))

    def tell_part(self, text: SentText, state: str, part: int) -> int:
        """Report the state of one part of a long text."""
        return self.post(text.callback_url, self.report(text, state, forged=False, part=part))

    def reply(self, number: str, to: str, text: str) -> Callback:
        fields = {"msisdn": number, "to": to, "messageId": "R1", "text": text, "type": "text", "keyword": "X"}
        return self._signed_reply(fields)

    def tell_long_reply(self, number: str, to: str, *texts: str) -> list[int]:
        """Deliver the parts of a long reply, the last one first."""
        parts = list(enumerate(texts, 1))
        return [
            self.post(
                self.callback_url,
                self._signed_reply(
                    {
                        "msisdn": number,
                        "to": to,
                        "messageId": f"R{part}",
                        "text": text,
                        "type": "text",
                        "concat": "true",
                        "concat-ref": "201",
                        "concat-total": str(len(texts)),
                        "concat-part": str(part),
                    }
                ),
            )
            for part, text in reversed(parts)
        ]

    @staticmethod
    def _signed_reply(fields: dict[str, str]) -> Callback:
        return json_callback(_signed(fields | {"message-timestamp": "2026-11-15 10:00:00"}, _KEY))


def _part_id(text: SentText, number: int) -> str:
    return f"{text.id}{number:02X}"


def _signed(fields: dict[str, str], key: bytes) -> dict[str, str]:
    fields = fields | {"nonce": secrets.token_hex(8), "timestamp": "1794000000"}
    signing = hmac.new(key, digestmod=hashlib.sha256)
    for name, value in sorted(fields.items()):
        plain = value.replace("&", "_").replace("=", "_")
        signing.update(f"&{name}={plain}".encode())
    return fields | {"sig": signing.hexdigest()}


def _refused(status: str, words: str) -> Answer:
    told: dict[str, Any] = {"status": status, "error-text": words}
    return as_json(200, {"message-count": "1", "messages": [told]})
