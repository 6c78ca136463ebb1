"""Statuses of messages and their legal moves."""

from itertools import pairwise, product

import pytest

from tumira.sending.lifecycle import MESSAGE_STATUSES, MOVES, is_final, may_move, steps

PAIRS = list(product(MESSAGE_STATUSES, MESSAGE_STATUSES))

# How far a message has come; among the final ones, `unconfirmed` is the one that knows least.
PROGRESS = {
    "queued": 0,
    "sending": 1,
    "sent": 2,
    "unconfirmed": 3,
    "delivered": 4,
    "undelivered": 4,
    "expired": 4,
    "failed": 4,
}

# Written out once more, in full: all that is not here is illegal.
LEGAL = {
    ("queued", "sending"): ["sending"],
    ("queued", "failed"): ["failed"],
    ("queued", "expired"): ["expired"],
    ("sending", "queued"): ["queued"],
    ("sending", "sent"): ["sent"],
    ("sending", "failed"): ["failed"],
    ("sending", "unconfirmed"): ["unconfirmed"],
    ("sent", "delivered"): ["delivered"],
    ("sent", "undelivered"): ["undelivered"],
    ("sent", "expired"): ["expired"],
    ("sent", "unconfirmed"): ["unconfirmed"],
    ("unconfirmed", "delivered"): ["delivered"],
    ("unconfirmed", "undelivered"): ["undelivered"],
    ("unconfirmed", "expired"): ["expired"],
    # A receipt met while the message is being handed over.
    ("sending", "delivered"): ["sent", "delivered"],
    ("sending", "undelivered"): ["sent", "undelivered"],
    ("sending", "expired"): ["sent", "expired"],
    # A receipt, an answer or the end of the validity, met in the queue after a doubt.
    ("queued", "sent"): ["sending", "sent"],
    ("queued", "delivered"): ["sending", "sent", "delivered"],
    ("queued", "undelivered"): ["sending", "sent", "undelivered"],
    ("queued", "unconfirmed"): ["sending", "unconfirmed"],
}


def test_every_status_has_its_moves_and_every_move_leads_to_a_status() -> None:
    assert set(MOVES) == set(MESSAGE_STATUSES) == set(PROGRESS)
    assert set().union(*MOVES.values()) <= set(MESSAGE_STATUSES)


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_the_way_from_one_status_to_another_is_the_one_written_here(old: str, new: str) -> None:
    expected = LEGAL.get((old, new))
    found = steps(old, new)
    assert (None if found is None else list(found)) == expected
    assert may_move(old, new) == (expected == [new])


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_every_step_of_a_way_is_a_legal_move(old: str, new: str) -> None:
    way = steps(old, new)
    if way is not None:
        assert way[-1] == new
        assert all(may_move(one, other) for one, other in pairwise([old, *way]))


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_no_final_status_but_unconfirmed_ever_moves(old: str, new: str) -> None:
    if is_final(old) and old != "unconfirmed":
        assert steps(old, new) is None


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_nothing_moves_backwards_but_from_sending_to_the_queue(old: str, new: str) -> None:
    if may_move(old, new):
        assert PROGRESS[old] < PROGRESS[new] or (old, new) == ("sending", "queued")


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_a_way_passes_through_nothing_final_and_never_turns_back(old: str, new: str) -> None:
    passed = (steps(old, new) or [])[:-1]
    assert not any(is_final(status) for status in passed)
    assert all(PROGRESS[one] < PROGRESS[other] for one, other in pairwise([old, *passed]))


@pytest.mark.parametrize("status", MESSAGE_STATUSES)
def test_nothing_moves_to_where_it_stands(status: str) -> None:
    assert not may_move(status, status)
    assert steps(status, status) is None


@pytest.mark.parametrize("status", MESSAGE_STATUSES)
def test_a_status_is_final_exactly_when_it_says_whether_money_comes_back(status: str) -> None:
    assert is_final(status) == (MESSAGE_STATUSES[status].refund is not None)


@pytest.mark.parametrize("status", MESSAGE_STATUSES)
def test_every_message_can_still_come_to_an_end(status: str) -> None:
    reached = {status}
    for _ in MESSAGE_STATUSES:
        reached |= {new for old in reached for new in MOVES[old]}
    assert any(is_final(one) for one in reached)


def test_a_refund_is_never_followed_by_another_status() -> None:
    assert all(MOVES[name] == frozenset() for name, status in MESSAGE_STATUSES.items() if status.refund)
