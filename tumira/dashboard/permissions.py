"""Which permission each route of the dashboard needs: the one table, by method and path.

A route that is not in the table stops the start, and so does a row without a route.
`tests/dashboard/access/test_roles.py` walks all roles over all rows; `docs/permissions.md` is made from it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from starlette.routing import Route

from tumira.identity.roles import PERMISSIONS, MemberRole, Permission

READ: Final = Permission.READ
SEND: Final = Permission.SEND
MONEY: Final = Permission.MONEY
DEVELOP: Final = Permission.DEVELOP
OWN: Final = Permission.OWN
# Needs no session.
PUBLIC: Final = None

ROUTES: Final[Mapping[str, Permission | None]] = {
    "GET /": PUBLIC,
    "GET /contact": PUBLIC,
    "GET /content-policy": PUBLIC,
    "GET /terms": PUBLIC,
    "GET /privacy": PUBLIC,
    # From the sign-up to the session.
    "GET /dashboard/sign-up": PUBLIC,
    "POST /dashboard/sign-up": PUBLIC,
    "GET /dashboard/verify": PUBLIC,
    "POST /dashboard/verify": PUBLIC,
    "POST /dashboard/verify/again": PUBLIC,
    "POST /dashboard/verify/start": PUBLIC,
    "GET /dashboard/sign-in": PUBLIC,
    "POST /dashboard/sign-in": PUBLIC,
    "GET /dashboard/sign-in/code": PUBLIC,
    "POST /dashboard/sign-in/code": PUBLIC,
    "POST /dashboard/sign-out": PUBLIC,
    "GET /dashboard/forgotten": PUBLIC,
    "POST /dashboard/forgotten": PUBLIC,
    "GET /dashboard/new-password": PUBLIC,
    "POST /dashboard/new-password": PUBLIC,
    "POST /dashboard/new-password/again": PUBLIC,
    "GET /dashboard/join/{token}": PUBLIC,
    "POST /dashboard/join/{token}": PUBLIC,
    # The overview and what was sent.
    "GET /dashboard": READ,
    "POST /dashboard/hide-steps": READ,
    "GET /dashboard/balance/now": READ,
    "GET /dashboard/health": READ,
    "GET /dashboard/batches": READ,
    "GET /dashboard/batches.csv": READ,
    "GET /dashboard/batches/{id}": READ,
    "GET /dashboard/batches/{id}/progress": READ,
    "GET /dashboard/batches/{id}/messages.csv": READ,
    "GET /dashboard/batches/{id}/resend": SEND,
    "POST /dashboard/batches/{id}/resend": SEND,
    "GET /dashboard/messages/{id}": READ,
    "GET /dashboard/replies": READ,
    "GET /dashboard/replies.csv": READ,
    "GET /dashboard/replies/{number}": READ,
    "GET /dashboard/opt-outs": READ,
    "GET /dashboard/opt-outs.csv": READ,
    "POST /dashboard/opt-outs": SEND,
    "POST /dashboard/opt-outs/import": SEND,
    "POST /dashboard/opt-outs/remove": SEND,
    # Compose and upload.
    "GET /dashboard/compose": SEND,
    "POST /dashboard/compose": SEND,
    "GET /dashboard/compose/confirm": SEND,
    "POST /dashboard/compose/confirm": SEND,
    "POST /dashboard/compose/check": SEND,
    "GET /dashboard/compose/review": SEND,
    "POST /dashboard/compose/review": SEND,
    "GET /dashboard/upload": SEND,
    "POST /dashboard/upload": SEND,
    "GET /dashboard/upload/sample.csv": SEND,
    "GET /dashboard/upload/sample.xlsx": SEND,
    "GET /dashboard/upload/text": SEND,
    "POST /dashboard/upload/text": SEND,
    "GET /dashboard/upload/review": SEND,
    "POST /dashboard/upload/review": SEND,
    "GET /dashboard/upload/{id}": READ,
    "GET /dashboard/upload/{id}/progress": READ,
    "GET /dashboard/upload/{id}/bad-rows.csv": READ,
    "GET /dashboard/upload/{id}/messages.csv": READ,
    "GET /dashboard/upload/{id}/send": SEND,
    "POST /dashboard/upload/{id}/send": SEND,
    "POST /dashboard/upload/{id}/schedule": SEND,
    "GET /dashboard/scheduled": READ,
    "POST /dashboard/scheduled/time-zone": SEND,
    "GET /dashboard/scheduled/{id}": READ,
    "GET /dashboard/scheduled/{id}/edit": SEND,
    "POST /dashboard/scheduled/{id}/edit": SEND,
    "POST /dashboard/scheduled/{id}/time": SEND,
    "POST /dashboard/scheduled/{id}/cancel": SEND,
    "POST /dashboard/scheduled/{id}/approve": SEND,
    "POST /dashboard/scheduled/{id}/decline": SEND,
    "POST /dashboard/upload/{id}/resend": SEND,
    "GET /dashboard/settings/refusals/{digest}": SEND,
    "POST /dashboard/settings/refusals/{digest}": SEND,
    "GET /dashboard/approvals": SEND,
    "POST /dashboard/approvals": OWN,
    "GET /dashboard/approvals/{id}": SEND,
    "POST /dashboard/approvals/{id}/approve": SEND,
    "POST /dashboard/approvals/{id}/decline": SEND,
    "POST /dashboard/approvals/{id}/withdraw": SEND,
    # Lists and saved texts.
    "GET /dashboard/lists": READ,
    "POST /dashboard/lists": SEND,
    "GET /dashboard/lists/{id}": READ,
    "GET /dashboard/lists/{id}/contacts.csv": READ,
    "POST /dashboard/lists/{id}/contacts": SEND,
    "GET /dashboard/lists/{id}/contacts/{number}": SEND,
    "POST /dashboard/lists/{id}/contacts/{number}": SEND,
    "POST /dashboard/lists/{id}/contacts/{number}/remove": SEND,
    "POST /dashboard/lists/{id}/import": SEND,
    "GET /dashboard/lists/{id}/settings": SEND,
    "POST /dashboard/lists/{id}/rename": SEND,
    "POST /dashboard/lists/{id}/columns": SEND,
    "POST /dashboard/lists/{id}/columns/rename": SEND,
    "POST /dashboard/lists/{id}/columns/remove": SEND,
    "POST /dashboard/lists/{id}/delete": SEND,
    "GET /dashboard/texts": READ,
    "POST /dashboard/texts": SEND,
    "GET /dashboard/texts/new": SEND,
    "GET /dashboard/texts/review": SEND,
    "POST /dashboard/texts/review": SEND,
    "GET /dashboard/texts/{id}": SEND,
    "POST /dashboard/texts/{id}": SEND,
    "POST /dashboard/texts/{id}/delete": SEND,
    # Money.
    "GET /dashboard/top-up": MONEY,
    "GET /dashboard/top-up/wallet": MONEY,
    "POST /dashboard/top-up/wallet": MONEY,
    "GET /dashboard/top-up/usdt": MONEY,
    "POST /dashboard/top-up/usdt": MONEY,
    "GET /dashboard/top-up/usdt/deposits": MONEY,
    "GET /dashboard/top-up/voucher": MONEY,
    "POST /dashboard/top-up/voucher": MONEY,
    "GET /dashboard/top-up/{id}": MONEY,
    "GET /dashboard/top-up/{id}/progress": MONEY,
    "POST /dashboard/top-up/{id}/noted": MONEY,
    "GET /dashboard/top-up/{id}/receipt": MONEY,
    "GET /dashboard/ledger": MONEY,
    "GET /dashboard/ledger.csv": MONEY,
    "GET /dashboard/ledger/{entry}/receipt": MONEY,
    "GET /dashboard/papers": MONEY,
    "GET /dashboard/papers/{number}": MONEY,
    "GET /dashboard/papers/{number}.pdf": MONEY,
    "GET /dashboard/papers/statements/{month}": MONEY,
    "GET /dashboard/papers/statements/{month}.pdf": MONEY,
    "GET /dashboard/papers/statements/{month}.csv": MONEY,
    "GET /dashboard/settings/billing": MONEY,
    "POST /dashboard/settings/billing": MONEY,
    # Programs.
    "GET /dashboard/keys": DEVELOP,
    "POST /dashboard/keys": DEVELOP,
    "GET /dashboard/keys/{id}/revoke": DEVELOP,
    "POST /dashboard/keys/{id}/revoke": DEVELOP,
    "GET /dashboard/webhooks": DEVELOP,
    "POST /dashboard/webhooks": DEVELOP,
    "GET /dashboard/webhooks/{id}": DEVELOP,
    "POST /dashboard/webhooks/{id}/change": DEVELOP,
    "POST /dashboard/webhooks/{id}/pause": DEVELOP,
    "POST /dashboard/webhooks/{id}/resume": DEVELOP,
    "POST /dashboard/webhooks/{id}/resume-from-now": DEVELOP,
    "POST /dashboard/webhooks/{id}/rotate": DEVELOP,
    "POST /dashboard/webhooks/{id}/test": DEVELOP,
    "POST /dashboard/webhooks/{id}/test-and-resume": DEVELOP,
    "POST /dashboard/webhooks/{id}/replay": DEVELOP,
    "POST /dashboard/webhooks/{id}/replay/{event}": DEVELOP,
    "POST /dashboard/webhooks/{id}/remove": DEVELOP,
    "GET /dashboard/webhooks/{id}/attempts/{attempt}": DEVELOP,
    "POST /dashboard/settings/lifetimes": DEVELOP,
    "GET /dashboard/settings/passcodes": DEVELOP,
    "POST /dashboard/settings/passcodes": DEVELOP,
    "POST /dashboard/settings/passcodes/lift": DEVELOP,
    "POST /dashboard/settings/passcodes/guard": DEVELOP,
    # Everybody's own login.
    "GET /dashboard/settings": READ,
    "POST /dashboard/settings/name": READ,
    "POST /dashboard/settings/email": READ,
    "POST /dashboard/settings/password": READ,
    "POST /dashboard/settings/sessions/others": READ,
    "POST /dashboard/settings/sessions/{id}": READ,
    "GET /dashboard/settings/second-factor": READ,
    "POST /dashboard/settings/second-factor": READ,
    "POST /dashboard/settings/second-factor/confirm": READ,
    "POST /dashboard/settings/second-factor/off": READ,
    "GET /dashboard/accounts": READ,
    "POST /dashboard/accounts": READ,
    "GET /dashboard/people": READ,
    "GET /dashboard/people/leave": READ,
    "POST /dashboard/people/leave": READ,
    # The account.
    "POST /dashboard/people": OWN,
    "POST /dashboard/people/invites/{id}/again": OWN,
    "POST /dashboard/people/invites/{id}/revoke": OWN,
    "GET /dashboard/people/{id}": OWN,
    "POST /dashboard/people/{id}/role": OWN,
    "POST /dashboard/people/{id}/remove": OWN,
    "GET /dashboard/sender-names": READ,
    "POST /dashboard/sender-names": OWN,
    "POST /dashboard/sender-names/check": OWN,
    "POST /dashboard/settings/profile": OWN,
    "POST /dashboard/settings/limits": OWN,
    "POST /dashboard/settings/notice": OWN,
    "POST /dashboard/settings/close": OWN,
    "GET /dashboard/settings/changes": OWN,
}

# Forms that ask for the password again: who finds a browser that is signed in must not get further with it.
ASKS_PASSWORD: Final = frozenset(
    {
        "POST /dashboard/approvals",
        "POST /dashboard/keys",
        "POST /dashboard/webhooks",
        # For another URL.
        "POST /dashboard/webhooks/{id}/change",
        "POST /dashboard/webhooks/{id}/rotate",
        "POST /dashboard/settings/email",
        "POST /dashboard/settings/password",
        "POST /dashboard/settings/second-factor",
        "POST /dashboard/settings/second-factor/off",
        "POST /dashboard/people/leave",
        "POST /dashboard/people",
        "POST /dashboard/people/{id}/role",
        "POST /dashboard/people/{id}/remove",
        "POST /dashboard/settings/limits",
        "POST /dashboard/settings/close",
    }
)


class PrivateRoute(Route):
    """A route that checks the session and its role."""


def needed_for(method: str, path: str) -> Permission | None:
    """Return what a route needs; raise if the table does not name it."""
    route = f"{method} {path}"
    if route not in ROUTES:
        raise RuntimeError(f"{route} is not in tumira/dashboard/permissions.py")
    return ROUTES[route]


def allows(role: MemberRole, route: str) -> bool:
    """Tell whether a role may use a route, written as in the table."""
    needed = ROUTES[route]
    return needed is None or needed in PERMISSIONS[role]


def check_table(routes: Iterable[Route]) -> None:
    """Raise if a route is not in the table, is open although it needs a permission, or does not exist."""
    served = {
        f"{method} {one.path}": isinstance(one, PrivateRoute)
        for one in routes
        for method in one.methods or ()
        if method != "HEAD"
    }
    expected = {route: needed is not PUBLIC for route, needed in ROUTES.items()}
    wrong = sorted(name for name, _private in served.items() ^ expected.items())
    if wrong:
        raise RuntimeError(f"not as in tumira/dashboard/permissions.py: {', '.join(dict.fromkeys(wrong))}")
