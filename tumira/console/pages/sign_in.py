"""Sign-in of operators, and the set-up of their password and second factor."""

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.console.session import HOME, SIGN_IN, Services
from tumira.core.translation import _, mark
from tumira.html import qr_code
from tumira.html.forms import TYPED_MAX, Faults, Form, Secret, TextField
from tumira.html.redirect import redirect
from tumira.html.sign_in import SignInPages, begin_session, browser_of, public, too_often
from tumira.identity import totp
from tumira.identity.operators import SetUpCompleted, complete_set_up
from tumira.identity.person_rules import PASSWORD_MIN, check_password
from tumira.identity.principal import PrincipalKind
from tumira.identity.send_codes import hash_token
from tumira.identity.sign_in import SecondFactorRequired, SignUpUnfinished, TooManyAttempts
from tumira.identity.store import second_factors, sessions
from tumira.identity.store.second_factors import Factor
from tumira.identity.store.sessions import PendingSignIn, SignedInOperator, SignInStage

CODE: Final = SIGN_IN + "/code"
SET_UP: Final = HOME + "/set-up"
SIGN_OUT: Final = HOME + "/sign-out"

WRONG: Final = mark("Wrong phone number or password, or the one-time password has expired.")
WRONG_CODE: Final = mark("Wrong code. Enter the code that your authenticator app shows now.")


class OperatorSignIn(SignInPages[Services, SignedInOperator]):
    who = SignedInOperator
    home = HOME
    path = SIGN_IN
    wrong = WRONG
    wrong_code = WRONG_CODE

    def lead_on(
        self, services: Services, result: SecondFactorRequired | SignUpUnfinished, onward: str
    ) -> Response:
        assert isinstance(result, SecondFactorRequired), onward
        response = redirect(SET_UP if result.stage is SignInStage.NEW else CODE)
        services.session_cookie.set(response, result.token)
        return response


class OperatorSetUpForm(Form):
    password = Secret()
    code = TextField(cut=TYPED_MAX)


def routes(services: Services) -> Sequence[Route]:
    return [
        *OperatorSignIn().routes(services),
        public(services, SET_UP, show_set_up),
        public(services, SET_UP, set_up, "POST"),
    ]


async def _find_set_up(services: Services, request: Request) -> tuple[PendingSignIn, Factor] | None:
    token = services.session_cookie.read(request)
    if token is None:
        return None
    async with services.database.connection() as connection:
        pending = await sessions.find_pending(
            connection, PrincipalKind.OPERATOR, SignInStage.NEW, hash_token(token)
        )
        factor = None if pending is None else await second_factors.find(connection, pending.principal)
    return None if pending is None or factor is None else (pending, factor)


async def show_set_up(services: Services, request: Request) -> Response:
    return await _page(services, request, {})


async def _page(services: Services, request: Request, faults: Faults, status: int = 200) -> Response:
    found = await _find_set_up(services, request)
    if found is None:
        return redirect(SIGN_IN)
    pending, factor = found
    uri = totp.write_uri(factor.secret, pending.principal.phone)
    return services.templates.page(
        "set_up.html.jinja",
        status,
        name=pending.name,
        secret=totp.write_secret(factor.secret),
        uri=uri,
        picture=await qr_code.draw(uri, secret=True),
        password_min=PASSWORD_MIN,
        faults=faults,
    )


async def set_up(services: Services, request: Request) -> Response:
    """Keep the password and the second factor, and show the recovery codes this once."""
    form = await OperatorSetUpForm.read(request)
    found = await _find_set_up(services, request)
    token = services.session_cookie.read(request)
    if found is None or token is None:
        return redirect(SIGN_IN)
    weak = check_password(form.password.data, found[0].principal.phone)
    if weak is not None:
        return await _page(services, request, {"password": weak}, 422)
    result = await complete_set_up(
        services.database,
        browser_of(services, request),
        token=token,
        password=form.password.data,
        code=form.code.data,
    )
    if result is None:
        return redirect(SIGN_IN)
    if isinstance(result, SetUpCompleted):
        response = services.templates.page("moved_in.html.jinja", recovery_codes=result.recovery_codes)
        return begin_session(services, response, result.signed_in)
    if isinstance(result, TooManyAttempts):
        return await _page(services, request, {"code": too_often(result)}, 429)
    return await _page(services, request, {"code": _(WRONG_CODE)}, 422)
