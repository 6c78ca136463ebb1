"""What an assistant may do: ask for prices, send what was priced within a ceiling, and look up."""

import json
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from tumira.mcp.api import ApiCallError, ApiClient

MESSAGES_SHOWN: Final = 20
CONFIRMATIONS_MAX: Final = 1000

_TEXT: Final = {"type": "string", "description": "The message, at most 5 segments. Marketing is refused."}
_TO: Final = {
    "type": "array",
    "items": {"type": "string"},
    "minItems": 1,
    "maxItems": 1000,
    "description": "Mobile numbers in international form, such as +263771200001.",
}


@dataclass(frozen=True, slots=True)
class PricedSend:
    """A send that was priced and can be confirmed."""

    to: Sequence[str]
    body: str
    cost: Decimal


class ToolRefusedError(Exception):
    """A call that a tool does not carry out; the text says what to do instead."""


class Tools:
    """Tools over the API with a ceiling on spending; without a ceiling nothing is sent."""

    def __init__(self, api: ApiClient, ceiling: Decimal | None) -> None:
        self._api = api
        self._ceiling = ceiling
        self._spent = Decimal(0)
        self._priced: dict[str, PricedSend] = {}
        # What each confirmation was counted with: a repeated send is billed once.
        self._counted: dict[str, Decimal] = {}
        self._tools: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            "price": self._price,
            "send": self._send,
            "look_up": self._look_up,
            "balance": self._balance,
        }

    @property
    def instructions(self) -> str:
        mode = (
            "This is a dry run: nothing is sent or billed."
            if self._ceiling is None
            else f"At most {self._ceiling:.4f} USD are spent in this session."
        )
        return (
            "Sends text messages to Zimbabwe and South Africa. First call price, show the person the text,"
            f" the recipients and the cost, and send only after they agreed. {mode}"
        )

    def describe(self) -> list[Mapping[str, Any]]:
        return [
            _tool("price", "Price a message without sending it.", {"to": _TO, "body": _TEXT}),
            _tool(
                "send",
                "Send a message that was priced, after the person has agreed to its cost.",
                {
                    "to": _TO,
                    "body": _TEXT,
                    "confirmation": {"type": "string", "description": "As price returned it."},
                },
                read_only=False,
            ),
            _tool("look_up", "Look up a batch or a message.", {"id": {"type": "string"}}),
            _tool("balance", "Read the balance of the account.", {}),
        ]

    def call(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if name not in self._tools:
            return None
        try:
            result = self._tools[name](arguments)
        except (ToolRefusedError, ApiCallError) as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        text = json.dumps(result, ensure_ascii=False)
        return {"content": [{"type": "text", "text": text}], "structuredContent": result, "isError": False}

    def _price(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        to, body = _read_message(arguments)
        answer = self._dry_run(to, body)
        if len(self._priced) >= CONFIRMATIONS_MAX:
            del self._priced[next(iter(self._priced))]
        confirmation = secrets.token_urlsafe(18)
        self._priced[confirmation] = PricedSend(to, body, Decimal(answer["total_cost"]))
        return {**answer, "confirmation": confirmation, **self._limits()}

    def _send(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        to, body = _read_message(arguments)
        confirmation = arguments.get("confirmation")
        priced = self._priced.get(confirmation) if isinstance(confirmation, str) else None
        if priced is None or not isinstance(confirmation, str) or (priced.to, priced.body) != (to, body):
            raise ToolRefusedError("Price exactly this text and these recipients first; nothing was sent.")
        cost = Decimal(self._dry_run(to, body)["total_cost"])
        if cost > priced.cost:
            raise ToolRefusedError("The price has risen; price it again. Nothing was sent.")
        if self._ceiling is None:
            return {"sent": False, "would_cost": f"{cost:.4f}", "why": "This server runs without --ceiling."}
        spent = self._spent - self._counted.get(confirmation, Decimal(0)) + cost
        if spent > self._ceiling:
            raise ToolRefusedError(
                f"This costs {cost:.4f} USD, {self._spent:.4f} USD were spent and the ceiling is"
                f" {self._ceiling:.4f} USD; nothing was sent."
            )
        # Counted before the call: without an answer it may have been billed.
        self._spent, self._counted[confirmation] = spent, cost
        try:
            answer = self._api.post({"channel": "sms", "to": to, "body": body}, confirmation)
        except ApiCallError as error:
            if error.refused:
                self._spent -= self._counted.pop(confirmation)
            raise
        return {"sent": True, **answer, **self._limits()}

    def _look_up(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        wanted = arguments.get("id")
        if not isinstance(wanted, str) or not wanted.startswith(("bat_", "msg_")):
            raise ToolRefusedError("An id begins with bat_ or msg_.")
        if wanted.startswith("msg_"):
            return dict(self._api.get("messages", wanted)["data"])
        batch = dict(self._api.get("batches", wanted)["data"])
        messages = batch.pop("messages")
        return {
            **batch,
            "statuses": dict(Counter(one["status"] for one in messages)),
            "messages": messages[:MESSAGES_SHOWN],
        }

    def _balance(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**self._api.get("balance"), **self._limits()}

    def _dry_run(self, to: Sequence[str], body: str) -> Mapping[str, Any]:
        return self._api.post({"channel": "sms", "to": to, "body": body, "dry_run": True})

    def _limits(self) -> Mapping[str, Any]:
        if self._ceiling is None:
            return {"live": False}
        return {
            "live": True,
            "spent_in_session": f"{self._spent:.4f}",
            "ceiling_of_session": f"{self._ceiling:.4f}",
        }


def _tool(
    name: str, description: str, properties: Mapping[str, Any], *, read_only: bool = True
) -> Mapping[str, Any]:
    return {
        "name": name,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": read_only, "destructiveHint": not read_only},
    }


def _read_message(arguments: Mapping[str, Any]) -> tuple[Sequence[str], str]:
    to, body = arguments.get("to"), arguments.get("body")
    if not isinstance(to, list) or not to or not all(isinstance(one, str) for one in to):
        raise ToolRefusedError("`to` is a list of phone numbers.")
    if not isinstance(body, str):
        raise ToolRefusedError("`body` is a text.")
    return to, body
