"""Texts from the gateway itself: codes and notices."""

from decimal import Decimal

from tumira.accounts.lifetimes import Lifetimes
from tumira.accounts.store import SYSTEM
from tumira.content.passcodes import is_passcode
from tumira.core.ids import BatchId, message_ids, new_id
from tumira.postgres.connection import Connection
from tumira.pricing.destinations import sort_recipients
from tumira.pricing.legs import split_by_network
from tumira.pricing.quote import Leg, Quote, ValidRequest
from tumira.pricing.segments import measure
from tumira.pricing.store import get_tariff
from tumira.sending import fairness, lookups
from tumira.sending.insert import NewBatch, insert_batch


async def send_text(connection: Connection, phone: str, text: str) -> None:
    """Queue a text from the system account, unbilled and ahead of other messages."""
    tariff = await get_tariff(connection)
    accepted = sort_recipients(tariff, "sms", [phone]).accepted
    if not accepted:
        # The country is no longer served.
        return
    recipient = accepted[0]
    _, facts = await lookups.read(connection, [], [], [phone])
    segments = measure(text).segments
    batch_id = BatchId(new_id(facts.now_us // 1000))
    lane = fairness.lane(1)
    legs = [Leg(recipient.country, Decimal(0), 1)]
    quote = Quote([phone], [0], legs, [], segments, Decimal(0), tariff.version, tariff.routed)
    legs_by_network, leg_of = split_by_network(quote, None, facts.ported)
    await insert_batch(
        connection,
        NewBatch(
            id=batch_id,
            account_id=SYSTEM,
            created_at=facts.now,
            request=ValidRequest("sms", [phone], text, None, dry_run=False),
            quote=quote,
            lane=lane,
            message_ids=message_ids(batch_id, 1),
            turns=[facts.clocks.get((legs_by_network[0].queue, lane), 0)],
            legs=legs_by_network,
            leg_of=leg_of,
            lifetime=Lifetimes().of(is_passcode=is_passcode(text)),
        ),
    )
