"""The weights of the content check, written by `make train`."""

import zlib
from array import array
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Final

import msgspec
from msgspec import Struct

FILE: Final = "weights.bin"
# Weights are kept in steps of this size, one signed byte each.
STEP: Final = 0.2
STEPS_MAX: Final = 127
# One octet counts this many shared letters, and no more.
LETTERS_MAX: Final = 255


class Table(Struct, frozen=True):
    """A linear model of one group of languages over words, pairs of words and pieces of words."""

    bias: float
    # A text whose evidence is above this is promotional.
    threshold: float
    # How fast the score rises from 0 to 1 around the threshold.
    slope: float
    # The weight of each feature, in steps.
    steps: Mapping[str, int]


class Weights(Struct, frozen=True):
    # Grows by one with every training that is released.
    version: int
    # A description of the training data.
    trained_from: str
    # The group of languages that a word points to.
    words: Mapping[str, str]
    tables: Mapping[str, Table]


class _PackedTable(Struct, frozen=True):
    bias: float
    threshold: float
    slope: float
    # Sorted: how many letters each feature shares with the one before it, and the rest of it, one in each
    # line. Compressed, that is two thirds of what whole features take.
    shared: bytes
    rests: str
    # In the same order.
    steps: bytes


class _PackedWeights(Struct, frozen=True):
    version: int
    trained_from: str
    # The words of each group, sorted, separated by blanks.
    words: Mapping[str, str]
    tables: Mapping[str, _PackedTable]


@cache
def load_weights() -> Weights:
    packed = files(__package__).joinpath(FILE).read_bytes()
    return read_weights(packed)


def read_weights(packed: bytes) -> Weights:
    found = msgspec.msgpack.decode(zlib.decompress(packed), type=_PackedWeights)
    return Weights(
        found.version,
        found.trained_from,
        {word: group for group, words in found.words.items() for word in words.split()},
        {
            group: Table(
                table.bias,
                table.threshold,
                table.slope,
                dict(zip(_whole_features(table), array("b", table.steps), strict=True)),
            )
            for group, table in found.tables.items()
        },
    )


def _whole_features(table: _PackedTable) -> Iterator[str]:
    feature = ""
    for shared, rest in zip(table.shared, table.rests.split("\n"), strict=True):
        feature = feature[:shared] + rest
        yield feature


def write_weights(weights: Weights) -> bytes:
    """Pack weights; the same weights give the same bytes."""
    words: dict[str, list[str]] = {group: [] for group in weights.tables}
    for word, group in sorted(weights.words.items()):
        words[group].append(word)
    tables = {}
    for group, table in weights.tables.items():
        features = sorted(table.steps)
        steps = array("b", [table.steps[feature] for feature in features]).tobytes()
        shared = [_count_shared(before, feature) for before, feature in pairwise(["", *features])]
        rests = "\n".join(feature[count:] for count, feature in zip(shared, features, strict=True))
        tables[group] = _PackedTable(table.bias, table.threshold, table.slope, bytes(shared), rests, steps)
    packed = _PackedWeights(
        weights.version,
        weights.trained_from,
        {group: " ".join(found) for group, found in words.items()},
        tables,
    )
    return zlib.compress(msgspec.msgpack.encode(packed), 9)


def _count_shared(before: str, feature: str) -> int:
    """Return how many first letters two features have in common."""
    count = 0
    for one, other in zip(before[:LETTERS_MAX], feature, strict=False):
        if one != other:
            break
        count += 1
    return count
