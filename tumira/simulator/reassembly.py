"""Reassembly of long texts."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from tumira.delivery.smpp.encoding import SegmentPlace, decode, split_udh
from tumira.delivery.smpp.pdu import ShortMessage

# Texts of which parts are missing; the oldest give way, so that a sender who never ends one fills nothing.
UNFINISHED_MAX: Final = 10_000
# References come around again after 256 texts: older segments belong to another text.
UNFINISHED_S: Final = 600.0

_SAR_REFERENCE: Final = 0x020C
_SAR_TOTAL: Final = 0x020E
_SAR_NUMBER: Final = 0x020F

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
        place, payload = split_udh(message.esm_class, message.text)
        if place is None and message.tlvs:
            place = _sar(message.tlvs)
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


def _sar(tlvs: dict[int, bytes]) -> SegmentPlace | None:
    values = [tlvs.get(tag) for tag in (_SAR_REFERENCE, _SAR_TOTAL, _SAR_NUMBER)]
    if not all(values):
        return None
    reference, total, number = (int.from_bytes(value or b"") for value in values)
    return SegmentPlace(reference, total, number)
