"""Statuses of messages and their legal moves."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise, product

from tumira.carriers.url import REFUNDS
from tumira.sending.lifecycle import FAILED, MESSAGE_STATUSES, MOVES, is_final, may_move, remaining_s, steps

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


def test_the_way_from_one_status_to_another_is_the_one_written_here() -> None:
    for old, new in product(MESSAGE_STATUSES, MESSAGE_STATUSES):
        expected = LEGAL.get((old, new))
        found = steps(old, new)
        assert (None if found is None else list(found)) == expected, (old, new)
        assert may_move(old, new) == (expected == [new])


def test_every_step_of_a_way_is_a_legal_move_and_passes_through_nothing_final() -> None:
    for (old, _), way in LEGAL.items():
        assert all(may_move(one, other) for one, other in pairwise([old, *way]))
        assert not any(is_final(status) for status in way[:-1])


def test_nothing_moves_backwards_but_from_sending_to_the_queue() -> None:
    for old, new in LEGAL:
        assert not is_final(old) or old == "unconfirmed"
        assert PROGRESS[old] < PROGRESS[new] or (old, new) == ("sending", "queued")


def test_a_status_is_final_exactly_when_it_says_whether_money_comes_back() -> None:
    for name, status in MESSAGE_STATUSES.items():
        assert is_final(name) == (status.refund is not None)
        # A refund is never followed by another status.
        assert not status.refund or MOVES[name] == frozenset()


def test_no_status_that_is_refunded_can_be_left() -> None:
    """So no message is refunded twice; the ledger's unique index is the second line of defence."""
    assert {status for status, about in MESSAGE_STATUSES.items() if about.refund} == set(REFUNDS)
    assert not any(MOVES[status] for status in REFUNDS)


def test_what_certainly_did_not_arrive_is_refunded_and_nothing_else() -> None:
    assert {name for name, status in MESSAGE_STATUSES.items() if status.refund} == set(FAILED)
    assert {name for name, status in MESSAGE_STATUSES.items() if status.refund is None} == {
        "queued",
        "sending",
        "sent",
    }


def test_a_message_is_submitted_while_a_minute_is_left() -> None:
    now = datetime(2026, 11, 17, 12, tzinfo=UTC)
    left = [remaining_s(now + timedelta(seconds=seconds), now) for seconds in (59.9, 60, 61.9)]
    assert left == [None, 60, 61]
