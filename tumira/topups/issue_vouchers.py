"""Issues and voids the operator's own vouchers."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from typing import Final
from uuid import UUID

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core import money
from tumira.core.days import LOCAL_TIME
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import VOUCHER, VoucherId, new_id, write_id
from tumira.core.translation import _
from tumira.identity.manage_accounts import AlreadySubmittedError
from tumira.postgres.pool import Database
from tumira.topups import vouchers
from tumira.topups.start import check_amount
from tumira.topups.voucher_pins import VoucherState, new_code, write_code
from tumira.topups.vouchers import Voucher

COUNT_MAX: Final = 1_000
NOTE_MAX: Final = 200

# Some scripts and emoji cannot be written without these.
_JOINERS: Final = "\u200c\u200d"


@dataclass(frozen=True, slots=True)
class Issued:
    """A voucher with its code, which is shown once and stored nowhere."""

    id: VoucherId
    code: str = field(repr=False)
    amount: Decimal
    expires_at: datetime | None


def check_issue(amount: Decimal, count: int, note: str, last_day: date | None) -> datetime | None:
    """Return when such vouchers would expire; raises FieldError where they cannot be issued."""
    check_amount(amount)
    if not 1 <= count <= COUNT_MAX:
        raise FieldError("count", _("Enter a number from 1 to {most}.").format(most=f"{COUNT_MAX:,}"))
    _check_note(note)
    expires_at = None if last_day is None else _end_of(last_day)
    if expires_at is not None and expires_at <= datetime.now(UTC):
        raise FieldError("expires", _("Choose today or a later day."))
    return expires_at


async def issue_vouchers(
    database: Database,
    amount: Decimal,
    count: int,
    *,
    note: str,
    last_day: date | None,
    actor: str,
    address: str | None = None,
    press: UUID | None = None,
) -> Sequence[Issued]:
    """Issue vouchers of one amount, valid to the end of a day or without end; a form is carried out once."""
    expires_at = check_issue(amount, count, note, last_day)
    note = _check_note(note)
    at_ms = time.time_ns() // 1_000_000
    codes = [new_code() for _ in range(count)]
    # Sorted, so that a list by id has the order in which the codes are shown.
    ids = sorted(VoucherId(new_id(at_ms)) for _ in range(count))
    async with database.transaction() as connection:
        if press is not None and not await audit_log.claim_form(connection, press):
            raise AlreadySubmittedError(_("These vouchers were already issued."))
        await vouchers.insert_many(
            connection, ids, codes, amount=amount, note=note, issued_by=actor, expires_at=expires_at
        )
        detail = f"{count} of {money.write(amount)} USD" + (f": {note}" if note else "")
        await audit_log.record_by_operator(connection, Actor(actor, address), "vouchers issued", detail)
    return [
        Issued(voucher_id, write_code(code), amount, expires_at)
        for voucher_id, code in zip(ids, codes, strict=True)
    ]


async def void_voucher(
    database: Database, voucher_id: VoucherId, *, note: str, actor: str, address: str | None = None
) -> Voucher:
    why = _check_note(note)
    if not why:
        raise FieldError("note", _("Enter a reason, such as: Sent to the wrong shop."))
    async with database.transaction() as connection:
        is_void = await vouchers.mark_void(connection, voucher_id, note=why, voided_by=actor)
        found = await vouchers.find(connection, voucher_id)
        if is_void:
            detail = f"{write_id(VOUCHER, voucher_id)}: {why}"
            await audit_log.record_by_operator(connection, Actor(actor, address), "voucher voided", detail)
    if found is None:
        raise OperatorError(_("There is no such voucher."))
    if not is_void:
        if found.state is VoucherState.USED:
            raise OperatorError(_("This voucher was already used. Nothing was changed."))
        raise OperatorError(_("This voucher is already void. Nothing was changed."))
    return found


def _check_note(note: str) -> str:
    note = " ".join(note.split())
    if len(note) > NOTE_MAX:
        raise FieldError("note", _("Enter at most {length} characters.").format(length=NOTE_MAX))
    if not all(one.isprintable() or one in _JOINERS for one in note):
        raise FieldError("note", _("The note contains characters that cannot be shown. Remove them."))
    return note


def _end_of(day: date) -> datetime:
    """Return when a day ends in our customers' time zone."""
    try:
        return datetime.combine(day + timedelta(days=1), time_of_day(), UTC) - LOCAL_TIME
    except OverflowError:
        raise FieldError("expires", _("Choose a day before the year 9999.")) from None
