"""The session of a customer, and the routes that need one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.audit_log import Actor
from tumira.core.dns import Resolve, Resolver
from tumira.core.ids import AccountId
from tumira.delivery.manage_carriers import list_simulated
from tumira.html.cookies import Cookie
from tumira.html.guards import READING, address_of, refuse_foreign_writes
from tumira.html.redirect import NavItem, current_item, redirect
from tumira.html.sign_in import PageServices, find_signed_in
from tumira.identity.code_rules import CodeLimits
from tumira.identity.reauthenticate import Requester
from tumira.identity.store.sessions import SignedInCustomer
from tumira.postgres.pool import Database
from tumira.sending.batcher import Batcher
from tumira.uploads.check_file import FileChecker

HOME: Final = "/dashboard"
SIGN_IN: Final = "/dashboard/sign-in"
VERIFY: Final = "/dashboard/verify"

# Downloads must not take all connections.
DOWNLOADS_AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True)
class Services(PageServices):
    batcher: Batcher
    checker: FileChecker
    # Leads from the sign-up, or the forgotten password, to the code.
    verification_cookie: Cookie
    # Leads from the password to the second factor.
    pending_cookie: Cookie
    code_limits: CodeLimits
    webhooks_allow_private: bool
    # Finds the addresses that a webhook would be sent to.
    resolve: Resolve = field(default_factory=Resolver)
    downloads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(DOWNLOADS_AT_ONCE))


NAVIGATION: Final = (
    NavItem(HOME, "Overview", "overview"),
    NavItem("/dashboard/compose", "Compose", "compose"),
    NavItem("/dashboard/upload", "Upload", "upload"),
    NavItem("/dashboard/batches", "Batches", "batches"),
    NavItem("/dashboard/keys", "API keys", "keys"),
    NavItem("/dashboard/webhooks", "Webhooks", "webhooks"),
    NavItem("/dashboard/top-up", "Top up", "top-up"),
    NavItem("/dashboard/ledger", "Ledger", "ledger"),
    NavItem("/dashboard/settings", "Settings", "settings"),
)


@dataclass(frozen=True, slots=True)
class CustomerSession:
    """A request of a customer who is signed in."""

    services: Services
    request: Request
    customer: SignedInCustomer
    # The names of the countries whose messages reach a simulator and no phone.
    simulated: Sequence[str]

    @property
    def database(self) -> Database:
        return self.services.database

    @property
    def account_id(self) -> AccountId:
        return self.customer.account_id

    @property
    def requester(self) -> Requester:
        """Return who changes their own account, and may have to enter the password again."""
        return Requester(self.customer.principal, address_of(self.request))

    @property
    def actor(self) -> Actor:
        """Return who changes something, for the history of changes."""
        return self.requester.actor

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        return self.services.templates.page(
            template,
            status,
            customer=self.customer,
            simulated=self.simulated,
            navigation=NAVIGATION,
            here=_here(self.request.url.path),
            **values,
        )


def _here(path: str) -> str:
    """Return the entry of the navigation under which a page stands."""
    if path.startswith("/dashboard/messages/"):
        return "/dashboard/batches"
    return current_item(path, NAVIGATION)


Private = Callable[[CustomerSession], Awaitable[Response]]


def private(services: Services, path: str, handle: Private, *methods: str) -> Route:
    """Route a page for customers who are signed in; others are asked to sign in first.

    A customer who has not verified the phone number reads pages and changes nothing: a key or a second
    factor would outlive the day on which the number's owner signs up.
    """

    async def answer(request: Request) -> Response:
        refuse_foreign_writes(request, services.public_url)
        customer = await find_customer(services, request)
        if customer is None:
            return _ask_to_sign_in(request)
        if request.method not in READING and not customer.phone_proved:
            return redirect(VERIFY)
        simulated = await list_simulated(services.database)
        return await handle(CustomerSession(services, request, customer, list(simulated.values())))

    return Route(path, answer, methods=methods or ("GET",))


async def find_customer(services: Services, request: Request) -> SignedInCustomer | None:
    return await find_signed_in(services, request, SignedInCustomer)


def _ask_to_sign_in(request: Request) -> Response:
    # What was typed cannot be kept without a session, but its page is shown again after the sign-in.
    onward = request.url.path if request.method == "GET" else _here(request.url.path)
    if request.method == "GET" and request.url.query:
        onward += f"?{request.url.query}"
    return redirect(SIGN_IN if onward == HOME else f"{SIGN_IN}?{urlencode({'next': onward})}")
