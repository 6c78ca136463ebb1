"""What does the file of a migration say? Its number, its SQL, and how that is to be run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

OUTSIDE: Final = "-- outside a transaction"

_NAME: Final = re.compile(r"(?P<number>[0-9]{4})_[a-z0-9_]+_(pre|post)\.sql")
_AFTER: Final = re.compile(r"^-- after (?P<number>[0-9]{4})$", re.MULTILINE)
_WEEKS: Final = re.compile(r"^-- for each week of (?P<table>\w+) without (?P<index>\w+)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*--.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Work:
    """What a file outside a transaction runs: some statements, then some for each week without an index."""

    first: Sequence[str]
    each_week: Sequence[str] = ()
    table: str | None = None
    index: str | None = None


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered SQL file."""

    number: int
    name: str
    text: str

    @classmethod
    def read(cls, file_name: str, text: str) -> "Migration":
        """Make it of a file's name and content."""
        named = _NAME.fullmatch(file_name)
        assert named is not None, f"{file_name} is not named NNNN_words_pre.sql or NNNN_words_post.sql"
        return cls(int(named["number"]), file_name.removesuffix(".sql"), text)

    @property
    def checksum(self) -> bytes:
        """Return what tells an edited file from the one that was applied."""
        return sha256(self.text.encode()).digest()

    @property
    def is_post(self) -> bool:
        """Tell whether it takes away what older code needs."""
        return self.name.endswith("_post")

    @property
    def after(self) -> int | None:
        """Return which `_post` it needs to have been applied; without a word about it, none."""
        found = _AFTER.search(self.text)
        return None if found is None else int(found["number"])

    @property
    def is_outside(self) -> bool:
        """Tell whether its statements are run one by one, each for itself."""
        return OUTSIDE in self.text.splitlines()

    def work(self) -> Work:
        """Return the statements of a file outside a transaction; each ends with a semicolon and its line."""
        marker = _WEEKS.search(self.text)
        if marker is None:
            return Work(_statements(self.text))
        return Work(
            first=_statements(self.text[: marker.start()]),
            each_week=_statements(self.text[marker.end() :]),
            table=marker["table"],
            index=marker["index"],
        )


def _statements(text: str) -> Sequence[str]:
    pieces = f"{_COMMENT.sub('', text)}\n".split(";\n")
    return [piece.strip() for piece in pieces if piece.strip()]
