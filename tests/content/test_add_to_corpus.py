"""Texts from operation become lines of the corpus, once a person has labelled them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

from scripts import add_to_corpus
from scripts.add_to_corpus import SimilarTexts, scramble

OLD: Final = {
    "text": "Your parcel 1042 waits at our counter in Harare until Friday.",
    "label": "transactional",
    "lang": "en",
    "country": "ZW",
    "sector": "courier",
}
SHOP: Final = {
    **OLD,
    "text": "Koop nou en kry 30% afslag.",
    "label": "promotional",
    "lang": "af",
    "country": "ZA",
}
ABOUT: Final = {"lang": "en", "country": "ZW", "sector": "courier"}
NEW: Final = {
    "text": "Dear Tendai, collect bag 48291 before the depot closes, or call 0771234567.",
    "label": "transactional",
    **ABOUT,
    "category": "marketing",
    "score": 0.61,
    "count": 3,
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "english.jsonl").write_text(lines(OLD, SHOP), encoding="utf-8")
    return folder


def lines(*entries: Mapping[str, Any]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def add(corpus: Path, *entries: Mapping[str, Any], answers: str = "") -> Result:
    file = corpus.parent / "export.jsonl"
    file.write_text(lines(*entries), encoding="utf-8")
    words = [str(file), "--corpus", str(corpus), "--ask" if answers else "--no-ask"]
    return CliRunner().invoke(add_to_corpus.main, words, input=answers)


def written(corpus: Path) -> list[dict[str, Any]]:
    file = corpus / add_to_corpus.FILE
    return (
        [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    )


def test_a_labelled_text_becomes_a_line_without_its_figures_and_names(corpus: Path) -> None:
    done = add(corpus, NEW)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("1 added to ")
    (entry,) = written(corpus)
    assert list(entry) == ["text", "label", "lang", "country", "sector"]
    form = r"Dear Tariro, collect bag (\d{5}) before the depot closes, or call 07712\d{5}\."
    found = re.fullmatch(form, entry["text"])
    assert found is not None, entry["text"]
    assert found[1] not in {"48291", "00000"}


def test_what_is_not_labelled_or_incomplete_or_known_is_left_out_and_counted(corpus: Path) -> None:
    unlabelled = {**NEW, "text": "The clinic is closed on Monday.", "label": None}
    incomplete = {**NEW, "text": "We open again at nine.", "sector": None}
    known = {**NEW, "text": OLD["text"].replace("1042", "77")}
    again = {**NEW, "text": str(NEW["text"]).replace("Tendai", "Rudo").replace("48291", "5")}
    done = add(corpus, unlabelled, NEW, incomplete, known, again)
    assert done.output.splitlines()[:4] == [
        f"1 added to {corpus / add_to_corpus.FILE}",
        "1 left out: incomplete",
        "2 left out: nearly the same text is in the corpus",
        "1 left out: without a label",
    ]
    assert len(written(corpus)) == 1
    before = (corpus / add_to_corpus.FILE).read_bytes()
    assert "0 added" in add(corpus, NEW).output
    assert (corpus / add_to_corpus.FILE).read_bytes() == before


def test_the_file_is_the_same_whatever_the_order(corpus: Path) -> None:
    texts = ("We open again at nine.", "The clinic is closed on Monday.", "Bus 7 leaves from bay four today.")
    entries = [{**NEW, "text": text} for text in texts]
    add(corpus, *entries)
    together = (corpus / add_to_corpus.FILE).read_bytes()
    (corpus / add_to_corpus.FILE).unlink()
    for entry in reversed(entries):
        add(corpus, entry)
    assert (corpus / add_to_corpus.FILE).read_bytes() == together


def test_a_mixed_text_keeps_its_advert_in_it(corpus: Path) -> None:
    advert = "Get 500 points when you buy cement, call 0771200001."
    mixed = {**NEW, "text": f"Your bricks are loaded. {advert}", "label": "promotional", "mixed": True}
    assert "does not stand in the text" in add(corpus, {**mixed, "advert": "Something else."}).output
    assert written(corpus) == []
    add(corpus, {**mixed, "advert": advert, "kind": "pointer"})
    (entry,) = written(corpus)
    assert entry["mixed"] is True
    assert entry["kind"] == "pointer"
    assert entry["advert"] in entry["text"]
    assert "0771200001" not in entry["text"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"label": "spam"}, "label is 'spam'; it can be transactional, promotional."),
        ({"lang": "fr"}, "lang is 'fr'; it can be af, en."),
        ({"country": "UK"}, "country is 'UK'; it can be ZA, ZW."),
        ({"text": 7}, "is not a JSON object with a string `text`"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_written(
    corpus: Path, change: Mapping[str, Any], said: str
) -> None:
    done = add(corpus, {**NEW, "text": "We open again at nine."}, {**NEW, **change})
    assert done.exit_code == 1
    assert said in done.output
    assert written(corpus) == []


def test_a_person_is_asked_for_what_is_missing(corpus: Path) -> None:
    texts = ("We open again at nine.", "The clinic is closed on Monday.")
    answers = "spam\npromotional\nen\nZA\ncourier\nskip\n"
    done = add(corpus, *({"text": text, "label": None} for text in texts), answers=answers)
    assert all(text in done.output for text in texts)
    assert "1 left out: without a label" in done.output
    (entry,) = written(corpus)
    assert entry == {"text": texts[0], "label": "promotional", **ABOUT, "country": "ZA"}


def test_figures_change_and_forms_stay() -> None:
    text = "Dial *143# and pay 50% of R1 204.18 by 03/11, account 0000-0000-0000, call +000 00 000 0000."
    changed = scramble(text, "ZA")
    form = (
        r"Dial \*143# and pay 50% of R1 \d{3}\.18 by 03/11, account \d{4}-\d{4}-\d{4}, call \+2782123\d{4}\."
    )
    assert re.fullmatch(form, changed)
    assert changed == scramble(text, "ZA")
    assert "204" not in changed


def test_texts_are_similar_but_for_figures_and_a_word() -> None:
    similar = SimilarTexts([OLD["text"]])
    assert similar.has("Your parcel 9 waits at our counter in Harare until Monday.")
    assert not similar.has("Your parcel is on its way to our counter in Bulawayo.")
    assert not similar.has("")
