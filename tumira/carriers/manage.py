"""Adds, changes and removes carriers, and lists the senders that recipients see."""

import dataclasses
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Final

import asyncpg

from tumira import audit_log
from tumira.audit_log import OPERATOR, Actor
from tumira.carriers import http_store as http_carriers
from tumira.carriers import store as carriers
from tumira.carriers import url as carrier_url
from tumira.carriers.http.access import open_carrier, own_options, read_profile, read_settings
from tumira.carriers.http.carrier import HttpCarrier
from tumira.carriers.routes.store import delete_of_carrier
from tumira.carriers.store import Carrier, HttpAccess
from tumira.carriers.url import CarrierSettings
from tumira.core import urls
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import AccountId
from tumira.core.translation import _
from tumira.postgres import migrate, nodes
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.store import get_tariff
from tumira.sender_names import store as sender_names
from tumira.sender_names.places import Place, describe_place

PRIORITY_DEFAULT: Final = 100
PRIORITY_MAX: Final = 2**31 - 1
WINDOW_MAX: Final = 10_000
TPS_MAX: Final = 100_000
SIMULATOR: Final = "simulator"
HOOK_TOKEN_BYTES: Final = 24

# After every carrier of the operator's own.
_SIMULATOR_PRIORITY: Final = 1000
_SIMULATOR_HOST: Final = "127.0.0.1"
_SIMULATOR_URL: Final = (
    "smpp://simulator:simulate@{host}:{port}?window=1000&tps=0&source=Tumira&doubt_wait=30"
)
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")

_COUNTRY: Final = re.compile(r"[A-Z]{2}")


async def add_carrier(
    database: Database,
    name: str,
    url: str,
    countries: Sequence[str] | None,
    priority: int,
    *,
    actor: Actor = OPERATOR,
    replace: bool = True,
    password: str | None = None,
) -> bool:
    """Add a carrier, or with `replace` change the one of this name, and tell whether it is new.

    The carrier need not be reachable. The password is in the URL or given beside it.
    """
    _check_name(name)
    check_priority(priority)
    settings = _read(url, password)
    async with _valid_settings(), database.transaction() as connection:
        # Under another name, the simulator still reaches handsets and no phones.
        simulator = urls.is_loopback(settings.host) and await carriers.is_simulator_port(
            connection, settings.port
        )
        await http_carriers.delete(connection, name)
        place = _Place(name, countries, priority, replace=replace)
        shown = carrier_url.write(settings)
        return await _put(connection, place, settings, shown, actor, simulator=simulator)


async def add_http_carrier(
    database: Database,
    name: str,
    access: HttpAccess,
    countries: Sequence[str] | None,
    priority: int,
    *,
    actor: Actor = OPERATOR,
    replace: bool = True,
) -> bool:
    """Add a carrier over HTTP, or with `replace` change the one of this name, and tell whether it is new.

    A changed carrier keeps its secrets if none are given, and the address that the provider calls.
    """
    _check_name(name)
    check_priority(priority)
    async with _valid_settings(), database.transaction() as connection:
        older = await nodes.list_older(connection, migrate.last_step())
        if older:
            raise OperatorError(
                _("{node} runs an older version, which cannot use this carrier. Upgrade it first.").format(
                    node=older[0].id
                )
            )
        before = await carriers.find(connection, name, lock=True)
        if before is not None and before.http is not None and not access.secrets:
            access = dataclasses.replace(access, secrets=before.http.secrets)
        http, settings = _read_http(access)
        shown = f"{access.url}, profile {access.profile}"
        place = _Place(name, countries, priority, replace=replace)
        is_new = await _put(connection, place, settings, shown, actor)
        # The engine's own are columns of the carrier.
        kept = dataclasses.replace(access, options=own_options(access))
        await http_carriers.upsert(connection, name, kept, safe_repeat=http.safe_repeat)
        return is_new


@dataclass(frozen=True, slots=True)
class _Place:
    """The name of a carrier and its part in routing."""

    name: str
    countries: Sequence[str] | None
    priority: int
    replace: bool


async def _put(
    connection: Connection,
    place: _Place,
    settings: CarrierSettings,
    shown: str,
    actor: Actor,
    *,
    simulator: bool = False,
) -> bool:
    """Write a carrier and who did it; `shown` describes it without secrets."""
    known = None if place.countries is None else await _known(connection, place.countries)
    is_new = await carriers.upsert(
        connection, place.name, settings, known, place.priority, simulator=simulator
    )
    if not (is_new or place.replace):
        text = _("A carrier named {name} exists already. Choose another name.")
        raise FieldError("name", text.format(name=place.name))
    detail = f"{place.name}: {shown}, {_write_countries(known)}, priority {place.priority}"
    await audit_log.record_by_operator(
        connection, actor, "carrier added" if is_new else "carrier replaced", detail
    )
    return is_new


@asynccontextmanager
async def _valid_settings() -> AsyncIterator[None]:
    try:
        yield
    except asyncpg.IntegrityConstraintViolationError:
        # Not passed on, because PostgreSQL quotes the whole row, with the password.
        raise OperatorError(_("These settings are not valid. Check the parameters of the URL.")) from None


async def change_carrier(
    database: Database,
    name: str,
    *,
    priority: int,
    countries: Sequence[str] | None,
    window_size: int,
    tps: int,
    actor: Actor,
) -> bool:
    """Change a carrier's priority, countries and limits, and tell whether anything changed."""
    check_priority(priority)
    if not 1 <= window_size <= WINDOW_MAX:
        raise FieldError("window", _("Enter a window from 1 to {most}.").format(most=WINDOW_MAX))
    if not 0 <= tps <= TPS_MAX:
        raise FieldError("tps", _("Enter a limit from 0 to {most}; 0 means no limit.").format(most=TPS_MAX))
    async with database.transaction() as connection:
        before = await carriers.find(connection, name, lock=True)
        if before is None:
            raise _unknown(name)
        known = None if countries is None else await _known(connection, countries)
        wanted = {
            "priority": (str(before.priority), str(priority)),
            "countries": (_write_countries(before.countries), _write_countries(known)),
            "window": (str(before.settings.window_size), str(window_size)),
            "tps": (str(before.settings.tps), str(tps)),
        }
        different = [f"{what} {old} → {new}" for what, (old, new) in wanted.items() if old != new]
        if not different:
            return False
        await carriers.update(
            connection, before.id, priority=priority, countries=known, window_size=window_size, tps=tps
        )
        detail = f"{name}: {', '.join(different)}"
        await audit_log.record_by_operator(connection, actor, "carrier changed", detail)
    return True


async def remove_carrier(database: Database, name: str, *, actor: Actor = OPERATOR) -> None:
    """Take a carrier out of use; late receipts still find their messages."""
    async with database.transaction() as connection:
        if await carriers.remove(connection, name):
            await delete_of_carrier(connection, name)
            await http_carriers.empty_secrets(connection, name)
            await audit_log.record_by_operator(connection, actor, "carrier removed", name)
            return
        if await carriers.exists_ever(connection, name):
            raise OperatorError(_("The carrier {name} has already been removed.").format(name=name))
    raise _unknown(name)


async def get_carrier(database: Database, name: str) -> Carrier:
    async with database.connection() as connection:
        found = await carriers.find(connection, name)
    if found is None:
        raise _unknown(name)
    return found


async def list_simulated(database: Database) -> Mapping[str, str]:
    async with database.connection() as connection:
        return await carriers.list_simulated(connection)


async def list_senders(database: Database, account_id: AccountId) -> Mapping[str, Sequence[str]]:
    """Return the senders that recipients of an account see, each with the places where they see it."""
    async with database.connection() as connection:
        senders = {
            Place(country): sender for country, sender in (await carriers.list_senders(connection)).items()
        }
        senders |= dict(await sender_names.list_in_use(connection, account_id))
        tariff = await get_tariff(connection)
    places: dict[str, list[str]] = {}
    for place, sender in sorted(senders.items(), key=lambda one: str(one[0])):
        places.setdefault(sender, []).append(describe_place(place, tariff))
    return places


async def keep_simulator(database: Database, port: int) -> None:
    """Add the simulator as a carrier once; a removed one stays removed, an existing one follows the port."""
    settings = _read(_SIMULATOR_URL.format(host=_SIMULATOR_HOST, port=port))
    async with database.transaction() as connection:
        if not await carriers.insert_simulator(connection, SIMULATOR, settings, _SIMULATOR_PRIORITY):
            # Whatever else the operator changed about it stays, and one that was moved elsewhere is theirs.
            await carriers.move_simulator(connection, port)


def _unknown(name: str) -> OperatorError:
    # An operator may give the URL instead of the name; it is not repeated, because of its password.
    if not _NAME.fullmatch(name):
        return OperatorError(
            _("There is no carrier with this name. `tumira carrier list` shows all carriers.")
        )
    text = _("There is no carrier named {name}. `tumira carrier list` shows all carriers.")
    return OperatorError(text.format(name=name))


def write_address(carrier: Carrier) -> str:
    """Write where a carrier is, without secrets."""
    return carrier_url.write(carrier.settings) if carrier.http is None else carrier.http.url


def new_access(
    profile: str,
    url: str,
    options: Mapping[str, str],
    secrets: Mapping[str, str],
    profile_text: str | None = None,
) -> HttpAccess:
    """Describe a carrier over HTTP, with a new address for its callbacks."""
    return HttpAccess(profile, profile_text, url, options, secrets, token_urlsafe(HOOK_TOKEN_BYTES))


def _read_http(access: HttpAccess) -> tuple[HttpCarrier, CarrierSettings]:
    try:
        read_profile(access.profile, access.profile_text)
    except ValueError as error:
        raise FieldError("profile", str(error)) from None
    try:
        http = open_carrier(access)
        return http, read_settings(access, http)
    except ValueError as error:
        raise FieldError("settings", str(error)) from None


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        # Not repeated: where name and URL are swapped, it holds the password.
        raise FieldError(
            "name", _("Enter a name of up to 32 lowercase letters, digits, - and _, for example main-1.")
        )


def _read(url: str, password: str | None = None) -> CarrierSettings:
    try:
        return carrier_url.parse(url, password)
    except ValueError as error:
        raise FieldError("url", str(error)) from None


def check_priority(priority: int) -> None:
    if not 0 <= priority <= PRIORITY_MAX:
        raise FieldError("priority", _("Enter a priority from 0 to {most}.").format(most=PRIORITY_MAX))


def _write_countries(countries: Sequence[str] | None) -> str:
    return "all countries" if countries is None else ",".join(countries)


async def _known(connection: Connection, countries: Sequence[str]) -> Sequence[str]:
    """Return the countries without repetitions; all of them must be destinations."""
    destinations = {one.country for one in (await get_tariff(connection)).destinations}
    if not countries:
        raise FieldError(
            "countries", _("Name at least one country, for example ZW,ZA, or none for all countries.")
        )
    for country in countries:
        if country not in destinations:
            # What is no code is not repeated: where fields are mixed up, it may be the password.
            text = _("{country} is not a country that you can send to. You can send to: {known}.")
            named = country if _COUNTRY.fullmatch(country) else _("One of these")
            raise FieldError("countries", text.format(country=named, known=", ".join(sorted(destinations))))
    return list(dict.fromkeys(countries))
