"""Commands that show the history of a message."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import click

from tumira.cli.output import json_option, show, show_all, with_database
from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.core.ids import ACCOUNT, BATCH, MESSAGE, MessageId, read_id, write_id
from tumira.delivery.store import timeline as timelines
from tumira.delivery.store.timeline import Timeline, TimelineEntry
from tumira.postgres.pool import Database

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


class MessageIdType(click.ParamType[MessageId]):
    name = "msg_…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> MessageId:
        identifier = read_id(MESSAGE, value)
        if identifier is None:
            self.fail(f"{value!r} is not a message's id; it looks like msg_06dkxr2j0e3z0….", param, ctx)
        return MessageId(identifier)


@click.group()
def message() -> None:
    """Follow a message."""


@message.command("show")
@click.argument("message_id", type=MessageIdType())
@json_option
@with_database
async def message_show(database: Database, *, message_id: MessageId, as_json: bool) -> None:
    """Show a message, without its text, and all that happened to it."""
    async with database.connection() as connection:
        timeline = await timelines.read(connection, message_id)
    if timeline is None:
        raise OperatorError(
            "There is no such message; look it up in its batch, and mind that old weeks are dropped."
        )
    if as_json:
        entries = [_entry(entry) for entry in timeline.entries]
        show({**_head(timeline), "timeline": entries}, as_json=True)
        return
    head = _head(timeline)
    show({**head, "cost": f"{head['cost']} USD", "reference": timeline.reference}, as_json=False)
    click.echo()
    show_all([_row(timeline, entry) for entry in timeline.entries], as_json=False, empty="")


def _head(timeline: Timeline) -> Mapping[str, Any]:
    return {
        "message_id": write_id(MESSAGE, timeline.message_id),
        "batch_id": write_id(BATCH, timeline.batch_id),
        "account_id": write_id(ACCOUNT, timeline.account_id),
        "to": timeline.recipient,
        "country": timeline.country,
        "status": timeline.status,
        "failure_reason": timeline.failure_reason,
        "segments": timeline.segments,
        "cost": money.write(timeline.cost),
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
    details = []
    if entry.part is not None and timeline.segments > 1:
        details.append(f"part {entry.part} of {timeline.segments}")
    if entry.attempt:
        details.append(f"resend {entry.attempt}")
    if entry.carrier is not None:
        details.append(entry.carrier)
    if entry.state is not None:
        details.append(entry.state)
    if entry.error is not None:
        details.append(f"error {entry.error}")
    if entry.detail is not None:
        details.append(entry.detail)
    return details


def _time(at: datetime | None) -> str:
    if at is None:
        return "-"
    moment = at.astimezone(UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"
