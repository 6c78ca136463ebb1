"""Customers' webhook endpoints that fail, lag or are disabled, and how an operator repairs them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.console.session import OperatorSession, Services, change, view
from tumira.core.ids import ACCOUNT, ENDPOINT, EndpointId, first_id, read_id, write_id
from tumira.html.forms import Choice, Flag, Form, read_path_id
from tumira.html.redirect import redirect
from tumira.webhooks import endpoints
from tumira.webhooks.endpoints import (
    BEHIND_MIN,
    FIRST,
    RETRIES_MAX,
    ProblemKind,
    UnhealthyCursor,
    UnhealthyEndpoint,
)
from tumira.webhooks.health import DISABLE_AFTER
from tumira.webhooks.manage import EndpointError, NoEndpointError, enable_endpoint, host_of
from tumira.webhooks.replay import FAILED_MAX, REPLAYABLE, replay_failed_for_owner

WEBHOOKS: Final = "/operator/webhooks"
ONE: Final = WEBHOOKS + "/{id}"
PAGE: Final = 25

DONE: Final = {
    "enabled": "The endpoint is active. Waiting events are being sent.",
    "enabled-from-now": "The endpoint is active. It gets events from now on.",
    "nothing": "Nothing failed in that time, so nothing is sent again.",
}
TITLES: Final[Mapping[ProblemKind, tuple[str, str]]] = {
    ProblemKind.FAILING: ("failing", "failed"),
    ProblemKind.BEHIND: ("far behind", "unconfirmed"),
    ProblemKind.DISABLED: ("disabled", "expired"),
}
PERIODS: Final[Mapping[str, timedelta]] = {
    "1 hour": timedelta(hours=1),
    "1 day": timedelta(days=1),
    "3 days": timedelta(days=3),
    f"{REPLAYABLE.days} days": REPLAYABLE,
}

_GONE: Final = "There is no such endpoint"
# Kind, microseconds since 1970, and the endpoint.
_PLACE: Final = re.compile(r"([0-2])\.([0-9]{1,16})\.(end_[0-9a-z]{26})")
_COUNT: Final = re.compile("[0-9]{1,6}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class EnableForm(Form):
    from_now = Flag(value="yes")


class ReplayForm(Form):
    period = Choice(PERIODS, "Choose of which time events are sent again.")


@dataclass(frozen=True, slots=True)
class Row:
    """An endpoint with problems, in words."""

    one: UnhealthyEndpoint
    id: str
    account: str
    host: str
    title: str
    badge: str
    error: str
    retries: str
    disabled_on: datetime | None


def routes(services: Services) -> Sequence[Route]:
    return [
        view(services, WEBHOOKS, show_endpoints),
        change(services, ONE + "/enable", enable),
        change(services, ONE + "/replay", replay),
    ]


async def show_endpoints(session: OperatorSession) -> Response:
    return await _page(session)


async def _page(session: OperatorSession, status: int = 200, fault: str | None = None) -> Response:
    asked = session.request.query_params
    after = _read_place(asked.get("after", "")) or FIRST
    now = datetime.now(UTC)
    attempts_since = first_id(int((now - REPLAYABLE).timestamp() * 1000))
    async with session.database.connection() as connection:
        found = await endpoints.list_unhealthy(connection, PAGE + 1, attempts_since, after)
    return session.page(
        "troubled_webhooks.html.jinja",
        status,
        rows=[_row(one) for one in found[:PAGE]],
        next=_write_place(found[PAGE - 1].cursor) if len(found) > PAGE else None,
        is_first=after is FIRST,
        behind_min=BEHIND_MIN,
        periods=list(PERIODS),
        faults={} if fault is None else {"": fault},
        done=_done(asked),
        now=now,
    )


def _done(asked: Mapping[str, str]) -> str | None:
    count = asked.get("replayed", "")
    if _COUNT.fullmatch(count):
        most = ", the most at a time" if int(count) >= FAILED_MAX else ""
        return f"Events that are sent again: {int(count):,}{most}."
    return DONE.get(asked.get("done", ""))


def _row(one: UnhealthyEndpoint) -> Row:
    title, badge = TITLES[one.kind]
    is_active = one.state == "active" and one.failing_since is not None
    return Row(
        one,
        write_id(ENDPOINT, one.id),
        write_id(ACCOUNT, one.account_id),
        host_of(one.url),
        title,
        badge,
        _error(one),
        f"more than {RETRIES_MAX:,}" if one.retries >= RETRIES_MAX else f"{one.retries:,}",
        one.failing_since + DISABLE_AFTER if is_active and one.failing_since else None,
    )


def _error(one: UnhealthyEndpoint) -> str:
    """Describe the last attempt."""
    if one.problem is not None:
        return one.problem
    if one.last_status is not None:
        return f"It last_status {one.last_status}."
    return "No recent attempt."


def _write_place(place: UnhealthyCursor) -> str:
    since = (place.since - _EPOCH) // _MICROSECOND
    return f"{int(place.kind)}.{since}.{write_id(ENDPOINT, EndpointId(place.endpoint_id))}"


def _read_place(text: str) -> UnhealthyCursor | None:
    read = _PLACE.fullmatch(text)
    endpoint_id = None if read is None else read_id(ENDPOINT, read[3])
    if read is None or endpoint_id is None:
        return None
    return UnhealthyCursor(ProblemKind(int(read[1])), _EPOCH + int(read[2]) * _MICROSECOND, endpoint_id)


async def enable(session: OperatorSession) -> Response:
    from_now = (await EnableForm.read(session.request)).from_now.data
    try:
        await enable_endpoint(session.database, _endpoint_id(session), session.actor, from_now=from_now)
    except NoEndpointError:
        raise HTTPException(404, _GONE) from None
    except EndpointError as error:
        return await _page(session, 422, error.plain)
    return redirect(WEBHOOKS + ("?done=enabled-from-now" if from_now else "?done=enabled"))


async def replay(session: OperatorSession) -> Response:
    """Send again what failed in a period."""
    form = await ReplayForm.read(session.request)
    if form.faults:
        return await _page(session, 422, form.faults["period"])
    try:
        count = await replay_failed_for_owner(
            session.database, _endpoint_id(session), session.actor, PERIODS[form.period.data]
        )
    except NoEndpointError:
        raise HTTPException(404, _GONE) from None
    except EndpointError as error:
        return await _page(session, 422, error.plain)
    return redirect(WEBHOOKS + (f"?replayed={count}" if count else "?done=nothing"))


def _endpoint_id(session: OperatorSession) -> EndpointId:
    return EndpointId(read_path_id(session.request, ENDPOINT, _GONE))
