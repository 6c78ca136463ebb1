"""How is a group of calls admitted? One transaction decides them and writes the small sends among them."""

from collections.abc import Mapping, Sequence

from tumira.actions.calls import Call, Decision, Render
from tumira.actions.deliberation import Deliberation
from tumira.actions.tell_events import tell_low_balances
from tumira.errors import Refusal
from tumira.ids import AccountId
from tumira.rules.destinations import Tariff
from tumira.store import acceptance, accounts, calls, prices
from tumira.store.accounts import Held
from tumira.store.calls import Standing
from tumira.store.sql import Connection


class Tariffs:
    """The tariff as last read; each group compares its version and reads it again when it changed."""

    def __init__(self) -> None:
        self._latest: Tariff | None = None

    async def at(self, connection: Connection, version: int) -> Tariff:
        """Return the tariff of this version, or of a newer one."""
        if self._latest is None or self._latest.version < version:
            self._latest = await prices.get_tariff(connection)
        return self._latest


async def admit_free(
    connection: Connection, tariffs: Tariffs, render: Render, group: Sequence[Call]
) -> Sequence[Decision | None]:
    """Decide the calls whose accounts nobody else holds; None for the others, which have to come again.

    The caller has begun a transaction on the connection, and commits it.
    """
    held = await accounts.hold_free(connection, sorted({call.account_id for call in group}))
    here = [call for call in group if call.account_id in held]
    decided = iter(await _admit(connection, tariffs, render, here, held) if here else ())
    return [next(decided) if call.account_id in held else None for call in group]


async def admit_alone(connection: Connection, tariffs: Tariffs, render: Render, call: Call) -> Decision:
    """Decide one call, waiting for its account as long as the transaction's lock timeout allows."""
    held = {call.account_id: await accounts.hold(connection, call.account_id)}
    return (await _admit(connection, tariffs, render, [call], held))[0]


async def _admit(
    connection: Connection,
    tariffs: Tariffs,
    render: Render,
    group: Sequence[Call],
    held: Mapping[AccountId, Held],
) -> Sequence[Decision]:
    standings, surroundings = await calls.read(
        connection,
        [call.secret.key_id for call in group],
        [_idempotency_key(call) for call in group],
        list(held),
    )
    tariff = await tariffs.at(connection, surroundings.tariff_version)
    deliberation = Deliberation(held, surroundings, tariff, render)
    decisions = [deliberation.decide(call, standing) for call, standing in zip(group, standings, strict=True)]
    await acceptance.accept(
        connection,
        [(held[account_id], amount) for account_id, amount in deliberation.touched.items()],
        deliberation.next_turns,
        deliberation.batches,
        deliberation.debits,
    )
    low = [account for account in held.values() if account.fell_low]
    if low:
        await tell_low_balances(connection, low, surroundings.now)
    await _mark_used(connection, group, standings)
    return decisions


async def _mark_used(connection: Connection, group: Sequence[Call], standings: Sequence[Standing]) -> None:
    news = {
        call.secret.key_id
        for call, standing in zip(group, standings, strict=True)
        if standing.use_is_news and not standing.revoked
    }
    if news:
        await calls.mark_used(connection, sorted(news))


def _idempotency_key(call: Call) -> str | None:
    if call.send is None or isinstance(call.send.idempotency_key, Refusal):
        return None
    return call.send.idempotency_key
