"""Adds texts of `tumira refusal export` to the corpus, once a person has labelled them.

A text needs `label`, `lang`, `country` and `sector`, in the edited file or answered at the terminal. Texts
without a label, incomplete ones and those that the corpus nearly has are left out and counted. Figures are
replaced by others. Read the difference before you commit it.
"""

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import click

from tumira.content.personal_data import anonymise
from tumira.content.verdict import Label

CORPUS: Final = Path(__file__).resolve().parents[1] / "corpus"
FILE: Final = "operation.jsonl"
LABELS: Final = tuple(label.value for label in Label)
FIELDS: Final = ("lang", "country", "sector")
# The share of words and pairs of words that two texts must have in common to be nearly the same.
NEARLY_SAME: Final = 0.7
SKIP: Final = "skip"

Entry = Mapping[str, Any]

_WORD: Final = re.compile(r"[^\W\d_]+|\d+")
_FIGURE: Final = re.compile(r"\+?0(?:[ -]?0){6,}|(?<![*\d])\d{3,}(?![\d#])")
# The first digits of numbers that belong to nobody, abroad and at home.
_PHONES: Final = {"ZW": ("+2637712", "07712", 5), "ZA": ("+2782123", "082123", 4)}
_LOCAL_DIGITS: Final = 10


class SimilarTexts:
    """Finds texts that are nearly the same but for their figures."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._sizes: list[int] = []
        self._places: dict[str, list[int]] = {}
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        pieces = _pieces(text)
        for piece in pieces:
            self._places.setdefault(piece, []).append(len(self._sizes))
        self._sizes.append(len(pieces))

    def has(self, text: str) -> bool:
        pieces = _pieces(text)
        shared = Counter(place for piece in pieces for place in self._places.get(piece, ()))
        return any(
            count >= NEARLY_SAME * (len(pieces) + self._sizes[place] - count)
            for place, count in shared.items()
        )


def _pieces(text: str) -> frozenset[str]:
    words = ["0" if word.isdigit() else word.casefold() for word in _WORD.findall(text)]
    return frozenset([*words, *(f"{a} {b}" for a, b in pairwise(words))])


def scramble(text: str, country: str) -> str:
    """Replace long figures by others of the same form, the same ones every time."""
    # Not for secrecy: the figures that could say something are zeros by now.
    figures = random.Random(text)  # noqa: S311

    def replace(found: "re.Match[str]") -> str:
        written = found[0]
        digits = sum(letter.isdigit() for letter in written)
        if country in _PHONES and (
            written[0] == "+" or (digits == _LOCAL_DIGITS and not written.strip("0 -"))
        ):
            abroad, home, length = _PHONES[country]
            return (abroad if written[0] == "+" else home) + "".join(figures.choices("0123456789", k=length))
        first, *others = (figures.choice("0123456789") if one.isdigit() else one for one in written)
        return "".join([first if first != "0" else "1", *others])

    return _FIGURE.sub(replace, text)


def read_lines(path: Path) -> Sequence[dict[str, Any]]:
    """Read JSON lines; a line that is none is named."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
            raise click.ClickException(f"Line {number} of {path} is not a JSON object with a string `text`.")
        found.append(entry)
    return found


def complete(entry: Entry, known: Mapping[str, Sequence[str]], *, asks: bool) -> Entry | None:
    """Return an entry with all its fields; None if the person skips it, or cannot be asked."""
    filled = dict(entry)
    if asks and not all(filled.get(name) for name in known):
        click.echo(f"\n{filled['text']}")
    for name, values in known.items():
        if not filled.get(name) and asks:
            answer = click.prompt(name, type=click.Choice([*values, SKIP]), show_choices=True)
            if answer == SKIP:
                return None
            filled[name] = answer
        if not filled.get(name):
            return None
        if filled[name] not in values:
            raise click.ClickException(f"{name} is {filled[name]!r}; it can be {', '.join(values)}.")
    return filled


def make_entry(filled: Entry) -> Entry:
    """Return the line of the corpus, with other figures and without personal data."""
    text, country = filled["text"], filled["country"]

    def clean(piece: str) -> str:
        return scramble(anonymise(piece), country)

    entry: dict[str, Any] = {"text": clean(text), **{name: filled[name] for name in ("label", *FIELDS)}}
    if filled.get("mixed"):
        advert = filled.get("advert") or ""
        before, found, after = text.partition(advert) if advert else (text, "", "")
        if not found:
            raise click.ClickException(f"`advert` does not stand in the text: {text}")
        entry["text"] = clean(before) + clean(found) + clean(after)
        entry |= {"mixed": True, "advert": clean(found)}
    return entry | ({"kind": filled["kind"]} if filled.get("kind") else {})


def add(path: Path, corpus: Path, *, asks: bool) -> Counter[str]:
    """Add the labelled texts of a file to the corpus; return how many were added or left out, and why."""
    existing = [entry for file in sorted(corpus.glob("*.jsonl")) for entry in read_lines(file)]
    known = {
        "label": LABELS,
        **{name: sorted({entry[name] for entry in existing}) for name in FIELDS},
    }
    similar = SimilarTexts(entry["text"] for entry in existing)
    added: list[Entry] = []
    done: Counter[str] = Counter()
    for entry in read_lines(path):
        if similar.has(entry["text"]):
            done["nearly the same text is in the corpus"] += 1
            continue
        filled = complete(entry, known, asks=asks)
        if filled is None:
            done["incomplete" if entry.get("label") else "without a label"] += 1
            continue
        made = make_entry(filled)
        similar.add(made["text"])
        added.append(made)
        done["added"] += 1
    if added:
        file = corpus / FILE
        entries = [*(read_lines(file) if file.exists() else []), *added]
        # Sorted, so that the difference shows what was added and nothing else.
        entries.sort(key=lambda one: (one["lang"], one["text"].casefold(), one["text"]))
        lines = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
        file.write_text(lines, encoding="utf-8")
    return done


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--corpus", type=click.Path(path_type=Path, file_okay=False), default=CORPUS)
@click.option(
    "--ask/--no-ask", "asks", default=None, help="Ask for what is missing; by default at a terminal."
)
def main(*, file: Path, corpus: Path, asks: bool | None) -> None:
    """Add the labelled texts of FILE, JSON lines of `tumira refusal export`, to the corpus."""
    done = add(file, corpus, asks=sys.stdin.isatty() if asks is None else asks)
    click.echo(f"{done.pop('added', 0)} added to {corpus / FILE}")
    for why, count in sorted(done.items()):
        click.echo(f"{count} left out: {why}")
    click.echo("Read `git diff` before you commit: a name may stand where no greeting announces it.")


if __name__ == "__main__":
    main()
