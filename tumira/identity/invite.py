"""Inviting people to an account by text message, with a link and a code, and accepting an invitation.

The link alone is not enough: it stands in the history of browsers and in the logs of servers. A number cannot
be bothered: the texts are limited by account, and by number over all accounts.
"""

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core.errors import FieldError
from tumira.core.ids import new_id
from tumira.core.translation import _
from tumira.identity import code_rules, notify_owner, throttle
from tumira.identity.members import lock_as_owner
from tumira.identity.passwords import hash_secret, matches
from tumira.identity.principal import Browser, Principal, PrincipalKind
from tumira.identity.reauthenticate import PasswordCheck, Requester, confirm_password
from tumira.identity.roles import ROLE_NAMES, MemberRole
from tumira.identity.send_codes import hash_token
from tumira.identity.sign_in import (
    Mismatch,
    SecondFactorRequired,
    SignedIn,
    TooManyAttempts,
    accept,
    forget_login,
)
from tumira.identity.store import invites, logins, people
from tumira.identity.store.attempts import AttemptKind
from tumira.identity.store.invites import LIFETIME, Invite
from tumira.identity.store.logins import Login
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.sending.system_text import send_text

# People and open invitations of an account.
PEOPLE_MAX: Final = 50
PER_ACCOUNT_DAY_MAX: Final = 20
PER_NUMBER_DAY_MAX: Final = 3
BETWEEN: Final = timedelta(minutes=2)
# Names stand in the text as far as they fit.
NAME_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class WrongPassword:
    """The code was right, but the password is not that of the person who has the number."""


async def invite(
    database: Database, requester: Requester, *, phone: str, role: MemberRole, password: str, public_url: str
) -> PasswordCheck:
    """Send an invitation; raises FieldError if the number cannot be invited now."""
    check = await confirm_password(database, requester, password)
    if check is not PasswordCheck.RIGHT:
        return check
    text = await _NewText.make(requester.address)
    account_id = requester.account_id
    async with database.transaction() as connection:
        await invites.lock_invites(connection)
        await lock_as_owner(connection, requester)
        members = await people.list_members(connection, account_id)
        waiting = await invites.list_open(connection, account_id)
        if any(one.phone == phone for one in members):
            raise FieldError("phone", _("This person is already in the account."))
        if any(one.phone == phone for one in waiting):
            raise FieldError("phone", _("This number is already invited. Send the invitation again below."))
        if len(members) + len(waiting) >= PEOPLE_MAX:
            raise FieldError(
                "", _("An account has at most {count} people and invitations.").format(count=PEOPLE_MAX)
            )
        await _check_limits(connection, requester, phone, "phone")
        invite_id = new_id(int((await clock.read_now(connection)).timestamp() * 1000))
        await invites.insert(
            connection,
            invite_id,
            account_id,
            phone=phone,
            role=role,
            token_sha256=hash_token(text.token),
            code_hash=text.code_hash,
            invited_by=requester.principal.id,
        )
        await _send(connection, requester, invite_id, text, public_url)
        await audit_log.record(
            connection, account_id, requester.actor, "person invited", f"{_short(phone)}, {role}"
        )
    return check


async def send_again(database: Database, requester: Requester, invite_id: UUID, public_url: str) -> bool:
    """Send an invitation again, with another link and code; False if it is no longer open."""
    text = await _NewText.make(requester.address)
    async with database.transaction() as connection:
        await invites.lock_invites(connection)
        await lock_as_owner(connection, requester)
        found = await invites.find(connection, requester.account_id, invite_id)
        if found is None:
            return False
        await _check_limits(connection, requester, found.phone)
        await invites.renew(
            connection,
            invite_id,
            token_sha256=hash_token(text.token),
            code_hash=text.code_hash,
            invited_by=requester.principal.id,
        )
        await _send(connection, requester, invite_id, text, public_url)
        await audit_log.record(
            connection, found.account_id, requester.actor, "invitation sent again", _short(found.phone)
        )
    return True


async def revoke(database: Database, requester: Requester, invite_id: UUID) -> bool:
    """Revoke an invitation at once; False if it is no longer open."""
    async with database.transaction() as connection:
        await lock_as_owner(connection, requester)
        found = await invites.find(connection, requester.account_id, invite_id)
        if found is None or not await invites.mark_revoked(connection, invite_id):
            return False
        await audit_log.record(
            connection, found.account_id, requester.actor, "invitation revoked", _short(found.phone)
        )
    return True


async def _check_limits(connection: Connection, requester: Requester, phone: str, field: str = "") -> None:
    sent = await invites.read_sent(connection, requester.account_id, phone)
    if sent.of_account >= PER_ACCOUNT_DAY_MAX:
        raise FieldError(
            "",
            _("You sent {count} invitations today, which is the limit. Try again tomorrow.").format(
                count=PER_ACCOUNT_DAY_MAX
            ),
        )
    if sent.of_number >= PER_NUMBER_DAY_MAX:
        raise FieldError(
            field,
            _("This number got {count} invitations today, which is the limit. Try again tomorrow.").format(
                count=PER_NUMBER_DAY_MAX
            ),
        )
    if sent.last_at is not None and sent.now - sent.last_at < BETWEEN:
        wait = code_rules.in_words(BETWEEN - (sent.now - sent.last_at))
        raise FieldError(field, _("The invitation was sent just now. Try again in {time}.").format(time=wait))


@dataclass(frozen=True, slots=True)
class _NewText:
    """The secrets of an invitation, which stand in its text and nowhere else."""

    token: str
    code: str
    code_hash: str

    @classmethod
    async def make(cls, address: str) -> "_NewText":
        code = code_rules.new_code()
        # Short, for a text message; with the code it cannot be guessed.
        return cls(secrets.token_urlsafe(16), code, await hash_secret(code, address))


async def _send(
    connection: Connection, requester: Requester, invite_id: UUID, text: _NewText, public_url: str
) -> None:
    found = await invites.find(connection, requester.account_id, invite_id)
    assert found is not None
    words = _(
        "Tumira: {name} invites you to {business} as {role}. Open {link} and enter the code {code}. Valid "
        "for {days} days. Not expected? Ignore this."
    )
    await send_text(
        connection,
        found.phone,
        words.format(
            name=_plain(requester.name),
            business=_plain(found.business),
            role=_(ROLE_NAMES[found.role]).lower(),
            link=f"{public_url}/dashboard/join/{text.token}",
            code=text.code,
            days=LIFETIME.days,
        ),
    )


def _plain(name: str) -> str:
    """Return a name as it may stand in a text from us: no address of a page, and nothing like a code."""
    kept = "".join(one if one.isalpha() or one in " '-&" else " " for one in name)
    return " ".join(kept.split())[:NAME_MAX].strip() or _("A colleague")


def _short(phone: str) -> str:
    """Return what the history says of a number."""
    return f"number ending in {phone[-3:]}"


async def find_invite(database: Database, token: str) -> tuple[Invite, Login | None] | None:
    """Return the open invitation of a link, with the login of its number; None once it has ended."""
    async with database.connection() as connection:
        found = await invites.find_by_token(connection, hash_token(token))
        if found is None:
            return None
        return found, await logins.find(connection, PrincipalKind.CUSTOMER, found.phone)


async def join(
    database: Database, browser: Browser, *, token: str, code: str, name: str, password: str
) -> SignedIn | SecondFactorRequired | Mismatch | WrongPassword | TooManyAttempts | None:
    """Accept an invitation and sign in; None once it has ended.

    A person who signs in with this number already gives their password; others choose one, and their name.
    """
    begun = await find_invite(database, token)
    if begun is None:
        return None
    found, login = begun
    # As for other codes, the attempt is committed before the code is compared.
    async with database.transaction() as connection:
        tried = await invites.take_attempt(connection, found.id)
    if tried is None:
        return Mismatch(0)
    code_hash, left = tried
    if not await matches(code, code_hash, browser.address):
        return Mismatch(left)
    known_hash = _known_hash(login)
    if login is not None and known_hash is not None:
        async with database.transaction() as connection:
            wait = await throttle.take(connection, AttemptKind.PASSWORD, login.principal.subject, browser)
        if wait is not None:
            return TooManyAttempts(wait)
        if not await matches(password, known_hash, browser.address):
            return WrongPassword()
        password_hash = known_hash
    else:
        password_hash = await hash_secret(password, browser.address)
    async with database.transaction() as connection:
        # A login that was made, or a password that was changed, since then is not overwritten.
        login = await logins.find(connection, PrincipalKind.CUSTOMER, found.phone)
        if login is not None:
            await logins.lock(connection, login.principal)
            login = await logins.find(connection, PrincipalKind.CUSTOMER, found.phone)
        if _known_hash(login) != known_hash:
            return WrongPassword()
        if not await invites.mark_accepted(connection, found.id):
            return None
        await _add(connection, browser, found, login, name, password_hash)
        login = await logins.find(connection, PrincipalKind.CUSTOMER, found.phone)
        assert login is not None
        result = await accept(connection, browser, login)
    # Nobody is let into an account that was closed meanwhile.
    return result if isinstance(result, SignedIn | SecondFactorRequired) else None


def _known_hash(login: Login | None) -> str | None:
    """Return the password that a person is asked for; None for one who chooses a password."""
    return None if login is None or login.is_free else login.password_hash


def is_known(login: Login | None) -> bool:
    """Tell whether a person signs in with this number already."""
    return _known_hash(login) is not None


async def _add(
    connection: Connection,
    browser: Browser,
    found: Invite,
    login: Login | None,
    name: str,
    password_hash: str,
) -> None:
    if login is not None and is_known(login):
        principal, name = login.principal, login.name
        await logins.mark_proved(connection, principal.id)
    else:
        made = new_id(int((await clock.read_now(connection)).timestamp() * 1000))
        person_id = await people.insert_person(connection, made, found.phone, name)
        principal = Principal(PrincipalKind.CUSTOMER, person_id, found.phone)
        await forget_login(connection, principal)
        await logins.insert(connection, principal, None, password_hash, phone_proved=True)
    await people.insert_member(connection, found.account_id, principal.id, found.role)
    actor = Actor(name, browser.address, principal.id)
    detail = f"{name}, {found.role}"
    await notify_owner.note_owners(connection, found.account_id, actor, "person joined", detail)
