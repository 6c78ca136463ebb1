"""Classifies a text as a service message or marketing by its words, and names the words that weighed.

A linear model for each group of languages weighs words, pairs of words, where in the text and beside what
figures words stand, and pieces of words, so that the prefixes and endings of related languages count; the
training data is in `corpus/`, the weights are in `weights.bin`. A text is weighed again without its plain
service sentences, so that they do not hide an advert. Phrases where the law is plain (`phrases.py`) add to
the evidence. A text that has the form of a passcode, a money alert or another notice that must arrive
(`service_forms.py`) needs more of it.
"""

import math
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Final

from msgspec import Struct

from tumira.content.evidence import Scale, Sentence, Span
from tumira.content.normalise import Normalised, normalise
from tumira.content.passcodes import is_normalised_passcode
from tumira.content.phrases import Phrase, find_phrases
from tumira.content.service_forms import has_service_form
from tumira.content.tokens import EDGES, places
from tumira.content.verdict import Category, Label, Reason, Verdict
from tumira.content.weights import Weights, load_weights

CACHED_VERDICTS: Final = 8192
# What a phrase adds to the evidence.
PHRASE_EVIDENCE: Final = {
    Category.PRIZE_DRAW: 1.0,
    Category.BETTING_OFFER: 1.0,
    Category.LOAN_OFFER: 1.0,
    Category.DISCOUNT_OFFER: 0.5,
    Category.OPT_OUT_LINE: 0.1,
}
# How much more evidence it takes to refuse a text that has the form of a notice that must arrive.
SERVICE_FORM_EVIDENCE: Final = 1.2
# How much more evidence it takes if the service sentences of a text are left out.
REST_EVIDENCE: Final = 0.7
# A text is read in every group of languages that has this share of the words that point to one, and as
# English if there is none but English.
ENGLISH: Final = "en"
OTHER_SHARE_MIN: Final = 0.3
REASONS_MAX: Final = 5
# Without its adverts a text must still be a message: at least this many words, and this far below the line.
REST_WORDS_MIN: Final = 3
REST_MARGIN: Final = 0.2

# Whole numbers; digits in words such as `w1n` may be letters. It begins with a digit, and looks behind it
# afterwards, because a search for a digit is twice as fast.
_FIGURES: Final = re.compile(r"\d(?<![\w@$!|]\d)\d*(?![\w@$!|])")


def classify(text: str) -> Verdict:
    """Classify a text; texts that differ only in digits are classified once."""
    found = _classify_form(_FIGURES.sub(_zeros, text))
    if not found.reasons:
        return Verdict(found.label, found.score, found.category, [], [], found.is_passcode)
    return Verdict(
        found.label,
        found.score,
        found.category,
        [
            Reason(category, text[start:end], start, end, weight)
            for category, (start, end), weight in found.reasons
        ],
        [text[start:end] for start, end in found.drop],
        found.is_passcode,
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
    is_passcode: bool = False


class Classifier:
    def __init__(self, weights: Weights) -> None:
        self._groups = weights.words
        self._scales = {group: Scale(table) for group, table in weights.tables.items()}

    def classify(self, text: str) -> Classification:
        normalised = normalise(text)
        found = list(find_phrases(normalised.text))
        scale, sentences, above = self._read(normalised.text, found)
        score = _logistic(scale.table.slope * above)
        is_passcode = is_normalised_passcode(text, normalised.text)
        if score < 1 / 2:
            return Classification(Label.TRANSACTIONAL, score, is_passcode=is_passcode)
        reasons = [
            (category, _original(normalised, (start, end)), PHRASE_EVIDENCE[category])
            for category, start, end in found
        ]
        reasons += [
            (Category.MARKETING, _original(normalised, span), weight)
            for span, weight in scale.phrases(normalised.text, sentences)
        ]
        return Classification(
            Label.PROMOTIONAL,
            score,
            found[0][0] if found else Category.MARKETING,
            sorted(reasons, key=lambda reason: -reason[2])[:REASONS_MAX],
            [_original(normalised, span) for span in self._adverts(scale, normalised.text, sentences)],
            is_passcode,
        )

    def above(self, text: str) -> float:
        """Return how far a text is above the line; below zero it may be sent."""
        normal = normalise(text).text
        return self._read(normal, list(find_phrases(normal)))[2]

    def _read(self, text: str, phrases: Sequence[Phrase]) -> tuple[Scale, Sequence[Sentence], float]:
        """Return how far a normalised text is above the line, in that of its languages where it is most."""
        phrased = max((PHRASE_EVIDENCE[category] for category, _, _ in phrases), default=0.0)
        read = []
        for group in self.groups(text):
            scale = self._scales[group]
            sentences = scale.sentences(text)
            read.append((scale, sentences, self._above(scale, text, sentences, phrased)))
        return max(read, key=lambda one: one[2])

    def groups(self, text: str) -> Sequence[str]:
        """Return the groups of languages of a normalised text; beside another one English is not named."""
        find = self._groups.get
        votes = [group for written in text.split() if (group := find(written.strip(EDGES)))]
        others = dict.fromkeys(votes)
        others.pop(ENGLISH, None)
        least = OTHER_SHARE_MIN * len(votes)
        return [group for group in others if votes.count(group) >= least] or (ENGLISH,)

    def _above(self, scale: Scale, text: str, sentences: Sequence[Sentence], phrased: float) -> float:
        """Return how far a text is above the line, given what its phrases add; below zero it may be sent."""
        said = phrased - scale.table.threshold
        above = scale.evidence(sentences) + said
        # Service sentences do not hide an offer, but what is left without them must be plainly one.
        rest = scale.rest(sentences)
        if rest:
            above = max(above, scale.evidence(rest) + said - REST_EVIDENCE)
        if above > 0 and has_service_form(text):
            above -= SERVICE_FORM_EVIDENCE
        return above

    def _adverts(self, scale: Scale, text: str, sentences: Sequence[Sentence]) -> Sequence[Span]:
        """Find the sentences without which the text is plainly transactional, if there are any."""
        chunks = [(start, start + len(written)) for written, start, _ in places(text)]
        spans = [(chunks[one.place][0], chunks[one.place + len(one.chunks) - 1][1]) for one in sentences]
        # A sentence with what separates it from the next one, which may be the end of a line.
        ends = [*(start for start, _ in spans[1:]), len(text)]
        rest = list(range(len(sentences)))
        by_weight = sorted(rest, key=lambda place: -scale.evidence([sentences[place]]))
        for dropped, place in enumerate(by_weight[:-1], start=1):
            rest.remove(place)
            if sum(sentences[one].word_count for one in rest) < REST_WORDS_MIN:
                return ()
            left = "".join(text[spans[one][0] : ends[one]] for one in rest)
            if self._read(left, list(find_phrases(left)))[2] < -REST_MARGIN:
                return [spans[one] for one in sorted(by_weight[:dropped])]
        return ()


def _original(normalised: Normalised, span: Span) -> Span:
    """Return the position of a normalised span in the original text."""
    start, end = span
    return normalised.places[start], normalised.places[end - 1] + 1


def _logistic(number: float) -> float:
    return 1 / (1 + math.exp(-max(-40.0, min(40.0, number))))
