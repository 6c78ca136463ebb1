"""The session of a customer, and the routes that need one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.audit_log import Actor
from tumira.carriers.manage import list_simulated
from tumira.core.dns import Resolve, Resolver
from tumira.core.ids import AccountId
from tumira.core.settings.seller import Seller
from tumira.core.translation import mark
from tumira.dashboard.permissions import PrivateRoute, allows, needed_for
from tumira.html.cookies import Cookie
from tumira.html.guards import READING, address_of, refuse_foreign_writes
from tumira.html.redirect import NavItem, current_item, redirect
from tumira.html.sign_in import PageServices, find_signed_in
from tumira.identity.code_rules import CodeLimits
from tumira.identity.reauthenticate import Requester
from tumira.identity.roles import PERMISSIONS, ROLE_NAMES
from tumira.identity.store import people
from tumira.identity.store.sessions import SignedInCustomer
from tumira.papers.issue import PaperIssuer
from tumira.postgres.pool import Database
from tumira.pricing.destinations import PriceStatus
from tumira.pricing.store import get_tariff
from tumira.sending.batcher import Batcher
from tumira.topups.states import TOP_UP_MIN
from tumira.uploads.check_file import FileChecker

HOME: Final = "/dashboard"
SIGN_IN: Final = "/dashboard/sign-in"
VERIFY: Final = "/dashboard/verify"
TOP_UP: Final = "/dashboard/top-up"
ACCOUNTS: Final = "/dashboard/accounts"
PAPERS: Final = "/dashboard/papers"

# No segment costs as much, so the prices are read only for balances below it.
SEGMENT_PRICE_MAX: Final = Decimal(1)
_CENT: Final = Decimal("0.01")
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
    # None where messages are kept permanently.
    keep_weeks: int | None
    # Whose name stands on receipts.
    seller: Seller
    # Without a mail server no page may say that a mail was sent; templates know it by the same name.
    mail_is_set_up: bool
    # Finds the addresses that a webhook would be sent to.
    resolve: Resolve = field(default_factory=Resolver)
    downloads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(DOWNLOADS_AT_ONCE))

    @property
    def issuer(self) -> PaperIssuer:
        return PaperIssuer(self.seller, self.public_url)


NAVIGATION: Final = (
    NavItem(HOME, mark("Overview"), "overview"),
    NavItem("/dashboard/compose", mark("Compose"), "compose"),
    NavItem("/dashboard/upload", mark("Upload"), "upload"),
    NavItem("/dashboard/lists", mark("Lists"), "lists"),
    NavItem("/dashboard/scheduled", mark("Scheduled"), "clock"),
    NavItem("/dashboard/batches", mark("Batches"), "batches"),
    NavItem("/dashboard/replies", mark("Replies"), "replies"),
    NavItem("/dashboard/sender-names", mark("Sender names"), "sender"),
    NavItem("/dashboard/keys", mark("API keys"), "keys"),
    NavItem("/dashboard/webhooks", mark("Webhooks"), "webhooks"),
    NavItem(TOP_UP, mark("Top up"), "top-up"),
    NavItem("/dashboard/ledger", mark("Ledger"), "ledger"),
    NavItem(PAPERS, mark("Statements"), "receipts"),
    NavItem("/dashboard/people", mark("People"), "people"),
    NavItem("/dashboard/settings", mark("Settings"), "settings"),
)


@dataclass(frozen=True, slots=True)
class CustomerSession:
    """A request of a customer who is signed in."""

    services: Services
    request: Request
    customer: SignedInCustomer
    # The names of the countries whose messages reach a simulator and no phone.
    simulated: Sequence[str]
    # Whether the balance does not buy one segment anywhere.
    is_too_low: bool

    @property
    def database(self) -> Database:
        return self.services.database

    @property
    def account_id(self) -> AccountId:
        return self.customer.account_id

    @property
    def requester(self) -> Requester:
        """Return who changes their account or login, and may have to enter the password again."""
        customer = self.customer
        return Requester(
            customer.principal, customer.account_id, customer.person_name, address_of(self.request)
        )

    @property
    def actor(self) -> Actor:
        """Return who changes something, for the history of changes."""
        return self.requester.actor

    def may(self, route: str) -> bool:
        """Tell whether the person may use a route, such as `GET /dashboard/compose`."""
        return allows(self.customer.role, route)

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        return self.services.templates.page(
            template,
            status,
            customer=self.customer,
            simulated=self.simulated,
            is_too_low=self.is_too_low,
            smallest_top_up=TOP_UP_MIN,
            navigation=[item for item in NAVIGATION if self.may(f"GET {item.path}")],
            may=self.may,
            role_names=ROLE_NAMES,
            here=_here(self.request.url.path),
            **values,
        )


def _here(path: str) -> str:
    """Return the entry of the navigation under which a page stands."""
    if path.startswith("/dashboard/messages/"):
        return "/dashboard/batches"
    if path.startswith("/dashboard/opt-outs"):
        return "/dashboard/replies"
    if path.startswith("/dashboard/approvals"):
        return "/dashboard/people"
    if path.startswith("/dashboard/texts"):
        return "/dashboard/lists"
    return current_item(path, NAVIGATION)


Private = Callable[[CustomerSession], Awaitable[Response]]


def private(services: Services, path: str, handle: Private, *methods: str) -> Route:
    """Route a page for people whose role has the permission in the table; others are asked to sign in first.

    A customer who has not verified the phone number reads pages and changes nothing: a key or a second
    factor would outlive the day on which the number's owner signs up.
    """
    methods = methods or ("GET",)
    needed = {method: needed_for(method, path) for method in methods}
    # Of two methods in one route, only reading answers to HEAD as well.
    needed["HEAD"] = needed.get("GET")

    async def answer(request: Request) -> Response:
        refuse_foreign_writes(request, services.public_url)
        customer = await find_customer(services, request)
        if customer is None:
            return _ask_to_sign_in(request)
        if request.method not in READING and not customer.phone_proved:
            return redirect(VERIFY)
        simulated = await list_simulated(services.database)
        is_too_low = await _is_too_low(services.database, customer.balance)
        session = CustomerSession(services, request, customer, list(simulated.values()), is_too_low)
        if needed[request.method] not in PERMISSIONS[customer.role]:
            return await _forbid(session)
        return await handle(session)

    return PrivateRoute(path, answer, methods=methods)


async def _forbid(session: CustomerSession) -> Response:
    """Say that the role does not allow this, and whom to ask."""
    async with session.database.connection() as connection:
        owners = await people.list_owners(connection, session.account_id)
    return session.page("forbidden.html.jinja", 403, owners=[one.name for one in owners])


async def _is_too_low(database: Database, balance: Decimal) -> bool:
    if balance >= SEGMENT_PRICE_MAX:
        return False
    async with database.connection() as connection:
        tariff = await get_tariff(connection)
    active = (price.price_usd for price in tariff.prices if price.status is PriceStatus.ACTIVE)
    return balance < min(active, default=SEGMENT_PRICE_MAX)


def top_up_path(missing: Decimal) -> str:
    """Return the page to top up, with the missing amount filled in; the smallest top-up at least."""
    return f"{TOP_UP}?amount={max(TOP_UP_MIN, missing.quantize(_CENT, ROUND_CEILING))}"


async def find_customer(services: Services, request: Request) -> SignedInCustomer | None:
    return await find_signed_in(services, request, SignedInCustomer)


def _ask_to_sign_in(request: Request) -> Response:
    # What was typed cannot be kept without a session, but its page is shown again after the sign-in.
    onward = request.url.path if request.method == "GET" else _here(request.url.path)
    if request.method == "GET" and request.url.query:
        onward += f"?{request.url.query}"
    return redirect(SIGN_IN if onward == HOME else f"{SIGN_IN}?{urlencode({'next': onward})}")
