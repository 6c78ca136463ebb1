"""Sign-in of operators, and the set-up of their password and second factor."""

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.console.session import HOME, SIGN_IN, Services, find_operator, public
from tumira.html import qr_code
from tumira.html.form_body import read_fields
from tumira.html.guards import address_of
from tumira.html.redirect import redirect
from tumira.identity import code_rules, totp
from tumira.identity import operators as operator_access
from tumira.identity.operators import PasswordAccepted, SetUpCompleted
from tumira.identity.person_rules import PASSWORD_MAX, check_password
from tumira.identity.principal import Browser, PrincipalKind
from tumira.identity.sign_in import SignedIn, TooManyAttempts, sign_out
from tumira.identity.store.sessions import SignInStage
from tumira.pricing.phone_numbers import read_phone
from tumira.pricing.store import get_tariff

CODE: Final = SIGN_IN + "/code"
SET_UP: Final = "/operator/set-up"
SIGN_OUT: Final = "/operator/sign-out"

WRONG: Final = "This number and password do not belong together, or the password is too old."
WRONG_CODE: Final = "Your device does not show this code now, or it was used before. Enter the next one."

Faults = Mapping[str, str]


def routes(services: Services) -> Sequence[Route]:
    return [
        public(services, SIGN_IN, show_form),
        public(services, SIGN_IN, enter, "POST"),
        public(services, CODE, show_code),
        public(services, CODE, finish, "POST"),
        public(services, SET_UP, show_set_up),
        public(services, SET_UP, set_up, "POST"),
        public(services, SIGN_OUT, leave, "POST"),
    ]


def _browser(services: Services, request: Request) -> Browser:
    return Browser(
        address_of(request),
        request.headers.get("user-agent", ""),
        services.session_cookie.read(request),
        services.device_cookie.read(request),
    )


def _too_often(refused: TooManyAttempts) -> str:
    return f"Too many attempts. Please try again in {code_rules.in_words(refused.wait)}."


async def show_form(services: Services, request: Request) -> Response:
    if await find_operator(services, request) is not None:
        return redirect(HOME)
    return services.templates.page("sign_in.html.jinja", phone="", faults={})


async def enter(services: Services, request: Request) -> Response:
    """Compare the password, and lead on to the second factor or to setting it up."""
    form = await read_fields(request)
    written, password = form.text("phone")[:40], form.raw("password")[:PASSWORD_MAX]
    async with services.database.connection() as connection:
        phone = read_phone(await get_tariff(connection), written)
    # A number that cannot be one is compared like any other: nobody learns which numbers are operators.
    result = await operator_access.sign_in(
        services.database, _browser(services, request), phone=phone or written, password=password
    )
    if isinstance(result, PasswordAccepted):
        response = redirect(SET_UP if result.stage is SignInStage.NEW else CODE)
        services.session_cookie.set(response, result.token)
        return response
    if isinstance(result, TooManyAttempts):
        faults, status = {"": _too_often(result)}, 429
    else:
        faults, status = {"": WRONG}, 422
    return services.templates.page("sign_in.html.jinja", status, phone=written, faults=faults)


async def show_code(services: Services, _request: Request) -> Response:
    return services.templates.page("code.html.jinja", faults={})


async def finish(services: Services, request: Request) -> Response:
    """Begin the session of who has the second factor too."""
    form = await read_fields(request)
    token = services.session_cookie.read(request)
    if token is None:
        return redirect(SIGN_IN)
    result = await operator_access.finish(
        services.database, _browser(services, request), token=token, code=form.text("code")[:40]
    )
    if result is None:
        return redirect(SIGN_IN)
    if isinstance(result, SignedIn):
        response = redirect(HOME)
        _begin_session(services, response, result)
        return response
    if isinstance(result, TooManyAttempts):
        return services.templates.page("code.html.jinja", 429, faults={"code": _too_often(result)})
    return services.templates.page("code.html.jinja", 422, faults={"code": WRONG_CODE})


def _begin_session(services: Services, response: Response, signed_in: SignedIn) -> None:
    services.session_cookie.set(response, signed_in.token)
    if signed_in.device is not None:
        services.device_cookie.set(response, signed_in.device)


async def show_set_up(services: Services, request: Request) -> Response:
    return await _set_up(services, request, {})


async def _set_up(services: Services, request: Request, faults: Faults, status: int = 200) -> Response:
    token = services.session_cookie.read(request)
    begun = None if token is None else await operator_access.begin_factor(services.database, token)
    if begun is None:
        return redirect(SIGN_IN)
    operator, secret = begun
    uri = totp.write_uri(secret, operator.phone)
    return services.templates.page(
        "set_up.html.jinja",
        status,
        name=operator.name,
        secret=totp.write_secret(secret),
        uri=uri,
        picture=await qr_code.draw(uri, secret=True),
        faults=faults,
    )


async def set_up(services: Services, request: Request) -> Response:
    """Keep the password and the second factor, and show the recovery codes this once."""
    form = await read_fields(request)
    token = services.session_cookie.read(request)
    begun = None if token is None else await operator_access.begin_factor(services.database, token)
    if begun is None or token is None:
        return redirect(SIGN_IN)
    password = form.raw("password")
    weak = check_password(password, begun[0].phone)
    if weak is not None:
        return await _set_up(services, request, {"password": weak}, 422)
    result = await operator_access.complete_set_up(
        services.database,
        _browser(services, request),
        token=token,
        password=password,
        code=form.text("code")[:40],
    )
    if result is None:
        return redirect(SIGN_IN)
    if isinstance(result, SetUpCompleted):
        response = services.templates.page("moved_in.html.jinja", recovery_codes=result.recovery_codes)
        _begin_session(services, response, result.signed_in)
        return response
    if isinstance(result, TooManyAttempts):
        return await _set_up(services, request, {"code": _too_often(result)}, 429)
    return await _set_up(services, request, {"code": WRONG_CODE}, 422)


async def leave(services: Services, request: Request) -> Response:
    token = services.session_cookie.read(request)
    if token is not None:
        await sign_out(services.database, PrincipalKind.OPERATOR, token)
    response = redirect(SIGN_IN)
    services.session_cookie.delete(response)
    return response
