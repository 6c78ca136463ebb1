"""Reachability of carriers: a connection is opened and closed; nothing is bound, asked or sent."""

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tumira.carriers import store as carriers
from tumira.carriers.store import Carrier
from tumira.core import urls
from tumira.core.dns import Resolver
from tumira.delivery.http.connections import connect_problem
from tumira.operations.doctor.diagnosis import Diagnosis, ok, problem, warning
from tumira.postgres.connection import Connection

CONNECT_S: Final = 5.0
ADDRESSES_MAX: Final = 4
CONNECTING_MAX: Final = 16

_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class CarrierPlace:
    """Where a carrier is connected to; `proxy` is True where that is the proxy in front of it."""

    host: str
    port: int
    tls: bool
    proxy: bool = False

    def __str__(self) -> str:
        shown = urls.write_authority(self.host, self.port)
        return f"the proxy {shown}" if self.proxy else shown


def place_of(carrier: Carrier, proxy: str | None) -> CarrierPlace:
    if carrier.http is None:
        return CarrierPlace(carrier.settings.host, carrier.settings.port, carrier.settings.tls)
    parts = urls.parse(carrier.http.url if proxy is None else proxy)
    # Both were checked when they were set.
    assert parts is not None
    port = parts.port or _PORTS[parts.scheme]
    return CarrierPlace(parts.host, port, parts.scheme == "https", proxy is not None)


async def list_carriers(connection: Connection) -> Sequence[Carrier]:
    return await carriers.list_active(connection)


async def check_carriers(active: Sequence[Carrier], proxy: str | None) -> Sequence[Diagnosis]:
    if not active:
        words = "There is no carrier, so messages wait."
        return [warning("carriers", words, "Add one with `tumira carrier add`.")]
    resolve, free = Resolver(), asyncio.Semaphore(CONNECTING_MAX)

    async def check(carrier: Carrier) -> Diagnosis:
        async with free:
            return await check_carrier(carrier.name, place_of(carrier, proxy), resolve)

    return await asyncio.gather(*map(check, active))


async def check_carrier(name: str, place: CarrierPlace, resolve: Resolver) -> Diagnosis:
    try:
        async with asyncio.timeout(CONNECT_S):
            await _connect(place, resolve)
    except TimeoutError:
        words = f"{name}: {place} does not answer within {CONNECT_S:.0f} s."
        advice = "Check host and port, and ask the carrier whether it allows the IP address of this machine."
        return problem("carriers", words, advice)
    except OSError as error:
        words = f"{name}: {place} cannot be reached ({connect_problem(error)})."
        return problem("carriers", words, f"Check its address with `tumira carrier show {name}`.")
    how = "with TLS" if place.tls else "without TLS"
    return ok("carriers", f"{name}: {place} takes connections, {how}.")


async def _connect(place: CarrierPlace, resolve: Resolver) -> None:
    """Connect to the first of the host's addresses that answers."""
    failed: OSError = OSError("the name has no address")
    for address in (await resolve(place.host, place.port))[:ADDRESSES_MAX]:
        try:
            _, writer = await asyncio.open_connection(
                address,
                place.port,
                ssl=ssl.create_default_context() if place.tls else None,
                server_hostname=place.host if place.tls else None,
            )
        except OSError as error:
            failed = error
        else:
            writer.close()
            return
    raise failed
