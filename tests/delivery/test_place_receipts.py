"""An operator sees what an unmatched receipt may be about, and settles a message that still waits for it."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import pytest

from tests.support.delivery.settling import World
from tumira.audit_log import Actor
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import MESSAGE, write_id
from tumira.delivery.place_receipts import NOTE_MAX, Candidate, dismiss, list_candidates, mask, match_by_hand
from tumira.delivery.receipt_rules import Receipt, key
from tumira.delivery.store import unmatched
from tumira.delivery.store.queue import ClaimedMessage

ACTOR: Final = Actor("operator", "127.0.0.1")
LONG: Final = "Your statement is ready. " * 8


async def sent(
    world: World, reference: str, to: str = "+263771200001", body: str = "Your code is 493817."
) -> ClaimedMessage:
    await world.send(to=[to], body=body)
    (claimed,) = await world.claim()
    for number in range(1, claimed.segments + 1):
        taken = world.taken(claimed, number, complete=number == claimed.segments)
        taken.part.carrier_ref, taken.part.carrier_key = f"{reference}{number}", key(f"{reference}{number}")
        await world.settle(taken)
    return claimed


async def keep(world: World, reference: str | None, to: str, state: str = "DELIVRD") -> int:
    await world.keep(Receipt(reference, to.removeprefix("+"), state, None, f"stat:{state}"))
    rows = await world.rows("SELECT max(id) AS id FROM unmatched_receipts")
    return int(rows[0]["id"])


async def candidates(world: World, *ids: int) -> Sequence[Sequence[Candidate]]:
    async with world.engine.database.connection() as connection:
        kept = [await unmatched.find(connection, one) for one in ids]
        return await list_candidates(connection, [one for one in kept if one is not None])


def shown(found: Sequence[Candidate]) -> list[tuple[str, list[str]]]:
    return [(one.segment.carrier_ref, list(one.conditions)) for one in found]


async def test_the_likeliest_come_first_each_with_what_would_have_to_be_true(world: World) -> None:
    await sent(world, "ab12-")
    await sent(world, "9400")
    await sent(world, "4660", to="+263771200002")
    by_id, by_number, by_none, foreign = [
        await keep(world, "AB12-1", "263771200001"),
        await keep(world, None, "0771200001"),
        await keep(world, "x1", "263771200003"),
        await keep(world, "46601", "263771200003"),
    ]
    found = await candidates(world, by_id, by_number, by_none, foreign)
    assert shown(found[0]) == [("ab12-1", []), ("94001", ["the ID were ignored"])]
    # The one that was submitted last is nearest to the receipt.
    ignored = ["the ID were ignored"]
    assert shown(found[1]) == [("94001", ignored), ("ab12-1", ignored)]
    assert shown(found[2]) == []
    assert shown(found[3]) == [("46601", ["the number were ignored"])]
    assert [one.is_alike for one in found[0]] == [True, False]
    assert await candidates(world) == []


async def test_the_id_of_a_receipt_is_read_in_the_base_that_it_may_be_in(world: World) -> None:
    await sent(world, "4660")
    await sent(world, "b60", to="+263771200002")
    read, converted = [
        await keep(world, f"{46601:x}", "263771200001"),
        await keep(world, str(0xB601), "263771200002"),
    ]
    found = await candidates(world, read, converted)
    assert [shown(one) for one in found] == [
        [("46601", ["the ID were read as hexadecimal"])],
        [("b601", ["the ID were converted to hexadecimal"])],
    ]


async def test_of_what_has_ended_only_that_is_shown_which_the_receipt_names(world: World) -> None:
    named, other = await sent(world, "named"), await sent(world, "other")
    waits = await sent(world, "waits")
    await world.settle(world.reported(named), world.reported(other, "UNDELIV"))
    (found,) = await candidates(world, await keep(world, "named1", "263771200001"))
    assert [(one.segment.message_id, one.is_open) for one in found] == [(named.id, False), (waits.id, True)]
    # An unconfirmed message still waits.
    await world.rows("UPDATE messages SET status = 'unconfirmed' WHERE id = $1", waits.id)
    (found,) = await candidates(world, await keep(world, None, "263771200001"))
    assert [(one.segment.message_id, one.is_open) for one in found] == [(waits.id, True)]
    await world.rows("UPDATE messages SET status = 'sent' WHERE id = $1", waits.id)


async def test_what_has_ended_is_shown_and_not_settled_again(world: World) -> None:
    named = await sent(world, "named")
    await world.settle(world.reported(named))
    receipt_id = await keep(world, "named1", "263771200001", "UNDELIV")
    ((found,),) = await candidates(world, receipt_id)
    assert not found.is_open
    with pytest.raises(FieldError, match="no longer waits"):
        await match_by_hand(world.engine.database, receipt_id, found.segment.key, "seen", ACTOR)
    assert await world.ending(named.id) == ("delivered", None, Decimal(0))
    assert len(await world.rows("SELECT FROM unmatched_receipts")) == 1


async def test_a_segment_that_had_its_last_receipt_waits_for_none(world: World) -> None:
    claimed = await sent(world, "long", body=LONG)
    await world.settle(world.reported(claimed, "DELIVRD", 1), world.reported(claimed, "ENROUTE", 2))
    receipt_id = await keep(world, None, "263771200001")
    (found,) = await candidates(world, receipt_id)
    assert [(one.segment.number, one.is_open) for one in found] == [(2, True)]
    for segment in ((claimed.id, 1, 0), (claimed.id, 2, 1)):
        with pytest.raises(FieldError, match="no longer waits"):
            await match_by_hand(world.engine.database, receipt_id, segment, "seen", ACTOR)
    await match_by_hand(world.engine.database, receipt_id, (claimed.id, 2, 0), "seen", ACTOR)
    assert await world.status(claimed.id) == "delivered"


@pytest.mark.parametrize(("refund", "paid_back"), [("undelivered", "0.04"), ("failed", "0")])
async def test_a_match_by_hand_settles_once_by_the_carriers_rule_and_is_recorded(
    world: World, refund: str, paid_back: str
) -> None:
    await world.rows("UPDATE carriers SET refund = ARRAY[$1]", refund)
    claimed = await sent(world, "one")
    receipt_id = await keep(world, "two", "263771200001", "UNDELIV")
    segment = (claimed.id, 1, 0)
    await match_by_hand(world.engine.database, receipt_id, segment, " the  carrier said so ", ACTOR)
    status, _, refunded = await world.ending(claimed.id)
    assert (status, refunded) == ("undelivered", Decimal(paid_back))
    assert await world.rows("SELECT FROM unmatched_receipts") == []
    (told,) = await world.rows("SELECT what, detail FROM changes WHERE what LIKE 'message%'")
    message = write_id(MESSAGE, claimed.id)
    assert tuple(told) == ("message matched with its receipt by hand", f"{message}, UNDELIV")
    (noted,) = await world.rows("SELECT what, detail FROM operator_changes WHERE what LIKE 'receipt%'")
    assert noted["what"] == "receipt matched by hand"
    assert noted["detail"].endswith(f", two, over one, with {message}: the carrier said so")
    assert "263771200001" not in noted["detail"]
    with pytest.raises(OperatorError, match="no longer exists"):
        await match_by_hand(world.engine.database, receipt_id, segment, "again", ACTOR)


async def test_a_receipt_that_is_dismissed_settles_nothing(world: World) -> None:
    claimed = await sent(world, "one")
    receipt_id = await keep(world, None, "263771200001")
    for note in ("", "  ", "a\x00b", "x" * (NOTE_MAX + 1)):
        with pytest.raises(FieldError, match="reason"):
            await dismiss(world.engine.database, receipt_id, note, ACTOR)
    await dismiss(world.engine.database, receipt_id, "x" * NOTE_MAX, ACTOR)
    assert await world.status(claimed.id) == "sent"
    assert await world.rows("SELECT FROM unmatched_receipts") == []
    (row,) = await world.rows("SELECT detail FROM operator_changes WHERE what = 'receipt dismissed'")
    assert "no id" in row["detail"]
    with pytest.raises(OperatorError, match="no longer exists"):
        await dismiss(world.engine.database, receipt_id, "again", ACTOR)


async def test_a_receipt_of_the_moment_of_acceptance_finds_its_message(world: World) -> None:
    claimed = await sent(world, "one")
    receipt_id = await keep(world, None, "263771200001")
    await world.rows(
        "UPDATE unmatched_receipts SET received_at = (SELECT created_at FROM batches WHERE id = $1)",
        claimed.batch_id,
    )
    (found,) = await candidates(world, receipt_id)
    assert [one.segment.message_id for one in found] == [claimed.id]
    # A message that was accepted later is not what it is about.
    await world.rows("UPDATE unmatched_receipts SET received_at = received_at - interval '1 second'")
    assert await candidates(world, receipt_id) == [[]]


async def test_few_candidates_are_shown_those_that_wait_and_fit_best_first(world: World) -> None:
    to = "263771200001"
    made = [await sent(world, f"{letter}-long-id-") for letter in "abcd"]
    receipt_id = await keep(world, "c-long-id-1", to)
    (found,) = await candidates(world, receipt_id)
    # The id decides, then how near in time they were submitted.
    assert [one.segment.message_id for one in found] == [made[2].id, made[3].id, made[1].id]
    assert [one.is_alike for one in found] == [True, False, False]
    # One of another carrier would have had to come from there.
    await world.engine.add_carrier("two", 2776)
    ((two,),) = await world.rows("SELECT id FROM carriers WHERE name = 'two'")
    await world.rows("UPDATE parts SET carrier_id = $1 WHERE message_id = $2", two, made[3].id)
    (found,) = await candidates(world, await keep(world, None, to))
    conditions = {one.segment.message_id: list(one.conditions) for one in found}
    assert conditions.keys() == {one.id for one in made[:3]}
    assert set(map(tuple, conditions.values())) == {("the ID were ignored",)}
    await world.settle(*(world.reported(one) for one in made[:3]))
    (found,) = await candidates(world, await keep(world, None, to))
    assert [(one.segment.message_id, list(one.conditions)) for one in found] == [
        (made[3].id, ["the ID were ignored", "it had come from two"])
    ]
    await world.rows("UPDATE parts SET carrier_id = $1", world.carrier_id)
    await world.rows("UPDATE margin_days SET carrier_id = $1", world.carrier_id)


def test_a_number_is_masked_but_for_its_end() -> None:
    assert mask("263771200001").endswith("001")
    assert "2637712" not in mask("263771200001")
    assert "12" not in mask("12")
