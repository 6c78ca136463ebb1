"""JSON-RPC 2.0 over lines, as the Model Context Protocol has it on standard input and output."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from tumira import VERSION

# The first is offered to clients that ask for another.
VERSIONS: Final = ("2025-06-18", "2025-03-26", "2024-11-05")
LINE_MAX: Final = 1 << 20

_PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600
_METHOD_NOT_FOUND: Final = -32601
_INVALID_PARAMS: Final = -32602


class Toolbox(Protocol):
    """What the server offers."""

    @property
    def instructions(self) -> str:
        """Return what the assistant should know before it calls a tool."""

    def describe(self) -> list[Mapping[str, Any]]:
        """Return the tools with the schemas of their arguments."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the result of a tool, or None if there is no such tool."""


class _RpcError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def serve(lines: Iterable[bytes], write: Callable[[bytes], object], tools: Toolbox) -> None:
    """Answer each line, one after the other, until there are no more."""
    for line in lines:
        if line.strip():
            answer = _answer(line, tools)
            if answer is not None:
                write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")


def _answer(line: bytes, tools: Toolbox) -> Mapping[str, Any] | None:
    request_id = None
    try:
        request = _read(line)
        if "id" not in request:
            # A notification; none of those that clients send needs anything done.
            return None
        request_id = request["id"]
        result = _dispatch(request["method"], request.get("params") or {}, tools)
    except _RpcError as error:
        return {"jsonrpc": "2.0", "id": request_id, "error": {"code": error.code, "message": str(error)}}
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def _read(line: bytes) -> Mapping[str, Any]:
    try:
        request = json.loads(line) if len(line) <= LINE_MAX else None
    except (ValueError, RecursionError) as error:
        raise _RpcError(_PARSE_ERROR, "The line is not JSON.") from error
    if not isinstance(request, dict) or not isinstance(request.get("method"), str):
        raise _RpcError(_INVALID_REQUEST, "A request is one JSON object with a method.")
    return request


def _dispatch(method: str, params: Any, tools: Toolbox) -> Mapping[str, Any]:
    if not isinstance(params, dict):
        raise _RpcError(_INVALID_PARAMS, "The parameters are an object.")
    if method == "initialize":
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "tumira", "version": VERSION},
            "instructions": tools.instructions,
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": tools.describe()}
    if method == "tools/call":
        name, arguments = params.get("name"), params.get("arguments") or {}
        if isinstance(name, str) and isinstance(arguments, dict):
            result = tools.call(name, arguments)
            if result is not None:
                return result
        raise _RpcError(_INVALID_PARAMS, "There is no such tool.")
    raise _RpcError(_METHOD_NOT_FOUND, f"There is no method {method[:40]}.")
