"""How are the numbers of old messages cut down to their country and last digits?

In the order of the messages' ids, which is that of their age, so that every week is passed once.
"""

from datetime import datetime
from typing import Final

from tumira.core.ids import first_id
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.phone_numbers import DIGITS_LEFT, GAP, NUMBERS_KEPT
from tumira.sending.lifecycle import is_final

SQL_HOLD_PLACE: Final = Statement("SELECT up_to FROM number_retention FOR NO KEY UPDATE")

SQL_LIST_OLD: Final = Statement("""
SELECT id, status
  FROM messages
 WHERE id > %(up_to)s
   AND id < %(before)s
 ORDER BY id
 LIMIT %(count_max)s
""")

# Held in their order, because somebody may be erasing one of them.
SQL_CUT: Final = Statement("""
WITH old AS MATERIALIZED (
    SELECT id
      FROM messages
     WHERE id BETWEEN %(low)s AND %(high)s
       AND recipient ~ '^[+][0-9]+$'
     ORDER BY id
       FOR NO KEY UPDATE
)
UPDATE messages
   SET recipient = '+' || (SELECT calling_code FROM destinations WHERE country = messages.country)
                   || %(gap)s || right(recipient, %(digits)s)
 WHERE id = ANY(ARRAY(SELECT id FROM old))
   AND id BETWEEN %(low)s AND %(high)s
""")

SQL_CUT_INCIDENTS: Final = Statement("""
UPDATE incidents
   SET recipient = NULL
 WHERE message_id BETWEEN %(low)s AND %(high)s
   AND recipient IS NOT NULL
""")

SQL_SET_PLACE: Final = Statement("UPDATE number_retention SET up_to = %(up_to)s")


async def cut_old(connection: Connection, now: datetime, count_max: int) -> int:
    """Cut the numbers of the oldest messages that are still whole, and return how many were looked at."""
    up_to = await SQL_HOLD_PLACE.value(connection)
    before = first_id(int((now - NUMBERS_KEPT).timestamp() * 1000))
    ended = []
    for row in await SQL_LIST_OLD.rows(connection, up_to=up_to, before=before, count_max=count_max):
        # One that still waits, because no worker ran for months, needs its number; the others wait with it.
        if not is_final(row["status"]):
            break
        ended.append(row["id"])
    if ended:
        bounds = {"low": ended[0], "high": ended[-1]}
        await SQL_CUT.rows(connection, **bounds, gap=GAP, digits=DIGITS_LEFT)
        await SQL_CUT_INCIDENTS.rows(connection, **bounds)
        await SQL_SET_PLACE.rows(connection, up_to=ended[-1])
    return len(ended)
