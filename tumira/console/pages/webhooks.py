"""Customers' webhook endpoints that fail, lag or are disabled, and how an operator repairs them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.console.session import OperatorSession, Services, page
from tumira.core.ids import ENDPOINT, EndpointId, first_id, read_id, write_id
from tumira.core.translation import _, mark, ngettext
from tumira.html import paging
from tumira.html.forms import Choice, Flag, Form, FormRefused, read_path_id
from tumira.html.redirect import redirect
from tumira.webhooks import endpoints
from tumira.webhooks.endpoints import (
    BEHIND_MIN,
    FIRST,
    RETRIES_MAX,
    ProblemKind,
    UnhealthyCursor,
)
from tumira.webhooks.health import DISABLE_AFTER
from tumira.webhooks.manage import By, EndpointError, NoEndpointError, host_of, resume_endpoint
from tumira.webhooks.replay import FAILED_MAX, REPLAYABLE, replay_failed

WEBHOOKS: Final = "/operator/webhooks"
PAGE: Final = 25

DONE: Final = {
    "enabled": mark("The endpoint is active. Waiting events are being sent."),
    "enabled-from-now": mark("The endpoint is active. It gets new events only."),
    "nothing": mark("No events failed in that time, so none are resent."),
}
TITLES: Final[Mapping[ProblemKind, tuple[str, str]]] = {
    ProblemKind.FAILING: (mark("Failing"), "failed"),
    ProblemKind.BEHIND: (mark("Far behind"), "unconfirmed"),
    ProblemKind.DISABLED: (mark("Disabled"), "expired"),
}
PERIODS: Final[Mapping[str, timedelta]] = {
    mark("1 hour"): timedelta(hours=1),
    mark("1 day"): timedelta(days=1),
    mark("3 days"): timedelta(days=3),
    mark("30 days"): REPLAYABLE,
}

_GONE: Final = mark("This endpoint does not exist")
# Kind, microseconds since 1970, and the endpoint.
_CURSOR: Final = re.compile(r"([0-2])\.([0-9]{1,16})\.(end_[0-9a-z]{26})")
_COUNT: Final = re.compile("[0-9]{1,6}")


class EnableForm(Form):
    from_now = Flag(value="yes")


class ReplayPeriodForm(Form):
    period = Choice(PERIODS, mark("Choose a period."))


def routes(services: Services) -> Sequence[Route]:
    return page(services, WEBHOOKS, show_endpoints, {"/{id}/enable": enable, "/{id}/replay": replay})


async def show_endpoints(session: OperatorSession) -> Response:
    asked = session.request.query_params
    after = _read_cursor(asked.get("after", "")) or FIRST
    now = datetime.now(UTC)
    attempts_since = first_id(int((now - REPLAYABLE).timestamp() * 1000))
    async with session.database.connection() as connection:
        found = await endpoints.list_unhealthy(connection, PAGE + 1, attempts_since, after)
    shown, last = paging.cut(found, PAGE)
    return session.page(
        "troubled_webhooks.html.jinja",
        endpoints=shown,
        next=None if last is None else f"{WEBHOOKS}?after={_write_cursor(last.cursor)}",
        is_first=after is FIRST,
        behind_min=BEHIND_MIN,
        retries_max=RETRIES_MAX,
        disable_after=DISABLE_AFTER,
        titles=TITLES,
        host_of=host_of,
        periods=list(PERIODS),
        said=_done(asked),
        now=now,
    )


def _done(asked: Mapping[str, str]) -> str | None:
    count = asked.get("replayed", "")
    if _COUNT.fullmatch(count):
        number = int(count)
        text = ngettext("{count} event is being resent.", "{count} events are being resent.", number)
        more = " " + _("That is the most at a time.") if number >= FAILED_MAX else ""
        return text.format(count=f"{number:,}") + more
    text = DONE.get(asked.get("done", ""), "")
    return _(text) if text else None


def _write_cursor(cursor: UnhealthyCursor) -> str:
    since = paging.write_time(cursor.since)
    return f"{int(cursor.kind)}.{since}.{write_id(ENDPOINT, EndpointId(cursor.endpoint_id))}"


def _read_cursor(text: str) -> UnhealthyCursor | None:
    read = _CURSOR.fullmatch(text)
    since = None if read is None else paging.read_time(read[2])
    endpoint_id = None if read is None else read_id(ENDPOINT, read[3])
    if read is None or since is None or endpoint_id is None:
        return None
    return UnhealthyCursor(ProblemKind(int(read[1])), since, endpoint_id)


async def enable(session: OperatorSession) -> Response:
    from_now = (await EnableForm.read(session.request)).from_now.data
    with _refusing():
        await resume_endpoint(session.database, _endpoint_id(session), from_now=from_now, by=_by(session))
    return redirect(WEBHOOKS + ("?done=enabled-from-now" if from_now else "?done=enabled"))


async def replay(session: OperatorSession) -> Response:
    """Send again what failed in a period."""
    form = await ReplayPeriodForm.read(session.request)
    if form.faults:
        raise FormRefused({"": form.faults["period"]})
    with _refusing():
        since = datetime.now(UTC) - PERIODS[form.period.data]
        count = await replay_failed(session.database, _endpoint_id(session), since, by=_by(session))
    return redirect(WEBHOOKS + (f"?replayed={count}" if count else "?done=nothing"))


def _by(session: OperatorSession) -> By:
    return By(session.actor, on_console=True)


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except NoEndpointError:
        raise HTTPException(404, _(_GONE)) from None
    except EndpointError as error:
        raise FormRefused({"": error.plain}) from None


def _endpoint_id(session: OperatorSession) -> EndpointId:
    return EndpointId(read_path_id(session.request, ENDPOINT, _GONE))
