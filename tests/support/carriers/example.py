"""The provider of docs/carriers.md, and its profile as it is printed there."""

import re
from pathlib import Path
from typing import ClassVar, Final

from tests.support.carriers.server import (
    Answer,
    Call,
    Callback,
    CarrierServer,
    SentText,
    as_json,
    json_callback,
)

DOCS: Final = Path(__file__).parents[3] / "docs" / "carriers.md"
_WORDS: Final = {
    "enroute": "sent",
    "delivered": "arrived",
    "undelivered": "lost",
    "expired": "late",
    "rejected": "blocked",
    "mystery": "teleported",
}


def documented_profile() -> str:
    """Return the profile that the documentation shows whole."""
    [block] = re.findall(r"```toml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert isinstance(block, str)
    return block


class ExampleServer(CarrierServer):
    profile = "example"
    settings: ClassVar = {"user": "me"}
    secrets: ClassVar = {"key": "example-key", "hook_key": "example-hook-key"}
    base = "/api"
    profile_text = documented_profile()

    def answer(self, call: Call) -> Answer:
        if call.headers.get("x-api-key") != "example-key":
            return self.bad_credentials()
        match call.method, call.path:
            case "POST", "/send":
                asked = call.json
                assert asked["user"] == "me"
                return self.submit(
                    SentText(
                        recipient=asked["to"],
                        text=asked["text"],
                        sender=asked.get("from", ""),
                        reference=asked["ref"],
                        callback_url=asked.get("notify", ""),
                        validity=asked["ttl"],
                    )
                )
            case "GET", "/balance":
                return as_json(200, {"credit": 12.5})
            case "GET", path if path.startswith("/status/"):
                found = self.find(reference=path.removeprefix("/status/"))
                if found is None:
                    return _error(404, "NO_SUCH_MESSAGE")
                return as_json(200, {"id": found.id, "ref": found.reference, "state": _WORDS[found.state]})
            case _:
                return Answer(404, b"")

    def accepted(self, text: SentText) -> Answer:
        return as_json(200, {"result": {"id": text.id, "state": "queued", "price": "0.02"}})

    def refused_number(self, text: SentText) -> Answer:
        del text
        return _error(422, "BAD_NUMBER")

    def no_credit(self) -> Answer:
        return _error(200, "NO_CREDIT")

    def bad_credentials(self) -> Answer:
        return _error(401, "WRONG_KEY")

    def failed(self) -> Answer:
        return _error(503, "BUSY_7")

    def report(self, text: SentText, state: str, *, forged: bool) -> Callback:
        event = {
            "kind": "status",
            "id": text.id,
            "ref": text.reference,
            "to": text.recipient,
            "state": _WORDS[state],
            "why": "E27" if state == "undelivered" else None,
        }
        key = "guessed" if forged else "example-hook-key"
        return json_callback({"events": [event]}, **{"X-Hook-Key": key})

    def reply(self, number: str, to: str, text: str) -> Callback:
        event = {"kind": "incoming", "id": "R1", "from": number, "to": to, "text": text, "at": 1_794_000_000}
        return json_callback({"events": [event]}, **{"X-Hook-Key": "example-hook-key"})


def _error(status: int, code: str) -> Answer:
    return as_json(status, {"error": {"code": code, "words": "Sorry."}})
