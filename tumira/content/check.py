"""The content check that every send passes, from the API and from pages that compose or upload."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from tumira.content.classifier import classify
from tumira.content.store import NewRefusal, digest_of
from tumira.content.templates import Policy
from tumira.content.verdict import Label, Reason, Verdict
from tumira.core.errors import ContentRejected
from tumira.core.ids import AccountId
from tumira.pricing.segments import SEGMENTS_MAX, measure

REASONS_MAX: Final = 10
# No longer text can be sent: 153 characters in each segment.
CHARACTERS_MAX: Final = 153 * SEGMENTS_MAX


def classify_early(text: str) -> Verdict | None:
    """Classify a text before the transaction; None for a text that is too long to be sent."""
    sendable = len(text) <= CHARACTERS_MAX and measure(text).segments <= SEGMENTS_MAX
    return classify(text) if sendable else None


def check_text(
    policy: Policy, account_id: AccountId, text: str, verdict: Verdict | None = None
) -> ContentRejected | None:
    """Refuse a text that is blocked, or that is promotional and not allowed."""
    if policy.blocks(account_id, text):
        return ContentRejected.blocked()
    if verdict is None:
        verdict = classify(text)
    if verdict.label is Label.TRANSACTIONAL or policy.allows(account_id, text):
        return None
    return reject(verdict)


def is_near_line(policy: Policy, account_id: AccountId, text: str, verdict: Verdict) -> bool:
    """Tell whether a text passes near the line, and not because an operator allowed it."""
    return verdict.near_the_line and not policy.allows(account_id, text)


def reject(verdict: Verdict) -> ContentRejected:
    """Return the refusal of a promotional text, with reasons."""
    assert verdict.category is not None
    return ContentRejected.of(
        verdict.category.value, verdict.score, show_reasons(verdict.reasons[:REASONS_MAX]), verdict.drop
    )


def show_reasons(reasons: Sequence[Reason]) -> Sequence[dict[str, Any]]:
    return [
        {"words": reason.words, "start": reason.start, "end": reason.end, "category": reason.category.value}
        for reason in reasons
    ]


def describe_refusal(
    account_id: AccountId, text: str, rejected: ContentRejected, at: datetime, *, keep_text: bool
) -> NewRefusal:
    """Return the record of a refused text; it includes the text only with the account's consent to review."""
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
