"""Applies an answer of a provider, or a decision of the operator, to a top-up. Each is one transaction.

The top-up's row is locked first: of several processes with the same answer, the first one moves it and the
others find it moved. An answer that was asked for under a lease sets the next poll only while that lease
holds: a notice that arrived meanwhile leads to another poll, whatever this answer says.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, assert_never

import asyncpg

from tumira import audit_log
from tumira.accounts import store as accounts
from tumira.audit_log import Actor
from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.core.ids import TOP_UP, TopUpId, write_id
from tumira.identity.manage_accounts import record_change
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.topups import states as rules
from tumira.topups import store as top_ups
from tumira.topups.states import (
    OPEN_FOR,
    Currency,
    Expired,
    FailureReason,
    InDoubt,
    Method,
    NotPaid,
    Paid,
    ProviderAnswer,
    Reversed,
    StillPending,
    TopUp,
    TopUpState,
    Unreachable,
    may_move,
    may_resolve,
    poll_delay_s,
    to_usd,
)
from tumira.topups.store import TopUpUpdate
from tumira.topups.voucher_pins import Issuer

GATEWAY: Final = Actor("gateway")
# For so long after its end a top-up is asked about that somebody says has changed.
LOOKED_AFTER_FOR: Final = timedelta(days=180)


@dataclass(frozen=True, slots=True)
class Settled:
    """What a word came to: the state before it, and the top-up after it."""

    before: TopUpState
    top_up: TopUp

    @property
    def moved(self) -> bool:
        """Tell whether it changed anything that somebody wants to hear of."""
        return self.before is not self.top_up.state


async def settle(
    database: Database, top_up_id: TopUpId, news: ProviderAnswer, leased_until: datetime | None = None
) -> Settled:
    """Carry out what a provider says about a top-up, asked under a lease where one is given."""
    try:
        return await _settle(database, top_up_id, news, leased_until)
    except asyncpg.UniqueViolationError:
        # Its reference stands at another top-up that was credited: one of the two is wrong.
        assert isinstance(news, Paid)
        problem = f"{news.provider_reference} was credited for another top-up already"
        unclear = InDoubt(problem, is_last=True, sealed_change=news.sealed_change)
        return await _settle(database, top_up_id, unclear, leased_until)


async def _settle(
    database: Database, top_up_id: TopUpId, news: ProviderAnswer, leased_until: datetime | None
) -> Settled:
    async with database.transaction() as connection:
        before = await top_ups.lock(connection, top_up_id)
        # A notice has made it due since, or somebody else has asked after that notice.
        is_overtaken = leased_until is not None and before.due_at != leased_until
        return await settle_in(connection, before, news, is_overtaken=is_overtaken)


async def settle_in(
    connection: Connection, before: TopUp, news: ProviderAnswer, *, is_overtaken: bool = False
) -> Settled:
    """Carry out a word on a top-up that is held, in the transaction that holds it."""
    now = await clock.read_now(connection)
    step = _step(before, news, now)
    if step is None:
        await _leave(connection, before, news, now, is_overtaken=is_overtaken)
        return Settled(before.state, before)
    await _carry_out(connection, before, replace(step, keeps_due=is_overtaken))
    return Settled(before.state, await top_ups.lock(connection, before.id))


async def _leave(
    connection: Connection, before: TopUp, news: ProviderAnswer, now: datetime, *, is_overtaken: bool
) -> None:
    """Leave a top-up that has ended as it is, and see to what has to be known about it all the same."""
    if before.state in {TopUpState.FAILED, TopUpState.EXPIRED} and isinstance(news, Paid):
        problem = (
            f"{news.provider_reference}: {news.paid} {before.currency} was paid after it had {before.state}"
        )
        await top_ups.note_problem(connection, before.id, problem)
    if is_overtaken:
        return
    is_over = before.finished_at is not None and now - before.finished_at > LOOKED_AFTER_FOR
    may_tell = isinstance(news, Unreachable) or (isinstance(news, InDoubt) and not news.is_last)
    if before.state is not TopUpState.REVERSED and may_tell and not is_over:
        # Somebody said that it was taken back, or paid after all, and that could not be found out yet.
        await top_ups.postpone(connection, before.id, poll_delay_s(max(1, before.tries)))
    else:
        await top_ups.stop_polling(connection, before.id)


async def _carry_out(connection: Connection, before: TopUp, step: TopUpUpdate) -> None:
    if step.state is TopUpState.REVERSED:
        assert before.amount is not None
        taken = await top_ups.take_back(
            connection, before.account_id, before.id, before.method, before.amount
        )
        step = replace(step, owed=before.amount - taken)
        await accounts.mark_suspended(connection, before.account_id, suspended=True)
        await audit_log.record(
            connection, before.account_id, GATEWAY, "account suspended", "a top-up was taken back"
        )
    await top_ups.mark(connection, before.id, step)
    if step.state is TopUpState.CREDITED:
        assert step.amount is not None
        await top_ups.credit(connection, before.account_id, before.id, before.method, step.amount)


def _step(before: TopUp, news: ProviderAnswer, now: datetime) -> TopUpUpdate | None:
    """Return what becomes of a top-up, or None when the word comes too late to change anything."""
    step = _wanted(before, news, now)
    is_same_and_open = step.state is before.state and before.state in rules.OPEN_STATES
    return step if is_same_and_open or may_move(before.state, step.state) else None


def _wanted(before: TopUp, news: ProviderAnswer, now: datetime) -> TopUpUpdate:
    is_over = now - before.created_at > OPEN_FOR
    wait_s = poll_delay_s(max(1, before.tries))
    match news:
        case StillPending():
            if is_over:
                return TopUpUpdate(TopUpState.EXPIRED, kept=news.kept)
            return TopUpUpdate(
                TopUpState.PENDING,
                wait_s,
                provider_reference=news.provider_reference,
                kept=news.kept,
                keeps_pin=True,
            )
        case Paid():
            return _credit(before, news)
        case NotPaid():
            return TopUpUpdate(TopUpState.FAILED, reason=news.reason, problem=news.problem)
        case Expired():
            return TopUpUpdate(TopUpState.EXPIRED)
        case InDoubt():
            asks_again = not news.is_last and not is_over
            return TopUpUpdate(
                TopUpState.DOUBT,
                wait_s if asks_again else None,
                problem=news.problem,
                keeps_pin=asks_again,
                sealed_change=news.sealed_change,
            )
        case Unreachable():
            # What waits for its customer still does. One whose start was never answered is in doubt.
            waits = before.state is TopUpState.PENDING and not is_over
            return TopUpUpdate(
                TopUpState.PENDING if waits else TopUpState.DOUBT,
                None if is_over else wait_s,
                problem=news.problem,
                keeps_pin=not is_over,
            )
        case Reversed():
            if before.state is TopUpState.CREDITED:
                return TopUpUpdate(TopUpState.REVERSED, problem=news.problem)
            # It went before it was ours.
            return TopUpUpdate(TopUpState.FAILED, reason=FailureReason.CANCELLED, problem=news.problem)
        case _:
            assert_never(news)


def _credit(before: TopUp, news: Paid) -> TopUpUpdate:
    amount = to_usd(news.paid, before.rate)
    if amount <= 0:
        problem = f"{news.paid} {before.currency} was taken, worth nothing"
        return TopUpUpdate(TopUpState.DOUBT, problem=problem, sealed_change=news.sealed_change)
    # In dollars we know to the cent what was asked for: anything else is not what the customer agreed to.
    if before.currency is Currency.USD and news.paid != before.asked:
        problem = f"{news.provider_reference}: {news.paid} was taken where {before.asked} was asked for"
        return TopUpUpdate(TopUpState.DOUBT, problem=problem)
    return TopUpUpdate(
        TopUpState.CREDITED,
        paid=news.paid,
        amount=amount,
        provider_reference=news.provider_reference,
        sealed_change=news.sealed_change,
    )


async def resolve(
    database: Database,
    top_up_id: TopUpId,
    *,
    paid: Decimal | None,
    provider_reference: str | None,
    note: str,
    actor: Actor,
) -> Settled:
    """Decide on the operator's word: credit what was paid, or with None for `paid` say that nothing was."""
    state = TopUpState.FAILED if paid is None else TopUpState.CREDITED
    try:
        async with database.transaction() as connection:
            if await top_ups.find_any(connection, top_up_id) is None:
                raise OperatorError("There is no such top-up; `tumira topup list` shows them.")
            before = await top_ups.lock(connection, top_up_id)
            if not may_resolve(before.state, state):
                raise OperatorError(f"This top-up is {before.state}; that is not the operator's to change.")
            if paid is not None and to_usd(paid, before.rate) <= 0:
                raise OperatorError("That is worth less than the smallest amount; nothing was credited.")
            step = TopUpUpdate(state, reason=FailureReason.DECIDED, note=note, resolved_by=actor.name)
            if paid is not None:
                reference = provider_reference or before.provider_reference or f"operator:{before.id}"
                step = replace(
                    step,
                    reason=None,
                    paid=paid,
                    amount=to_usd(paid, before.rate),
                    provider_reference=reference,
                )
            await _carry_out(connection, before, step)
            outcome = (
                "nothing was paid" if step.amount is None else f"{money.write(step.amount)} USD credited"
            )
            detail = f"{write_id(TOP_UP, top_up_id)}: {outcome}"
            await record_change(connection, before.account_id, actor, "top-up decided", detail, note=note)
            return Settled(before.state, await top_ups.lock(connection, top_up_id))
    except asyncpg.UniqueViolationError:
        raise OperatorError(
            "That reference was credited for another top-up already; nothing was credited."
        ) from None


# What has ended so is asked about no more: nothing that is said would move it.
_FINAL: Final = frozenset({TopUpState.REVERSED})


def can_poll(top_up: TopUp) -> bool:
    """Tell whether there is somebody to ask; deposits and our own vouchers are on our side."""
    is_elsewhere = top_up.method is Method.PAYNOW or (
        top_up.method is Method.VOUCHER and top_up.provider != Issuer.OWN
    )
    return is_elsewhere and top_up.state not in _FINAL


async def poll_again(database: Database, top_up_id: TopUpId, actor: Actor) -> None:
    """Have a worker ask the provider what became of a top-up, and carry that out."""
    async with database.transaction() as connection:
        found = await top_ups.find_any(connection, top_up_id)
        if found is None or not can_poll(found):
            raise OperatorError("Nobody can be asked about this top-up.")
        await top_ups.mark_due(connection, top_up_id)
        await audit_log.record_by_operator(
            connection, actor, "top-up asked about again", write_id(TOP_UP, top_up_id), found.account_id
        )
