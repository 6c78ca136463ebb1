"""Rows of a checked file that may not be sent any more, found before its owner agrees and before each chunk.

Where templates have changed since the check, texts are compared with them again; where the content check
itself has, they are judged again. Rows that are no longer allowed are left out, cost nothing, and are shown
to the owner. So are recipients who have opted out.
"""

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Final

from msgspec import structs

from tumira.content import template_store
from tumira.content.check import check_text
from tumira.content.passcodes import is_passcode
from tumira.content.templates import Policy
from tumira.core.ids import AccountId, UploadId
from tumira.core.translation import _, mark
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.store import get_tariff
from tumira.replies import opt_outs
from tumira.sending import fairness
from tumira.uploads import chunks
from tumira.uploads import store as uploads
from tumira.uploads.chunks import Chunk
from tumira.uploads.csv_file import find_number_column
from tumira.uploads.price import price_chunk
from tumira.uploads.rows import RowCode, RowFault
from tumira.uploads.store import SENDING, SENT, STOPPED, Upload

ACCOUNT_WAIT_MS: Final = 5_000

_BLOCKED: Final = mark("This text has been blocked since the file was checked.")
_NOT_ALLOWED: Final = mark(
    "This text is marketing, and the template that allowed it has been removed since the file was checked."
)
_REFUSED: Final = mark(
    "This text is marketing by the content check, which has changed since the file was checked."
)
# As the rows say that are erased after they were sent.
_ERASED: Final = "This row was erased on the request of its recipient."
_OPTED_OUT: Final = mark("This recipient has opted out of your messages since the file was checked.")


async def screen_rest(
    database: Database, account_id: AccountId, upload_id: UploadId, *, judge_again: bool = False
) -> int:
    """Check the unsent rest of a file by the current templates; return how many rows were left out.

    `judge_again` is for a file whose texts were judged by another version of the content check.

    Each chunk has its own transaction: a file of ten thousand texts takes a while.
    """
    refused = 0
    after = -1
    policy: Policy | None = None
    while True:
        async with database.transaction() as connection:
            await connection.execute(f"SET LOCAL lock_timeout = {ACCOUNT_WAIT_MS}")
            upload = await uploads.hold(connection, account_id, upload_id)
            if upload is None or upload.state in {SENDING, SENT}:
                return refused
            if policy is None:
                is_current = upload.policy_version == await template_store.get_version(connection)
                if is_current and not judge_again:
                    return refused
                policy = await template_store.get_policy(connection)
            chunk = await chunks.find_next(connection, upload.id, after)
            if chunk is None:
                await uploads.set_policy_version(connection, upload.id, policy.version)
                if upload.state == STOPPED:
                    await uploads.mark_sent(connection, upload.id)
                return refused
            after = chunk.number
            faults = await asyncio.to_thread(list_refused, policy, upload, chunk, judge_again=judge_again)
            left = await leave_out(connection, upload, chunk, faults)
            refused += len(chunk.recipients) - len(left.recipients)


async def leave_out(
    connection: Connection, upload: Upload, chunk: Chunk, faults: Sequence[RowFault]
) -> Chunk:
    """Remove the rows of a chunk that may not be sent any more, and return the rest."""
    if not faults:
        return chunk
    tariff = await get_tariff(connection)
    left = _without(chunk, {fault.line for fault in faults})
    # The agreed cost of the others stands, unless prices have changed; then nothing is sent.
    before = await asyncio.to_thread(price_chunk, tariff, upload.message, chunk)
    after = await asyncio.to_thread(price_chunk, tariff, upload.message, left)
    saved = before.quote.total_cost - after.quote.total_cost
    left = structs.replace(
        left,
        cost=max(chunk.cost - saved, Decimal(0)),
        leg_countries=[leg.country for leg in after.quote.legs],
        leg_segments=after.leg_segments,
        leg_counts=[leg.count for leg in after.quote.legs],
    )
    await chunks.leave_out(connection, upload.id, left, faults)
    return left


def _without(chunk: Chunk, lines: AbstractSet[int]) -> Chunk:
    places = [place for place, line in enumerate(chunk.lines) if line not in lines]
    return structs.replace(
        chunk,
        lines=[chunk.lines[place] for place in places],
        recipients=[chunk.recipients[place] for place in places],
        bodies=None if chunk.bodies is None else [chunk.bodies[place] for place in places],
        by_template=[line for line in chunk.by_template if line not in lines],
        near_line=[line for line in chunk.near_line if line not in lines],
    )


def list_refused(
    policy: Policy, upload: Upload, chunk: Chunk, *, judge_again: bool = False
) -> Sequence[RowFault]:
    """Return the rows of a chunk that the current templates do not allow.

    The classifier's verdict from the check still holds as long as the classifier is the same, so each text
    is only compared with templates.
    """
    texts = chunk.bodies or [upload.message] * len(chunk.recipients)
    by_template = frozenset(chunk.by_template)
    # The texts of all rows, whether each needs a template, and why it may not be sent any more.
    reasons: dict[tuple[str, bool], str | None] = {}
    faults = []
    for line, number, text in zip(chunk.lines, chunk.recipients, texts, strict=True):
        needs_template = line in by_template
        key = (text, needs_template)
        if key not in reasons:
            if policy.blocks(upload.account_id, text):
                reasons[key] = _BLOCKED
            elif needs_template and not policy.allows(upload.account_id, text):
                reasons[key] = _NOT_ALLOWED
            elif judge_again and check_text(policy, upload.account_id, text) is not None:
                reasons[key] = _REFUSED
            else:
                reasons[key] = None
        reason = reasons[key]
        if reason is not None:
            cells = cells_of(upload, number)
            faults.append(RowFault(line, cells, RowCode.NO_LONGER_ALLOWED.value, reason, None))
    return faults


async def list_opted_out(connection: Connection, upload: Upload, chunk: Chunk) -> Sequence[RowFault]:
    """Return the rows of a chunk whose recipients have opted out since the check."""
    opted_out = await opt_outs.find_among(connection, upload.account_id, chunk.recipients)
    codes = frozenset(find_passcodes(upload, chunk))
    barred, barred_codes = (opted_out.bar(upload.account_id, is_passcode=one) for one in (False, True))
    return [
        RowFault(line, cells_of(upload, number), RowCode.NO_LONGER_ALLOWED.value, _(_OPTED_OUT), None)
        for line, number in zip(chunk.lines, chunk.recipients, strict=True)
        if number in (barred_codes if number in codes else barred)
    ]


def cells_of(upload: Upload, number: str) -> Sequence[str]:
    """Write the row of a number as far as it is stored, with the number in its column of the download."""
    place = find_number_column(upload.columns)
    return [number if column == place else "" for column in range(len(upload.columns))]


def find_passcodes(upload: Upload, chunk: Chunk) -> Sequence[str]:
    """Return the numbers of a chunk that get a passcode; a file of more than a few rows has none."""
    if upload.recipients > fairness.SMALL_MAX:
        return []
    texts = chunk.bodies or [upload.message] * len(chunk.recipients)
    return [number for number, text in zip(chunk.recipients, texts, strict=True) if is_passcode(text)]


async def erase_scheduled_rows(connection: Connection, upload_id: UploadId, number: int, to: str) -> int:
    """Leave the rows to a number out of one chunk of a scheduled file, and return how many there were."""
    upload = await uploads.hold_scheduled(connection, upload_id)
    chunk = None if upload is None else await chunks.find_next(connection, upload_id, number - 1)
    if upload is None or chunk is None or chunk.number != number:
        return 0
    cells = ["erased"] * len(upload.columns)
    faults = [
        RowFault(line, cells, RowCode.NO_LONGER_ALLOWED.value, _ERASED, None)
        for line, recipient in zip(chunk.lines, chunk.recipients, strict=True)
        if recipient == to
    ]
    await leave_out(connection, upload, chunk, faults)
    return len(faults)
