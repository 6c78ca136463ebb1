"""Sign-up of a business, with a code that verifies its phone number."""

from collections.abc import Callable, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.dashboard.session import HOME, SIGN_IN, VERIFY, Services, find_customer
from tumira.html.forms import TYPED_MAX, Faults, Form, Secret, TextField
from tumira.html.redirect import redirect
from tumira.html.sign_in import begin_session, browser_of, find_phone, public
from tumira.identity import code_rules, send_codes
from tumira.identity.person_rules import check_email, check_name, check_password, clean_name
from tumira.identity.principal import PrincipalKind
from tumira.identity.send_codes import CodeSent, CodeThrottled, SignUpDetails, hash_token
from tumira.identity.sign_in import (
    CodeExpired,
    Mismatch,
    SignedIn,
    SignUpUnfinished,
    finish_sign_up,
    sign_in,
)
from tumira.identity.store import verifications
from tumira.identity.store.sessions import SignedInCustomer
from tumira.identity.store.verifications import Purpose, Verification

SIGN_UP: Final = "/dashboard/sign-up"
AGAIN: Final = "/dashboard/verify/again"
CONFIRM: Final = "/dashboard/verify/start"

PHONE_FAULT: Final = (
    "We cannot send to this number. Write a Zimbabwean or South African number with its country code, "
    "like +263 77 120 0001 or +27 82 123 0001."
)
NOT_A_CODE: Final = "The code has six digits."


class SignUpForm(Form):
    name = TextField(check_name, clean=clean_name)
    business = TextField(check_name, clean=clean_name)
    phone = TextField(cut=TYPED_MAX)
    email = TextField(lambda email: check_email(email) if email else None, cut=300)
    password = Secret()


class SixDigits(TextField):
    """A code that was sent to a phone or by e-mail."""

    def convert(self, text: str) -> str:
        code = code_rules.read_code(text)
        if code is None:
            raise ValueError(NOT_A_CODE)
        return code


class SixDigitsForm(Form):
    code = SixDigits()


def routes(services: Services) -> Sequence[Route]:
    return [
        public(services, SIGN_UP, show_form),
        public(services, SIGN_UP, create, "POST"),
        public(services, VERIFY, show_code_form),
        public(services, VERIFY, verify, "POST"),
        public(services, AGAIN, send_again, "POST"),
        public(services, CONFIRM, confirm, "POST"),
    ]


async def show_form(services: Services, request: Request) -> Response:
    if await find_customer(services, request) is not None:
        return redirect(HOME)
    return services.templates.page("sign_up.html.jinja", filled={}, faults={})


async def create(services: Services, request: Request) -> Response:
    form = await SignUpForm.read(request)
    name, business, password = form.name.data, form.business.data, form.password.data

    def refuse(faults: Faults, status: int) -> Response:
        return services.templates.page("sign_up.html.jinja", status, filled=form.filled, faults=faults)

    phone = await find_phone(services, form.phone.data)
    if phone is None:
        form.faults["phone"] = PHONE_FAULT
    weak = check_password(password, name, business, phone or "")
    if weak is not None:
        form.faults["password"] = weak
    if form.faults or phone is None:
        return refuse(form.faults, 422)
    browser = browser_of(services, request)
    started = await send_codes.start_sign_up(
        services.database,
        services.code_limits,
        browser,
        phone=phone,
        details=SignUpDetails(name, business, form.email.data or None, password),
        token=services.verification_cookie.read(request),
    )
    if isinstance(started, CodeThrottled):
        # The first of two clicks began it and sent the code, and nobody read its answer.
        begun_before = await sign_in(
            services.database, PrincipalKind.ACCOUNT, browser, phone=phone, password=password
        )
        if not isinstance(begun_before, SignUpUnfinished):
            return refuse({"": too_many_codes(started)}, 429)
        started = CodeSent(begun_before.token)
    return ask_for_code(services, VERIFY, started.token)


def ask_for_code(services: Services, page: str, token: str) -> Response:
    """Lead to the page where the code is asked for that was sent."""
    response = redirect(page)
    services.verification_cookie.set(response, token)
    return response


def too_many_codes(wait: CodeThrottled) -> str:
    return f"Too many codes were asked for. Please try again in {code_rules.in_words(wait.wait)}."


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
    return ask_for_code(services, VERIFY, started.token)


async def verify(services: Services, request: Request) -> Response:
    form = await SixDigitsForm.read(request)
    verification = await begun(services, request, Purpose.SIGN_UP)
    token = services.verification_cookie.read(request)
    if verification is None or token is None:
        return redirect(SIGN_UP)
    if form.faults:
        return _code_form(services, verification, form.faults, 422)
    browser = browser_of(services, request)
    result = await finish_sign_up(services.database, browser, token=token, code=form.code.data)
    if isinstance(result, SignedIn):
        response = begin_session(services, redirect(HOME), result)
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
