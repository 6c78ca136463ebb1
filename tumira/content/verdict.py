"""What is said about a text that was judged?"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct


class Label(StrEnum):
    """Whether a text may be sent."""

    TRANSACTIONAL = "transactional"
    PROMOTIONAL = "promotional"


class Category(StrEnum):
    """What makes a text promotional: its wording as a whole, or a rule that names one thing."""

    MARKETING = "marketing"
    PRIZE_DRAW = "prize_draw"
    OPT_OUT_LINE = "opt_out_line"
    BETTING_OFFER = "betting_offer"
    LOAN_OFFER = "loan_offer"


class Reason(Struct, frozen=True):
    """Words that weighed: as they stand in the text, and where, counted in characters."""

    category: Category
    words: str
    start: int
    end: int
    weight: float


class Verdict(Struct, frozen=True):
    """The judgement of one text."""

    label: Label
    # From 0 to 1; one half and more is promotional.
    score: float
    # None for what may be sent.
    category: Category | None
    # The heaviest first; empty for what may be sent.
    reasons: Sequence[Reason]
    # The sentences without which the text could be sent; empty when there is nothing left without them.
    drop: Sequence[str]
