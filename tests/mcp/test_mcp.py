"""`tumira mcp` as a process: an assistant prices, confirms, sends and looks up, within a ceiling."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.clients.faulty_proxy import Fault, faulty_proxy
from tests.support.processes.programs import start
from tests.support.processes.service import Caller, Service

BODY = "Your order 1042 is ready."
TO = ["+263771200001", "+27821230002", "+15550100"]
ANSWER_S = 60


class Assistant:
    """The other side of the protocol."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._count = 0

    def request(self, method: str, **params: Any) -> Any:
        self._count += 1
        sent = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}
        answer = self.exchange(json.dumps(sent).encode())
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", self._count)
        return answer.get("result") or answer.get("error")

    def tell(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def exchange(self, line: bytes) -> Any:
        self.tell(line)
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def call(self, name: str, **arguments: Any) -> Any:
        result = self.request("tools/call", name=name, arguments=arguments)
        text = result["content"][0]["text"]
        if result["isError"]:
            return text
        assert json.loads(text) == result["structuredContent"]
        return result["structuredContent"]


@contextmanager
def assistant(base: str, caller: Caller, *options: str) -> Iterator[Assistant]:
    process = start("mcp", *options, stdin=subprocess.PIPE, url=base, api_key=caller.key)
    try:
        yield Assistant(process)
    finally:
        out, err = process.communicate(timeout=ANSWER_S)
    assert (process.returncode, out, err) == (0, b"", b"")


def test_an_assistant_sends_what_was_priced_and_confirmed_within_the_ceiling(service: Service) -> None:
    caller = service.open_account("1")
    # The answer to the first send is lost after the commit.
    with (
        faulty_proxy(service.base, [Fault.PASS, Fault.PASS, Fault.CUT_AFTER]) as proxy,
        assistant(proxy.base, caller, "--ceiling", "0.10") as hand,
    ):
        begun = hand.request("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={})
        assert (begun["protocolVersion"], begun["serverInfo"]["name"]) == ("2025-06-18", "tumira")
        assert "0.1000 USD" in begun["instructions"]
        hand.tell(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')

        priced = hand.call("price", to=TO, body=BODY)
        assert (priced["total_cost"], priced["rejected"][0]["to"]) == ("0.0600", "+15550100")
        confirmation = priced["confirmation"]
        assert "billed once" in hand.call("send", to=TO, body=BODY, confirmation=confirmation)
        sent = hand.call("send", to=TO, body=BODY, confirmation=confirmation)
        assert (sent["sent"], sent["accepted"], sent["spent_in_session"]) == (True, 2, "0.0600")
        assert str(service.balance(caller)) == "0.9400"

        # Not what was priced, never priced, and above the ceiling.
        changed = hand.call("send", to=TO, body=f"{BODY} Bring cash.", confirmation=confirmation)
        assert "nothing was sent" in changed
        assert "nothing was sent" in hand.call("send", to=TO, body=BODY, confirmation="guess")
        again = hand.call("price", to=TO, body=BODY)
        over = hand.call("send", to=TO, body=BODY, confirmation=again["confirmation"])
        assert "ceiling is 0.1000 USD; nothing was sent" in over
        assert str(service.balance(caller)) == "0.9400"

        batch = hand.call("look_up", id=sent["batch_id"])
        assert (batch["statuses"], len(batch["messages"])) == ({"queued": 2}, 2)
        message = hand.call("look_up", id=batch["messages"][0]["message_id"])
        assert message["to"] == "+263771200001"
        assert hand.call("balance")["balance"] == "0.9400"
        assert hand.call("look_up", id="msg_unknown").startswith("NOT_FOUND")


def test_without_a_ceiling_nothing_is_sent(service: Service) -> None:
    caller = service.open_account("1")
    with assistant(service.base, caller) as hand:
        assert "dry run" in hand.request("initialize", protocolVersion="1999-01-01")["instructions"]
        priced = hand.call("price", to=TO[:1], body=BODY)
        assert priced["live"] is False
        unsent = hand.call("send", to=TO[:1], body=BODY, confirmation=priced["confirmation"])
        assert (unsent["sent"], unsent["would_cost"]) == (False, "0.0400")
        refused = hand.call("price", to=TO[:1], body="Get 20% off your next order!")
        assert refused.startswith("CONTENT_REJECTED")
        assert "`to` is a list" in hand.call("price", to="+263771200001", body=BODY)
        assert "`body` is a text" in hand.call("price", to=TO, body=1)
        assert "bat_ or msg_" in hand.call("look_up", id="../balance")

        tools = {tool["name"]: tool for tool in hand.request("tools/list")["tools"]}
        assert [name for name, tool in tools.items() if not tool["annotations"]["readOnlyHint"]] == ["send"]
        assert tools["send"]["inputSchema"]["required"] == ["to", "body", "confirmation"]
        assert hand.request("tools/call", name="pay", arguments={})["code"] == -32602
        assert hand.request("resources/list")["code"] == -32601
        assert hand.exchange(b"{")["error"]["code"] == -32700
        assert hand.exchange(b"[]")["error"]["code"] == -32600
        assert hand.exchange(b"[" * 100_000)["error"]["code"] == -32700
    assert str(service.balance(caller)) == "1.0000"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param({"url": "http://127.0.0.1:1"}, marks=pytest.mark.long),
        pytest.param({"url": "x", "api_key": "tmr_1"}, marks=pytest.mark.long),
    ],
)
def test_a_missing_address_or_key_is_said(settings: dict[str, Any]) -> None:
    process = start("mcp", **settings)
    out, err = process.communicate(timeout=ANSWER_S)
    assert (process.returncode, out) == (1, b"")
    assert b"TUMIRA_" in err
