"""Statistics of one worker: how long submissions and receipts take, and how messages end.

Counting in memory costs microseconds per message; every few seconds the counts are added to the tables in
their own transaction. Counts that cannot be added are lost, and nothing else with them.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, TypeVar
from uuid import UUID

import structlog
from msgspec import Struct

from tumira.core import metrics
from tumira.core import tracing as traces
from tumira.core.histogram import bucket_of
from tumira.core.ids import MESSAGE, MessageId, made_at_ms, write_id
from tumira.core.loops import log_failure
from tumira.core.tracing import Tracer
from tumira.delivery.lanes import SMALL
from tumira.delivery.settle_rules import Ending
from tumira.delivery.store import latency as latencies
from tumira.delivery.store import sender_refusals
from tumira.delivery.store.latency import LatencyStep, OutcomeKey, TimingKey
from tumira.delivery.store.queue import ClaimedMessage
from tumira.delivery.store.sender_refusals import SenderRefusalKey
from tumira.postgres.pool import Database
from tumira.pricing.networks import network_of

FLUSH_S: Final = 5.0
# Far more than there are networks, lanes, buckets and words; what would be one more is not counted.
KEYS_MAX: Final = 5_000
# Each timed receipt costs a lookup of its submission; a sample of this size is enough.
RECEIPTS_MAX: Final = 500
NO_ANSWER: Final = "no answer"
SENT: Final = "sent"

_HANDOVER: Final = LatencyStep.SUBMISSION.value
_RECEIPT: Final = LatencyStep.RECEIPT.value
_MILLISECOND: Final = timedelta(milliseconds=1)
_CORRECTION_MAX: Final = timedelta(seconds=1)

Key = TypeVar("Key")

_log: Final = structlog.get_logger()
# Looking a labelled metric up costs more than counting.
_handover_seconds: Final = lru_cache(256)(metrics.SUBMISSION_SECONDS.labels)
_ended: Final = lru_cache(256)(metrics.ENDED.labels)
_receipt_seconds: Final = lru_cache(256)(metrics.RECEIPT_SECONDS.labels)


class _Receipt(Struct, frozen=True, gc=False):
    message_id: MessageId
    network: str
    country: str
    received_at: datetime


class Observer:
    def __init__(self, database: Database, tracer: Tracer | None = None) -> None:
        self._database = database
        self._tracer = tracer
        # The names under which carriers are shown.
        self.carriers: dict[int, str] = {}
        self._submitted: dict[tuple[int, str, str, int, int], int] = {}
        self._outcomes: dict[OutcomeKey, int] = {}
        self._receipts: list[_Receipt] = []
        self._sender_refusals: dict[SenderRefusalKey, int] = {}
        self._flushing: asyncio.Task[None] | None = None

    def submitted(self, carrier_id: int, claimed: ClaimedMessage) -> None:
        now_ms = self._database.clock.now_ms()
        took_ms = now_ms - made_at_ms(claimed.id)
        _handover_seconds(claimed.country, claimed.lane).observe(max(0, took_ms) / 1000)
        network = network_of(claimed.recipient, claimed.country)
        _add(self._submitted, (carrier_id, network, claimed.country, claimed.lane, bucket_of(took_ms)))
        if self._tracer is not None and self._tracer.wants(claimed.id):
            start_ms = int(claimed.claimed_at.timestamp() * 1000)
            about: dict[str, traces.Value] = {
                "tumira.message": write_id(MESSAGE, claimed.id),
                "tumira.country": claimed.country,
                "tumira.network": network,
                "tumira.lane": claimed.lane,
                "tumira.segments": claimed.segments,
            }
            start_ns, end_ns = traces.nanoseconds(start_ms), traces.nanoseconds(now_ms)
            self._tracer.add(traces.submitted(claimed.id, start_ns, end_ns, about))

    def not_taken(self, carrier_id: int, claimed: ClaimedMessage, answer: str = NO_ANSWER) -> None:
        network = network_of(claimed.recipient, claimed.country)
        _add(self._outcomes, (carrier_id, network, claimed.country, answer))

    def sender_refused(self, carrier_id: int, sender: str, country: str) -> None:
        metrics.SENDERS_REFUSED.labels(self.carriers.get(carrier_id, str(carrier_id))).inc()
        _add(self._sender_refusals, (carrier_id, sender, country))

    def ended(self, carrier_id: int, endings: Iterable[Ending]) -> None:
        counts: dict[tuple[str, str, str, str | None], int] = {}
        for ending in endings:
            network = network_of(ending.recipient, ending.country)
            end = (network, ending.country, ending.status, ending.reason)
            counts[end] = counts.get(end, 0) + 1
            if ending.received_at is not None and len(self._receipts) < RECEIPTS_MAX:
                self._receipts.append(
                    _Receipt(MessageId(ending.message_id), network, ending.country, ending.received_at)
                )
        carrier = self.carriers.get(carrier_id, str(carrier_id))
        for (network, country, status, reason), count in counts.items():
            _ended(carrier, status).inc(count)
            _add(self._outcomes, (carrier_id, network, country, status), count)
            if reason is not None:
                _add(self._outcomes, (carrier_id, network, country, reason), count)

    async def flush(self) -> None:
        """Add the counts since the last flush to the tables.

        A flush that has begun is finished also when its caller is cancelled, as when the worker ends: the
        counts are no longer in memory. The next one waits for it.
        """
        if self._flushing is not None:
            await self._flushing
        self._flushing = asyncio.create_task(self._flush())
        await asyncio.shield(self._flushing)

    async def _flush(self) -> None:
        outcomes, self._outcomes = self._outcomes, {}
        receipts, self._receipts = self._receipts, []
        submitted, self._submitted = self._submitted, {}
        refused, self._sender_refusals = self._sender_refusals, {}
        if not outcomes and not submitted and not receipts and not refused:
            return
        timings: dict[TimingKey, int] = {}
        for (carrier_id, network, country, lane, bucket), count in submitted.items():
            _add(timings, (_HANDOVER, network, country, lane, bucket), count)
            _add(outcomes, (carrier_id, network, country, SENT), count)
        slot = latencies.slot_of(self._database.clock.now())
        try:
            async with self._database.transaction() as connection:
                if receipts:
                    ids = sorted({one.message_id for one in receipts})
                    sent = await latencies.list_sent_at(connection, ids)
                    self._time_receipts(timings, receipts, sent)
                if timings:
                    await latencies.add_timings(connection, slot, timings)
                if outcomes:
                    await latencies.add_outcomes(connection, slot, outcomes)
                if refused:
                    await sender_refusals.add_refusals(connection, refused)
        except Exception as error:  # noqa: BLE001 - what was counted is lost, and the next time is another one
            log_failure("could not write statistics", error)

    def _time_receipts(
        self, timings: dict[TimingKey, int], receipts: Iterable[_Receipt], sent: Mapping[UUID, datetime]
    ) -> None:
        for one in receipts:
            sent_at = sent.get(one.message_id)
            if sent_at is None:
                continue
            # A receipt that itself proved the submission says nothing of how long it took. One that comes at
            # once may seem to be older: our reading of the database's clock is corrected now and then.
            if one.received_at > sent_at - _CORRECTION_MAX:
                took_ms = max(0, (one.received_at - sent_at) // _MILLISECOND)
                timing = (_RECEIPT, one.network, one.country, SMALL, bucket_of(took_ms))
                timings[timing] = timings.get(timing, 0) + 1
                _receipt_seconds(one.country).observe(took_ms / 1000)
            if self._tracer is not None and self._tracer.wants(one.message_id):
                start_ns, end_ns = (
                    traces.nanoseconds(int(at.timestamp() * 1000)) for at in (sent_at, one.received_at)
                )
                about = {"tumira.message": write_id(MESSAGE, one.message_id), "tumira.network": one.network}
                self._tracer.add(traces.received(one.message_id, start_ns, end_ns, about))


def _add(counts: dict[Key, int], key: Key, count: int = 1) -> None:
    if key in counts:
        counts[key] += count
    elif len(counts) < KEYS_MAX:
        counts[key] = count
