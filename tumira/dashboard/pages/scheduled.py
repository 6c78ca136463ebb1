"""Scheduled sends: the list, each with its price and time, and how to change or cancel it."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core.errors import FieldError
from tumira.core.ids import SCHEDULE, UPLOAD, ScheduleId, write_id
from tumira.core.translation import _, mark
from tumira.dashboard.approving import DeclineForm
from tumira.dashboard.pages import compose
from tumira.dashboard.pages.results import UPLOADS
from tumira.dashboard.pages.upload import KEPT
from tumira.dashboard.send_later import (
    NO_SCHEDULE,
    SCHEDULED,
    TOO_LATE,
    Later,
    LaterForm,
    describe_later,
    path_of,
)
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.form_body import read_fields
from tumira.html.forms import Choice, Faults, Form, read_path_id
from tumira.html.redirect import redirect
from tumira.postgres.connection import Connection
from tumira.pricing.phone_numbers import CHANNEL
from tumira.pricing.quote import Quote, ValidRequest, quote
from tumira.pricing.store import get_tariff
from tumira.schedules import manage, store
from tumira.schedules.hold_price import WAITING_MAX
from tumira.schedules.store import Schedule, ScheduleState
from tumira.schedules.times import ZONES, name_zone, write_start
from tumira.sending.compose import Draft
from tumira.sending.lifecycle import TEXT_KEPT
from tumira.uploads import store as uploads
from tumira.uploads.price import price_rest
from tumira.uploads.store import Upload

ENDED_SHOWN: Final = 20
NUMBERS_SHOWN: Final = 50

STATES: Final = {
    ScheduleState.WAITING: (mark("scheduled"), "queued"),
    ScheduleState.SENT: (mark("sent"), "completed"),
    ScheduleState.NOT_SENT: (mark("not sent"), "failed"),
    ScheduleState.CANCELLED: (mark("cancelled"), ""),
}
# What is said after a change, by the name under which the page comes back.
DONE: Final = {
    "scheduled": mark(
        "Scheduled. The money is held until then. You can change or cancel it until it begins."
    ),
    "time": mark("The time is changed."),
    "cancelled": mark("Cancelled. The money is back in your balance."),
    "approved": mark("Approved. It is sent at its time."),
    "declined": mark("Declined. Nothing is sent, and the money is back in the balance."),
    "zone": mark("Time zone saved."),
}


class ZoneForm(Form):
    zone = Choice(ZONES)


@dataclass(frozen=True, slots=True)
class ScheduleLine:
    """A scheduled send with the name of its file, if it is one."""

    schedule: Schedule
    file_name: str | None

    @property
    def path(self) -> str:
        return path_of(self.schedule.id)

    @property
    def start(self) -> str:
        return write_start(self.schedule.start_at)


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, SCHEDULED, show_list),
        private(services, SCHEDULED + "/time-zone", change_zone, "POST"),
        private(services, SCHEDULED + "/{id}", show),
        private(services, SCHEDULED + "/{id}/edit", edit),
        private(services, SCHEDULED + "/{id}/edit", edit_file, "POST"),
        private(services, SCHEDULED + "/{id}/time", change_time, "POST"),
        private(services, SCHEDULED + "/{id}/cancel", cancel, "POST"),
        private(services, SCHEDULED + "/{id}/approve", approve, "POST"),
        private(services, SCHEDULED + "/{id}/decline", decline, "POST"),
    ]


async def show_list(session: CustomerSession) -> Response:
    return await _list(session, {})


async def _list(session: CustomerSession, faults: Faults, status: int = 200) -> Response:
    async with session.database.connection() as connection:
        waiting = await list_lines(
            connection, await store.list_waiting(connection, session.account_id, WAITING_MAX)
        )
        ended = await list_lines(
            connection, await store.list_ended(connection, session.account_id, ENDED_SHOWN)
        )
        zone = await manage.get_zone(connection, session.account_id)
    return session.page(
        "scheduled.html.jinja",
        status,
        waiting=waiting,
        ended=ended,
        held=sum((line.schedule.held for line in waiting), Decimal(0)),
        zone=zone,
        zone_name=name_zone(zone),
        zones=[(one, _(name)) for one, name in ZONES.items()],
        states=STATES,
        faults=faults,
        done=DONE.get(session.request.query_params.get("done", "")),
    )


async def list_lines(connection: Connection, schedules: Sequence[Schedule]) -> Sequence[ScheduleLine]:
    """Add the names of files to scheduled sends."""
    lines = []
    for one in schedules:
        upload = None
        if one.upload_id is not None:
            upload = await uploads.find(connection, one.account_id, one.upload_id)
        name = None if one.upload_id is None else upload.file_name if upload else _("File")
        lines.append(ScheduleLine(one, name))
    return lines


async def change_zone(session: CustomerSession) -> Response:
    form = await ZoneForm.read(session.request)
    if form.faults:
        return await _list(session, form.faults, 422)
    await manage.change_zone(session.database, session.account_id, form.zone.data, session.actor)
    return redirect(f"{SCHEDULED}?done=zone")


def _id(session: CustomerSession) -> ScheduleId:
    return ScheduleId(read_path_id(session.request, SCHEDULE, _(NO_SCHEDULE)))


async def _find(connection: Connection, session: CustomerSession) -> Schedule:
    found = await store.find(connection, session.account_id, _id(session))
    if found is None:
        raise HTTPException(404, _(NO_SCHEDULE))
    return found


async def show(session: CustomerSession) -> Response:
    return await _page(session, {})


async def _page(
    session: CustomerSession, faults: Faults, status: int = 200, typed: Later | None = None
) -> Response:
    async with session.database.connection() as connection:
        schedule = await _find(connection, session)
        numbers = await store.list_recipients(connection, session.account_id, schedule.id)
        upload = None
        if schedule.upload_id is not None:
            upload = await uploads.find(connection, session.account_id, schedule.upload_id)
        price_now = await _price(connection, schedule, numbers, upload) if schedule.is_waiting else None
    return session.page(
        "schedule.html.jinja",
        status,
        schedule=schedule,
        is_own=schedule.asked_by == session.customer.person_id,
        here_path=path_of(schedule.id),
        start=write_start(schedule.start_at),
        state=STATES[schedule.state],
        numbers=numbers,
        numbers_shown=NUMBERS_SHOWN,
        upload=upload,
        upload_path=upload and f"/dashboard/upload/{write_id(UPLOAD, upload.id)}",
        price_now=price_now,
        later=await describe_later(session, typed or Later.of(schedule.start_at, schedule.id)),
        faults=faults,
        text_days=TEXT_KEPT.days,
        done=DONE.get(session.request.query_params.get("done", "")),
    )


async def _price(
    connection: Connection, schedule: Schedule, numbers: Sequence[str], upload: Upload | None
) -> Decimal | None:
    """Return what a waiting send would cost now; None if that is not known."""
    if schedule.upload_id is not None:
        return None if upload is None else (await price_rest(connection, upload)).total_cost
    request = ValidRequest(CHANNEL, numbers, schedule.message, schedule.reference, dry_run=True)
    priced = quote(await get_tariff(connection), request)
    return priced.total_cost if isinstance(priced, Quote) else None


async def edit(session: CustomerSession) -> Response:
    """Show a scheduled message in the form in which it was written."""
    async with session.database.connection() as connection:
        schedule = await _find(connection, session)
        numbers = await store.list_recipients(connection, session.account_id, schedule.id)
    if not schedule.is_waiting or schedule.upload_id is not None:
        return redirect(path_of(schedule.id))
    draft = Draft("\n".join(numbers), schedule.message, schedule.reference or "")
    return await compose.show_draft(session, draft, later=Later.of(schedule.start_at, schedule.id))


async def edit_file(session: CustomerSession) -> Response:
    """Show a scheduled file in the form in which it was uploaded."""
    await read_fields(session.request)
    schedule_id = _id(session)
    async with session.database.connection() as connection:
        schedule = await _find(connection, session)
    if not schedule.is_waiting or schedule.upload_id is None:
        return await _page(session, {"": _(TOO_LATE)}, 409)
    kept_id = await manage.edit_file(session.database, session.account_id, schedule_id)
    if kept_id is None:
        return redirect(f"{UPLOADS}?schedule={write_id(SCHEDULE, schedule_id)}")
    return redirect(f"{UPLOADS}?file={write_id(KEPT, kept_id)}")


async def change_time(session: CustomerSession) -> Response:
    form = await LaterForm.read(session.request)
    schedule_id = _id(session)
    try:
        start_at = form.read_start(session.database.clock.now())
        is_changed = await manage.change_start(
            session.database, session.account_id, schedule_id, start_at, session.actor
        )
    except FieldError as error:
        return await _page(session, {error.field: str(error)}, 422, form.later)
    return await _changed(session, schedule_id, "time", is_changed=is_changed)


async def cancel(session: CustomerSession) -> Response:
    await read_fields(session.request)
    schedule_id = _id(session)
    is_changed = await manage.cancel(session.database, session.account_id, schedule_id, session.actor)
    return await _changed(session, schedule_id, "cancelled", is_changed=is_changed)


async def approve(session: CustomerSession) -> Response:
    """Let a send begin that another person asked for."""
    await read_fields(session.request)
    schedule_id = _id(session)
    is_changed = await manage.approve(session.database, session.account_id, schedule_id, session.actor)
    return await _changed(session, schedule_id, "approved", is_changed=is_changed)


async def decline(session: CustomerSession) -> Response:
    """End a send that another person asked for, and say why."""
    form = await DeclineForm.read(session.request)
    if form.faults:
        return await _page(session, form.faults, 422)
    schedule_id = _id(session)
    is_changed = await manage.decline(
        session.database, session.account_id, schedule_id, form.note.data, session.actor
    )
    return await _changed(session, schedule_id, "declined", is_changed=is_changed)


async def _changed(
    session: CustomerSession, schedule_id: ScheduleId, done: str, *, is_changed: bool
) -> Response:
    if is_changed:
        return redirect(f"{path_of(schedule_id)}?done={done}")
    return await _page(session, {"": _(TOO_LATE)}, 409)
