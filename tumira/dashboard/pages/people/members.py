"""People of an account: list, invite, change a role, remove, leave; and switching between accounts."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core.errors import FieldError
from tumira.core.ids import ACCOUNT, AccountId, read_id, write_id
from tumira.core.translation import _, mark
from tumira.dashboard.pages.settings import fault_of_password
from tumira.dashboard.session import ACCOUNTS, HOME, SIGN_IN, CustomerSession, Services, private
from tumira.html.form_body import read_fields
from tumira.html.forms import Choice, Faults, Form, Secret, TextField, read_path_id
from tumira.html.guards import or_404
from tumira.html.redirect import redirect
from tumira.html.sign_in import PhoneForm, TypedPhone, read_typed
from tumira.identity import invite, members
from tumira.identity.members import NoMemberError
from tumira.identity.person_rules import PASSWORD_MAX
from tumira.identity.reauthenticate import PasswordCheck
from tumira.identity.roles import ROLE_MEANINGS, ROLE_NAMES, MemberRole
from tumira.identity.store import invites, people
from tumira.identity.store.people import Member

PEOPLE: Final = "/dashboard/people"
PERSON: Final = "per_"
INVITE: Final = "inv_"

_NO_PERSON: Final = mark("This person is not in your account")
_NO_INVITE: Final = mark("This invitation was accepted, revoked or never sent")
DONE: Final = {
    "invited": mark("Invitation sent. It is valid for 3 days."),
    "again": mark("Invitation sent again. The link and the code before no longer work."),
    "revoked": mark("Invitation revoked. Its link and code no longer work."),
    "role": mark("Role changed. It applies from now on."),
    "removed": mark("Person removed. They are signed out of this account."),
}


class InviteForm(PhoneForm):
    role = Choice(MemberRole, mark("Choose a role."))
    password = Secret(cut=PASSWORD_MAX)


class RoleForm(Form):
    role = Choice(MemberRole, mark("Choose a role."))
    password = Secret(cut=PASSWORD_MAX)


class RemovePersonForm(Form):
    password_to_remove = Secret(cut=PASSWORD_MAX)


class LeaveForm(Form):
    password = Secret(cut=PASSWORD_MAX)


class SwitchForm(Form):
    account = TextField()


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, PEOPLE, show_people),
        private(services, PEOPLE, send_invite, "POST"),
        private(services, PEOPLE + "/leave", show_leave),
        private(services, PEOPLE + "/leave", leave, "POST"),
        private(services, PEOPLE + "/invites/{id}/again", send_again, "POST"),
        private(services, PEOPLE + "/invites/{id}/revoke", revoke, "POST"),
        private(services, PEOPLE + "/{id}", show_person),
        private(services, PEOPLE + "/{id}/role", change_role, "POST"),
        private(services, PEOPLE + "/{id}/remove", remove, "POST"),
        private(services, ACCOUNTS, show_accounts),
        private(services, ACCOUNTS, switch, "POST"),
    ]


def _roles() -> Mapping[str, Any]:
    """Return the roles to choose from, and what each may do."""
    return {
        "roles": [(role, _(ROLE_NAMES[role])) for role in MemberRole],
        "meanings": [(_(ROLE_NAMES[role]), _(ROLE_MEANINGS[role])) for role in MemberRole],
    }


async def show_people(session: CustomerSession) -> Response:
    done = DONE.get(session.request.query_params.get("done", ""))
    return await _page(session, {}, done=done)


async def _page(
    session: CustomerSession,
    faults: Faults,
    status: int = 200,
    *,
    done: str | None = None,
    phone: TypedPhone | None = None,
    **filled: str,
) -> Response:
    async with session.database.connection() as connection:
        listed = await people.list_members(connection, session.account_id)
        waiting = await invites.list_open(connection, session.account_id)
    return session.page(
        "people.html.jinja",
        status,
        members=[(write_id(PERSON, one.person_id), one) for one in listed],
        invites=[(write_id(INVITE, one.id), one) for one in waiting],
        phone=phone or await read_typed(session.services, session.request),
        **_roles(),
        filled={"role": MemberRole.VIEWER, **filled},
        faults=faults,
        done=done,
    )


async def send_invite(session: CustomerSession) -> Response:
    form = await InviteForm.read(session.request)
    phone = await read_typed(session.services, session.request, form)
    if phone.fault is not None:
        form.faults["phone"] = phone.fault if form.phone.data else _("Enter the person's mobile number.")
    if not form.faults and phone.number is not None:
        try:
            check = await invite.invite(
                session.database,
                session.requester,
                phone=phone.number,
                role=MemberRole(form.role.data),
                password=form.password.data,
                public_url=session.services.public_url,
            )
        except FieldError as error:
            form.faults[error.field] = str(error)
        else:
            if check is PasswordCheck.RIGHT:
                return _done("invited")
            fault, status = fault_of_password(check)
            return await _page(session, {"password": fault}, status, phone=phone, role=form.role.data)
    return await _page(session, form.faults, 422, phone=phone, role=form.role.data)


def _done(what: str) -> Response:
    return redirect(f"{PEOPLE}?done={what}")


async def send_again(session: CustomerSession) -> Response:
    await read_fields(session.request)
    invite_id = read_path_id(session.request, INVITE, _(_NO_INVITE))
    try:
        sent = await invite.send_again(
            session.database, session.requester, invite_id, session.services.public_url
        )
    except FieldError as error:
        return await _page(session, {"": str(error)}, 422)
    if not sent:
        raise HTTPException(404, _(_NO_INVITE))
    return _done("again")


async def revoke(session: CustomerSession) -> Response:
    await read_fields(session.request)
    invite_id = read_path_id(session.request, INVITE, _(_NO_INVITE))
    try:
        revoked = await invite.revoke(session.database, session.requester, invite_id)
    except FieldError as error:
        return await _page(session, {"": str(error)}, 422)
    if not revoked:
        raise HTTPException(404, _(_NO_INVITE))
    return _done("revoked")


async def show_person(session: CustomerSession) -> Response:
    return await _person_page(session, await _find(session), {})


async def _find(session: CustomerSession) -> Member:
    person_id = read_path_id(session.request, PERSON, _(_NO_PERSON))
    async with session.database.connection() as connection:
        found = await people.find_member(connection, session.account_id, person_id)
    return or_404(found, _(_NO_PERSON))


async def _person_page(
    session: CustomerSession, member: Member, faults: Faults, status: int = 200, role: str | None = None
) -> Response:
    return session.page(
        "person.html.jinja",
        status,
        member=member,
        path=f"{PEOPLE}/{write_id(PERSON, member.person_id)}",
        **_roles(),
        role=role or member.role,
        faults=faults,
    )


async def change_role(session: CustomerSession) -> Response:
    form = await RoleForm.read(session.request)
    member = await _find(session)
    if not form.faults:
        try:
            check = await members.change_role(
                session.database,
                session.requester,
                member.person_id,
                MemberRole(form.role.data),
                form.password.data,
            )
        except FieldError as error:
            form.faults[error.field] = str(error)
        except NoMemberError:
            raise HTTPException(404, _(_NO_PERSON)) from None
        else:
            if check is PasswordCheck.RIGHT:
                return _done("role")
            fault, status = fault_of_password(check)
            return await _person_page(session, member, {"password": fault}, status, form.role.data)
    return await _person_page(session, member, form.faults, 422, form.role.data)


async def remove(session: CustomerSession) -> Response:
    form = await RemovePersonForm.read(session.request)
    member = await _find(session)
    try:
        check = await members.remove(
            session.database, session.requester, member.person_id, form.password_to_remove.data
        )
    except FieldError as error:
        return await _person_page(session, member, {error.field: str(error)}, 422)
    except NoMemberError:
        raise HTTPException(404, _(_NO_PERSON)) from None
    if check is not PasswordCheck.RIGHT:
        fault, status = fault_of_password(check)
        return await _person_page(session, member, {"password_to_remove": fault}, status)
    return _done("removed")


async def show_leave(session: CustomerSession) -> Response:
    return session.page("leave.html.jinja", faults={})


async def leave(session: CustomerSession) -> Response:
    form = await LeaveForm.read(session.request)
    try:
        check = await members.leave(session.database, session.requester, form.password.data)
    except FieldError as error:
        return session.page("leave.html.jinja", 422, faults={error.field: str(error)})
    if check is not PasswordCheck.RIGHT:
        fault, status = fault_of_password(check)
        return session.page("leave.html.jinja", status, faults={"password": fault})
    response = redirect(SIGN_IN)
    session.services.session_cookie.delete(response)
    return response


async def show_accounts(session: CustomerSession) -> Response:
    return await _accounts_page(session)


async def _accounts_page(
    session: CustomerSession, status: int = 200, faults: Mapping[str, Any] | None = None
) -> Response:
    async with session.database.connection() as connection:
        found = await people.list_accounts(connection, session.customer.person_id)
    return session.page("accounts.html.jinja", status, accounts=found, faults=faults or {})


async def switch(session: CustomerSession) -> Response:
    form = await SwitchForm.read(session.request)
    account_id = read_id(ACCOUNT, form.account.data)
    customer = session.customer
    if account_id is None or not await members.switch_account(
        session.database, customer.person_id, customer.session_id, AccountId(account_id)
    ):
        return await _accounts_page(session, 422, {"": _("You are not in that account. Choose one below.")})
    return redirect(HOME)
