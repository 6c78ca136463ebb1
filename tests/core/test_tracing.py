"""Does every process find the same trace for a message, and the same share of them, by itself?"""

from tumira.core import tracing as traces
from tumira.core.ids import BatchId, message_ids, new_id

NOW_MS = 1_794_000_000_000


def test_a_batch_and_all_its_messages_are_one_trace_and_no_other_batch_is() -> None:
    batch_id = BatchId(new_id(NOW_MS))
    other = BatchId(new_id(NOW_MS))
    found = {traces.trace_of(one) for one in (batch_id, *message_ids(batch_id, 1000))}
    assert found == {traces.trace_of(batch_id)}
    assert traces.trace_of(other) not in found


def test_spans_name_parents_that_another_process_made() -> None:
    batch_id = BatchId(new_id(NOW_MS))
    first, second = message_ids(batch_id, 2)
    accept = traces.accepted(batch_id, 1, 2, {})
    hand_over = traces.handed_over(first, 3, 4, {})
    receipt = traces.received(first, 4, 5, {})
    event_id, endpoint_id = new_id(NOW_MS), new_id(NOW_MS)

    def told(kind: str, tries: int = 1) -> traces.Span:
        return traces.told(event_id, endpoint_id, tries, kind, first, 6, 7, {}, failed=False)

    assert accept.parent_id == ""
    assert hand_over.parent_id == accept.span_id
    assert receipt.parent_id == hand_over.span_id
    assert told("message.sent").parent_id == hand_over.span_id
    assert told("message.delivered").parent_id == receipt.span_id
    assert told("message.failed").parent_id == told("batch.completed").parent_id == accept.span_id
    assert told("message.delivered").span_id != told("message.delivered", tries=2).span_id
    assert traces.handed_over(second, 3, 4, {}).span_id != hand_over.span_id
    assert {accept.trace_id} == {one.trace_id for one in (hand_over, receipt, told("message.sent"))}
    assert (len(accept.trace_id), len(accept.span_id)) == (32, 16)


def test_about_the_share_that_was_asked_for_is_kept_by_whole_traces() -> None:
    batches = [BatchId(new_id(NOW_MS + place)) for place in range(4000)]
    kept = [one for one in batches if traces.is_sampled(one, 0.1)]
    assert 300 < len(kept) < 500
    assert all(traces.is_sampled(message_ids(one, 1)[0], 0.1) for one in kept)
    assert all(traces.is_sampled(one, 1.0) for one in batches)
    assert not any(traces.is_sampled(one, 0.0) for one in batches)
    # Whoever keeps more keeps those that others keep, too.
    assert all(traces.is_sampled(one, 0.2) for one in kept)
