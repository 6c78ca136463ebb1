"""The command `tumira migrate`."""

import asyncio
from collections.abc import Sequence

import click

from tumira.cli.output import json_option, load_settings, plainly, show, tell
from tumira.core.errors import OperatorError
from tumira.postgres import migrate as migrations
from tumira.postgres.pool import Database
from tumira.runtime import open_database


@click.command()
@click.option("--finish", is_flag=True, help="Also take away what only older versions need.")
@json_option
@plainly
def migrate(*, finish: bool, as_json: bool) -> None:
    """Bring the database to this version's schema."""
    settings = load_settings()
    with open_database(settings, tell) as url:
        done, waiting = asyncio.run(_migrate(url, finish=finish))
    if as_json:
        show({"applied": done.applied} | ({"waiting": waiting} if waiting else {}), as_json=True)
    else:
        click.echo("\n".join(f"Applied {name}." for name in done.applied) or "Nothing to do.")
        for name in () if finish else waiting:
            click.echo(f"{name} waits for `tumira migrate --finish`, once no older node runs.")
    if done.problem is not None:
        raise OperatorError(done.problem)


async def _migrate(url: str, *, finish: bool) -> tuple[migrations.Finished, Sequence[str]]:
    database = Database(url, connections_max=1)
    try:
        if finish:
            done = await migrations.finish(database)
        else:
            done = migrations.Finished(await migrations.migrate(database), (), ())
        async with database.connection() as connection:
            return done, await migrations.list_waiting(connection)
    finally:
        await database.close()
