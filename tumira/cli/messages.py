"""Commands that show the history of a message."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import click

from tumira.cli.output import IdType, database_command, show, show_all, wants_json
from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.core.ids import MESSAGE, MessageId
from tumira.delivery.store import timeline as timelines
from tumira.delivery.store.timeline import Timeline, TimelineEntry
from tumira.postgres.pool import Database

MESSAGE_ID: Final = IdType(MESSAGE, "a message", "it looks like msg_06dkxr2j0e3z0….")
# Labels of the events in a message's history; a final status is its own label.
HAPPENED: Final[Mapping[str, str]] = {
    "queued": "accepted and queued",
    "claimed": "claimed by a worker",
    "submitted": "handed to the carrier",
    "sent": "all of it handed over",
    "answered": "taken by the carrier",
    "receipt": "receipt",
    "retry": "put off, to be tried again",
    "doubt": "in doubt: no answer came",
    "resend": "to be sent again after a doubt",
    "hold": "held after a doubt, not sent again",
    "late_receipt": "receipt, too late to count",
    "refunded": "refunded",
    "waiting": "waits",
}


@click.group()
def message() -> None:
    """Follow a message."""


@message.command("show")
@click.argument("message_id", type=MESSAGE_ID)
@database_command
async def message_show(database: Database, *, message_id: MessageId) -> None:
    """Show a message, without its text, and all that happened to it."""
    async with database.connection() as connection:
        timeline = await timelines.read(connection, message_id)
    if timeline is None:
        raise OperatorError(
            "There is no such message; look it up in its batch, and mind that old weeks are dropped."
        )
    if wants_json():
        entries = [_entry(entry) for entry in timeline.entries]
        show({**_head(timeline), "timeline": entries})
        return
    cost = f"{money.write(timeline.cost)} USD"
    more = {"cost": cost, "deliver_by": timeline.expires_at, "reference": timeline.reference}
    show({**_head(timeline), **more})
    click.echo()
    show_all([_row(timeline, entry) for entry in timeline.entries])


def _head(timeline: Timeline) -> Mapping[str, Any]:
    return {
        "message_id": timeline.message_id,
        "batch_id": timeline.batch_id,
        "account_id": timeline.account_id,
        "to": timeline.recipient,
        "country": timeline.country,
        "network": timeline.network,
        "status": timeline.status,
        "failure_reason": timeline.failure_reason,
        "segments": timeline.segments,
        "cost": timeline.cost,
    }


def _entry(entry: TimelineEntry) -> Mapping[str, Any]:
    """Write an entry for programs: these three fields always, and the others when set."""
    always = {"at": entry.at, "event": entry.event, "detail": entry.detail}
    return always | {name: item for name, item in asdict(entry).items() if item is not None}


def _row(timeline: Timeline, entry: TimelineEntry) -> Mapping[str, str]:
    return {
        "time_(UTC)": _time(entry.at),
        "what": HAPPENED.get(entry.event, entry.event),
        "detail": ", ".join(_details(timeline, entry)),
    }


def _details(timeline: Timeline, entry: TimelineEntry) -> list[str]:
    is_part = bool(entry.part) and timeline.segments > 1
    details = (
        f"part {entry.part} of {timeline.segments}" if is_part else None,
        f"resend {entry.attempt}" if entry.attempt else None,
        entry.carrier,
        entry.state,
        None if entry.error is None else f"error {entry.error}",
        entry.detail,
        None if entry.sender is None else f"from {entry.sender}",
    )
    return [detail for detail in details if detail is not None]


def _time(at: datetime | None) -> str:
    if at is None:
        return "-"
    moment = at.astimezone(UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"
