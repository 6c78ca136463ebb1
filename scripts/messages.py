"""Reads labelled messages for training and evaluation, and groups those that resemble each other."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from zlib import crc32

ROOT: Final = Path(__file__).resolve().parents[1]
CORPUS: Final = ROOT / "corpus"
SHARED: Final = ROOT.parent / "shared" / "data" / "sms"
REVIEW: Final = SHARED / "train_label_review.tsv"
# Messages that nothing learns from and no constant was chosen by.
HELD_OUT: Final = CORPUS / "held_out"
# How a second reader, who saw neither labels nor scores, labelled each message of the collections but chat.
READING: Final = CORPUS / "second_reading.tsv"
OWN: Final = "corpus"
# How the names of files begin whose messages are ordinary, or subtle.
ORDINARY: Final = {"ordinary", "everyday", "notices"}
SUBTLE: Final = "subtle"

FOLDS: Final = 5
# Neighbours in a file of our corpus often tell the same scene in both ways.
NEIGHBOURS: Final = 6
# Messages that share this part of their words and pairs of words are near-duplicates. Words that are more
# frequent than the maximum say nothing about that.
SHARED_PART_MIN: Final = 0.5
FREQUENT: Final = 200


@dataclass(frozen=True, slots=True)
class Row:
    """A labelled message."""

    text: str
    promotional: bool
    language: str
    source: str
    mixed: bool = False
    chat: bool = False
    sector: str = ""
    kind: int = 0
    # What a notice that must arrive is: a passcode or an alert about money.
    notice: str = ""
    # Written as an ordinary message, not as one of a pair.
    ordinary: bool = False
    # Written apart from the rest, a third of them hard on purpose.
    subtle: bool = False
    # The advert of a mixed message.
    advert: str = ""
    # Messages with the same scene are near-duplicates, or tell one scene in both ways.
    scene: str = ""
    # Which fifth it belongs to when messages are held out in turn.
    fold: int = 0


def read_corpus(folder: Path = CORPUS) -> Sequence[Row]:
    """Read the messages that were written for this project."""
    return [
        _row(entry, OWN, f"{path.stem}:{number // NEIGHBOURS}", style=path.stem.partition("_")[0])
        for path in sorted(folder.glob("*.jsonl"))
        for number, entry in enumerate(_read(path))
    ]


def read_shared(split: str) -> Sequence[Row]:
    """Read the messages of a split of the public collections on whose label two readers agree.

    Nothing is read where the collections are not at hand.
    """
    path = SHARED / f"{split}.jsonl"
    if not path.exists():
        return []
    reviews = _read_reviews(split)
    readings = _read_readings(split)
    rows = []
    for number, entry in enumerate(_read(path), start=1):
        review = reviews.get(number, "mixed")
        if not review.startswith("mixed"):
            continue
        row = _row({**entry, "mixed": entry.get("mixed") or number in reviews}, entry["source"], "")
        if row.promotional in _PROMOTIONAL[readings.get(number)]:
            rows.append(row)
    return rows


# Which values of `promotional` a reading agrees with.
_PROMOTIONAL: Final[Mapping[str | None, Sequence[bool]]] = {
    "promotional": (True,),
    "mixed": (True,),
    "transactional": (False,),
    "neither": (),
    # Chat, and the messages whose labels count little, were not read again.
    None: (True, False),
}


def _read_readings(split: str) -> Mapping[int, str]:
    lines = [line.split("\t") for line in READING.read_text(encoding="utf-8").splitlines()[1:]]
    return {int(number): read for name, number, read in lines if name == split}


def _read_reviews(split: str) -> Mapping[int, str]:
    """Return what a review suggests about doubtful labels: to drop the message, or to call it mixed."""
    if not REVIEW.exists():
        return {}
    lines = [line.split("\t") for line in REVIEW.read_text(encoding="utf-8").splitlines()[1:]]
    return {int(line[1]): line[3] for line in lines if line[0] == split}


def _read(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _row(entry: Mapping[str, Any], source: str, scene: str, style: str = "") -> Row:
    mixed = bool(entry.get("mixed"))
    return Row(
        entry["text"],
        # A service message with an advert in its tail is promotional, whatever its collection calls it.
        entry["label"] == "promotional" or mixed,
        entry["lang"],
        source,
        mixed=mixed,
        chat=entry["label"] == "personal",
        sector=entry.get("sector", ""),
        kind=entry.get("kind", 0),
        notice=entry.get("notice", ""),
        ordinary=style in ORDINARY,
        subtle=style == SUBTLE,
        advert=entry.get("advert", ""),
        scene=scene,
    )


def group(rows: Sequence[Row]) -> Sequence[Row]:
    """Give messages that resemble each other the same scene and the same fold.

    The fold follows from the text of the first of them, so that messages that are added do not change others.
    """
    firsts: dict[int, int] = {}
    # Which message stands for a group depends on the order of sets, which differs from run to run.
    scenes = [firsts.setdefault(leader, place) for place, leader in enumerate(_find_groups(rows))]
    return [
        replace(row, scene=str(first), fold=crc32(rows[first].text.encode()) % FOLDS)
        for row, first in zip(rows, scenes, strict=True)
    ]


def _find_groups(rows: Sequence[Row]) -> Sequence[int]:
    """Return for each message the place of a message that stands for its group."""
    leaders = list(range(len(rows)))

    def find(place: int) -> int:
        while leaders[place] != place:
            leaders[place] = leaders[leaders[place]]
            place = leaders[place]
        return place

    scenes: dict[str, int] = {}
    marks = [_marks(row.text) for row in rows]
    frequency = Counter(mark for found in marks for mark in found)
    known: defaultdict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        if row.scene:
            leaders[find(place)] = find(scenes.setdefault(row.scene, place))
        if row.chat:
            continue
        rare = [mark for mark in marks[place] if frequency[mark] < FREQUENT]
        common = Counter(other for mark in rare for other in known[mark])
        for other, count in common.items():
            if 2 * count < SHARED_PART_MIN * len(marks[place]):
                continue
            both = len(marks[place] & marks[other])
            if both >= SHARED_PART_MIN * len(marks[place] | marks[other]):
                leaders[find(place)] = find(other)
        for mark in rare:
            known[mark].append(place)
    return [find(place) for place in range(len(rows))]


def _marks(text: str) -> frozenset[str]:
    words = re.sub(r"\d+", "0", text.lower()).split()
    pairs = [f"{first} {second}" for first, second in pairwise(words)]
    return frozenset([*words, *pairs])
