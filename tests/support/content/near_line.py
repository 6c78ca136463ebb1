"""Sends whose texts pass near the line, whatever the classifier of the day says about them."""

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from tests.support.content.texts import corpus
from tests.support.processes.service import Caller
from tests.support.sending.batchers import send_call
from tumira.content.classifier import classify
from tumira.content.verdict import NEAR_LINE, Label, Verdict
from tumira.sending.types import Call, Send

NEAR: Final = Verdict(Label.TRANSACTIONAL, NEAR_LINE, None, [], [])


def near_call(
    caller: Caller,
    body: str = "Dear member, our shop opens on Sunday at 8.",
    to: Sequence[str] = ("+263771200001",),
    idempotency_key: str | None = None,
    *,
    dry_run: bool = False,
) -> Call:
    call = send_call(caller, to, body, idempotency_key)
    assert isinstance(call.send, Send)
    request = structs.replace(call.send.request, dry_run=dry_run)
    return structs.replace(call, send=structs.replace(call.send, request=request, verdict=NEAR))


def find_near_text() -> str:
    """Return a message of the corpus that the classifier of the day passes near the line."""
    texts: list[str] = [row["text"] for row in corpus()]
    return next(text for text in texts if classify(text).near_the_line and '"' not in text)
