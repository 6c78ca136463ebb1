"""Sign-in of customers, with the second factor, and the forgotten password."""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.core.translation import _, mark
from tumira.dashboard.pages.sign_up import (
    CODE_PAGE,
    CodePage,
    SixDigitsForm,
    fault_of_code,
    too_many_codes,
)
from tumira.dashboard.session import HOME, SIGN_IN, Services
from tumira.html.cookies import Cookie
from tumira.html.forms import Faults, Secret
from tumira.html.redirect import redirect
from tumira.html.sign_in import (
    NO_ACCOUNT,
    PhoneForm,
    SignInPages,
    begin_session,
    browser_of,
    public,
    read_typed,
    say_closed,
)
from tumira.identity import send_codes
from tumira.identity.person_rules import check_password
from tumira.identity.send_codes import CodeThrottled
from tumira.identity.sign_in import (
    AccountClosed,
    NoAccount,
    SecondFactorRequired,
    SignedIn,
    SignUpUnfinished,
    finish_reset,
)
from tumira.identity.store.sessions import SignedInCustomer
from tumira.identity.store.verifications import Purpose

FORGOTTEN: Final = "/dashboard/forgotten"
NEW_PASSWORD: Final = "/dashboard/new-password"  # noqa: S105 - an address

# Only pages of our own, in letters that no browser reads as another host.
_OWN_PAGE: Final = re.compile(r"/dashboard(?:/[A-Za-z0-9_-]+)*(?:\?[A-Za-z0-9_=&%.+-]*)?")


class CustomerSignIn(SignInPages[Services, SignedInCustomer]):
    who = SignedInCustomer
    home = HOME
    path = SIGN_IN
    explains_phone = True
    wrong = mark("Wrong phone number or password. Check both, or use “Forgot your password?” below.")
    wrong_code = mark("Wrong code, or already used. Wait for the app's next code, or use a recovery code.")
    # Strangers can use up the tries of a number, but not those of its phone.
    or_else = mark("To sign in now, choose a new password with “Forgot your password?” below.")

    def own_page(self, text: str) -> str:
        return text if _OWN_PAGE.fullmatch(text) else HOME

    def pending_cookie(self, services: Services) -> Cookie:
        return services.pending_cookie

    def lead_on(
        self, services: Services, result: SecondFactorRequired | SignUpUnfinished, onward: str
    ) -> Response:
        if isinstance(result, SignUpUnfinished):
            return CODE_PAGE.lead_here(services, result.token)
        query = "" if onward == HOME else f"?{urlencode({'next': onward})}"
        response = redirect(f"{SIGN_IN}/code{query}")
        services.pending_cookie.set(response, result.token)
        return response


PAGES: Final = CustomerSignIn()
NEW_PASSWORD_PAGE: Final = CodePage(Purpose.RESET, NEW_PASSWORD, "new_password.html.jinja")


class NewPasswordForm(SixDigitsForm):
    password = Secret()


def routes(services: Services) -> Sequence[Route]:
    return [
        *PAGES.routes(services),
        public(services, FORGOTTEN, show_forgotten),
        public(services, FORGOTTEN, send_code, "POST"),
        public(services, NEW_PASSWORD, show_new_password),
        public(services, NEW_PASSWORD, set_password, "POST"),
        public(services, NEW_PASSWORD + "/again", NEW_PASSWORD_PAGE.send_again, "POST"),
    ]


async def show_forgotten(services: Services, request: Request) -> Response:
    phone = await read_typed(services, request)
    return services.templates.page("forgotten.html.jinja", phone=phone, faults={})


async def send_code(services: Services, request: Request) -> Response:
    """Send a code to the number, if it has an account."""
    phone = await read_typed(services, request, await PhoneForm.read(request))
    if phone.number is None:
        faults, status = {"phone": phone.fault or ""}, 422
    else:
        started = await send_codes.start_reset(
            services.database, services.code_limits, browser_of(services, request), phone=phone.number
        )
        if not isinstance(started, CodeThrottled):
            return NEW_PASSWORD_PAGE.lead_here(services, started.token)
        faults, status = {"": too_many_codes(started)}, 429
    return services.templates.page("forgotten.html.jinja", status, phone=phone, faults=faults)


async def show_new_password(services: Services, request: Request) -> Response:
    begun = await NEW_PASSWORD_PAGE.find_begun(services, request)
    if begun is None:
        return redirect(FORGOTTEN)
    return NEW_PASSWORD_PAGE.show_empty(services, request, begun[1])


async def set_password(services: Services, request: Request) -> Response:
    form = await NewPasswordForm.read(request)
    begun = await NEW_PASSWORD_PAGE.find_begun(services, request)
    if begun is None:
        return redirect(FORGOTTEN)
    token, verification = begun
    weak = check_password(form.password.data, verification.phone)
    if weak is not None:
        form.faults["password"] = weak
    if form.faults:
        return NEW_PASSWORD_PAGE.show(services, verification, form.faults)
    result = await finish_reset(
        services.database,
        browser_of(services, request),
        token=token,
        code=form.code.data,
        password=form.password.data,
    )
    if isinstance(result, SignedIn | SecondFactorRequired):
        if isinstance(result, SignedIn):
            response = begin_session(services, redirect(HOME), result)
        else:
            response = PAGES.lead_on(services, result, HOME)
        services.verification_cookie.delete(response)
        return response
    if result is None:
        return redirect(FORGOTTEN)
    match result:
        case AccountClosed():
            faults: Faults = {"": say_closed(services)}
        case NoAccount():
            faults = {"": _(NO_ACCOUNT)}
        case _:
            faults = fault_of_code(result)
    return NEW_PASSWORD_PAGE.show(services, verification, faults)
