"""Files that tests have checked."""

import hashlib
from functools import cache
from typing import Final

from tumira.core.ids import AccountId
from tumira.postgres.pool import Database
from tumira.uploads.check_file import Busy, FileChecker, Outcome, Pending
from tumira.uploads.check_rows import Wanted


async def check_file(database: Database, account_id: AccountId, wanted: Wanted) -> Outcome:
    checked = await FileChecker(database, patience_s=None).check(account_id, wanted)
    assert not isinstance(checked, Busy | Pending)
    return checked


MESSAGE: Final = "Dear {name}, your parcel is here."
_LETTERS: Final = str.maketrans("0123456789", "ghijklmnop")


@cache
def expensive_file(rows: int) -> Wanted:
    """Return a file whose check takes some milliseconds of a processor for each row: no word comes twice."""
    lines = ["to,name"]
    for place in range(rows):
        letters = hashlib.shake_256(str(place).encode()).hexdigest(200).translate(_LETTERS)
        words = [letters[start : start + 5] for start in range(0, 400, 5)]
        lines.append(f"+2637712{place:05},{' '.join(words)}")
    return Wanted("dear.csv", "\n".join(lines).encode(), MESSAGE, None, None)
