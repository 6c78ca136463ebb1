"""Receipts prove a submission in doubt only where no other reading of them is left."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import pytest

from tumira.delivery.doubts import InDoubtSubmission, assign, is_alike, sight
from tumira.delivery.receipt_rules import Receipt, UnmatchedReceipt, whole_numbers
from tumira.pricing.destinations import Destination

FIRST: Final = UUID(int=1)
SECOND: Final = UUID(int=2)
NOON: Final = datetime(2026, 11, 17, 12, tzinfo=UTC)
DESTINATIONS: Final = (
    Destination("ZW", "263", "Zimbabwe", (9,)),
    Destination("ZA", "27", "South Africa", (9,)),
)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def tried(
    message_id: UUID = FIRST,
    seconds: float = 0,
    *,
    attempt: int = 0,
    segments: int = 1,
    still_open: Sequence[int] | None = None,
    needed: Sequence[int] | None = None,
) -> InDoubtSubmission:
    numbers = list(range(1, segments + 1))
    open_numbers = numbers if still_open is None else still_open
    return InDoubtSubmission(
        message_id,
        attempt,
        at(seconds),
        segments,
        open_numbers,
        frozenset(open_numbers if needed is None else needed),
    )


def kept(place: int, seconds: float, reference: str | None, state: str = "DELIVRD") -> UnmatchedReceipt:
    return UnmatchedReceipt(place, 1, Receipt(reference, "263771200001", state, None, ""), at(seconds))


def found(
    submissions: Sequence[InDoubtSubmission], receipts: Sequence[UnmatchedReceipt]
) -> dict[tuple[int, int, int], int]:
    return {
        (submission.message_id.int, submission.attempt, number): sighting.receipts[0].id
        for (submission, number), sighting in assign(submissions, sight(receipts))
    }


def test_a_receipt_counts_from_the_claim_on() -> None:
    assert found([tried(seconds=10)], [kept(1, 9, "71")]) == {}
    assert found([tried(seconds=10)], [kept(1, 9, "71"), kept(2, 11, "72")]) == {(1, 0, 1): 2}


@pytest.mark.parametrize("again", ["71000", "0071000", "11558", "0x11558", "00011558"])
def test_one_id_in_any_spelling_is_one_segment(again: str) -> None:
    assert is_alike("71000", again)
    twice = [kept(1, 1, "71000"), kept(2, 2, again)]
    assert found([tried(segments=2)], twice) == {}
    assert found([tried(segments=2)], [*twice, kept(3, 3, "71001")]) == {(1, 0, 1): 1, (1, 0, 2): 3}
    assert found([tried()], twice) == {(1, 0, 1): 1}


def test_a_receipt_without_an_id_may_be_any_of_the_others() -> None:
    assert found([tried()], [kept(1, 1, None), kept(2, 2, None)]) == {(1, 0, 1): 1}
    assert found([tried(segments=2)], [kept(1, 1, None), kept(2, 2, None), kept(3, 3, "71")]) == {}


def test_what_contradicts_itself_proves_nothing() -> None:
    assert found([tried()], [kept(1, 1, "71"), kept(2, 2, "71", "UNDELIV")]) == {}
    assert found([tried()], [kept(1, 1, "71"), kept(2, 2, "82", "UNDELIV")]) == {}
    assert found([tried()], [kept(1, 1, "71", "ENROUTE"), kept(2, 2, "71", "UNDELIV")]) == {(1, 0, 1): 1}
    # One that does so spoils the others, which may be about the same segment.
    both = [kept(1, 1, "71"), kept(2, 2, "71", "UNDELIV"), kept(3, 3, "82")]
    assert found([tried(segments=2)], both) == {}


def test_of_two_messages_neither_gets_the_only_receipt() -> None:
    two = [tried(FIRST), tried(SECOND, 5)]
    assert found(two, [kept(1, 9, "71")]) == {}
    # Before the second was claimed, there was only the first.
    assert found(two, [kept(1, 4, "71")]) == {(1, 0, 1): 1}
    assert found(two, [kept(1, 4, "71"), kept(2, 6, "82", "UNDELIV")]) == {(1, 0, 1): 1, (2, 0, 1): 2}
    # At the very moment of a claim it may be about either.
    assert found(two, [kept(1, 5, "71")]) == {}
    assert found([tried(FIRST, 5)], [kept(1, 5, "71")]) == {(1, 0, 1): 1}


def test_two_messages_get_their_receipts_together_when_it_does_not_matter_which() -> None:
    two = [tried(FIRST), tried(SECOND, 5)]
    assert found(two, [kept(1, 8, "71"), kept(2, 9, "82")]) == {(1, 0, 1): 1, (2, 0, 1): 2}
    assert found(two, [kept(1, 8, "71"), kept(2, 9, "82", "UNDELIV")]) == {}
    assert found(two, [kept(1, 8, "71", "ENROUTE"), kept(2, 9, "82", "ENROUTE")]) == {}
    assert found(two, [kept(1, 8, "71"), kept(2, 9, "82"), kept(3, 10, "93")]) == {}


def test_a_long_message_does_not_take_the_receipt_of_another() -> None:
    two = [tried(FIRST, segments=2), tried(SECOND, 5)]
    assert found(two, [kept(1, 8, "71"), kept(2, 9, "82")]) == {}


def test_a_try_that_another_made_needless_still_has_its_receipt() -> None:
    needless = tried(FIRST, needed=())
    assert found([needless], [kept(1, 1, "71")]) == {(1, 0, 1): 1}
    assert found([needless, tried(SECOND, 5)], [kept(1, 9, "71")]) == {}


def test_one_receipt_proves_a_message_that_was_tried_twice() -> None:
    tries = [tried(), tried(seconds=30, attempt=1)]
    assert found(tries, [kept(1, 31, "71")]) == {(1, 0, 1): 1}
    # The try that is left over may yet cause another, which is not for the next message.
    after = [*tries, tried(SECOND, 60)]
    assert found(after, [kept(1, 31, "71"), kept(2, 61, "82")]) == {(1, 0, 1): 1}


def test_two_tries_of_one_segment_do_not_prove_the_other() -> None:
    tries = [tried(segments=2), tried(seconds=30, attempt=1, segments=2)]
    assert found(tries, [kept(1, 31, "71"), kept(2, 32, "82")]) == {}
    three = found(tries, [kept(1, 31, "71"), kept(2, 32, "82"), kept(3, 33, "93")])
    assert {number for _, _, number in three} == {1, 2}
    assert len(three) == 3


def test_a_receipt_more_than_there_are_segments_is_about_none() -> None:
    assert found([tried()], [kept(1, 1, "71"), kept(2, 2, "82")]) == {(1, 0, 1): 1}


def test_only_the_segment_in_doubt_needs_a_receipt() -> None:
    assert found([tried(segments=2, still_open=[2])], [kept(1, 1, "71", "REJECTD")]) == {(1, 0, 2): 1}


@pytest.mark.parametrize(
    "written", ["263771200001", "00263771200001", "+263771200001", "0771200001", "771200001"]
)
def test_a_number_is_the_same_in_every_form_that_carriers_write(written: str) -> None:
    assert "+263771200001" in whole_numbers(written, DESTINATIONS)


def test_a_number_of_another_country_is_another_number() -> None:
    assert "+263771200001" not in whole_numbers("27771200001", DESTINATIONS)
    assert "+263771200001" not in whole_numbers("71200001", DESTINATIONS)
    assert whole_numbers("Tumira", DESTINATIONS) == frozenset()


def test_a_missing_id_joins_what_it_may_be_and_what_comes_after_it() -> None:
    assert is_alike(None, "71")
    assert is_alike("71", None)
    assert not is_alike("71", "82")
    assert [len(one.receipts) for one in sight([kept(1, 1, "71"), kept(2, 2, None), kept(3, 3, "82")])] == [3]
    assert [len(one.receipts) for one in sight([kept(1, 1, "71"), kept(2, 2, "82"), kept(3, 3, "71")])] == [
        2,
        1,
    ]


def test_of_three_messages_a_receipt_is_about_those_that_were_claimed_before_it() -> None:
    three = [tried(FIRST), tried(SECOND, 5), tried(UUID(int=3), 10)]
    assert found(three, [kept(1, 7, "71")]) == {}
    assert found(three, [kept(1, 7, "71"), kept(2, 8, "82")]) == {(1, 0, 1): 1, (2, 0, 1): 2}
    assert found(three, [kept(1, 4, "71"), kept(2, 11, "82")]) == {(1, 0, 1): 1}


def test_segments_may_end_differently_where_there_is_a_receipt_for_each() -> None:
    ends = [kept(1, 1, "71"), kept(2, 2, "82", "UNDELIV")]
    assert found([tried(segments=2)], ends) == {(1, 0, 1): 1, (1, 0, 2): 2}
    assert found([tried(segments=2)], [*ends, kept(3, 3, "93")]) == {}


def test_segments_that_are_needed_get_their_receipts_first() -> None:
    half = tried(segments=2, needed=[2])
    assert found([half], [kept(1, 1, "71"), kept(2, 2, "82")]) == {(1, 0, 2): 1, (1, 0, 1): 2}
    assert found([half], []) == {}
    assert found([], [kept(1, 1, "71")]) == {}
