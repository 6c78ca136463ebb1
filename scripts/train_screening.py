"""Learn the content check's weights from all messages at hand, and write them into the package."""

import sys
from pathlib import Path

import click

from scripts.learning import ROOT, SHARED, learn, read_corpus, read_shared
from tumira.content.weights import FILE, write_weights

VERSION = 1


@click.command()
@click.option("--corpus-only", is_flag=True, help="Leave the public collections out, also where they are.")
@click.option("--output", type=click.Path(path_type=Path), default=ROOT / "tumira" / "rules" / FILE)
def main(*, corpus_only: bool, output: Path) -> None:
    """Train, and say from what."""
    corpus = read_corpus()
    shared = [] if corpus_only else read_shared("train")
    if shared:
        trained_from = f"{len(corpus)} messages of our corpus and {len(shared)} of public collections"
    else:
        trained_from = f"{len(corpus)} messages of our corpus alone"
        if not corpus_only:
            print(f"{SHARED} is not there: training from our own corpus alone.", file=sys.stderr)
    print(f"Learning from {trained_from}; this takes about a minute …", flush=True)
    weights = learn([*corpus, *shared], version=VERSION, trained_from=trained_from)
    packed = write_weights(weights)
    output.write_bytes(packed)
    print(
        f"{len(weights.words):,} words and pairs, {len(weights.pieces):,} pieces, "
        f"threshold {weights.threshold:.3f}; {len(packed):,} bytes in {output}."
    )


if __name__ == "__main__":
    main()
