"""The `tumira reconcile` command."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import click

from tumira.cli.output import DayType, choice, database_command, load_settings, show, tell, wants_json
from tumira.core.days import local_day, local_midnight
from tumira.core.errors import OperatorError
from tumira.core.ids import ACCOUNT, TOP_UP, write_id
from tumira.postgres.pool import Database
from tumira.topups.providers.registry import open_providers
from tumira.topups.reconcile import Reconciler, ReconcileReport
from tumira.topups.reconcile_rules import Difference
from tumira.topups.states import Method

DAYS: Final = 31
DAYS_MAX: Final = 400
LINES_MAX: Final = 50

DIFFERS: Final = 1
# Not 2, the exit code of a usage error.
INCOMPLETE: Final = 3


@click.command()
@click.option(
    "--from", "first", type=DayType(), help=f"The first day, UTC+02:00; {DAYS} days ago by default."
)
@click.option("--to", "last", type=DayType(), help="The last day; today by default.")
@click.option(
    "--method", "methods", type=choice(Method), multiple=True, help="Can be repeated; all by default."
)
@database_command
async def reconcile(
    database: Database, *, first: date | None, last: date | None, methods: Sequence[str]
) -> None:
    """Compare top-ups with the records of the providers and the chain; changes nothing.

    Exits with 0 when nothing differs, 1 when something differs, and 3 when nothing differs but a provider
    could not be reached.
    """
    last = last or local_day(datetime.now(UTC))
    first = first or last - timedelta(days=DAYS)
    if not timedelta(0) <= last - first <= timedelta(days=DAYS_MAX):
        raise OperatorError(f"Give a first day that is not after the last, and at most {DAYS_MAX} days.")
    settings = load_settings()
    ways = [Method(one) for one in methods] or list(Method)
    providers = open_providers(settings.payments, settings.public_url)
    try:
        reconciler = Reconciler(database, settings.payments, providers, tell)
        report = await reconciler.compare(
            local_midnight(first), local_midnight(last + timedelta(days=1)), ways
        )
    finally:
        for provider in providers.values():
            await provider.close()
    if wants_json():
        show(_report(report, first, last, ways))
    else:
        _print(report, first, last)
    if report.differences or report.unknown:
        raise click.exceptions.Exit(DIFFERS if report.differences else INCOMPLETE)


def _report(report: ReconcileReport, first: date, last: date, ways: Sequence[Method]) -> Mapping[str, Any]:
    return {
        "from": first.isoformat(),
        "to": last.isoformat(),
        "methods": ways,
        "ok": not report.differences,
        "complete": not report.unknown,
        "top_ups": report.top_ups,
        "asked": report.asked,
        "deposits": report.deposits,
        "differences": [_difference(one) for one in report.differences],
        "could_not_be_asked": [{"topup_id": one.top_up_id, "problem": one.problem} for one in report.unknown],
        "unchecked": [{"count": count, "why": why} for why, count in sorted(report.unchecked.items())],
    }


def _difference(one: Difference) -> Mapping[str, Any]:
    return {
        "kind": one.kind,
        "topup_id": one.top_up_id,
        "account_id": one.account_id,
        "ours": one.ours,
        "theirs": one.theirs,
        "do": one.advice,
    }


def _print(report: ReconcileReport, first: date, last: date) -> None:
    click.echo(
        f"{first} to {last}: {report.top_ups} top-ups, {report.asked} asked about, "
        f"{report.deposits} deposits on the chain."
    )
    for one in report.differences:
        name = "-" if one.top_up_id is None else write_id(TOP_UP, one.top_up_id)
        account = "-" if one.account_id is None else write_id(ACCOUNT, one.account_id)
        click.echo(f"\n{one.kind.value.replace('_', ' ').upper()}  {name}  {account}")
        click.echo(f"  ours    {one.ours}\n  theirs  {one.theirs}\n  do      {one.advice}")
    for unknown in report.unknown[:LINES_MAX]:
        name = "" if unknown.top_up_id is None else f" about {write_id(TOP_UP, unknown.top_up_id)}"
        click.echo(f"Could not be asked{name}: {unknown.problem}")
    if len(report.unknown) > LINES_MAX:
        click.echo(f"… and {len(report.unknown) - LINES_MAX} more; --json shows all.")
    for why, count in sorted(report.unchecked.items()):
        click.echo(f"Not compared with anybody: {count}, because {why}.")
    click.echo(f"{len(report.differences) or 'Nothing'} differs.")
