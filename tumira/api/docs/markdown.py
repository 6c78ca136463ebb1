"""How does Markdown become HTML? For our own texts, which use paragraphs, lists, tables and `code` only."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

_CODE: Final = re.compile(r"`([^`]+)`")
_PLAIN_COLUMNS: Final = 2


@dataclass(frozen=True, slots=True)
class Markdown:
    """Writes HTML; what stands in `sections` has a section of that name, and is made a link to it."""

    sections: Collection[str] = ()

    def blocks(self, text: str) -> Markup:
        """Turn a text into blocks of HTML; blank lines part them."""
        blocks = [block.split("\n") for block in text.strip().split("\n\n")]
        return Markup("\n").join(self._block(lines) for lines in blocks)

    def inline(self, text: str) -> Markup:
        """Turn one line into HTML without a block around it."""
        # Split at the code spans: the odd pieces are what stood between back-quotes.
        return Markup("").join(
            self._code(piece) if place % 2 else escape(piece) for place, piece in enumerate(_CODE.split(text))
        )

    def _code(self, text: str) -> Markup:
        code = Markup("<code>{}</code>").format(text)
        return Markup('<a href="#{}">{}</a>').format(text, code) if text in self.sections else code

    def _block(self, lines: Sequence[str]) -> Markup:
        if lines[0].startswith("- "):
            entries = "\n".join(lines).removeprefix("- ").split("\n- ")
            return Markup("<ul>{}</ul>").format(
                Markup("").join(
                    Markup("<li>{}</li>").format(self.inline(" ".join(entry.split()))) for entry in entries
                )
            )
        if lines[0].startswith("|"):
            return self._table([_cells(line) for line in lines])
        return Markup("<p>{}</p>").format(self.inline(" ".join(lines)))

    def _table(self, rows: Sequence[Sequence[str]]) -> Markup:
        head, _, *body = rows
        names = Markup("").join(Markup('<th scope="col">{}</th>').format(self.inline(cell)) for cell in head)
        return Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(
            names, Markup("\n").join(self._row(head, row) for row in body)
        )

    def _row(self, head: Sequence[str], cells: Sequence[str]) -> Markup:
        # A narrow screen shows each cell on a line of its own, and says what it is where that is not plain.
        named = Markup('<td data-name="{0}">{1}</td>')
        cell = named if len(head) > _PLAIN_COLUMNS else Markup("<td>{1}</td>")
        first, *others = map(self.inline, cells)
        rest = Markup("").join(cell.format(name, other) for name, other in zip(head[1:], others, strict=True))
        return Markup('<tr><th scope="row">{}</th>{}</tr>').format(first, rest)


def _cells(line: str) -> Sequence[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
