"""Sign-in pages that the dashboard and the console share: password, second factor, session and sign-out."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.core.errors import RecipientCode
from tumira.core.settings.payments import Payments
from tumira.core.settings.support import Support
from tumira.core.translation import _, mark
from tumira.html.cookies import Cookie
from tumira.html.forms import TYPED_MAX, Faults, Form, Secret, TextField
from tumira.html.guards import address_of, refuse_foreign_writes
from tumira.html.page import Templates
from tumira.html.redirect import redirect
from tumira.identity.code_rules import in_words
from tumira.identity.person_rules import PASSWORD_MAX
from tumira.identity.principal import Browser
from tumira.identity.send_codes import hash_token
from tumira.identity.sign_in import (
    AccountClosed,
    NoAccount,
    SecondFactorRequired,
    SignedIn,
    SignUpUnfinished,
    TooManyAttempts,
    finish_sign_in,
    sign_in,
    sign_out,
)
from tumira.identity.store import sessions
from tumira.identity.store.sessions import SignedInPerson, SignInStage
from tumira.postgres.pool import Database
from tumira.pricing.destinations import PriceStatus, sort_recipients
from tumira.pricing.phone_numbers import CHANNEL, complete, explain, suggest, write_phone
from tumira.pricing.store import get_tariff

_CLOSED: Final = mark(
    "This account was closed by its owner. Contact {support} to reopen it or to get the balance back."
)
NO_ACCOUNT: Final = mark(
    "This number is in no account now. Ask an owner to invite you, or sign up for an account of your own."
)
# The country of a number without a country code, where the browser's language tells no other.
FIRST_COUNTRY: Final = "ZW"
_EXAMPLES: Final = {"ZW": "077 120 0001", "ZA": "082 123 0001"}


@dataclass(frozen=True, slots=True)
class PageServices:
    database: Database
    templates: Templates
    session_cookie: Cookie
    # Marks a browser that has signed in before; it outlives the session.
    device_cookie: Cookie
    public_url: str
    # Which providers of payments the operator has set up.
    payments: Payments
    # How customers reach the operator.
    support: Support


AnyServices = TypeVar("AnyServices", bound=PageServices)


def public(
    services: AnyServices,
    path: str,
    handle: Callable[[AnyServices, Request], Awaitable[Response]],
    *methods: str,
) -> Route:
    """Route a page that needs no session."""

    async def answer(request: Request) -> Response:
        refuse_foreign_writes(request, services.public_url)
        return await handle(services, request)

    return Route(path, answer, methods=methods or ("GET",))


async def find_signed_in(
    services: PageServices, request: Request, who: type[SignedInPerson]
) -> SignedInPerson | None:
    """Return the person who is signed in, second factor included."""
    token = services.session_cookie.read(request)
    if token is None:
        return None
    async with services.database.connection() as connection:
        person = await sessions.find(connection, who, hash_token(token))
        if person is not None and person.is_news:
            await sessions.mark_seen(connection, who.kind, person.session_id)
    return person


def browser_of(services: PageServices, request: Request) -> Browser:
    return Browser(
        address_of(request),
        request.headers.get("user-agent", ""),
        services.session_cookie.read(request),
        services.device_cookie.read(request),
    )


def begin_session(services: PageServices, response: Response, signed_in: SignedIn) -> Response:
    """Set the cookies of the session and of the known device."""
    services.session_cookie.set(response, signed_in.token)
    if signed_in.device is not None:
        services.device_cookie.set(response, signed_in.device)
    return response


class PhoneForm(Form):
    phone = TextField(cut=TYPED_MAX)
    # The country of a number that is typed without its country code.
    country = TextField(cut=TYPED_MAX)


@dataclass(frozen=True, slots=True)
class TypedPhone:
    """The number of a form: as it is shown again, in international form, or what is wrong with it."""

    shown: str
    country: str
    # What the country is chosen from: codes with their names.
    countries: Sequence[tuple[str, str]]
    number: str | None = None
    fault: str | None = None

    @property
    def example(self) -> str:
        return _EXAMPLES.get(self.country, _EXAMPLES[FIRST_COUNTRY])


async def read_typed(services: PageServices, request: Request, form: PhoneForm | None = None) -> TypedPhone:
    """Read the number of a form; without a form, prepare an empty field."""
    async with services.database.connection() as connection:
        tariff = await get_tariff(connection)
    priced = {one.country for one in tariff.prices if one.status is PriceStatus.ACTIVE}
    served = [one for one in tariff.destinations if one.country in priced]
    served.sort(key=lambda one: one.country != FIRST_COUNTRY)
    countries = [(one.country, f"{one.name} (+{one.calling_code})") for one in served]
    if form is None:
        languages = request.headers.get("accept-language", "").upper()
        named = (one.country for one in served if f"-{one.country}" in languages)
        return TypedPhone("", next(named, FIRST_COUNTRY), countries)
    typed, country = form.phone.data, form.country.data or FIRST_COUNTRY
    number = complete(tariff, typed, country)
    found = sort_recipients(tariff, CHANNEL, [number])
    if found.accepted:
        return TypedPhone(write_phone(number), found.accepted[0].country, countries, number)
    code = found.rejected[0].code
    if not typed:
        fault = _("Enter your mobile number.")
    elif code is RecipientCode.UNSUPPORTED_DESTINATION:
        names = _(" or ").join(one.name for one in served)
        fault = _("Enter a mobile number in {countries}.").format(countries=names)
    else:
        fault = explain(tariff, number, code)
        meant = suggest(tariff, typed, country)
        if meant is not None:
            fault += " " + _("Did you mean {number}?").format(number=write_phone(meant))
    return TypedPhone(typed, country, countries, fault=fault)


def say_closed(services: PageServices) -> str:
    return _(_CLOSED).format(support=services.support.name)


def too_often(refused: TooManyAttempts) -> str:
    return _("Too many attempts. Try again in {time}.").format(time=in_words(refused.wait))


class SignInForm(PhoneForm):
    password = Secret(cut=PASSWORD_MAX)
    next_ = TextField(name="next")


class CodeForm(Form):
    """A code of an authenticator app, or a recovery code."""

    code = TextField(cut=TYPED_MAX)
    next_ = TextField(name="next")


class SignInPages(ABC, Generic[AnyServices, SignedInPerson]):
    """The pages from the password to the session, and sign-out, for one kind of principal."""

    who: type[SignedInPerson]
    home: ClassVar[str]
    path: ClassVar[str]
    # Whether it is said that a number cannot be one; else it is compared like any other.
    explains_phone: ClassVar[bool] = False
    wrong: ClassVar[str]
    wrong_code: ClassVar[str]
    # What can be done after too many attempts, besides waiting.
    or_else: ClassVar[str] = ""

    def routes(self, services: AnyServices) -> Sequence[Route]:
        return [
            public(services, self.path, self.show_form),
            public(services, self.path, self.enter, "POST"),
            public(services, f"{self.path}/code", self.show_code),
            public(services, f"{self.path}/code", self.finish, "POST"),
            public(services, f"{self.home}/sign-out", self.leave, "POST"),
        ]

    def own_page(self, text: str) -> str:
        """Return where a form leads; only pages of our own."""
        del text
        return self.home

    def pending_cookie(self, services: AnyServices) -> Cookie:
        """Return the cookie that leads a browser from the password to the second factor."""
        return services.session_cookie

    @abstractmethod
    def lead_on(
        self, services: AnyServices, result: SecondFactorRequired | SignUpUnfinished, onward: str
    ) -> Response:
        """Lead to the next step of a sign-in whose password was right."""

    async def show_form(self, services: AnyServices, request: Request) -> Response:
        onward = self.own_page(request.query_params.get("next", ""))
        if await find_signed_in(services, request, self.who) is not None:
            return redirect(onward)
        phone = await read_typed(services, request)
        return services.templates.page("sign_in.html.jinja", phone=phone, onward=onward, faults={})

    async def enter(self, services: AnyServices, request: Request) -> Response:
        """Compare the password, and begin a session or lead on to the next step."""
        form = await SignInForm.read(request)
        phone, onward = await read_typed(services, request, form), self.own_page(form.next_.data)

        def refuse(faults: Faults, status: int = 422) -> Response:
            return services.templates.page(
                "sign_in.html.jinja", status, phone=phone, onward=onward, faults=faults
            )

        if phone.fault is not None and self.explains_phone:
            return refuse({"phone": phone.fault})
        browser = browser_of(services, request)
        # A number that cannot be one is compared like any other: nobody learns which numbers are operators.
        result = await sign_in(
            services.database,
            self.who.kind,
            browser,
            phone=phone.number or form.phone.data,
            password=form.password.data,
        )
        if isinstance(result, SignedIn):
            return begin_session(services, redirect(onward), result)
        if isinstance(result, SecondFactorRequired | SignUpUnfinished):
            return self.lead_on(services, result, onward)
        if isinstance(result, TooManyAttempts):
            other_way = f" {_(self.or_else)}" if self.or_else else ""
            return refuse({"": too_often(result) + other_way}, 429)
        if isinstance(result, AccountClosed):
            return refuse({"": say_closed(services)})
        if isinstance(result, NoAccount):
            return refuse({"": _(NO_ACCOUNT)})
        return refuse({"": _(self.wrong)})

    async def show_code(self, services: AnyServices, request: Request) -> Response:
        token = self.pending_cookie(services).read(request)
        onward = self.own_page(request.query_params.get("next", ""))
        if token is not None:
            async with services.database.connection() as connection:
                pending = await sessions.find_pending(
                    connection, self.who.kind, SignInStage.CODE, hash_token(token)
                )
            if pending is not None:
                return services.templates.page("second_factor_code.html.jinja", onward=onward, faults={})
        person = await find_signed_in(services, request, self.who)
        return redirect(self.path if person is None else onward)

    async def finish(self, services: AnyServices, request: Request) -> Response:
        """Begin the session of a person who has the second factor too."""
        form = await CodeForm.read(request)
        onward = self.own_page(form.next_.data)
        cookie = self.pending_cookie(services)
        token = cookie.read(request)
        if token is None:
            return redirect(self.path)
        result = await finish_sign_in(
            services.database,
            self.who.kind,
            browser_of(services, request),
            token=token,
            code=form.code.data,
        )
        if result is None or isinstance(result, SignedIn):
            response = redirect(self.path if result is None else onward)
            if cookie is not services.session_cookie:
                cookie.delete(response)
            return response if result is None else begin_session(services, response, result)
        fault, status = _(self.wrong_code), 422
        if isinstance(result, TooManyAttempts):
            fault, status = too_often(result), 429
        return services.templates.page(
            "second_factor_code.html.jinja", status, onward=onward, faults={"code": fault}
        )

    async def leave(self, services: AnyServices, request: Request) -> Response:
        token = services.session_cookie.read(request)
        if token is not None:
            await sign_out(services.database, self.who.kind, token)
        response = redirect(self.path)
        services.session_cookie.delete(response)
        return response
