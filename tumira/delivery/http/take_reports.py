"""Settles messages by what carriers over HTTP report, from callbacks and look-ups alike.

A report finds its message by the carrier's id, else by our reference, which also proves that the carrier has
a message in doubt. What finds nothing is kept and tried again, as receipts over SMPP are.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from tumira.carriers.http.values import CarrierReport
from tumira.carriers.store import Carrier
from tumira.delivery.match_receipts import find_by_id
from tumira.delivery.outcomes import WHOLE, Outcome, Reported, Taken
from tumira.delivery.receipt_rules import TEXT_MAX, Receipt, key, receipt_result, same_number
from tumira.delivery.settle import settle
from tumira.delivery.settle_rules import Ending
from tumira.delivery.store import receipts, references
from tumira.delivery.store.receipts import Match
from tumira.delivery.store.references import ReferencedMessage
from tumira.delivery.store.settlement import NewPart
from tumira.postgres.connection import Connection


class TakenReports(Struct, frozen=True):
    """How many reports found their message and did not, how many are confirmed first, and what ended."""

    matched: int
    unmatched: int
    to_confirm: int
    endings: Sequence[Ending]


async def take_reports(
    connection: Connection,
    carrier: Carrier,
    reports: Sequence[CarrierReport],
    received_at: datetime,
    *,
    confirm_failures: bool = False,
) -> TakenReports:
    """Settle messages by reports; the caller commits, and answers the carrier after that.

    With `confirm_failures` a report of a failure, which moves money, only makes the carrier be asked.
    """
    found = [_receipt(report) for report in reports]
    matches = await find_by_id(connection, carrier.id, [(receipt, received_at) for receipt in found])
    named = {
        report.reference
        for report, own in zip(reports, matches, strict=True)
        if not own and report.reference is not None
    }
    by_reference = await references.find(connection, carrier.id, named) if named else {}
    outcomes: list[Outcome] = []
    unmatched: list[Receipt] = []
    to_confirm: set[UUID] = set()
    strangers = 0
    for report, receipt, own in zip(reports, found, matches, strict=True):
        place = own[0] if own else _by_reference(report, receipt, by_reference)
        is_failure = receipt_result(receipt.state, receipt.error).status in {"undelivered", "expired"}
        if confirm_failures and is_failure:
            # What is not found yet is asked about at its next age.
            if place is not None:
                to_confirm.add(place.message_id)
        elif place is not None:
            outcomes.extend(_outcomes(carrier.id, place, receipt, received_at))
        elif receipt.carrier_ref is not None:
            unmatched.append(receipt)
        else:
            strangers += 1
    endings: list[Ending] = []
    if outcomes:
        refunded = frozenset(carrier.settings.refund)
        await settle(connection, outcomes, worker="", refunded=refunded, endings=endings)
    if to_confirm:
        await references.ask_now(connection, carrier.id, to_confirm)
    if unmatched:
        await receipts.insert_unmatched(connection, carrier.id, [(one, received_at) for one in unmatched])
    lost = len(unmatched) + strangers
    return TakenReports(len(reports) - lost - len(to_confirm), lost, len(to_confirm), endings)


def _receipt(report: CarrierReport) -> Receipt:
    return Receipt(
        report.carrier_ref,
        report.recipient or "",
        report.state,
        report.error,
        report.word[:TEXT_MAX],
        report.network,
    )


def _by_reference(
    report: CarrierReport, receipt: Receipt, known: Mapping[str, ReferencedMessage]
) -> ReferencedMessage | None:
    place = None if report.reference is None else known.get(report.reference)
    return place if place is not None and same_number(place.recipient, receipt.recipient) else None


def _outcomes(
    carrier_id: int, place: Match | ReferencedMessage, receipt: Receipt, received_at: datetime
) -> Sequence[Outcome]:
    if isinstance(place, Match):
        number, attempt = place.number, place.attempt
        return [Reported(place.message_id, number, attempt, carrier_id, receipt, received_at)]
    # Our reference is the answer that was lost, or that is still to come.
    carrier_ref = receipt.carrier_ref or place.reference
    part = NewPart(
        message_id=place.message_id,
        number=WHOLE,
        attempt=place.attempt,
        carrier_id=carrier_id,
        reference=None,
        carrier_ref=carrier_ref,
        carrier_key=key(carrier_ref),
        claimed_at=place.claimed_at,
        submitted_at=place.claimed_at,
        answered_at=received_at,
    )
    reported = Reported(place.message_id, WHOLE, place.attempt, carrier_id, receipt, received_at)
    return [Taken(place.message_id, part, complete=True, late=True), reported]
