"""Reads deposits from the chain into the database. Every step may run twice, also concurrently."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import structlog

from tumira.core.settings.payments import Usdt
from tumira.postgres.pool import Database
from tumira.topups.usdt import deposits
from tumira.topups.usdt import store as usdt_store
from tumira.topups.usdt.chain import Chain, ChainError, View
from tumira.topups.usdt.deposit_rules import ChainDeposit, Deposit, DepositState, last_final
from tumira.topups.usdt.node import SPAN_MAX
from tumira.topups.usdt.store import ChainCursor

# The newest blocks are read several times: a provider may have a block before it has all of its logs.
OVERLAP: Final = 20
STEP_BACK: Final = 64
RANGES_PER_ROUND_MAX: Final = 10
CHECKED_PER_ROUND_MAX: Final = 200
# How far back reading starts where addresses were assigned before the chain was ever read.
BACK_MAX: Final = timedelta(days=7)
# The clocks of a provider and ours differ by less.
CLOCKS_APART: Final = timedelta(hours=1)

_KNOWN_MAX: Final = 10_000

_log: Final = structlog.get_logger()


class ChainReader:
    def __init__(self, database: Database, settings: Usdt, chain: Chain) -> None:
        self._database = database
        self._settings = settings
        self._chain = chain
        self._span = SPAN_MAX
        # The block up to which deposits were checked; unconfirmed ones must not delay the others.
        self._checked_to = -1
        self._doubted: set[int] = set()

    async def read(self, view: View) -> bool:
        """Record the deposits of blocks that were not read yet; tell whether there are more of these."""
        cursor = await self._find_cursor(view)
        # Read after the newest block: an address that is assigned later cannot have been paid in it.
        async with self._database.connection() as connection:
            addresses = await usdt_store.list_addresses(connection)
        is_sure = True
        for _ in range(RANGES_PER_ROUND_MAX):
            block = await self._chain.block(view, cursor.block_number)
            if block is None:
                # A provider is behind the cursor; it catches up, or the blocks are replaced.
                return False
            if block.hash != cursor.block_hash:
                return await self._step_back(view, cursor)
            moved = await self._read_on(view, cursor, addresses, is_sure=is_sure)
            if moved is None or moved[0].block_number >= view.head:
                return False
            cursor, is_sure = moved
        # Unsure blocks are read again in the next round anyway.
        return is_sure

    async def _find_cursor(self, view: View) -> ChainCursor:
        settings = self._settings
        async with self._database.connection() as connection:
            cursor = await usdt_store.find_cursor(connection, settings.chain_id, settings.contract)
            oldest = await usdt_store.find_oldest_address(connection)
        if cursor is not None:
            return cursor
        number = view.head - OVERLAP
        if oldest is not None:
            since = max(oldest - CLOCKS_APART, self._database.clock.now() - BACK_MAX)
            number = min(number, await self._chain.first_block_since(view, since) - 1)
        block = await self._chain.block(view, max(0, number))
        if block is None:
            raise ChainError("the block to begin with is not there")
        async with self._database.connection() as connection:
            await usdt_store.insert_cursor(
                connection, settings.chain_id, settings.contract, ChainCursor(block.number, block.hash)
            )
            begun = await usdt_store.find_cursor(connection, settings.chain_id, settings.contract)
        assert begun is not None
        _log.info("started to read the chain", block=begun.block_number)
        return begun

    async def _read_on(
        self, view: View, cursor: ChainCursor, addresses: Sequence[str], *, is_sure: bool
    ) -> tuple[ChainCursor, bool] | None:
        """Read the next blocks and some before them, and return where that ends; None where it failed.

        Also return whether it was recorded how far was read: only while enough providers answered.
        """
        last = min(view.head, cursor.block_number + self._span)
        # The hash of the last block is read first: a replacement while we read is noticed in the next round,
        # and all is read again.
        end = await self._chain.block(view, last)
        if end is None:
            return None
        first = max(0, min(cursor.block_number, last) - OVERLAP + 1)
        try:
            reading = await self._chain.deposits(view, addresses, first, last)
        except ChainError:
            self._span = max(1, self._span // 2)
            raise
        self._span = min(SPAN_MAX, 2 * self._span)
        after = ChainCursor(end.number, end.hash)
        # While a provider is away, the other's deposits are shown, and read again once both answer: it may
        # omit something.
        is_sure = is_sure and reading.is_sure
        is_noted = await self._note(reading.deposits, (cursor, after) if is_sure else None)
        return (after, is_sure) if is_noted else None

    async def _note(self, found: Sequence[ChainDeposit], way: tuple[ChainCursor, ChainCursor] | None) -> bool:
        """Record deposits and move the cursor in one transaction; False where another reader moved it."""
        settings = self._settings
        async with self._database.transaction() as connection:
            if way is not None and not await usdt_store.move_cursor(
                connection, settings.chain_id, settings.contract, *way
            ):
                return False
            if not found:
                return True
            credited = await deposits.list_credited_elsewhere(connection, settings.chain_id, found)
            added = await deposits.record(connection, settings.chain_id, found)
        for tx_hash in credited:
            _log.error("credited deposit moved to another block; balance unchanged", tx_hash=tx_hash)
        for tx_hash, log_index in added:
            _log.info("deposit seen", tx_hash=tx_hash, log_index=log_index)
        return True

    async def _step_back(self, view: View, cursor: ChainCursor) -> bool:
        """Read replaced blocks again, and orphan the deposits of blocks that are gone."""
        number = max(0, cursor.block_number - STEP_BACK)
        _log.warning("chain reorganised", block=cursor.block_number, read_again_from=number)
        async with self._database.connection() as connection:
            known = await deposits.list_since(connection, self._settings.chain_id, number, _KNOWN_MAX)
        _, gone = await self._sort_out(view, known)
        await self._give_up(gone)
        block = await self._chain.block(view, number)
        return block is not None and await self._note((), (cursor, ChainCursor(block.number, block.hash)))

    async def _sort_out(
        self, view: View, known: Sequence[Deposit]
    ) -> tuple[Sequence[ChainDeposit], Sequence[ChainDeposit]]:
        """Split deposits into those whose blocks stand and those whose blocks were replaced."""
        standing: list[ChainDeposit] = []
        gone: list[ChainDeposit] = []
        names = {
            number: await self._chain.block(view, number)
            for number in sorted({one.facts.block_number for one in known})
        }
        for one in known:
            block = names[one.facts.block_number]
            if block is None:
                continue
            if block.hash == one.facts.block_hash:
                standing.append(one.facts)
            elif one.state is DepositState.CREDITED:
                _log.error("block of a credited deposit was replaced; balance unchanged", tx_hash=one.tx_hash)
            else:
                gone.append(one.facts)
        return standing, gone

    async def _give_up(self, gone: Sequence[ChainDeposit]) -> None:
        if gone:
            async with self._database.transaction() as connection:
                count = await deposits.mark_orphaned(connection, self._settings.chain_id, gone)
            _log.warning("deposits orphaned with their blocks", count=count)

    async def confirm(self, view: View) -> None:
        """Mark deposits as final that are deep enough and still in their block."""
        settings = self._settings
        last = last_final(view.head, view.finalized, settings.confirmations)
        async with self._database.connection() as connection:
            seen = await deposits.list_seen(
                connection, settings.chain_id, self._checked_to, last, CHECKED_PER_ROUND_MAX
            )
        if len(seen) < CHECKED_PER_ROUND_MAX:
            self._checked_to = -1
        else:
            # The last block may be incomplete here, so the next round starts with it.
            self._checked_to = max(self._checked_to + 1, seen[-1].facts.block_number - 1)
        standing, gone = await self._sort_out(view, seen)
        if gone:
            # The cursor moves first: after a crash in between, the next worker does both.
            await self._read_again(view, min(one.block_number for one in gone))
            await self._give_up(gone)
        for number in sorted({one.block_number for one in standing}):
            here = [one for one in standing if one.block_number == number]
            await self._confirm(view, number, here)

    async def _confirm(self, view: View, number: int, here: Sequence[ChainDeposit]) -> None:
        addresses = sorted({one.address for one in here})
        confirmed = sorted(
            await self._chain.confirmed(view, number, addresses), key=lambda one: one.log_index
        )
        doubted = [one for one in here if one not in confirmed]
        # A provider may only lag, so they are checked in every round and logged once.
        if doubted and number not in self._doubted and len(self._doubted) < _KNOWN_MAX:
            self._doubted.add(number)
            tx_hashes = [one.tx_hash for one in doubted]
            _log.warning("deposits not confirmed by the providers", block=number, tx_hashes=tx_hashes)
        if confirmed:
            async with self._database.transaction() as connection:
                # Corrects what one provider reported wrongly at first.
                await deposits.record(connection, self._settings.chain_id, confirmed)
                await deposits.mark_final(connection, self._settings.chain_id, confirmed)

    async def _read_again(self, view: View, number: int) -> None:
        """Move the cursor back: lost deposits may be in another block that was read already."""
        settings = self._settings
        async with self._database.connection() as connection:
            cursor = await usdt_store.find_cursor(connection, settings.chain_id, settings.contract)
        block = await self._chain.block(view, max(0, number - 1))
        if cursor is not None and block is not None and block.number < cursor.block_number:
            await self._note((), (cursor, ChainCursor(block.number, block.hash)))
