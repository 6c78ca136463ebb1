"""Weighs the sentences of a normalised text with the table of one group of languages."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

from tumira.content.tokens import START, Word, pair, places, read_chunk
from tumira.content.weights import STEP, Table

CACHED_CHUNKS: Final = 32_768
# A text is as long as its number of features says, and at least this long: a word or two has little weight.
WORDS_LENGTH: Final = 45.0
WORDS_LENGTH_MIN: Final = 100.0
PIECES_LENGTH: Final = 25.0
PIECES_LENGTH_MIN: Final = 400.0
# Words say more than pieces of words.
WORDS_SHARE: Final = 1.5
# How far the evidence of a text moves towards its strongest sentence, which needs some words.
STRONGEST_SHARE: Final = 0.2
SENTENCE_WORDS_MIN: Final = 3
# Below this evidence a sentence is plainly transactional. What is left of a text without such sentences is
# weighed too, if it has some words.
SERVICE: Final = -0.5
REST_WORDS_MIN: Final = 8
# Of a text with more sentences, the last one holds the rest.
SENTENCES_MAX: Final = 24
PHRASE_WORDS_MAX: Final = 6

Span = tuple[int, int]


class _Chunk(Struct, frozen=True):
    """A chunk, and what its words and its pieces weigh."""

    words: Sequence[Word]
    ends_sentence: bool
    words_sum: int
    pieces_sum: int
    piece_count: int


class Sentence(Struct, frozen=True):
    words_sum: int
    pieces_sum: int
    word_count: int
    piece_count: int
    # Its evidence for marketing, alone.
    evidence: float
    # How many chunks of the text come before it.
    place: int
    chunks: Sequence[_Chunk]


class Scale:
    """Weighs texts with one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._chunk = lru_cache(CACHED_CHUNKS)(self._read_chunk)

    def sentences(self, text: str) -> Sequence[Sentence]:
        """Split a normalised text; beyond the maximum the last sentence holds the rest."""
        found: list[Sentence] = []
        current: list[_Chunk] = []
        place = 0
        read = self._chunk
        for line in text.split("\n"):
            for written in line.split():
                chunk = read(written)
                current.append(chunk)
                if chunk.ends_sentence and len(found) < SENTENCES_MAX - 1:
                    found.append(self._sentence(place, current))
                    place += len(current)
                    current = []
            if current and len(found) < SENTENCES_MAX - 1:
                found.append(self._sentence(place, current))
                place += len(current)
                current = []
        if current:
            found.append(self._sentence(place, current))
        return [sentence for sentence in found if sentence.word_count]

    def evidence(self, sentences: Sequence[Sentence]) -> float:
        """Return the evidence for marketing of sentences together, and of the strongest of them."""
        if len(sentences) == 1:
            return sentences[0].evidence
        whole = self._weigh(
            sum(one.words_sum for one in sentences),
            sum(one.pieces_sum for one in sentences),
            *_worths(sentences),
        )
        strongest = max(
            (one.evidence for one in sentences if one.word_count >= SENTENCE_WORDS_MIN), default=whole
        )
        return whole + STRONGEST_SHARE * max(0.0, strongest - whole)

    def rest(self, sentences: Sequence[Sentence]) -> Sequence[Sentence]:
        """Return the sentences that are not plainly transactional, if there are both and enough is left."""
        rest = [one for one in sentences if one.evidence > SERVICE]
        if len(rest) == len(sentences) or sum(one.word_count for one in rest) < REST_WORDS_MIN:
            return ()
        return rest

    def phrases(self, text: str, sentences: Sequence[Sentence]) -> Sequence[tuple[Span, float]]:
        """Find the words with most weight, joined with neighbours that have weight too."""
        words_length, pieces_length = _worths(sentences)
        starts = [start for _, start, _ in places(text)]
        phrases: list[tuple[Span, float]] = []
        for sentence in sentences:
            run: list[tuple[Span, float]] = []
            weighed = self._weigh_words(sentence, starts, words_length, pieces_length)
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
            chunk.ends_sentence,
            sum(steps.get(word.text, 0) for word in chunk.words),
            sum(steps.get(piece, 0) for piece in chunk.pieces),
            len(chunk.pieces),
        )

    def _sentence(self, place: int, chunks: Sequence[_Chunk]) -> Sentence:
        find = self.table.steps.get
        words_sum = pieces_sum = word_count = piece_count = 0
        before = START
        for chunk in chunks:
            words_sum += chunk.words_sum
            pieces_sum += chunk.pieces_sum
            piece_count += chunk.piece_count
            for word in chunk.words:
                words_sum += find(pair(before, word.text), 0)
                before = word.text
                word_count += 1
        evidence = self._weigh(words_sum, pieces_sum, *_worth(word_count, piece_count))
        return Sentence(words_sum, pieces_sum, word_count, piece_count, evidence, place, chunks)

    def _weigh(self, words_sum: int, pieces_sum: int, word_worth: float, piece_worth: float) -> float:
        return self.table.bias + words_sum * word_worth + pieces_sum * piece_worth

    def _weigh_words(
        self, sentence: Sentence, starts: Sequence[int], words_length: float, pieces_length: float
    ) -> Sequence[tuple[Span, float]]:
        """Divide the weight of a sentence among its words; a pair counts half for each word."""
        find = self.table.steps.get
        spans: list[Span] = []
        weights: list[float] = []
        before = START
        for place, chunk in enumerate(sentence.chunks, start=sentence.place):
            for word in chunk.words:
                weight = find(word.text, 0) * words_length
                weight += chunk.pieces_sum * pieces_length / len(chunk.words)
                half = find(pair(before, word.text), 0) * words_length / 2
                weight += half
                if weights:
                    weights[-1] += half
                spans.append((starts[place] + word.start, starts[place] + word.end))
                weights.append(weight)
                before = word.text
        return list(zip(spans, weights, strict=True))


def _worths(sentences: Sequence[Sentence]) -> tuple[float, float]:
    return _worth(sum(one.word_count for one in sentences), sum(one.piece_count for one in sentences))


def _worth(word_count: int, piece_count: int) -> tuple[float, float]:
    """Return what a step of a word and a step of a piece is worth in a text of this length."""
    # Each word is counted alone and with the one before it.
    return (
        STEP * WORDS_SHARE / math.sqrt(WORDS_LENGTH * 2 * word_count + WORDS_LENGTH_MIN),
        STEP / math.sqrt(PIECES_LENGTH * piece_count + PIECES_LENGTH_MIN),
    )
