"""The one path that charges sends: small ones in groups, large ones alone, and chunks of uploaded files."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from tumira import audit_log
from tumira.accounts.store import LockedAccount
from tumira.audit_log import Actor
from tumira.core import money
from tumira.core.ids import BATCH, AccountId, BatchId, message_ids, new_id, write_id
from tumira.postgres.connection import Connection
from tumira.pricing.legs import split_by_network
from tumira.pricing.quote import Quote, ValidRequest, unbilled_octets
from tumira.sending import code_guard, fairness, insert
from tumira.sending.code_guard import GuardDecision, RangeCodes, RangeKey
from tumira.sending.code_stops import NewStop, new_stop, tell_stops
from tumira.sending.direct.claims import ClaimGroup
from tumira.sending.insert import Debit, Flow, NewBatch
from tumira.sending.limits import spend
from tumira.sending.lookups import GroupFacts
from tumira.sending.low_balance import tell_low_balances
from tumira.sending.types import IdempotencyKey, Render, Sent

_NOTHING: Final = Decimal(0)


def _merge(turns: Sequence[range], leg_of: Sequence[int]) -> Sequence[int]:
    """Return the turn of each message from the turns of each leg."""
    left = [iter(leg) for leg in turns]
    return [next(left[leg]) for leg in leg_of]


class Charges:
    """What the sends of one transaction change: collected as they are decided, then written at once.

    The accounts are locked by the transaction from before their rows were read until it commits.
    """

    def __init__(self, facts: GroupFacts, claims: ClaimGroup | None = None) -> None:
        self._facts = facts
        self._claims = claims
        self._accounts: dict[AccountId, LockedAccount] = {}
        self._amounts: dict[AccountId, Decimal] = {}
        self._next_turns: dict[Flow, int] = {}
        self._batches: list[NewBatch] = []
        self._debits: list[Debit] = []
        # The ranges to which passcodes were counted, as they are now; and the passcodes that were stopped.
        self._ranges: dict[RangeKey, RangeCodes] = dict(facts.ranges)
        self._counted: set[RangeKey] = set()
        self._stops: list[NewStop] = []
        self._sent_by: list[tuple[Actor, NewBatch]] = []

    def touch(self, account: LockedAccount) -> None:
        """Write this account's counters, also if nothing is charged."""
        self._accounts[account.id] = account
        self._amounts.setdefault(account.id, _NOTHING)

    def new_batch(
        self,
        account: LockedAccount,
        request: ValidRequest,
        quote: Quote,
        lane: int,
        *,
        is_passcode: bool = False,
        texts: Sequence[str] | None = None,
        leg_segments: Sequence[int] | None = None,
        near_line: bool = False,
    ) -> NewBatch:
        """Give a send its ids, its lifetime, and the turns of its messages.

        `texts` are for messages with their own text.
        """
        batch_id = BatchId(new_id(self._facts.now_us // 1000))
        legs, leg_of = split_by_network(quote, leg_segments, self._facts.ported)
        turns: list[range] = []
        for leg in legs:
            flow = (account.id, leg.queue, lane)
            clock = self._facts.clocks.get((leg.queue, lane), 0)
            next_turn = self._next_turns.get(flow, self._facts.next_turns.get(flow, 0))
            run = fairness.take_turns(clock, next_turn, leg.segments, account.weight, leg.count)
            self._next_turns[flow] = run.next_turn
            turns.append(range(run.first, run.next_turn, run.step))
        batch = NewBatch(
            id=batch_id,
            account_id=account.id,
            created_at=self._facts.now,
            request=request,
            quote=quote,
            lane=lane,
            message_ids=message_ids(batch_id, len(quote.numbers)),
            turns=turns[0] if len(turns) == 1 else _merge(turns, leg_of),
            legs=legs,
            leg_of=leg_of,
            lifetime=account.lifetimes.of(is_passcode=is_passcode),
            texts=texts,
            near_line=near_line,
        )
        return batch if self._claims is None else self._claim(batch, self._claims)

    def _claim(self, batch: NewBatch, claims: ClaimGroup) -> NewBatch:
        """Claim the messages of a small send for a worker that offers places, if they go to one network."""
        if batch.lane != fairness.LANE_SMALL or len(batch.legs) != 1:
            claims.has_queued |= bool(batch.legs)
            return batch
        (leg,) = batch.legs
        sender_name = self._facts.find_sender(batch.account_id, leg.country, leg.network)
        return claims.claim(batch, sender_name)

    def charge(
        self,
        account: LockedAccount,
        batch: NewBatch,
        idempotency: IdempotencyKey | None,
        render: Render,
        *,
        stored: bool = False,
        by: Actor | None = None,
    ) -> bytes:
        """Charge a batch to its account, and return the answer, which is kept for its Idempotency-Key.

        `stored` says that the rows of the batch are written already, earlier in this transaction. `by` is
        the person whom the account's history names.
        """
        cost = batch.quote.total_cost
        spend(account, cost, unbilled_octets(batch.request, batch.quote), self._facts.now)
        self._accounts[account.id] = account
        self._amounts[account.id] = self._amounts.get(account.id, _NOTHING) + cost
        response = render(Sent(batch.id, batch.quote, account.balance))
        key, fingerprint = (None, None) if idempotency is None else (idempotency.key, idempotency.fingerprint)
        self._debits.append(Debit(account.id, batch.id, cost, key, fingerprint, response))
        if not stored:
            self._batches.append(batch)
        if by is not None:
            self._sent_by.append((by, batch))
        return response

    def guard(self, account: LockedAccount, numbers: Sequence[str]) -> GuardDecision:
        """Decide to which numbers a passcode may go, after those that were counted here."""
        if not account.passcode_limits.is_on:
            return code_guard.NOTHING_STOPPED
        limits = account.passcode_limits.effective(account.rate_limit)
        return code_guard.decide(account.id, limits, numbers, self._ranges, self._facts.now_us)

    def count_codes(self, account: LockedAccount, guarded: GuardDecision) -> None:
        """Count the passcodes of a batch that is charged, and record those that were stopped."""
        self._ranges |= guarded.ranges
        self._counted |= guarded.ranges.keys()
        for number, kind in guarded.stopped.items():
            self._stops.append(new_stop(account.id, number, kind, self._facts.now))

    async def write(self, connection: Connection) -> None:
        """Write balances, transfers, batches and answers in one statement, then the owners' notices."""
        charged = [(account, self._amounts[account.id]) for account in self._accounts.values()]
        ranges = {key: self._ranges[key] for key in self._counted}
        await insert.write(connection, charged, self._next_turns, self._batches, self._debits, ranges)
        # By id: the event counters of accounts are locked in this order everywhere.
        low = sorted((one for one in self._accounts.values() if one.fell_low), key=lambda one: one.id)
        if low:
            await tell_low_balances(connection, low, self._facts.now)
        if self._stops:
            await tell_stops(connection, self._stops, self._facts.now)
        for by, batch in self._sent_by:
            count, cost = len(batch.quote.numbers), money.write(batch.quote.total_cost)
            detail = f"{write_id(BATCH, batch.id)}: {count} messages, {cost} USD"
            await audit_log.record(connection, batch.account_id, by, "message sent", detail)
