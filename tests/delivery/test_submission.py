"""Segments of one message carry one reference, and those of the next message to a number another one."""

from decimal import Decimal

import pytest
from msgspec import structs

from tests.support.delivery.settling import World
from tumira.carriers import store as carriers
from tumira.carriers.routes.rules import SegmentCost
from tumira.delivery import submission
from tumira.delivery.outcomes import WHOLE, CarrierRefused, LeftInDoubt, Outcome, Released, RetryLater
from tumira.delivery.store.queue import PastAttempts
from tumira.delivery.submission import Submission, SubmissionWriter, final_outcome, segment_taken

LONG = "Your statement is ready. " * 8


async def test_long_messages_to_one_number_have_references_of_their_own(world: World) -> None:
    long, short = await world.claim_one(LONG), await world.claim_one()
    writer = SubmissionWriter("Tumira", "gsm7")
    single = writer.prepare(short, None)
    assert (single.reference, single.count, single.todo) == (None, 1, [1])
    first, second = writer.prepare(long, None), writer.prepare(long, None)
    assert first.reference is not None
    assert second.reference == (first.reference + 1) % 256
    assert first.encoded != second.encoded
    assert (first.count, first.todo, first.taken) == (2, [1, 2], 0)
    other = writer.prepare(structs.replace(long, recipient="+263771200009"), None)
    assert writer.prepare(long, None).reference == (first.reference + 2) % 256
    assert other.reference is not None
    # What a carrier has begun is finished under the same reference.
    begun = writer.prepare(long, PastAttempts(frozenset({1}), 77, 2, 1))
    assert (begun.reference, begun.todo, begun.taken) == (77, [2], 1)
    assert (begun.retries, begun.attempt, begun.again) == (2, 1, True)
    again = writer.prepare(long, PastAttempts(frozenset(), 77, 0, 1))
    assert again.reference == (first.reference + 3) % 256


async def test_what_a_carrier_has_whole_needs_nothing_more(world: World) -> None:
    long = await world.claim_one(LONG)
    writer = SubmissionWriter("Tumira", "gsm7")
    whole = writer.prepare(long, PastAttempts(frozenset({WHOLE}), None, 0, 1))
    assert (whole.todo, whole.complete, whole.again) == ([], True, True)
    over_http = Submission(long, None, None, None)
    assert (over_http.todo, over_http.count, over_http.taken) == ([WHOLE], 1, 0)
    assert (over_http.complete, over_http.again, over_http.attempt, over_http.retries) == (False, False, 0, 0)
    assert Submission(long, None, None, PastAttempts(frozenset({WHOLE}), None, 0, 0)).todo == []
    assert Submission(structs.replace(long, again=True), None, None, None).again


async def test_references_of_few_numbers_are_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "REFERENCES_MAX", 2)
    writer = SubmissionWriter("Tumira", "gsm7")
    long = await world.claim_one(LONG)

    def reference(number: int) -> int:
        made = writer.prepare(structs.replace(long, recipient=f"+26377120000{number}"), None).reference
        assert made is not None
        return made

    first = reference(1)
    assert reference(2) is not None
    assert reference(1) == (first + 1) % 256
    # The one that was used longest ago is forgotten.
    reference(3)
    assert list(writer._references) == ["+263771200001", "+263771200003"]
    assert reference(1) == (first + 2) % 256


async def test_the_end_of_a_submission_follows_from_what_happened_to_it(world: World) -> None:
    claimed = await world.claim_one(LONG)
    async with world.engine.database.connection() as connection:
        (carrier,) = await carriers.list_active(connection)

    def end(past: PastAttempts | None = None, **fields: object) -> Outcome | None:
        one = Submission(claimed, None, None, past)
        for name, value in fields.items():
            setattr(one, name, value)
        return final_outcome(one, carrier, "no answer came")

    doubted = PastAttempts(frozenset(), None, 2, 1)
    for past, is_doubted in ((None, False), (doubted, True)):
        assert end(past, refusal="QUEUE_EXPIRED") == CarrierRefused(
            claimed.id, "QUEUE_EXPIRED", "expired", doubted=is_doubted, is_untried=True
        )
        assert end(past, refusal="UNKNOWN_SUBSCRIBER", overdue={1}) == CarrierRefused(
            claimed.id, "UNKNOWN_SUBSCRIBER", doubted=is_doubted, is_untried=False
        )
    out = structs.replace(claimed, opted_out=True)
    for taken in (0, 1):
        blocked = Submission(out, None, None, None)
        blocked.taken = taken
        refused = final_outcome(blocked, carrier, "")
        assert isinstance(refused, CarrierRefused)
        assert (refused.reason, refused.is_untried) == ("RECIPIENT_BLOCKED", taken == 0)
    # A doubt counts more than a retry.
    assert end(overdue={1}, retry=(1, "RSYSERR")) == LeftInDoubt(
        claimed.id, carrier.id, carrier.settings.doubt_wait_s, "no answer came"
    )
    retry = end(doubted, retry=(2, "RSYSERR"))
    assert isinstance(retry, RetryLater)
    assert (retry.message_id, retry.carrier_id, retry.number, retry.detail) == (
        claimed.id,
        carrier.id,
        2,
        "RSYSERR",
    )
    released = end()
    assert isinstance(released, Released)
    entry = released.entry
    assert (entry.message_id, entry.country, entry.queue, entry.lane, entry.turn, entry.again) == (
        claimed.id,
        "ZW",
        "ZW",
        claimed.lane,
        claimed.turn,
        False,
    )
    assert end(taken=1) is None


async def test_a_segment_that_was_taken_has_the_sender_and_the_cost_of_its_route(world: World) -> None:
    claimed = structs.replace(await world.claim_one(LONG), sender_name="Shop")
    async with world.engine.database.connection() as connection:
        (carrier,) = await carriers.list_active(connection)
    writer = SubmissionWriter("Tumira", "gsm7")
    one = writer.prepare(claimed, None)
    times = (claimed.claimed_at, claimed.expires_at)
    taken = segment_taken(one, 1, carrier, times, "00AB")
    assert (taken.part.carrier_ref, taken.part.carrier_key, taken.part.cost) == ("00AB", "ab", None)
    assert (taken.part.submitted_at, taken.part.answered_at) == times
    assert (taken.part.reference, taken.part.number, taken.part.attempt) == (one.reference, 1, 0)
    # Under the name only what was submitted under it.
    assert taken.part.sender == (carrier.settings.source or None)
    assert (taken.complete, taken.late, taken.claimed) == (False, False, None)
    one.named[2], one.taken, one.closed = "Shop", 2, True
    one.cost = SegmentCost(Decimal("0.01"), "USD", Decimal(1))
    taken = segment_taken(one, 2, carrier, times, "AC")
    assert (taken.part.sender, taken.complete, taken.late) == ("Shop", True, True)
    assert taken.part.cost == (Decimal("0.01"), "USD", Decimal("0.01"))
    whole = Submission(claimed, None, None, None)
    whole.cost, whole.told_cost = one.cost, (Decimal("0.03"), "USD")
    taken = segment_taken(whole, WHOLE, carrier, times, "AD")
    assert taken.part.cost == (Decimal("0.03"), "USD", Decimal("0.03"))
    assert taken.claimed is claimed
