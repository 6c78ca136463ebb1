"""Weighs the sentences of a normalised text with the table of one group of languages."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct

from tumira.content.neighbours import Neighbour, Neighbours
from tumira.content.tokens import START, Word, contexts, pair, part_of, places, read_chunk
from tumira.content.tokens import sentences as split_sentences
from tumira.content.weights import STEP, Table

CACHED_CHUNKS: Final = 32_768
# A text is as long as its number of features says, and at least this long: a word or two has little weight.
WORDS_LENGTH: Final = 45.0
WORDS_LENGTH_MIN: Final = 100.0
PIECES_LENGTH: Final = 25.0
PIECES_LENGTH_MIN: Final = 400.0
CONTEXTS_LENGTH: Final = 45.0
CONTEXTS_LENGTH_MIN: Final = 100.0
# Words say more than where they stand, and that says more than pieces of words.
WORDS_SHARE: Final = 1.5
CONTEXTS_SHARE: Final = 1.2
# Below this evidence a sentence is plainly transactional. What is left of a text without such sentences is
# weighed too, if it has some words.
SERVICE: Final = -0.5
REST_WORDS_MIN: Final = 8
PHRASE_WORDS_MAX: Final = 6

Span = tuple[int, int]


class _Chunk(Struct, frozen=True):
    """A chunk, and what its words and its pieces weigh."""

    words: Sequence[Word]
    neighbours: Sequence[Neighbour]
    ends_sentence: bool
    words_sum: int
    pieces_sum: int
    piece_count: int


class Sums(NamedTuple):
    """What words, pieces and contexts weigh together, in steps, and how many of each there are."""

    words: int
    pieces: int
    contexts: int
    word_count: int
    piece_count: int
    context_count: int

    def worths(self) -> tuple[float, float, float]:
        """Return what a step of a word, of a piece and of a context is worth in a text of this length."""
        # Each word is counted alone and with the one before it.
        return (
            STEP * WORDS_SHARE / math.sqrt(WORDS_LENGTH * 2 * self.word_count + WORDS_LENGTH_MIN),
            STEP / math.sqrt(PIECES_LENGTH * self.piece_count + PIECES_LENGTH_MIN),
            STEP * CONTEXTS_SHARE / math.sqrt(CONTEXTS_LENGTH * self.context_count + CONTEXTS_LENGTH_MIN),
        )


NO_SUMS: Final = Sums(0, 0, 0, 0, 0, 0)


class Sentence(Struct, frozen=True):
    sums: Sums
    # Its evidence for marketing, alone.
    evidence: float
    # How many chunks of the text come before it.
    place: int
    chunks: Sequence[_Chunk]
    words: Sequence[Neighbour]
    # In which part of the text it stands.
    part: str

    @property
    def word_count(self) -> int:
        return self.sums.word_count


class Scale:
    """Weighs texts with one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._chunk = lru_cache(CACHED_CHUNKS)(self._read_chunk)
        self._neighbours = Neighbours(table.steps)

    def sentences(self, text: str) -> Sequence[Sentence]:
        """Split and weigh a normalised text; beyond the maximum the last sentence holds the rest."""
        found = split_sentences(text, self._chunk)
        return [self._sentence(number, len(found), *sentence) for number, sentence in enumerate(found)]

    def evidence(self, sentences: Sequence[Sentence]) -> float:
        """Return the evidence for marketing of sentences together."""
        return sentences[0].evidence if len(sentences) == 1 else self._weigh(_add(sentences))

    def rest(self, sentences: Sequence[Sentence]) -> Sequence[Sentence]:
        """Return the sentences that are not plainly transactional, if there are both and enough is left."""
        rest = [one for one in sentences if one.evidence > SERVICE]
        if len(rest) == len(sentences) or sum(one.word_count for one in rest) < REST_WORDS_MIN:
            return ()
        return rest

    def phrases(self, text: str, sentences: Sequence[Sentence]) -> Sequence[tuple[Span, float]]:
        """Find the words with most weight, joined with neighbours that have weight too."""
        worths = _add(sentences).worths()
        starts = [start for _, start, _ in places(text)]
        phrases: list[tuple[Span, float]] = []
        for sentence in sentences:
            run: list[tuple[Span, float]] = []
            weighed = self._weigh_words(sentence, starts, *worths)
            for span, weight in [*weighed, ((0, 0), -1.0)]:
                if weight > 0 and len(run) < PHRASE_WORDS_MAX:
                    run.append((span, weight))
                    continue
                if run:
                    phrases.append(((run[0][0][0], run[-1][0][1]), sum(one for _, one in run)))
                run = [(span, weight)] if weight > 0 else []
        # A sign alone is no explanation.
        said = [phrase for phrase in phrases if any(letter.isalnum() for letter in text[slice(*phrase[0])])]
        return sorted(said or phrases, key=lambda phrase: -phrase[1])

    def _read_chunk(self, written: str) -> _Chunk:
        steps = self.table.steps
        chunk = read_chunk(written, steps)
        return _Chunk(
            chunk.words,
            [self._neighbours.of(word.text) for word in chunk.words],
            chunk.ends_sentence,
            sum(steps.get(word.text, 0) for word in chunk.words),
            sum(steps.get(piece, 0) for piece in chunk.pieces),
            len(chunk.pieces),
        )

    def _sentence(self, number: int, count: int, place: int, chunks: Sequence[_Chunk]) -> Sentence:
        words: list[Neighbour] = []
        words_sum = pieces_sum = piece_count = 0
        for chunk in chunks:
            words += chunk.neighbours
            words_sum += chunk.words_sum
            pieces_sum += chunk.pieces_sum
            piece_count += chunk.piece_count
        part = part_of(number, count)
        pairs_sum, contexts_sum, context_count = self._neighbours.weigh(words, part)
        sums = Sums(words_sum + pairs_sum, pieces_sum, contexts_sum, len(words), piece_count, context_count)
        return Sentence(sums, self._weigh(sums), place, chunks, words, part)

    def _weigh(self, sums: Sums) -> float:
        word_worth, piece_worth, context_worth = sums.worths()
        return (
            self.table.bias
            + sums.words * word_worth
            + sums.pieces * piece_worth
            + sums.contexts * context_worth
        )

    def _weigh_words(
        self,
        sentence: Sentence,
        starts: Sequence[int],
        word_worth: float,
        piece_worth: float,
        context_worth: float,
    ) -> Sequence[tuple[Span, float]]:
        """Divide the weight of a sentence among its words; a pair counts half for each word."""
        find = self.table.steps.get
        spans: list[Span] = []
        weights: list[float] = []
        stand = [0] * sentence.word_count
        for at, context in contexts([one.word for one in sentence.words], sentence.part):
            stand[at] += find(context, 0)
        before = START
        for place, chunk in enumerate(sentence.chunks, start=sentence.place):
            for word in chunk.words:
                weight = find(word.text, 0) * word_worth
                weight += chunk.pieces_sum * piece_worth / len(chunk.words)
                weight += stand[len(weights)] * context_worth
                half = find(pair(before, word.text), 0) * word_worth / 2
                weight += half
                if weights:
                    weights[-1] += half
                spans.append((starts[place] + word.start, starts[place] + word.end))
                weights.append(weight)
                before = word.text
        return list(zip(spans, weights, strict=True))


def _add(sentences: Sequence[Sentence]) -> Sums:
    return Sums(*map(sum, zip(NO_SUMS, *(one.sums for one in sentences), strict=True)))
