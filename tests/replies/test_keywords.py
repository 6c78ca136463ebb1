"""Which replies opt out, and which do not."""

import unicodedata
from typing import Final, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.replies.keywords import Keyword, Keywords, Meaning, fold

WORDS: Final = (
    Keyword("stop", Meaning.STOP, "English", is_active=True, leads=True),
    Keyword("opt out", Meaning.STOP, "English", is_active=True, leads=False),
    Keyword("cancel", Meaning.STOP, "English", is_active=True, leads=False),
    Keyword("start", Meaning.START, "English", is_active=True, leads=False),
    Keyword("emisa", Meaning.STOP, "Sesotho", is_active=False, leads=False),
)
KEYWORDS: Final = Keywords(WORDS)
FORMS: Final[tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...]] = ("NFC", "NFD", "NFKC", "NFKD")
PUNCTUATION: Final = st.text(alphabet=" .,!?'\"-_*()\n\t\u200e\u2019\u00a0", max_size=6)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("STOP", Meaning.STOP),
        ("  stop.\n", Meaning.STOP),
        ("“Stop!”", Meaning.STOP),
        ("Stop sending me these", Meaning.STOP),
        ("STOP-1042", Meaning.STOP),
        ("\uff33\uff34\uff2f\uff30", Meaning.STOP),
        ("Opt-Out", Meaning.STOP),
        ("opt  out", Meaning.STOP),
        ("cancel", Meaning.STOP),
        ("Cancel my appointment please", None),
        ("start", Meaning.START),
        ("Start the car", None),
        ("EMIŠA", Meaning.MAYBE_STOP),
        ("unstoppable", None),
        ("Please stop", None),
        ("stopp", None),
        ("Yes", None),
        ("", None),
        ("…", None),
        ("stop " * 500, Meaning.STOP),
        ("\u200e" * 100 + "cancel", Meaning.STOP),
    ],
)
def test_what_a_reply_asks_for(text: str, meaning: Meaning | None) -> None:
    assert KEYWORDS.read(text) == meaning


@given(
    word=st.sampled_from(WORDS),
    cases=st.lists(st.booleans(), min_size=10, max_size=10),
    before=PUNCTUATION,
    between=PUNCTUATION.filter(lambda text: bool(text.strip("\u200e"))),
    after=PUNCTUATION,
    form=st.sampled_from(FORMS),
)
def test_a_keyword_counts_however_it_is_written(
    word: Keyword,
    cases: list[bool],
    before: str,
    between: str,
    after: str,
    form: Literal["NFC", "NFD", "NFKC", "NFKD"],
) -> None:
    letters = [one.upper() if cases[place % len(cases)] else one for place, one in enumerate(word.word)]
    written = "".join(letters).replace(" ", between)
    text = unicodedata.normalize(form, before + written + after)
    expected = word.meaning if word.is_active else Meaning.MAYBE_STOP
    assert KEYWORDS.read(text) == expected


@given(st.text(max_size=300))
def test_a_reply_that_is_no_keyword_and_leads_with_none_does_nothing(text: str) -> None:
    folded = fold(text)
    meaning = KEYWORDS.read(text)
    if meaning is not None:
        assert folded in {one.word for one in WORDS} or folded.split()[0] == "stop"
    assert fold(folded) == folded


def test_the_words_of_the_operator_are_the_only_ones() -> None:
    assert Keywords([]).read("STOP") is None
