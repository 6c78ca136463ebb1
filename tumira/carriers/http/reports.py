"""Receipts and replies read from documents, with a provider's words for the state of a message."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote_to_bytes
from zlib import crc32

from msgspec import Struct

from tumira.carriers.http.documents import (
    DocumentPath,
    DocumentPaths,
    as_count,
    as_id,
    as_money,
    as_text,
    as_time,
)
from tumira.carriers.http.rules import Conditions
from tumira.carriers.http.values import CarrierReport, IncomingReply
from tumira.pricing.phone_numbers import digits
from tumira.sending.lifecycle import FAILURE_REASONS

REPORTS_MAX: Final = 1_000
STATES_MAX: Final = 200
REPLY_TEXT_MAX: Final = 4_000

# The words of profiles, and those of SMPP that the engine reads.
STATES: Final[Mapping[str, str]] = {
    "enroute": "ENROUTE",
    "delivered": "DELIVRD",
    "undelivered": "UNDELIV",
    "expired": "EXPIRED",
    "rejected": "REJECTD",
    "unknown": "UNKNOWN",
}
# A reply that is no part of another: its group, total and number.
_WHOLE: Final = (0, 1, 1)
_GROUPS: Final = 2**16
_PARTS_MAX: Final = 255
_WORD_MAX: Final = 40
_DIGITS_MAX: Final = 32
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_. -]+")
_LONG_NUMBER: Final = re.compile(r"[0-9]{6,}")


class StateWords:
    """A provider's words, each with a state and perhaps a failure reason: `rejected RECIPIENT_BLOCKED`."""

    __slots__ = ("words",)

    def __init__(self, written: object) -> None:
        if not isinstance(written, dict) or not 1 <= len(written) <= STATES_MAX:
            raise ValueError(f"write a table of 1 to {STATES_MAX} words and their states")
        self.words: Final = {word.casefold(): _state(word, state) for word, state in written.items()}

    def find(self, texts: Sequence[str]) -> tuple[str, str | None] | None:
        """Return the state and reason of the longest known beginning: `FAILED.EXPIRED` before `FAILED`."""
        for length in range(len(texts), 0, -1):
            found = self.words.get(".".join(texts[:length]).casefold())
            if found is not None:
                return found
        return None


class ReasonCodes:
    """A provider's error codes, each with a failure reason."""

    __slots__ = ("codes",)

    def __init__(self, written: object) -> None:
        if not isinstance(written, dict) or len(written) > STATES_MAX:
            raise ValueError(f"write a table of at most {STATES_MAX} codes and their failure reasons")
        for code, reason in written.items():
            if reason not in FAILURE_REASONS:
                raise ValueError(f"{code}: {reason!r} is no failure reason: write one of {_reasons()}")
        self.codes: Final = {code.casefold(): str(reason) for code, reason in written.items()}

    def find(self, code: str | None) -> str | None:
        return None if code is None else self.codes.get(code.casefold())


def _state(word: str, written: object) -> tuple[str, str | None]:
    state, _space, reason = str(written).partition(" ")
    if state not in STATES:
        raise ValueError(f"{word}: {state!r} is no state: write one of {', '.join(STATES)}")
    if reason and reason not in FAILURE_REASONS:
        raise ValueError(f"{word}: {reason!r} is no failure reason: write one of {_reasons()}")
    return STATES[state], reason or None


def _reasons() -> str:
    return ", ".join(FAILURE_REASONS)


class ReportPaths(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the parts of a receipt stand; `items` leads to a list of them, or to a single one."""

    items: DocumentPath | None = None
    when: Conditions | None = None
    id: DocumentPath | None = None
    reference: DocumentPath | None = None
    recipient: DocumentPath | None = None
    state: DocumentPaths
    error: DocumentPath | None = None
    network: DocumentPaths | None = None
    cost: DocumentPath | None = None
    cost_divisor: int = 1

    def __post_init__(self) -> None:
        if self.id is None and self.reference is None:
            raise ValueError("a receipt needs an id or a reference")
        if self.cost_divisor < 1:
            raise ValueError("cost_divisor must be 1 or more")


class PartPaths(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a part of a long reply says which it is."""

    group: DocumentPath
    total: DocumentPath
    part: DocumentPath


class ReplyPaths(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the parts of a reply stand; `when` tells replies from receipts."""

    items: DocumentPath | None = None
    when: Conditions
    id: DocumentPath
    sender: DocumentPath
    recipient: DocumentPath | None = None
    text: DocumentPath
    time: DocumentPath | None = None
    charset: DocumentPath | None = None
    parts: PartPaths | None = None


class Reader(Struct, frozen=True):
    """Reads receipts and replies with the words of one profile."""

    states: StateWords | None
    reasons: ReasonCodes | None
    fold: bool

    def reports(
        self, paths: ReportPaths, document: Any, is_reply: Conditions | None = None
    ) -> list[CarrierReport]:
        items = self._items(paths, document)
        if is_reply is not None:
            items = [item for item in items if not is_reply.hold(item, fold=self.fold)]
        found = (self._report(paths, item) for item in items)
        return [report for report in found if report is not None]

    def replies(self, paths: ReplyPaths, document: Any) -> tuple[IncomingReply, ...]:
        found = (self._reply(paths, item) for item in self._items(paths, document))
        return tuple(reply for reply in found if reply is not None)

    def _items(self, paths: ReportPaths | ReplyPaths, document: Any) -> Sequence[Any]:
        found = document if paths.items is None else self._at(paths.items, document)
        items = found if isinstance(found, list) else [found]
        return [
            item
            for item in items
            if isinstance(item, Mapping) and (paths.when is None or paths.when.hold(item, fold=self.fold))
        ]

    def _report(self, paths: ReportPaths, item: Any) -> CarrierReport | None:
        carrier_ref = as_id(self._at(paths.id, item))
        reference = as_id(self._at(paths.reference, item))
        words = paths.state.texts(item, fold=self.fold)
        if (carrier_ref is None and reference is None) or not words:
            return None
        known = None if self.states is None else self.states.find(words)
        state, reason = known or (STATES["unknown"], None)
        code = as_text(self._at(paths.error, item))
        cost = as_money(self._at(paths.cost, item))
        network = "".join(paths.network.texts(item, fold=self.fold)) if paths.network else ""
        return CarrierReport(
            carrier_ref=carrier_ref,
            reference=reference,
            recipient=digits(as_text(self._at(paths.recipient, item)) or "")[:_DIGITS_MAX] or None,
            state=state,
            error=(self.reasons.find(code) if self.reasons else None) or reason,
            word=safe_word(" ".join([".".join(words), code or ""])),
            is_known=known is not None,
            network=_UNSAFE.sub("", network)[:_WORD_MAX] or None,
            cost=None if cost is None else cost[0] / Decimal(paths.cost_divisor),
        )

    def _reply(self, paths: ReplyPaths, item: Any) -> IncomingReply | None:
        carrier_ref = as_id(self._at(paths.id, item))
        sender = as_id(self._at(paths.sender, item))
        text = self._at(paths.text, item)
        if carrier_ref is None or sender is None or not isinstance(text, str):
            return None
        charset = as_text(self._at(paths.charset, item)) or ""
        if charset.casefold() == "utf-16be":
            text = unquote_to_bytes(text).decode("utf-16-be", errors="replace")
        group, total, part = self._part(paths.parts, item)
        return IncomingReply(
            carrier_ref=carrier_ref,
            sender=sender,
            recipient=as_id(self._at(paths.recipient, item)) or "",
            text=_storable(text[:REPLY_TEXT_MAX]),
            received_at=as_time(self._at(paths.time, item)),
            group=group,
            total=total,
            part=part,
        )

    def _part(self, paths: PartPaths | None, item: Any) -> tuple[int, int, int]:
        """Return the group, total and number of a part; a text without them, or with odd ones, is whole."""
        if paths is None:
            return _WHOLE
        group = as_id(self._at(paths.group, item))
        total = as_count(self._at(paths.total, item)) or 0
        part = as_count(self._at(paths.part, item)) or 0
        if group is None or not 1 <= part <= total <= _PARTS_MAX:
            return _WHOLE
        return crc32(group.encode()) % _GROUPS, total, part

    def _at(self, path: DocumentPath | None, item: Any) -> Any:
        return None if path is None else path.find(item, fold=self.fold)


def _storable(text: str) -> str:
    """Replace halves of surrogate pairs, which JSON can hold and a database cannot."""
    return text.replace("\0", "").encode(errors="replace").decode()


def safe_word(text: str) -> str:
    """Return a provider's word without what could be a number or a text of a customer."""
    return _LONG_NUMBER.sub("…", _UNSAFE.sub(" ", text)).strip()[:_WORD_MAX]
