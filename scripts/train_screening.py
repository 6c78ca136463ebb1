"""Learn the content check's weights from all messages at hand, and write them into the package."""

import sys
from pathlib import Path

import click

from scripts.learning import learn
from scripts.messages import ROOT, SHARED, group, read_corpus, read_shared
from tumira.content.weights import FILE, write_weights

VERSION = 6


@click.command()
@click.option("--corpus-only", is_flag=True, help="Leave the public collections out, also where they are.")
@click.option("--output", type=click.Path(path_type=Path), default=ROOT / "tumira" / "content" / FILE)
def main(*, corpus_only: bool, output: Path) -> None:
    """Train, and say from what."""
    corpus = read_corpus()
    shared = [] if corpus_only else [*read_shared("train"), *read_shared("dev")]
    if shared:
        trained_from = f"{len(corpus)} messages of our corpus and {len(shared)} of public collections"
    else:
        trained_from = f"{len(corpus)} messages of our corpus alone"
        if not corpus_only:
            print(f"{SHARED} is not there: training from our own corpus alone.", file=sys.stderr)
    print(f"Learning from {trained_from}; this takes about a quarter of an hour …", flush=True)
    weights = learn(group([*corpus, *shared]), VERSION, trained_from)
    packed = write_weights(weights)
    output.write_bytes(packed)
    for name, table in weights.tables.items():
        print(f"{name}: {len(table.steps):,} features, threshold {table.threshold:.3f}")
    print(f"{len(packed):,} bytes in {output}.")


if __name__ == "__main__":
    main()
