"""The verdict of the content check on a text."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

# A text that may be sent is near the line from this score on.
NEAR_LINE: Final = 0.2


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
    DISCOUNT_OFFER = "discount_offer"


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
    # It carries a code that its reader uses at once.
    is_passcode: bool = False

    @property
    def near_the_line(self) -> bool:
        """Tell whether the text may be sent although much in it is like what is refused."""
        return self.label is Label.TRANSACTIONAL and self.score >= NEAR_LINE
