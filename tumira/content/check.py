"""May an account send this text? Every way in asks here: the API, and pages that compose or upload."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from tumira.content.classifier import judge
from tumira.content.store import NewRefusal, digest_of
from tumira.content.templates import Policy
from tumira.content.verdict import Label, Reason, Verdict
from tumira.core.errors import ContentRejected
from tumira.core.ids import AccountId
from tumira.pricing.segments import SEGMENTS_MAX, measure

REASONS_MAX: Final = 10
# No longer text can be sent: 153 characters in each segment.
CHARACTERS_MAX: Final = 153 * SEGMENTS_MAX


def judge_ahead(text: str) -> Verdict | None:
    """Judge a text before anything waits for it; None for one that is too long to be sent anyway."""
    sendable = len(text) <= CHARACTERS_MAX and measure(text).segments <= SEGMENTS_MAX
    return judge(text) if sendable else None


def screen(
    policy: Policy, account_id: AccountId, text: str, verdict: Verdict | None = None
) -> ContentRejected | None:
    """Refuse a text that is blocked, or that is promotional and not allowed; None for one that may go."""
    if policy.blocks(account_id, text):
        return ContentRejected.blocked()
    if verdict is None:
        verdict = judge(text)
    if verdict.label is Label.TRANSACTIONAL or policy.allows(account_id, text):
        return None
    return reject(verdict)


def reject(verdict: Verdict) -> ContentRejected:
    """Say why a text was judged promotional."""
    assert verdict.category is not None
    return ContentRejected.of(
        verdict.category.value, verdict.score, show_reasons(verdict.reasons[:REASONS_MAX]), verdict.drop
    )


def show_reasons(reasons: Sequence[Reason]) -> Sequence[dict[str, Any]]:
    """Write the words that weighed as they are told to others."""
    return [
        {"words": reason.words, "start": reason.start, "end": reason.end, "category": reason.category.value}
        for reason in reasons
    ]


def note(
    account_id: AccountId, text: str, rejected: ContentRejected, at: datetime, *, keep_text: bool
) -> NewRefusal:
    """Return what is kept of a refused text; the text itself only with the account's consent to review."""
    detail = rejected.detail
    return NewRefusal(
        account_id=account_id,
        digest=digest_of(text),
        at=at,
        category=detail["category"],
        score=detail["score"],
        reasons=[{"words": one["words"], "category": one["category"]} for one in detail["reasons"]],
        text=text if keep_text else None,
    )
