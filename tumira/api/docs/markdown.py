"""The Markdown of the guide and the JSON of examples, as HTML."""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup, escape

_TOKEN: Final = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*")(?=:)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<value>\b(?:true|false|null|[0-9]+)\b)'
)
_CODE: Final = re.compile(r"`([^`]+)`")
_PLAIN_COLUMNS: Final = 2
# Pages of this site that the guide names.
_PAGES: Final = frozenset({"/content-policy"})


def highlight(value: Any) -> Markup:
    """Write JSON with names, strings and other values in spans of their classes."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    written = Markup()
    end = 0
    for token in _TOKEN.finditer(text):
        written += escape(text[end : token.start()])
        written += Markup('<span class="{}">{}</span>').format(token.lastgroup, token[0])
        end = token.end()
    return written + escape(text[end:])


@dataclass(frozen=True, slots=True)
class Markdown:
    """Turns the Markdown of the guide into HTML: paragraphs, lists, tables and `code`.

    Code spans that name a section of the reference, one of `sections`, become links to it.
    """

    sections: Collection[str] = ()
    # The page of the reference; nothing on that page itself.
    page: str = ""

    def blocks(self, text: str) -> Markup:
        """Turn a text into blocks of HTML, separated by blank lines."""
        blocks = [block.split("\n") for block in text.strip().split("\n\n")]
        return Markup("\n").join(self._block(lines) for lines in blocks)

    def inline(self, text: str) -> Markup:
        """Turn one line into HTML without a block around it."""
        # Split at the code spans: the odd pieces stood between back-quotes.
        return Markup("").join(
            self._code(piece) if place % 2 else escape(piece) for place, piece in enumerate(_CODE.split(text))
        )

    def _code(self, text: str) -> Markup:
        if text in _PAGES:
            return Markup('<a href="{0}">{0}</a>').format(text)
        code = Markup("<code>{}</code>").format(text)
        return (
            Markup('<a href="{}#{}">{}</a>').format(self.page, text, code) if text in self.sections else code
        )

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
        # A narrow screen shows each cell on a line of its own, with its column's name if there are several.
        named = Markup('<td data-name="{0}">{1}</td>')
        cell = named if len(head) > _PLAIN_COLUMNS else Markup("<td>{1}</td>")
        first, *others = map(self.inline, cells)
        rest = Markup("").join(cell.format(name, other) for name, other in zip(head[1:], others, strict=True))
        return Markup('<tr><th scope="row">{}</th>{}</tr>').format(first, rest)


def _cells(line: str) -> Sequence[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
