"""Notices to the owner of an account, or to an operator, when what guards their access has changed.

A notice goes out by text message and e-mail, if an address is known, in the transaction that makes the
change. It says what was changed and what to do about it. It holds no secret, no text of another person, and
nothing that looks like a code.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tumira import audit_log
from tumira.accounts import notice_counts
from tumira.accounts import store as accounts
from tumira.audit_log import OWNER, Actor
from tumira.core.days import local_time
from tumira.core.ids import new_id
from tumira.core.settings.support import NO_SUPPORT, Support
from tumira.core.translation import _, mark
from tumira.identity.principal import Principal, PrincipalKind
from tumira.identity.store import logins
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
    PrincipalKind.ACCOUNT: {
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
    """Record a change of a principal's access, and notify them; see `tell`."""
    if principal.kind is PrincipalKind.OPERATOR:
        await audit_log.record_by_operator(connection, actor, what, detail)
    else:
        await audit_log.record(connection, principal.account_id, actor, what, detail)
    await tell(connection, principal, actor, what, old_email=old_email, support=support)


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
    by_owner = actor.name == OWNER
    if principal.kind is PrincipalKind.ACCOUNT:
        account = await accounts.find(connection, principal.account_id)
        contact = await logins.find_contact(connection, principal.account_id)
        # An account that the operator opened gets its keys from the operator until its owner has a password.
        if account is None or account.closed_at is not None or contact is None:
            return
        email = contact.email
        if not by_owner:
            happened, advice = _(_BY_SUPPORT).format(happened=happened), _(_NOT_ASKED)
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
            _mail(happened, advice.format(support=support.name), now, actor.address if by_owner else None),
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
