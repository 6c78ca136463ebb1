"""What a web node saw of a request, shown to the doctor alone.

The doctor sends a random number for which it holds a lock in the database: a request with such a number comes
from a program that has the database, and a node that knows the lock has the same database.
"""

import os
import re
import secrets
import socket
from collections.abc import Mapping
from typing import Any, Final

import asyncpg
from msgspec import Struct

from tumira.core.database_errors import UNAVAILABLE
from tumira.operations.doctor.store import is_held
from tumira.postgres.pool import Database

HEADER: Final = "tumira-doctor"
# The numbers of other locks are far below.
_TOKEN: Final = re.compile(r"[4-7][0-9a-f]{15}")
_TOKEN_LOW: Final = 1 << 62


class SeenRequest(Struct, frozen=True):
    """A request as a node saw it, after the headers of trusted proxies were applied."""

    node: str
    client: str
    # That of the connection; 0 where the client was taken from a header.
    port: int
    scheme: str
    forwarded_for: str | None


def new_token() -> int:
    return _TOKEN_LOW + secrets.randbelow(_TOKEN_LOW)


def write_token(token: int) -> str:
    return f"{token:016x}"


async def describe_request(database: Database, scope: Mapping[str, Any]) -> SeenRequest | None:
    """Return what this node saw of a request with a genuine token, or None."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    token = headers.get(HEADER, "")
    if not _TOKEN.fullmatch(token):
        return None
    try:
        async with database.connection() as connection:
            if not await is_held(connection, int(token, 16)):
                return None
    except (*UNAVAILABLE, asyncpg.PostgresError):
        return None
    client, port = scope["client"] or ("", 0)
    forwarded = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    return SeenRequest(
        node=f"{socket.gethostname()}:{os.getpid()}",
        client=client,
        port=port,
        scheme=scope["scheme"],
        forwarded_for=", ".join(forwarded) or None,
    )
