"""Receipts that match no message: candidates, matching by hand and dismissing.

Neither the text of a receipt, which may quote the message, nor the whole number is shown.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.console.session import OperatorSession, Services, page
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import MESSAGE, MessageId, read_id
from tumira.core.translation import _, mark, ngettext
from tumira.delivery import place_receipts, receipt_rules
from tumira.delivery.place_receipts import NOTE_MAX, Candidate, mask
from tumira.delivery.store import unmatched
from tumira.delivery.store.unmatched import LATEST, ListedReceipt
from tumira.html import paging
from tumira.html.forms import Form, FormRefused, TextField
from tumira.html.guards import or_404
from tumira.html.redirect import redirect

RECEIPTS: Final = "/operator/receipts"
PAGE: Final = 25
COUNT_MAX: Final = 10_000
# With fewer of a kind on a page, there is nothing to learn from them.
PATTERN_MIN: Final = 2

DONE: Final = {
    "matched": mark("Receipt matched. The message now has its status."),
    "dismissed": mark("Receipt dismissed."),
}
_CHOICE_PARTS: Final = 3


class MatchForm(Form):
    segment = TextField(
        lambda text: (
            _("Choose the message that this receipt is for.") if _read_segment(text) is None else None
        )
    )
    note = TextField()


class DismissReceiptForm(Form):
    why = TextField()


def routes(services: Services) -> Sequence[Route]:
    return [
        *page(services, RECEIPTS, show_receipts),
        *page(services, RECEIPTS + "/{id}", show_receipt, {"/match": match, "/dismiss": dismiss}),
    ]


async def show_receipts(session: OperatorSession) -> Response:
    before = _read_number(session.request.query_params.get("before", ""), LATEST)
    async with session.database.connection() as connection:
        kept, last = paging.cut(await unmatched.list_before(connection, PAGE + 1, before), PAGE)
        candidates = await place_receipts.list_candidates(connection, kept)
        count = await unmatched.count(connection, COUNT_MAX)
    rows = list(zip(kept, candidates, strict=True))
    return session.page(
        "receipts.html.jinja",
        rows=rows,
        patterns=_patterns(rows),
        count=_("more than {most}").format(most=f"{COUNT_MAX:,}") if count >= COUNT_MAX else f"{count:,}",
        is_latest=before == LATEST,
        older=None if last is None else f"{RECEIPTS}?before={last.id}",
        done=DONE,
        **_writers(),
    )


def _writers() -> Mapping[str, Any]:
    """Return what both pages write receipts and their candidates with."""
    return {
        "now": datetime.now(UTC),
        "age": lambda since, until: write_age((until - since).total_seconds()),
        "mask": mask,
        "settles": lambda receipt: (
            receipt_rules.receipt_result(receipt.state, receipt.error).status or _("not final")
        ),
        "words": _words,
    }


def _words(candidate: Candidate) -> str:
    """Say what keeps a receipt from its message."""
    if not candidate.is_open:
        return _("has already ended as {status}, so it cannot change").format(status=candidate.segment.status)
    if not candidate.conditions:
        return _("will match at the next attempt")
    return _("would match if {conditions}").format(conditions=_conditions(candidate))


def _conditions(candidate: Candidate) -> str:
    return _(" and ").join(candidate.conditions)


def _patterns(
    rows: Sequence[tuple[ListedReceipt, Sequence[Candidate]]],
) -> Sequence[tuple[str, str, int]]:
    """Return carrier, conditions and count of what is the same about several receipts.

    A carrier that spells ids its own way always does.
    """
    counts = Counter(
        (kept.carrier, _conditions(candidates[0]))
        for kept, candidates in rows
        if candidates and candidates[0].is_alike and candidates[0].is_open and candidates[0].conditions
    )
    return [(*key, count) for key, count in counts.most_common() if count >= PATTERN_MIN]


def write_age(seconds: float) -> str:
    """Write how long something took, in its largest whole unit."""
    whole = int(seconds)
    if n := whole // 86_400:
        text = ngettext("{n} day", "{n} days", n)
    elif n := whole // 3_600:
        text = ngettext("{n} hour", "{n} hours", n)
    elif n := whole // 60:
        text = ngettext("{n} minute", "{n} minutes", n)
    elif n := whole:
        text = ngettext("{n} second", "{n} seconds", n)
    else:
        return _("less than a second")
    return text.format(n=f"{n:,}")


async def show_receipt(session: OperatorSession) -> Response:
    async with session.database.connection() as connection:
        found = await unmatched.find(connection, _receipt_id(session))
        kept = or_404(found, place_receipts.GONE.removesuffix("."))
        (candidates,) = await place_receipts.list_candidates(connection, [kept])
    return session.page(
        "receipt_unmatched.html.jinja",
        kept=kept,
        candidates=candidates,
        path=f"{RECEIPTS}/{kept.id}",
        can_match=any(one.is_open for one in candidates),
        note_max=NOTE_MAX,
        **_writers(),
    )


def _receipt_id(session: OperatorSession) -> int:
    return _read_number(str(session.request.path_params["id"]), 0)


def _read_number(text: str, default: int) -> int:
    return paging.read_number(text, LATEST, default)


async def match(session: OperatorSession) -> Response:
    """Settle the chosen message as the receipt says."""
    form = await MatchForm.accept(session.request)
    segment = _read_segment(form.segment.data)
    assert segment is not None
    try:
        await place_receipts.match_by_hand(
            session.database, _receipt_id(session), segment, form.note.data, session.actor
        )
    except FieldError as error:
        raise FormRefused({error.field: str(error)}, form.filled) from None
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
    form = await DismissReceiptForm.read(session.request)
    try:
        await place_receipts.dismiss(session.database, _receipt_id(session), form.why.data, session.actor)
    except FieldError as error:
        raise FormRefused({"why": str(error)}, form.filled) from None
    except OperatorError as error:
        raise HTTPException(404, str(error).removesuffix(".")) from None
    return redirect(RECEIPTS + "?done=dismissed")
