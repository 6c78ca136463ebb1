"""Weighs the pairs and contexts of a sentence, word by word, without writing the features.

What a table says of the words behind a word is looked up once for each word that is met.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tumira.content.tokens import CONTEXT_MARK, PIECE_MARK, START, figures, outline, shape_of

_Steps = Mapping[str, int]
# By the first word, then by the second.
_ByTwo = defaultdict[str, dict[str, int]]
_NOTHING: Final[_Steps] = {}


class Neighbour(NamedTuple):
    """A word, and what a table says of those that follow it, in steps."""

    word: str
    # What it is in the outline of its sentence.
    shape: str
    # By the word that follows.
    pairs: _Steps
    # By the word behind that.
    skips: _Steps


class Neighbours:
    """The weights of pairs and contexts by their words."""

    def __init__(self, steps: _Steps) -> None:
        self._steps = steps
        self._pairs: _ByTwo = defaultdict(dict)
        self._skips: _ByTwo = defaultdict(dict)
        # By the part of the text, and by the kind of figure in the sentence.
        self._parts: _ByTwo = defaultdict(dict)
        self._beside: _ByTwo = defaultdict(dict)
        for feature, step in steps.items():
            self._add(feature, step)
        self._start = self.of(START)

    def _add(self, feature: str, step: int) -> None:
        """Undo what `pair` and `contexts` write; words have neither blanks nor marks, and figures no plus."""
        if feature[0] == PIECE_MARK:
            return
        said = feature.removeprefix(CONTEXT_MARK)
        first, blank, second = said.partition(" ")
        if blank:
            (self._pairs if said == feature else self._skips)[first][second] = step
        elif said != feature and said[0] == "(":
            figure, _, word = said.partition("+")
            self._beside[figure][word] = step
        elif said != feature and said[0] != "#":
            self._parts[said[0]][said[1:]] = step

    def of(self, word: str) -> Neighbour:
        return Neighbour(
            word,
            shape_of(word),
            self._pairs.get(word, _NOTHING),
            self._skips.get(word, _NOTHING),
        )

    def weigh(self, words: Sequence[Neighbour], part: str) -> tuple[int, int, int]:
        """Return what a sentence's pairs and contexts weigh, in steps, and how many contexts it has."""
        pairs_sum = contexts_sum = 0
        after, behind, next_behind = self._start.pairs, _NOTHING, self._start.skips
        in_part = self._parts.get(part, _NOTHING)
        shapes = []
        for word, shape, pairs, skips in words:
            pairs_sum += after.get(word, 0)
            contexts_sum += behind.get(word, 0) + in_part.get(word, 0)
            after, behind, next_behind = pairs, next_behind, skips
            shapes.append(shape)
        whole = outline(shapes, part)
        find = self._steps.get
        for said in whole:
            contexts_sum += find(said, 0)
        count = len(whole) + 2 * len(words) - 1
        for figure in figures(shapes):
            count += len(words) - shapes.count(figure)
            beside = self._beside.get(figure, _NOTHING)
            for word, _, _, _ in words:
                contexts_sum += beside.get(word, 0)
        return pairs_sum, contexts_sum, count
