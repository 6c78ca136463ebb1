"""Messages of all accounts: search by number, message or batch, and one message with its timeline.

Whole numbers are not shown, except the number that the operator typed, and texts never.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.accounts import store as accounts
from tumira.accounts.store import SYSTEM
from tumira.console.session import OperatorSession, Services, page
from tumira.core.errors import OperatorError
from tumira.core.ids import BATCH, MESSAGE, BatchId, MessageId, read_id, write_id
from tumira.core.translation import _, mark
from tumira.delivery.place_receipts import mask
from tumira.delivery.store import found_messages
from tumira.delivery.store import timeline as timelines
from tumira.delivery.store.found_messages import FoundMessage
from tumira.delivery.store.timeline import TimelineEntry
from tumira.html import paging
from tumira.html.forms import FormRefused, ListFilterForm, TextField, read_path_id, read_query_id
from tumira.html.guards import or_404
from tumira.html.redirect import redirect
from tumira.operations import search_messages
from tumira.pricing.networks import NAMES
from tumira.pricing.phone_numbers import NUMBERS_KEPT, read_phone, write_phone
from tumira.pricing.store import get_tariff
from tumira.sending import batches
from tumira.sending.batches import HIGHEST_ID
from tumira.sending.lifecycle import FAILURE_REASONS, MESSAGE_STATUSES

MESSAGES: Final = "/operator/messages"
BATCHES: Final = MESSAGES + "/batches"
PAGE: Final = 25
QUERY_MAX: Final = 100

NO_MESSAGE: Final = mark("This message does not exist or is no longer kept")
NO_BATCH: Final = mark("This batch does not exist or is no longer kept")

# The entries of a timeline.
EVENTS: Final = {
    "queued": mark("Accepted"),
    "claimed": mark("Taken from the queue"),
    "submitted": mark("Submitted to the carrier"),
    "answered": mark("Accepted by the carrier"),
    "sent": mark("The carrier has all segments"),
    "retry": mark("Refused for now"),
    "doubt": mark("In doubt: the carrier did not answer"),
    "resend": mark("Sent again after a doubt"),
    "hold": mark("Not sent again, so that it cannot arrive twice"),
    "receipt": mark("Receipt"),
    "late_receipt": mark("Late receipt without effect"),
    "delivered": mark("Delivered"),
    "undelivered": mark("Undelivered"),
    "expired": mark("Expired"),
    "unconfirmed": mark("Unconfirmed"),
    "failed": mark("Failed"),
    "refunded": mark("Refunded"),
    "waiting": mark("Waiting"),
}
# Their details may quote the text.
_RECEIPTS: Final = frozenset({"receipt", "late_receipt"})


class MessageSearchForm(ListFilterForm):
    q = TextField(cut=QUERY_MAX)


def routes(services: Services) -> Sequence[Route]:
    return [
        *page(services, MESSAGES, show_messages),
        *page(services, MESSAGES + "/{id}", show_message),
        *page(services, BATCHES + "/{id}", show_batch),
    ]


async def show_messages(session: OperatorSession) -> Response:
    asked = MessageSearchForm.parse_query(session.request)
    for prefix, path in ((MESSAGE, MESSAGES), (BATCH, BATCHES)):
        if read_id(prefix, asked.q.data) is not None:
            return redirect(f"{path}/{asked.q.data}")
    before = read_query_id(session.request, MESSAGE, "before") or HIGHEST_ID
    found: Sequence[FoundMessage] = []
    numbers = await _read_numbers(session, asked.q.data) if asked.q.data else []
    try:
        if numbers:
            found = await search_messages.search_numbers(
                session.database, session.actor, numbers, before, PAGE + 1
            )
        elif asked.q.data:
            asked.faults["q"] = _("Enter a phone number, like 077 120 0001 or +263 77 120 0001, or an ID.")
    except OperatorError as error:
        asked.faults["q"] = str(error)
    if asked.faults:
        session = replace(session, refused=FormRefused(asked.faults))
    shown, last = paging.cut(found, PAGE)
    return session.page(
        "messages.html.jinja",
        query=asked.q.data,
        numbers=[write_phone(number) for number in numbers],
        found=shown,
        is_first=before == HIGHEST_ID,
        older=None if last is None else asked.path(MESSAGES, before=write_id(MESSAGE, last.id)),
        newest=asked.path(MESSAGES),
        days=NUMBERS_KEPT.days,
        **_words(),
    )


async def _read_numbers(session: OperatorSession, text: str) -> Sequence[str]:
    """Return the numbers that a text may mean: without a country code, one of each country."""
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
    found = [read_phone(tariff, text, one.country) for one in tariff.destinations]
    return sorted({number for number in found if number is not None})


async def show_batch(session: OperatorSession) -> Response:
    batch_id = BatchId(read_path_id(session.request, BATCH, _(NO_BATCH)))
    after = read_query_id(session.request, MESSAGE, "after")
    async with session.database.connection() as connection:
        account_id = or_404(await found_messages.find_owner(connection, batch_id), _(NO_BATCH))
        batch = or_404(await batches.find(connection, account_id, batch_id), _(NO_BATCH))
        account = or_404(await accounts.find(connection, account_id), _(NO_BATCH))
        counts = await batches.count_messages(connection, account_id, batch_id)
        listed, has_more = await batches.list_messages(
            connection, account_id, batch_id, PAGE, after=None if after is None else MessageId(after)
        )
        found = await found_messages.list_found(connection, [one.id for one in listed])
    path = f"{BATCHES}/{write_id(BATCH, batch_id)}"
    return session.page(
        "batch.html.jinja",
        batch=batch,
        account=account,
        counts=counts,
        found=found,
        first=None if after is None else path,
        following=f"{path}?after={write_id(MESSAGE, found[-1].id)}" if has_more else None,
        **_words(),
    )


async def show_message(session: OperatorSession) -> Response:
    message_id = MessageId(read_path_id(session.request, MESSAGE, _(NO_MESSAGE)))
    async with session.database.connection() as connection:
        message = or_404(await timelines.read(connection, message_id), _(NO_MESSAGE))
        account = or_404(await accounts.find(connection, message.account_id), _(NO_MESSAGE))
        batch = await batches.find(connection, message.account_id, message.batch_id)
        tariff = await get_tariff(connection)
    return session.page(
        "message.html.jinja",
        message=message,
        account=account,
        country=tariff.names.get(message.country, message.country),
        carriers=list(dict.fromkeys(entry.carrier for entry in message.entries if entry.carrier)),
        is_in_doubt=message.status == "sending" and any(_is_doubt(entry) for entry in message.entries),
        is_near_line=batch is not None and batch.near_line,
        is_refunded=any(entry.event == "refunded" for entry in message.entries),
        events=EVENTS,
        details=_write_details,
        **_words(),
    )


def _is_doubt(entry: TimelineEntry) -> bool:
    return entry.event == "waiting" and entry.detail is not None and "in doubt" in entry.detail


def _write_details(entry: TimelineEntry) -> str:
    detail = None if entry.event in _RECEIPTS else entry.detail
    return " · ".join(filter(None, (entry.carrier, entry.sender, entry.state, entry.error, detail)))


def _words() -> Mapping[str, Any]:
    """Return what these pages write messages with."""
    return {
        "mask": mask,
        "reasons": FAILURE_REASONS,
        "statuses": MESSAGE_STATUSES,
        "networks": NAMES,
        "own": SYSTEM,
    }
