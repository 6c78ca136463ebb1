"""What all workbooks have in common: sheets with rows of cells."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

from tumira.uploads.csv_file import CELL_MAX

SHEETS_MAX: Final = 100
SHEET_NAME_MAX: Final = 100
# A cell that is longer is refused, so no more of it is kept.
KEPT_MAX: Final = CELL_MAX + 1
# A formula whose result was not saved.
NOT_CALCULATED: Final = "#CALC!"


class SheetRow(Struct, frozen=True):
    """A row with something in it, the cells by their column from 0; it may stand `count` times."""

    line: int
    cells: Mapping[int, str]
    is_hidden: bool = False
    count: int = 1


class Workbook(Protocol):
    def list_filled(self) -> Sequence[str]:
        """Return the names of the visible sheets that have a row."""

    def rows(self, sheet: str) -> Iterator[SheetRow]:
        """Yield the rows of a sheet that are not blank."""


class Gathered:
    """A text that arrives in pieces, kept as far as a cell may be long."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._left = KEPT_MAX

    def add(self, text: str) -> None:
        if self._left > 0:
            self._pieces.append(text[: self._left])
            self._left -= len(text)

    def take(self) -> str:
        """Return the text, and begin another one."""
        text = "".join(self._pieces)
        self._pieces.clear()
        self._left = KEPT_MAX
        return text
