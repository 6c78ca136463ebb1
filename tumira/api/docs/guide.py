"""What must a developer know beyond the single operations? Told once, for the document and for the page."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tumira.accounts.rate_limit import WINDOW_S
from tumira.api.docs.advice import FIELD_CODES, RECIPIENT_CODES, advice
from tumira.api.request import BODY_BYTES_MAX
from tumira.core.errors import all_refusals
from tumira.events import MEANINGS
from tumira.pricing.destinations import RECIPIENTS_MAX
from tumira.pricing.quote import REFERENCE_MAX
from tumira.pricing.segments import SEGMENTS_MAX
from tumira.sending.lifecycle import BATCH_STATUSES, FAILURE_REASONS, MESSAGE_STATUSES
from tumira.sending.lookups import IDEMPOTENCY_HOURS

_TEMPLATE: Final = "guide.md.jinja"
_HEADING: Final = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Section:
    """A chapter of the guide; `text` is Markdown."""

    title: str
    text: str

    @property
    def slug(self) -> str:
        """Return the section's address on a page."""
        return self.title.split()[0].lower()


def guide() -> str:
    """Return the whole guide as Markdown."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - Markdown, from constants only; HTML is made of it elsewhere, escaped
    )
    return environment.get_template(_TEMPLATE).render(
        events=MEANINGS,
        message_statuses=MESSAGE_STATUSES,
        batch_statuses=BATCH_STATUSES,
        failure_reasons=FAILURE_REASONS,
        refusals=all_refusals(),
        advice=advice,
        field_codes=FIELD_CODES,
        recipient_codes=RECIPIENT_CODES,
        body_bytes_max=BODY_BYTES_MAX,
        idempotency_hours=IDEMPOTENCY_HOURS,
        recipients_max=RECIPIENTS_MAX,
        reference_max=REFERENCE_MAX,
        segments_max=SEGMENTS_MAX,
        window_s=WINDOW_S,
    )


def sections(text: str) -> Sequence[Section]:
    """Cut a guide into its sections."""
    _, *parts = _HEADING.split(text)
    return [Section(title, body.strip()) for title, body in zip(parts[::2], parts[1::2], strict=True)]
