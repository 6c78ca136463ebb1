"""Counting of segments: the browser agrees with the server.

Every text goes through one real Chromium, in one call, and each field of the answer is compared.
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, settings

from tests.support.browser import run_browser
from tests.support.pricing.segment_vectors import VECTORS, texts
from tumira.pricing.gsm7 import SPELLINGS
from tumira.pricing.segments import Encoding, measure, room

SCRIPT: Final = Path(__file__).parents[2] / "tumira" / "dashboard" / "static" / "segments.js"
GENERATED: Final = 50
BROWSER_S: Final = 60

# Texts travel as JSON both ways: its escapes carry a lone surrogate, which no encoding of a pipe does.
ASK: Final = "(asked) => JSON.stringify(JSON.parse(asked).map((text) => Tumira.measure(text)))"


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


def test_the_browser_counts_as_the_server_does() -> None:
    # In a thread, since playwright runs an event loop of its own.
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ask_browser, json.dumps(all_texts()))
        answers: Sequence[Mapping[str, Any]] = json.loads(asked.result(2 * BROWSER_S))
    for text, theirs in zip(all_texts(), answers, strict=True):
        ours = measure(text)
        assert theirs == {
            "segments": ours.segments,
            "encoding": str(ours.encoding),
            "left": room(text),
        }, text


def test_the_texts_reach_every_case() -> None:
    every = all_texts()
    assert {(measure(text).encoding, measure(text).segments) for text in every} >= set(
        product(Encoding, range(1, 7))
    )
    assert {0, 1, 66, 152} <= {room(text) for text in every}
    assert set(SPELLINGS) <= set(every)
    assert len(every) >= len(VECTORS) + GENERATED // 2
