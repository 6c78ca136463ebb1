"""The corpus has both labels in balance in every language and kind, and nothing twice."""

import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from scripts.messages import FOLDS, HELD_OUT, READING, SHARED, Row, group, read_corpus, read_shared
from tests.support.content.texts import LANGUAGES, corpus
from tests.support.processes.programs import CHECKOUT

KINDS = range(1, 31)
SECTORS = {
    *("bank", "betting", "church", "clinic", "courier", "farm", "government", "insurance", "job", "loan"),
    *("mobile_money", "other", "passcode", "property", "restaurant", "school", "security", "shop"),
    *("telecom", "transport", "utility"),
}
# Numbers that belong to nobody we know: +263 77 12x xxxx and +27 82 123 xxxx.
PHONE = re.compile(r"(?<!\d)(?:\+?27|0)[678]\d{8}(?!\d)|(?<!\d)(?:\+?263|0)7[1378]\d{7}(?!\d)")
READ = re.compile(r"(?P<split>train|dev)\t(?P<line>\d+)\t(?:transactional|promotional|mixed|neither)")
ALLOWED = re.compile(r"(?:\+?27|0)82123\d{4}|(?:\+?263|0)7712\d{5}")


def test_there_are_more_than_twelve_thousand_messages_for_the_thirty_kinds_and_ordinary_ones() -> None:
    assert len(corpus()) > 110_000
    assert sum("kind" in row for row in corpus()) > 9_000


@pytest.mark.parametrize("language", LANGUAGES)
def test_both_labels_are_in_balance_in_every_language_and_kind(language: str) -> None:
    labels = Counter((row.get("kind", 0), row["label"]) for row in corpus() if row["lang"] == language)
    for kind in [0, *KINDS]:
        service, adverts = labels[kind, "transactional"], labels[kind, "promotional"]
        assert min(service, adverts) >= 8, kind
        assert abs(service - adverts) <= max(3, 0.2 * (service + adverts)), kind


def test_every_sector_has_both_labels() -> None:
    counts = Counter((row["sector"], row["label"]) for row in corpus())
    assert {sector for sector, _ in counts} == SECTORS
    for sector in SECTORS:
        service, adverts = counts[sector, "transactional"], counts[sector, "promotional"]
        # Few adverts look like a passcode.
        least = 0.3 if sector == "passcode" else 0.6
        assert min(service, adverts) > least * max(service, adverts), sector


def test_no_message_is_there_twice_and_an_advert_is_part_of_its_message() -> None:
    texts = Counter(row["text"] for row in corpus())
    assert [text for text, count in texts.items() if count > 1] == []
    for row in corpus():
        assert row["country"] in {"ZA", "ZW"}
        assert bool(row.get("mixed")) is ("advert" in row)
        if row.get("mixed"):
            assert row["advert"] in row["text"]
            assert row["label"] == "promotional"


def test_nothing_learns_from_what_is_held_out() -> None:
    held_out = {row.text for row in read_corpus(HELD_OUT)}
    assert len(held_out) > 17_000
    assert not held_out & {row["text"] for row in corpus()}


def test_scenes_and_folds_do_not_depend_on_the_order_of_sets() -> None:
    # Each third message resembles the two before it, which do not resemble each other.
    program = """
from itertools import product
from scripts.messages import Row, group
words = ["".join(letters) for letters in product("abcdefghi", repeat=3)][:600]
texts = []
for start in range(0, 600, 12):
    texts += [words[start:start + 8], words[start + 4:start + 12], words[start:start + 12]]
rows = [Row(" ".join(text), promotional=False, language="en", source="") for text in texts]
found = group(rows)
assert len({row.scene for row in found}) == 50
print([(row.scene, row.fold) for row in found])
"""
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(runs) == 1


def test_messages_that_are_added_do_not_change_the_folds_of_others() -> None:
    rows = read_corpus(HELD_OUT)[::8]
    folds = [row.fold for row in group(rows)]
    first = Row(
        "Hlanganani maqabane, ibhokisi leengcaphephe alikho", promotional=False, language="xh", source=""
    )
    assert [row.fold for row in group([first, *rows])[1:]] == folds
    assert set(folds) == set(range(FOLDS))


def test_notices_are_service_messages_of_two_kinds() -> None:
    notices = [row for row in [*read_corpus(), *read_corpus(HELD_OUT)] if row.notice]
    assert {row.notice for row in notices} == {"passcode", "money"}
    assert not [row.text for row in notices if row.promotional]


def test_telephone_numbers_are_made_up() -> None:
    texts = [row["text"] for row in corpus()] + [row.text for row in read_corpus(HELD_OUT)]
    found = [phone for text in texts for phone in PHONE.findall(text.replace(" ", ""))]
    assert [phone for phone in found if not ALLOWED.fullmatch(phone)] == []


def test_the_second_reading_names_each_message_once_and_holds_no_text() -> None:
    header, *lines = READING.read_text(encoding="utf-8").splitlines()
    assert header == "split\tline\tread"
    found = [READ.fullmatch(line) for line in lines]
    assert None not in found
    places = {(one["split"], int(one["line"])) for one in found if one is not None}
    assert len(places) == len(lines) > 3_000


@pytest.mark.skipif(not SHARED.exists(), reason="the public collections are not at hand")
@pytest.mark.parametrize("split", ["train", "dev"])
def test_messages_whose_readers_disagree_are_left_out(split: str) -> None:
    entries = [json.loads(line) for line in (SHARED / f"{split}.jsonl").read_text("utf-8").splitlines()]
    read = Counter(row.text for row in read_shared(split))
    lines = [line.split("\t") for line in READING.read_text(encoding="utf-8").splitlines()[1:]]
    other = [
        entries[int(number) - 1] for name, number, label in lines if name == split and label == "neither"
    ]
    assert other
    assert not [entry["text"] for entry in other if read[entry["text"]]]
    assert {"promotional", "transactional", "personal"} == {
        entry["label"] for entry in entries if read[entry["text"]]
    }
