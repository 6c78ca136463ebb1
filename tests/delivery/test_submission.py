"""Segments of one message carry one reference, and those of the next message to a number another one."""

from msgspec import structs

from tests.support.delivery.settling import World
from tumira.delivery.store.queue import PastAttempts
from tumira.delivery.submission import SubmissionWriter

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
