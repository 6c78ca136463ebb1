"""The day and time of a send that begins later, as forms and pages have them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from tumira.core.days import local_time
from tumira.core.errors import FieldError
from tumira.core.ids import SCHEDULE, ScheduleId, read_id, write_id
from tumira.core.translation import _, mark
from tumira.dashboard.session import CustomerSession
from tumira.html.form_body import FormBody
from tumira.html.forms import TYPED_MAX, ClockField, DayField, Form, TextField
from tumira.schedules import manage
from tumira.schedules import store as schedules
from tumira.schedules.store import Schedule
from tumira.schedules.times import LATEST, check_start, moment_of, name_zone, write_start

SCHEDULED: Final = "/dashboard/scheduled"
TOO_LATE: Final = mark("This send has begun or was cancelled, so nothing was changed.")
NO_SCHEDULE: Final = mark("This scheduled send does not exist. They are deleted after 90 days")


@dataclass(frozen=True, slots=True)
class Later:
    """When a draft shall be sent, as typed, and the schedule that it changes; all empty for now."""

    day: str = ""
    clock: str = ""
    schedule: str = ""

    @property
    def schedule_id(self) -> ScheduleId | None:
        schedule_id = read_id(SCHEDULE, self.schedule)
        return None if schedule_id is None else ScheduleId(schedule_id)

    @classmethod
    def of(cls, start_at: datetime, schedule_id: ScheduleId | None = None) -> "Later":
        local = local_time(start_at)
        schedule = "" if schedule_id is None else write_id(SCHEDULE, schedule_id)
        return cls(f"{local:%Y-%m-%d}", f"{local:%H:%M}", schedule)


NOW: Final = Later()


class LaterForm(Form):
    day = DayField(cut=TYPED_MAX)
    clock = ClockField(cut=TYPED_MAX)
    schedule = TextField(cut=TYPED_MAX)

    @property
    def later(self) -> Later:
        return Later(self.day.typed, self.clock.typed, self.schedule.data)

    @property
    def is_later(self) -> bool:
        return self.later != NOW

    def read_start(self, now: datetime) -> datetime:
        """Return when the send shall begin; raise a FieldError if that is missing, wrong or out of reach."""
        for name in ("day", "clock"):
            if name in self.faults:
                raise FieldError(name, self.faults[name])
        if self.day.data is None:
            raise FieldError("day", _("Choose a day."))
        if self.clock.data is None:
            raise FieldError("clock", _("Choose a time."))
        start_at = moment_of(self.day.data, self.clock.data)
        check_start(start_at, now)
        return start_at

    def find_start(self, now: datetime) -> datetime | None:
        """Return when the send shall begin, None for now; raise a FieldError as `read_start` does."""
        return self.read_start(now) if self.is_later else None

    def find_faults(self, now: datetime) -> Mapping[str, str]:
        """Say what is wrong with the time of a send; nothing if it is sent now."""
        try:
            self.find_start(now)
        except FieldError as error:
            return {error.field: str(error)}
        return {}


async def find_changed(session: CustomerSession, schedule_id: ScheduleId | None) -> Schedule | None:
    """Return the scheduled send that is changed; None if there is none."""
    if schedule_id is None:
        return None
    async with session.database.connection() as connection:
        return await schedules.find(connection, session.account_id, schedule_id)


async def find_held(session: CustomerSession, schedule_id: ScheduleId | None) -> Decimal:
    """Return what is held already for a scheduled send that is changed."""
    found = await find_changed(session, schedule_id)
    return Decimal(0) if found is None else found.held


def write_typed(later: Later) -> str:
    """Write a day and time that were typed and read, as in `20 Nov 2026, 08:00`."""
    form = LaterForm.parse(FormBody({"day": [later.day], "clock": [later.clock]}))
    if form.day.data is None or form.clock.data is None:
        return ""
    return write_start(moment_of(form.day.data, form.clock.data))


def path_of(schedule_id: ScheduleId) -> str:
    return f"{SCHEDULED}/{write_id(SCHEDULE, schedule_id)}"


async def describe_later(session: CustomerSession, later: Later = NOW) -> Mapping[str, Any]:
    """Return what `send_later.html.jinja` shows: what was typed, the zone, and the first and last day."""
    async with session.database.connection() as connection:
        zone = await manage.get_zone(connection, session.account_id)
    now = session.database.clock.now()
    return {
        "typed": later,
        "zone": name_zone(zone),
        "first": f"{local_time(now):%Y-%m-%d}",
        "last": f"{local_time(now + LATEST):%Y-%m-%d}",
    }
