"""Numbers that behave differently: the last four digits choose; all other numbers get their texts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

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

    # Whether the text appears on the handset in the end.
    arrives: bool = field(init=False)
    # Whether every try is taken, so that none has to be remembered.
    is_plain: bool = field(init=False)

    def __post_init__(self) -> None:
        taken = self.refusal == CommandStatus.ROK or self.refusals > 0
        object.__setattr__(self, "arrives", taken and self.state in {"DELIVRD", None})
        object.__setattr__(self, "is_plain", self.refusal == CommandStatus.ROK and self.dropped == 0)


DELIVERED: Final = NumberOutcome("", "The text arrives.", "delivered")

OUTCOMES: Final[Sequence[NumberOutcome]] = (
    NumberOutcome(
        "9901", "The number is not in use: receipt UNDELIV, error 001.", "undelivered", "UNDELIV", "001"
    ),
    NumberOutcome(
        "9902", "The phone is switched off: receipt UNDELIV, error 027.", "undelivered", "UNDELIV", "027"
    ),
    NumberOutcome(
        "9903", "The phone was away until the validity ended: receipt EXPIRED.", "expired", "EXPIRED"
    ),
    NumberOutcome(
        "9904",
        "The network does not take it for this phone: receipt REJECTD, error 011.",
        "undelivered",
        "REJECTD",
        "011",
    ),
    NumberOutcome(
        "9905",
        "Refused at once for the number: ESME_RINVDSTADR.",
        "failed",
        refusal=CommandStatus.RINVDSTADR,
    ),
    NumberOutcome(
        "9906",
        "Refused at once for the sender: ESME_RINVSRCADR.",
        "failed",
        refusal=CommandStatus.RINVSRCADR,
    ),
    NumberOutcome(
        "9907",
        "ESME_RSYSERR on the first two tries; the third is taken and arrives.",
        "delivered",
        refusal=CommandStatus.RSYSERR,
        refusals=2,
    ),
    NumberOutcome(
        "9908", "The text arrives, but a receipt never comes.", "unconfirmed after 72 hours", state=None
    ),
    NumberOutcome(
        "9909",
        "The first try is lost without an answer; when it is sent again, it is taken and arrives.",
        "delivered",
        dropped=1,
    ),
)

_BY_ENDING: Final = {outcome.ending: outcome for outcome in OUTCOMES}


def outcome_of(number: str) -> NumberOutcome:
    return _BY_ENDING.get(number[-DIGITS:], DELIVERED)
