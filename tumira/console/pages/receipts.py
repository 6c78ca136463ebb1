"""Receipts that match no message: candidates, matching by hand and dismissing.

Neither the text of a receipt, which may quote the message, nor the whole number is shown.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.console.session import OperatorSession, Services, change, view
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import MESSAGE, MessageId, read_id, write_id
from tumira.delivery import place_receipts, receipt_rules
from tumira.delivery.place_receipts import NOTE_MAX, Candidate, mask
from tumira.delivery.store import unmatched
from tumira.delivery.store.unmatched import LATEST, ListedReceipt
from tumira.html.forms import Faults, Form, Text
from tumira.html.page import write_plural
from tumira.html.redirect import redirect

RECEIPTS: Final = "/operator/receipts"
ONE: Final = RECEIPTS + "/{id}"
PAGE: Final = 25
COUNT_MAX: Final = 10_000
# With fewer of a kind on a page, there is nothing to learn from them.
PATTERN_MIN: Final = 2

DONE: Final = {
    "matched": "The receipt is matched, and its message settled as it says.",
    "dismissed": "The receipt is dismissed.",
}
LABELS: Final = {"segment": "Message", "note": "Note", "why": "Note"}
SETTLES_NOTHING: Final = "settles nothing yet"

_UNITS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_DIGITS_MAX: Final = len(str(LATEST))
_CHOICE_PARTS: Final = 3


class MatchForm(Form):
    segment = Text(
        lambda text: "Choose the message that the receipt is about." if _read_segment(text) is None else None
    )
    note = Text()


class DismissForm(Form):
    why = Text()


@dataclass(frozen=True, slots=True)
class Guess:
    """A message that a receipt may be about, in words."""

    candidate: Candidate
    choice: str
    message: str
    number: str
    words: str
    before: str


@dataclass(frozen=True, slots=True)
class Row:
    """A receipt that matches nothing."""

    kept: ListedReceipt
    path: str
    number: str
    age: str
    settles: str
    guesses: Sequence[Guess]


@dataclass(frozen=True, slots=True)
class Pattern:
    """What several receipts of a page have in common."""

    carrier: str
    count: int
    words: str


def routes(services: Services) -> Sequence[Route]:
    return [
        view(services, RECEIPTS, show_receipts),
        view(services, ONE, show_receipt),
        change(services, ONE + "/match", match),
        change(services, ONE + "/dismiss", dismiss),
    ]


async def show_receipts(session: OperatorSession) -> Response:
    before = _read_number(session.request.query_params.get("before", ""), LATEST)
    async with session.database.connection() as connection:
        found = await unmatched.list_before(connection, PAGE + 1, before)
        candidates = await place_receipts.list_candidates(connection, found[:PAGE])
        count = await unmatched.count(connection, COUNT_MAX)
    now = datetime.now(UTC)
    rows = [_row(one, likely, now) for one, likely in zip(found[:PAGE], candidates, strict=True)]
    return session.page(
        "receipts.html.jinja",
        rows=rows,
        patterns=_patterns(rows),
        count=f"more than {COUNT_MAX:,}" if count >= COUNT_MAX else f"{count:,}",
        is_latest=before == LATEST,
        older=found[PAGE - 1].id if len(found) > PAGE else None,
        done=DONE.get(session.request.query_params.get("done", "")),
        now=now,
    )


def _row(kept: ListedReceipt, candidates: Sequence[Candidate], now: datetime) -> Row:
    settled = receipt_rules.receipt_result(kept.receipt.state, kept.receipt.error)
    return Row(
        kept,
        f"{RECEIPTS}/{kept.id}",
        mask(kept.receipt.recipient),
        write_age((now - kept.received_at).total_seconds()),
        settled.status or SETTLES_NOTHING,
        [_guess(kept, one) for one in candidates],
    )


def _guess(kept: ListedReceipt, candidate: Candidate) -> Guess:
    segment = candidate.segment
    message = write_id(MESSAGE, segment.message_id)
    return Guess(
        candidate,
        f"{message}.{segment.number}.{segment.attempt}",
        message,
        mask(segment.recipient),
        _words(candidate),
        write_age((kept.received_at - segment.submitted_at).total_seconds()),
    )


def _words(candidate: Candidate) -> str:
    """Say what would have to be so, as the end of “would match msg_…”."""
    if not candidate.is_open:
        return f"but that has ended as {candidate.segment.status}, so nothing follows from it"
    if not candidate.conditions:
        return "by itself, at the next try"
    return "if " + ", and ".join(candidate.conditions)


def _patterns(rows: Sequence[Row]) -> Sequence[Pattern]:
    """Return what is the same about several receipts: a carrier that spells ids its own way always does."""
    counts = Counter(
        (row.kept.carrier, row.guesses[0].words)
        for row in rows
        if row.guesses and row.guesses[0].candidate.is_alike and row.guesses[0].candidate.is_open
    )
    return [
        Pattern(carrier, count, words)
        for (carrier, words), count in counts.most_common()
        if count >= PATTERN_MIN and words.startswith("if ")
    ]


def write_age(seconds: float) -> str:
    """Write how long something took, in its largest whole unit."""
    for unit_s, name in _UNITS:
        if seconds >= unit_s:
            return write_plural(int(seconds // unit_s), name)
    return "less than a second"


async def show_receipt(session: OperatorSession) -> Response:
    return await _page(session, {})


async def _page(
    session: OperatorSession, faults: Faults, status: int = 200, filled: dict[str, str] | None = None
) -> Response:
    async with session.database.connection() as connection:
        kept = await unmatched.find(connection, _receipt_id(session))
        if kept is None:
            raise HTTPException(404, place_receipts.GONE.removesuffix("."))
        (candidates,) = await place_receipts.list_candidates(connection, [kept])
    row = _row(kept, candidates, datetime.now(UTC))
    return session.page(
        "receipt_unmatched.html.jinja",
        status,
        row=row,
        can_match=any(one.candidate.is_open for one in row.guesses),
        faults=faults,
        filled={"segment": "", "note": "", "why": ""} | (filled or {}),
        labels=LABELS,
        note_max=NOTE_MAX,
    )


def _receipt_id(session: OperatorSession) -> int:
    return _read_number(str(session.request.path_params["id"]), 0)


def _read_number(text: str, default: int) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return min(int(text), LATEST) if is_number else default


async def match(session: OperatorSession) -> Response:
    """Settle the chosen message as the receipt says."""
    form = await MatchForm.read(session.request)
    segment = _read_segment(form.segment.data)
    if segment is None:
        return await _page(session, form.faults, 422, form.filled)
    try:
        await place_receipts.match_by_hand(
            session.database, _receipt_id(session), segment, form.note.data, session.actor
        )
    except FieldError as error:
        return await _page(session, {error.field: str(error)}, 422, form.filled)
    except OperatorError as error:
        raise HTTPException(404, str(error).removesuffix(".")) from None
    return redirect(RECEIPTS + "?done=matched")


def _read_segment(text: str) -> tuple[MessageId, int, int] | None:
    parts = text.split(".")
    message_id = read_id(MESSAGE, parts[0])
    if message_id is None or len(parts) != _CHOICE_PARTS:
        return None
    return MessageId(message_id), _read_number(parts[1], 0), _read_number(parts[2], 0)


async def dismiss(session: OperatorSession) -> Response:
    form = await DismissForm.read(session.request)
    try:
        await place_receipts.dismiss(session.database, _receipt_id(session), form.why.data, session.actor)
    except FieldError as error:
        return await _page(session, {"why": str(error)}, 422, form.filled)
    except OperatorError as error:
        raise HTTPException(404, str(error).removesuffix(".")) from None
    return redirect(RECEIPTS + "?done=dismissed")
