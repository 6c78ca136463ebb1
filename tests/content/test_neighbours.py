"""What the pairs and contexts of a sentence weigh."""

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tumira.content.neighbours import Neighbours
from tumira.content.tokens import START, contexts, pair

WORDS = st.sampled_from(["only", "now", "(amount)", "(link)", "+", "=", "#", "?", "$", "00", "code's"])


@given(st.lists(WORDS, min_size=1, max_size=12), st.sampled_from("<=>"), st.integers(0, 2**32))
def test_neighbours_weigh_what_their_features_weigh(words: list[str], part: str, seed: int) -> None:
    where = [context for _, context in contexts(words, part)]
    pairs = [pair(before, word) for before, word in pairwise([START, *words])]
    rng = random.Random(seed)
    # Not all are known, and others are known too.
    names = {*where, *pairs, *words, "~co", "~ code", "_?", "_>another"}
    steps = {name: rng.randrange(-127, 128) for name in sorted(names) if rng.random() < 0.8}
    neighbours = Neighbours(steps)
    assert neighbours.weigh([neighbours.of(word) for word in words], part) == (
        sum(steps.get(name, 0) for name in pairs),
        sum(steps.get(name, 0) for name in where),
        len(where),
    )
