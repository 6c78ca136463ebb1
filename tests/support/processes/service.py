"""A running web process, and callers of it."""

import asyncio
import json
import signal
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

import asyncpg
import httpx

from tests.support.postgres.databases import complete, execute
from tests.support.processes.forked_commands import start_part
from tests.support.processes.ports import free_port
from tumira.accounts.api_keys import Scope
from tumira.accounts.open_account import open_account
from tumira.core.ids import ACCOUNT, KEY, AccountId, write_id
from tumira.identity.manage_keys import create_key
from tumira.postgres.pool import Database

START_S: Final = 60

# httpx makes a TLS context for every call unless it is given one, which takes 80 ms; nothing here speaks TLS.
NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_phones: Final = iter(range(10_000, 100_000))


class Running(Protocol):
    """A process that was started, in whichever way."""

    @property
    def pid(self) -> int:
        """Return its number."""

    @property
    def returncode(self) -> int | None:
        """Return how it ended, as far as is known."""

    def poll(self) -> int | None:
        """Return how it ended, or None while it runs."""

    def wait(self, timeout: float = ...) -> int:
        """Wait for its end."""

    def send_signal(self, sig: int, /) -> None:
        """Send it a signal."""


@dataclass(frozen=True, slots=True)
class Caller:
    """An account with a key."""

    id: AccountId
    account_id: str
    key_id: str
    key: str


@dataclass(frozen=True, slots=True)
class Service:
    """A web process on a database of its own."""

    base: str
    url: str
    process: Running

    def open_account(
        self, balance: str = "100", rate: int = 600, scopes: Sequence[Scope] = tuple(Scope)
    ) -> Caller:
        return complete(new_caller(self.url, balance, rate, scopes))

    def call(
        self,
        caller: Caller | str | None,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> httpx.Response:
        key = caller.key if isinstance(caller, Caller) else caller
        authorization = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.request(
            method,
            f"{self.base}/api/v1{path}",
            headers={**authorization, **(headers or {})},
            timeout=30,
            trust_env=False,
            verify=NO_TLS,
            **options,
        )

    def send(self, caller: Caller, headers: Mapping[str, str] | None = None, **fields: Any) -> httpx.Response:
        """Post a send, with something sensible in each field that is not given."""
        body = {"channel": "sms", "to": "+263771200001", "body": "Your code is 493817."} | fields
        # Not httpx's own encoder: it cannot write lone surrogates.
        return self.call(
            caller,
            "POST",
            "/messages",
            content=json.dumps(body),
            headers={"Content-Type": "application/json", **(headers or {})},
        )

    def run(
        self,
        action: Callable[Concatenate[Database, Parameters], Awaitable[Result]],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Carry out an action on the service's database, as another process would."""
        return run_on(self.url, action, *args, **kwargs)

    def sql(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        return execute(self.url, statement, *arguments)

    def balance(self, caller: Caller) -> Decimal:
        balance = self.sql("SELECT balance FROM accounts WHERE id = $1", caller.id)[0][0]
        assert isinstance(balance, Decimal)
        return balance

    @contextmanager
    def holding(self, statement: str, *arguments: Any) -> Iterator[None]:
        """Hold the locks that a statement takes, in a transaction that is undone at the end."""
        with asyncio.Runner() as runner:
            connection = runner.run(asyncpg.connect(self.url))
            try:
                # Repeatable, so that what it has seen stays in the way of cleaning up.
                runner.run(connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ"))
                runner.run(connection.fetch(statement, *arguments))
                yield
                runner.run(connection.execute("ROLLBACK"))
            finally:
                runner.run(connection.close())


async def _run(
    url: str,
    action: Callable[Concatenate[Database, Parameters], Awaitable[Result]],
    *args: Parameters.args,
    **kwargs: Parameters.kwargs,
) -> Result:
    database = Database(url, connections_max=1)
    try:
        return await action(database, *args, **kwargs)
    finally:
        await database.close()


def run_on(
    url: str,
    action: Callable[Concatenate[Database, Parameters], Awaitable[Result]],
    *args: Parameters.args,
    **kwargs: Parameters.kwargs,
) -> Result:
    """Carry out an action on a database of its own pool."""
    return complete(_run(url, action, *args, **kwargs))


async def new_caller(
    url: str, balance: str = "100", rate: int = 600, scopes: Sequence[Scope] = tuple(Scope)
) -> Caller:
    database = Database(url, connections_max=1)
    try:
        account_id = await new_account(database, balance, rate)
        key_id, key = await create_key(database, account_id, "test", scopes)
    finally:
        await database.close()
    return Caller(account_id, write_id(ACCOUNT, account_id), write_id(KEY, key_id), key)


async def new_account(database: Database, balance: str = "0", rate: int = 600) -> AccountId:
    opened = await open_account(
        database,
        phone=f"+2637712{next(_phones)}",
        name="Test",
        business="Test",
        balance=Decimal(balance),
        rate_limit=rate,
        actor="test",
    )
    return opened.id


@contextmanager
def run_web(url: str, *, changes: Sequence[str] = (), **environment: str) -> Iterator[Service]:
    """Run `tumira web` on a database; `changes` are functions of `changes.py` that it calls first."""
    port = free_port()
    process = start_part(
        "web",
        {
            "TUMIRA_DATABASE_URL": url,
            "TUMIRA_PORT": str(port),
            "TUMIRA_LOG_LEVEL": "error",
            **environment,
        },
        changes=changes,
    )
    try:
        base = f"http://127.0.0.1:{port}"
        wait_until_ready(base, process)
        yield Service(base, url, process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def wait_until_ready(base: str, process: Running) -> None:
    """Wait for `/readyz`, as long as the process lives."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the process ended with {process.returncode}"
        try:
            if httpx.get(f"{base}/readyz", trust_env=False, verify=NO_TLS).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError("the service did not become ready")


def send_request(key: str, *, keep: bool) -> bytes:
    body = json.dumps({"channel": "sms", "to": "+263771200001", "body": "Your code is 493817."})
    lines = [
        "POST /api/v1/messages HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {key}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"Connection: {'keep-alive' if keep else 'close'}",
    ]
    return "\r\n".join([*lines, "", body]).encode()
