"""Sign-up of a business, with a code that verifies its phone number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.core.translation import _, mark, ngettext
from tumira.dashboard.session import HOME, SIGN_IN, VERIFY, Services, find_customer
from tumira.html.forms import Faults, Form, Secret, TextField
from tumira.html.redirect import redirect
from tumira.html.sign_in import PhoneForm, TypedPhone, begin_session, browser_of, public, read_typed
from tumira.identity import code_rules, send_codes
from tumira.identity.person_rules import check_email, check_name, check_password, clean_name
from tumira.identity.principal import PrincipalKind
from tumira.identity.send_codes import CodeSent, CodeThrottled, hash_token
from tumira.identity.sign_in import (
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
CONFIRM: Final = "/dashboard/verify/start"

NOT_A_CODE: Final = mark("Enter the six digits of the code.")


class SignUpForm(PhoneForm):
    name = TextField(check_name, clean=clean_name)
    business = TextField(check_name, clean=clean_name)
    email = TextField(lambda email: check_email(email) if email else None, cut=300)
    password = Secret()


class SixDigits(TextField):
    """A code that was sent to a phone or by e-mail."""

    def convert(self, text: str) -> str:
        code = code_rules.read_code(text)
        if code is None:
            raise ValueError(_(NOT_A_CODE))
        return code


class SixDigitsForm(Form):
    code = SixDigits()


@dataclass(frozen=True, slots=True)
class CodePage:
    """A page where a code is entered that was sent to a phone."""

    purpose: Purpose
    path: str
    template: str

    def lead_here(self, services: Services, token: str) -> Response:
        response = redirect(self.path)
        services.verification_cookie.set(response, token)
        return response

    async def find_begun(self, services: Services, request: Request) -> tuple[str, Verification] | None:
        """Return the browser's token and what it verifies."""
        token = services.verification_cookie.read(request)
        if token is None:
            return None
        async with services.database.connection() as connection:
            found = await verifications.find(connection, hash_token(token))
        return (token, found) if found is not None and found.purpose is self.purpose else None

    def show(
        self,
        services: Services,
        verification: Verification,
        faults: Faults,
        status: int = 422,
        *,
        sent: bool = False,
    ) -> Response:
        return services.templates.page(
            self.template,
            status,
            verification=verification,
            faults=faults,
            sent=sent,
            mail_is_set_up=services.mail_is_set_up,
        )

    def show_empty(self, services: Services, request: Request, verification: Verification) -> Response:
        return self.show(services, verification, {}, 200, sent="again" in request.query_params)

    async def send_again(self, services: Services, request: Request) -> Response:
        """Send another code, and go back to the page where it is asked for."""
        begun = await self.find_begun(services, request)
        if begun is None:
            return redirect(SIGN_IN)
        token, verification = begun
        result = await send_codes.send_again(
            services.database, services.code_limits, browser_of(services, request), token=token
        )
        if isinstance(result, CodeThrottled):
            return self.show(services, verification, {"": too_many_codes(result)}, 429)
        return redirect(f"{self.path}?again=1")


CODE_PAGE: Final = CodePage(Purpose.SIGN_UP, VERIFY, "verify.html.jinja")


def routes(services: Services) -> Sequence[Route]:
    return [
        public(services, SIGN_UP, show_form),
        public(services, SIGN_UP, create, "POST"),
        public(services, VERIFY, show_code_form),
        public(services, VERIFY, verify, "POST"),
        public(services, VERIFY + "/again", CODE_PAGE.send_again, "POST"),
        public(services, CONFIRM, confirm, "POST"),
    ]


async def show_form(services: Services, request: Request) -> Response:
    if await find_customer(services, request) is not None:
        return redirect(HOME)
    return _show(services, await read_typed(services, request), {}, {})


def _show(
    services: Services, phone: TypedPhone, filled: Mapping[str, str], faults: Faults, status: int = 200
) -> Response:
    return services.templates.page(
        "sign_up.html.jinja",
        status,
        filled=filled,
        phone=phone,
        faults=faults,
        mail_is_set_up=services.mail_is_set_up,
    )


async def create(services: Services, request: Request) -> Response:
    form = await SignUpForm.read(request)
    name, business, password = form.name.data, form.business.data, form.password.data

    phone = await read_typed(services, request, form)
    if phone.fault is not None:
        form.faults["phone"] = phone.fault
    weak = check_password(password, name, business, phone.number or "")
    if weak is not None:
        form.faults["password"] = weak
    if form.faults or phone.number is None:
        return _show(services, phone, form.filled, form.faults, 422)
    browser = browser_of(services, request)
    started = await send_codes.start_sign_up(
        services.database,
        services.code_limits,
        browser,
        phone=phone.number,
        name=name,
        business=business,
        email=form.email.data or None,
        password=password,
        token=services.verification_cookie.read(request),
    )
    if isinstance(started, CodeThrottled):
        # The first of two clicks began it and sent the code, and nobody read its answer.
        begun_before = await sign_in(
            services.database, PrincipalKind.CUSTOMER, browser, phone=phone.number, password=password
        )
        if not isinstance(begun_before, SignUpUnfinished):
            return _show(services, phone, form.filled, {"": too_many_codes(started)}, 429)
        started = CodeSent(begun_before.token)
    return CODE_PAGE.lead_here(services, started.token)


def too_many_codes(wait: CodeThrottled) -> str:
    time = code_rules.in_words(wait.wait)
    return _("Too many codes were requested. Try again in {time}.").format(time=time)


async def show_code_form(services: Services, request: Request) -> Response:
    begun = await CODE_PAGE.find_begun(services, request)
    if begun is not None:
        return CODE_PAGE.show_empty(services, request, begun[1])
    customer = await find_customer(services, request)
    if customer is not None and not customer.phone_proved:
        return _confirm_form(services, customer, {})
    return redirect(HOME if customer else SIGN_UP)


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
    return CODE_PAGE.lead_here(services, started.token)


async def verify(services: Services, request: Request) -> Response:
    form = await SixDigitsForm.read(request)
    begun = await CODE_PAGE.find_begun(services, request)
    if begun is None:
        return redirect(SIGN_UP)
    token, verification = begun
    if form.faults:
        return CODE_PAGE.show(services, verification, form.faults)
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
    return CODE_PAGE.show(services, verification, fault_of_code(result))


def fault_of_code(result: Mismatch) -> Faults:
    if not result.left:
        return {"code": _("This code can no longer be used. Use “Send a new code” below.")}
    wrong = ngettext(
        "Wrong code. Enter the newest one we sent. {left} try left.",
        "Wrong code. Enter the newest one we sent. {left} tries left.",
        result.left,
    )
    return {"code": wrong.format(left=result.left)}
