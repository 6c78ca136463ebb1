"""How a provider of the chain misbehaves: a real server before the chain that alters its answers."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tests.support.topups.chain import LocalChain, RpcError

ASKED_S: Final = 30

_BLOCK: Final = "eth_getBlockByNumber"


class HttpFault(Exception):  # noqa: N818 - what a provider does, and no error of ours
    """No answer: a status other than 200, or None for a closed connection."""

    def __init__(self, status: int | None) -> None:
        super().__init__(status)
        self.status = status


class Behaviour:
    def change(self, chain: LocalChain, method: str, parameters: Sequence[Any], result: Any) -> Any:
        """Return what is answered instead; raises RpcError or HttpFault for no answer."""
        raise NotImplementedError


@dataclass(slots=True)
class Lags(Behaviour):
    """Does not have the newest blocks, and calls blocks final that are some blocks deeper."""

    blocks: int = 0
    finalized: int = 0

    def change(self, chain: LocalChain, method: str, parameters: Sequence[Any], result: Any) -> Any:
        head = chain.head() - self.blocks
        if method == "eth_blockNumber":
            return hex(head)
        if method == _BLOCK and parameters[0] == "finalized":
            return chain.block(hex(max(0, head - self.finalized)))
        if method == _BLOCK and result is not None and int(result["number"], 16) > head:
            return None
        if method == "eth_getLogs":
            return [log for log in result if int(log["blockNumber"], 16) <= head]
        return result


class NoFinality(Behaviour):
    def change(self, chain: LocalChain, method: str, parameters: Sequence[Any], result: Any) -> Any:
        del chain
        if method == _BLOCK and parameters[0] == "finalized":
            raise RpcError("invalid block tag")
        return result


@dataclass(slots=True)
class RangeLimit(Behaviour):
    blocks: int
    asked: list[int] = field(default_factory=list)

    def change(self, chain: LocalChain, method: str, parameters: Sequence[Any], result: Any) -> Any:
        del chain
        if method == "eth_getLogs":
            wanted = int(parameters[0]["toBlock"], 16) - int(parameters[0]["fromBlock"], 16) + 1
            self.asked.append(wanted)
            if wanted > self.blocks:
                raise RpcError("query exceeds max block range")
        return result


@dataclass(slots=True)
class Fails(Behaviour):
    """Answers one method, or every method, with a status instead; None closes the connection."""

    status: int | None = 500
    method: str | None = None

    def change(self, chain: LocalChain, method: str, parameters: Sequence[Any], result: Any) -> Any:
        del chain, parameters
        if self.method in {None, method}:
            raise HttpFault(self.status)
        return result


@dataclass(slots=True)
class Hides(Behaviour):
    tx_hash: str | None = None

    def change(self, chain: LocalChain, method: str, parameters: Sequence[Any], result: Any) -> Any:
        del chain, parameters
        if method != "eth_getLogs":
            return result
        return [log for log in result if self.tx_hash not in {None, log["transactionHash"]}]


@dataclass(slots=True)
class Invents(Behaviour):
    """Reports a transfer that never happened, in an existing block."""

    log: Mapping[str, Any]

    def change(self, chain: LocalChain, method: str, parameters: Sequence[Any], result: Any) -> Any:
        del chain
        if method != "eth_getLogs":
            return result
        wanted = parameters[0]
        number = int(self.log["blockNumber"], 16)
        is_in = int(wanted["fromBlock"], 16) <= number <= int(wanted["toBlock"], 16)
        return [*result, self.log] if is_in else result


@dataclass(slots=True)
class Alters(Behaviour):
    fields: Mapping[str, Any]

    def change(self, chain: LocalChain, method: str, parameters: Sequence[Any], result: Any) -> Any:
        del chain, parameters
        return [{**log, **self.fields} for log in result] if method == "eth_getLogs" else result


@dataclass(slots=True)
class Renames(Behaviour):
    number: int
    block_hash: str = "0x" + "ee" * 32

    def change(self, chain: LocalChain, method: str, parameters: Sequence[Any], result: Any) -> Any:
        del chain, parameters
        if method == _BLOCK and result is not None and int(result["number"], 16) == self.number:
            return {**result, "hash": self.block_hash}
        return result


@dataclass(slots=True)
class Answers(Behaviour):
    method: str
    result: Any

    def change(self, chain: LocalChain, method: str, parameters: Sequence[Any], result: Any) -> Any:
        del chain, parameters
        return self.result if method == self.method else result


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
            result = behaviour.change(chain, method, parameters, result)
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

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """Ignore callers that hang up."""

    with Server(("127.0.0.1", 0), Handler) as server:
        provider.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
