"""How is each call of a group decided? In plain Python, over locked rows; nothing here waits or raises."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Final

from tumira.accounts import rate_limit
from tumira.accounts.api_keys import Scope
from tumira.accounts.store import LockedAccount
from tumira.content import check as screen_text
from tumira.content.store import NewRefusal
from tumira.content.templates import Policy
from tumira.core import days
from tumira.core.errors import (
    AccountSuspended,
    ApiKeyRevoked,
    IdempotencyConflict,
    InsufficientBalance,
    InsufficientScope,
    RateLimited,
    Refusal,
    SpendLimitReached,
)
from tumira.core.ids import AccountId, BatchId, message_ids, new_id
from tumira.pricing.destinations import Tariff
from tumira.pricing.quote import UNBILLED_OCTETS_MAX, Quote, SendRequest, quote, unbilled_octets
from tumira.sending import fairness
from tumira.sending.insert import Debit, Flow, NewBatch
from tumira.sending.lookups import Standing, Surroundings
from tumira.sending.types import (
    Admitted,
    Answered,
    Call,
    Decision,
    Large,
    Priced,
    Quota,
    Refused,
    Render,
    Send,
    Sent,
)

# A send of more recipients is written in a transaction of its own, so that it holds nobody up.
SMALL_SEND_MAX: Final = 50

DAY_S: Final = 86_400


class Deliberation:
    """Decides the calls of one group in order, and collects what their decisions change."""

    def __init__(
        self,
        held: Mapping[AccountId, LockedAccount],
        surroundings: Surroundings,
        tariff: Tariff,
        policy: Policy,
        render: Render,
    ) -> None:
        self._held = held
        self._surroundings = surroundings
        self._tariff = tariff
        self._policy = policy
        self._render = render
        self.touched: dict[AccountId, Decimal] = {}
        self.batches: list[NewBatch] = []
        self.debits: list[Debit] = []
        self.next_turns: dict[Flow, int] = {}
        self.content_refusals: list[NewRefusal] = []
        self._answers: dict[tuple[AccountId, str], tuple[bytes | None, bytes]] = {}

    def decide(self, call: Call, standing: Standing) -> Decision:
        """Decide one call: key, account, rate, and for a send all that follows."""
        account = self._held[call.account_id]
        now_us = self._surroundings.now_us
        refusal = _barred(call, standing, account)
        if refusal is not None:
            if isinstance(refusal, ApiKeyRevoked):
                return Refused(refusal, None)
            return Refused(
                refusal,
                Quota(account.rate_limit, rate_limit.look(account.window, account.rate_limit, now_us)),
            )
        look = rate_limit.look if call.key_id is None else rate_limit.take
        place = look(account.window, account.rate_limit, now_us)
        quota = Quota(account.rate_limit, place)
        if call.key_id is not None:
            if place.window is not account.window:
                # Also by a call that is refused: it may have dated anew what a wrong clock dated later.
                account.window = place.window
                self.touched.setdefault(account.id, Decimal(0))
            if not place.allowed:
                return Refused(_rate_limited(quota), quota)
        self.touched.setdefault(account.id, Decimal(0))
        if call.send is None:
            return Admitted(quota, account.balance, self._tariff)
        decision = self._decide_send(call, call.send, standing, quota)
        return Refused(decision, quota) if isinstance(decision, Refusal) else decision

    def _decide_send(
        self, call: Call, send: Send, standing: Standing, quota: Quota
    ) -> Priced | Answered | Large | Refusal:
        for fault in (send.body, send.idempotency_key):
            if isinstance(fault, Refusal):
                return fault
        assert not isinstance(send.idempotency_key, Refusal)
        dry_run = isinstance(send.request, SendRequest) and send.request.dry_run
        if send.idempotency_key is not None and not dry_run:
            earlier = self._earlier_answer(call.account_id, send.idempotency_key, standing)
            if earlier is not None:
                return replay(quota, send, *earlier)
        assert send.request is not None
        if isinstance(send.request, Refusal):
            return send.request
        priced = quote(self._tariff, send.request)
        if isinstance(priced, Refusal):
            return priced
        account = self._held[call.account_id]
        fault = self._screen(account, send, send.request)
        if fault is not None:
            return fault
        octets = unbilled_octets(send.request, priced)
        fault = over_limit(account, priced.total_cost, self._surroundings) or _over_unbilled_limit(
            account, octets, self._surroundings
        )
        if fault is not None:
            return fault
        if dry_run or send.agreed_cost not in {None, priced.total_cost}:
            return Priced(quota, priced)
        if priced.total_cost > account.balance:
            return InsufficientBalance.of(priced.total_cost, account.balance)
        batch = self._new_batch(account, send.request, priced)
        if len(priced.numbers) > SMALL_SEND_MAX:
            return Large(quota, call, batch)
        return self._accept(account, send, batch, quota)

    def _earlier_answer(
        self, account_id: AccountId, key: str, standing: Standing
    ) -> tuple[bytes | None, bytes] | None:
        earlier = self._answers.get((account_id, key))
        if earlier is None and standing.response is not None:
            earlier = (standing.fingerprint, standing.response)
        return earlier

    def _screen(self, account: LockedAccount, send: Send, request: SendRequest) -> Refusal | None:
        rejected = screen_text.screen(self._policy, account.id, request.body, send.verdict)
        if rejected is not None and not request.dry_run:
            self.content_refusals.append(
                screen_text.note(
                    account.id,
                    request.body,
                    rejected,
                    self._surroundings.now,
                    keep_text=account.review_consent,
                )
            )
        return rejected

    def _new_batch(self, account: LockedAccount, request: SendRequest, priced: Quote) -> NewBatch:
        batch_id = BatchId(new_id(self._surroundings.now_us // 1000))
        lane = fairness.lane(len(priced.numbers))
        runs = []
        for leg in priced.legs:
            flow = (account.id, leg.country, lane)
            clock = self._surroundings.clocks.get((leg.country, lane), 0)
            next_turn = self.next_turns.get(flow, self._surroundings.next_turns.get(flow, 0))
            run = fairness.run(clock, next_turn, priced.segments, account.weight, leg.count)
            self.next_turns[flow] = run.next_turn
            runs.append(iter(range(run.first, run.next_turn, run.step)))
        return NewBatch(
            id=batch_id,
            account_id=account.id,
            created_at=self._surroundings.now,
            request=request,
            quote=priced,
            lane=lane,
            message_ids=message_ids(batch_id, len(priced.numbers)),
            turns=[next(runs[leg]) for leg in priced.leg_of],
        )

    def _accept(self, account: LockedAccount, send: Send, batch: NewBatch, quota: Quota) -> Answered:
        octets = unbilled_octets(batch.request, batch.quote)
        spend(account, batch.quote.total_cost, local_day(self._surroundings), octets)
        self.touched[account.id] += batch.quote.total_cost
        debit = debit_of(batch, send, self._render(Sent(batch.id, batch.quote, account.balance)))
        self.batches.append(batch)
        self.debits.append(debit)
        if debit.idempotency_key is not None:
            self._answers[account.id, debit.idempotency_key] = (debit.fingerprint, debit.response)
        return Answered(quota, debit.response, replayed=False)


def _barred(call: Call, standing: Standing, account: LockedAccount) -> Refusal | None:
    if standing.revoked:
        return ApiKeyRevoked()
    if call.key_id is not None and call.scope not in standing.scopes:
        return InsufficientScope(
            f"The API key lacks the scope {call.scope}; use a key that has it.",
            headers=[
                (
                    "WWW-Authenticate",
                    f'Bearer realm="tumira", error="insufficient_scope", scope="{call.scope}"',
                )
            ],
        )
    if account.suspended and call.scope is Scope.SEND:
        return AccountSuspended()
    return None


def _rate_limited(quota: Quota) -> RateLimited:
    return RateLimited(
        f"The account has made its {quota.limit} calls of the last 60 seconds; this one was not processed. "
        f"Try again in {quota.place.reset_s} s.",
        retry_after_s=quota.place.reset_s,
    )


def replay(quota: Quota, send: Send, fingerprint: bytes | None, response: bytes) -> Answered | Refusal:
    """Give the earlier answer again, if it was to the same payload."""
    if fingerprint != send.fingerprint:
        return IdempotencyConflict()
    return Answered(quota, response, replayed=True)


def over_limit(account: LockedAccount, cost: Decimal, surroundings: Surroundings) -> Refusal | None:
    """Refuse a batch that would pass the account's own limit for a call, or for the day."""
    if account.call_limit is not None and cost > account.call_limit:
        return _over_call_limit(account.call_limit, cost, surroundings)
    spent = account.spent_today if account.spent_on == local_day(surroundings) else Decimal(0)
    if account.daily_limit is None or spent + cost <= account.daily_limit:
        return None
    return SpendLimitReached(
        f"The batch costs {cost:.4f} USD, {spent:.4f} USD were spent today and the account's daily limit is "
        f"{account.daily_limit:.4f} USD; nothing was sent or debited.",
        details=[
            {
                "code": SpendLimitReached.code,
                "message": "The day ends at midnight, UTC+02:00.",
                "required": f"{cost:.4f}",
                "spent_today": f"{spent:.4f}",
                "daily_limit": f"{account.daily_limit:.4f}",
            }
        ],
        retry_after_s=_left_of_day_s(surroundings),
    )


def _over_call_limit(call_limit: Decimal, cost: Decimal, surroundings: Surroundings) -> SpendLimitReached:
    return SpendLimitReached(
        f"The batch costs {cost:.4f} USD and the account's limit per call is {call_limit:.4f} USD; "
        "nothing was sent or debited.",
        details=[
            {
                "code": SpendLimitReached.code,
                "message": "Send to fewer recipients at once, or raise the limit in the settings.",
                "required": f"{cost:.4f}",
                "call_limit": f"{call_limit:.4f}",
            }
        ],
        # Waiting does not make the batch cheaper, but programs wait for what is answered so: let it be long.
        retry_after_s=_left_of_day_s(surroundings),
    )


def _over_unbilled_limit(account: LockedAccount, octets: int, surroundings: Surroundings) -> Refusal | None:
    """Refuse to store more for an account that pays nothing for it than is allowed in a day."""
    if not octets or octets + _unbilled_on(account, local_day(surroundings)) <= UNBILLED_OCTETS_MAX:
        return None
    return RateLimited(
        "Too many sends without one number that can be sent to were stored today; nothing was sent or "
        "debited. Correct the numbers.",
        retry_after_s=_left_of_day_s(surroundings),
    )


def _unbilled_on(account: LockedAccount, today: date) -> int:
    return account.unbilled_today if account.spent_on == today else 0


def _left_of_day_s(surroundings: Surroundings) -> int:
    return DAY_S - int(surroundings.now.timestamp() + days.LOCAL_TIME.total_seconds()) % DAY_S


def spend(account: LockedAccount, cost: Decimal, today: date, octets: int = 0) -> None:
    """Take the cost of a batch from the balance, and count it to the day, or what it stores for nothing."""
    assert cost <= account.balance
    account.fell_low = account.fell_low or account.balance >= account.low_balance > account.balance - cost
    account.balance -= cost
    account.spent_today = cost + (account.spent_today if account.spent_on == today else Decimal(0))
    account.unbilled_today = octets + _unbilled_on(account, today)
    account.spent_on = today


def debit_of(batch: NewBatch, send: Send, response: bytes) -> Debit:
    """Make the ledger's entry for an accepted batch."""
    assert not isinstance(send.idempotency_key, Refusal)
    return Debit(
        account_id=batch.account_id,
        batch_id=batch.id,
        amount=batch.quote.total_cost,
        idempotency_key=send.idempotency_key,
        fingerprint=send.fingerprint,
        response=response,
    )


def local_day(surroundings: Surroundings) -> date:
    """Return the day in Harare and Johannesburg."""
    return days.local_day(surroundings.now)
