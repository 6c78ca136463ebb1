"""The commands `audit`, `demo` and others for operators and newcomers."""

import json
import shlex
import shutil
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Final

import click

from tumira.accounts import store as accounts
from tumira.accounts.api_keys import Scope
from tumira.accounts.open_account import open_account
from tumira.cli.output import (
    actor,
    database_command,
    fail,
    in_database,
    load_settings,
    plain_command,
    show,
    tell,
    wants_json,
)
from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.core.ids import ACCOUNT, write_id
from tumira.core.settings import Settings
from tumira.identity import manage_accounts, manage_keys
from tumira.operations.audit import runs
from tumira.operations.audit.checks import CHECKS
from tumira.operations.audit.runs import printable
from tumira.postgres.pool import Database
from tumira.serve import answers

DEMO_PHONE: Final = "+263771200000"
DEMO_BALANCE: Final = Decimal(10)


@click.command()
@database_command
async def audit(database: Database) -> None:
    """Prove that the money adds up and that no message is lost."""
    findings = []
    started_at = datetime.now(UTC)
    async with runs.snapshot(database) as connection:
        for check in CHECKS:
            finding = await runs.run_check(connection, check)
            findings.append(finding)
            if not wants_json():
                click.echo(f"{'ok    ' if not finding.rows else 'BROKEN'}  {check.promise}")
                for row in finding.rows:
                    click.echo("        " + json.dumps(printable(row)))
    broken = [finding for finding in findings if finding.rows]
    if wants_json():
        checks = [
            {
                "name": finding.check.name,
                "ok": not finding.rows,
                "promise": finding.check.promise,
                "rows": [printable(row) for row in finding.rows],
            }
            for finding in findings
        ]
        click.echo(json.dumps({"ok": not broken, "checks": checks}))
    await runs.record(database, actor().name, started_at, findings)
    if broken:
        fail(f"{len(broken)} of {len(findings)} promises are broken; the rows above show where.")


@click.command()
@plain_command
def demo() -> None:
    """Make an account with a key and a balance, and print a first message to send."""
    settings = load_settings()
    if settings.database_url is not None:
        raise OperatorError(
            "The demo is for Tumira's own database, and TUMIRA_DATABASE_URL names another: unset it, or use "
            "`tumira account create` and `tumira key create`."
        )
    if not answers(settings, "/healthz"):
        tell(f"Tumira does not run yet: start `{own_command()} serve` before you send.")
    _demo(settings=settings)


@in_database
async def _demo(database: Database, *, settings: Settings) -> None:
    async with database.connection() as connection:
        account = await accounts.find_by_phone(connection, DEMO_PHONE)
    if account is None:
        account = await open_account(
            database,
            phone=DEMO_PHONE,
            name="Demo",
            business="Demo",
            balance=DEMO_BALANCE,
            rate_limit=60,
            actor=actor().name,
        )
    elif account.balance < 1:
        account = await manage_accounts.credit(
            database, account.id, DEMO_BALANCE, note="Demo", actor=actor().name, is_payment=False
        )
    key_id, key = await manage_keys.create_key(database, account.id, "Demo", list(Scope), actor=actor())
    curl = _curl(settings.public_url, key)
    if wants_json():
        shown = {
            "account_id": account.id,
            "balance": account.balance,
            "key_id": key_id,
            "key": key,
            "curl": curl,
        }
        show(shown)
        return
    click.echo(f"Account {write_id(ACCOUNT, account.id)}, balance {money.write(account.balance)} USD.")
    click.echo("Paste this to send a first message to two numbers. The answer names the batch; look it up at")
    click.echo(f"{settings.public_url}/api/v1/batches/… with the same Authorization header.\n")
    click.echo(curl)


def _curl(url: str, key: str) -> str:
    body = json.dumps(
        {"channel": "sms", "to": ["+263771200001", "+27821230002"], "body": "Your order 1042 is on its way."}
    )
    return " \\\n  ".join(
        [
            f"curl {shlex.quote(url + '/api/v1/messages')}",
            f"-H {shlex.quote('Authorization: Bearer ' + key)}",
            "-H 'Content-Type: application/json'",
            f"-d {shlex.quote(body)}",
        ]
    )


def own_command() -> str:
    """Return how this program can be called again from a shell."""
    if shutil.which("tumira"):
        return "tumira"
    beside = Path(sys.executable).parent / "tumira"
    try:
        return str(beside.relative_to(Path.cwd()))
    except ValueError:
        return str(beside)
