"""Training of the content check: reads labelled messages, and fits a linear model to them."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from tumira.content.classifier import PIECES_SQUARED_MIN, WORDS_SQUARED_MIN, Classifier
from tumira.content.normalise import normalise
from tumira.content.tokens import TextChunk, pair, places, read_chunk
from tumira.content.weights import STEPS, Weights

ROOT: Final = Path(__file__).resolve().parents[1]
CORPUS: Final = ROOT / "corpus"
SHARED: Final = ROOT.parent / "shared" / "data" / "sms"

SEED: Final = 1
FOLDS: Final = 5
NEIGHBOURS: Final = 6
# In how many messages a feature must occur to be learnt.
WORDS_MIN: Final = 2
PIECES_MIN: Final = 3
# How strongly the fit follows single messages.
FREEDOM: Final = 0.4
# A service message that is refused costs more than an advert that passes.
SERVICE_WEIGHT: Final = 2.0
# Our own messages outnumber all others, and many are hard on purpose; chat is not what this gateway carries,
# and the labels of the Indonesian messages are often wrong.
OWN_WEIGHT: Final = 0.2
CHAT_WEIGHT: Final = 0.05
SOURCE_WEIGHTS: Final = {"indonesian_sms": 0.2}
# The verdict turns where this share of the service messages that were not learnt from would be refused. They
# are harder than a day's traffic, where it is less.
REFUSED_SHARE: Final = 0.022
SHORTEST: Final = (WORDS_SQUARED_MIN, PIECES_SQUARED_MIN)
OWN: Final = "corpus"


@dataclass(frozen=True, slots=True)
class Row:
    """A labelled message."""

    text: str
    promotional: bool
    language: str
    source: str
    mixed: bool
    chat: bool
    # Which fifth it belongs to when messages are held out in turn.
    fold: int

    @property
    def weight(self) -> float:
        """Return how much it counts when learning."""
        if self.chat:
            return CHAT_WEIGHT
        return OWN_WEIGHT if self.source == OWN else SOURCE_WEIGHTS.get(self.source, 1.0)


def read_corpus() -> Sequence[Row]:
    """Read the messages that were written for this project."""
    return [
        _row(entry, OWN, number)
        for path in sorted(CORPUS.glob("*.jsonl"))
        for number, entry in enumerate(_read(path))
    ]


def read_shared(split: str) -> Sequence[Row]:
    """Read a split of the public collections; nothing where they are not at hand."""
    path = SHARED / f"{split}.jsonl"
    if not path.exists():
        return []
    return [_row(entry, entry["source"], number) for number, entry in enumerate(_read(path))]


def _read(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _row(entry: Mapping[str, Any], source: str, number: int) -> Row:
    mixed = bool(entry.get("mixed"))
    return Row(
        entry["text"],
        # A service message with an advert in its tail is promotional, whatever its collection calls it.
        entry["label"] == "promotional" or mixed,
        entry["lang"],
        source,
        mixed,
        entry["label"] == "personal",
        # Neighbours often tell the same scene in both ways, and are held out together.
        number // NEIGHBOURS % FOLDS,
    )


Features = tuple[Counter[str], Counter[str]]


@cache
def _chunk(written: str) -> TextChunk:
    return read_chunk(written, frozenset())


@cache
def features(text: str) -> Features:
    """Count the words, pairs and pieces of a text, as the classifier does."""
    words: Counter[str] = Counter()
    pieces: Counter[str] = Counter()
    before: str | None = None
    for written, _, begins_line in places(normalise(text).text):
        if begins_line:
            before = None
        chunk = _chunk(written)
        pieces.update(chunk.pieces)
        for word in chunk.words:
            words[word.text] += 1
            if before is not None:
                words[pair(before, word.text)] += 1
            before = word.text
        if chunk.ends_sentence:
            before = None
    return words, pieces


def remember(rows: Iterable[Row]) -> None:
    """Count the features of messages now, so that processes that are made later need not."""
    for row in rows:
        features(row.text)


class Model:
    """A vocabulary with the rarity of each feature, and once it has learnt the weight of each."""

    def __init__(self, rows: Sequence[Row]) -> None:
        counts: Counter[str] = Counter()
        for row in rows:
            words, pieces = features(row.text)
            counts.update(words.keys())
            counts.update(pieces.keys())
        kept = sorted(
            name for name, count in counts.items() if count >= (PIECES_MIN if name[0] == "~" else WORDS_MIN)
        )
        self.places = {name: place for place, name in enumerate(kept)}
        self.rarity = np.array([math.log((1 + len(rows)) / (1 + counts[name])) + 1 for name in kept])

    def matrix(self, rows: Iterable[Row]) -> csr_matrix:
        """Turn messages into rows of numbers; words and pieces have the same length each."""
        indices: list[int] = []
        numbers: list[float] = []
        ends = [0]
        for row in rows:
            for counted, shortest in zip(features(row.text), SHORTEST, strict=True):
                found = [(self.places[name], count) for name, count in counted.items() if name in self.places]
                length = math.sqrt(sum(count * self.rarity[place] ** 2 for place, count in found) + shortest)
                for place, count in found:
                    indices.append(place)
                    numbers.append(count * self.rarity[place] / length)
            ends.append(len(indices))
        return csr_matrix((numbers, indices, ends), shape=(len(ends) - 1, len(self.places)))

    def fit(self, rows: Sequence[Row]) -> LinearSVC:
        """Learn the weights."""
        machine = LinearSVC(C=FREEDOM, class_weight={False: SERVICE_WEIGHT, True: 1.0}, random_state=SEED)
        machine.fit(
            self.matrix(rows),
            [row.promotional for row in rows],
            sample_weight=[row.weight for row in rows],
        )
        return machine

    def weights(self, machine: LinearSVC, threshold: float, slope: float, **about: Any) -> Weights:
        """Write down what was learnt."""
        learnt = {
            name: (
                round(float(machine.coef_[0][place] * self.rarity[place]) * STEPS),
                round(float(self.rarity[place]) ** 2 * STEPS),
            )
            for name, place in self.places.items()
        }
        return Weights(
            bias=round(float(machine.intercept_[0]), 6),
            threshold=round(threshold, 6),
            slope=round(slope, 6),
            words={name: pair for name, pair in learnt.items() if name[0] != "~"},
            pieces={name: pair for name, pair in learnt.items() if name[0] == "~"},
            **about,
        )


def learn(rows: Sequence[Row], **about: Any) -> Weights:
    """Learn from messages, and set the turning point by messages that were held out in turn."""
    judged = [row for row in rows if not row.chat]
    evidence = held_out(rows)
    refused = sorted(
        (evidence[place] for place, row in enumerate(judged) if not row.promotional), reverse=True
    )
    threshold = refused[int(REFUSED_SHARE * len(refused))]
    curve = LogisticRegression(C=1e6).fit(
        np.array(evidence).reshape(-1, 1), [row.promotional for row in judged]
    )
    model = Model(rows)
    return model.weights(model.fit(rows), threshold, float(curve.coef_[0][0]), **about)


def held_out(rows: Sequence[Row]) -> Sequence[float]:
    """Return the evidence for each message but chat, from a model that has not seen it."""
    judged = [row for row in rows if not row.chat]
    evidence = [0.0] * len(judged)
    remember(rows)
    with ProcessPoolExecutor() as pool:
        for fold, found in enumerate(pool.map(partial(_classify_fold, rows), range(FOLDS))):
            unseen = [place for place, row in enumerate(judged) if row.fold == fold]
            for place, number in zip(unseen, found, strict=True):
                evidence[place] = number
    return evidence


def _classify_fold(rows: Sequence[Row], fold: int) -> Sequence[float]:
    learnt = [row for row in rows if row.chat or row.fold != fold]
    model = Model(learnt)
    classifier = Classifier(model.weights(model.fit(learnt), 0.0, 1.0, version=0, trained_from=""))
    return [classifier.evidence(row.text) for row in rows if not row.chat and row.fold == fold]
