"""The start page: what needs an operator's action, the most urgent first."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.carriers.routes.rules import CarrierRoute, list_losing, rank_carriers
from tumira.carriers.routes.store import list_routes
from tumira.console.session import HOME, OperatorSession, Services, page
from tumira.content.store import list_requested
from tumira.core.ids import first_id
from tumira.core.translation import _, ngettext
from tumira.delivery.carrier_health import CarrierHealth, CarrierState, list_carriers
from tumira.delivery.store import binds, sender_refusals, unmatched
from tumira.operations.audit import runs
from tumira.postgres import migrate, nodes, partitions
from tumira.postgres.connection import Connection
from tumira.pricing.networks import write_network
from tumira.pricing.store import get_tariff
from tumira.sender_names import store as sender_names
from tumira.topups import lists as top_up_lists
from tumira.webhooks import endpoints

# Counted up to here.
COUNT_MAX: Final = 100
AUDITS_READ: Final = 5
WORKERS_MAX: Final = 200
# A worker reports every second.
WORKER_LATE: Final = timedelta(seconds=10)
# Where an endpoint's last attempt is looked for; it is not shown here.
ATTEMPTS_SINCE: Final = timedelta(minutes=1)
# A sender that a carrier refused is shown for so long after the last time, some of them by name.
SENDERS_REFUSED: Final = timedelta(days=1)
SENDERS_NAMED: Final = 5
# As the alert `TumiraDiskFills` says.
DISK_FREE_MIN: Final = 0.1

CARRIERS: Final = "/operator/carriers"
SYSTEM: Final = "/operator/system"
TOP_UPS: Final = "/operator/top-ups"

_BAD_HEALTH: Final = frozenset(
    {CarrierHealth.SILENT, CarrierHealth.FAILING, CarrierHealth.DOWN, CarrierHealth.NO_WORKER}
)


@dataclass(frozen=True, slots=True)
class ActionItem:
    """Something that needs action, what it means, and the page where an operator acts."""

    title: str
    detail: str
    path: str
    is_urgent: bool = False


def routes(services: Services) -> Sequence[Route]:
    return page(services, HOME, show_start)


async def show_start(session: OperatorSession) -> Response:
    async with session.database.connection() as connection:
        found = [
            *await _list_system(connection, session.services.data_dir),
            *await _list_delivery(session, connection),
            *await _list_customers(connection),
        ]
    items = sorted(found, key=lambda item: not item.is_urgent)
    return session.page("start.html.jinja", items=items, now=datetime.now(UTC))


async def _list_system(connection: Connection, data_dir: Path | None) -> Sequence[ActionItem]:
    ledgers = await nodes.list_broken_ledgers(connection, COUNT_MAX)
    audits = await runs.list_latest(connection, AUDITS_READ)
    workers = await nodes.list_workers(connection, WORKER_LATE, WORKERS_MAX)
    found = []
    if ledgers:
        title = ngettext("{count} account does not add up", "{count} accounts do not add up", len(ledgers))
        detail = _("The transfers differ from the balance. Do not credit or debit it until you know why.")
        found.append(ActionItem(title.format(count=_write(len(ledgers))), detail, SYSTEM, is_urgent=True))
    last = next((audit for audit in audits if audit.finished_at is not None), None)
    if last is not None and last.broken:
        title = ngettext(
            "The last audit failed {count} check", "The last audit failed {count} checks", len(last.broken)
        )
        detail = _("The system page lists what is wrong.")
        found.append(ActionItem(title.format(count=len(last.broken)), detail, SYSTEM, is_urgent=True))
    elif last is not None and last.problem:
        detail = _("Run it again from the system page.")
        found.append(ActionItem(_("The last audit did not finish"), detail, SYSTEM))
    if all(worker.is_late for worker in workers):
        detail = _("No message is sent until one runs. Start it with “tumira worker”.")
        found.append(ActionItem(_("No worker is running"), detail, SYSTEM, is_urgent=True))
    if not await migrate.is_current(connection):
        detail = _("Run “tumira migrate”.")
        found.append(ActionItem(_("Migrations are missing"), detail, SYSTEM, is_urgent=True))
    elif await partitions.weeks_left(connection) < partitions.WEEKS_AHEAD_MIN:
        detail = _("Tables for the coming weeks are missing. A worker creates them.")
        found.append(ActionItem(_("The database is not prepared for next week"), detail, SYSTEM))
    if await nodes.lacks_standby(connection):
        detail = _("Nothing can be sent until replication works again.")
        found.append(ActionItem(_("The standby database is not replicating"), detail, SYSTEM, is_urgent=True))
    found.extend(_list_disk(data_dir))
    return found


def _list_disk(data_dir: Path | None) -> Iterator[ActionItem]:
    if data_dir is not None:
        with suppress(OSError):
            size, _used, free = shutil.disk_usage(data_dir)
            yield from list_full_disk(size, free)


def list_full_disk(size: int, free: int) -> Iterator[ActionItem]:
    if free < DISK_FREE_MIN * size:
        title = _("The disk is {percent} % full").format(percent=round(100 * (1 - free / size)))
        detail = _("Free some space, or move the data to a larger disk.")
        yield ActionItem(title, detail, SYSTEM, is_urgent=True)


async def _list_delivery(session: OperatorSession, connection: Connection) -> Sequence[ActionItem]:
    found = []
    tariff = await get_tariff(connection)
    uncovered = await binds.countries_without_carrier(connection)
    states = await list_carriers(session.database)
    routes = await list_routes(connection)
    cut_off = [
        *(tariff.names.get(code, code) for code in uncovered),
        *_list_cut_off(states, routes, [code for code in tariff.names if code not in uncovered]),
    ]
    if cut_off:
        names = _(" and ").join(sorted(cut_off))
        title = _("No carrier takes messages to {countries}").format(countries=names)
        detail = _("Messages wait in the queue until a carrier is back.")
        found.append(ActionItem(title, detail, CARRIERS, is_urgent=True))
    bad = [one for one in states if one.health in _BAD_HEALTH]
    if bad:
        title = ngettext("{count} carrier is not working", "{count} carriers are not working", len(bad))
        detail = ", ".join(f"{one.carrier.name} ({one.health})" for one in bad[:COUNT_MAX])
        found.append(ActionItem(title.format(count=len(bad)), detail, CARRIERS))
    losing = list_losing(routes, tariff.prices)
    if losing:
        title = ngettext(
            "{count} route costs more than its price",
            "{count} routes cost more than their price",
            len(losing),
        )
        detail = ", ".join(f"{route.queue} ({route.carrier})" for route, _price in losing[:COUNT_MAX])
        found.append(ActionItem(title.format(count=len(losing)), detail, "/operator/routes"))
    if session.simulated:
        title = _("The simulator is the only carrier for {countries}").format(
            countries=_(" and ").join(session.simulated)
        )
        detail = _("These messages are billed but reach no phone. Add a carrier.")
        found.append(ActionItem(title, detail, CARRIERS))
    count = await unmatched.count(connection, COUNT_MAX)
    if count:
        title = ngettext(
            "{count} receipt matches no message", "{count} receipts match no message", count
        ).format(count=_write(count))
        detail = _("Messages may be waiting for their outcome.")
        found.append(ActionItem(title, detail, "/operator/receipts"))
    refused = await sender_refusals.list_refusals(connection, SENDERS_REFUSED, COUNT_MAX)
    if refused:
        title = ngettext(
            "A carrier refused {count} sender", "Carriers refused {count} senders", len(refused)
        ).format(count=_write(len(refused)))
        detail = ", ".join(
            f"{one.sender or _('its own')} ({one.carrier}, {one.country})" for one in refused[:SENDERS_NAMED]
        )
        found.append(ActionItem(title, detail, "/operator/sender-names#refused", is_urgent=True))
    return found


def _list_cut_off(
    states: Sequence[CarrierState], routes: Sequence[CarrierRoute], countries: Sequence[str]
) -> Iterator[str]:
    """Return the networks with routes, in these countries, that no working carrier serves."""
    working = {one.carrier.id for one in states if one.health not in _BAD_HEALTH}
    for queue, able in rank_carriers([one.carrier for one in states], countries, routes).items():
        if queue not in countries and not any(carrier.id in working for _rank, carrier in able):
            country, network = queue.split("-")
            yield f"{write_network(network)} ({country})"


async def _list_customers(connection: Connection) -> Sequence[ActionItem]:
    found = []
    count = len((await top_up_lists.list_page(connection, "doubt", COUNT_MAX))[0])
    if count:
        title = ngettext("{count} top-up is in doubt", "{count} top-ups are in doubt", count)
        detail = _("Ask the provider whether the money was taken, then decide.")
        found.append(ActionItem(title.format(count=_write(count)), detail, f"{TOP_UPS}?show=doubt"))
    count = len((await top_up_lists.list_page(connection, "late", COUNT_MAX))[0])
    if count:
        title = ngettext(
            "{count} top-up was paid after it had expired",
            "{count} top-ups were paid after they had expired",
            count,
        )
        detail = _("Decide between a credit and a refund by the provider.")
        found.append(ActionItem(title.format(count=_write(count)), detail, f"{TOP_UPS}?show=late"))
    count = len(await list_requested(connection, COUNT_MAX))
    if count:
        title = ngettext(
            "{count} refused text waits for review", "{count} refused texts wait for review", count
        )
        detail = _("Allow or refuse, and answer the customer.")
        found.append(ActionItem(title.format(count=_write(count)), detail, "/operator/content"))
    count = len(await sender_names.list_waiting(connection, COUNT_MAX))
    if count:
        title = ngettext(
            "{count} sender name waits for a decision", "{count} sender names wait for a decision", count
        )
        detail = _("Grant or refuse, and answer the customer.")
        found.append(ActionItem(title.format(count=_write(count)), detail, "/operator/sender-names"))
    since = first_id(int((datetime.now(UTC) - ATTEMPTS_SINCE).timestamp() * 1000))
    count = len(await endpoints.list_unhealthy(connection, COUNT_MAX, since))
    if count:
        title = ngettext(
            "{count} webhook endpoint has problems", "{count} webhook endpoints have problems", count
        )
        detail = _("Failing, far behind or disabled.")
        found.append(ActionItem(title.format(count=_write(count)), detail, "/operator/webhooks"))
    return found


def _write(count: int) -> str:
    return _("{count} or more").format(count=count) if count >= COUNT_MAX else str(count)
