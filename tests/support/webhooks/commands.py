"""The `tumira webhook` commands for tests."""

from datetime import UTC, datetime
from typing import Any, Final

from tests.support.processes.programs import Cli
from tests.support.processes.service import Caller
from tumira.core.ids import EVENT, new_id, write_id
from tumira.events import NewEvent, record_events
from tumira.postgres.pool import Database

# An address, so that no name is resolved.
URL: Final = "http://127.0.0.1:9/tumira"
KEYS: Final = [
    "endpoint_id",
    "account_id",
    "url",
    "events",
    "description",
    "state",
    "sequence",
    "waiting",
    "failures",
    "failing_since",
    "warning",
    "last_delivery_at",
    "created_at",
]
ATTEMPT_KEYS: Final = [
    "at",
    "endpoint_id",
    "event_id",
    "sequence",
    "type",
    "attempt",
    "delivered",
    "status",
    "duration_ms",
    "next_at",
    "answer",
]
LOW: Final = '{"balance":"0.9600","threshold":"1.0000","currency":"USD"}'
ATTEMPT_COLUMNS: Final = "at event id type attempt status duration ms answer"
UNKNOWN_EVENT: Final = write_id(EVENT, new_id(1))
WARNING: Final = (
    "TUMIRA_WEBHOOKS_ALLOW_PRIVATE=1: webhooks may go to private addresses and without TLS. "
    "Do not let strangers have accounts here."
)


class Allowing(Cli):
    """The command line with private addresses allowed."""

    def __init__(self, database_url: str) -> None:
        super().__init__(database_url, webhooks_allow_private=1)


def add(cli: Cli, caller: Caller, url: str = URL, *words: str) -> Any:
    return cli.json("webhook", "add", "--account", caller.account_id, "--url", url, *words)


def listed(cli: Cli, caller: Caller) -> Any:
    return cli.json("webhook", "list", "--account", caller.account_id)


async def add_events(url: str, caller: Caller, count: int) -> None:
    database = Database(url, connections_max=1)
    async with database.transaction() as connection:
        new = [NewEvent(caller.id, "balance.low", data=LOW)] * count
        await record_events(connection, new, datetime.now(UTC))
    await database.close()
