"""Tax rates by country of the seller, each from a day on."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core.errors import OperatorError
from tumira.core.translation import _
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement

HEADING_MAX: Final = 40
DEFAULT_HEADING: Final = "Invoice"
RATES_MAX: Final = 1_000

_COUNTRY: Final = re.compile(r"[A-Z]{2}")
_RATE: Final = re.compile(r"[0-9]{1,2}(\.[0-9]{1,2})?")


@dataclass(frozen=True, slots=True)
class TaxRate:
    country: str
    from_day: date
    # In percent.
    rate: Decimal
    # What a paper with this tax is called.
    heading: str
    set_by: str
    created_at: datetime


_COLUMNS: Final = ", ".join(TaxRate.__slots__)

SQL_LIST: Final = Statement(f"""
SELECT {_COLUMNS}
  FROM tax_rates
 ORDER BY country, from_day DESC
 LIMIT %(count_max)s
""")  # noqa: S608 - only constants are put in


async def list_rates(connection: Connection) -> Sequence[TaxRate]:
    """Return all rates by country, newest first."""
    return [TaxRate(*row) for row in await SQL_LIST.rows(connection, count_max=RATES_MAX)]


SQL_FIND: Final = Statement(f"""
SELECT {_COLUMNS}
  FROM tax_rates
 WHERE country = %(country)s
   AND from_day <= %(day)s
 ORDER BY from_day DESC
 LIMIT 1
""")  # noqa: S608 - only constants are put in


async def find_rate(connection: Connection, country: str, day: date) -> TaxRate | None:
    """Return the rate that holds in a country on a day."""
    row = await SQL_FIND.row(connection, country=country, day=day)
    return None if row is None else TaxRate(*row)


SQL_SET: Final = Statement(f"""
INSERT INTO tax_rates (country, from_day, rate, heading, set_by)
VALUES (%(country)s, %(from_day)s, %(rate)s, %(heading)s, %(set_by)s)
    ON CONFLICT (country, from_day) DO UPDATE
   SET rate = excluded.rate, heading = excluded.heading, set_by = excluded.set_by,
       created_at = clock_timestamp()
RETURNING {_COLUMNS}
""")  # noqa: S608 - only constants are put in


def read_rate(text: str) -> Decimal:
    if not _RATE.fullmatch(text):
        raise OperatorError(f"{text!r} is not a percentage below 100, such as 15 or 15.5.")
    return Decimal(text)


async def set_rate(
    database: Database,
    *,
    country: str,
    from_day: date,
    rate: Decimal,
    heading: str = DEFAULT_HEADING,
    actor: Actor,
) -> TaxRate:
    """Set the rate of a country from a day on; papers that were made keep theirs."""
    heading = heading.strip()
    if not _COUNTRY.fullmatch(country):
        raise OperatorError(f"{country!r} is not a country: write two letters, such as ZW or ZA.")
    if not 1 <= len(heading) <= HEADING_MAX or not heading.isprintable():
        raise OperatorError(f"The heading must be one line of at most {HEADING_MAX} characters.")
    async with database.transaction() as connection:
        row = await SQL_SET.row(
            connection, country=country, from_day=from_day, rate=rate, heading=heading, set_by=actor.name
        )
        assert row is not None
        detail = f"{country}: {rate}% from {from_day}, “{heading}”"
        await audit_log.record_by_operator(connection, actor, "tax rate set", detail)
    return TaxRate(*row)


SQL_REMOVE: Final = Statement("""
DELETE FROM tax_rates
 WHERE country = %(country)s
   AND from_day = %(from_day)s
RETURNING rate
""")


async def remove_rate(database: Database, country: str, from_day: date, actor: Actor) -> None:
    """Remove a rate, so that the one before it goes on; papers that were made keep theirs."""
    async with database.transaction() as connection:
        rate = await SQL_REMOVE.value(connection, country=country, from_day=from_day)
        if rate is None:
            raise OperatorError(_("There is no such tax rate."))
        await audit_log.record_by_operator(
            connection, actor, "tax rate removed", f"{country}: {rate}% from {from_day}"
        )
