"""Which verdicts are near the line."""

import pytest

from tumira.content.verdict import NEAR_LINE, Label, Verdict


@pytest.mark.parametrize(
    ("label", "score", "near"),
    [
        (Label.TRANSACTIONAL, 0.0, False),
        (Label.TRANSACTIONAL, NEAR_LINE - 0.001, False),
        (Label.TRANSACTIONAL, NEAR_LINE, True),
        (Label.TRANSACTIONAL, 0.499, True),
        (Label.PROMOTIONAL, 0.5, False),
    ],
)
def test_only_a_text_that_may_be_sent_is_near_the_line(label: Label, score: float, near: bool) -> None:  # noqa: FBT001
    assert Verdict(label, score, None, [], []).near_the_line is near
