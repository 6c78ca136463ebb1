"""The time that the content check takes for a text."""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tumira.content.classifier import Classifier, classify
from tumira.content.verdict import Label
from tumira.content.weights import load_weights

CORPUS: Final = Path(__file__).resolve().parents[2] / "corpus"
TEXTS: Final = 2_000
GOAL_US: Final = 100


def measure_judge() -> None:
    """Print how long the content check takes for one text, new and seen before."""
    texts = [
        json.loads(line)["text"]
        for path in sorted(CORPUS.glob("*_daily.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ][:TEXTS]
    fresh = Classifier(load_weights())
    # Words that were met before are known; in traffic nearly all are.
    service = [text for text in texts if fresh.classify(text).label is Label.TRANSACTIONAL]
    refused = [text for text in texts if fresh.classify(text).label is Label.PROMOTIONAL]
    middle = _show("(j) content check, a new text that passes", _times(fresh.classify, service))
    _show("    a new text that is refused, with reasons", _times(fresh.classify, refused))
    for text in service:
        classify(text)
    _show("    a text of a form that was seen before", _times(classify, service))
    print(f"    against the goal of {GOAL_US} µs                {GOAL_US / middle:.2f}\n", flush=True)


def _times(judge_text: Callable[[str], object], texts: Sequence[str]) -> Sequence[float]:
    times = []
    for text in texts:
        began = time.perf_counter()
        judge_text(text)
        times.append((time.perf_counter() - began) * 1e6)
    return sorted(times)


def _show(label: str, times: Sequence[float]) -> float:
    middle = statistics.median(times)
    late = times[int(0.99 * len(times))]
    print(f"{label:<44} p50 {middle:6.0f} µs   p99 {late:6.0f} µs   ({len(times):,} texts)", flush=True)
    return middle
