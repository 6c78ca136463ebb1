"""The weights of the content check, written by `make train`."""

import zlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec
from msgspec import Struct

FILE: Final = "weights.bin"
# Weights are kept as whole numbers, a byte or two each.
STEPS: Final = 1000


class Weights(Struct, frozen=True):
    """A linear model over words, pairs of words and pieces of words, with its threshold."""

    # Grows by one with every training that is released.
    version: int
    # A description of the training data.
    trained_from: str
    bias: float
    # A text whose evidence is above this is promotional.
    threshold: float
    # How fast the score rises from 0 to 1 around the threshold.
    slope: float
    # For each feature its weight times its rarity, in steps, and its rarity squared, in steps.
    words: Mapping[str, tuple[int, int]]
    pieces: Mapping[str, tuple[int, int]]


@cache
def load_weights() -> Weights:
    packed = files(__package__).joinpath(FILE).read_bytes()
    return read_weights(packed)


def read_weights(packed: bytes) -> Weights:
    return msgspec.msgpack.decode(zlib.decompress(packed), type=Weights)


def write_weights(weights: Weights) -> bytes:
    """Pack weights; the same weights give the same bytes."""
    return zlib.compress(msgspec.msgpack.encode(weights), 9)
