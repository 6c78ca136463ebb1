"""A call as it was parsed, and the decisions about it."""

from collections.abc import Callable
from decimal import Decimal

from msgspec import Struct, structs

from tumira.accounts.api_keys import Scope
from tumira.accounts.rate_limit import RateDecision
from tumira.audit_log import Actor
from tumira.content.near_line_store import MarkedSend
from tumira.content.verdict import Verdict
from tumira.core.errors import Refusal
from tumira.core.ids import AccountId, BatchId, KeyId
from tumira.pricing.destinations import Tariff
from tumira.pricing.quote import Quote, ValidRequest
from tumira.sending.code_guard import carries_passcode
from tumira.sending.insert import NewBatch


class IdempotencyKey(Struct, frozen=True):
    """The key of a live send, with a digest of the payload that it stands for."""

    key: str
    fingerprint: bytes


class Send(Struct, frozen=True):
    """A send whose form is valid."""

    request: ValidRequest
    idempotency: IdempotencyKey | None = None
    # Classified before the transaction, so that it need not wait; without one it is done there.
    verdict: Verdict | None = None
    # The cost that the customer was shown and agreed to; a send that would cost anything else is only priced.
    agreed_cost: Decimal | None = None
    # The person who sends it in the dashboard, for the account's history; None for the API.
    by: Actor | None = None
    # Set here, and not by the caller.
    is_passcode: bool = False

    def __post_init__(self) -> None:
        structs.force_setattr(self, "is_passcode", carries_passcode(self.request, self.verdict))


class InvalidSend(Struct, frozen=True):
    """A send that is refused once its key, account and rate have passed, so that one fault has one answer.

    With an Idempotency-Key, an earlier answer or a conflict comes before the refusal.
    """

    refusal: Refusal
    idempotency: IdempotencyKey | None = None


class Call(Struct, frozen=True):
    """One call: its account and key, the scope it needs, and the send, unless it only reads.

    A call from the dashboard has no key: no scope is checked, and it does not count against the API's limit.
    """

    account_id: AccountId
    key_id: KeyId | None
    scope: Scope
    send: Send | InvalidSend | None = None
    # For the log.
    request_id: str = ""


class Quota(Struct, frozen=True):
    """The calls that the account may make in 60 seconds, and its place among them."""

    limit: int
    place: RateDecision


class Refused(Struct, frozen=True):
    refusal: Refusal
    quota: Quota | None


class Admitted(Struct, frozen=True):
    """A call that only reads may go on; balance and tariff are of that moment."""

    quota: Quota
    balance: Decimal
    tariff: Tariff


class Priced(Struct, frozen=True):
    """A dry run, or a send whose cost is not the agreed one: nothing was sent."""

    quota: Quota
    quote: Quote


class Answered(Struct, frozen=True):
    """A live send is on disk, from this call or from an earlier one with the same Idempotency-Key."""

    quota: Quota
    response: bytes
    replayed: bool
    # This call's text passed near the line.
    marked: MarkedSend | None = None


class Large(Struct, frozen=True):
    """A live send of many recipients was admitted; `send_large` writes it in its own transaction."""

    quota: Quota
    send: Send
    batch: NewBatch
    marked: MarkedSend | None = None


Decision = Refused | Admitted | Priced | Answered | Large


class Sent(Struct, frozen=True):
    """An accepted batch, as the answer describes it."""

    batch_id: BatchId
    quote: Quote
    balance_after: Decimal


# The answer is stored for replay in the transaction that accepts the batch, so the API passes in the function
# that writes it.
Render = Callable[[Sent], bytes]
