"""The session of an operator; a viewer reads everything, an admin changes things too."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.audit_log import Actor
from tumira.core.settings.payments import Payments
from tumira.delivery.manage_carriers import list_simulated
from tumira.html.cookies import Cookie
from tumira.html.forms import FormRefused
from tumira.html.guards import address_of, refuse_foreign_writes
from tumira.html.page import Templates
from tumira.html.redirect import NavItem, current_item, redirect
from tumira.identity.principal import PrincipalKind
from tumira.identity.send_codes import hash_token
from tumira.identity.store import sessions
from tumira.identity.store.operators import Role
from tumira.identity.store.sessions import SignedInOperator, SignInStage
from tumira.postgres.pool import Database

HOME: Final = "/operator"
SIGN_IN: Final = "/operator/sign-in"

_NOTHING: Final[Mapping[str, str]] = {}
_NOT_REFUSED: Final = FormRefused({}, status=200)


@dataclass(frozen=True, slots=True)
class Services:
    database: Database
    templates: Templates
    session_cookie: Cookie
    # Says that an operator has signed in at this browser before; it outlives the session.
    device_cookie: Cookie
    public_url: str
    payments: Payments


NAVIGATION: Final = (
    NavItem(HOME, "Traffic", "overview"),
    NavItem("/operator/carriers", "Carriers", "webhooks"),
    NavItem("/operator/receipts", "Receipts", "batches"),
    NavItem("/operator/accounts", "Accounts", "people"),
    NavItem("/operator/top-ups", "Top-ups", "top-up"),
    NavItem("/operator/prices", "Prices", "coins"),
    NavItem("/operator/content", "Content", "shield"),
    NavItem("/operator/webhooks", "Webhooks", "leave"),
    NavItem("/operator/system", "System", "settings"),
    NavItem("/operator/changes", "Changes", "ledger"),
)


@dataclass(frozen=True, slots=True)
class OperatorSession:
    """One request of an operator who is signed in."""

    services: Services
    request: Request
    operator: SignedInOperator
    # The names of the countries whose messages reach the simulator and no phone.
    simulated: Sequence[str]
    # Why a form of the page is shown again.
    refused: FormRefused = _NOT_REFUSED

    @property
    def database(self) -> Database:
        return self.services.database

    @property
    def may_change(self) -> bool:
        return self.operator.role is Role.ADMIN

    @property
    def actor(self) -> Actor:
        """Return who changes something, for the history of changes."""
        return Actor(f"operator:{self.operator.name}", address_of(self.request))

    def page(
        self,
        template: str,
        *,
        filled: Mapping[str, str] = _NOTHING,
        done: Mapping[str, str] = _NOTHING,
        **values: Any,
    ) -> Response:
        """Show a page: its forms as they were refused or else as `filled` says, and what was done last."""
        refused = self.refused
        return self.services.templates.page(
            template,
            refused.status,
            operator=self.operator,
            simulated=self.simulated,
            may_change=self.may_change,
            navigation=NAVIGATION,
            here=current_item(self.request.url.path, NAVIGATION),
            faults=refused.faults,
            filled=defaultdict(str, {**filled, **refused.filled}),
            done=done.get(self.request.query_params.get("done", "")),
            **values,
        )


Public = Callable[[Services, Request], Awaitable[Response]]
Private = Callable[[OperatorSession], Awaitable[Response]]


def public(services: Services, path: str, handle: Public, *methods: str) -> Route:
    """Route a page that needs no session."""

    async def answer(request: Request) -> Response:
        refuse_foreign_writes(request, services.public_url)
        return await handle(services, request)

    return Route(path, answer, methods=methods or ("GET",))


def page(
    services: Services, path: str, show: Private, forms: Mapping[str, Private] | None = None
) -> Sequence[Route]:
    """Route a page for operators, and its forms, by the ends of their addresses, for admins.

    A form that is refused is shown again on the page.
    """

    def route(path: str, method: str, handle: Private) -> Route:
        async def answer(request: Request) -> Response:
            refuse_foreign_writes(request, services.public_url)
            operator = await find_operator(services, request)
            if operator is None:
                return redirect(SIGN_IN)
            simulated = await list_simulated(services.database)
            session = OperatorSession(services, request, operator, list(simulated.values()))
            if method == "POST" and not session.may_change:
                raise HTTPException(403, "You may look at everything here, and change nothing: ask an admin")
            try:
                return await handle(session)
            except FormRefused as refused:
                return await show(replace(session, refused=refused))

        return Route(path, answer, methods=(method,))

    return [
        route(path, "GET", show),
        *(route(path + end, "POST", handle) for end, handle in (forms or {}).items()),
    ]


async def find_operator(services: Services, request: Request) -> SignedInOperator | None:
    """Return the operator who is signed in, second factor included."""
    token = services.session_cookie.read(request)
    if token is None:
        return None
    async with services.database.connection() as connection:
        operator = await sessions.find_operator(connection, hash_token(token))
        if operator is None or operator.stage is not SignInStage.IN:
            return None
        if operator.is_news:
            await sessions.mark_seen(connection, PrincipalKind.OPERATOR, operator.session_id)
    return operator
