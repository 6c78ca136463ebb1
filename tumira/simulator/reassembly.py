"""Reassembly of long texts."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from tumira.delivery.smpp.encoding import decode, split_segment
from tumira.delivery.smpp.pdu import ShortMessage

# Texts of which parts are missing; the oldest give way, so that a sender who never ends one fills nothing.
UNFINISHED_MAX: Final = 10_000
# References come around again after 256 texts: older segments belong to another text.
UNFINISHED_S: Final = 600.0

Key = tuple[str, str, int, int, int]


@dataclass(slots=True)
class _Unfinished:
    begun_s: float
    parts: dict[int, bytes] = field(default_factory=dict)


class Reassembler:
    def __init__(self) -> None:
        self._unfinished: OrderedDict[Key, _Unfinished] = OrderedDict()

    def add(self, message: ShortMessage, now_s: float) -> str | None:
        """Return the text that this message completes, or None while segments are missing."""
        place, payload = split_segment(message.esm_class, message.text, message.tlvs)
        if place is None or place[1] <= 1:
            return decode(message.data_coding, payload)
        reference, total, number = place
        key = (message.destination, message.source, reference, total, message.data_coding)
        text = self._unfinished.get(key)
        if text is None or now_s - text.begun_s > UNFINISHED_S:
            self._unfinished.pop(key, None)
            text = self._unfinished[key] = _Unfinished(now_s)
            if len(self._unfinished) > UNFINISHED_MAX:
                self._unfinished.popitem(last=False)
        text.parts[number] = payload
        if any(each not in text.parts for each in range(1, total + 1)):
            return None
        del self._unfinished[key]
        # Joined before they are read: a sender may have cut a character in two.
        return decode(message.data_coding, b"".join(text.parts[each] for each in range(1, total + 1)))
