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
from tumira.core.translation import _
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
    Method,
    NotPaid,
    Paid,
    PaymentInDoubt,
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
# A top-up that has ended is polled after a notice for this long.
LOOKED_AFTER_FOR: Final = timedelta(days=180)


@dataclass(frozen=True, slots=True)
class Settled:
    """The state before an answer was applied, and the top-up after it."""

    before: TopUpState
    top_up: TopUp

    @property
    def moved(self) -> bool:
        return self.before is not self.top_up.state


async def settle(
    database: Database, top_up_id: TopUpId, answer: ProviderAnswer, leased_until: datetime | None = None
) -> Settled:
    """Apply a provider's answer to a top-up; `leased_until` is the lease under which it was polled."""
    try:
        return await _settle(database, top_up_id, answer, leased_until)
    except asyncpg.UniqueViolationError:
        # Another credited top-up has the same reference: one of the two is wrong.
        assert isinstance(answer, Paid)
        problem = f"{answer.provider_reference} was credited for another top-up already"
        doubt = PaymentInDoubt(problem, is_last=True, sealed_change=answer.sealed_change)
        return await _settle(database, top_up_id, doubt, leased_until)


async def _settle(
    database: Database, top_up_id: TopUpId, answer: ProviderAnswer, leased_until: datetime | None
) -> Settled:
    async with database.transaction() as connection:
        before = await top_ups.lock(connection, top_up_id)
        # A notice has made it due since then, or another worker has polled after that notice.
        is_overtaken = leased_until is not None and before.due_at != leased_until
        return await settle_in(connection, before, answer, is_overtaken=is_overtaken)


async def settle_in(
    connection: Connection, before: TopUp, answer: ProviderAnswer, *, is_overtaken: bool = False
) -> Settled:
    """Apply an answer to a locked top-up, in the transaction that holds the lock."""
    now = await clock.read_now(connection)
    step = _wanted(before, answer, now)
    is_same_and_open = step.state is before.state and before.state in rules.OPEN_STATES
    if not is_same_and_open and not may_move(before.state, step.state):
        # It comes too late to change anything.
        await _leave(connection, before, answer, now, is_overtaken=is_overtaken)
        return Settled(before.state, before)
    await _carry_out(connection, before, replace(step, keeps_due=is_overtaken))
    return Settled(before.state, await top_ups.lock(connection, before.id))


async def _leave(
    connection: Connection, before: TopUp, answer: ProviderAnswer, now: datetime, *, is_overtaken: bool
) -> None:
    """Leave a top-up that has ended unchanged, but record a late payment and schedule the next poll."""
    if before.state in {TopUpState.FAILED, TopUpState.EXPIRED} and isinstance(answer, Paid):
        paid = f"{answer.provider_reference}: {answer.paid} {before.currency}"
        problem = f"{paid} was paid after it had {before.state}"
        await top_ups.note_problem(connection, before.id, problem)
    if is_overtaken:
        return
    is_over = before.finished_at is not None and now - before.finished_at > LOOKED_AFTER_FOR
    may_tell = isinstance(answer, Unreachable) or (isinstance(answer, PaymentInDoubt) and not answer.is_last)
    # A notice said that something changed, and the poll has not told yet what.
    asks_again = before.state is not TopUpState.REVERSED and may_tell and not is_over
    wait_s = poll_delay_s(max(1, before.tries)) if asks_again else None
    await top_ups.postpone(connection, before.id, wait_s)


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


def _wanted(before: TopUp, answer: ProviderAnswer, now: datetime) -> TopUpUpdate:
    is_over = now - before.created_at > OPEN_FOR
    wait_s = poll_delay_s(max(1, before.tries))
    match answer:
        case StillPending():
            if is_over:
                return TopUpUpdate(TopUpState.EXPIRED, kept=answer.kept)
            return TopUpUpdate(
                TopUpState.PENDING,
                wait_s,
                provider_reference=answer.provider_reference,
                kept=answer.kept,
                keeps_pin=True,
            )
        case Paid():
            return _credit(before, answer)
        case NotPaid():
            return TopUpUpdate(TopUpState.FAILED, reason=answer.reason, problem=answer.problem)
        case Expired():
            return TopUpUpdate(TopUpState.EXPIRED)
        case PaymentInDoubt():
            asks_again = not answer.is_last and not is_over
            return TopUpUpdate(
                TopUpState.DOUBT,
                wait_s if asks_again else None,
                problem=answer.problem,
                keeps_pin=asks_again,
                sealed_change=answer.sealed_change,
            )
        case Unreachable():
            # A pending top-up stays pending. A start that was never answered is in doubt.
            waits = before.state is TopUpState.PENDING and not is_over
            return TopUpUpdate(
                TopUpState.PENDING if waits else TopUpState.DOUBT,
                None if is_over else wait_s,
                problem=answer.problem,
                keeps_pin=not is_over,
            )
        case Reversed():
            if before.state is TopUpState.CREDITED:
                return TopUpUpdate(TopUpState.REVERSED, problem=answer.problem)
            # It was reversed before it was credited.
            return TopUpUpdate(TopUpState.FAILED, reason=FailureReason.CANCELLED, problem=answer.problem)
        case _:
            assert_never(answer)


def _credit(before: TopUp, answer: Paid) -> TopUpUpdate:
    amount = to_usd(answer.paid, before.rate)
    if amount <= 0:
        problem = f"{answer.paid} {before.currency} was taken, worth nothing"
        return TopUpUpdate(TopUpState.DOUBT, problem=problem, sealed_change=answer.sealed_change)
    # In dollars the exact amount is known: the customer did not agree to any other.
    if before.currency is Currency.USD and answer.paid != before.asked:
        problem = f"{answer.provider_reference}: {answer.paid} was taken where {before.asked} was asked for"
        return TopUpUpdate(TopUpState.DOUBT, problem=problem)
    return TopUpUpdate(
        TopUpState.CREDITED,
        paid=answer.paid,
        amount=amount,
        provider_reference=answer.provider_reference,
        sealed_change=answer.sealed_change,
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
    """Apply the operator's decision: credit `paid`, or with None record that nothing was paid."""
    state = TopUpState.FAILED if paid is None else TopUpState.CREDITED
    try:
        async with database.transaction() as connection:
            if await top_ups.find_any(connection, top_up_id) is None:
                raise OperatorError(_("There is no such top-up."))
            before = await top_ups.lock(connection, top_up_id)
            if not may_resolve(before.state, state):
                fault = _("This top-up is {state}. Operators cannot change that.")
                raise OperatorError(fault.format(state=before.state))
            if paid is not None and to_usd(paid, before.rate) <= 0:
                raise OperatorError(_("This is worth less than US$0.0001. Nothing was credited."))
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
            _("This reference was already credited to another top-up. Nothing was credited.")
        ) from None


# No answer would move these.
_FINAL: Final = frozenset({TopUpState.REVERSED})


def can_poll(top_up: TopUp) -> bool:
    """Tell whether there is a provider to poll; deposits and own vouchers are in our own tables."""
    is_elsewhere = top_up.method is Method.PAYNOW or (
        top_up.method is Method.VOUCHER and top_up.provider != Issuer.OWN
    )
    return is_elsewhere and top_up.state not in _FINAL


async def poll_again(database: Database, top_up_id: TopUpId, actor: Actor) -> None:
    """Have a worker poll the provider and apply its answer."""
    async with database.transaction() as connection:
        found = await top_ups.find_any(connection, top_up_id)
        if found is None or not can_poll(found):
            raise OperatorError(_("This top-up cannot be checked with its provider any more."))
        await top_ups.mark_due(connection, top_up_id)
        await audit_log.record_by_operator(
            connection, actor, "top-up asked about again", write_id(TOP_UP, top_up_id), found.account_id
        )
