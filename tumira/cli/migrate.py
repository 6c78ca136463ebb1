"""The command `tumira migrate`."""

import asyncio
from collections.abc import Sequence

import click

from tumira.cli.output import connected, load_settings, plain_command, show, tell, wants_json
from tumira.core.errors import OperatorError
from tumira.postgres import migrate as migrations
from tumira.runtime import open_database


@click.command()
@click.option("--finish", is_flag=True, help="Also take away what only older versions need.")
@plain_command
def migrate(*, finish: bool) -> None:
    """Bring the database to this version's schema."""
    with open_database(load_settings(), tell) as url:
        done, waiting = asyncio.run(_migrate(url, finish=finish))
    if wants_json():
        show({"applied": done.applied} | ({"waiting": waiting} if waiting else {}))
    else:
        click.echo("\n".join(f"Applied {name}." for name in done.applied) or "Nothing to do.")
        for name in () if finish else waiting:
            click.echo(f"{name} waits for `tumira migrate --finish`, once no older node runs.")
    if done.problem is not None:
        raise OperatorError(done.problem)


async def _migrate(url: str, *, finish: bool) -> tuple[migrations.Finished, Sequence[str]]:
    async with connected(url) as database:
        if finish:
            done = await migrations.finish(database)
        else:
            done = migrations.Finished(await migrations.migrate(database), (), ())
        async with database.connection() as connection:
            return done, await migrations.list_waiting(connection)
