"""The bar chart of a month of messages, and delivery rates."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from tumira.core.translation import _, mark, ngettext
from tumira.html.plot import Plot, Series, Slot, draw_bars
from tumira.sending.daily_totals import Day

DAYS: Final = 30
KINDS: Final = {
    "delivered": mark("Delivered"),
    "failed": mark("Failed"),
    "unconfirmed": mark("Unconfirmed"),
    "waiting": mark("In progress"),
}

_LABEL_EVERY: Final = 10
_PER_MILLE: Final = 1000


@dataclass(frozen=True, slots=True)
class DayTotals:
    """The outcomes of the messages that were accepted on one day, to all countries together.

    `failed` are all that certainly did not arrive: undelivered, expired and failed.
    """

    day: date
    delivered: int = 0
    failed: int = 0
    unconfirmed: int = 0
    waiting: int = 0

    @property
    def total(self) -> int:
        return self.delivered + self.failed + self.unconfirmed + self.waiting


def add_up(ended: Iterable[Day], waiting: Iterable[tuple[date, int]]) -> Sequence[DayTotals]:
    """Add up ended and waiting messages of all countries by day."""
    sums: dict[date, dict[str, int]] = {}
    for one in ended:
        figures = sums.setdefault(one.day, dict.fromkeys(KINDS, 0))
        figures["delivered"] += one.delivered
        figures["failed"] += one.lost
        figures["unconfirmed"] += one.unconfirmed
    for day, count in waiting:
        sums.setdefault(day, dict.fromkeys(KINDS, 0))["waiting"] += count
    return [DayTotals(day, **sums[day]) for day in sorted(sums)]


def of_day(days: Sequence[DayTotals], day: date) -> DayTotals:
    return next((one for one in days if one.day == day), DayTotals(day))


def bars(days: Sequence[DayTotals], today: date) -> Plot:
    """Draw the thirty days that end today; a day that is not given had no messages, others are left out."""
    totals = [of_day(days, today - timedelta(days=back)) for back in range(DAYS - 1, -1, -1)]
    return draw_bars(
        _("Day"),
        [
            Slot(_name(one.day), _name(one.day) if (DAYS - 1 - place) % _LABEL_EVERY == 0 else "")
            for place, one in enumerate(totals)
        ],
        [Series(kind, _(name), [getattr(one, kind) for one in totals]) for kind, name in KINDS.items()],
        _summary(totals),
        _("Messages"),
    )


def _summary(totals: Sequence[DayTotals]) -> str:
    total = sum(one.total for one in totals)
    if total == 0:
        return _("No messages in the last {days} days.").format(days=DAYS)
    busiest = max(totals, key=lambda one: one.total)
    text = ngettext(
        "{count} message in the last {days} days. Busiest day: {day}, with {most}.",
        "{count} messages in the last {days} days. Busiest day: {day}, with {most}.",
        total,
    )
    return text.format(count=f"{total:,}", days=DAYS, day=_name(busiest.day), most=f"{busiest.total:,}")


def rate(delivered: int, ended: int) -> str:
    """Write which share of the messages that have ended was delivered, like `98.6%`.

    It says 0% and 100% only where that is exactly so, and a dash where nothing has ended.
    """
    assert 0 <= delivered <= ended
    if ended == 0:
        return "\N{EN DASH}"
    if delivered in {0, ended}:
        return "0%" if delivered == 0 else "100%"
    per_mille = (2 * _PER_MILLE * delivered + ended) // (2 * ended)
    per_mille = min(max(per_mille, 1), _PER_MILLE - 1)
    return f"{per_mille // 10}.{per_mille % 10}%"


def _name(day: date) -> str:
    return f"{day.day} {day:%b}"
