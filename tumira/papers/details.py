"""Billing details of an account: what stands on its papers from now on, and where statements are mailed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from tumira import audit_log
from tumira.core.ids import AccountId
from tumira.identity.reauthenticate import Requester
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement

NAME_MAX: Final = 100
ADDRESS_MAX: Final = 300
TAX_NUMBER_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class BillingDetails:
    """What is empty was not given; then the account's own name stands on its papers."""

    name: str = ""
    address: str = ""
    tax_number: str = ""
    # None where no statement is wanted by mail.
    statement_email: str | None = None


NO_DETAILS: Final = BillingDetails()

SQL_GET: Final = Statement("""
SELECT name, address, tax_number, statement_email
  FROM billing_details
 WHERE account_id = %(account_id)s
""")


async def get_details(connection: Connection, account_id: AccountId) -> BillingDetails:
    row = await SQL_GET.row(connection, account_id=account_id)
    return NO_DETAILS if row is None else BillingDetails(*row)


# Mails begin with the month that has not ended yet.
SQL_SET: Final = Statement("""
INSERT INTO billing_details (account_id, name, address, tax_number, statement_email, mailed_month)
VALUES (%(account_id)s, %(name)s, %(address)s, %(tax_number)s, %(statement_email)s, %(mailed_month)s)
    ON CONFLICT (account_id) DO UPDATE
   SET name = excluded.name,
       address = excluded.address,
       tax_number = excluded.tax_number,
       statement_email = excluded.statement_email,
       mailed_month = CASE WHEN billing_details.statement_email IS NULL THEN excluded.mailed_month
                           ELSE billing_details.mailed_month END
""")


async def change_details(
    database: Database, owner: Requester, details: BillingDetails, last_month: date
) -> None:
    """Change what papers from now on say; those that were made stay as they are."""
    async with database.transaction() as connection:
        before = await get_details(connection, owner.account_id)
        if details == before:
            return
        await SQL_SET.rows(
            connection,
            account_id=owner.account_id,
            name=details.name,
            address=details.address,
            tax_number=details.tax_number,
            statement_email=details.statement_email,
            mailed_month=last_month,
        )
        by_mail = "mailed" if details.statement_email else "not mailed"
        await audit_log.record(
            connection, owner.account_id, owner.actor, "billing details changed", f"statements are {by_mail}"
        )


SQL_LIST_TO_MAIL: Final = Statement("""
SELECT account_id
  FROM billing_details
 WHERE statement_email IS NOT NULL
   AND mailed_month < %(month)s
 ORDER BY mailed_month, account_id
 LIMIT %(count_max)s
""")


async def list_to_mail(connection: Connection, month: date, count_max: int) -> Sequence[AccountId]:
    """Return accounts whose statement of a month is to be mailed."""
    rows = await SQL_LIST_TO_MAIL.rows(connection, month=month, count_max=count_max)
    return [row["account_id"] for row in rows]


# Of several nodes one moves the row on; the others wait for its commit, and then find it moved.
SQL_CLAIM_MAIL: Final = Statement("""
UPDATE billing_details
   SET mailed_month = %(month)s
 WHERE account_id = %(account_id)s
   AND statement_email IS NOT NULL
   AND mailed_month < %(month)s
RETURNING statement_email
""")


async def claim_mail(connection: Connection, account_id: AccountId, month: date) -> str | None:
    """Return where to mail a statement, once; None if it was mailed or is not wanted any more."""
    email: str | None = await SQL_CLAIM_MAIL.value(connection, account_id=account_id, month=month)
    return email
