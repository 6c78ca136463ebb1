"""Decisions about the calls of a group, over locked rows; nothing here waits or raises."""

from collections.abc import Mapping
from typing import Final

from tumira.accounts import rate_limit
from tumira.accounts.api_keys import Scope
from tumira.accounts.store import LockedAccount
from tumira.content.check import check_text, describe_refusal, is_near_line
from tumira.content.classifier import classify
from tumira.content.near_line_store import MarkedSend
from tumira.content.store import NewRefusal
from tumira.content.templates import Policy
from tumira.content.verdict import Verdict
from tumira.core.errors import (
    AccountSuspended,
    ApiKeyRevoked,
    IdempotencyConflict,
    InsufficientScope,
    RateLimited,
    Refusal,
)
from tumira.core.ids import AccountId
from tumira.pricing.destinations import Tariff
from tumira.pricing.quote import Quote, ValidRequest, quote, unbilled_octets
from tumira.replies.opt_outs import OptedOut
from tumira.sending import fairness
from tumira.sending.charge import Charges
from tumira.sending.code_guard import NOTHING_STOPPED
from tumira.sending.direct.claims import ClaimGroup
from tumira.sending.limits import over_balance, over_limit, over_unbilled_limit
from tumira.sending.lookups import CallFacts, GroupFacts
from tumira.sending.types import (
    Admitted,
    Answered,
    Call,
    Decision,
    IdempotencyKey,
    InvalidSend,
    Large,
    Priced,
    Quota,
    Refused,
    Render,
    Send,
)

# A send of more recipients is written in its own transaction, so that it delays no other call.
SMALL_SEND_MAX: Final = 50


class Decider:
    """Decides the calls of one group in order, and collects what their decisions change."""

    def __init__(
        self,
        held: Mapping[AccountId, LockedAccount],
        facts: GroupFacts,
        tariff: Tariff,
        policy: Policy,
        render: Render,
        opted_out: OptedOut,
        claims: ClaimGroup | None = None,
    ) -> None:
        self._held = held
        self._facts = facts
        self._tariff = tariff
        self._policy = policy
        self._render = render
        self._opted_out = opted_out
        self._answers: dict[tuple[AccountId, str], tuple[bytes, bytes]] = {}
        self.charges: Final = Charges(facts, claims)
        self.content_refusals: Final[list[NewRefusal]] = []

    def decide(self, call: Call, facts: CallFacts) -> Decision:
        """Decide one call: key, account, rate, and for a send the rest."""
        account = self._held[call.account_id]
        now_us = self._facts.now_us
        refusal = _barred(call, facts, account)
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
        if call.key_id is not None and not place.allowed:
            if place.window is not account.window:
                # It may have corrected times that a wrong clock put in the future.
                account.window = place.window
                self.charges.touch(account)
            return Refused(_rate_limited(quota), quota)
        account.window = place.window
        self.charges.touch(account)
        if call.send is None:
            return Admitted(quota, account.balance, self._tariff)
        decision = self._decide_send(account, call.send, facts, quota)
        return Refused(decision, quota) if isinstance(decision, Refusal) else decision

    def _decide_send(
        self, account: LockedAccount, send: Send | InvalidSend, facts: CallFacts, quota: Quota
    ) -> Priced | Answered | Large | Refusal:
        if send.idempotency is not None:
            earlier = self._answers.get((account.id, send.idempotency.key)) or facts.earlier_answer
            if earlier is not None:
                return replay(quota, send.idempotency, *earlier)
        if isinstance(send, InvalidSend):
            return send.refusal
        opted_out = self._opted_out.bar(account.id, is_passcode=send.is_passcode)
        priced = quote(self._tariff, send.request, opted_out)
        if isinstance(priced, Refusal):
            return priced
        guarded = self.charges.guard(account, priced.numbers) if send.is_passcode else NOTHING_STOPPED
        if guarded.stopped:
            priced = quote(self._tariff, send.request, {**opted_out, **guarded.barred})
            assert isinstance(priced, Quote)
        verdict = send.verdict or classify(send.request.body)
        refusal = (
            self._check_content(account, send, verdict)
            or over_limit(account, priced.total_cost, self._facts.now)
            or over_unbilled_limit(account, unbilled_octets(send.request, priced), self._facts.now)
        )
        if refusal is not None:
            return refusal
        if send.request.dry_run or (send.agreed_cost is not None and send.agreed_cost != priced.total_cost):
            return Priced(quota, priced)
        refusal = over_balance(account, priced.total_cost)
        if refusal is not None:
            return refusal
        lane = fairness.lane(len(priced.numbers))
        marked = self._mark(account, send.request, verdict, len(priced.numbers))
        batch = self.charges.new_batch(
            account, send.request, priced, lane, is_passcode=send.is_passcode, near_line=marked is not None
        )
        if len(priced.numbers) > SMALL_SEND_MAX:
            return Large(quota, send, batch, marked)
        if guarded is not NOTHING_STOPPED:
            self.charges.count_codes(account, guarded)
        response = self.charges.charge(account, batch, send.idempotency, self._render, by=send.by)
        if send.idempotency is not None:
            self._answers[account.id, send.idempotency.key] = (send.idempotency.fingerprint, response)
        return Answered(quota, response, replayed=False, marked=marked)

    def _check_content(self, account: LockedAccount, send: Send, verdict: Verdict) -> Refusal | None:
        rejected = check_text(self._policy, account.id, send.request.body, verdict)
        if rejected is not None and not send.request.dry_run:
            self.content_refusals.append(
                describe_refusal(
                    account.id,
                    send.request.body,
                    rejected,
                    self._facts.now,
                    keep_text=account.review_consent,
                )
            )
        return rejected

    def _mark(
        self, account: LockedAccount, request: ValidRequest, verdict: Verdict, messages: int
    ) -> MarkedSend | None:
        if not messages or not is_near_line(self._policy, account.id, request.body, verdict):
            return None
        text = request.body if account.review_consent else None
        return MarkedSend(account.id, messages, verdict.score, text)


def _barred(call: Call, facts: CallFacts, account: LockedAccount) -> Refusal | None:
    if facts.revoked:
        return ApiKeyRevoked()
    if call.key_id is not None and call.scope not in facts.scopes:
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


def replay(quota: Quota, asked: IdempotencyKey, fingerprint: bytes, response: bytes) -> Answered | Refusal:
    """Repeat the earlier answer, if it was to the same payload."""
    if fingerprint != asked.fingerprint:
        return IdempotencyConflict()
    return Answered(quota, response, replayed=True)
