"""How does a camera read a short text off a screen? From a QR code, ISO/IEC 18004, of the two sizes we need.

Always with the lowest correction, which a screen can afford: version 5, 37 modules wide, for up to 106 bytes,
and version 7, 45 modules wide, for up to 154.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby, pairwise
from typing import Final

_BYTE_MODE: Final = 0b0100
_PADS: Final = (0xEC, 0x11)
_LEVEL_L: Final = 0b01
_TIMING: Final = 6
_FIELD: Final = 0x11D
_BYTE: Final = 0x100
_MASKS: Final = range(8)
# From this version on a code says which one it is.
_TOLD_FROM: Final = 7

Rows = list[list[bool]]


@dataclass(frozen=True, slots=True)
class Version:
    """How large a code is, how many codewords each of its blocks has, and where its small squares are."""

    number: int
    blocks: int
    data_codewords: int
    check_codewords: int
    alignments: Sequence[tuple[int, int]]

    @property
    def size(self) -> int:
        """Return how many modules it is wide."""
        return 17 + 4 * self.number

    @property
    def bytes_max(self) -> int:
        """Return how many bytes it holds: two are for the mode, the length and the end."""
        return self.blocks * self.data_codewords - 2

    @property
    def finders(self) -> Sequence[tuple[int, int]]:
        """Return the middles of the three large squares."""
        return (3, 3), (3, self.size - 4), (self.size - 4, 3)


SMALL: Final = Version(5, 1, 108, 26, ((30, 30),))
LARGE: Final = Version(7, 2, 78, 20, ((6, 22), (22, 6), (22, 22), (22, 38), (38, 22), (38, 38)))
SIZE: Final = SMALL.size
BYTES_MAX: Final = LARGE.bytes_max


def draw(text: str) -> Sequence[Sequence[bool]]:
    """Return the rows of modules, true where one is dark."""
    data = text.encode()
    version = SMALL if len(data) <= SMALL.bytes_max else LARGE
    codewords = _with_checks(version, _codewords(version, data))
    bits = [bool(codeword >> place & 1) for codeword in codewords for place in range(7, -1, -1)]
    return min((_draw(version, bits, mask) for mask in _MASKS), key=_evenness)


def write_path(rows: Sequence[Sequence[bool]]) -> str:
    """Write the dark modules as strokes of an SVG path, one unit wide."""
    strokes = []
    for y, row in enumerate(rows):
        x = 0
        for dark, run in groupby(row):
            length = len(list(run))
            if dark:
                strokes.append(f"M{x} {y}.5h{length}")
            x += length
    return "".join(strokes)


def _codewords(version: Version, data: bytes) -> list[int]:
    assert len(data) <= version.bytes_max
    # The mode has four bits and the length eight, so that the bytes lie across the codewords; four bits that
    # say where they end fill the last one.
    number = int.from_bytes(bytes([len(data)]) + data) << 4 | _BYTE_MODE << 8 * len(data) + 12
    codewords = list(number.to_bytes(len(data) + 2))
    return codewords + [_PADS[place % 2] for place in range(version.bytes_max + 2 - len(codewords))]


def _times(one: int, other: int) -> int:
    product = 0
    while other:
        product ^= one if other & 1 else 0
        one = one << 1 ^ (_FIELD if one << 1 >= _BYTE else 0)
        other >>= 1
    return product


def _with_checks(version: Version, codewords: list[int]) -> list[int]:
    """Append the Reed-Solomon codewords of each block; the blocks take turns, codeword by codeword."""
    length = version.data_codewords
    blocks = [codewords[at : at + length] for at in range(0, len(codewords), length)]
    checks = [_checks(block, version.check_codewords) for block in blocks]
    return [*chain(*zip(*blocks, strict=True)), *chain(*zip(*checks, strict=True))]


def _checks(codewords: list[int], count: int) -> list[int]:
    generator, root = [1], 1
    for _ in range(count):
        shifted = [*generator, 0]
        generator = [a ^ _times(b, root) for a, b in zip(shifted, [0, *generator], strict=True)]
        root = _times(root, 2)
    rest = codewords + [0] * count
    for place in range(len(codewords)):
        factor = rest[place]
        for offset, coefficient in enumerate(generator):
            rest[place + offset] ^= _times(coefficient, factor)
    return rest[-count:]


def _draw(version: Version, bits: Sequence[bool], mask: int) -> Rows:
    size = version.size
    rows = [[False] * size for _ in range(size)]
    for place in range(size):
        rows[_TIMING][place] = rows[place][_TIMING] = place % 2 == 0
    for y, x in version.finders:
        _square(rows, y, x, 4, dark=(0, 1, 3))
    for y, x in version.alignments:
        _square(rows, y, x, 2, dark=(0, 2))
    _draw_format(rows, mask)
    if version.number >= _TOLD_FROM:
        _draw_version(rows, version.number)
    # What is left over stays light before the mask.
    rest = iter(bits)
    for y, x in _free_places(version):
        rows[y][x] = next(rest, False) ^ _is_masked(mask, y, x)
    return rows


def _square(rows: Rows, middle_y: int, middle_x: int, radius: int, dark: Sequence[int]) -> None:
    size = len(rows)
    for y in range(max(0, middle_y - radius), min(size, middle_y + radius + 1)):
        for x in range(max(0, middle_x - radius), min(size, middle_x + radius + 1)):
            rows[y][x] = max(abs(y - middle_y), abs(x - middle_x)) in dark


def _protected(data: int, check_bits: int, divisor: int) -> int:
    """Append the bits by which a reader corrects what it read of the mask or the version."""
    rest = data << check_bits
    for place in range(rest.bit_length() - 1, check_bits - 1, -1):
        rest ^= divisor << place - check_bits if rest >> place & 1 else 0
    return data << check_bits | rest


def _draw_format(rows: Rows, mask: int) -> None:
    size = len(rows)
    word = _protected(_LEVEL_L << 3 | mask, 10, 0x537) ^ 0x5412
    beside = [*range(6), 7, 8, *range(size - 7, size)]
    for place, y in enumerate(beside):
        rows[y][8] = bool(word >> place & 1)
    below = [*range(size - 1, size - 9, -1), 7, *range(5, -1, -1)]
    for place, x in enumerate(below):
        rows[8][x] = bool(word >> place & 1)
    rows[size - 8][8] = True


def _draw_version(rows: Rows, number: int) -> None:
    word = _protected(number, 12, 0x1F25)
    for place in range(18):
        far, near = len(rows) - 11 + place % 3, place // 3
        rows[far][near] = rows[near][far] = bool(word >> place & 1)


@cache
def _free_places(version: Version) -> Sequence[tuple[int, int]]:
    """Return the places of the bits in their order; they are the same for every mask and every text."""
    return tuple(_walk(version))


def _walk(version: Version) -> Iterator[tuple[int, int]]:
    """Walk up and down in columns of two, from the right, past what is no place of a bit."""
    size = version.size
    upwards = True
    # The column of the timing pattern is left out, which moves those left of it.
    for right in [*range(size - 1, _TIMING, -2), *range(_TIMING - 1, 0, -2)]:
        for y in range(size - 1, -1, -1) if upwards else range(size):
            yield from ((y, x) for x in (right, right - 1) if _is_free(version, y, x))
        upwards = not upwards


def _is_free(version: Version, y: int, x: int) -> bool:
    size = version.size
    corner = (y <= 8 and (x <= 8 or x >= size - 8)) or (y >= size - 8 and x <= 8)  # noqa: PLR2004
    alignment = any(abs(y - at_y) <= 2 and abs(x - at_x) <= 2 for at_y, at_x in version.alignments)  # noqa: PLR2004
    told = version.number >= _TOLD_FROM and min(y, x) < 6 and max(y, x) >= size - 11  # noqa: PLR2004
    return not (corner or alignment or told or _TIMING in {y, x})


def _is_masked(mask: int, y: int, x: int) -> bool:
    remainders = (
        (y + x) % 2,
        y % 2,
        x % 3,
        (y + x) % 3,
        (y // 2 + x // 3) % 2,
        y * x % 2 + y * x % 3,
        (y * x % 2 + y * x % 3) % 2,
        ((y + x) % 2 + y * x % 3) % 2,
    )
    return remainders[mask] == 0


def _evenness(rows: Rows) -> int:
    """Count the modules that are like their neighbours: many of them make large patches, hard to read."""
    return sum(
        one == other
        for lines in (rows, [list(column) for column in zip(*rows, strict=True)])
        for line in lines
        for one, other in pairwise(line)
    )
