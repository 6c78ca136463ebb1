"""What pages show about a message that is being written: recipients, price, spelling, and the verdict."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from tumira.core.errors import (
    ContentRejected,
    Refusal,
    ServiceUnavailable,
    TooManyRecipients,
    TooManySegments,
)
from tumira.core.translation import _, ngettext
from tumira.dashboard.refusal_words import say_refusal
from tumira.html.page import write_cost, write_count
from tumira.pricing import gsm7, segments
from tumira.pricing.destinations import RECIPIENTS_MAX, PriceStatus, Recipient, Tariff
from tumira.pricing.phone_numbers import CHANNEL
from tumira.pricing.segments import SEGMENTS_MAX
from tumira.sending.compose import Draft, Review

# A shorter text says too little to be judged while it is being typed.
JUDGED_MIN: Final = 10
CHARACTERS_SHOWN: Final = 8
# The script's numbers are floats, so its amounts are whole ten-thousandths of a dollar.
_UNIT: Final = Decimal("0.0001")


@dataclass(frozen=True, slots=True)
class CountryPrice:
    """What a draft costs in one country; `units` is what one segment costs for all its recipients."""

    name: str
    price: Decimal
    price_units: int
    count: int
    cost: Decimal
    units: int


def describe(
    draft: Draft, review: Review, balance: Decimal, asked_at: datetime | None = None, note: str = ""
) -> Mapping[str, Any]:
    """Return what `compose_live.html.jinja` shows.

    `asked_at` is when the text was sent for review, and `note` what was typed beside that button.
    """
    size = segments.measure(draft.message)
    accepted = review.accepted
    segment_cost = sum((one.price_usd for one in accepted), Decimal(0))
    rejected = next((one for one in review.refusals if isinstance(one, ContentRejected)), None)
    cost = segment_cost * size.segments
    missing = max(cost - balance, Decimal(0))
    return {
        "is_filled": bool(draft.recipients or draft.message),
        "size": size,
        "room": segments.room(draft.message),
        "numbers": [one.number for one in accepted],
        # Contacts of lists, whose price is known once they are checked.
        "listed": 0,
        "left_out": review.rejected,
        "countries": _list_prices(review.tariff, accepted, size.segments),
        "cost": cost,
        "units": int(segment_cost / _UNIT),
        "balance_units": int(balance / _UNIT),
        "missing": missing,
        "problem": _say_problem(review, accepted),
        "advice": _advise(draft.message, segment_cost),
        "offence": None if rejected is None else _explain_offence(draft.message, rejected),
        "is_good": rejected is None and len(draft.message) >= JUDGED_MIN and size.segments <= SEGMENTS_MAX,
        "asked_at": asked_at,
        "note": note,
    }


def _list_prices(tariff: Tariff, accepted: Sequence[Recipient], size: int) -> Sequence[CountryPrice]:
    counts = Counter(one.country for one in accepted)
    prices = {
        one.country: one.price_usd
        for one in tariff.prices
        if one.channel == CHANNEL and one.status == PriceStatus.ACTIVE
    }
    listed = []
    for one in tariff.destinations:
        if one.country in prices:
            price, count = prices[one.country], counts[one.country]
            each = price * count
            listed.append(
                CountryPrice(one.name, price, int(price / _UNIT), count, each * size, int(each / _UNIT))
            )
    return listed


def _say_problem(review: Review, accepted: Sequence[Recipient]) -> str | None:
    """Say why a draft cannot be sent at all; the script itself sees a long text and a low balance."""
    if len(review.entries) > RECIPIENTS_MAX:
        most = write_count(RECIPIENTS_MAX)
        return _("More than {most} numbers. Send to at most {most} at once.").format(most=most)
    if review.entries and not accepted:
        return _("We cannot send to any of these numbers.")
    if any(isinstance(one, ContentRejected) for one in review.refusals):
        return _("The text is refused.")
    return None


def say(refusal: Refusal) -> str:
    """Say why a draft was refused."""
    detail = refusal.details[0] if refusal.details else {}
    match refusal:
        case TooManyRecipients():
            return _(
                "You entered more than {most} numbers. Send to the first {most} now and to the others "
                "afterwards, or upload them all in a file."
            ).format(most=write_count(RECIPIENTS_MAX))
        case TooManySegments():
            return _say_too_long(detail)
        case ContentRejected():
            if detail["category"] == ContentRejected.BLOCKED:
                return _("We have blocked texts like this one.")
            if detail["drop"]:
                return _("Part of this text is marketing, which we do not send. Leave that part out.")
            return _(
                "This is marketing, which we do not send. Send only what people asked for or need to know."
            )
        case ServiceUnavailable():
            return _("The service cannot answer right now. Nothing was sent. Press Send again in a moment.")
    return say_refusal(refusal)


def _say_too_long(detail: Mapping[str, Any]) -> str:
    forced = detail["ucs2_characters"]
    values = {"count": detail["segments"], "encoding": detail["encoding"], "most": SEGMENTS_MAX}
    if not forced:
        said = _("The text takes {count} segments ({encoding}). Shorten it to at most {most}.")
        return said.format(**values)
    return _(
        "The text takes {count} segments ({encoding}). Shorten it to at most {most}, or leave out the "
        "characters that make segments shorter: {characters}"
    ).format(**values, characters=_name_all(forced))


def _name_all(characters: Sequence[str]) -> str:
    more = ["…"] if len(characters) > CHARACTERS_SHOWN else []
    return " ".join([*(gsm7.name(one) for one in characters[:CHARACTERS_SHOWN]), *more])


def _advise(text: str, segment_cost: Decimal) -> Mapping[str, str] | None:
    """Say how a text could be shorter; `left` are the characters that have no plain spelling."""
    forced = segments.ucs2_characters(text)
    if not forced:
        return None
    respelt = gsm7.respell(text)
    pairs = [f"{gsm7.name(one)} → {gsm7.name(other)}" for one, other in respelt.replaced]
    fewer = segments.measure(text).segments - segments.measure(respelt.text).segments
    saving = _("saves no segment yet, but leaves more room")
    if fewer > 0:
        saving = ngettext("saves {count} segment", "saves {count} segments", fewer).format(count=fewer)
        if segment_cost:
            saving += " (" + write_cost(segment_cost * fewer) + ")"
    return {
        "forced": _name_all(forced),
        "pairs": ", ".join(pairs[:CHARACTERS_SHOWN]),
        "saving": saving,
        "left": _name_all(respelt.left),
        "text": respelt.text,
    }


def _explain_offence(text: str, rejected: ContentRejected) -> Mapping[str, Any]:
    """Say why a text is refused: its pieces, those that weighed marked, and what to leave out."""
    pieces: list[tuple[str, bool]] = []
    end = 0
    for reason in sorted(rejected.detail["reasons"], key=lambda one: int(one["start"])):
        # What overlaps was marked with the one before.
        start = max(end, reason["start"])
        if reason["end"] > start:
            pieces += [(text[end:start], False), (text[start : reason["end"]], True)]
            end = reason["end"]
    pieces.append((text[end:], False))
    return {
        "said": say(rejected),
        "pieces": [(piece, marked) for piece, marked in pieces if piece],
        "drop": rejected.detail["drop"],
    }
