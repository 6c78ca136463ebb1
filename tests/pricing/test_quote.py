"""A send is priced by country and segments, or refused with what is too much."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import pytest

from tumira.core.errors import RecipientCode, TooManyRecipients, TooManySegments
from tumira.pricing.destinations import RECIPIENTS_MAX, Destination, Price, PriceStatus, Rejected, Tariff
from tumira.pricing.quote import ECHO_MAX, Leg, Quote, ValidRequest, quote, unbilled_octets
from tumira.pricing.segments import SEGMENTS_MAX

ROUTED: Final = frozenset({"ZW-econet"})
TARIFF: Final = Tariff(
    7,
    (Destination("ZW", "263", "Zimbabwe", (9,)), Destination("ZA", "27", "South Africa", (9,))),
    (
        Price("sms", "ZW", Decimal("0.0400"), PriceStatus.ACTIVE),
        Price("sms", "ZA", Decimal("0.0200"), PriceStatus.ACTIVE),
    ),
    ROUTED,
)
ZW, ZW2, ZA = "+263771200001", "+263771200002", "+27821230001"
TWO: Final = "Your statement is ready. " * 8
INVALID: Final = RecipientCode.INVALID_NUMBER


def asked(to: Sequence[str], body: str = "Your code is 493817.") -> ValidRequest:
    return ValidRequest("sms", to, body, None, dry_run=False)


def priced(to: Sequence[str], body: str = "Your code is 493817.") -> Quote:
    found = quote(TARIFF, asked(to, body))
    assert isinstance(found, Quote)
    return found


def test_one_number_costs_its_price_for_each_segment() -> None:
    cost = Decimal("0.08")
    assert priced([ZW], TWO) == Quote([ZW], [0], [Leg("ZW", cost, 1)], [], 2, cost, 7, ROUTED)


def test_numbers_of_a_country_share_a_leg_and_the_total_is_that_of_all_legs() -> None:
    legs = [Leg("ZA", Decimal("0.04"), 1), Leg("ZW", Decimal("0.08"), 2)]
    assert priced([ZA, ZW, ZW2, "12"], TWO) == Quote(
        [ZA, ZW, ZW2], [0, 1, 1], legs, [Rejected("12", INVALID)], 2, Decimal("0.20"), 7, ROUTED
    )


def test_one_number_beside_a_rejected_one_costs_the_same() -> None:
    cost = Decimal("0.04")
    found = priced([ZW, "12"])
    assert found == Quote([ZW], [0], [Leg("ZW", cost, 1)], [Rejected("12", INVALID)], 1, cost, 7, ROUTED)
    nobody = priced(["12"])
    assert nobody == Quote([], [], [], [Rejected("12", INVALID)], 1, Decimal(0), 7, ROUTED)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("x" * ECHO_MAX, "x" * ECHO_MAX),
        ("x" * (ECHO_MAX + 1), "x" * (ECHO_MAX - 1) + "…"),
        (" " * 9 + "x" * ECHO_MAX, "x" * ECHO_MAX),
        (" " + "x" * (ECHO_MAX - 1), " " + "x" * (ECHO_MAX - 1)),
    ],
)
def test_an_entry_that_is_far_too_long_is_repeated_in_short(given: str, shown: str) -> None:
    assert priced([ZW, given]).rejected == [Rejected(shown, INVALID)]


def test_too_many_numbers_and_too_long_a_text_are_refused() -> None:
    most = [f"+26377{place:07}" for place in range(RECIPIENTS_MAX)]
    assert len(priced(most).numbers) == RECIPIENTS_MAX
    refused = quote(TARIFF, asked([*most, ZA]))
    assert isinstance(refused, TooManyRecipients)
    assert refused.details[0]["recipients"] == RECIPIENTS_MAX + 1
    longest = "x" * (153 * SEGMENTS_MAX)
    assert priced([ZW], longest).segments == SEGMENTS_MAX
    refused = quote(TARIFF, asked([ZW], f"{longest}x"))
    assert isinstance(refused, TooManySegments)
    assert (refused.details[0]["segments"], refused.details[0]["segments_max"]) == (
        SEGMENTS_MAX + 1,
        SEGMENTS_MAX,
    )


def test_what_is_stored_for_nothing_is_the_call_its_text_and_each_entry() -> None:
    assert unbilled_octets(asked([ZW]), priced([ZW])) == 0
    for entries in (["1"], ["1", "22"]):
        request = asked(entries, "Déjà")
        assert unbilled_octets(request, priced(entries, "Déjà")) == 1_000 + 6 + sum(
            50 + len(one) for one in entries
        )
