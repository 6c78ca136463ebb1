"""Classifies a text as a service message or marketing by its words, and names the words that weighed.

A linear model weighs words, pairs of words and pieces of words, so that the prefixes and endings of related
languages count; its training data is in `corpus/`, its weights are in `weights.bin`. A text is classified as
a whole, and again without its plainly transactional sentences, so that these do not hide an advert. A few
fixed rules complement the model, in `phrases.py`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Final

from msgspec import Struct

from tumira.content.normalise import Normalised, normalise
from tumira.content.phrases import find_phrases
from tumira.content.tokens import Word, pair, places, read_chunk
from tumira.content.verdict import Category, Label, Reason, Verdict
from tumira.content.weights import STEPS, Weights, load_weights

CACHED_VERDICTS: Final = 8192
CACHED_CHUNKS: Final = 65_536
# Added to the squared lengths, so that a text of a word or two has little weight.
WORDS_SQUARED_MIN: Final = 100.0
PIECES_SQUARED_MIN: Final = 400.0
# Below this evidence a sentence is plainly transactional, and an opt-out line (`reply STOP`) does not make it
# marketing.
SERVICE: Final = -0.6
# The rest without such sentences is classified alone if it has at least this many words. PART_LENGTH makes it
# count as shorter, so that more evidence is needed to refuse it.
PART_WORDS_MIN: Final = 10
PART_LENGTH: Final = 32.0
# Of a text with more sentences, the last one holds the rest.
SENTENCES_MAX: Final = 24
REASONS_MAX: Final = 5
PHRASE_WORDS_MAX: Final = 6
# Without its adverts a text must still be a message: at least this many words, and rather transactional.
REST_WORDS_MIN: Final = 3
REST_EVIDENCE_MAX: Final = -0.2
# The lowest score of a text that a rule matches.
RULE_SCORE: Final = 0.9

# Whole numbers; digits in words such as `w1n` may be letters. It begins with a digit, and looks behind it
# afterwards, because a search for a digit is twice as fast.
_FIGURES: Final = re.compile(r"\d(?<![\w@$!|]\d)\d*(?![\w@$!|])")

NOTHING: Final = (0, 0)

Span = tuple[int, int]


def classify(text: str) -> Verdict:
    """Classify a text; texts that differ only in digits are classified once."""
    found = _classify_form(_FIGURES.sub(_zeros, text))
    if not found.reasons:
        return Verdict(found.label, found.score, found.category, [], [])
    return Verdict(
        found.label,
        found.score,
        found.category,
        [
            Reason(category, text[start:end], start, end, weight)
            for category, (start, end), weight in found.reasons
        ],
        [text[start:end] for start, end in found.drop],
    )


def _zeros(figures: re.Match[str]) -> str:
    return "0" * len(figures[0])


@lru_cache(CACHED_VERDICTS)
def _classify_form(text: str) -> "Classification":
    return _classifier().classify(text)


@cache
def _classifier() -> "Classifier":
    return Classifier(load_weights())


class Classification(Struct, frozen=True):
    """A verdict with positions instead of words, which holds for all texts that differ only in digits."""

    label: Label
    score: float
    category: Category | None = None
    reasons: Sequence[tuple[Category, Span, float]] = ()
    drop: Sequence[Span] = ()


class _Chunk(Struct, frozen=True):
    """A chunk with its weights and squared lengths, of words and of pieces."""

    words: Sequence[Word]
    ends_sentence: bool
    words_sum: int
    words_squared: int
    pieces_sum: int
    pieces_squared: int


class _Sentence(Struct, frozen=True):
    words_sum: int
    words_squared: int
    pieces_sum: int
    pieces_squared: int
    word_count: int
    # How many chunks of the text come before it.
    place: int
    chunks: Sequence[_Chunk]


class _Part(Struct, frozen=True):
    """Sentences of a text, and their evidence for marketing."""

    evidence: float
    sentences: Sequence[_Sentence]


class Classifier:
    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._chunk = lru_cache(CACHED_CHUNKS)(self._read_chunk)

    def classify(self, text: str) -> Classification:
        normalised = normalise(text)
        sentences = self._sentences(normalised.text)
        part = self._strongest(sentences)
        found = self._rule_matches(normalised.text, part.evidence)
        score = _logistic(self._weights.slope * (part.evidence - self._weights.threshold))
        if found:
            score = max(score, RULE_SCORE)
        if score < 1 / 2:
            return Classification(Label.TRANSACTIONAL, score)
        reasons = [(category, _original(normalised, span), 1.0) for category, span in found]
        reasons += [
            (Category.MARKETING, _original(normalised, span), weight)
            for span, weight in self._phrases(normalised.text, part.sentences)
        ]
        return Classification(
            Label.PROMOTIONAL,
            score,
            found[0][0] if found else Category.MARKETING,
            sorted(reasons, key=lambda reason: -reason[2])[:REASONS_MAX],
            [_original(normalised, span) for span in self._adverts(normalised.text, sentences)],
        )

    def evidence(self, text: str) -> float:
        """Return the evidence for marketing, without the rules; above the threshold a text is promotional."""
        return self._strongest(self._sentences(normalise(text).text)).evidence

    def _rule_matches(self, text: str, evidence: float) -> Sequence[tuple[Category, Span]]:
        return [
            (category, (start, end))
            for category, start, end in find_phrases(text)
            if category is not Category.OPT_OUT_LINE or evidence > SERVICE
        ]

    def _read_chunk(self, written: str) -> _Chunk:
        weights = self._weights
        chunk = read_chunk(written, weights.words)
        words_sum, words_squared = _add_up(weights.words, [word.text for word in chunk.words])
        pieces_sum, pieces_squared = _add_up(weights.pieces, chunk.pieces)
        return _Chunk(chunk.words, chunk.ends_sentence, words_sum, words_squared, pieces_sum, pieces_squared)

    def _sentences(self, text: str) -> Sequence[_Sentence]:
        """Split a normalised text; beyond the maximum the last sentence holds the rest."""
        found: list[_Sentence] = []
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

    def _sentence(self, place: int, chunks: Sequence[_Chunk]) -> _Sentence:
        find = self._weights.words.get
        words_sum = words_squared = pieces_sum = pieces_squared = count = 0
        before = ""
        for chunk in chunks:
            words_sum += chunk.words_sum
            words_squared += chunk.words_squared
            pieces_sum += chunk.pieces_sum
            pieces_squared += chunk.pieces_squared
            for word in chunk.words:
                weight = find(pair(before, word.text))
                if weight is not None:
                    words_sum += weight[0]
                    words_squared += weight[1]
                before = word.text
                count += 1
        return _Sentence(words_sum, words_squared, pieces_sum, pieces_squared, count, place, chunks)

    def _strongest(self, sentences: Sequence[_Sentence]) -> _Part:
        """Weigh a text as a whole, and without its plainly transactional sentences if enough is left."""
        whole = _Part(self._evidence(sentences, 1.0), sentences)
        rest = [one for one in sentences if self._evidence([one], 1.0) > SERVICE]
        if len(rest) == len(sentences) or sum(one.word_count for one in rest) < PART_WORDS_MIN:
            return whole
        part = _Part(self._evidence(rest, PART_LENGTH), rest)
        return part if part.evidence > whole.evidence else whole

    def _evidence(self, sentences: Sequence[_Sentence], shortest: float) -> float:
        words_sum = words_squared = pieces_sum = pieces_squared = 0
        for sentence in sentences:
            words_sum += sentence.words_sum
            words_squared += sentence.words_squared
            pieces_sum += sentence.pieces_sum
            pieces_squared += sentence.pieces_squared
        return (
            self._weights.bias
            + words_sum / _length(words_squared, WORDS_SQUARED_MIN * shortest)
            + pieces_sum / _length(pieces_squared, PIECES_SQUARED_MIN * shortest)
        )

    def _phrases(self, text: str, sentences: Sequence[_Sentence]) -> Sequence[tuple[Span, float]]:
        """Find the words with most weight, joined with neighbours that have weight too."""
        words_length = _length(sum(one.words_squared for one in sentences), WORDS_SQUARED_MIN)
        pieces_length = _length(sum(one.pieces_squared for one in sentences), PIECES_SQUARED_MIN)
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

    def _weigh_words(
        self, sentence: _Sentence, starts: Sequence[int], words_length: float, pieces_length: float
    ) -> Sequence[tuple[Span, float]]:
        """Divide the weight of a sentence among its words; a pair counts half for each word."""
        known = self._weights.words
        spans: list[Span] = []
        weights: list[float] = []
        before = ""
        for place, chunk in enumerate(sentence.chunks, start=sentence.place):
            for word in chunk.words:
                weight = known.get(word.text, NOTHING)[0] / words_length
                weight += chunk.pieces_sum / pieces_length / len(chunk.words)
                if weights:
                    half = known.get(pair(before, word.text), NOTHING)[0] / words_length / 2
                    weight += half
                    weights[-1] += half
                spans.append((starts[place] + word.start, starts[place] + word.end))
                weights.append(weight)
                before = word.text
        return list(zip(spans, weights, strict=True))

    def _adverts(self, text: str, sentences: Sequence[_Sentence]) -> Sequence[Span]:
        """Find the sentences without which the text is plainly transactional, if there are any."""
        chunks = [(start, start + len(written)) for written, start, _ in places(text)]
        spans = [(chunks[one.place][0], chunks[one.place + len(one.chunks) - 1][1]) for one in sentences]
        rest = list(range(len(sentences)))
        by_weight = sorted(rest, key=lambda place: -self._strongest([sentences[place]]).evidence)
        for dropped, place in enumerate(by_weight[:-1], start=1):
            rest.remove(place)
            if sum(sentences[one].word_count for one in rest) < REST_WORDS_MIN:
                return ()
            left = " ".join(text[slice(*spans[one])] for one in rest)
            evidence = self._strongest(self._sentences(left)).evidence
            if evidence < REST_EVIDENCE_MAX and not self._rule_matches(left, evidence):
                return [spans[one] for one in sorted(by_weight[:dropped])]
        return ()


def _add_up(known: Mapping[str, tuple[int, int]], features: Sequence[str]) -> tuple[int, int]:
    """Add up the weights and squared lengths of features; an unknown word has about twenty."""
    weights = squares = 0
    for feature in features:
        found = known.get(feature)
        if found is not None:
            weights += found[0]
            squares += found[1]
    return weights, squares


def _length(squared: int, shortest: float) -> float:
    """Return the length of a text, in the steps of its weights."""
    return math.sqrt(squared / STEPS + shortest) * STEPS


def _original(normalised: Normalised, span: Span) -> Span:
    """Return the position of a normalised span in the original text."""
    start, end = span
    return normalised.places[start], normalised.places[end - 1] + 1


def _logistic(number: float) -> float:
    return 1 / (1 + math.exp(-max(-40.0, min(40.0, number))))
