"""The values that pass between the engine and the description of a carrier over HTTP."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import Enum, StrEnum, auto
from typing import Literal

from msgspec import Struct

Stop = Literal["credentials", "credit", "account", "redirect"]


class OutgoingMessage(Struct, frozen=True):
    """One message to submit; `reference` and `sequence` were stored before the call."""

    recipient: str  # E.164, with the plus.
    text: str
    sender: str  # Empty for the provider's default.
    reference: str  # 20 characters of 0-9a-z, ours.
    sequence: int  # A positive int32, counted by carrier.
    unicode: bool
    validity_s: int
    callback_url: str  # Empty when the provider has no address of ours to call.
    at: datetime


class HttpRequest(Struct, frozen=True):
    """A request to send as it is; it holds secrets and the text, so it is never logged."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def __repr__(self) -> str:
        return f"HttpRequest({self.method})"


class HttpAnswer(Struct, frozen=True):
    """A complete answer; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class SubmitVerdict(StrEnum):
    TAKEN = "taken"  # The provider has it.
    REFUSED = "refused"  # Given up and paid back.
    THROTTLED = "throttled"  # Too fast, and not taken: the message waits in front.
    TEMPORARY = "temporary"  # Not taken: tried again after a while, a few times.
    UNKNOWN = "unknown"  # Not taken, for a reason that the profile does not know: tried again once.
    STOPPED = "stopped"  # The account is at fault, not the message, which is untouched.
    DOUBT = "doubt"  # The provider may have it.


class SubmitAnswer(Struct, frozen=True):
    """The meaning of an answer to a submit.

    `detail` says why a message was not taken. It is short and safe to store and show: the provider's code and
    words, without the text, the number or a secret.
    """

    verdict: SubmitVerdict
    carrier_ref: str = ""
    reason: str | None = None
    alarm: bool = False
    detail: str = ""
    retry_after_s: float | None = None
    stop: Stop | None = None
    segments: int | None = None
    cost: Decimal | None = None
    balance: Decimal | None = None
    # Of the cost; empty where the answer does not say.
    currency: str = ""


class CarrierReport(Struct, frozen=True):
    """The outcome of a message so far.

    `state` is a word of SMPP and `error` a failure reason, as `receipt_rules.receipt_result` reads them.
    `word` is the provider's own, in safe characters; `is_known` is false when the profile has no such word.
    """

    carrier_ref: str | None
    reference: str | None
    recipient: str | None  # Digits without a plus.
    state: str
    error: str | None = None
    word: str = ""
    is_known: bool = True
    network: str | None = None
    cost: Decimal | None = None


class IncomingReply(Struct, frozen=True):
    carrier_ref: str
    sender: str  # The number that wrote, as the provider spells it.
    recipient: str  # Our number or code.
    text: str
    received_at: datetime | None = None
    # A long text may come in parts, each with an id of its own; `group` is what they share.
    group: int = 0
    total: int = 1
    part: int = 1


class CallbackRequest(Struct, frozen=True):
    """A request to the address that a provider was given.

    `public_url` is from settings, without the query; the names of headers are in lower case.
    """

    method: str
    public_url: str
    query: str  # As it came, without the question mark.
    headers: Mapping[str, str]
    body: bytes
    address: str  # The caller's IP address.

    def __repr__(self) -> str:
        return f"CallbackRequest({self.method})"


class CallbackContent(Struct, frozen=True):
    """What a callback told; `status`, `content_type` and `body` answer it once its content is stored."""

    reports: tuple[CarrierReport, ...] = ()
    replies: tuple[IncomingReply, ...] = ()
    status: int = 200
    content_type: str = "text/plain"
    body: bytes = b"OK"


class CallbackRefused(Struct, frozen=True):
    """A callback that is not believed; `why` is for the log, and the caller gets the status alone."""

    status: int
    why: str


class CallbackMode(StrEnum):
    NONE = "none"  # The provider calls nobody: receipts are polled.
    OPEN = "open"  # Every caller who knows the address is believed.
    CHECKED = "checked"  # Callers prove that they are the provider.


class LookFailure(Enum):
    """Why a look-up brought no report."""

    NOT_FOUND = auto()  # The provider says that it has no such message.
    UNREADABLE = auto()  # It says nothing that can be used.


class AccessToken(Struct, frozen=True):
    token: str
    lifetime_s: int

    def __repr__(self) -> str:
        return "AccessToken()"


class Balance(Struct, frozen=True):
    amount: Decimal
    currency: str
