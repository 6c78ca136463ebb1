"""How is a group of calls admitted? One transaction decides them and writes the small sends among them."""

from collections.abc import Mapping, Sequence

from tumira.accounts import store as accounts
from tumira.accounts.store import LockedAccount
from tumira.content import store as content_refusals
from tumira.content import template_store
from tumira.content.templates import Policy
from tumira.core.errors import Refusal
from tumira.core.ids import AccountId
from tumira.postgres.connection import Connection
from tumira.pricing.destinations import Tariff
from tumira.pricing.store import get_tariff
from tumira.sending import insert as acceptance
from tumira.sending import lookups as calls
from tumira.sending.decide import Deliberation
from tumira.sending.lookups import Standing
from tumira.sending.low_balance import tell_low_balances
from tumira.sending.types import Call, Decision, Render


class Rulebook:
    """Tariff and policy as last read; each group compares their versions and reads again what changed."""

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


async def admit_free(
    connection: Connection, rulebook: Rulebook, render: Render, group: Sequence[Call]
) -> Sequence[Decision | None]:
    """Decide the calls whose accounts nobody else holds; None for the others, which have to come again.

    The caller has begun a transaction on the connection, and commits it.
    """
    held = await accounts.lock_free(connection, sorted({call.account_id for call in group}))
    here = [call for call in group if call.account_id in held]
    decided = iter(await _admit(connection, rulebook, render, here, held) if here else ())
    return [next(decided) if call.account_id in held else None for call in group]


async def admit_alone(connection: Connection, rulebook: Rulebook, render: Render, call: Call) -> Decision:
    """Decide one call, waiting for its account as long as the transaction's lock timeout allows."""
    held = {call.account_id: await accounts.lock(connection, call.account_id)}
    return (await _admit(connection, rulebook, render, [call], held))[0]


async def _admit(
    connection: Connection,
    rulebook: Rulebook,
    render: Render,
    group: Sequence[Call],
    held: Mapping[AccountId, LockedAccount],
) -> Sequence[Decision]:
    standings, surroundings = await calls.read(
        connection,
        [(call.account_id, call.key_id, _idempotency_key(call)) for call in group],
        list(held),
    )
    tariff = await rulebook.tariff(connection, surroundings.tariff_version)
    policy = await rulebook.policy(connection, surroundings.policy_version)
    deliberation = Deliberation(held, surroundings, tariff, policy, render)
    decisions = [deliberation.decide(call, standing) for call, standing in zip(group, standings, strict=True)]
    await acceptance.accept(
        connection,
        [(held[account_id], amount) for account_id, amount in deliberation.touched.items()],
        deliberation.next_turns,
        deliberation.batches,
        deliberation.debits,
    )
    if deliberation.content_refusals:
        await content_refusals.record(connection, deliberation.content_refusals)
    low = [account for account in held.values() if account.fell_low]
    if low:
        await tell_low_balances(connection, low, surroundings.now)
    await _mark_used(connection, group, standings)
    return decisions


async def _mark_used(connection: Connection, group: Sequence[Call], standings: Sequence[Standing]) -> None:
    news = {
        call.key_id
        for call, standing in zip(group, standings, strict=True)
        if call.key_id is not None and standing.use_is_news and not standing.revoked
    }
    if news:
        await calls.mark_used(connection, sorted(news))


def _idempotency_key(call: Call) -> str | None:
    if call.send is None or isinstance(call.send.idempotency_key, Refusal):
        return None
    return call.send.idempotency_key
