"""The command `tumira doctor`."""

import asyncio
import json
from dataclasses import asdict

import click

from tumira.cli.output import fail, load_settings, plain_command, wants_json
from tumira.operations.doctor.diagnosis import Level
from tumira.operations.doctor.examine import examine


@click.command()
@plain_command
def doctor() -> None:
    """Check this machine and what Tumira needs around it; change and send nothing.

    Disk, memory, limits, ports, permissions, clock, database, carriers, mail, public URL, proxy and backups.
    """
    diagnoses = asyncio.run(examine(load_settings()))
    problems = sum(one.level is Level.PROBLEM for one in diagnoses)
    if wants_json():
        click.echo(json.dumps({"ok": not problems, "checks": [asdict(one) for one in diagnoses]}))
    else:
        width = max(len(one.subject) for one in diagnoses)
        for one in diagnoses:
            click.echo(f"{one.level:<7}  {one.subject:<{width}}  {one.found}")
            if one.advice:
                click.echo(f"{'':<{width + 9}}  → {one.advice}")
    if problems:
        fail(f"{problems} of {len(diagnoses)} checks found a problem; the arrows say what to do.")
