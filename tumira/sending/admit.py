"""Admission of a group of calls: one transaction decides them and writes the small sends among them."""

from collections.abc import Collection, Mapping, Sequence

from tumira.accounts import store as accounts
from tumira.accounts.store import LockedAccount
from tumira.content import store as content_store
from tumira.content import template_store
from tumira.content.templates import Policy
from tumira.core.ids import AccountId, KeyId
from tumira.postgres.connection import Connection
from tumira.pricing.destinations import RECIPIENTS_MAX, Tariff
from tumira.pricing.store import get_tariff
from tumira.replies import opt_outs
from tumira.sending import lookups
from tumira.sending.code_guard import RangeKey, range_of
from tumira.sending.decide import Decider
from tumira.sending.direct.claims import ClaimGroup
from tumira.sending.lookups import CallFacts, GroupFacts
from tumira.sending.types import Call, Decision, Render, Send


class Rules:
    """Tariff and content policy as last read; each group compares versions and reads again what changed."""

    def __init__(self) -> None:
        self._tariff: Tariff | None = None
        self._policy: Policy | None = None

    async def tariff(self, connection: Connection, version: int) -> Tariff:
        """Return the tariff of this version, or of a newer one."""
        if self._tariff is None or self._tariff.version < version:
            self._tariff = await get_tariff(connection)
        return self._tariff

    async def policy(self, connection: Connection, version: int) -> Policy:
        """Return the templates of this version, or of a newer one."""
        if self._policy is None or self._policy.version < version:
            self._policy = await template_store.get_policy(connection)
        return self._policy


async def admit_unlocked(
    connection: Connection,
    rules: Rules,
    render: Render,
    group: Sequence[Call],
    claims: ClaimGroup | None = None,
) -> Sequence[Decision | None]:
    """Decide the calls whose accounts no other transaction has locked; None for those to try again.

    The caller has begun a transaction on the connection, and commits it. With `claims`, small sends are
    claimed at once where workers offer places.
    """
    asked = (_asked(group), _numbers(group), _ranges(group))
    held, known, facts = await lookups.lock_and_read(connection, *asked)
    here = [(call, one) for call, one in zip(group, known, strict=True) if call.account_id in held]
    decided = iter(await _admit(connection, rules, render, here, held, facts, claims) if here else ())
    return [next(decided) if call.account_id in held else None for call in group]


async def admit_alone(connection: Connection, rules: Rules, render: Render, call: Call) -> Decision:
    """Decide one call, waiting for its account as long as the transaction's lock timeout allows."""
    held = {call.account_id: await accounts.lock(connection, call.account_id)}
    # Read in a later statement: one statement would read what was true before it waited for the lock.
    asked = (_asked([call]), list(held), _numbers([call]), _ranges([call]))
    (known,), facts = await lookups.read(connection, *asked)
    return (await _admit(connection, rules, render, [(call, known)], held, facts))[0]


def _asked(group: Sequence[Call]) -> Sequence[tuple[AccountId, KeyId | None, str | None]]:
    keys = [None if call.send is None else call.send.idempotency for call in group]
    return [
        (call.account_id, call.key_id, None if key is None else key.key)
        for call, key in zip(group, keys, strict=True)
    ]


def _numbers(group: Sequence[Call]) -> Sequence[str]:
    """Return the recipients of a group as they are written; not all of them need to be numbers."""
    return [number for call in group if isinstance(call.send, Send) for number in call.send.request.to]


def _ranges(group: Sequence[Call]) -> Collection[RangeKey]:
    """Return the ranges of the numbers to which passcodes shall go."""
    return {
        (call.account_id, range_of(number.strip()))
        for call in group
        if isinstance(call.send, Send) and call.send.is_passcode
        for number in call.send.request.to
    }


async def _admit(
    connection: Connection,
    rules: Rules,
    render: Render,
    group: Sequence[tuple[Call, CallFacts]],
    held: Mapping[AccountId, LockedAccount],
    facts: GroupFacts,
    claims: ClaimGroup | None = None,
) -> Sequence[Decision]:
    tariff = await rules.tariff(connection, facts.tariff_version)
    policy = await rules.policy(connection, facts.policy_version)
    asked = [
        (call.account_id, number.strip())
        for call, _ in group
        if held[call.account_id].has_opt_outs and isinstance(call.send, Send)
        for number in call.send.request.to[:RECIPIENTS_MAX]
    ]
    opted_out = await opt_outs.find(connection, asked)
    decider = Decider(held, facts, tariff, policy, render, opted_out, claims)
    decisions = [decider.decide(call, known) for call, known in group]
    await decider.charges.write(connection)
    if decider.content_refusals:
        await content_store.record(connection, decider.content_refusals)
    used = {
        call.key_id
        for call, known in group
        if call.key_id is not None and known.use_is_news and not known.revoked
    }
    if used:
        await lookups.mark_used(connection, sorted(used))
    return decisions
