"""Webhook endpoints of an account: set-up, health, attempts and replay."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core.days import local_day, local_midnight
from tumira.core.ids import ENDPOINT, EVENT, EndpointId, EventId, read_id, write_id
from tumira.core.translation import _, mark, ngettext
from tumira.dashboard.pages.settings import ask_password
from tumira.dashboard.session import CustomerSession, Private, Services, private
from tumira.events import MEANINGS, SUBSCRIBABLE
from tumira.html.forms import Faults, Form, Secret, TextField, Ticked, needed, read_path_id, read_query_id
from tumira.html.page import write_count
from tumira.html.redirect import redirect
from tumira.identity.person_rules import PASSWORD_MAX
from tumira.webhooks import manage, view
from tumira.webhooks import url as webhook_url
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
from tumira.webhooks.url import URL_MAX

WEBHOOKS: Final = "/dashboard/webhooks"
# An attempt has no public id; this prefix is for the addresses of pages.
ATTEMPT: Final = "att_"
PAGE: Final = 20
# How long the answer to a test is awaited before the page is shown without it.
TEST_WAIT_S: Final = 4.0
LOOK_S: Final = 0.1

# How much of an answer is kept.
ANSWER_MAX: Final = 1024

NO_ENDPOINT: Final = mark("This endpoint does not exist")
EVERYTHING: Final = "everything"
FAILED: Final = "failed"

# The message after a change, by the name in the address.
DONE: Final = {
    "changed": mark("The endpoint was changed."),
    "paused": mark("The endpoint is paused. New events are kept until you resume it."),
    "resumed": mark("The endpoint is active. Waiting events are being sent."),
    "resumed-from-now": mark("The endpoint is active. It receives events from now on."),
    "replayed": mark("The event is being resent."),
    "waits": mark("The event has not been sent yet. It will be sent soon."),
}
_FIELDS: Final = {
    "meanings": {type_: MEANINGS[type_] for type_ in SUBSCRIBABLE},
    "url_max": URL_MAX,
    "description_max": DESCRIPTION_MAX,
}
_EMPTY: Final = {"url": "", "description": "", "types": SUBSCRIBABLE}


def routes(services: Services) -> Sequence[Route]:
    def own(path: str, act: Act, *methods: str) -> Route:
        return private(services, f"{WEBHOOKS}/{{id}}{path}", _on_endpoint(act), *methods)

    return [
        private(services, WEBHOOKS, show_endpoints),
        private(services, WEBHOOKS, add, "POST"),
        own("", show_endpoint),
        own("/change", change, "POST"),
        own("/pause", pause, "POST"),
        own("/resume", resume, "POST"),
        own("/resume-from-now", partial(resume, from_now=True), "POST"),
        own("/rotate", rotate, "POST"),
        own("/test", send_test, "POST"),
        own("/test-and-resume", partial(send_test, resume=True), "POST"),
        own("/replay", replay, "POST"),
        own("/replay/{event}", replay_one, "POST"),
        own("/remove", remove, "POST"),
        own("/attempts/{attempt}", show_attempt),
    ]


Act = Callable[[CustomerSession, EndpointId], Awaitable[Response]]


def _on_endpoint(act: Act) -> Private:
    """Let something be done with the endpoint of the address; its page says why that was refused."""

    async def handle(session: CustomerSession) -> Response:
        endpoint_id = EndpointId(read_path_id(session.request, ENDPOINT, _(NO_ENDPOINT)))
        try:
            try:
                return await act(session, endpoint_id)
            except EndpointError as error:
                return await _show(session, endpoint_id, {error.field: error.plain}, 409)
        # The same for an endpoint that does not exist and for one of another account.
        except NoEndpointError as error:
            raise HTTPException(404, _(NO_ENDPOINT)) from error

    return handle


class EndpointForm(Form):
    url = TextField(
        needed(mark("Enter the URL that receives events, for example https://hooks.example.com/tumira."))
    )
    description = TextField()
    types = Ticked(SUBSCRIBABLE, name="type")
    password_for_url = Secret(cut=PASSWORD_MAX)

    @property
    def given(self) -> Mapping[str, Any]:
        return {**self.filled, "types": self.types.data}

    @property
    def wanted(self) -> Sequence[str] | None:
        """Return the types that are sent; None for all, including those added later."""
        return None if len(self.types.data) == len(SUBSCRIBABLE) else self.types.data


class RotateForm(Form):
    seen = TextField()
    password = Secret(cut=PASSWORD_MAX)


class SendAgainForm(Form):
    since = TextField(lambda text: _check_since(_read_day(text)))
    what = TextField()


async def show_endpoints(session: CustomerSession) -> Response:
    return await _list(session, {}, removed="removed" in session.request.query_params)


async def _list(session: CustomerSession, faults: Faults, status: int = 200, **values: Any) -> Response:
    shown = {"given": _EMPTY, "added": None, "secret": None, "doubt": None, "removed": False}
    return session.page(
        "webhooks.html.jinja",
        status,
        rows=await manage.list_endpoints(session.database, session.account_id, manage.OWN_MAX),
        warning_of=manage.warning,
        endpoints_max=ENDPOINTS_MAX,
        faults=faults,
        **_FIELDS,
        **{**shown, **values},
    )


async def add(session: CustomerSession) -> Response:
    form = await EndpointForm.read(session.request)
    doubt = None if form.faults else await look_at(session, form)
    if not form.faults:
        refused = await ask_password(session, form.password_for_url.data)
        if refused is not None:
            return await _list(session, {"password_for_url": refused[0]}, refused[1], given=form.given)
        try:
            endpoint, secret = await manage.add_endpoint(
                session.database,
                session.account_id,
                form.url.data,
                form.wanted,
                form.description.data,
                allow_private=session.services.webhooks_allow_private,
                by=_by(session),
            )
            return await _list(session, {}, added=endpoint, secret=secret, doubt=doubt)
        except EndpointError as error:
            form.faults[error.field] = error.plain
    return await _list(session, form.faults, 422, given=form.given)


async def look_at(session: CustomerSession, form: EndpointForm) -> str | None:
    """Add a fault for a URL that we do not call; return why it cannot be called yet."""
    allow_private = session.services.webhooks_allow_private
    try:
        target = webhook_url.parse(form.url.data, allow_private=allow_private)
        await resolve_public(target, allow_private=allow_private, resolve=session.services.resolve)
    except (ValueError, NotPublicError) as error:
        form.faults["url"] = str(error)
    except CallFailedError as error:
        return str(error)
    return None


async def show_endpoint(session: CustomerSession, endpoint_id: EndpointId) -> Response:
    return await _show(session, endpoint_id, {})


async def _show(
    session: CustomerSession,
    endpoint_id: EndpointId,
    faults: Faults,
    status: int = 200,
    *,
    given: Mapping[str, Any] | None = None,
    since: str | None = None,
    secret: str | None = None,
) -> Response:
    database, account_id = session.database, session.account_id
    endpoint, waiting = await manage.get_endpoint(database, account_id, endpoint_id)
    query = session.request.query_params
    before = read_query_id(session.request, ATTEMPT, "before")
    attempts, is_more = await view.list_attempts(database, account_id, endpoint_id, before, PAGE)
    test_id = read_id(EVENT, query.get("test", ""))
    tested = None
    if test_id is not None:
        tested = await view.find_latest_attempt(database, account_id, endpoint_id, EventId(test_id))
    now = datetime.now(UTC)
    return session.page(
        "webhook.html.jinja",
        status,
        path=_path(endpoint_id),
        endpoint=endpoint,
        waiting=waiting,
        warning=manage.warning(endpoint),
        is_backing_off=endpoint.health.is_backing_off(now),
        next_attempt=await view.find_next_attempt(database, endpoint, waiting, now),
        now=now,
        both_sign=len(endpoint.secrets_at(now)) > 1,
        overlap_hours=int(OVERLAP.total_seconds()) // 3600,
        secret=secret,
        done=_done(query.get("done"), query.get("count")),
        test_id=test_id,
        tested=tested,
        given=given
        or {
            "url": endpoint.url,
            "description": endpoint.description,
            "types": SUBSCRIBABLE if endpoint.types is None else endpoint.types,
        },
        attempts=attempts,
        is_success=is_success,
        is_first=before is None,
        is_more=is_more,
        faults=faults,
        since=since or str(local_day(now - timedelta(days=1))),
        replayable_days=REPLAYABLE.days,
        everything=EVERYTHING,
        failed=FAILED,
        **_FIELDS,
    )


def _done(name: str | None, count: str | None) -> str | None:
    """Return what was done, in words; the address may be made up."""
    if name == "replayed-many" and count is not None and count.isascii() and count.isdigit():
        number = int(count[:9])
        if not number:
            return _("There is nothing to resend.")
        text = ngettext(
            "{count} event is being resent, if the endpoint receives its type.",
            "{count} events are being resent: those whose types the endpoint receives.",
            number,
        )
        return text.format(count=write_count(number))
    return _(DONE[name]) if name in DONE else None


async def change(session: CustomerSession, endpoint_id: EndpointId) -> Response:
    """Change an endpoint's URL, events or description."""
    endpoint, _backlog = await manage.get_endpoint(session.database, session.account_id, endpoint_id)
    form = await EndpointForm.read(session.request)
    # One that was allowed once is not looked at again as long as it stays.
    url = None if form.url.data == endpoint.url else form.url.data
    if not form.faults and url is not None:
        await look_at(session, form)
    if not form.faults and url is not None:
        refused = await ask_password(session, form.password_for_url.data)
        if refused is not None:
            faults = {"password_for_url": refused[0]}
            return await _show(session, endpoint_id, faults, refused[1], given=form.given)
    if not form.faults:
        try:
            await manage.change_endpoint(
                session.database,
                endpoint_id,
                url=url,
                types=form.wanted,
                change_types=True,
                description=form.description.data,
                allow_private=session.services.webhooks_allow_private,
                by=_by(session),
            )
            return redirect(f"{_path(endpoint_id)}?done=changed")
        except EndpointError as error:
            form.faults[error.field] = error.plain
    return await _show(session, endpoint_id, form.faults, 422, given=form.given)


async def pause(session: CustomerSession, endpoint_id: EndpointId) -> Response:
    await manage.pause_endpoint(session.database, endpoint_id, by=_by(session))
    return redirect(f"{_path(endpoint_id)}?done=paused")


async def resume(session: CustomerSession, endpoint_id: EndpointId, *, from_now: bool = False) -> Response:
    await manage.resume_endpoint(session.database, endpoint_id, from_now=from_now, by=_by(session))
    return redirect(f"{_path(endpoint_id)}?done=resumed{'-from-now' if from_now else ''}")


async def rotate(session: CustomerSession, endpoint_id: EndpointId) -> Response:
    form = await RotateForm.read(session.request)
    refused = await ask_password(session, form.password.data)
    if refused is not None:
        return await _show(session, endpoint_id, {"password": refused[0]}, refused[1])
    seen = _read_time(form.seen.data)
    _endpoint, secret = await manage.rotate_secret(session.database, endpoint_id, by=_by(session), seen=seen)
    return await _show(session, endpoint_id, {}, secret=secret)


def _read_time(text: str) -> datetime:
    """Read when the page saw the endpoint; a time before all changes if that is not given."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


async def send_test(session: CustomerSession, endpoint_id: EndpointId, *, resume: bool = False) -> Response:
    """Send a test, and wait a little for the answer."""
    database, account_id = session.database, session.account_id
    event_id = await manage.send_test(database, endpoint_id, by=_by(session), resume=resume)
    for _look in range(int(TEST_WAIT_S / LOOK_S)):
        if await view.find_latest_attempt(database, account_id, endpoint_id, event_id) is not None:
            break
        await asyncio.sleep(LOOK_S)
    return redirect(f"{_path(endpoint_id)}?{urlencode({'test': write_id(EVENT, event_id)})}")


async def replay_one(session: CustomerSession, endpoint_id: EndpointId) -> Response:
    event_id = EventId(
        read_path_id(session.request, EVENT, _("This event does not exist or is no longer kept"), "event")
    )
    count = await replay_event(session.database, endpoint_id, event_id, by=_by(session))
    return redirect(f"{_path(endpoint_id)}?done={'replayed' if count else 'waits'}")


async def replay(session: CustomerSession, endpoint_id: EndpointId) -> Response:
    """Send everything since a day again, or what failed since then."""
    form = await SendAgainForm.read(session.request)
    text, since, now = form.since.data, _read_day(form.since.data), datetime.now(UTC)
    if since is None or form.faults:
        return await _show(session, endpoint_id, form.faults, 422, since=text)
    database = session.database
    try:
        if form.what.data == FAILED:
            count = await replay_failed(database, endpoint_id, since, by=_by(session))
        else:
            until = now + timedelta(minutes=1)
            count = await replay_between(database, endpoint_id, since, until, by=_by(session))
    except EndpointError as error:
        return await _show(session, endpoint_id, {error.field: error.plain}, 409, since=text)
    return redirect(f"{_path(endpoint_id)}?done=replayed-many&count={count}")


def _check_since(since: datetime | None) -> str | None:
    now = datetime.now(UTC)
    if since is None or since > now:
        return _("Enter today or an earlier day, for example 2026-11-16.")
    if since < now - REPLAYABLE - timedelta(days=1):
        return _("Events are kept for {days} days. Choose a later day.").format(days=REPLAYABLE.days)
    return None


def _read_day(text: str) -> datetime | None:
    """Read a day as the moment at which it begins for our customers."""
    try:
        return local_midnight(date.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


async def remove(session: CustomerSession, endpoint_id: EndpointId) -> Response:
    """Remove an endpoint and all that waits for it."""
    await manage.remove_endpoint(session.database, endpoint_id, by=_by(session))
    return redirect(f"{WEBHOOKS}?removed=1")


async def show_attempt(session: CustomerSession, endpoint_id: EndpointId) -> Response:
    database, missing = session.database, _("This attempt does not exist or is no longer kept")
    endpoint, waiting = await manage.get_endpoint(database, session.account_id, endpoint_id)
    attempt_id = read_path_id(session.request, ATTEMPT, missing, "attempt")
    found = await view.find_attempt(database, endpoint, attempt_id)
    if found is None:
        raise HTTPException(404, missing)
    attempt, sent = found
    now = datetime.now(UTC)
    return session.page(
        "webhook_attempt.html.jinja",
        path=_path(endpoint_id),
        endpoint=endpoint,
        attempt=attempt,
        is_delivered=is_success(attempt.status),
        next_attempt=await view.find_next_attempt(database, endpoint, waiting, now, attempt.event_id),
        now=now,
        sent=sent,
        was_changed=endpoint.changed_at > attempt.at,
        answer_max=ANSWER_MAX,
    )


def _path(endpoint_id: EndpointId) -> str:
    return f"{WEBHOOKS}/{write_id(ENDPOINT, endpoint_id)}"


def _by(session: CustomerSession) -> By:
    return By(session.actor, session.account_id)
