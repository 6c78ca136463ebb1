"""SQL that erases a phone number from contact lists and saved texts."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from tumira.core.ids import AccountId
from tumira.operations.erasure.requests import StepResult
from tumira.operations.erasure.store import HOLDS, LOWEST, SEPARATORS
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


SQL_LIST_TEXTS: Final = Statement(f"""
SELECT id, account_id, name, message, changed_at < %(before)s
       AND ({HOLDS.format("name")} OR {HOLDS.format("message")}) AS holds
  FROM saved_texts
 WHERE id > %(after)s
 ORDER BY id
 LIMIT %(count_max)s
""")  # noqa: S608 - only constants are put in

# Only as it was read: its owner may have changed it since.
SQL_ERASE_IN_TEXT: Final = Statement("""
UPDATE saved_texts
   SET name = %(name)s, message = %(message)s
 WHERE id = %(id)s
   AND name = %(old_name)s
   AND message = %(old_message)s
""")


async def erase_in_texts(
    connection: Connection, subject: Subject, after: UUID, before: datetime, count_max: int
) -> StepResult:
    """Replace the number, however it is spelt, in the next saved texts; the place is the last of them."""
    rows = await SQL_LIST_TEXTS.rows(
        connection, national=subject.national, before=before, after=after, count_max=count_max
    )
    holding = [row for row in rows if row["holds"]]
    await SQL_ERASE_IN_TEXT.each(
        connection,
        [
            {
                "id": row["id"],
                "old_name": row["name"],
                "old_message": row["message"],
                "name": _rename(row["id"], row["name"], subject),
                "message": replace_number(row["message"], subject),
            }
            for row in holding
        ],
    )
    return StepResult(
        place=[str(rows[-1]["id"])] if len(rows) == count_max else None,
        others={"saved_texts": len(holding)},
        accounts=frozenset(row["account_id"] for row in holding),
    )


def _rename(text_id: UUID, name: str, subject: Subject) -> str:
    """Return a name without the number, which no other text of the account has."""
    renamed = replace_number(name, subject)
    return name if renamed == name else f"{renamed} {text_id.hex[-8:]}"


SQL_TEXTS_HOLDING: Final = Statement(f"""
SELECT account_id, name, message
  FROM saved_texts
 WHERE {HOLDS.format("name")} OR {HOLDS.format("message")}
 ORDER BY id
 LIMIT %(count_max)s
""")  # noqa: S608 - only constants are put in


async def list_texts(connection: Connection, subject: Subject, count_max: int) -> Sequence[Mapping[str, Any]]:
    """Return the saved texts of all accounts that hold a number."""
    rows = await SQL_TEXTS_HOLDING.rows(connection, national=subject.national, count_max=count_max)
    return [dict(row) for row in rows]


def replace_number(text: str, subject: Subject) -> str:
    """Write what is left of a text without a number, in letters that every phone has."""
    between = rf"[{re.escape(SEPARATORS)}]*"
    national = between.join(subject.national)
    return re.sub(rf"(?:(?:\+|00)?{subject.calling_code}{between}|0{between})?{national}", "(erased)", text)
