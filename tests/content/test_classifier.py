"""Marketing is refused and service messages pass, in every language and every disguise."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.support.content.texts import (
    DISGUISES,
    LANGUAGES,
    MIXED,
    PROMOTIONAL,
    SERVICE_PHRASES,
    TRANSACTIONAL,
    corpus,
    leet,
    passcode_messages,
    without,
)
from tumira.content.classifier import REASONS_MAX, classify
from tumira.content.normalise import normalise
from tumira.content.verdict import Label, Verdict
from tumira.content.weights import FILE, load_weights, read_weights, write_weights

Classified = Sequence[tuple[Mapping[str, Any], Verdict]]

ADVERTS = [text for texts in PROMOTIONAL.values() for text in texts]
NOTICES = [text for texts in TRANSACTIONAL.values() for text in texts]


@pytest.fixture(scope="module")
def classified() -> Classified:
    # A tenth of them, which is enough to see every language.
    return [(row, classify(row["text"])) for row in corpus()[::10]]


@pytest.mark.parametrize("text", ADVERTS)
def test_a_plain_advert_is_refused(text: str) -> None:
    verdict = classify(text)
    assert verdict.label is Label.PROMOTIONAL
    assert verdict.category is not None
    assert verdict.reasons


@pytest.mark.parametrize("text", NOTICES)
def test_a_plain_service_message_passes_without_a_reason(text: str) -> None:
    verdict = classify(text)
    assert verdict.label is Label.TRANSACTIONAL
    assert (verdict.category, list(verdict.reasons), list(verdict.drop)) == (None, [], [])


def test_a_service_message_in_leet_spelling_is_not_an_advert_for_it() -> None:
    refused = [text for text in NOTICES if classify(leet(text)).label is Label.PROMOTIONAL]
    assert len(refused) <= len(NOTICES) // 10


def check_reasons(text: str, verdict: Verdict) -> None:
    assert len(verdict.reasons) <= REASONS_MAX
    for reason in verdict.reasons:
        assert 0 <= reason.start < reason.end <= len(text)
        assert text[reason.start : reason.end] == reason.words
        assert reason.words.strip() == reason.words
        assert reason.weight > 0


@pytest.mark.parametrize("trick", DISGUISES)
def test_reasons_stand_in_the_text_as_it_was_written(trick: str) -> None:
    for text in ADVERTS:
        written = DISGUISES[trick](text)
        check_reasons(written, classify(written))
        plain = [normalise(reason.words).text.split() for reason in classify(text).reasons]
        if trick in {"full width", "mathematical", "zero width", "boxed", "no-break spaces"}:
            assert [normalise(reason.words).text.split() for reason in classify(written).reasons] == plain


@pytest.mark.long
def test_reasons_of_every_refusal_stand_in_the_text_and_the_heaviest_come_first(
    classified: Classified,
) -> None:
    for row, verdict in classified:
        check_reasons(row["text"], verdict)
        assert bool(verdict.reasons) is (verdict.label is Label.PROMOTIONAL)
        assert all(first.weight >= second.weight for first, second in pairwise(verdict.reasons)), row["text"]


def test_mixed_messages_are_refused_in_most_languages() -> None:
    refused = {name for name, mixed in MIXED.items() if classify(mixed.text).label is Label.PROMOTIONAL}
    assert {"en", "en, longer", "af", "sn"} <= refused
    assert len(refused) >= 7


def test_a_text_without_what_it_should_drop_passes(classified: Classified) -> None:
    for row, verdict in classified:
        if verdict.drop:
            left = without(row["text"], verdict.drop)
            assert classify(left).label is Label.TRANSACTIONAL, row["text"]
            assert left.strip(), row["text"]


def test_most_mixed_messages_are_refused_and_told_what_to_drop(classified: Classified) -> None:
    mixed = [verdict for row, verdict in classified if row.get("mixed")]
    refused = [verdict for verdict in mixed if verdict.label is Label.PROMOTIONAL]
    assert len(refused) >= 0.75 * len(mixed)
    assert sum(bool(verdict.drop) for verdict in refused) >= 0.9 * len(refused)


def test_nothing_is_dropped_of_a_text_that_is_nothing_but_an_advert() -> None:
    assert list(classify("Get 50% off everything, shop now!").drop) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_passcode_passes(language: str) -> None:
    refused = [text for text in passcode_messages(language) if classify(text).label is Label.PROMOTIONAL]
    assert refused == []


@given(
    st.sampled_from(ADVERTS),
    st.lists(st.sampled_from(SERVICE_PHRASES), min_size=1, max_size=3),
    st.integers(0, 3),
)
@settings(max_examples=50, derandomize=True)
def test_service_phrases_do_not_make_an_advert_pass(text: str, phrases: list[str], before: int) -> None:
    assert classify(" ".join([*phrases[:before], text, *phrases[before:]])).label is Label.PROMOTIONAL


def test_no_language_decides_by_itself(classified: Classified) -> None:
    kinds: defaultdict[str, Counter[tuple[str, bool]]] = defaultdict(Counter)
    for row, verdict in classified:
        kinds[row["lang"]][row["label"], verdict.label is Label.PROMOTIONAL] += 1
    assert set(kinds) >= set(LANGUAGES)
    for language, counts in kinds.items():
        adverts = counts["promotional", True] + counts["promotional", False]
        notices = counts["transactional", True] + counts["transactional", False]
        assert min(adverts, notices) > 4, language
        assert counts["promotional", True] >= 0.8 * adverts, language
        assert counts["transactional", True] <= 0.05 * notices, language


def other_figures(text: str, step: int) -> str:
    return "".join(str((int(one) + step) % 10) if one in "0123456789" else one for one in text)


def outcome(verdict: Verdict) -> tuple[Any, ...]:
    spans = [(reason.category, reason.start, reason.end) for reason in verdict.reasons]
    return verdict.label, verdict.score, verdict.category, spans


@pytest.mark.parametrize("step", [1, 4, 7])
def test_texts_that_differ_in_figures_get_one_verdict_with_the_words_of_each(step: int) -> None:
    for text in ADVERTS + NOTICES:
        other = other_figures(text, step)
        verdict = classify(other)
        assert outcome(verdict) == outcome(classify(text)), other
        check_reasons(other, verdict)
        assert all(sentence in other for sentence in verdict.drop)


STRANGE = {
    "empty": "",
    "blank": " \n\t ",
    "one letter": "a",
    "long notice": "Your parcel has arrived at the post office. " * 114,
    "one long word": "a" * 5000,
    "emoji": "🎉🔥😀👍" * 20,
    "Arabic": "وصلت الشحنة الخاصة بك إلى مكتب البريد",
    "Chinese": "您的包裹已到达邮局请携带身份证领取",
    "Cherokee": "ᎣᏏᏲ ᎣᎯᏍᏙᏗ",
    "Georgian": "თქვენი ამანათი მოვიდა",
    "unassigned": "\U000e0fff\u0378\ufffe" * 30,
    "digits": "4821 3705 99",
    "punctuation": "?!...,;:-- *** (((",
    "lone surrogates": "\ud800\udfff \udc00 parcel \ud83d",
    "controls": "\x00\x01\x7f\x1b[0m",
    "zero width": "\u200b\u200d\ufeff",
}


def test_a_strange_text_passes() -> None:
    for name, text in STRANGE.items():
        assert classify(text).label is Label.TRANSACTIONAL, name


@pytest.mark.parametrize(
    "unit",
    ["a ", "a. ", "win up to ", "x\n", "ab" * 40 + " ", "🅰", "a.b.c ", "free bet "],
)
def test_a_hundred_thousand_characters_are_classified(unit: str) -> None:
    # Work that grew with the square of the length would not end before the suite's timeout.
    assert 0 <= classify((unit * 100_000)[:100_000]).score <= 1


@given(st.text(st.characters()) | st.lists(st.sampled_from(ADVERTS + NOTICES), max_size=3).map("\n".join))
@settings(max_examples=50, derandomize=True)
def test_any_text_gets_one_verdict_whose_score_and_label_agree(text: str) -> None:
    verdict = classify(text)
    assert verdict == classify(text)
    assert 0 <= verdict.score <= 1
    assert (verdict.score >= 0.5) is (verdict.label is Label.PROMOTIONAL)
    assert (verdict.category is None) is (verdict.label is Label.TRANSACTIONAL)
    check_reasons(text, verdict)
    assert all(sentence in text for sentence in verdict.drop)


def test_the_weights_are_small_numbered_and_packed_the_same_way_every_time() -> None:
    packed = files("tumira.content").joinpath(FILE).read_bytes()
    assert len(packed) < 2_000_000
    weights = read_weights(packed)
    assert weights.version > 0
    assert weights.trained_from
    assert all(table.slope > 0 and table.steps for table in weights.tables.values())
    assert set(weights.words.values()) == set(weights.tables)
    assert write_weights(weights) == packed


def test_features_are_packed_whole_whatever_they_share() -> None:
    weights = load_weights()
    long = "a" * 300
    features = ["a", "ab", "abc", "b", long, f"{long}b", f"{long}c d", "é", "ée"]
    table = structs.replace(weights.tables["en"], steps={name: place for place, name in enumerate(features)})
    packed = write_weights(structs.replace(weights, tables={**weights.tables, "en": table}))
    assert read_weights(packed).tables["en"] == table
