"""Numbers that behave differently: the last four digits choose; all other numbers get their texts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tumira.core.translation import mark
from tumira.delivery.responses import CommandStatus

DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class NumberOutcome:
    """What the simulator does with a submit to a number, with a description for people."""

    ending: str
    what_happens: str
    # How the message ends in the gateway.
    status: str
    # The word of the receipt; None for no receipt.
    state: str | None = "DELIVRD"
    # As in GSM MAP, decimal with three digits.
    error: str = "000"
    refusal: int = CommandStatus.ROK
    # Attempts that are refused before one is taken; 0 when all of them are.
    refusals: int = 0
    # Attempts that are dropped without a response before one is taken.
    dropped: int = 0
    # How long the phone is out of reach: what is valid for less expires.
    absent_s: int = 0

    # Whether the text appears on the handset in the end.
    arrives: bool = field(init=False)
    # Whether every try is taken, so that none has to be remembered.
    is_plain: bool = field(init=False)

    def __post_init__(self) -> None:
        taken = self.refusal == CommandStatus.ROK or self.refusals > 0
        object.__setattr__(self, "arrives", taken and self.state in {"DELIVRD", None})
        object.__setattr__(self, "is_plain", self.refusal == CommandStatus.ROK and self.dropped == 0)


DELIVERED: Final = NumberOutcome("", mark("The message arrives."), "delivered")

OUTCOMES: Final[Sequence[NumberOutcome]] = (
    NumberOutcome(
        "9901",
        mark("The number does not exist: receipt UNDELIV, error 001."),
        "undelivered",
        "UNDELIV",
        "001",
    ),
    NumberOutcome(
        "9902",
        mark("The phone is switched off: receipt UNDELIV, error 027."),
        "undelivered",
        "UNDELIV",
        "027",
    ),
    NumberOutcome(
        "9903",
        mark("The phone was out of reach until the message expired: receipt EXPIRED."),
        "expired",
        "EXPIRED",
    ),
    NumberOutcome(
        "9904",
        mark("The network does not allow messages to this phone: receipt REJECTD, error 011."),
        "undelivered",
        "REJECTD",
        "011",
    ),
    NumberOutcome(
        "9905",
        mark("The carrier refuses the number: ESME_RINVDSTADR."),
        "failed",
        refusal=CommandStatus.RINVDSTADR,
    ),
    NumberOutcome(
        "9906",
        mark("The carrier refuses the sender: ESME_RINVSRCADR."),
        "failed",
        refusal=CommandStatus.RINVSRCADR,
    ),
    NumberOutcome(
        "9907",
        mark("Two attempts fail with ESME_RSYSERR; the third is delivered."),
        "delivered",
        refusal=CommandStatus.RSYSERR,
        refusals=2,
    ),
    NumberOutcome(
        "9908",
        mark("The message arrives, but no receipt comes."),
        mark("unconfirmed after 72 hours"),
        state=None,
    ),
    NumberOutcome(
        "9909",
        mark("The first attempt gets no answer; the second is delivered."),
        "delivered",
        dropped=1,
    ),
    NumberOutcome(
        "9910",
        mark("The phone is out of reach for an hour. What is valid for less expires, the rest arrives."),
        mark("expired or delivered"),
        absent_s=3600,
    ),
)
# A message that the network could not deliver while it was valid.
EXPIRED: Final = NumberOutcome("", mark("The message expires."), "expired", "EXPIRED")

_BY_ENDING: Final = {outcome.ending: outcome for outcome in OUTCOMES}


def outcome_of(number: str) -> NumberOutcome:
    return _BY_ENDING.get(number[-DIGITS:], DELIVERED)
