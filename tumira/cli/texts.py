"""Commands that measure and classify a text without a database."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from tumira.cli.output import plain_command, show, tell, wants_json
from tumira.content.check import show_reasons
from tumira.content.classifier import classify
from tumira.core.errors import OperatorError
from tumira.pricing.segments import measure


@click.command()
@click.argument("text", required=False)
@plain_command
def segments(*, text: str | None) -> None:
    """Count the segments of TEXT, or of each JSON line with a `text` on standard input."""
    if text is None:
        _answer_lines(_segments)
    else:
        show(_segments(text))


@click.command()
@click.argument("text", required=False)
@plain_command
def screen(*, text: str | None) -> None:
    """Tell whether TEXT, or each JSON line with a `text` on standard input, is promotional."""
    if text is None:
        _answer_lines(_screened)
    elif wants_json():
        _write_line(_screened(text))
    else:
        screened = _screened(text)
        words = [f"“{reason['words']}” ({reason['category']})" for reason in screened["reasons"]]
        show({**screened, "reasons": words or None, "drop": " ".join(screened["drop"]) or None})


def _answer_lines(answer: Callable[[str], Mapping[str, Any]]) -> None:
    """Print one JSON line for each line of standard input, in order."""
    if sys.stdin.isatty():
        tell('Type lines such as {"text": "Hi"}, and Ctrl-D to end.')
    # Bytes, because JSON is UTF-8 whatever the terminal's encoding is.
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            given = entry["text"]
        except (ValueError, TypeError, KeyError, RecursionError):
            given = None
        if not isinstance(given, str):
            raise OperatorError(
                f'Line {number} is not a JSON object with a string `text`, like {{"text": "Hi"}}.'
            )
        _write_line(answer(given))


def _write_line(value: Mapping[str, Any]) -> None:
    # In ASCII, because a text may hold what a terminal cannot show, such as half of a surrogate pair.
    click.echo(json.dumps(value))


def _segments(text: str) -> Mapping[str, Any]:
    size = measure(text)
    return {"segments": size.segments, "encoding": str(size.encoding), "characters": size.characters}


def _screened(text: str) -> Mapping[str, Any]:
    verdict = classify(text)
    return {
        "label": verdict.label.value,
        "score": round(verdict.score, 4),
        "category": None if verdict.category is None else verdict.category.value,
        "reasons": show_reasons(verdict.reasons),
        "drop": list(verdict.drop),
    }
