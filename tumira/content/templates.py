"""Templates: forms of text that an operator allows or blocks.

A template is a text with places, such as `Your parcel {number} waits at {shop}.` A place stands for 1 to 40
characters on one line; everything else must match literally, except that any white space matches any other.
The names of places are for readers only.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Final

from tumira.core.ids import AccountId
from tumira.core.translation import _

TEMPLATE_MAX: Final = 1600
PLACES_MAX: Final = 20
PLACE_MAX: Final = 40
# A template with fewer letters would match unintended texts.
LETTERS_MIN: Final = 10

_PLACE: Final = re.compile(r"\{\w{1,40}\}")
_SPACE: Final = re.compile(r"\s+")
_LINE_END: Final = re.compile(r"[\n\r\v\f\x85\u2028\u2029]")
_UNSTORABLE: Final = re.compile("[\ud800-\udfff\x00]")


class TemplateVerdict(StrEnum):
    """The decision about a matching text, whatever the classifier says."""

    ALLOW = "allow"
    BLOCK = "block"


class Squeezed:
    """A text with single spaces, and the positions of each of its letters.

    Sets of positions are integers: bit 5 stands for the position before the sixth letter.
    """

    def __init__(self, text: str) -> None:
        lines = _SPACE.sub(lambda run: "\n" if _LINE_END.search(run[0]) else " ", text.strip())
        self.plain = lines.replace("\n", " ")
        self._lines = lines

    @cached_property
    def letters(self) -> Mapping[str, int]:
        """Return the positions of each letter; a line end counts as a space."""
        return _positions(self.plain)

    @cached_property
    def inside(self) -> int:
        """Return the positions of everything but line ends."""
        return (1 << len(self._lines)) - 1 & ~_positions(self._lines).get("\n", 0)


def _positions(text: str) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for position, letter in enumerate(text):
        found[letter] = found.get(letter, 0) | 1 << position
    return found


def tidy(text: str) -> str:
    """Return a template as it is stored; a ValueError says in one sentence what to change."""
    if len(text) > TEMPLATE_MAX:
        raise ValueError(_("Enter a template of at most {most} characters.").format(most=TEMPLATE_MAX))
    if _UNSTORABLE.search(text):
        raise ValueError(_("The template has characters that are not text. Type it again."))
    plain = Squeezed(text).plain
    literals = _PLACE.split(plain)
    if any("{" in literal or "}" in literal for literal in literals):
        raise ValueError(_("Write placeholders like {name}, with letters, digits and underscores."))
    if len(literals) - 1 > PLACES_MAX:
        raise ValueError(_("A template can have at most {most} placeholders.").format(most=PLACES_MAX))
    if not all(literals[1:-1]):
        raise ValueError(_("Put text between placeholders, or join them into one."))
    if count_letters(plain) < LETTERS_MIN:
        text = _("A template needs at least {least} letters outside placeholders, or it fits too many texts.")
        raise ValueError(text.format(least=LETTERS_MIN))
    return plain


def count_letters(template: str) -> int:
    """Count the letters outside placeholders, which say what a text is about."""
    return sum(letter.isalpha() for literal in _PLACE.split(template) for letter in literal)


class Pattern:
    """A template that texts are compared with.

    A regular expression with twenty places would backtrack for minutes. Here all positions that the template
    can have reached advance together, a letter at a time, so a comparison takes at most one step for each
    letter of the template and forty for each place.
    """

    __slots__ = ("_first", "_last", "_middle")

    def __init__(self, template: str) -> None:
        first, *others = _PLACE.split(template)
        self._first = first
        self._middle: Sequence[str] = others[:-1]
        self._last = others[-1] if others else None

    def matches(self, text: Squeezed) -> bool:
        plain = text.plain
        if self._last is None:
            return plain == self._first
        # Nearly every other text is ruled out here.
        if not (plain.startswith(self._first) and plain.endswith(self._last)):
            return False
        reached = 1 << len(self._first)
        for literal in self._middle:
            reached = _after_place(text, reached)
            for letter in literal:
                reached = (reached & text.letters.get(letter, 0)) << 1
        return bool(_after_place(text, reached) & 1 << len(plain) - len(self._last))


def _after_place(text: Squeezed, reached: int) -> int:
    """Return the positions at which a place can end if it begins at one of these."""
    ends = 0
    for _step in range(PLACE_MAX):
        reached = (reached & text.inside) << 1
        ends |= reached
    return ends


class Policy:
    """All templates, of one version; None stands for every account."""

    def __init__(
        self, version: int, templates: Iterable[tuple[AccountId | None, TemplateVerdict, str]] = ()
    ) -> None:
        self.version = version
        self._templates: dict[tuple[AccountId | None, TemplateVerdict], list[str]] = {}
        # Compiled on first use: after a change, only accounts that send pay for it.
        self._patterns: dict[tuple[AccountId | None, TemplateVerdict], Sequence[Pattern]] = {}
        for account_id, verdict, template in templates:
            self._templates.setdefault((account_id, verdict), []).append(template)

    def of_account(self, account_id: AccountId) -> Sequence[tuple[AccountId | None, TemplateVerdict, str]]:
        """Return the templates that apply to an account, its own and those for every account."""
        return [
            (owner, verdict, template)
            for (owner, verdict), templates in self._templates.items()
            if owner is None or owner == account_id
            for template in templates
        ]

    def blocks(self, account_id: AccountId, text: str) -> bool:
        """Tell whether a template blocks this text for an account."""
        return self._has(TemplateVerdict.BLOCK, account_id, text)

    def allows(self, account_id: AccountId, text: str) -> bool:
        """Tell whether a template allows this text for an account."""
        return self._has(TemplateVerdict.ALLOW, account_id, text)

    def _has(self, verdict: TemplateVerdict, account_id: AccountId, text: str) -> bool:
        if not self._templates:
            return False
        patterns = [*self._of(account_id, verdict), *self._of(None, verdict)]
        if not patterns:
            return False
        squeezed = Squeezed(text)
        return any(pattern.matches(squeezed) for pattern in patterns)

    def _of(self, account_id: AccountId | None, verdict: TemplateVerdict) -> Sequence[Pattern]:
        key = (account_id, verdict)
        if key not in self._templates:
            return ()
        if key not in self._patterns:
            self._patterns[key] = [Pattern(template) for template in self._templates[key]]
        return self._patterns[key]
