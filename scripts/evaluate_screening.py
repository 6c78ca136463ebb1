"""Prints the accuracy of the content check on messages that it has not seen, as tables of the docs."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from scripts.learning import OWN, SHARED, Model, Row, held_out, read_corpus, read_shared, remember
from tumira.content.classifier import Classifier
from tumira.content.verdict import Label
from tumira.content.weights import Weights, load_weights, write_weights

GROUP_MIN = 10
SMALL = 120


def main() -> None:
    """Print the figures."""
    weights = load_weights()
    print(
        f"Weights version {weights.version}, {len(write_weights(weights)):,} bytes, "
        f"learnt from {weights.trained_from}.\n"
    )
    corpus, train, dev = read_corpus(), read_shared("train"), read_shared("dev")
    if dev:
        refuses = _refuser(weights)
        print("## The development split, which was not learnt from\n")
        _table("", dev, lambda _: "all", refuses)
        _table("source", dev, lambda row: row.source, refuses)
        _table("language", dev, lambda row: row.language, refuses)
        chat = [row for row in dev if row.chat]
        print(f"Chat between people, which is no message of a business: {_share(chat, refuses)} refused.\n")
    else:
        print(f"{SHARED} is not there: only our own corpus is evaluated.\n", file=sys.stderr)
    print("## Our own corpus, each fifth judged by what was learnt from the rest\n")
    rows = [*corpus, *train]
    judged = [row for row in rows if not row.chat]
    unseen = {id(row): number > weights.threshold for row, number in zip(judged, held_out(rows), strict=True)}
    _table("", corpus, lambda _: OWN, lambda row: unseen[id(row)])
    _table("language", corpus, lambda row: row.language, lambda row: unseen[id(row)])
    if train:
        print("## Each source judged by what was learnt from the others\n")
        _without_sources([*corpus, *train], [*corpus, *train, *dev], weights)


def _refuser(weights: Weights) -> Callable[[Row], bool]:
    classifier = Classifier(weights)
    return lambda row: classifier.classify(row.text).label is Label.PROMOTIONAL


def _without_sources(learnt: Sequence[Row], tested: Sequence[Row], weights: Weights) -> None:
    verdicts: dict[str, bool] = {}
    sizes = Counter(row.source for row in tested if not row.chat)
    # The small ones are left out together, which saves time and flatters nobody.
    small = frozenset(source for source, size in sizes.items() if size < SMALL)
    left_out = [small, *(frozenset([source]) for source in sorted(sizes) if source not in small)]
    remember([*learnt, *tested])
    with ProcessPoolExecutor() as pool:
        for found in pool.map(partial(_without, learnt, tested, weights), left_out):
            verdicts |= found
    _table("source", tested, lambda row: row.source, lambda row: verdicts[row.source + row.text])


def _without(
    learnt: Sequence[Row], tested: Sequence[Row], weights: Weights, sources: frozenset[str]
) -> Mapping[str, bool]:
    others = [row for row in learnt if row.source not in sources]
    model = Model(others)
    refuses = _refuser(
        model.weights(model.fit(others), weights.threshold, weights.slope, version=0, trained_from="")
    )
    return {row.source + row.text: refuses(row) for row in tested if row.source in sources and not row.chat}


def _table(
    name: str, rows: Iterable[Row], group: Callable[[Row], str], refuses: Callable[[Row], bool]
) -> None:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if not row.chat:
            groups.setdefault(group(row), []).append(row)
    print(f"| {name:<22} | promotional refused | transactional refused | mixed refused |")
    print(f"|{'-' * 24}|--------------------:|----------------------:|--------------:|")
    for key in sorted(groups, key=lambda key: (-len(groups[key]), key)):
        members = groups[key]
        if len(members) < GROUP_MIN:
            continue
        promotional = [row for row in members if row.promotional and not row.mixed]
        service = [row for row in members if not row.promotional]
        mixed = [row for row in members if row.mixed]
        print(
            f"| {key:<22} | {_share(promotional, refuses):>19} | {_share(service, refuses):>21} "
            f"| {_share(mixed, refuses):>13} |"
        )
    print(flush=True)


def _share(rows: Sequence[Row], refuses: Callable[[Row], bool]) -> str:
    if not rows:
        return "none"
    refused = sum(refuses(row) for row in rows)
    return f"{100 * refused / len(rows):.1f} % of {len(rows)}"


if __name__ == "__main__":
    main()
