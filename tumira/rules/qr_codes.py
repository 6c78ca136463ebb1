"""How does a camera read a short text off a screen? From a QR code, ISO/IEC 18004, of the one size we need.

Always version 5 with the lowest correction, which a screen can afford: 37 modules wide, up to 106 bytes, and
all of them in one block.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Final

SIZE: Final = 37
BYTES_MAX: Final = 106

_DATA_CODEWORDS: Final = 108
_CHECK_CODEWORDS: Final = 26
_BYTE_MODE: Final = 0b0100
_PADS: Final = (0xEC, 0x11)
_LEVEL_L: Final = 0b01
_FINDERS: Final = ((3, 3), (3, SIZE - 4), (SIZE - 4, 3))
_ALIGNMENT: Final = 30
_TIMING: Final = 6
_FIELD: Final = 0x11D
_BYTE: Final = 0x100
_MASKS: Final = range(8)

Rows = list[list[bool]]


def draw(text: str) -> Sequence[Sequence[bool]]:
    """Return the rows of modules, true where one is dark."""
    codewords = _with_checks(_codewords(text.encode()))
    bits = [bool(codeword >> place & 1) for codeword in codewords for place in range(7, -1, -1)]
    return min((_draw(bits, mask) for mask in _MASKS), key=_evenness)


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


def _codewords(data: bytes) -> list[int]:
    assert len(data) <= BYTES_MAX
    # The mode has four bits and the length eight, so that the bytes lie across the codewords; four bits that
    # say where they end fill the last one.
    number = int.from_bytes(bytes([len(data)]) + data) << 4 | _BYTE_MODE << 8 * len(data) + 12
    codewords = list(number.to_bytes(len(data) + 2))
    return codewords + [_PADS[place % 2] for place in range(_DATA_CODEWORDS - len(codewords))]


def _times(one: int, other: int) -> int:
    product = 0
    while other:
        product ^= one if other & 1 else 0
        one = one << 1 ^ (_FIELD if one << 1 >= _BYTE else 0)
        other >>= 1
    return product


def _with_checks(codewords: list[int]) -> list[int]:
    """Append the Reed-Solomon codewords."""
    generator, root = [1], 1
    for _ in range(_CHECK_CODEWORDS):
        shifted = [*generator, 0]
        generator = [a ^ _times(b, root) for a, b in zip(shifted, [0, *generator], strict=True)]
        root = _times(root, 2)
    rest = codewords + [0] * _CHECK_CODEWORDS
    for place in range(len(codewords)):
        factor = rest[place]
        for offset, coefficient in enumerate(generator):
            rest[place + offset] ^= _times(coefficient, factor)
    return codewords + rest[-_CHECK_CODEWORDS:]


def _draw(bits: Sequence[bool], mask: int) -> Rows:
    rows = [[False] * SIZE for _ in range(SIZE)]
    for place in range(SIZE):
        rows[_TIMING][place] = rows[place][_TIMING] = place % 2 == 0
    for y, x in _FINDERS:
        _square(rows, y, x, 4, dark=(0, 1, 3))
    _square(rows, _ALIGNMENT, _ALIGNMENT, 2, dark=(0, 2))
    _draw_format(rows, mask)
    # What is left over stays light before the mask.
    rest = iter(bits)
    for y, x in _free_places():
        rows[y][x] = next(rest, False) ^ _is_masked(mask, y, x)
    return rows


def _square(rows: Rows, middle_y: int, middle_x: int, radius: int, dark: Sequence[int]) -> None:
    for y in range(max(0, middle_y - radius), min(SIZE, middle_y + radius + 1)):
        for x in range(max(0, middle_x - radius), min(SIZE, middle_x + radius + 1)):
            rows[y][x] = max(abs(y - middle_y), abs(x - middle_x)) in dark


def _draw_format(rows: Rows, mask: int) -> None:
    data = _LEVEL_L << 3 | mask
    rest = data << 10
    for place in range(14, 9, -1):
        rest ^= 0x537 << place - 10 if rest >> place & 1 else 0
    word = (data << 10 | rest) ^ 0x5412
    beside = [*range(6), 7, 8, *range(SIZE - 7, SIZE)]
    for place, y in enumerate(beside):
        rows[y][8] = bool(word >> place & 1)
    below = [*range(SIZE - 1, SIZE - 9, -1), 7, *range(5, -1, -1)]
    for place, x in enumerate(below):
        rows[8][x] = bool(word >> place & 1)
    rows[SIZE - 8][8] = True


def _free_places() -> Iterator[tuple[int, int]]:
    """Walk the places of the bits: up and down in columns of two, from the right."""
    upwards = True
    # The column of the timing pattern is left out, which moves those left of it.
    for right in [*range(SIZE - 1, _TIMING, -2), *range(_TIMING - 1, 0, -2)]:
        for y in range(SIZE - 1, -1, -1) if upwards else range(SIZE):
            yield from ((y, x) for x in (right, right - 1) if _is_free(y, x))
        upwards = not upwards


def _is_free(y: int, x: int) -> bool:
    corner = (y <= 8 and (x <= 8 or x >= SIZE - 8)) or (y >= SIZE - 8 and x <= 8)  # noqa: PLR2004
    alignment = abs(y - _ALIGNMENT) <= 2 and abs(x - _ALIGNMENT) <= 2  # noqa: PLR2004
    return not (corner or alignment or _TIMING in {y, x})


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
