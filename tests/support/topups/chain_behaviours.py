"""How a provider of the chain misbehaves: a real server before the chain that alters its answers."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from tests.support.topups.chain import LocalChain, RpcError
from tests.support.topups.servers import listening

ASKED_S: Final = 30

_BLOCK: Final = "eth_getBlockByNumber"

# Returns what is answered instead of a result; raises RpcError or HttpFault for no answer.
Behaviour = Callable[[LocalChain, str, Sequence[Any], Any], Any]


class HttpFault(Exception):  # noqa: N818 - what a provider does, and no error of ours
    """No answer: a status other than 200, or None for a closed connection."""

    def __init__(self, status: int | None) -> None:
        super().__init__(status)
        self.status = status


def lags(blocks: int = 0, finalized: int = 0) -> Behaviour:
    """Do not have the newest blocks, and call blocks final that are some blocks deeper."""

    def change(chain: LocalChain, method: str, parameters: Sequence[Any], result: Any) -> Any:
        head = chain.head() - blocks
        if method == "eth_blockNumber":
            return hex(head)
        if method == _BLOCK and parameters[0] == "finalized":
            return chain.block(hex(max(0, head - finalized)))
        if method == _BLOCK and result is not None and int(result["number"], 16) > head:
            return None
        if method == "eth_getLogs":
            return [log for log in result if int(log["blockNumber"], 16) <= head]
        return result

    return change


def tells_no_finality(_chain: LocalChain, method: str, parameters: Sequence[Any], result: Any) -> Any:
    if method == _BLOCK and parameters[0] == "finalized":
        raise RpcError("invalid block tag")
    return result


def limits_range(blocks: int, asked: list[int] | None = None) -> Behaviour:
    """Refuse larger ranges of blocks, and note in `asked` how large those were that were asked for."""

    def change(_chain: LocalChain, method: str, parameters: Sequence[Any], result: Any) -> Any:
        if method == "eth_getLogs":
            wanted = int(parameters[0]["toBlock"], 16) - int(parameters[0]["fromBlock"], 16) + 1
            if asked is not None:
                asked.append(wanted)
            if wanted > blocks:
                raise RpcError("query exceeds max block range")
        return result

    return change


def fails(status: int | None = 500, method: str | None = None) -> Behaviour:
    """Answer one method, or every method, with a status instead; None closes the connection."""

    def change(_chain: LocalChain, asked: str, _parameters: Sequence[Any], result: Any) -> Any:
        if method in {None, asked}:
            raise HttpFault(status)
        return result

    return change


def alters_logs(change_logs: Callable[[Sequence[Mapping[str, Any]]], Any]) -> Behaviour:
    return lambda _chain, method, _parameters, result: (
        change_logs(result) if method == "eth_getLogs" else result
    )


def hides(tx_hash: str | None = None) -> Behaviour:
    return alters_logs(lambda logs: [log for log in logs if tx_hash not in {None, log["transactionHash"]}])


def alters(fields: Mapping[str, Any]) -> Behaviour:
    return alters_logs(lambda logs: [{**log, **fields} for log in logs])


def renames(number: int) -> Behaviour:
    def change(_chain: LocalChain, method: str, _parameters: Sequence[Any], result: Any) -> Any:
        if method == _BLOCK and result is not None and int(result["number"], 16) == number:
            return {**result, "hash": "0x" + "ee" * 32}
        return result

    return change


def answers(wanted: str, answer: Any) -> Behaviour:
    return lambda _chain, method, _parameters, result: answer if method == wanted else result


@dataclass(slots=True)
class FakeProvider:
    url: str
    behaviours: list[Behaviour] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)

    def wait_until_asked(self) -> None:
        assert self.asked.wait(ASKED_S)


@contextmanager
def run_provider(chain: LocalChain) -> Iterator[FakeProvider]:
    provider = FakeProvider("")

    def answer(call: Mapping[str, Any]) -> Any:
        method, parameters = call["method"], call["params"]
        provider.asked.set()
        result = chain.ask(method, *parameters)
        for behaviour in provider.behaviours:
            result = behaviour(chain, method, parameters, result)
        return result

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # It answers in two pieces, and the second must not wait until the first is acknowledged.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            said: dict[str, Any] = {"jsonrpc": "2.0", "id": call["id"]}
            try:
                said["result"] = answer(call)
            except RpcError as error:
                said["error"] = {"code": -32000, "message": str(error)}
            except HttpFault as fault:
                if fault.status is None:
                    self.close_connection = True
                else:
                    self._write(fault.status, b"<h1>Not now</h1>")
                return
            self._write(200, json.dumps(said).encode())

        def _write(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with listening(Handler) as port:
        provider.url = f"http://127.0.0.1:{port}"
        yield provider
