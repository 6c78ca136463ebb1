"""SQL that erases a phone number from contact lists."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from tumira.core.ids import AccountId
from tumira.operations.erasure.requests import StepResult
from tumira.operations.erasure.store import HOLDS, LOWEST
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.phone_numbers import Subject

SQL_ERASE_NUMBER: Final = Statement("""
WITH gone AS (
    DELETE FROM contacts
     WHERE number = %(number)s
       AND added_at < %(before)s
    RETURNING list_id
)
SELECT l.account_id FROM gone JOIN contact_lists l ON l.id = gone.list_id
""")


async def erase_number(connection: Connection, number: str, before: datetime) -> Sequence[AccountId]:
    """Delete a number from the lists of all accounts, and return whose each was."""
    rows = await SQL_ERASE_NUMBER.rows(connection, number=number, before=before)
    return [row["account_id"] for row in rows]


SQL_LIST_CONTACTS: Final = Statement(f"""
SELECT list_id, number, added_at < %(before)s
       AND EXISTS (SELECT FROM unnest(cells) AS cell WHERE {HOLDS.format("cell")}) AS holds
  FROM contacts
 WHERE (list_id, number) > (%(after_list)s, %(after_number)s)
 ORDER BY list_id, number
 LIMIT %(count_max)s
""")  # noqa: S608 - only constants are put in

SQL_ERASE_CELLS: Final = Statement(f"""
UPDATE contacts
   SET cells = ARRAY(SELECT CASE WHEN {HOLDS.format("cell")} THEN '' ELSE cell END
                       FROM unnest(cells) WITH ORDINALITY AS own (cell, place)
                      ORDER BY place)
 WHERE list_id = %(list_id)s
   AND number = %(number)s
""")  # noqa: S608 - only constants are put in


async def erase_cells(
    connection: Connection, subject: Subject, place: Sequence[str], before: datetime, count_max: int
) -> StepResult:
    """Blank the number where it stands in a column of the next contacts, beside numbers of others."""
    after_list, after_number = place or (str(LOWEST), "")
    rows = await SQL_LIST_CONTACTS.rows(
        connection,
        national=subject.national,
        before=before,
        after_list=UUID(after_list),
        after_number=after_number,
        count_max=count_max,
    )
    holding = [
        {"list_id": row["list_id"], "number": row["number"], "national": subject.national}
        for row in rows
        if row["holds"]
    ]
    await SQL_ERASE_CELLS.each(connection, holding)
    is_more = len(rows) == count_max
    return StepResult(place=[str(rows[-1]["list_id"]), rows[-1]["number"]] if is_more else None)
