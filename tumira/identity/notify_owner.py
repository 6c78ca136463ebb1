"""Notices to people and operators when what guards their access, or their account, has changed.

A notice goes out by text message and e-mail, if an address is known, in the transaction that makes the
change. It says what was changed and what to do about it. It holds no secret, no text of another person, and
nothing that looks like a code.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tumira import audit_log
from tumira.accounts import notice_counts
from tumira.audit_log import Actor
from tumira.core.days import local_time
from tumira.core.ids import AccountId, new_id
from tumira.core.settings.support import NO_SUPPORT, Support
from tumira.core.translation import _, mark
from tumira.identity.principal import Principal, PrincipalKind
from tumira.identity.store import logins, people
from tumira.mail import outbox
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.sending.system_text import send_text

# About each kind of change, to each account or operator. More would let anyone at a signed-in browser send
# messages at our expense. The last notice says that it is the last.
NOTICES_A_DAY: Final = 5
MAIL_LIFETIME: Final = timedelta(days=1)

_LAST: Final = mark("You get no more notices about this today.")
_NOT_YOU: Final = mark("If this was not you, {advice}.")
_NOT_EXPECTED: Final = mark("If you did not expect this, {advice}.")
_NOT_ASKED: Final = mark("If you did not ask for this, contact {support} at once.")
_BY_SUPPORT: Final = mark("{happened} by support")
_CHANGE_PASSWORD: Final = mark("change your password")
_CONTACT_SUPPORT: Final = mark("contact {support} at once")
_TELL_OPERATORS: Final = mark("tell the other operators at once")


@dataclass(frozen=True, slots=True)
class Notice:
    """What happened, and what to do if the reader did not do it; each kind has a limit of its own."""

    kind: str
    happened: str
    advice: str = _CHANGE_PASSWORD


# By the change's name in the audit log.
NOTICES: Final = {
    PrincipalKind.CUSTOMER: {
        "password changed": Notice(
            "password",
            mark("Your password was changed"),
            mark("choose a new password: use the link for a forgotten password on the sign-in page"),
        ),
        "second factor turned on": Notice(
            "second factor", mark("A second factor was turned on for your account"), _CONTACT_SUPPORT
        ),
        "second factor turned off": Notice(
            "second factor", mark("The second factor of your account was turned off")
        ),
        "recovery code used": Notice("second factor", mark("A recovery code of your account was used")),
        "email changed": Notice("email", mark("The email address of your account was changed")),
        "email removed": Notice("email", mark("The email address of your account was removed")),
        "key created": Notice(
            "keys",
            mark("An API key was created for your account"),
            mark("revoke it under API keys and change your password"),
        ),
        "key revoked": Notice("keys", mark("An API key of your account was revoked")),
        "person joined": Notice(
            "people",
            mark("A person has joined your account"),
            mark("remove them under People and change your password"),
        ),
        "role changed": Notice("people", mark("The role of a person in your account was changed")),
        "person removed": Notice("people", mark("A person was removed from your account")),
        "person left": Notice("people", mark("A person has left your account")),
        "approval rule changed": Notice(
            "approval", mark("The rule for approving large sends of your account was changed")
        ),
    },
    PrincipalKind.OPERATOR: {
        "operator's password reset": Notice(
            "password", mark("Your operator password was reset"), _TELL_OPERATORS
        ),
        "operator chose a password and a second factor": Notice(
            "password",
            mark("A password and a second factor were set for your operator sign-in"),
            _TELL_OPERATORS,
        ),
        "recovery code used": Notice(
            "second factor", mark("A recovery code of your operator sign-in was used"), _TELL_OPERATORS
        ),
        "operator removed": Notice("password", mark("Your operator access was removed"), _TELL_OPERATORS),
    },
}


async def note(
    connection: Connection,
    principal: Principal,
    actor: Actor,
    what: str,
    detail: str = "",
    *,
    old_email: str | None = None,
    support: Support = NO_SUPPORT,
) -> None:
    """Record a change of a principal's access, and notify them; see `tell`.

    It is in the history of every account that a person belongs to.
    """
    if principal.kind is PrincipalKind.OPERATOR:
        await audit_log.record_by_operator(connection, actor, what, detail)
    else:
        for one in await people.list_accounts(connection, principal.id):
            await audit_log.record(connection, one.account_id, actor, what, detail)
    await tell(connection, principal, actor, what, old_email=old_email, support=support)


async def note_owners(
    connection: Connection,
    account_id: AccountId,
    actor: Actor,
    what: str,
    detail: str = "",
    *,
    support: Support = NO_SUPPORT,
) -> None:
    """Record a change of an account's access, and notify its owners."""
    await audit_log.record(connection, account_id, actor, what, detail)
    for owner in await people.list_owners(connection, account_id):
        await tell(connection, owner.principal, actor, what, support=support)


async def tell(
    connection: Connection,
    principal: Principal,
    actor: Actor,
    what: str,
    *,
    old_email: str | None = None,
    support: Support = NO_SUPPORT,
) -> None:
    """Notify a principal of a change; `old_email` is the address before it.

    `support` is needed where the notice says to contact support: about what operators do, and about a second
    factor that locks the owner out. An operator gets a text message alone: no e-mail address is known.
    """
    notice = NOTICES[principal.kind][what]
    happened, email = _(notice.happened), None
    advice = _(_NOT_YOU).format(advice=_(notice.advice))
    if principal.kind is PrincipalKind.CUSTOMER:
        contact = await logins.find_contact(connection, principal.id)
        # An account that the operator opened gets its keys from the operator until its owner has a password.
        if contact is None or not await people.list_accounts(connection, principal.id):
            return
        email = contact.email
        if actor.person_id is None:
            happened, advice = _(_BY_SUPPORT).format(happened=happened), _(_NOT_ASKED)
        elif actor.person_id != principal.id:
            advice = _(_NOT_EXPECTED).format(advice=_(notice.advice))
    count = await notice_counts.take(connection, principal.id, notice.kind)
    if count > NOTICES_A_DAY:
        return
    if count == NOTICES_A_DAY:
        advice = f"{advice} {_(_LAST)}"
    text = f"Tumira: {happened}. {advice}".format(support=support.short_name)
    await send_text(connection, principal.phone, text)
    now = await clock.read_now(connection)
    for address in dict.fromkeys(one for one in (email, old_email) if one is not None):
        await outbox.insert(
            connection,
            new_id(int(now.timestamp() * 1000)),
            address,
            f"Tumira: {happened}",
            _mail(
                happened,
                advice.format(support=support.name),
                now,
                None if actor.person_id is None else actor.address,
            ),
            now + MAIL_LIFETIME,
        )


def _mail(happened: str, advice: str, at: datetime, address: str | None) -> str:
    lines = [
        f"{happened}.",
        "",
        _("When: {time}").format(time=f"{local_time(at):%-d %B %Y, %H:%M} (UTC+02:00)"),
    ]
    if address is not None:
        lines.append(_("From: {address}").format(address=address))
    lines += [
        "",
        advice,
        "",
        _("The dashboard lists all changes to your account: Settings, History of changes."),
        "",
    ]
    return "\n".join(lines)
