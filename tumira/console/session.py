"""The session of an operator; a viewer reads everything, an admin changes things too."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.audit_log import Actor
from tumira.carriers.manage import list_simulated
from tumira.core.settings.seller import NO_SELLER, Seller
from tumira.core.translation import _, mark
from tumira.html.forms import FormRefused
from tumira.html.guards import address_of, refuse_foreign_writes
from tumira.html.redirect import NavItem, current_item, redirect
from tumira.html.sign_in import PageServices, find_signed_in
from tumira.identity.store.sessions import SignedInOperator
from tumira.papers.issue import PaperIssuer
from tumira.postgres.pool import Database

HOME: Final = "/operator"
SIGN_IN: Final = "/operator/sign-in"
# Downloads must not take all connections.
DOWNLOADS_AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True)
class ConsoleServices(PageServices):
    # The directory of the embedded database, whose disk may fill up.
    data_dir: Path | None = None
    # The proxy for calls to carriers.
    carrier_proxy: str | None = None
    # Whose name stands on papers.
    seller: Seller = NO_SELLER
    downloads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(DOWNLOADS_AT_ONCE))

    @property
    def issuer(self) -> PaperIssuer:
        return PaperIssuer(self.seller, self.public_url)


Services = ConsoleServices

_NOTHING: Final[Mapping[str, str]] = {}
_NOT_REFUSED: Final = FormRefused({}, status=200)


# Places by group, each with its icon.
NAVIGATION: Final = (
    (
        mark("Daily work"),
        (
            NavItem(HOME, mark("Start"), "home"),
            NavItem("/operator/messages", mark("Messages"), "mail"),
            NavItem("/operator/accounts", mark("Accounts"), "people"),
        ),
    ),
    (
        mark("Money"),
        (
            NavItem("/operator/money", mark("Money"), "money"),
            NavItem("/operator/top-ups", mark("Top-ups"), "top-up"),
            NavItem("/operator/vouchers", mark("Vouchers"), "voucher"),
            NavItem("/operator/prices", mark("Prices"), "prices"),
            NavItem("/operator/margin", mark("Margin"), "margin"),
            NavItem("/operator/papers", mark("Papers"), "ledger"),
        ),
    ),
    (
        mark("Delivery"),
        (
            NavItem("/operator/traffic", mark("Traffic"), "traffic"),
            NavItem("/operator/carriers", mark("Carriers"), "carriers"),
            NavItem("/operator/routes", mark("Routes"), "routes"),
            NavItem("/operator/receipts", mark("Receipts"), "receipts"),
            NavItem("/operator/replies", mark("Replies"), "replies"),
            NavItem("/operator/webhooks", mark("Webhooks"), "webhooks"),
        ),
    ),
    (
        mark("Gateway"),
        (
            NavItem("/operator/content", mark("Content"), "shield"),
            NavItem("/operator/sender-names", mark("Sender names"), "sender"),
            NavItem("/operator/system", mark("System"), "system"),
            NavItem("/operator/changes", mark("Changes"), "changes"),
        ),
    ),
)
PLACES: Final = tuple(place for _name, places in NAVIGATION for place in places)


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
        return self.operator.is_admin

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
        said = done.get(self.request.query_params.get("done", ""))
        return self.services.templates.page(
            template,
            refused.status,
            operator=self.operator,
            simulated=self.simulated,
            may_change=self.may_change,
            navigation=NAVIGATION,
            here=current_item(self.request.url.path, PLACES),
            faults=refused.faults,
            filled=defaultdict(str, {**filled, **refused.filled}),
            done=said and _(said),
            **values,
        )


Private = Callable[[OperatorSession], Awaitable[Response]]


def page(
    services: Services, path: str, show: Private, forms: Mapping[str, Private] | None = None
) -> Sequence[Route]:
    """Route a page for operators, and its forms, by the ends of their addresses, for admins.

    A form that is refused is shown again on the page.
    """

    def route(path: str, method: str, handle: Private) -> Route:
        async def answer(request: Request) -> Response:
            refuse_foreign_writes(request, services.public_url)
            operator = await find_signed_in(services, request, SignedInOperator)
            if operator is None:
                return redirect(SIGN_IN)
            simulated = await list_simulated(services.database)
            session = OperatorSession(services, request, operator, list(simulated.values()))
            if method == "POST" and not session.may_change:
                raise HTTPException(
                    403, _("As a viewer you can read everything but change nothing. Ask an admin")
                )
            try:
                return await handle(session)
            except FormRefused as refused:
                return await show(replace(session, refused=refused))

        return Route(path, answer, methods=(method,))

    return [
        route(path, "GET", show),
        *(route(path + end, "POST", handle) for end, handle in (forms or {}).items()),
    ]
