"""Training of the content check: fits a linear model to messages of each group of languages."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from scripts.messages import FOLDS, OWN, Row
from tumira.content.classifier import ENGLISH, Classifier
from tumira.content.evidence import (
    CONTEXTS_LENGTH,
    CONTEXTS_LENGTH_MIN,
    CONTEXTS_SHARE,
    PIECES_LENGTH,
    PIECES_LENGTH_MIN,
    WORDS_LENGTH,
    WORDS_LENGTH_MIN,
    WORDS_SHARE,
)
from tumira.content.normalise import normalise
from tumira.content.tokens import (
    CONTEXT_MARK,
    EDGES,
    PIECE_MARK,
    START,
    TextChunk,
    contexts,
    pair,
    part_of,
    read_chunk,
    sentences,
)
from tumira.content.weights import STEP, STEPS_MAX, Table, Weights

# Languages whose words resemble each other are weighed with one table. All others count as English.
GROUPS: Final[Mapping[str, str]] = {
    "af": "afrikaans",
    "sn": "shona",
    **dict.fromkeys(("nd", "zu", "xh", "nr", "ss"), "nguni"),
    **dict.fromkeys(("st", "tn", "nso"), "sotho"),
}
TABLES: Final = (ENGLISH, *sorted(set(GROUPS.values())))

SEED: Final = 1
# In how many messages a feature must occur to be learnt.
WORDS_MIN: Final = 2
PIECES_MIN: Final = 3
CONTEXTS_MIN: Final = 3
# Contexts of less weight are left out: they are many, and change nothing that can be measured.
CONTEXT_STEPS_MIN: Final = 3
# How strongly the fit follows single messages.
FREEDOM: Final = 0.4
# A feature that is found as often in both labels is held to less weight than any that is not, by this much.
CONTRAST_MIN: Final = 0.2
# A service message that is refused costs more than an advert that passes.
SERVICE_WEIGHT: Final = 2.0
# How much a message counts: for English; a subtle one for its own group of other languages; and others for a
# group that is not their own. Our pairs are hard on purpose. British premium-rate adverts of 2005 and the
# labels of the Indonesian messages teach little about today's, and chat is not what this gateway carries.
PAIRS_WEIGHT: Final = 0.3
ORDINARY_WEIGHT: Final = 0.6
# With more, public sources that were not seen are judged worse.
SUBTLE_WEIGHT: Final = 0.03
DOUBTFUL: Final = "indonesian_sms"
QUESTIONNAIRES: Final = "momconnect_za"
SOURCE_WEIGHTS: Final = {"uci_sms_spam": 0.5, DOUBTFUL: 0.1}
CHAT_WEIGHT: Final = 0.14
LOCAL_SUBTLE_WEIGHT: Final = 0.5
OTHER_OWN_WEIGHT: Final = 0.3
OTHER_ENGLISH_WEIGHT: Final = 0.2
OTHER_PUBLIC_WEIGHT: Final = 0.1
# No feature weighs more than this in English, which carries over better to sources that were not seen. In the
# other languages, with fewer messages, it does not.
ENGLISH_STEPS_MAX: Final = 12
# The share of service messages that are refused, of those that were not learnt from.
REFUSED_SHARE: Final = 0.005
# Smaller sources are held out together.
SOURCE_MIN: Final = 120
# A word points to a group of languages if it occurs this often, and nearly only there.
WORD_COUNT_MIN: Final = 4
WORD_SHARE_MIN: Final = 0.8

Features = tuple[Counter[str], Counter[str], Counter[str]]


def group_of(row: Row) -> str:
    """Return the group of languages that a message was written in."""
    return GROUPS.get(row.language, ENGLISH)


def weight_of(row: Row, table: str) -> float:
    """Return how much a message counts for a table."""
    own_group = group_of(row) == table
    if table == ENGLISH:
        if not own_group:
            return 0.0
        if row.chat:
            return CHAT_WEIGHT
        if row.source == OWN:
            return _own_weight(row)
        return SOURCE_WEIGHTS.get(row.source, 1.0)
    if own_group:
        return LOCAL_SUBTLE_WEIGHT if row.subtle else 1.0
    if row.subtle:
        return 0.0
    if row.source == OWN:
        return OTHER_ENGLISH_WEIGHT if group_of(row) == ENGLISH else OTHER_OWN_WEIGHT
    weight = CHAT_WEIGHT if row.chat else SOURCE_WEIGHTS.get(row.source, 1.0)
    return weight * OTHER_PUBLIC_WEIGHT


def _own_weight(row: Row) -> float:
    if row.subtle:
        return SUBTLE_WEIGHT
    return ORDINARY_WEIGHT if row.ordinary else PAIRS_WEIGHT


@cache
def _chunk(written: str) -> TextChunk:
    return read_chunk(written, frozenset())


@cache
def features(text: str) -> Features:
    """Count the words and pairs, the pieces and the contexts of a text, as the classifier does."""
    words: Counter[str] = Counter()
    pieces: Counter[str] = Counter()
    where: Counter[str] = Counter()
    found = sentences(normalise(text).text, _chunk)
    for number, (_, chunks) in enumerate(found):
        said = [word.text for chunk in chunks for word in chunk.words]
        words.update(said)
        words.update(pair(before, word) for before, word in pairwise([START, *said]))
        where.update(context for _, context in contexts(said, part_of(number, len(found))))
        for chunk in chunks:
            pieces.update(chunk.pieces)
    return words, pieces, where


class Counts:
    """Messages, and how often each feature occurs in each of them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        found = [features(row.text) for row in rows]
        known = Counter(name for counted in found for names in counted for name in names)
        self.names = sorted(name for name, count in known.items() if count >= WORDS_MIN)
        places = {name: place for place, name in enumerate(self.names)}
        indices: list[int] = []
        numbers: list[float] = []
        ends = [0]
        for words, pieces, where in found:
            for counted, length in (
                (words, _length(words.total(), WORDS_LENGTH, WORDS_LENGTH_MIN) / WORDS_SHARE),
                (pieces, _length(pieces.total(), PIECES_LENGTH, PIECES_LENGTH_MIN)),
                (where, _length(where.total(), CONTEXTS_LENGTH, CONTEXTS_LENGTH_MIN) / CONTEXTS_SHARE),
            ):
                kept = [(places[name], count) for name, count in counted.items() if name in places]
                indices += [place for place, _ in kept]
                numbers += [count / length for _, count in kept]
            ends.append(len(indices))
        # Each message divided by its length.
        self.matrix = csr_matrix((numbers, indices, ends), shape=(len(rows), len(places)))
        minimum = {PIECE_MARK: PIECES_MIN, CONTEXT_MARK: CONTEXTS_MIN}
        self.minimum = np.array([minimum.get(name[0], WORDS_MIN) for name in self.names])


def _length(count: int, each: float, least: float) -> float:
    return math.sqrt(each * count + least)


def fit(counts: Counts, learnt: Sequence[int], table: str) -> Table:
    """Learn a table from the messages at these places; its line is at zero."""
    weights = [weight_of(counts.rows[place], table) for place in learnt]
    used = [place for place, weight in zip(learnt, weights, strict=True) if weight > 0]
    # Texts of this group contain words of the group and of English, and no others.
    read = [place for place in used if group_of(counts.rows[place]) in {table, ENGLISH}]
    frequency = counts.matrix[used].getnnz(axis=0)
    known = np.flatnonzero(counts.matrix[read].getnnz(axis=0) >= counts.minimum)
    rarity = np.log((1 + len(used)) / (1 + frequency[known])) + 1
    machine = LinearSVC(C=FREEDOM, class_weight={False: SERVICE_WEIGHT, True: 1.0}, random_state=SEED)
    labels = np.array([counts.rows[place].promotional for place in used])
    counted = np.array([weight for weight in weights if weight > 0])
    found = counts.matrix[used][:, known]
    scale = rarity * _contrast(found, labels, counted)
    machine.fit(found @ diags(scale), labels, sample_weight=counted)
    most = ENGLISH_STEPS_MAX if table == ENGLISH else STEPS_MAX
    steps = np.clip(np.round(machine.coef_[0] * scale / STEP), -most, most).astype(int)
    return Table(
        bias=round(float(machine.intercept_[0]), 6),
        threshold=0.0,
        slope=1.0,
        steps={
            counts.names[place]: step
            for place, step in zip(known.tolist(), steps.tolist(), strict=True)
            if _is_kept(counts.names[place], step)
        },
    )


def _is_kept(name: str, step: int) -> bool:
    return abs(step) >= (CONTEXT_STEPS_MIN if name[0] == CONTEXT_MARK else 1)


def _contrast(
    found: csr_matrix, labels: NDArray[np.bool_], counted: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how differently often each feature occurs in the two labels."""
    occurs = found > 0
    adverts = 1 + counted[labels] @ occurs[labels]
    service = 1 + counted[~labels] @ occurs[~labels]
    ratio = np.log(adverts / adverts.sum()) - np.log(service / service.sum())
    return np.sqrt(np.abs(ratio)) + CONTRAST_MIN


def fit_all(counts: Counts, learnt: Sequence[int]) -> Weights:
    """Learn all tables from the messages at these places."""
    words = language_words(counts.rows[place] for place in learnt)
    return Weights(0, "", words, {table: fit(counts, learnt, table) for table in TABLES})


def learn(rows: Sequence[Row], version: int, trained_from: str) -> Weights:
    """Learn from messages, and set the line of each table by messages that were held out in turn."""
    counts = Counts(rows)
    evidence = held_out(counts, sources_apart(rows))
    learnt = fit_all(counts, range(len(rows)))
    tables = {}
    for name, table in learnt.tables.items():
        judged = [
            place
            for place, row in enumerate(rows)
            if group_of(row) == name and not row.chat and _sets_the_line(row)
        ]
        labels = [rows[place].promotional for place in judged]
        curve = LogisticRegression(C=1e6).fit([[evidence[place]] for place in judged], labels)
        service = [evidence[place] for place in judged if not rows[place].promotional]
        tables[name] = replace(
            table, threshold=round(quantile(service), 6), slope=round(float(curve.coef_[0][0]), 6)
        )
    return Weights(version, trained_from, learnt.words, tables)


def _sets_the_line(row: Row) -> bool:
    """Say whether a message is like a day's traffic, which subtle ones and our pairs in English are not."""
    if row.subtle:
        return False
    if group_of(row) == ENGLISH:
        return row.ordinary or row.source not in {OWN, DOUBTFUL, QUESTIONNAIRES}
    # Of the other languages there is one public source, the questionnaires of a health department.
    return row.source == OWN


def quantile(service: Iterable[float], share: float = REFUSED_SHARE) -> float:
    """Return the evidence above which this share of service messages is."""
    ordered = sorted(service, reverse=True)
    return ordered[int(share * len(ordered))]


def scenes_apart(rows: Sequence[Row]) -> Sequence[int]:
    """Return five parts, so that messages that resemble each other are held out together."""
    return [row.fold for row in rows]


def sources_apart(rows: Sequence[Row]) -> Sequence[int]:
    """Return parts in which each public source is held out as a whole, the small ones together."""
    sizes = Counter(row.source for row in rows)
    large = sorted(source for source, size in sizes.items() if size >= SOURCE_MIN and source != OWN)
    places = {source: place for place, source in enumerate(large, start=FOLDS)}
    return [row.fold if row.source == OWN else places.get(row.source, FOLDS + len(large)) for row in rows]


def held_out(counts: Counts, parts: Sequence[int]) -> Sequence[float]:
    """Return the evidence for each message, from tables that have not seen its part."""
    evidence = [0.0] * len(parts)
    with ProcessPoolExecutor(initializer=_share, initargs=(counts, parts)) as pool:
        for found in pool.map(_classify_part, sorted(set(parts))):
            for place, number in found:
                evidence[place] = number
    return evidence


_shared: list[tuple[Counts, Sequence[int]]] = []


def _share(counts: Counts, parts: Sequence[int]) -> None:
    _shared[:] = [(counts, parts)]


def _classify_part(part: int) -> Sequence[tuple[int, float]]:
    counts, parts = _shared[0]
    # With a threshold of zero, how far a text is above the line is its evidence.
    classifier = Classifier(fit_all(counts, [place for place, one in enumerate(parts) if one != part]))
    return [
        (place, classifier.above(counts.rows[place].text)) for place, one in enumerate(parts) if one == part
    ]


def language_words(rows: Iterable[Row]) -> Mapping[str, str]:
    """Return the words that occur nearly only in one group of languages."""
    counts: dict[str, Counter[str]] = {table: Counter() for table in TABLES}
    sizes = Counter[str]()
    for row in rows:
        words = {written.strip(EDGES) for written in normalise(row.text).text.split()}
        counts[group_of(row)].update(word for word in words if word.isalpha())
        sizes[group_of(row)] += 1
    found = {}
    for word in sorted(set().union(*counts.values())):
        shares = {table: counts[table][word] / (sizes[table] + 1) for table in TABLES}
        best = max(TABLES, key=lambda table: shares[table])
        if counts[best][word] >= WORD_COUNT_MIN and shares[best] >= WORD_SHARE_MIN * sum(shares.values()):
            found[word] = best
    return found
