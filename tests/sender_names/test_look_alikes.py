"""Which names look like those of banks, wallets, networks, authorities, and of each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.sender_names.look_alikes import find_look_alikes, fold, is_near, words_of
from tumira.sender_names.protected_names import PROTECTED_NAMES, WHOLE_WORDS, NameKind

LOOKS = str.maketrans(
    {"o": "0", "l": "1", "i": "l", "e": "3", "a": "4", "s": "5", "t": "7", "b": "8", "g": "9"}
)
NAMES = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .&-", min_size=1, max_size=11)
ALL = [(kind, name) for kind, names in PROTECTED_NAMES.items() for name in names]


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("EcoCash", "EcoCash"),
        ("EC0CASH", "EcoCash"),
        ("Eco-Cash", "EcoCash"),
        ("EcoCashh", "EcoCash"),
        ("EcoCahs", "EcoCash"),
        ("EcoCasch", "EcoCash"),
        ("MyEcoCash", "EcoCash"),
        ("5tanb1c", "Stanbic"),
        ("Vodac0rn", "Vodacom"),
        ("MTN Pay", "MTN"),
        ("MTNPay", "MTN"),
        ("FNBAlert", "FNB"),
        ("C8Z Bank", "CBZ"),
        ("ZIMRA-Tax", "ZIMRA"),
        ("Z1mra", "ZIMRA"),
        ("S.A.R.S", "SARS"),
        ("Turnira", "Tumira"),
        ("INF0", "Info"),
        ("Verify", "Verify"),
        ("rain", "Rain"),
        ("Visa Card", "Visa"),
        ("Capitecc", "Capitec"),
        ("Nedbnk", "Nedbank"),
    ],
)
def test_a_look_alike_is_found(name: str, like: str) -> None:
    assert like in [one.name for one in find_look_alikes(name)]


@pytest.mark.parametrize(
    "name",
    [
        "Moyo Stores",
        "Training",
        "Advisanet",
        "Chicken Inn",
        "Edgars",
        "Greenfarm",
        "Tariro",
        "InfoShop",
        "N. Richards",
    ],
)
def test_an_honest_name_is_left_alone(name: str) -> None:
    assert find_look_alikes(name) == []


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_every_protected_name_is_found_however_it_is_written(kind: NameKind, name: str) -> None:
    for written in (name, name.upper(), name.lower().translate(LOOKS), "-".join(name), name + name[-1]):
        assert name in [one.name for one in find_look_alikes(written)], written
    if kind is not NameKind.GENERIC:
        assert name in [one.name for one in find_look_alikes(f"{name} ZW")]
        assert (
            name in WHOLE_WORDS
            or len(fold(name)) < 4
            or name in [one.name for one in find_look_alikes(f"my{name}app")]
        )


@given(NAMES)
def test_the_key_of_a_key_is_itself(name: str) -> None:
    assert fold(fold(name)) == fold(name)


@given(NAMES)
def test_case_spaces_signs_and_repetitions_make_no_difference(name: str) -> None:
    assert fold(name.upper()) == fold(name.lower()) == fold(name)
    assert fold(" . ".join(name)) == fold(name.replace(" ", ""))
    assert fold(name.replace("O", "0").replace("o", "0")) == fold(name)
    assert fold(name.replace("I", "l").replace("1", "I")) == fold(name)


@given(NAMES, NAMES)
def test_nearness_is_mutual_and_covers_equality(name: str, other: str) -> None:
    assert is_near(fold(name), fold(name))
    assert is_near(fold(name), fold(other)) == is_near(fold(other), fold(name))


@given(st.text("abcdefhjkp", min_size=7, max_size=11), st.integers(0, 6), st.sampled_from("abcdefhjkp"))
def test_one_letter_more_less_or_other_is_near(key: str, place: int, letter: str) -> None:
    assert is_near(key, key[:place] + letter + key[place:])
    assert is_near(key, key[:place] + key[place + 1 :])
    assert is_near(key, key[:place] + letter + key[place + 1 :])
    assert is_near(key, key[:place] + key[place : place + 2][::-1] + key[place + 2 :])
    assert not is_near(key, key + "xyz")


@given(st.text("abcdef", min_size=6, max_size=9), st.text("abcdef", min_size=6, max_size=9))
def test_what_is_near_begins_or_ends_with_the_same_two_letters(key: str, other: str) -> None:
    """The store finds candidates so."""
    if is_near(key, other):
        assert key[:2] == other[:2] or key[-2:] == other[-2:]


@given(st.text("ab", min_size=6, max_size=8), st.text("ab", min_size=6, max_size=8))
def test_what_is_near_among_few_letters_begins_or_ends_alike_too(key: str, other: str) -> None:
    assert not is_near(key, other) or key[:2] == other[:2] or key[-2:] == other[-2:]


def test_words_are_divided_by_signs_and_capitals() -> None:
    assert words_of("FNBAlert") == {"fnbalert", "fnb", "alert"}
    assert words_of("My-Shop 24") == {"my", "shop", "za"}
