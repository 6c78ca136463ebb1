"""Learn the content check's weights from all messages at hand, and write them into the package."""

import sys

from scripts.learning import ROOT, SHARED, learn, read_corpus, read_shared
from tumira.rules.weights import FILE, write_weights

VERSION = 1
PLACE = ROOT / "tumira" / "rules" / FILE


def main() -> None:
    """Train, and say from what."""
    corpus = read_corpus()
    shared = [*read_shared("train")]
    if shared:
        trained_from = f"{len(corpus)} messages of our corpus and {len(shared)} of public collections"
    else:
        trained_from = f"{len(corpus)} messages of our corpus alone"
        print(f"{SHARED} is not there: training from our own corpus alone.", file=sys.stderr)
    print(f"Learning from {trained_from} …", flush=True)
    weights = learn([*corpus, *shared], version=VERSION, trained_from=trained_from)
    packed = write_weights(weights)
    PLACE.write_bytes(packed)
    print(
        f"{len(weights.words):,} words and pairs, {len(weights.pieces):,} pieces, "
        f"threshold {weights.threshold:.3f}; {len(packed):,} bytes in {PLACE.relative_to(ROOT)}."
    )


if __name__ == "__main__":
    main()
