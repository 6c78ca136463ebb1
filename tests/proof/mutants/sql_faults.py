"""Faults in SQL: conditions, locks, boundaries, orders, signs and conflicts.

The text is that of the string in the source, so that a fault has a place there. Replacement fields of an
f-string count as one word each.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Fault = tuple[str, tuple[int, int], str]

_SQL: Final = re.compile(
    r"\b(SELECT|UPDATE \w+\s+SET|INSERT INTO|DELETE FROM|WHERE|RETURNING|ORDER BY|CASE WHEN)\b"
)
_TOKEN: Final = re.compile(
    r"--[^\n]*|'[^'\n]*'|%\(\w+\)s|\{\{|\}\}|\{[^{}]*\}|[A-Za-z_][\w.]*|\d+|<=|>=|<>|::|\|\||\S", re.DOTALL
)
_ENDS: Final = frozenset(
    [
        "AND",
        "OR",
        "ORDER",
        "GROUP",
        "LIMIT",
        "FOR",
        "RETURNING",
        "OFFSET",
        "UNION",
        "HAVING",
        "ON",
        "SET",
        "FROM",
        "WHERE",
        "SELECT",
        "THEN",
        "ELSE",
        "END",
        "WHEN",
        "LEFT",
        "JOIN",
        "CROSS",
        "INSERT",
        "USING",
        "DO",
    ]
)
_ENDS_OF_ORDER: Final = frozenset(["LIMIT", "FOR", "ON", "OFFSET", "RETURNING", "UNION", "ROWS"])
_SWAPS: Final = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "<>": "=",
    "+": "-",
    "-": "+",
    "greatest": "least",
    "least": "greatest",
}
# A column with a moment, on the left of a comparison.
_STORED: Final = re.compile(r"\b(\w+_at|\w+\.at)\s*$")
# How much is done at a time; one more or less is as good.
_IS_BOUND: Final = re.compile(r"%\(\w+_max\)s")
# Conditions that say once more what another one says: they choose weeks and plans, not rows. Query plans are
# tested by `tests/postgres/test_statements.py`.
_PLANS: Final = re.compile(
    r"\s*(AND|WHERE)\s+[\w.]+\s+(BETWEEN\s+(%\((\w+_)?low\)s|\(SELECT|\(substr)"
    r"|=\s+ANY\(%\((\w*id|\w*ids|account_ids)\)s)",
)


@dataclass(frozen=True, slots=True)
class _Token:
    word: str
    start: int
    end: int
    depth: int


def is_sql(text: str) -> bool:
    return _SQL.search(text) is not None


def sql_faults(raw: str) -> Iterator[Fault]:
    """Give the faults that can be put into a statement or a part of one."""
    tokens = _read(raw)
    between = False
    for place, token in enumerate(tokens):
        if token.word == "BETWEEN":
            between = True
        elif token.word == "AND" and between:
            between = False
        elif token.word in _CLAUSES:
            yield from _CLAUSES[token.word](raw, tokens, place)
        elif token.word in _SWAPS and not _is_sign(raw, token) and not _is_moment(raw, token):
            yield "SQL operator", (token.start, token.end), _SWAPS[token.word]


def _read(raw: str) -> Sequence[_Token]:
    tokens: list[_Token] = []
    depth = 0
    quotes = re.match(r"\w*(\"\"\"|\")", raw)
    inner = (quotes.end(), len(raw) - len(quotes[1])) if quotes else (0, len(raw))
    for match in _TOKEN.finditer(raw, *inner):
        word = match[0]
        if word.startswith("--"):
            continue
        if word in ")]":
            depth -= 1
        tokens.append(_Token(word, match.start(), match.end(), depth))
        if word in "([":
            depth += 1
    return tokens


def _end(tokens: Sequence[_Token], place: int, ends: frozenset[str]) -> int:
    """Return where a clause ends that begins with a token: at the next one, or with its brackets."""
    depth = tokens[place].depth
    skips_and = 0
    end = tokens[place].end
    for token in tokens[place + 1 :]:
        if token.depth < depth:
            break
        if token.depth == depth:
            if token.word == "BETWEEN":
                skips_and += 1
            elif token.word == "AND" and skips_and:
                skips_and -= 1
            elif token.word in ends:
                break
        end = token.end
    return end


def _without_condition(raw: str, tokens: Sequence[_Token], place: int) -> Iterator[Fault]:
    token = tokens[place]
    span = (token.start, _end(tokens, place, _ENDS))
    if not _PLANS.match(raw[slice(*span)]):
        yield "SQL condition removed", span, "WHERE true" if token.word == "WHERE" else ""


def _without_lock(raw: str, tokens: Sequence[_Token], place: int) -> Iterator[Fault]:
    match = re.compile(r"FOR (NO KEY )?UPDATE( OF \w+)?( SKIP LOCKED)?").match(raw, tokens[place].start)
    if match is not None:
        yield "SQL lock removed", match.span(), ""
        if match[3]:
            yield "SQL skip removed", match.span(3), ""


def _without_order(_raw: str, tokens: Sequence[_Token], place: int) -> Iterator[Fault]:
    yield "SQL order removed", (tokens[place].start, _end(tokens, place, _ENDS_OF_ORDER)), ""


def _without_limit(_raw: str, tokens: Sequence[_Token], place: int) -> Iterator[Fault]:
    if not _IS_BOUND.match(tokens[place + 1].word):
        yield "SQL limit removed", (tokens[place].start, _end(tokens, place, _ENDS)), ""


def _without_word(_raw: str, tokens: Sequence[_Token], place: int) -> Iterator[Fault]:
    token = tokens[place]
    is_comparison = token.word == "DISTINCT" and tokens[place - 1].word == "IS"
    is_null = token.word == "NOT" and tokens[place + 1].word not in {"EXISTS", "("}
    if not is_comparison and not is_null:
        yield f"SQL {token.word.lower()} removed", (token.start, token.end), ""


def _other_null(_raw: str, tokens: Sequence[_Token], place: int) -> Iterator[Fault]:
    following = [token.word for token in tokens[place + 1 : place + 3]]
    if following[:1] == ["NULL"]:
        yield "SQL null", (tokens[place].start, tokens[place + 1].end), "IS NOT NULL"
    elif following == ["NOT", "NULL"]:
        yield "SQL null", (tokens[place].start, tokens[place + 2].end), "IS NULL"


def _other_case(raw: str, tokens: Sequence[_Token], place: int) -> Iterator[Fault]:
    start, end = tokens[place].end, _end(tokens, place, frozenset({"THEN"}))
    yield "SQL case turned", (start, end), f" NOT ({raw[start:end].strip()})"


def _without_conflict(raw: str, tokens: Sequence[_Token], place: int) -> Iterator[Fault]:
    start = raw.rfind("ON CONFLICT", 0, tokens[place].start)
    if start >= 0:
        yield "SQL conflict not expected", (start, tokens[place].end), ""


def _is_sign(raw: str, token: _Token) -> bool:
    return token.word in "+-" and not re.match(r"\s.\s", raw[token.start - 1 : token.end + 1], re.DOTALL)


def _is_moment(raw: str, token: _Token) -> bool:
    """Tell whether a clock, or a moment that was stored, is compared, which is never at the very moment."""
    if token.word[0] not in "<>" or token.word == "<>":
        return False
    start, end = raw.rfind("\n", 0, token.start) + 1, (raw + "\n").index("\n", token.start)
    return "timestamp()" in raw[start:end] or _STORED.search(raw[start : token.start]) is not None


_CLAUSES: Final[Mapping[str, Callable[[str, Sequence[_Token], int], Iterator[Fault]]]] = {
    **dict.fromkeys(("WHERE", "AND", "OR"), _without_condition),
    "FOR": _without_lock,
    "ORDER": _without_order,
    "LIMIT": _without_limit,
    **dict.fromkeys(("DESC", "DISTINCT", "NOT"), _without_word),
    "IS": _other_null,
    "WHEN": _other_case,
    "NOTHING": _without_conflict,
}
