"""Counting, respelling and naming of characters: the browser agrees with the server.

Every text goes through one real Chromium, in one call, and each field of the answer is compared.
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.support.browser import run_browser
from tests.support.pricing.segment_vectors import CHARACTERS, VECTORS, texts
from tumira.pricing.gsm7 import SPELLINGS, alphabet, name, respell
from tumira.pricing.segments import Encoding, measure, room, ucs2_characters

SCRIPT: Final = Path(__file__).parents[2] / "tumira" / "dashboard" / "static" / "segments.js"
GENERATED: Final = 50
BROWSER_S: Final = 60

# Texts travel as JSON both ways: its escapes carry a lone surrogate, which no encoding of a pipe does.
ASK: Final = """
(asked) => {
  const { alphabet, texts, characters } = JSON.parse(asked);
  const segments = Tumira.segments;
  return JSON.stringify({
    measured: texts.map((text) => segments.measure(text, alphabet)),
    respelt: texts.map((text) => segments.respell(text, alphabet)),
    names: texts.map((text) => Array.from(text, (character) => segments.name(character, alphabet))),
    characters: characters.map((character) => segments.respell(character, alphabet).text),
    character_names: characters.map((character) => segments.name(character, alphabet)),
    empty_name: segments.name("", alphabet),
  });
}
"""


@cache
def all_texts() -> Sequence[str]:
    """Give the vectors and what Hypothesis makes, the same in each run; one call takes them all."""
    made: list[str] = []

    @settings(
        max_examples=GENERATED,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(texts())
    def collect(text: str) -> None:
        made.append(text)

    collect()
    return tuple(dict.fromkeys((*VECTORS, *made)))


def ask_browser(asked: str) -> str:
    with run_browser() as browser:
        page = browser.new_page()
        page.set_default_timeout(BROWSER_S * 1000)
        page.set_content("<!doctype html><title>Segments</title>")
        page.add_script_tag(path=SCRIPT)
        answer: str = page.evaluate(ASK, asked)
        return answer


@pytest.fixture(scope="module")
def answers() -> Mapping[str, Any]:
    """Let the browser treat all texts; in a thread, since playwright runs an event loop of its own."""
    asked = json.dumps({"alphabet": alphabet(), "texts": all_texts(), "characters": CHARACTERS})
    with ThreadPoolExecutor(1) as threads:
        answer: Mapping[str, Any] = json.loads(threads.submit(ask_browser, asked).result(2 * BROWSER_S))
    return answer


def test_the_browser_counts_as_the_server_does(answers: Mapping[str, Any]) -> None:
    for text, theirs in zip(all_texts(), answers["measured"], strict=True):
        ours = measure(text)
        assert theirs == {
            "segments": ours.segments,
            "encoding": str(ours.encoding),
            "characters": ours.characters,
            "left": room(text),
            "forced": list(ucs2_characters(text)),
        }, text


def test_the_browser_respells_as_the_server_does(answers: Mapping[str, Any]) -> None:
    for text, theirs in zip(all_texts(), answers["respelt"], strict=True):
        ours = respell(text)
        assert theirs == {
            "text": ours.text,
            "replaced": [list(pair) for pair in ours.replaced],
            "left": list(ours.left),
        }, text


def test_the_browser_names_as_the_server_does(answers: Mapping[str, Any]) -> None:
    assert answers["empty_name"] == name("")
    for text, theirs in zip(all_texts(), answers["names"], strict=True):
        assert theirs == [name(character) for character in text], text


def test_no_single_character_is_treated_by_another_version_of_unicode(answers: Mapping[str, Any]) -> None:
    assert answers["characters"] == [respell(character).text for character in CHARACTERS]
    assert answers["character_names"] == [name(character) for character in CHARACTERS]


def test_the_texts_reach_every_case() -> None:
    every = all_texts()
    assert {(measure(text).encoding, measure(text).segments) for text in every} >= set(
        product(Encoding, range(1, 7))
    )
    assert {0, 1, 66, 152} <= {room(text) for text in every}
    assert set(SPELLINGS) <= set(every)
    assert len(every) >= len(VECTORS) + GENERATED // 2
