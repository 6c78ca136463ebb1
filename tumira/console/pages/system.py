"""The system page: nodes, database, audits and operators."""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira import VERSION
from tumira.console.session import OperatorSession, Services, change, view
from tumira.core.errors import OperatorError
from tumira.core.ids import ACCOUNT, OPERATOR, OperatorId, read_id, write_id
from tumira.html.forms import TYPED_MAX, Choice, Faults, Form, Text
from tumira.html.redirect import redirect
from tumira.identity import operators as operator_access
from tumira.identity.person_rules import check_name, clean_name
from tumira.identity.store import operators
from tumira.identity.store.operators import Operator, Role
from tumira.operations.audit import runs
from tumira.operations.audit.checks import CHECKS
from tumira.operations.audit.runs import Audit
from tumira.postgres import migrate, partitions
from tumira.postgres import nodes as system

SYSTEM: Final = "/operator/system"
OPERATORS: Final = SYSTEM + "/operators"
AUDITS_SHOWN: Final = 5
NODES_MAX: Final = 200
STEPS_SHOWN: Final = 3
LEDGERS_SHOWN: Final = 20
OPERATORS_MAX: Final = 200
# A worker says every second that it lives, a web process twice a minute.
WORKER_LATE: Final = timedelta(seconds=10)
WEB_LATE: Final = timedelta(seconds=90)

DONE: Final = {
    "asked": "An audit is asked for. A worker begins it within seconds, and it may take minutes.",
    "waiting": "An audit is waiting or under way already.",
    "removed": "The operator is removed. Their sessions have ended.",
}
ROLES: Final = (
    (Role.VIEWER.value, "Viewer: changes nothing"),
    (Role.ADMIN.value, "Admin: may change all"),
)
LABELS: Final = {"name": "Name", "phone": "Phone number", "role": "Role"}
PROMISES: Final = {check.name: check.promise for check in CHECKS}

_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")
_THOUSAND: Final = 1000
_HUNDRED: Final = 100


class OperatorForm(Form):
    name = Text(check_name, clean=clean_name)
    phone = Text(cut=TYPED_MAX)
    role = Choice(dict(ROLES), "Choose one of the two.")


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """A promise that an audit found broken, and the first rows that break it."""

    promise: str
    rows: Sequence[str]


@dataclass(frozen=True, slots=True)
class Given:
    """A password that is shown this once, and whose it is."""

    phone: str
    password: str


def routes(services: Services) -> Sequence[Route]:
    return [
        view(services, SYSTEM, show_system),
        change(services, SYSTEM + "/audit", ask_audit),
        change(services, OPERATORS, add_operator),
        change(services, OPERATORS + "/{id}/reset", reset_operator),
        change(services, OPERATORS + "/{id}/remove", remove_operator),
    ]


async def show_system(session: OperatorSession) -> Response:
    return await _page(session, {}, done=DONE.get(session.request.query_params.get("done", "")))


async def _page(
    session: OperatorSession,
    faults: Faults,
    status: int = 200,
    *,
    done: str | None = None,
    given: Given | None = None,
    filled: Mapping[str, str] | None = None,
) -> Response:
    async with session.database.connection() as connection:
        values: dict[str, Any] = {
            "ground": await system.get_ground(connection),
            "steps": await system.list_steps(connection, STEPS_SHOWN),
            "is_current": await migrate.is_current(connection),
            "weeks": await partitions.weeks_left(connection),
            "workers": await system.list_workers(connection, WORKER_LATE, NODES_MAX),
            "web": await system.list_web(connection, WEB_LATE, NODES_MAX),
            "ledgers": await system.list_broken_ledgers(connection, LEDGERS_SHOWN),
        }
        found = await runs.list_latest(connection, AUDITS_SHOWN)
        people_here = await operators.list_all(connection, OPERATORS_MAX)
    ended = next((one for one in found if one.broken is not None), None)
    return session.page(
        "system.html.jinja",
        status,
        **values,
        version=VERSION,
        node=f"{socket.gethostname()}:{os.getpid()}",
        size=write_size(values["ground"].bytes),
        weeks_min=partitions.WEEKS_AHEAD_MIN,
        accounts=[(write_id(ACCOUNT, one.account_id), one) for one in values["ledgers"]],
        audits=found,
        is_waiting=any(one.finished_at is None for one in found),
        ended=ended,
        broken=[] if ended is None else _broken(ended),
        operators=[(write_id(OPERATOR, one.id), one) for one in people_here],
        self_id=session.operator.operator_id,
        hours=int(operator_access.ONE_TIME_FOR.total_seconds()) // 3600,
        roles=ROLES,
        labels=LABELS,
        faults=faults,
        filled=filled or {"name": "", "phone": "", "role": ""},
        given=given,
        done=done,
    )


def write_size(size: int) -> str:
    """Write how much something takes, with three figures or so."""
    amount, unit = float(size), 0
    while amount >= _THOUSAND and unit < len(_UNITS) - 1:
        amount, unit = amount / _THOUSAND, unit + 1
    figures = f"{amount:,.0f}" if amount >= _HUNDRED or not unit else f"{amount:.3g}"
    return f"{figures} {_UNITS[unit]}"


def _broken(ended: Audit) -> Sequence[BrokenPromise]:
    assert ended.broken is not None
    return [
        # One of an older version may have had another name.
        BrokenPromise(PROMISES.get(name, name), [json.dumps(row, ensure_ascii=False) for row in rows])
        for name, rows in ended.broken.items()
    ]


async def ask_audit(session: OperatorSession) -> Response:
    asked = await runs.ask_audit(session.database, session.actor)
    return redirect(SYSTEM + ("?done=asked" if asked else "?done=waiting"))


async def add_operator(session: OperatorSession) -> Response:
    """Add an operator, and show the password of their first sign-in this once."""
    form = await OperatorForm.read(session.request)
    if form.faults:
        return await _page(session, form.faults, 422, filled=form.filled)
    try:
        password = await operator_access.create(
            session.database,
            phone=form.phone.data,
            name=form.name.data,
            role=Role(form.role.data),
            actor=session.actor,
        )
    except OperatorError as error:
        return await _page(session, {"phone": str(error)}, 422, filled=form.filled)
    return await _page(session, {}, given=Given(form.phone.data, password))


async def reset_operator(session: OperatorSession) -> Response:
    operator = await _operator(session)
    try:
        password = await operator_access.reset(session.database, phone=operator.phone, actor=session.actor)
    except OperatorError as error:
        return await _page(session, {"": str(error)}, 422)
    return await _page(session, {}, given=Given(operator.phone, password))


async def remove_operator(session: OperatorSession) -> Response:
    operator = await _operator(session)
    try:
        await operator_access.remove(session.database, phone=operator.phone, actor=session.actor)
    except OperatorError as error:
        return await _page(session, {"": str(error)}, 422)
    return redirect(SYSTEM + "?done=removed")


async def _operator(session: OperatorSession) -> Operator:
    """Return the operator to change; not oneself, because a slip would lock the operator out."""
    operator_id = read_id(OPERATOR, str(session.request.path_params["id"]))
    if operator_id is None:
        raise HTTPException(404, "There is no such operator")
    if operator_id == session.operator.operator_id:
        raise HTTPException(409, "You cannot do this to yourself: ask another admin")
    async with session.database.transaction() as connection:
        found = await operators.lock(connection, OperatorId(operator_id))
    if found is None:
        raise HTTPException(404, "There is no such operator")
    return found
