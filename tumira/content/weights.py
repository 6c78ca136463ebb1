"""The weights of the content check, written by `make train`."""

import zlib
from array import array
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec
from msgspec import Struct

FILE: Final = "weights.bin"
# Weights are kept in steps of this size, one signed byte each.
STEP: Final = 0.2
STEPS_MAX: Final = 127


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
    # Sorted, one in each line, with their steps in the same order.
    features: str
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
                dict(zip(table.features.split("\n"), array("b", table.steps), strict=True)),
            )
            for group, table in found.tables.items()
        },
    )


def write_weights(weights: Weights) -> bytes:
    """Pack weights; the same weights give the same bytes."""
    words: dict[str, list[str]] = {group: [] for group in weights.tables}
    for word, group in sorted(weights.words.items()):
        words[group].append(word)
    tables = {}
    for group, table in weights.tables.items():
        features = sorted(table.steps)
        steps = array("b", [table.steps[feature] for feature in features]).tobytes()
        tables[group] = _PackedTable(table.bias, table.threshold, table.slope, "\n".join(features), steps)
    packed = _PackedWeights(
        weights.version,
        weights.trained_from,
        {group: " ".join(found) for group, found in words.items()},
        tables,
    )
    return zlib.compress(msgspec.msgpack.encode(packed), 9)
