"""Accepting an invitation to an account."""

from collections.abc import Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.core.translation import _, mark
from tumira.dashboard.pages import sign_in
from tumira.dashboard.pages.sign_up import SixDigits
from tumira.dashboard.session import HOME, Services
from tumira.html.form_body import read_fields
from tumira.html.forms import Faults, Form, Secret, TextField
from tumira.html.redirect import redirect
from tumira.html.sign_in import begin_session, browser_of, public, too_often
from tumira.identity import invite
from tumira.identity.invite import WrongPassword
from tumira.identity.person_rules import PASSWORD_MAX, check_name, check_password, clean_name
from tumira.identity.roles import ROLE_MEANINGS, ROLE_NAMES
from tumira.identity.sign_in import Mismatch, SecondFactorRequired, SignedIn, TooManyAttempts
from tumira.identity.store.invites import Invite
from tumira.identity.store.logins import Login

JOIN: Final = "/dashboard/join/{token}"

_ENDED: Final = mark("This invitation has expired, was revoked or was accepted before. Ask for a new one")


class KnownJoinForm(Form):
    """What a person enters who signs in with this number already."""

    code = SixDigits()
    password = Secret(cut=PASSWORD_MAX)


class NewJoinForm(KnownJoinForm):
    name = TextField(check_name, clean=clean_name)


def routes(services: Services) -> Sequence[Route]:
    return [public(services, JOIN, show), public(services, JOIN, join, "POST")]


async def show(services: Services, request: Request) -> Response:
    found, login = await _find(services, request)
    return _page(services, request, found, login, {})


async def _find(services: Services, request: Request) -> tuple[Invite, Login | None]:
    found = await invite.find_invite(services.database, str(request.path_params["token"]))
    if found is None:
        raise HTTPException(404, _(_ENDED))
    return found


def _page(
    services: Services,
    request: Request,
    found: Invite,
    login: Login | None,
    faults: Faults,
    status: int = 200,
    name: str = "",
) -> Response:
    return services.templates.page(
        "join.html.jinja",
        status,
        invite=found,
        role=_(ROLE_NAMES[found.role]),
        meaning=_(ROLE_MEANINGS[found.role]),
        is_known=invite.is_known(login),
        path=request.url.path,
        name=name,
        faults=faults,
    )


async def join(services: Services, request: Request) -> Response:
    body = await read_fields(request)
    found, login = await _find(services, request)
    form: KnownJoinForm
    if invite.is_known(login):
        name, form = "", KnownJoinForm.parse(body)
    else:
        form = NewJoinForm.parse(body)
        name = form.name.data
        weak = check_password(form.password.data, name, found.business, found.phone)
        if weak is not None:
            form.faults["password"] = weak
    if form.faults:
        return _page(services, request, found, login, form.faults, 422, name)
    result = await invite.join(
        services.database,
        browser_of(services, request),
        token=str(request.path_params["token"]),
        code=form.code.data,
        name=name,
        password=form.password.data,
    )
    match result:
        case SignedIn():
            return begin_session(services, redirect(HOME), result)
        case SecondFactorRequired():
            return sign_in.PAGES.lead_on(services, result, HOME)
        case None:
            raise HTTPException(404, _(_ENDED))
        case TooManyAttempts():
            return _page(services, request, found, login, {"": too_often(result)}, 429, name)
        case WrongPassword():
            faults: Faults = {"password": _("Wrong password. Enter the password with which you sign in.")}
        case Mismatch():
            faults = _fault_of_code(result)
    return _page(services, request, found, login, faults, 422, name)


def _fault_of_code(result: Mismatch) -> Faults:
    if not result.left:
        return {"code": _("This code can no longer be used. Ask for the invitation to be sent again.")}
    return {"code": _("Wrong code. Enter the one in the newest message.")}
