"""Requests to erase a number, and the position of their walks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import asyncpg

from tumira.core.ids import AccountId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class Erasure:
    """A request to erase a number; `number` is None once it is erased everywhere."""

    id: int
    at: datetime
    actor: str
    note: str
    number: str | None
    # The position of the walk.
    stage: str
    place: Sequence[str]
    accounts: Sequence[AccountId]
    # What was erased so far, and how many messages and rows have to end before they can be.
    messages: int
    others: Mapping[str, int]
    waiting: int
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step erased, what has to wait, and where the next step begins: None for the next stage."""

    place: Sequence[str] | None = None
    messages: int = 0
    others: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    accounts: frozenset[AccountId] = frozenset()


_COLUMNS: Final = (
    "id, at, actor, note, number, stage, place, accounts, messages, others, waiting, finished_at"
)


def _erasure(row: asyncpg.Record | None) -> Erasure | None:
    return None if row is None else Erasure(**{**row, "others": json.loads(row["others"])})


# Of two requests for the same number at once, the second gets the row of the first.
SQL_INSERT: Final = Statement(f"""
INSERT INTO erasures (actor, note, number, stage)
VALUES (%(actor)s, %(note)s, %(number)s, %(stage)s)
    ON CONFLICT (number) WHERE number IS NOT NULL DO NOTHING
RETURNING {_COLUMNS}
""")  # noqa: S608 - only constants are put in


async def insert(connection: Connection, number: str, stage: str, *, actor: str, note: str) -> Erasure | None:
    """Begin an erasure; None if one of this number is open."""
    return _erasure(
        await SQL_INSERT.row(connection, number=number, stage=stage, actor=actor, note=note),
    )


SQL_FIND_OPEN: Final = Statement(f"SELECT {_COLUMNS} FROM erasures WHERE number = %(number)s")  # noqa: S608 - only constants are put in


async def find_open(connection: Connection, number: str) -> Erasure | None:
    return _erasure(await SQL_FIND_OPEN.row(connection, number=number))


SQL_HOLD: Final = Statement(f"""
SELECT {_COLUMNS}
  FROM erasures
 WHERE id = %(erasure_id)s
   FOR NO KEY UPDATE
""")  # noqa: S608 - only constants are put in


async def hold(connection: Connection, erasure_id: int) -> Erasure:
    """Lock a request."""
    erasure = _erasure(await SQL_HOLD.row(connection, erasure_id=erasure_id))
    assert erasure is not None, "requests are never deleted"
    return erasure


SQL_HOLD_DUE: Final = Statement(f"""
SELECT {_COLUMNS}
  FROM erasures
 WHERE number IS NOT NULL
   AND due_at <= clock_timestamp()
 ORDER BY due_at
 LIMIT 1
   FOR NO KEY UPDATE SKIP LOCKED
""")  # noqa: S608 - only constants are put in


async def hold_due(connection: Connection) -> Erasure | None:
    """Lock a request that is due and that no other transaction holds."""
    return _erasure(await SQL_HOLD_DUE.row(connection))


SQL_SAVE: Final = Statement("""
UPDATE erasures
   SET number = %(number)s,
       stage = %(stage)s,
       place = %(place)s,
       accounts = %(accounts)s,
       messages = %(messages)s,
       others = %(others)s::text::jsonb,
       waiting = %(waiting)s,
       finished_at = %(finished_at)s,
       due_at = clock_timestamp() + %(pause)s::interval
 WHERE id = %(erasure_id)s
""")


async def save(connection: Connection, erasure: Erasure, pause: timedelta) -> None:
    """Store the position of a locked request, and when to continue it."""
    await SQL_SAVE.rows(
        connection,
        erasure_id=erasure.id,
        number=erasure.number,
        stage=erasure.stage,
        place=list(erasure.place),
        accounts=list(erasure.accounts),
        messages=erasure.messages,
        others=json.dumps(erasure.others),
        waiting=erasure.waiting,
        finished_at=erasure.finished_at,
        pause=pause,
    )
