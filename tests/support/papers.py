"""Papers in tests: who issues them, credits for them, and an independent reader of PDF files."""

import itertools
import shutil
import subprocess
import time
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import pytest

from tests.support.processes.service import Caller
from tumira.core.ids import TopUpId, new_id
from tumira.core.settings.seller import Seller
from tumira.operations.audit import runs
from tumira.operations.audit.money_checks import BALANCE_CHECK, PAPER_CHECKS
from tumira.operations.audit.runs import Finding
from tumira.papers.issue import PaperIssuer
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.settle import settle
from tumira.topups.states import Currency, Method, Paid
from tumira.topups.store import NewTopUp

PUBLIC_URL: Final = "https://sms.example"
SELLER: Final = Seller(
    "Sanganai SMS (Pvt) Ltd", "12 Samora Machel Avenue, Harare", "220012345", Decimal("15.5")
)
ISSUER: Final = PaperIssuer(SELLER, PUBLIC_URL)

_references: Final = itertools.count(1)


async def start(database: Database, caller: Caller, amount: Decimal = Decimal(10)) -> TopUpId:
    top_up_id = TopUpId(new_id(time.time_ns() // 1_000_000))
    new = NewTopUp(
        id=top_up_id,
        account_id=caller.id,
        method=Method.PAYNOW,
        provider="ecocash",
        currency=Currency.USD,
        asked=amount,
    )
    async with database.transaction() as connection:
        await top_ups.insert(connection, new)
    return top_up_id


async def pay(database: Database, caller: Caller, amount: Decimal = Decimal(10)) -> TopUpId:
    """Top up an account through Paynow."""
    top_up_id = await start(database, caller, amount)
    await settle(database, top_up_id, Paid(f"paper-{next(_references)}", amount))
    return top_up_id


async def broken_papers(database: Database) -> Sequence[Finding]:
    """Return what the audit finds about balances, papers and statements.

    Ledgers of tests have batches and top-ups that never were, which other checks would find.
    """
    async with runs.snapshot(database) as connection:
        found = [await runs.run_check(connection, check) for check in (BALANCE_CHECK, *PAPER_CHECKS)]
    return [one for one in found if one.rows]


def read_pdf(content: bytes) -> str:
    """Return the words of a PDF as poppler reads them, in the order of the page."""
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext is missing: install poppler-utils")
    done = subprocess.run(
        ["pdftotext", "-layout", "-", "-"], input=content, capture_output=True, check=True, timeout=60
    )
    assert not done.stderr, done.stderr
    return done.stdout.decode()
