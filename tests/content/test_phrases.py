"""Each rule matches what the law is plain about, and not similar harmless texts."""

import re

import pytest

from tumira.content.classifier import classify
from tumira.content.normalise import normalise
from tumira.content.phrases import RULES, find_phrases
from tumira.content.verdict import Category, Label

# One example for every phrase that a rule knows.
REFUSED = {
    Category.PRIZE_DRAW: (
        "Buy two and stand a chance to win.",
        "Stand a chance of being our guest at the final.",
        "Recharge with R20 and win airtime.",
        "Spend R200 at any till and you could win.",
        "Win a share of the jackpot.",
        "Win up to 50 prizes.",
        "Win R5000 this week.",
        "Win USD 100 today.",
        "Join our lucky draw.",
        "The grand draw is open to all.",
        "Enter our competition.",
        "Enter the raffle at the gate.",
        "Koop enige twee en staan 'n kans om 'n motor te wen.",
        "Wen 'n reis na Kaapstad.",
        "Thola ithuba lokuwina imoto.",
        "Tora mukana wekuhwina mota.",
        "Fumana monyetla wa hao, ke sebaka sa ho hapa koloi.",
        "E ke tshono ya go fenya koloi.",
        "O na le sebaka sa go fenya koloi.",
    ),
    Category.OPT_OUT_LINE: (
        "Opt out: sms STOP.",
        "To opt out call us.",
        "To unsubscribe visit the page.",
        "Reply STOP to opt out.",
        "SMS STOP to 43210.",
        "Antwoord STOP na 43210.",
        "Pindurai STOP ku 43210.",
        "Phendula STOP ku 43210.",
        "STOP to end.",
        "STOP=optout.",
        "Reply STOP 2 end.",
        "SMS STOP 2 unsub.",
        "2 unsubscribe visit the page.",
        "Optout 43210.",
        "Unsub: 43210.",
    ),
    Category.BETTING_OFFER: (
        "Free spins waiting for you.",
        "Claim your R25 free bet.",
        "Bet now on the derby.",
        "Stake from as little as R1.",
        "Place your bets before kick-off.",
        "A 100% deposit bonus for you.",
        "Welcome bonus for all new players.",
        "Enhanced odds on Chiefs.",
        "Gratis spins vir jou.",
        "Kry 'n gratis weddenskap.",
    ),
    Category.LOAN_OFFER: (
        "You qualify for a personal loan.",
        "You may qualify for R8000.",
        "You are pre-approved for credit.",
        "Your preapproved loan waits.",
        "Cash loans up to R8000.",
        "Loan from USD 50 in minutes.",
        "Borrow up to R5000.",
        "Borrow USD 50 now.",
        "Need quick cash?",
        "Want a loan today?",
        "Dial *120# for a quick loan.",
        "SMS YES for an instant loan.",
        "Lenings tot R5000.",
        "Jou krediet is voorafgoedgekeur.",
    ),
    Category.DISCOUNT_OFFER: (
        "20 % off next time!",
        "30% off all shoes this weekend.",
        "Save up to 40% on tyres.",
        "Buy two pizzas, get one free.",
        "Buy 3 tyres, get one.",
        "Half price lunch today.",
        "All vitamins 3 for 2 until Sunday.",
        "Koop een, kry een gratis.",
        "Kry 30% afslag op alle skoene.",
        "Thola isaphulelo sika-30% esitolo sethu.",
        "Theolelo ya 30% ho dieta tsohle.",
    ),
}
INNOCENT = {
    Category.PRIZE_DRAW: (
        "You won case 12/2025 in court.",
        "Prize-giving is on Friday at 18:00.",
        "The draw result is on the notice board.",
        "Lucky draw result: nobody has claimed ticket 12.",
        "The window was repaired; the winch is with us.",
        "Enter the gate at Winston Road.",
        "Wenner's Garage: your car is ready.",
        "Ons wens u 'n spoedige herstel toe.",
        "The cash drawer was counted.",
        "Ithuba lokugcina lokukhokha isikole ngu-30 May.",
        "Your entry for the school play was received.",
    ),
    Category.OPT_OUT_LINE: (
        "Reply STOP if this was not you.",
        "The bus will not stop at Fourth Street today.",
        "Your stop order of USD 15 was paid.",
        "The optician has your glasses.",
        "Option 2 was chosen for your medical aid.",
        "Adopt-a-school: the meeting is at 14:00.",
    ),
    Category.BETTING_OFFER: (
        "Bet slip 123 settled.",
        "Your bet 123 was placed; stake R20.",
        "Your withdrawal of R200 from your betting account was paid.",
        "Your annual bonus of R7200 was paid into account 640.",
        "The stakeholders' meeting is on Monday.",
        "Spinal clinic: your appointment is at 09:00.",
        "Your deposit of R50 was received.",
    ),
    Category.LOAN_OFFER: (
        "Your loan of USD 300 was paid out.",
        "Your loan instalment of R450 is due on 1 May.",
        "Your loan application 4471 was declined.",
        "Cash of R200 was withdrawn at ATM Avondale.",
        "You need a police report for the claim.",
        "Your library loan is due on Friday.",
        "Jou lening van R300 is afbetaal.",
        "Your card was approved; collect it at the branch.",
        # Each of these says what a rule looks for, about something that was asked for or is owed.
        "Dial *151# for your loan balance.",
        "Call 0821234567 for your loan statement.",
        "Your hospital admission is pre-approved for 12 May.",
        "Refund 4411: do you want cash or EFT?",
    ),
    Category.DISCOUNT_OFFER: (
        "Your battery is at 20 %.",
        "You have used 90% of your data.",
        "Table for 4 booked at 19:00.",
        "Your indigent subsidy gives 100% off rates.",
        "The price of water changes on 1 July.",
        "Code 4 for gate 2.",
    ),
}


def found(text: str) -> set[Category]:
    return {category for category, _, _ in find_phrases(normalise(text).text)}


@pytest.mark.parametrize("category", REFUSED)
def test_a_rule_finds_what_it_names_and_nothing_in_an_innocent_look_alike(category: Category) -> None:
    for text in REFUSED[category]:
        assert category in found(text), text
    for text in INNOCENT[category]:
        assert not found(text), text


@pytest.mark.parametrize("category", REFUSED)
def test_what_a_rule_finds_adds_to_the_evidence_and_is_named(category: Category) -> None:
    refused = 0
    for text in REFUSED[category]:
        verdict = classify(f"Everything for your garden at Tendai's in Borrowdale. {text}")
        if verdict.label is Label.PROMOTIONAL:
            refused += 1
            assert verdict.category is category, text
            assert category in {reason.category for reason in verdict.reasons}
    # An opt-out line adds little: banks end their alerts with one too.
    assert category is Category.OPT_OUT_LINE or refused >= 0.9 * len(REFUSED[category])


def test_an_opt_out_line_alone_makes_no_bank_alert_marketing() -> None:
    alert = "CABS: USD 45.00 was withdrawn from account 3321 on 12 May. Balance USD 210.15."
    for text in REFUSED[Category.OPT_OUT_LINE]:
        assert classify(f"{alert} {text}").label is Label.TRANSACTIONAL, text


@pytest.mark.parametrize("gap", ["  ", "   ", "\n", " \n", "\t", "\u00a0 ", "\r\n"])
def test_no_width_of_a_gap_between_words_hides_an_offer(gap: str) -> None:
    for text in ("Place your bets.", "Borrow up to R5000.", "Stand a chance to win.", "Chairs 2 for 1."):
        assert found(text)
        assert found(text.replace(" ", gap)) == found(text)


def test_what_is_found_does_not_depend_on_the_figures() -> None:
    # A verdict holds for all texts that differ only in their figures.
    for texts in (*REFUSED.values(), *INNOCENT.values()):
        for text in texts:
            assert found(re.sub(r"\d", "0", text)) == found(text), text


def test_every_category_but_the_wording_as_a_whole_has_a_rule_and_examples() -> None:
    named = {rule.category for rule in RULES}
    assert {*named, Category.MARKETING} == set(Category)
    assert set(REFUSED) == set(INNOCENT) == named


def test_no_part_of_a_pattern_is_skipped_for_want_of_the_letters_that_its_rule_needs() -> None:
    for texts in REFUSED.values():
        for text in map(normalise, texts):
            every = {
                (rule.category, match.start(), match.end())
                for rule in RULES
                for match in rule.pattern.finditer(text.text)
            }
            assert set(find_phrases(text.text)) == every


def test_what_is_found_is_given_with_its_place() -> None:
    text = normalise("Hello. Borrow up to R5000 and place your bets.").text
    places = {category: text[start:end] for category, start, end in find_phrases(text)}
    assert places == {Category.LOAN_OFFER: "borrow up to r5000", Category.BETTING_OFFER: "place your bets"}


@pytest.mark.parametrize(
    "unit",
    [
        "need " + "a quick extra " * 20,
        "call for a " + "quick " * 30,
        "play to win",
        "a free ",
        "stop to ",
        "pre-",
    ],
)
def test_a_hundred_thousand_characters_that_nearly_match_are_searched(unit: str) -> None:
    # Work that grew with the square of the length would not end before the suite's timeout.
    text = (unit * (100_000 // len(unit) + 1))[:100_000]
    assert all(0 <= start < end <= len(text) for _, start, end in find_phrases(text))
