"""Providers that data alone cannot describe."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from tumira.carriers.http.documents import as_money, as_text
from tumira.carriers.http.values import SubmitAnswer, SubmitVerdict

# Returns the meaning of an answer, from what the rules found in it and the document.
Adapter = Callable[[SubmitAnswer, Any], SubmitAnswer]


def count_vonage_parts(found: SubmitAnswer, document: Any) -> SubmitAnswer:
    """Vonage answers, bills and reports each part of a long text on its own.

    The id of the first part stands for the message; the other parts are found by our reference, so the first
    receipt of any part decides.
    """
    parts = document.get("messages") if isinstance(document, Mapping) else None
    if found.verdict is not SubmitVerdict.TAKEN or not isinstance(parts, list):
        return found
    if not all(isinstance(part, Mapping) and as_text(part.get("status")) == "0" for part in parts):
        # The handset gets a text with a hole; sent again it would get parts twice.
        return SubmitAnswer(
            SubmitVerdict.REFUSED, reason="CARRIER_REJECTED", alarm=True, detail="only some parts were taken"
        )
    costs = [as_money(part.get("message-price")) for part in parts]
    known = [cost[0] for cost in costs if cost is not None]
    cost = sum(known, Decimal(0)) if len(known) == len(parts) else None
    return msgspec.structs.replace(found, segments=len(parts), cost=cost)


ADAPTERS: Final[Mapping[str, Adapter]] = {
    "": lambda found, _document: found,
    "vonage": count_vonage_parts,
}
