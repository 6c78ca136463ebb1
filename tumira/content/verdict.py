"""The verdict of the content check on a text."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct


class Label(StrEnum):
    TRANSACTIONAL = "transactional"
    PROMOTIONAL = "promotional"


class Category(StrEnum):
    """Why a text is promotional: its wording as a whole, or a rule."""

    MARKETING = "marketing"
    PRIZE_DRAW = "prize_draw"
    OPT_OUT_LINE = "opt_out_line"
    BETTING_OFFER = "betting_offer"
    LOAN_OFFER = "loan_offer"


class Reason(Struct, frozen=True):
    """Words that weighed, and their position in the text in characters."""

    category: Category
    words: str
    start: int
    end: int
    weight: float


class Verdict(Struct, frozen=True):
    label: Label
    # From 0 to 1; one half and more is promotional.
    score: float
    # None for a text that may be sent.
    category: Category | None
    # The heaviest first; empty for a text that may be sent.
    reasons: Sequence[Reason]
    # The sentences without which the text could be sent; empty when nothing would be left.
    drop: Sequence[str]
