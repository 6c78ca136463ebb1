"""Candidates for a receipt that matches nothing, and the action that matches it by hand.

A partial fit is never matched automatically: an operator sees it, with what would have to be true.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.carriers import store as carriers
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import MESSAGE, MessageId, first_id, write_id
from tumira.core.translation import _, mark
from tumira.delivery import receipt_rules
from tumira.delivery.match_receipts import bounds
from tumira.delivery.outcomes import Reported
from tumira.delivery.receipt_rules import SAME_ID, id_condition, same_number, spellings
from tumira.delivery.settle import settle
from tumira.delivery.store import unmatched
from tumira.delivery.store.receipts import delete
from tumira.delivery.store.unmatched import CandidateSegment, ListedReceipt
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import DIGITS_LEFT, GAP
from tumira.pricing.store import get_tariff
from tumira.sending.lifecycle import is_final

SHOWN_MAX: Final = 3
NOTE_MAX: Final = 200
GONE: Final = mark("This receipt no longer exists. It was matched or dismissed.")

_ANY_ID: Final = mark("the ID were ignored")
_ANY_NUMBER: Final = mark("the number were ignored")
_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Candidate:
    segment: CandidateSegment
    conditions: Sequence[str]
    # Whether the id fits in some way.
    is_alike: bool

    @property
    def is_open(self) -> bool:
        segment = self.segment
        had_its_last = (
            segment.state is not None and receipt_rules.receipt_result(segment.state, None).status is not None
        )
        return not had_its_last and (segment.status == "unconfirmed" or not is_final(segment.status))


def mask(number: str) -> str:
    return GAP + number[-DIGITS_LEFT:] if len(number) > DIGITS_LEFT else GAP


async def list_candidates(
    connection: Connection, kept: Sequence[ListedReceipt]
) -> Sequence[Sequence[Candidate]]:
    """Return for each receipt the segments that it may be about, the likeliest first."""
    if not kept:
        return []
    low, high = (
        bounds(min(one.received_at for one in kept))[0],
        bounds(max(one.received_at for one in kept))[1],
    )
    keys = [
        (place, one.carrier_id, spelling)
        for place, one in enumerate(kept)
        if one.receipt.carrier_ref is not None
        for spelling in spellings(one.receipt.carrier_ref)
    ]
    destinations = (await get_tariff(connection)).destinations
    numbers = [
        (place, number, first_id(int(one.received_at.timestamp() * _MS) + 1))
        for place, one in enumerate(kept)
        for number in receipt_rules.whole_numbers(one.receipt.recipient, destinations)
    ]
    found = {
        (segment.place, *segment.key): segment
        for segment in [
            *(await unmatched.list_by_id(connection, keys, (low, high)) if keys else ()),
            *(await unmatched.list_by_number(connection, numbers, low) if numbers else ()),
        ]
    }
    return [
        _likeliest(one, [segment for segment in found.values() if segment.place == place])
        for place, one in enumerate(kept)
    ]


def _likeliest(kept: ListedReceipt, segments: Iterable[CandidateSegment]) -> Sequence[Candidate]:
    def order(one: Candidate) -> tuple[bool, bool, int, float]:
        before_s = (kept.received_at - one.segment.submitted_at).total_seconds()
        return not one.is_alike, not one.is_open, len(one.conditions), abs(before_s)

    candidates = [_candidate(kept, segment) for segment in segments]
    # Of what has ended only that is of interest whose id says that the receipt came twice.
    likely = [one for one in candidates if one.is_open or one.is_alike]
    return sorted(likely, key=order)[:SHOWN_MAX]


def _candidate(kept: ListedReceipt, segment: CandidateSegment) -> Candidate:
    reference = kept.receipt.carrier_ref
    condition = None if reference is None else id_condition(reference, segment.carrier_ref)
    conditions = [_(_ANY_ID) if condition is None else condition]
    if not same_number(segment.recipient, kept.receipt.recipient):
        conditions.append(_(_ANY_NUMBER))
    if segment.carrier_id != kept.carrier_id:
        conditions.append(_("it had come from {carrier}").format(carrier=segment.carrier))
    return Candidate(segment, [one for one in conditions if one != SAME_ID], is_alike=condition is not None)


async def match_by_hand(
    database: Database, receipt_id: int, segment: tuple[MessageId, int, int], note: str, actor: Actor
) -> None:
    """Settle a message by a receipt that an operator assigns to it: message id, segment and attempt."""
    note = _read_note(note)
    async with database.transaction() as connection:
        kept = await _lock(connection, receipt_id)
        (candidates,) = await list_candidates(connection, [kept])
        chosen = next((one for one in candidates if one.segment.key == segment), None)
        if chosen is None or not chosen.is_open:
            raise FieldError("segment", _("This message no longer waits for a receipt. Choose another one."))
        found = chosen.segment
        reported = Reported(
            found.message_id, found.number, found.attempt, found.carrier_id, kept.receipt, kept.received_at
        )
        refunded = (await carriers.list_refund_rules(connection))[found.carrier_id]
        await settle(connection, [reported], worker="", refunded=refunded)
        await delete(connection, [receipt_id])
        message = write_id(MESSAGE, found.message_id)
        detail = f"{_describe(kept)}, with {message}: {note}"
        await audit_log.record_by_operator(
            connection, actor, "receipt matched by hand", detail, found.account_id
        )
        told = f"{message}, {kept.receipt.state}"
        await audit_log.record(
            connection, found.account_id, actor, "message matched with its receipt by hand", told
        )


async def dismiss(database: Database, receipt_id: int, note: str, actor: Actor) -> None:
    note = _read_note(note)
    async with database.transaction() as connection:
        kept = await _lock(connection, receipt_id)
        await delete(connection, [receipt_id])
        await audit_log.record_by_operator(
            connection, actor, "receipt dismissed", f"{_describe(kept)}: {note}"
        )


async def _lock(connection: Connection, receipt_id: int) -> ListedReceipt:
    kept = await unmatched.find(connection, receipt_id, lock=True)
    if kept is None:
        raise OperatorError(_(GONE))
    return kept


def _read_note(note: str) -> str:
    note = " ".join(note.split())
    if not note or not note.isprintable():
        raise FieldError("note", _("Enter a reason."))
    if len(note) > NOTE_MAX:
        raise FieldError("note", _("Enter a reason of at most {most} characters.").format(most=NOTE_MAX))
    return note


def _describe(kept: ListedReceipt) -> str:
    reference = kept.receipt.carrier_ref or "no id"
    return f"{kept.receipt.state} for {mask(kept.receipt.recipient)}, {reference}, over {kept.carrier}"
