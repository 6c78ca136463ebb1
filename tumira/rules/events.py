"""Which events are there, and which of them does an endpoint take?"""

from collections.abc import Mapping, Sequence
from typing import Final

# Each with when it happens, in the order in which they are listed everywhere.
MEANINGS: Final[Mapping[str, str]] = {
    "message.sent": "A carrier took the message; its receipt is awaited.",
    "message.delivered": "The handset has the message.",
    "message.undelivered": "The carrier reports that the message did not arrive.",
    "message.expired": "The message's validity ended before it arrived.",
    "message.failed": "The message could not be handed to a carrier.",
    "message.unconfirmed": "A carrier may have the message, and no receipt came. A late receipt may still "
    "bring one of the other outcomes.",
    "message.refunded": "The message's cost was given back.",
    "batch.completed": "Every message of the batch is final.",
    "balance.low": "The balance fell below the account's threshold.",
    "webhook.test": "Somebody asked for a test of the endpoint.",
}
EVENT_TYPES: Final = tuple(MEANINGS)

WEBHOOK_TEST: Final = "webhook.test"

# A test goes to the endpoint that it is for, whatever that takes, so nobody chooses it.
SUBSCRIBABLE: Final = tuple(type_ for type_ in EVENT_TYPES if type_ != WEBHOOK_TEST)

_ALL: Final = frozenset({"", "all"})


def parse_types(text: str) -> Sequence[str] | None:
    """Read types parted by commas; None stands for all of them, also those that will be added.

    Raises ValueError with a sentence that names the choices.
    """
    if text.strip() in _ALL:
        return None
    named = {name.strip() for name in text.split(",")}
    unknown = sorted(named.difference(SUBSCRIBABLE))
    if unknown:
        raise ValueError(
            f"There is no event {unknown[0]!r} to choose: name some of {', '.join(SUBSCRIBABLE)}, or all."
        )
    return [type_ for type_ in SUBSCRIBABLE if type_ in named]


def takes(types: Sequence[str] | None, type_: str) -> bool:
    """Tell whether an endpoint that chose these types is told of an event of this type."""
    return types is None or type_ in types or type_ == WEBHOOK_TEST
