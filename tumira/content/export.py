"""Texts of accounts that consent to review, without personal data, for the corpus of the content check."""

from collections.abc import Iterator, Sequence
from datetime import date

from msgspec import Struct

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.content import near_line_store, template_store
from tumira.content import store as content_store
from tumira.content.near_line_store import NearLineReview, NearLineText
from tumira.content.personal_data import anonymise
from tumira.content.store import ReviewedText
from tumira.content.templates import Policy
from tumira.content.verdict import Label
from tumira.core.days import local_day, local_midnight
from tumira.postgres.pool import Database


class ExportedText(Struct, frozen=True):
    """A text that was refused or passed near the line; which account sent it is left out."""

    text: str
    # What the operator's review says; None without one.
    label: Label | None
    category: str | None
    score: float
    first_on: date
    last_on: date
    count: int


async def export_texts(database: Database, since: date, actor: Actor) -> Sequence[ExportedText]:
    """Return the texts since a local day, the oldest first, and record that they were exported."""
    async with database.transaction() as connection:
        at = local_midnight(since)
        policy = await template_store.get_policy(connection)
        refused = await content_store.list_consented(connection, at)
        near = await near_line_store.list_consented(connection, at)
        exported = list(_export(policy, refused, near))
        what, detail = "texts exported for the corpus", f"{len(exported)} texts since {since}"
        await audit_log.record_by_operator(connection, actor, what, detail, None)
    return exported


def _export(
    policy: Policy, refused: Sequence[ReviewedText], near: Sequence[NearLineText]
) -> Iterator[ExportedText]:
    for one in refused:
        assert one.text is not None
        yield ExportedText(
            anonymise(one.text),
            _label_refused(policy, one, one.text),
            one.category,
            one.score,
            local_day(one.first_at),
            local_day(one.last_at),
            one.count,
        )
    for text in near:
        yield ExportedText(
            anonymise(text.text),
            _label_near(text),
            None,
            text.score,
            local_day(text.first_at),
            local_day(text.last_at),
            text.messages,
        )


def _label_refused(policy: Policy, one: ReviewedText, text: str) -> Label | None:
    if one.review_allowed is not None:
        return Label.TRANSACTIONAL if one.review_allowed else Label.PROMOTIONAL
    # An operator may decide with a template before anyone asks.
    if policy.blocks(one.account_id, text):
        return Label.PROMOTIONAL
    return Label.TRANSACTIONAL if policy.allows(one.account_id, text) else None


def _label_near(one: NearLineText) -> Label | None:
    if one.review is None:
        return None
    return Label.TRANSACTIONAL if one.review == NearLineReview.FINE else Label.PROMOTIONAL
