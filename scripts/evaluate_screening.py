"""Measures the content check on messages that it has not learnt from, and writes its model card."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import click

from scripts.learning import (
    DOUBTFUL,
    QUESTIONNAIRES,
    Counts,
    group_of,
    held_out,
    quantile,
    scenes_apart,
    sources_apart,
)
from scripts.messages import HELD_OUT, OWN, ROOT, SHARED, Row, group, read_corpus, read_shared
from tumira.content.classifier import Classifier
from tumira.content.weights import Weights, load_weights, write_weights

CARD: Final = ROOT / "docs" / "content-policy.md"
BEGIN: Final = "<!-- make evaluate writes from here -->"
END: Final = "<!-- to here -->"
LANGUAGES: Final = {
    "en": "English",
    "sn": "Shona",
    "af": "Afrikaans",
    "zu": "Zulu",
    "xh": "Xhosa",
    "nd": "Ndebele",
    "st": "Sotho",
    "tn": "Tswana",
    "nso": "Sepedi",
    "nr": "Ndebele of South Africa",
}
NOTICES: Final = {"passcode": "Passcodes", "money": "Alerts about money"}
# Below this number a share says nothing.
GROUP_MIN: Final = 30
CONFIDENCE: Final = 1.96


class Judged:
    """A message, and its evidence from tables that have not seen it."""

    def __init__(self, row: Row, evidence: float, threshold: float) -> None:
        self.row = row
        # Above zero the message is refused.
        self.above = evidence - threshold

    @property
    def advert(self) -> bool:
        return self.row.promotional and not self.row.mixed

    @property
    def service(self) -> bool:
        return not self.row.promotional and not self.row.chat


@click.command()
@click.option(
    "--card", type=click.Path(path_type=Path), default=CARD, help="The document that holds the card."
)
def main(*, card: Path) -> None:
    """Measure, print the card, and write it into the docs."""
    weights = load_weights()
    rows = group([*read_corpus(), *read_shared("train"), *read_shared("dev")])
    if all(row.source == OWN for row in rows):
        print(f"{SHARED} is not there: only our own corpus is evaluated.\n", file=sys.stderr)
    counts = Counts(rows)
    apart = _judge(counts, sources_apart(rows), weights)
    seen = _judge(counts, scenes_apart(rows), weights)
    shipped = Classifier(weights)
    untouched = [Judged(row, shipped.above(row.text), 0.0) for row in read_corpus(HELD_OUT)]
    written = "\n".join([BEGIN, "", *_card(weights, apart, seen, untouched), END])
    print(written)
    text = card.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    card.write_text(before + written + after, encoding="utf-8")


def _judge(counts: Counts, parts: Sequence[int], weights: Weights) -> Sequence[Judged]:
    return [
        Judged(row, evidence, weights.tables[group_of(row)].threshold)
        for row, evidence in zip(counts.rows, held_out(counts, parts), strict=True)
    ]


def _card(
    weights: Weights, apart: Sequence[Judged], seen: Sequence[Judged], untouched: Sequence[Judged]
) -> Iterator[str]:
    own = [one for one in apart if one.row.source == OWN and not one.row.subtle]
    public = [one for one in apart if one.row.source not in {OWN, DOUBTFUL}]
    yield f"Weights version {weights.version}, {len(write_weights(weights)) / 1e6:.2f} MB, learnt from"
    yield f"{weights.trained_from}."
    yield ""
    yield (
        "| Messages that were not learnt from | Adverts | Service "
        "| Adverts refused at 0.5 % of service | at 1 % | Mixed refused at 0.5 % |"
    )
    yield "|---|---:|---:|---:|---:|---:|"
    if public:
        yield _ranked("public, each source left out as a whole", public)
        clean = [one for one in public if one.row.source != QUESTIONNAIRES]
        yield _ranked("the same without a health department's questionnaires", clean)
        near = [one for one in seen if one.row.source not in {OWN, DOUBTFUL}]
        yield _ranked("public, only near-duplicates left out", near)
    yield _ranked("our corpus, each scene left out", own)
    yield _ranked("of these, ordinary messages", [one for one in own if one.row.ordinary])
    for language, name in LANGUAGES.items():
        yield _ranked(f"our corpus, {name}", [one for one in own if one.row.language == language])
    yield _ranked("our subtle messages, each scene left out", [one for one in apart if one.row.subtle])
    early = [one for one in untouched if not one.row.ordinary]
    yield _ranked("held out from the start, by the shipped weights", early)
    late = [one for one in untouched if one.row.ordinary and not one.row.notice]
    english = [one for one in late if one.row.language == "en"]
    yield _ranked("everyday English that nothing learns from, by the shipped weights", english)
    others = [one for one in late if one.row.language != "en"]
    yield _ranked("everyday messages in other languages that nothing learns from", others)
    yield ""
    yield "At the line that is shipped, with 95 % intervals:"
    yield ""
    messages = [one for one in untouched if not one.row.notice]
    yield from _shares("Nothing learns from", messages, _untouched_name)
    yield from _notices([one for one in untouched if one.row.notice])
    yield from _shares("Source", public, lambda row: row.source)
    yield from _shares("Language", own, lambda row: LANGUAGES[row.language])
    yield from _shares("Sector", own, lambda row: row.sector)
    yield from _shares("Kind", own, lambda row: f"{row.kind:02}" if row.kind else "")
    # All chat is of one source.
    chat = [one for one in seen if one.row.chat]
    if chat:
        yield f"Chat between people, with near-duplicates left out: {_share(chat)} refused."
        yield ""


def _untouched_name(row: Row) -> str:
    return LANGUAGES[row.language] + (", everyday" if row.ordinary else "")


def _notices(judged: Sequence[Judged]) -> Iterator[str]:
    """Count the notices that are refused at the line that is shipped."""
    yield "| Notices that nothing learns from | Refused in English | in other languages |"
    yield "|---|---:|---:|"
    for notice, name in NOTICES.items():
        counts = []
        for english in (True, False):
            refused = [
                one.above > 0
                for one in judged
                if one.row.notice == notice and (one.row.language == "en") is english
            ]
            counts.append(f"{sum(refused)} of {len(refused):,}")
        yield f"| {name} | {' | '.join(counts)} |"
    yield ""


def _ranked(name: str, judged: Sequence[Judged]) -> str:
    """Describe how many adverts are refused where a share of the service messages is."""
    adverts = [one for one in judged if one.advert]
    service = [one.above for one in judged if one.service]
    mixed = [one for one in judged if one.row.mixed]
    few, more = quantile(service, 0.005), quantile(service, 0.01)
    return (
        f"| {name} | {len(adverts):,} | {len(service):,} | {_share(adverts, few)} | {_share(adverts, more)} "
        f"| {_share(mixed, few)} |"
    )


def _shares(name: str, judged: Sequence[Judged], key: Callable[[Row], str]) -> Iterator[str]:
    """Describe each group at the line that is shipped."""
    yield f"| {name} | Adverts refused | Service refused | Mixed refused |"
    yield "|---|---:|---:|---:|"
    ordered = sorted(judged, key=lambda one: key(one.row))
    for label, members in groupby(ordered, key=lambda one: key(one.row)):
        found = list(members)
        if label and len(found) >= GROUP_MIN:
            yield (
                f"| {label} | {_share([one for one in found if one.advert])} "
                f"| {_share([one for one in found if one.service])} "
                f"| {_share([one for one in found if one.row.mixed])} |"
            )
    yield ""


def _share(judged: Sequence[Judged], line: float = 0.0) -> str:
    """Describe the refused share of messages with its interval."""
    if len(judged) < GROUP_MIN:
        return f"{sum(one.above > line for one in judged)} of {len(judged)}" if judged else ""
    share = sum(one.above > line for one in judged) / len(judged)
    squared = CONFIDENCE**2 / len(judged)
    middle = (share + squared / 2) / (1 + squared)
    half = (
        CONFIDENCE * math.sqrt(share * (1 - share) / len(judged) + squared / len(judged) / 4) / (1 + squared)
    )
    return f"{100 * share:.1f} % ({100 * max(0.0, middle - half):.1f} to {100 * (middle + half):.1f})"


if __name__ == "__main__":
    main()
