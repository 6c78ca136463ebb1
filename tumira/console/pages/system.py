"""The system page: nodes, database, audits and operators."""

import json
import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira import VERSION
from tumira.console.session import OperatorSession, Services, page
from tumira.core.errors import OperatorError
from tumira.core.ids import OPERATOR, OperatorId
from tumira.core.translation import _, mark
from tumira.html.forms import TYPED_MAX, Choice, Form, FormRefused, TextField, read_path_id
from tumira.html.guards import or_404
from tumira.html.redirect import redirect
from tumira.identity import operators as operator_access
from tumira.identity.person_rules import check_name, clean_name
from tumira.identity.store import operators
from tumira.identity.store.operators import Operator, Role
from tumira.operations.audit import runs
from tumira.operations.audit.checks import CHECKS
from tumira.postgres import migrate, partitions
from tumira.postgres import nodes as system
from tumira.pricing.phone_numbers import country_of, read_phone
from tumira.pricing.store import get_tariff

SYSTEM: Final = "/operator/system"
AUDITS_SHOWN: Final = 5
NODES_MAX: Final = 200
STEPS_SHOWN: Final = 3
LEDGERS_SHOWN: Final = 20
OPERATORS_MAX: Final = 200
# A worker says every second that it lives, a web process twice a minute.
WORKER_LATE: Final = timedelta(seconds=10)
NODE_LATE: Final = timedelta(seconds=90)

DONE: Final = {
    "asked": mark("Audit requested. A worker starts it within seconds; it may take minutes."),
    "waiting": mark("An audit is already waiting or running."),
    "removed": mark("Operator removed and signed out everywhere."),
}
ROLES: Final = (
    (Role.VIEWER.value, mark("Viewer: can see everything, change nothing")),
    (Role.ADMIN.value, mark("Admin: can change everything")),
)
ROLE_NAMES: Final = {Role.VIEWER: mark("Viewer"), Role.ADMIN: mark("Admin")}
PROMISES: Final = {check.name: check.promise for check in CHECKS}

_NO_OPERATOR: Final = mark("This operator does not exist")
_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")
_THOUSAND: Final = 1000
_HUNDRED: Final = 100


class OperatorForm(Form):
    name = TextField(check_name, clean=clean_name)
    phone = TextField(cut=TYPED_MAX)
    role = Choice(dict(ROLES), mark("Choose a role."))


def routes(services: Services) -> Sequence[Route]:
    forms = {
        "/audit": ask_audit,
        "/operators": add_operator,
        "/operators/{id}/reset": reset_operator,
        "/operators/{id}/remove": remove_operator,
    }
    return page(services, SYSTEM, show_system, forms)


async def show_system(session: OperatorSession, given: tuple[str, str] | None = None) -> Response:
    """Show the page; `given` is an operator's number and the password that is shown this once."""
    async with session.database.connection() as connection:
        ground = await system.get_ground(connection)
        audits = await runs.list_latest(connection, AUDITS_SHOWN)
        values: dict[str, Any] = {
            "steps": await system.list_steps(connection, STEPS_SHOWN),
            "is_current": await migrate.is_current(connection),
            "weeks": await partitions.weeks_left(connection),
            "workers": await system.list_workers(connection, WORKER_LATE, NODES_MAX),
            "web": await system.list_role(connection, "web", NODE_LATE, NODES_MAX),
            "webhooks": await system.list_role(connection, "webhooks", NODE_LATE, NODES_MAX),
            "ledgers": await system.list_broken_ledgers(connection, LEDGERS_SHOWN),
            "operators": await operators.list_all(connection, OPERATORS_MAX),
        }
    return session.page(
        "system.html.jinja",
        **values,
        version=VERSION,
        node=f"{socket.gethostname()}:{os.getpid()}",
        ground=ground,
        size=write_size(ground.bytes),
        weeks_min=partitions.WEEKS_AHEAD_MIN,
        audits=audits,
        is_waiting=any(one.finished_at is None for one in audits),
        ended=next((one for one in audits if one.broken is not None), None),
        promises=PROMISES,
        write_rows=lambda rows: "\n".join(json.dumps(row, ensure_ascii=False) for row in rows),
        self_id=session.operator.operator_id,
        hours=int(operator_access.ONE_TIME_FOR.total_seconds()) // 3600,
        roles=[(role, _(words)) for role, words in ROLES],
        role_names=ROLE_NAMES,
        given=given,
        done=DONE,
    )


def write_size(size: int) -> str:
    """Write how much something takes, with three figures or so."""
    amount, unit = float(size), 0
    while amount >= _THOUSAND and unit < len(_UNITS) - 1:
        amount, unit = amount / _THOUSAND, unit + 1
    figures = f"{amount:,.0f}" if amount >= _HUNDRED or not unit else f"{amount:.3g}"
    return f"{figures} {_UNITS[unit]}"


async def ask_audit(session: OperatorSession) -> Response:
    asked = await runs.ask_audit(session.database, session.actor)
    return redirect(SYSTEM + ("?done=asked" if asked else "?done=waiting"))


async def add_operator(session: OperatorSession) -> Response:
    """Add an operator, and show the password of their first sign-in this once."""
    form = await OperatorForm.accept(session.request)
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
    home = country_of(tariff, session.operator.phone)
    phone = read_phone(tariff, form.phone.data, home) or form.phone.data
    with form.blame("phone"):
        password = await operator_access.create(
            session.database,
            phone=phone,
            name=form.name.data,
            role=Role(form.role.data),
            actor=session.actor,
        )
    return await show_system(session, (phone, password))


async def reset_operator(session: OperatorSession) -> Response:
    operator = await _operator(session)
    try:
        password = await operator_access.reset(session.database, phone=operator.phone, actor=session.actor)
    except OperatorError as error:
        raise FormRefused({"": str(error)}) from None
    return await show_system(session, (operator.phone, password))


async def remove_operator(session: OperatorSession) -> Response:
    operator = await _operator(session)
    try:
        await operator_access.remove(session.database, phone=operator.phone, actor=session.actor)
    except OperatorError as error:
        raise FormRefused({"": str(error)}) from None
    return redirect(SYSTEM + "?done=removed")


async def _operator(session: OperatorSession) -> Operator:
    """Return the operator to change; not oneself, because a slip would lock the operator out."""
    operator_id = read_path_id(session.request, OPERATOR, _NO_OPERATOR)
    if operator_id == session.operator.operator_id:
        raise HTTPException(409, _("You cannot reset or remove yourself. Ask another admin"))
    async with session.database.connection() as connection:
        found = await operators.find(connection, OperatorId(operator_id))
    return or_404(found, _NO_OPERATOR)
