"""What the service answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Rejected:
    """A recipient who was not sent to and not billed, and why."""

    to: str
    code: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch that was accepted: it is stored and paid."""

    batch_id: str
    accepted: int
    rejected: Sequence[Rejected]
    segments: int
    total_cost: Decimal
    currency: str
    balance_after: Decimal
    idempotency_key: str
    # True if the service had accepted this call before.
    replayed: bool

    @classmethod
    def read(cls, json: Mapping[str, Any], idempotency_key: str, *, replayed: bool) -> Self:
        return cls(
            batch_id=json["batch_id"],
            accepted=json["accepted"],
            rejected=_rejected(json),
            segments=json["segments"],
            total_cost=Decimal(json["total_cost"]),
            currency=json["currency"],
            balance_after=Decimal(json["balance_after"]),
            idempotency_key=idempotency_key,
            replayed=replayed,
        )


@dataclass(frozen=True, slots=True)
class SentMany:
    """The batches of one text to any number of recipients."""

    idempotency_key: str
    batches: Sequence[Sent]

    @property
    def accepted(self) -> int:
        return sum(batch.accepted for batch in self.batches)

    @property
    def rejected(self) -> Sequence[Rejected]:
        return [one for batch in self.batches for one in batch.rejected]

    @property
    def total_cost(self) -> Decimal:
        return sum((batch.total_cost for batch in self.batches), Decimal("0.0000"))


@dataclass(frozen=True, slots=True)
class Price:
    """What a send would cost; nothing was sent."""

    accepted: int
    rejected: Sequence[Rejected]
    segments: int
    total_cost: Decimal
    currency: str

    @classmethod
    def read(cls, json: Mapping[str, Any]) -> Self:
        return cls(
            accepted=json["accepted"],
            rejected=_rejected(json),
            segments=json["segments"],
            total_cost=Decimal(json["total_cost"]),
            currency=json["currency"],
        )

    def plus(self, other: "Price") -> "Price":
        return Price(
            accepted=self.accepted + other.accepted,
            rejected=[*self.rejected, *other.rejected],
            segments=self.segments,
            total_cost=self.total_cost + other.total_cost,
            currency=self.currency,
        )


@dataclass(frozen=True, slots=True)
class Message:
    """The message to one recipient."""

    message_id: str
    to: str
    country: str
    status: str
    segments: int
    cost: Decimal
    sent_at: datetime | None
    delivered_at: datetime | None
    failure_reason: str | None
    refunded_at: datetime | None

    @classmethod
    def read(cls, json: Mapping[str, Any]) -> Self:
        return cls(
            message_id=json["message_id"],
            to=json["to"],
            country=json["country"],
            status=json["status"],
            segments=json["segments"],
            cost=Decimal(json["cost"]),
            sent_at=_time(json["sent_at"]),
            delivered_at=_time(json["delivered_at"]),
            failure_reason=json.get("failure_reason"),
            refunded_at=_time(json.get("refunded_at")),
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """One send and its messages."""

    batch_id: str
    status: str
    channel: str
    reference: str | None
    recipients: int
    segments: int
    total_cost: Decimal
    refunded: Decimal
    currency: str
    created_at: datetime
    messages: Sequence[Message]

    @classmethod
    def read(cls, json: Mapping[str, Any]) -> Self:
        return cls(
            batch_id=json["batch_id"],
            status=json["status"],
            channel=json["channel"],
            reference=json["reference"],
            recipients=json["recipients"],
            segments=json["segments"],
            total_cost=Decimal(json["total_cost"]),
            refunded=Decimal(json["refunded"]),
            currency=json["currency"],
            created_at=datetime.fromisoformat(json["created_at"]),
            messages=[Message.read(one) for one in json["messages"]],
        )


@dataclass(frozen=True, slots=True)
class Balance:
    balance: Decimal
    currency: str

    @classmethod
    def read(cls, json: Mapping[str, Any]) -> Self:
        return cls(balance=Decimal(json["balance"]), currency=json["currency"])


@dataclass(frozen=True, slots=True)
class SegmentPrice:
    """The price of a segment to one country; `coming_soon` is announced and not yet charged."""

    channel: str
    country: str
    price_usd: Decimal
    status: str

    @classmethod
    def read(cls, json: Mapping[str, Any]) -> Self:
        return cls(
            channel=json["channel"],
            country=json["country"],
            price_usd=Decimal(json["price_usd"]),
            status=json["status"],
        )


def _rejected(json: Mapping[str, Any]) -> Sequence[Rejected]:
    return [Rejected(to=one["to"], code=one["code"]) for one in json["rejected"]]


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
