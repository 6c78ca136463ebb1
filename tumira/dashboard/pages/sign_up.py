"""Sign-up of a business, with a code that verifies its phone number."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.dashboard.session import HOME, SIGN_IN, VERIFY, Services, find_customer, public
from tumira.html.form_body import read_fields
from tumira.html.guards import address_of
from tumira.html.redirect import redirect
from tumira.identity import code_rules, send_codes
from tumira.identity.person_rules import check_email, check_name, check_password, clean_name
from tumira.identity.principal import Browser
from tumira.identity.send_codes import CodeSent, CodeThrottled, SignUpDetails, hash_token
from tumira.identity.sign_in import (
    CodeExpired,
    Mismatch,
    SignedIn,
    SignUpUnfinished,
    TooManyAttempts,
    finish_sign_up,
    sign_in,
)
from tumira.identity.store import verifications
from tumira.identity.store.sessions import SignedInCustomer
from tumira.identity.store.verifications import Purpose, Verification
from tumira.pricing.phone_numbers import read_phone
from tumira.pricing.store import get_tariff

SIGN_UP: Final = "/dashboard/sign-up"
AGAIN: Final = "/dashboard/verify/again"
CONFIRM: Final = "/dashboard/verify/start"

PHONE_FAULT: Final = (
    "We cannot send to this number. Write a Zimbabwean or South African number with its country code, "
    "like +263 77 120 0001 or +27 82 123 0001."
)
NOT_A_CODE: Final = "The code has six digits."

Faults = Mapping[str, str]


def routes(services: Services) -> Sequence[Route]:
    return [
        public(services, SIGN_UP, show_form),
        public(services, SIGN_UP, create, "POST"),
        public(services, VERIFY, show_code_form),
        public(services, VERIFY, verify, "POST"),
        public(services, AGAIN, send_again, "POST"),
        public(services, CONFIRM, confirm, "POST"),
    ]


@dataclass(frozen=True, slots=True)
class _Filled:
    """The form as it was filled in."""

    name: str = ""
    business: str = ""
    phone: str = ""
    email: str = ""


async def show_form(services: Services, request: Request) -> Response:
    if await find_customer(services, request) is not None:
        return redirect(HOME)
    return _form(services, _Filled(), {})


def _form(services: Services, filled: _Filled, faults: Faults, status: int = 200) -> Response:
    return services.templates.page("sign_up.html.jinja", status, filled=filled, faults=faults)


async def create(services: Services, request: Request) -> Response:
    form = await read_fields(request)
    filled = _Filled(
        clean_name(form.text("name")),
        clean_name(form.text("business")),
        form.text("phone")[:40],
        form.text("email")[:300],
    )
    async with services.database.connection() as connection:
        phone = read_phone(await get_tariff(connection), filled.phone)
    faults = _faults(filled, phone, form.raw("password"))
    if faults or phone is None:
        return _form(services, filled, faults, 422)
    started = await send_codes.start_sign_up(
        services.database,
        services.code_limits,
        browser_of(services, request),
        phone=phone,
        details=SignUpDetails(filled.name, filled.business, filled.email or None, form.raw("password")),
        token=services.verification_cookie.read(request),
    )
    if isinstance(started, CodeThrottled):
        # The first of two clicks began it and sent the code, and nobody read its answer.
        begun_before = await sign_in(
            services.database, browser_of(services, request), phone=phone, password=form.raw("password")
        )
        if not isinstance(begun_before, SignUpUnfinished):
            return _form(services, filled, {"": too_many_codes(started)}, 429)
        started = CodeSent(begun_before.token)
    response = redirect(VERIFY)
    services.verification_cookie.set(response, started.token)
    return response


def _faults(filled: _Filled, phone: str | None, password: str) -> Faults:
    found = {
        "name": check_name(filled.name),
        "business": check_name(filled.business),
        "phone": PHONE_FAULT if phone is None else None,
        "email": check_email(filled.email) if filled.email else None,
        "password": check_password(password, filled.name, filled.business, phone or ""),
    }
    return {name: fault for name, fault in found.items() if fault is not None}


def too_many_codes(wait: CodeThrottled) -> str:
    return f"Too many codes were asked for. Please try again in {code_rules.in_words(wait.wait)}."


def too_often(refused: TooManyAttempts) -> str:
    return f"Too many attempts. Please try again in {code_rules.in_words(refused.wait)}."


def browser_of(services: Services, request: Request) -> Browser:
    """Return who is at the browser, as far as anybody can tell."""
    return Browser(
        address_of(request),
        request.headers.get("user-agent", ""),
        services.session_cookie.read(request),
        services.device_cookie.read(request),
    )


def begin_session(services: Services, signed_in: SignedIn, onward: str) -> Response:
    """Set the cookies of the session and of the known device."""
    response = redirect(onward)
    services.session_cookie.set(response, signed_in.token)
    if signed_in.device is not None:
        services.device_cookie.set(response, signed_in.device)
    return response


async def begun(services: Services, request: Request, purpose: Purpose) -> Verification | None:
    token = services.verification_cookie.read(request)
    if token is None:
        return None
    async with services.database.connection() as connection:
        found = await verifications.find(connection, hash_token(token))
    return found if found is not None and found.purpose is purpose else None


async def show_code_form(services: Services, request: Request) -> Response:
    verification = await begun(services, request, Purpose.SIGN_UP)
    if verification is None:
        customer = await find_customer(services, request)
        if customer is not None and not customer.phone_proved:
            return _confirm_form(services, customer, {})
        return redirect(HOME if customer else SIGN_UP)
    return _code_form(services, verification, {}, sent="again" in request.query_params)


def _code_form(
    services: Services, verification: Verification, faults: Faults, status: int = 200, *, sent: bool = False
) -> Response:
    return services.templates.page(
        "verify.html.jinja", status, verification=verification, faults=faults, sent=sent
    )


def _confirm_form(
    services: Services, customer: SignedInCustomer, faults: Faults, status: int = 200
) -> Response:
    return services.templates.page("confirm_number.html.jinja", status, customer=customer, faults=faults)


async def confirm(services: Services, request: Request) -> Response:
    """Send a code to the phone of an account that was opened by e-mail alone."""
    customer = await find_customer(services, request)
    if customer is None or customer.phone_proved:
        return redirect(SIGN_IN if customer is None else HOME)
    started = await send_codes.start_confirmation(
        services.database, services.code_limits, browser_of(services, request), customer=customer
    )
    if isinstance(started, CodeThrottled):
        return _confirm_form(services, customer, {"": too_many_codes(started)}, 429)
    response = redirect(VERIFY)
    services.verification_cookie.set(response, started.token)
    return response


async def verify(services: Services, request: Request) -> Response:
    form = await read_fields(request)
    verification = await begun(services, request, Purpose.SIGN_UP)
    token = services.verification_cookie.read(request)
    if verification is None or token is None:
        return redirect(SIGN_UP)
    code = code_rules.read_code(form.raw("code"))
    if code is None:
        return _code_form(services, verification, {"code": NOT_A_CODE}, 422)
    result = await finish_sign_up(services.database, browser_of(services, request), token=token, code=code)
    if isinstance(result, SignedIn):
        response = begin_session(services, result, HOME)
        # By e-mail alone the number is not proved yet: the code of the text can still be entered.
        if result.device is not None:
            services.verification_cookie.delete(response)
        return response
    if result is None:
        return redirect(SIGN_IN)
    return _code_form(services, verification, fault_of_code(result), 422)


def fault_of_code(result: Mismatch | CodeExpired) -> Faults:
    if isinstance(result, CodeExpired) or not result.left:
        return {"code": "This code can no longer be used. Ask for a new one below."}
    tries = "one try is" if result.left == 1 else f"{result.left} tries are"
    return {"code": f"This is not the code we sent last; {tries} left."}


async def send_again(services: Services, request: Request) -> Response:
    return await resend(services, request, Purpose.SIGN_UP, VERIFY, _code_form)


async def resend(
    services: Services,
    request: Request,
    purpose: Purpose,
    page: str,
    show: Callable[[Services, Verification, Faults, int], Response],
) -> Response:
    """Send another code, and go back to the page where it is asked for."""
    verification = await begun(services, request, purpose)
    token = services.verification_cookie.read(request)
    if verification is None or token is None:
        return redirect(SIGN_IN)
    result = await send_codes.send_again(
        services.database, services.code_limits, browser_of(services, request), token=token
    )
    if isinstance(result, CodeThrottled):
        return show(services, verification, {"": too_many_codes(result)}, 429)
    return redirect(f"{page}?again=1")
