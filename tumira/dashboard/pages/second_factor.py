"""Setting up the second factor, and turning it off."""

from collections.abc import Sequence
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.core.translation import _, mark
from tumira.dashboard.pages.settings import SETTINGS, fault_of_password, show_done
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html import qr_code
from tumira.html.forms import TYPED_MAX, Faults, Form, Secret, TextField
from tumira.html.redirect import redirect
from tumira.html.sign_in import CodeForm
from tumira.identity import second_factor, totp
from tumira.identity.person_rules import PASSWORD_MAX
from tumira.identity.reauthenticate import PasswordCheck
from tumira.identity.store import second_factors

SECOND_FACTOR: Final = SETTINGS + "/second-factor"

WRONG_CODE: Final = mark("Wrong code. Check that your phone's clock is right, and enter the next code.")
WRONG: Final = mark("Wrong password or code. Each code works once: wait for the next one.")


class OwnPasswordForm(Form):
    password = Secret(cut=PASSWORD_MAX)


class TurnOffForm(OwnPasswordForm):
    code = TextField(cut=TYPED_MAX)


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, SECOND_FACTOR, show),
        private(services, SECOND_FACTOR, begin, "POST"),
        private(services, SECOND_FACTOR + "/confirm", confirm, "POST"),
        private(services, SECOND_FACTOR + "/off", turn_off, "POST"),
    ]


async def show(session: CustomerSession) -> Response:
    return await _page(session, {})


async def _page(session: CustomerSession, faults: Faults, status: int = 200) -> Response:
    async with session.database.connection() as connection:
        factor = await second_factors.find(connection, session.customer.principal)
    secret = factor.secret if factor is not None and factor.since is None else None
    uri = None if secret is None else totp.write_uri(secret, session.customer.person_phone)
    return session.page(
        "second_factor.html.jinja",
        status,
        faults=faults,
        factor=factor,
        secret=None if secret is None else totp.write_secret(secret),
        uri=uri,
        picture=None if uri is None else await qr_code.draw(uri, secret=True),
    )


async def begin(session: CustomerSession) -> Response:
    """Make a secret for an owner who knows the password."""
    form = await OwnPasswordForm.read(session.request)
    check = await second_factor.begin(session.database, session.requester, form.password.data)
    if check is not PasswordCheck.RIGHT:
        fault, status = fault_of_password(check)
        return await _page(session, {"password": fault}, status)
    return redirect(SECOND_FACTOR)


async def confirm(session: CustomerSession) -> Response:
    form = await CodeForm.read(session.request)
    recovery_codes = await second_factor.confirm(
        session.database, session.requester, form.code.data, session.services.support
    )
    if recovery_codes is None:
        return await _page(session, {"code": _(WRONG_CODE)}, 422)
    return session.page("second_factor_codes.html.jinja", recovery_codes=recovery_codes)


async def turn_off(session: CustomerSession) -> Response:
    form = await TurnOffForm.read(session.request)
    check = await second_factor.turn_off(
        session.database, session.requester, form.password.data, form.code.data
    )
    if check is not PasswordCheck.RIGHT:
        fault, status = fault_of_password(check, WRONG)
        return await _page(session, {"": fault}, status)
    return show_done("off")
