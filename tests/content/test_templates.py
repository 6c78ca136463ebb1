"""Templates match the intended texts and no others."""

import re
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tumira.content.templates import (
    PLACE_MAX,
    PLACES_MAX,
    TEMPLATE_MAX,
    Pattern,
    Policy,
    Squeezed,
    TemplateVerdict,
    tidy,
)
from tumira.core.ids import AccountId

PARCEL = "Your parcel {number} waits at {shop}."
OURS, THEIRS = (AccountId(UUID(int=number)) for number in (1, 2))


def matches(template: str, text: str) -> bool:
    return Pattern(tidy(template)).matches(Squeezed(text))


def test_a_text_matches_if_it_has_something_in_every_place_and_nothing_else() -> None:
    for text in (
        "Your parcel 7 waits at OK Mart.",
        "Your parcel ZW-7/1 waits at +263 77.",
        "  Your\tparcel  7\nwaits at OK  Mart. \n",
        "Your parcel waits at waits at waits at waits.",
        f"Your parcel {'7' * PLACE_MAX} waits at {'é' * PLACE_MAX}.",
        "Your parcel 7 waits at Shop.No.1.",
    ):
        assert matches(PARCEL, text), text
    for text in (
        "",
        "Your parcel  waits at OK Mart.",
        "Your parcel 7 waits at .",
        "Your parcel 7 waits at OK Mart",
        "Your parcel 7 waits at OK Mart. Buy now!",
        "Hi! Your parcel 7 waits at OK Mart.",
        "your parcel 7 waits at OK Mart.",
        "Yourparcel 7 waits at OK Mart.",
        "Your parcel 7\n8 waits at OK Mart.",
        "Your parcel 7\N{LINE SEPARATOR}8 waits at OK Mart.",
        f"Your parcel {'7' * (PLACE_MAX + 1)} waits at OK Mart.",
        "Your parcel {number} waits at",
    ):
        assert not matches(PARCEL, text), text


def test_a_place_may_stand_first_and_last_and_a_template_may_have_none() -> None:
    assert matches("{name}, your order is ready: {code}", "Tendai, your order is ready: 7")
    assert not matches("{name}, your order is ready: {code}", ", your order is ready: 7")
    assert matches("Your order is ready.", "Your  order is\nready.")
    assert not matches("Your order is ready.", "Your order is ready.!")


def test_a_place_takes_as_little_or_as_much_as_the_rest_needs() -> None:
    # Taking the first "x" that follows would leave none for the end, and taking the last one none for both.
    assert matches("Reference: {a}x{b}x done", "Reference: axxbx done")
    assert matches("Reference: {a}x{b}x done", f"Reference: {'x' * 50} done")
    assert not matches("Reference: {a}x{b}x done", f"Reference: {'x' * 83} done")
    assert not matches("Reference: {a}x{b}x done", "Reference: xxx done")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("a" * (TEMPLATE_MAX + 1), f"at most {TEMPLATE_MAX} characters"),
        ("Your order {number} \x00 is ready", "are not text"),
        ("Your order {number} \udcff is ready", "are not text"),
        ("Your order {order number} is ready", "Write placeholders like {name}"),
        ("Your order {number is ready", "Write placeholders like {name}"),
        ("Your order number} is ready", "Write placeholders like {name}"),
        ("Your order {} is ready", "Write placeholders like {name}"),
        ("Your order {{number}} is ready", "Write placeholders like {name}"),
        ("Your order is ready" + " {p}" * (PLACES_MAX + 1), f"at most {PLACES_MAX} placeholders"),
        ("Your order {first}{second} is ready", "Put text between placeholders"),
        ("Your code {code}", "at least 10 letters outside placeholders"),
        ("{everything}", "0 letters"),
        ("123456789012345 {code} 1234567890", "0 letters"),
        (" \n ", "0 letters"),
    ],
)
def test_a_template_that_is_none_is_refused_in_one_sentence(template: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as refused:
        tidy(template)
    assert "\n" not in str(refused.value)


def test_a_template_at_its_limits_is_taken() -> None:
    assert tidy("a" * TEMPLATE_MAX) == "a" * TEMPLATE_MAX
    assert tidy("Your order is ready" + " {p}" * PLACES_MAX).count("{p}") == PLACES_MAX
    assert tidy("abcdefghij{p}") == "abcdefghij{p}"
    assert tidy(" Mhoro {zita_1},\n  tatenda zvikuru ") == "Mhoro {zita_1}, tatenda zvikuru"


# Few letters, so that literals meet by chance, and few places, so that a regular expression can keep up.
pieces = st.text(alphabet="ab \n", min_size=1, max_size=4)
texts = st.text(alphabet="ab \n", max_size=60)


@settings(deadline=None, max_examples=50)
@given(st.lists(pieces, min_size=1, max_size=4), texts)
def test_it_agrees_with_a_regular_expression(literals: list[str], text: str) -> None:
    template = Squeezed("{p}".join(literals)).plain
    expression = rf"[^\n]{{1,{PLACE_MAX}}}".join(
        re.escape(literal).replace(r"\ ", "[ \n]") for literal in template.split("{p}")
    )
    expected = re.fullmatch(expression, Squeezed(text)._lines) is not None
    assert Pattern(template).matches(Squeezed(text)) == expected


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab1 {", min_size=1, max_size=PLACE_MAX), min_size=3, max_size=3))
def test_whatever_fills_the_places_matches(fillings: list[str]) -> None:
    # Without white space at the ends, which is squeezed into that of the template.
    first, second, third = (filling.strip() or "x" for filling in fillings)
    assert matches(
        "Dear {name}, order {order} costs {amount} dollars.",
        f"Dear {first}, order {second} costs {third} dollars.",
    )


def test_a_nasty_pair_is_compared_in_few_steps() -> None:
    # An expression that tries one way to cut the text after the other has 40 to the power of 19 of them here;
    # this would then not end before the time limit of all tests.
    nasty = Pattern(tidy("abcdefghij " + "a".join(["{p}"] * PLACES_MAX) + "b"))
    assert not nasty.matches(Squeezed("abcdefghij " + "a" * 750 + "\nb"))
    assert not nasty.matches(Squeezed("abcdefghij " + "a" * 900 + "b"))
    assert nasty.matches(Squeezed("abcdefghij " + "a" * 750 + "b"))


def test_a_policy_keeps_accounts_and_verdicts_apart() -> None:
    policy = Policy(
        7,
        [
            (OURS, TemplateVerdict.ALLOW, "Our order {number} is ready"),
            (OURS, TemplateVerdict.BLOCK, "Our dinner {number} is ready"),
            (None, TemplateVerdict.ALLOW, "Any order {number} is ready"),
            (None, TemplateVerdict.BLOCK, "Any dinner {number} is ready"),
        ],
    )
    assert policy.version == 7
    for account_id, ours in ((OURS, True), (THEIRS, False)):
        assert policy.allows(account_id, "Our order 1 is ready") is ours
        assert policy.blocks(account_id, "Our dinner 1 is ready") is ours
        assert policy.allows(account_id, "Any order 1 is ready")
        assert policy.blocks(account_id, "Any dinner 1 is ready")
        assert not policy.allows(account_id, "Our dinner 1 is ready")
        assert not policy.blocks(account_id, "Our order 1 is ready")
        assert not policy.allows(account_id, "Something else is ready")
