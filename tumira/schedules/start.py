"""Begins a scheduled send, once.

One transaction locks the schedule, releases its money, decides the send as any other call is decided, charges
it, and stores the outcome. The account is locked from the release to the commit, so nobody
else can spend the money in between, and a worker that dies on the way has done nothing. A file is only set in
motion here, with its money still held: each of its chunks releases and pays its own part.
"""

from decimal import Decimal
from hashlib import sha256
from typing import Final

from tumira.accounts import holds, message_settings
from tumira.accounts import store as accounts
from tumira.accounts.api_keys import Scope
from tumira.content import near_line, template_store
from tumira.content.near_line_store import MarkedSend
from tumira.core import money
from tumira.core.errors import (
    AccountSuspended,
    ContentRejected,
    InsufficientBalance,
    Refusal,
    SpendLimitReached,
)
from tumira.core.ids import SCHEDULE, write_id
from tumira.core.translation import _, mark
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import CHANNEL
from tumira.pricing.quote import ValidRequest
from tumira.schedules import store
from tumira.schedules.manage import ACCOUNT_WAIT_MS, end_unsent, judged_by
from tumira.schedules.store import NextSchedule, Schedule, ScheduleState
from tumira.schedules.times import is_too_late, write_start
from tumira.sending.admit import Rules, admit_alone
from tumira.sending.large import write_large
from tumira.sending.limits import refuse_charge
from tumira.sending.owner_notices import NoticeKind, OwnerNotice, notify_owners
from tumira.sending.types import Answered, Call, IdempotencyKey, Large, Refused, Send, Sent
from tumira.uploads import chunks
from tumira.uploads import store as uploads
from tumira.uploads.price import price_rest
from tumira.uploads.screen import screen_rest
from tumira.uploads.store import SCHEDULED

_LATE: Final = mark("The service was away at that time, and for more than 6 hours.")
_UNAPPROVED: Final = mark("Nobody approved it in time.")
_NOBODY: Final = mark("None of the recipients can be sent to any more.")
_NO_FILE: Final = mark("The file is not there any more.")
_FILE_CHANGED: Final = mark(
    "Some of the numbers or texts in the file cannot be sent any more. Check it again."
)


class _Problem(Exception):  # noqa: N818 - a reason to send nothing, not an error of ours
    """Nothing of a schedule is sent, for this reason; raised to roll back what was written so far."""


async def start(database: Database, due: NextSchedule) -> bool:
    """Begin a schedule that is due; False if another worker has locked it, or it was changed."""
    refused = 0
    if due.upload_id is not None:
        # Before the transaction, chunk by chunk: a file of ten thousand texts takes a while.
        is_old = due.judged_by != judged_by()
        refused = await screen_rest(database, due.account_id, due.upload_id, judge_again=is_old)
    result: MarkedSend | str | None
    async with database.transaction() as connection:
        await connection.execute(f"SET LOCAL lock_timeout = {ACCOUNT_WAIT_MS}")
        schedule = await store.claim(connection, due.id)
        if schedule is None:
            return False
        try:
            async with connection.transaction():
                result = await _send(connection, schedule, refused)
        except _Problem as problem:
            result = str(problem)
        if isinstance(result, str):
            await _end(connection, schedule, result)
    if isinstance(result, MarkedSend):
        await near_line.record(database, [result])
    return True


async def _send(connection: Connection, schedule: Schedule, refused: int) -> MarkedSend | str | None:
    """Send a claimed schedule; return a text near the line, or a sentence that says why it is not sent."""
    if is_too_late(schedule.start_at, await clock.read_now(connection)):
        return _(_LATE)
    if schedule.lacks_approval:
        return _(_UNAPPROVED)
    if schedule.upload_id is None:
        return await _send_message(connection, schedule)
    return await _send_file(connection, schedule, refused)


async def _end(connection: Connection, schedule: Schedule, problem: str) -> None:
    """End a schedule without a send, and notify the owner."""
    await end_unsent(connection, schedule, ScheduleState.NOT_SENT, problem)
    words = _("Your send of {start} was not made. {problem} Its {amount} are back in your balance.")
    text = words.format(start=write_start(schedule.start_at), problem=problem, amount=_usd(schedule.held))
    await _tell(connection, schedule, _("Your scheduled send was not made"), text)


async def _tell(connection: Connection, schedule: Schedule, subject: str, text: str) -> None:
    notice = OwnerNotice(schedule.account_id, subject, text)
    await notify_owners(connection, NoticeKind.SCHEDULE, [notice], await clock.read_now(connection))


async def _send_message(connection: Connection, schedule: Schedule) -> MarkedSend | str | None:
    numbers = await store.list_recipients(connection, schedule.account_id, schedule.id)
    if not numbers:
        return _(_NOBODY)
    await holds.release(connection, schedule.id)
    request = ValidRequest(CHANNEL, numbers, schedule.message, schedule.reference, dry_run=False)
    call = Call(schedule.account_id, None, Scope.SEND, Send(request, _idempotency(schedule)))
    accepted: list[Sent] = []

    def render(sent: Sent) -> bytes:
        accepted.append(sent)
        return b"{}"

    decision = await admit_alone(connection, Rules(), render, call)
    if isinstance(decision, Large):
        try:
            decision = await write_large(connection, decision, render)
        except Refusal as refusal:
            raise _Problem(_say(refusal)) from refusal
    if isinstance(decision, Refused):
        # A refused text stays recorded, so that its owner can ask for a review.
        return _say(decision.refusal)
    assert isinstance(decision, Answered)
    assert not decision.replayed, "a schedule is sent once, by whoever holds it"
    (sent,) = accepted
    if not sent.quote.numbers:
        raise _Problem(_(_NOBODY))
    if await _lacks_approval(connection, schedule, sent.quote.total_cost):
        raise _Problem(_(_UNAPPROVED))
    await store.mark_ended(
        connection,
        schedule.id,
        ScheduleState.SENT,
        batch_id=sent.batch_id,
        sent_cost=sent.quote.total_cost,
        left_out=len(sent.quote.rejected),
    )
    return decision.marked


def _idempotency(schedule: Schedule) -> IdempotencyKey:
    """Return a key that bills once even if all that guards the schedule should fail."""
    key = f"schedule:{write_id(SCHEDULE, schedule.id)}"
    return IdempotencyKey(key, sha256(key.encode()).digest())


async def _send_file(connection: Connection, schedule: Schedule, refused: int) -> str | None:
    """Set a file in motion with the money that it costs now still held; or say why not."""
    assert schedule.upload_id is not None
    upload = await uploads.hold(connection, schedule.account_id, schedule.upload_id)
    if upload is None or upload.state != SCHEDULED:
        return _(_NO_FILE)
    offer = await price_rest(connection, upload)
    if offer.unreachable or upload.policy_version != await template_store.get_version(connection):
        return _(_FILE_CHANGED)
    if not offer.count:
        return _(_NOBODY)
    if await _lacks_approval(connection, schedule, offer.total_cost):
        return _(_UNAPPROVED)
    await holds.release(connection, schedule.id)
    account = await accounts.lock(connection, schedule.account_id)
    refusal = refuse_charge(account, offer.total_cost, await clock.read_now(connection))
    if refusal is not None:
        return _say(refusal)
    is_held = await holds.hold(connection, account.id, schedule.id, offer.total_cost)
    assert is_held, "the account is locked, and its balance covers it"
    await chunks.set_costs(connection, upload.id, offer.costs)
    await uploads.mark_sending(connection, upload.id)
    await uploads.renew(connection, upload.id)
    await store.mark_ended(
        connection, schedule.id, ScheduleState.SENT, sent_cost=offer.total_cost, left_out=refused
    )
    if refused:
        text = _("{count} rows of your scheduled file {name} are refused and were left out.")
        text = text.format(count=f"{refused:,}", name=upload.file_name)
        await _tell(connection, schedule, _("Rows of your scheduled file were left out"), text)
    return None


async def _lacks_approval(connection: Connection, schedule: Schedule, cost: Decimal) -> bool:
    """Tell whether a price or a rule of now needs a second person, who was not asked."""
    above = await message_settings.find_approval_above(connection, schedule.account_id)
    return above is not None and cost > above and schedule.approved_at is None


def _say(refusal: Refusal) -> str:
    detail = refusal.details[0] if refusal.details else {}
    match refusal:
        case InsufficientBalance():
            words = _("It costs {required} now, and your balance is {available}.")
            return words.format(
                required=_usd(Decimal(detail["required"])), available=_usd(Decimal(detail["available"]))
            )
        case SpendLimitReached() if "call_limit" in detail:
            return _("It costs more than your limit per send.")
        case SpendLimitReached():
            return _("It would exceed your daily limit.")
        case ContentRejected():
            return _("The text is refused as marketing.")
        case AccountSuspended():
            return _("Your account is suspended.")
    return refusal.message


def _usd(amount: Decimal) -> str:
    return f"US${money.write(amount).removesuffix('00')}"
