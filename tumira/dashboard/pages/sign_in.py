"""Sign-in of customers, with the second factor, and the forgotten password."""

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.dashboard.pages.sign_up import (
    NOT_A_CODE,
    PHONE_FAULT,
    begin_session,
    begun,
    browser_of,
    fault_of_code,
    resend,
    too_many_codes,
    too_often,
)
from tumira.dashboard.session import HOME, SIGN_IN, VERIFY, Services, find_customer, public
from tumira.html.cookies import Cookie
from tumira.html.form_body import read_fields
from tumira.html.redirect import redirect
from tumira.identity import code_rules, send_codes
from tumira.identity.person_rules import PASSWORD_MAX, check_password
from tumira.identity.principal import PrincipalKind
from tumira.identity.send_codes import CodeThrottled, hash_token
from tumira.identity.sign_in import (
    AccountClosed,
    SecondFactorRequired,
    SignedIn,
    SignUpUnfinished,
    TooManyAttempts,
    finish_reset,
    finish_sign_in,
    sign_in,
    sign_out,
)
from tumira.identity.store import sessions
from tumira.identity.store.sessions import PENDING_MINUTES
from tumira.identity.store.verifications import Purpose, Verification
from tumira.pricing.phone_numbers import read_phone
from tumira.pricing.store import get_tariff

SECOND_STEP: Final = "/dashboard/sign-in/code"
SIGN_OUT: Final = "/dashboard/sign-out"
FORGOTTEN: Final = "/dashboard/forgotten"
NEW_PASSWORD: Final = "/dashboard/new-password"  # noqa: S105 - an address

WRONG: Final = "This number and password do not belong together. Check both, or choose a new password."
CLOSED: Final = (
    "This account was closed by its owner. To get its balance back, or to open it again, ask the operator."
)
# Strangers can use up the tries of a number, but not those of its phone.
OR_BY_CODE: Final = "Or choose a new password now: we send a code to your phone."
WRONG_FACTOR: Final = (
    "This code is not the right one, or was used before. Wait for the next one, or use a recovery code."
)

# Only pages of our own, in letters that no browser reads as another host.
_OWN_PAGE: Final = re.compile(r"/dashboard(?:/[A-Za-z0-9_-]+)*(?:\?[A-Za-z0-9_=&%.+-]*)?")

Faults = Mapping[str, str]


def routes(services: Services) -> Sequence[Route]:
    return [
        public(services, SIGN_IN, show_form),
        public(services, SIGN_IN, enter, "POST"),
        public(services, SECOND_STEP, show_second_step),
        public(services, SECOND_STEP, finish, "POST"),
        public(services, SIGN_OUT, leave, "POST"),
        public(services, FORGOTTEN, show_forgotten),
        public(services, FORGOTTEN, send_code, "POST"),
        public(services, NEW_PASSWORD, show_new_password),
        public(services, NEW_PASSWORD, set_password, "POST"),
        public(services, NEW_PASSWORD + "/again", send_again, "POST"),
    ]


def own_page(text: str) -> str:
    return text if _OWN_PAGE.fullmatch(text) else HOME


async def show_form(services: Services, request: Request) -> Response:
    onward = own_page(request.query_params.get("next", ""))
    if await find_customer(services, request) is not None:
        return redirect(onward)
    return _form(services, "", onward, {})


def _form(services: Services, phone: str, onward: str, faults: Faults, status: int = 200) -> Response:
    return services.templates.page("sign_in.html.jinja", status, phone=phone, onward=onward, faults=faults)


async def _read_phone(services: Services, text: str) -> str | None:
    async with services.database.connection() as connection:
        return read_phone(await get_tariff(connection), text)


async def enter(services: Services, request: Request) -> Response:
    form = await read_fields(request)
    written, password = form.text("phone")[:40], form.raw("password")[:PASSWORD_MAX]
    onward = own_page(form.text("next"))
    phone = await _read_phone(services, written)
    if phone is None:
        return _form(services, written, onward, {"phone": PHONE_FAULT}, 422)
    result = await sign_in(services.database, browser_of(services, request), phone=phone, password=password)
    if isinstance(result, SignedIn):
        return begin_session(services, result, onward)
    if isinstance(result, SecondFactorRequired):
        return _ask_for_factor(services, result, onward)
    if isinstance(result, SignUpUnfinished):
        response = redirect(VERIFY)
        services.verification_cookie.set(response, result.token)
        return response
    if isinstance(result, TooManyAttempts):
        return _form(services, written, onward, {"": f"{too_often(result)} {OR_BY_CODE}"}, 429)
    return _form(services, written, onward, {"": CLOSED if isinstance(result, AccountClosed) else WRONG}, 422)


def _half_session(services: Services) -> Cookie:
    """Return the cookie that leads a browser from the password to the second factor."""
    return Cookie("tumira_half_session", services.public_url, PENDING_MINUTES * 60)


def _ask_for_factor(services: Services, half_way: SecondFactorRequired, onward: str) -> Response:
    response = redirect(SECOND_STEP if onward == HOME else f"{SECOND_STEP}?{urlencode({'next': onward})}")
    _half_session(services).set(response, half_way.token)
    return response


async def show_second_step(services: Services, request: Request) -> Response:
    token = _half_session(services).read(request)
    onward = own_page(request.query_params.get("next", ""))
    if token is not None:
        async with services.database.connection() as connection:
            if await sessions.find_pending(connection, hash_token(token)) is not None:
                return _second_step(services, onward, {})
    return redirect(onward if await find_customer(services, request) is not None else SIGN_IN)


def _second_step(services: Services, onward: str, faults: Faults, status: int = 200) -> Response:
    return services.templates.page("second_factor_code.html.jinja", status, onward=onward, faults=faults)


async def finish(services: Services, request: Request) -> Response:
    """Begin the session of who has the second factor too."""
    form = await read_fields(request)
    onward = own_page(form.text("next"))
    cookie = _half_session(services)
    token = cookie.read(request)
    if token is None:
        return redirect(SIGN_IN)
    result = await finish_sign_in(
        services.database, browser_of(services, request), token=token, code=form.text("code")[:40]
    )
    if isinstance(result, SignedIn):
        response = begin_session(services, result, onward)
        cookie.delete(response)
        return response
    if result is None:
        response = redirect(SIGN_IN)
        cookie.delete(response)
        return response
    if isinstance(result, TooManyAttempts):
        return _second_step(services, onward, {"code": too_often(result)}, 429)
    return _second_step(services, onward, {"code": WRONG_FACTOR}, 422)


async def leave(services: Services, request: Request) -> Response:
    token = services.session_cookie.read(request)
    if token is not None:
        await sign_out(services.database, PrincipalKind.ACCOUNT, token)
    response = redirect(SIGN_IN)
    services.session_cookie.delete(response)
    return response


async def show_forgotten(services: Services, _request: Request) -> Response:
    return services.templates.page("forgotten.html.jinja", phone="", faults={})


async def send_code(services: Services, request: Request) -> Response:
    """Send a code to the number, if it has an account."""
    form = await read_fields(request)
    written = form.text("phone")[:40]
    phone = await _read_phone(services, written)
    if phone is None:
        faults = {"phone": PHONE_FAULT}
        return services.templates.page("forgotten.html.jinja", 422, phone=written, faults=faults)
    started = await send_codes.start_reset(
        services.database, services.code_limits, browser_of(services, request), phone=phone
    )
    if isinstance(started, CodeThrottled):
        faults = {"": too_many_codes(started)}
        return services.templates.page("forgotten.html.jinja", 429, phone=written, faults=faults)
    response = redirect(NEW_PASSWORD)
    services.verification_cookie.set(response, started.token)
    return response


async def show_new_password(services: Services, request: Request) -> Response:
    verification = await begun(services, request, Purpose.RESET)
    if verification is None:
        return redirect(FORGOTTEN)
    return _new_password(services, verification, {}, sent="again" in request.query_params)


def _new_password(
    services: Services, verification: Verification, faults: Faults, status: int = 200, *, sent: bool = False
) -> Response:
    return services.templates.page(
        "new_password.html.jinja", status, verification=verification, faults=faults, sent=sent
    )


async def send_again(services: Services, request: Request) -> Response:
    return await resend(services, request, Purpose.RESET, NEW_PASSWORD, _new_password)


async def set_password(services: Services, request: Request) -> Response:
    form = await read_fields(request)
    verification = await begun(services, request, Purpose.RESET)
    token = services.verification_cookie.read(request)
    if verification is None or token is None:
        return redirect(FORGOTTEN)
    code, password = code_rules.read_code(form.raw("code")), form.raw("password")
    faults = {}
    if code is None:
        faults["code"] = NOT_A_CODE
    weak = check_password(password, verification.phone)
    if weak is not None:
        faults["password"] = weak
    if faults or code is None:
        return _new_password(services, verification, faults, 422)
    result = await finish_reset(
        services.database, browser_of(services, request), token=token, code=code, password=password
    )
    if isinstance(result, SignedIn):
        response = begin_session(services, result, HOME)
        services.verification_cookie.delete(response)
        return response
    if isinstance(result, SecondFactorRequired):
        onward = _ask_for_factor(services, result, HOME)
        services.verification_cookie.delete(onward)
        return onward
    if result is None:
        return redirect(FORGOTTEN)
    if isinstance(result, AccountClosed):
        return _new_password(services, verification, {"": CLOSED}, 422)
    return _new_password(services, verification, fault_of_code(result), 422)
