"""When a scheduled send may begin, and in which time zone its owner thinks."""

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import Final

from tumira.core.days import local_midnight, local_time
from tumira.core.errors import FieldError
from tumira.core.translation import _, mark

# Less could be over before a worker looks.
SOONEST: Final = timedelta(minutes=5)
LATEST: Final = timedelta(days=90)
# After an outage a send begins late by this much at most.
LATE_MAX: Final = timedelta(hours=6)

HARARE: Final = "Africa/Harare"
JOHANNESBURG: Final = "Africa/Johannesburg"
# Both keep the same time all year (core/days.py).
ZONES: Final[Mapping[str, str]] = {
    HARARE: mark("Harare time"),
    JOHANNESBURG: mark("Johannesburg time"),
}
_BY_COUNTRY: Final = {"ZA": JOHANNESBURG}


def zone_of(chosen: str | None, country: str | None) -> str:
    """Return the time zone of an account: its own choice, or that of the country of its number."""
    return chosen or _BY_COUNTRY.get(country or "", HARARE)


def name_zone(zone: str) -> str:
    """Write a time zone for a page, as in `Harare time (UTC+02:00)`."""
    return f"{_(ZONES[zone])} (UTC+02:00)"


def moment_of(day: date, clock: time) -> datetime:
    """Return the moment of a local day and time."""
    return local_midnight(day) + timedelta(hours=clock.hour, minutes=clock.minute)


def write_start(at: datetime) -> str:
    """Write when a send begins, as in `20 Nov 2026, 08:00`."""
    return f"{local_time(at):%-d %b %Y, %H:%M}"


def check_start(at: datetime, now: datetime) -> None:
    """Refuse a time that is too soon or too far away; raise a FieldError."""
    if at < now + SOONEST:
        soonest = write_start(now + SOONEST + timedelta(minutes=1))
        raise FieldError(
            "clock",
            _("Choose a time at least 5 minutes from now, such as {soonest}.").format(soonest=soonest),
        )
    if at > now + LATEST:
        latest = f"{local_time(now + LATEST):%-d %b %Y}"
        raise FieldError("day", _("Choose a day up to {latest}, 90 days from now.").format(latest=latest))


def is_too_late(start_at: datetime, now: datetime) -> bool:
    """Tell whether a send that an outage kept from beginning is not wanted any more."""
    return now - start_at > LATE_MAX
