"""What does a caller ask for, and what is decided about it?"""

from collections.abc import Callable
from decimal import Decimal

from msgspec import Struct

from tumira.accounts.api_keys import Scope
from tumira.accounts.rate_limit import RateDecision
from tumira.content.verdict import Verdict
from tumira.core.errors import Refusal
from tumira.core.ids import AccountId, BatchId, KeyId
from tumira.pricing.destinations import Tariff
from tumira.pricing.quote import Quote, SendRequest
from tumira.sending.insert import NewBatch


class Send(Struct, frozen=True):
    """What a caller posted, read as far as it could be without the database.

    Each stage that failed holds its refusal instead of its result; the refusal is given when the stages
    before it have passed, so that the same fault always gets the same code.
    """

    body: Refusal | None
    idempotency_key: str | Refusal | None
    fingerprint: bytes | None
    request: SendRequest | Refusal | None
    # Judged ahead, so that no transaction waits for it; without one the text is judged when it is decided.
    verdict: Verdict | None = None
    # What somebody was shown and agreed to; a send that would cost anything else is only priced.
    agreed_cost: Decimal | None = None


class Call(Struct, frozen=True):
    """One call: whose it is, by which key, what that key must allow, and what it wants sent, if anything.

    Somebody who is signed in to the dashboard has no key: nothing is asked of it, and the call does not count
    against the limit of the API.
    """

    account_id: AccountId
    key_id: KeyId | None
    scope: Scope
    send: Send | None = None


class Quota(Struct, frozen=True):
    """How many calls the account may make in 60 seconds, and how many it has left."""

    limit: int
    place: RateDecision


class Refused(Struct, frozen=True):
    """The call was not carried out."""

    refusal: Refusal
    quota: Quota | None


class Admitted(Struct, frozen=True):
    """A call that only reads may go on; this is what its account and the tariff were at that moment."""

    quota: Quota
    balance: Decimal
    tariff: Tariff


class Priced(Struct, frozen=True):
    """A dry run: what the send would cost."""

    quota: Quota
    quote: Quote


class Answered(Struct, frozen=True):
    """A live send is on disk, from this call or from an earlier one with the same Idempotency-Key."""

    quota: Quota
    response: bytes
    replayed: bool


class Large(Struct, frozen=True):
    """A live send of many recipients was admitted; it is written by itself, by `send_large`."""

    quota: Quota
    call: Call
    batch: NewBatch


Decision = Refused | Admitted | Priced | Answered | Large


class Sent(Struct, frozen=True):
    """An accepted batch, as its caller is told of it."""

    batch_id: BatchId
    quote: Quote
    balance_after: Decimal


# The answer is kept for replay in the transaction that accepts the batch, so the face that speaks to
# the caller lends its way of writing it.
Render = Callable[[Sent], bytes]
