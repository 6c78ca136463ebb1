"""Webhook endpoints of an account: set-up, health, attempts and replay."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core.days import local_day
from tumira.core.dns import Resolve, Resolver
from tumira.core.ids import ENDPOINT, EVENT, EndpointId, EventId, read_id, write_id
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.events import MEANINGS, SUBSCRIBABLE
from tumira.html.forms import Faults, Form, Text, Ticked, needed, read_path_id
from tumira.html.page import LOCAL, write_plural
from tumira.html.redirect import redirect
from tumira.webhooks import manage, view
from tumira.webhooks import url as webhook_url
from tumira.webhooks.attempts import Attempt
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.http_client import CallFailedError, NotPublicError, resolve_public
from tumira.webhooks.http_response import is_success
from tumira.webhooks.manage import (
    DESCRIPTION_MAX,
    ENDPOINTS_MAX,
    OVERLAP,
    By,
    EndpointError,
    NoEndpointError,
)
from tumira.webhooks.replay import REPLAYABLE, replay_between, replay_event, replay_failed
from tumira.webhooks.retries import Backlog
from tumira.webhooks.url import URL_MAX

WEBHOOKS: Final = "/dashboard/webhooks"
# An attempt has no public id; this prefix is for the addresses of pages.
ATTEMPT: Final = "att_"
PAGE: Final = 25
# How long the answer to a test is awaited before the page is shown without it.
TEST_WAIT_S: Final = 4.0
LOOK_S: Final = 0.1

# How much of an answer is kept.
ANSWER_MAX: Final = 1024

EVERYTHING: Final = "everything"
FAILED: Final = "failed"

# The message after a change, by the name in the address.
DONE: Final = {
    "changed": "The endpoint is changed.",
    "paused": "The endpoint is paused. Events from now on are kept for it.",
    "resumed": "The endpoint is active. Waiting events are being sent.",
    "resumed-from-now": "The endpoint is active. It gets events from now on.",
    "replayed": "The event is sent again.",
    "waits": "The event has not been sent yet. It will be sent soon.",
}


def routes(services: Services) -> Sequence[Route]:
    pages = Pages(Resolver())
    one = WEBHOOKS + "/{id}"
    return [
        private(services, WEBHOOKS, show_endpoints),
        private(services, WEBHOOKS, pages.add, "POST"),
        private(services, one, show_endpoint),
        private(services, one + "/change", pages.change, "POST"),
        private(services, one + "/pause", pause, "POST"),
        private(services, one + "/resume", resume, "POST"),
        private(services, one + "/resume-from-now", resume_from_now, "POST"),
        private(services, one + "/rotate", rotate, "POST"),
        private(services, one + "/test", send_test, "POST"),
        private(services, one + "/replay", replay, "POST"),
        private(services, one + "/replay/{event}", replay_one, "POST"),
        private(services, one + "/remove", remove, "POST"),
        private(services, one + "/attempts/{attempt}", show_attempt),
    ]


class EndpointForm(Form):
    url = Text(needed("Write where we shall send events, as in https://hooks.example.com/tumira."))
    description = Text()
    types = Ticked(SUBSCRIBABLE, name="type")


class RotateForm(Form):
    seen = Text()


class ReplayForm(Form):
    since = Text(lambda text: _check_since(_read_day(text)))
    what = Text()


@dataclass(frozen=True, slots=True)
class Given:
    """The values in the form of an endpoint."""

    url: str = ""
    description: str = ""
    types: Sequence[str] = SUBSCRIBABLE

    @property
    def wanted(self) -> Sequence[str] | None:
        """Return the types that are sent; None for all, including those added later."""
        return None if len(self.types) == len(SUBSCRIBABLE) else self.types


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages that take a URL, whose host has to be resolved."""

    resolve: Resolve

    async def add(self, session: CustomerSession) -> Response:
        given, faults = await _read_endpoint(session)
        doubt = None if faults else await self._look_at(session, given.url, faults)
        if not faults:
            try:
                endpoint, secret = await manage.add_endpoint(
                    session.database,
                    session.account_id,
                    given.url,
                    given.wanted,
                    given.description,
                    allow_private=session.services.webhooks_allow_private,
                    by=_by(session),
                )
                return await _list(session, {}, added=endpoint, secret=secret, doubt=doubt)
            except EndpointError as error:
                faults[error.field] = error.plain
        return await _list(session, faults, 422, given=given)

    async def change(self, session: CustomerSession) -> Response:
        """Change an endpoint's URL, events or description."""
        endpoint, _ = await _get(session)
        given, faults = await _read_endpoint(session)
        if not faults and given.url != endpoint.url:
            await self._look_at(session, given.url, faults)
        if not faults:
            try:
                await manage.change_endpoint(
                    session.database,
                    endpoint.id,
                    # One that was allowed once is not looked at again as long as it stays.
                    url=None if given.url == endpoint.url else given.url,
                    types=given.wanted,
                    change_types=True,
                    description=given.description,
                    allow_private=session.services.webhooks_allow_private,
                    by=_by(session),
                )
                return redirect(f"{_path(endpoint.id)}?done=changed")
            except EndpointError as error:
                faults[error.field] = error.plain
        return await _show(session, faults, 422, given=given)

    async def _look_at(self, session: CustomerSession, url: str, faults: dict[str, str]) -> str | None:
        """Add a fault for a URL that we do not call; return why it cannot be called yet."""
        allow_private = session.services.webhooks_allow_private
        try:
            target = webhook_url.parse(url, allow_private=allow_private)
            await resolve_public(target, allow_private=allow_private, resolve=self.resolve)
        except (ValueError, NotPublicError) as error:
            faults["url"] = str(error)
        except CallFailedError as error:
            return str(error)
        return None


async def _read_endpoint(session: CustomerSession) -> tuple[Given, dict[str, str]]:
    form = await EndpointForm.read(session.request)
    return Given(form.url.data, form.description.data, form.types.data), form.faults


async def show_endpoints(session: CustomerSession) -> Response:
    return await _list(session, {}, removed="removed" in session.request.query_params)


async def _list(
    session: CustomerSession,
    faults: Faults,
    status: int = 200,
    *,
    given: Given | None = None,
    added: Endpoint | None = None,
    secret: str | None = None,
    doubt: str | None = None,
    removed: bool = False,
) -> Response:
    found = await manage.list_endpoints(session.database, session.account_id, manage.OWN_MAX)
    return session.page(
        "webhooks.html.jinja",
        status,
        rows=[
            (write_id(ENDPOINT, one.id), one, _total(waiting), manage.warning(one)) for one, waiting in found
        ],
        endpoints_max=ENDPOINTS_MAX,
        given=given or Given(),
        added=added and write_id(ENDPOINT, added.id),
        secret=secret,
        doubt=doubt,
        removed=removed,
        faults=faults,
        **_fields(),
    )


def _fields() -> Mapping[str, Any]:
    return {
        "meanings": {type_: MEANINGS[type_] for type_ in SUBSCRIBABLE},
        "url_max": URL_MAX,
        "description_max": DESCRIPTION_MAX,
    }


def _total(waiting: Backlog) -> int:
    return waiting.behind + waiting.retries + waiting.replays


async def show_endpoint(session: CustomerSession) -> Response:
    return await _show(session, {})


async def _show(
    session: CustomerSession,
    faults: Faults,
    status: int = 200,
    *,
    given: Given | None = None,
    since: str | None = None,
    secret: str | None = None,
) -> Response:
    endpoint, waiting = await _get(session)
    query = session.request.query_params
    before = query.get("before")
    attempts, is_more = await view.list_attempts(
        session.database,
        session.account_id,
        endpoint.id,
        None if before is None else _read(ATTEMPT, before, "page"),
        PAGE,
    )
    now = datetime.now(UTC)
    here = _path(endpoint.id)
    older = (
        f"{here}?{urlencode({'before': write_id(ATTEMPT, attempts[-1].id)})}#attempts" if is_more else None
    )
    return session.page(
        "webhook.html.jinja",
        status,
        path=here,
        endpoint=endpoint,
        endpoint_id=write_id(ENDPOINT, endpoint.id),
        waiting=waiting,
        waiting_total=_total(waiting),
        warning=manage.warning(endpoint),
        rests=endpoint.health.is_backing_off(now),
        both_sign=len(endpoint.secrets_at(now)) > 1,
        overlap_hours=int(OVERLAP.total_seconds()) // 3600,
        secret=secret,
        done=_done(query.get("done"), query.get("count")),
        tested=await _tested(session, endpoint, query.get("test")),
        given=given or _given(endpoint),
        attempts=[_row(one) for one in attempts],
        is_first=before is None,
        older=older,
        faults=faults,
        since=since or str(local_day(now - timedelta(days=1))),
        replayable_days=REPLAYABLE.days,
        everything=EVERYTHING,
        failed=FAILED,
        **_fields(),
    )


def _given(endpoint: Endpoint) -> Given:
    types = SUBSCRIBABLE if endpoint.types is None else endpoint.types
    return Given(endpoint.url, endpoint.description, types)


def _row(attempt: Attempt) -> tuple[str, str, Attempt, bool]:
    return (
        write_id(ATTEMPT, attempt.id),
        write_id(EVENT, attempt.event_id),
        attempt,
        is_success(attempt.status),
    )


def _done(name: str | None, count: str | None) -> str | None:
    """Return what was done, in words; the address may be made up."""
    if name == "replayed-many" and count is not None and count.isascii() and count.isdigit():
        number = int(count[:9])
        if not number:
            return "There is nothing to send again."
        return f"Of {write_plural(number, 'event')}, those that the endpoint takes are sent again."
    return None if name is None else DONE.get(name)


@dataclass(frozen=True, slots=True)
class Tested:
    """A test event, and the attempt if there was one."""

    event_id: str
    attempt_id: str | None = None
    attempt: Attempt | None = None
    arrived: bool = False


async def _tested(session: CustomerSession, endpoint: Endpoint, text: str | None) -> Tested | None:
    event_id = None if text is None else read_id(EVENT, text)
    if event_id is None:
        return None
    attempt = await view.find_latest_attempt(
        session.database, session.account_id, endpoint.id, EventId(event_id)
    )
    if attempt is None:
        return Tested(write_id(EVENT, event_id))
    attempt_id, written, _, arrived = _row(attempt)
    return Tested(written, attempt_id, attempt, arrived)


async def pause(session: CustomerSession) -> Response:
    endpoint_id = _id(session)
    with _not_found():
        await manage.pause_endpoint(session.database, endpoint_id, by=_by(session))
    return redirect(f"{_path(endpoint_id)}?done=paused")


async def resume(session: CustomerSession) -> Response:
    return await _resume(session, from_now=False)


async def resume_from_now(session: CustomerSession) -> Response:
    return await _resume(session, from_now=True)


async def _resume(session: CustomerSession, *, from_now: bool) -> Response:
    endpoint_id = _id(session)
    with _not_found():
        await manage.resume_endpoint(session.database, endpoint_id, from_now=from_now, by=_by(session))
    return redirect(f"{_path(endpoint_id)}?done=resumed{'-from-now' if from_now else ''}")


async def rotate(session: CustomerSession) -> Response:
    seen = _read_time((await RotateForm.read(session.request)).seen.data)
    try:
        with _not_found():
            _, secret = await manage.rotate_secret(session.database, _id(session), by=_by(session), seen=seen)
    except EndpointError as error:
        return await _show(session, {error.field: error.plain}, 409)
    return await _show(session, {}, secret=secret)


def _read_time(text: str) -> datetime:
    """Read when the page saw the endpoint; a time before all changes if that is not given."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


async def send_test(session: CustomerSession) -> Response:
    """Send a test, and wait a little for the answer."""
    endpoint_id = _id(session)
    database, account_id = session.database, session.account_id
    try:
        with _not_found():
            event_id = await manage.send_test(database, endpoint_id, by=_by(session))
    except EndpointError as error:
        return await _show(session, {error.field: error.plain}, 409)
    for _ in range(int(TEST_WAIT_S / LOOK_S)):
        if await view.find_latest_attempt(database, account_id, endpoint_id, event_id) is not None:
            break
        await asyncio.sleep(LOOK_S)
    return redirect(f"{_path(endpoint_id)}?{urlencode({'test': write_id(EVENT, event_id)})}")


async def replay_one(session: CustomerSession) -> Response:
    endpoint_id = _id(session)
    event_id = EventId(read_path_id(session.request, EVENT, "There is no such event", "event"))
    try:
        with _not_found():
            count = await replay_event(session.database, endpoint_id, event_id, by=_by(session))
    except EndpointError as error:
        return await _show(session, {error.field: error.plain}, 409)
    return redirect(f"{_path(endpoint_id)}?done={'replayed' if count else 'waits'}")


async def replay(session: CustomerSession) -> Response:
    """Send everything since a day again, or what failed since then."""
    endpoint_id = _id(session)
    form = await ReplayForm.read(session.request)
    text, since, now = form.since.data, _read_day(form.since.data), datetime.now(UTC)
    if since is None or form.faults:
        return await _show(session, form.faults, 422, since=text)
    database = session.database
    try:
        with _not_found():
            if form.what.data == FAILED:
                count = await replay_failed(database, endpoint_id, since, by=_by(session))
            else:
                until = now + timedelta(minutes=1)
                count = await replay_between(database, endpoint_id, since, until, by=_by(session))
    except EndpointError as error:
        return await _show(session, {error.field: error.plain}, 409, since=text)
    return redirect(f"{_path(endpoint_id)}?done=replayed-many&count={count}")


def _check_since(since: datetime | None) -> str | None:
    now = datetime.now(UTC)
    if since is None or since > now:
        return "Write a day that has begun, like 2026-11-16."
    if since < now - REPLAYABLE - timedelta(days=1):
        return f"Events are kept for {REPLAYABLE.days} days; choose a later day."
    return None


def _read_day(text: str) -> datetime | None:
    """Read a day as the moment at which it begins for our customers."""
    try:
        day = date.fromisoformat(text)
        return datetime(day.year, day.month, day.day, tzinfo=LOCAL).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


async def remove(session: CustomerSession) -> Response:
    """Remove an endpoint and all that waits for it."""
    with _not_found():
        await manage.remove_endpoint(session.database, _id(session), by=_by(session))
    return redirect(f"{WEBHOOKS}?removed=1")


async def show_attempt(session: CustomerSession) -> Response:
    endpoint, _ = await _get(session)
    attempt_id = read_path_id(session.request, ATTEMPT, "There is no such attempt", "attempt")
    found = await view.find_attempt(session.database, endpoint, attempt_id)
    if found is None:
        raise HTTPException(404, "There is no such attempt")
    attempt, sent = found
    return session.page(
        "webhook_attempt.html.jinja",
        path=_path(endpoint.id),
        endpoint=endpoint,
        attempt=attempt,
        event_id=write_id(EVENT, attempt.event_id),
        arrived=is_success(attempt.status),
        sent=sent,
        was_changed=endpoint.changed_at > attempt.at,
        answer_max=ANSWER_MAX,
    )


async def _get(session: CustomerSession) -> tuple[Endpoint, Backlog]:
    with _not_found():
        return await manage.get_endpoint(session.database, session.account_id, _id(session))


@contextmanager
def _not_found() -> Iterator[None]:
    """Answer the same for an endpoint that does not exist and for one of another account."""
    try:
        yield
    except NoEndpointError as error:
        raise HTTPException(404, "There is no such endpoint") from error


def _id(session: CustomerSession) -> EndpointId:
    return EndpointId(read_path_id(session.request, ENDPOINT, "There is no such endpoint"))


def _read(prefix: str, text: str, what: str) -> UUID:
    identifier = read_id(prefix, text)
    if identifier is None:
        raise HTTPException(404, f"There is no such {what}")
    return identifier


def _path(endpoint_id: EndpointId) -> str:
    return f"{WEBHOOKS}/{write_id(ENDPOINT, endpoint_id)}"


def _by(session: CustomerSession) -> By:
    return By(session.actor, session.account_id)
