"""Reads the chain through several providers, none of which is trusted alone.

The lower newest block and the lower final block count, reading waits for a block on whose hash they disagree,
and a deposit is confirmed when all that answer have it and at least two do, if there are two.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from tumira.core.errors import OperatorError
from tumira.core.settings.payments import Usdt
from tumira.topups.providers.http import ProviderClient
from tumira.topups.usdt.deposit_rules import DECIMALS, DEEP_WITHOUT_FINALITY, ChainDeposit
from tumira.topups.usdt.node import SPAN_MAX, Block, ChainNode, NodeError

# Limits a question to all providers.
ASK_S: Final = 60.0
ANSWER_S: Final = 10.0

_CONFIRMING: Final = 2

Result = TypeVar("Result")


class ChainError(Exception):
    pass


class WrongChainError(ChainError):
    """A provider is on another chain, or the contract is another token: the operator has to fix it."""


@dataclass(frozen=True, slots=True)
class View:
    """How far the chain is, by the providers that answer."""

    nodes: Sequence[ChainNode]
    head: int
    # By what they report, and by depth where one reports nothing.
    finalized: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The deposits that any provider has in a block range: a provider that omits some hides none.

    With too few providers nothing is sure, because a single one may omit something.
    """

    deposits: Sequence[ChainDeposit]
    is_sure: bool


class Chain:
    """The providers of one chain. `problems` says by name why a provider did not answer."""

    def __init__(self, settings: Usdt) -> None:
        self.problems: dict[str, str] = {}
        self._settings = settings
        self._client = ProviderClient(answer_s=ANSWER_S)
        self._nodes = [
            ChainNode(f"provider {place}", url, self._client)
            for place, url in enumerate(settings.rpc_urls, start=1)
        ]

    async def look(self) -> View:
        """Ask all providers how far the chain is; raises ChainError where none answers."""
        told = await self._all(self._nodes, self._look)
        head = min(head for head, _ in told.values())
        by_depth = head - DEEP_WITHOUT_FINALITY + 1
        finalized = min(by_depth if final is None else final for _, final in told.values())
        return View(list(told), head, finalized)

    async def _look(self, node: ChainNode) -> tuple[int, int | None]:
        if not node.is_checked:
            await self._check(node)
        finalized = await node.finalized()
        return await node.head(), finalized

    async def _check(self, node: ChainNode) -> None:
        chain_id = await node.chain_id()
        if chain_id != self._settings.chain_id:
            raise WrongChainError(
                f"{node.name} is on chain {chain_id} and not on {self._settings.chain_id}; nothing is read "
                "until TUMIRA_USDT_RPC_URLS and TUMIRA_USDT_CHAIN_ID agree"
            )
        decimals = await node.decimals(self._settings.contract)
        if decimals != DECIMALS:
            raise WrongChainError(
                f"the token at {self._settings.contract} has {decimals} decimals and not {DECIMALS}; nothing "
                "is read until TUMIRA_USDT_CONTRACT is right"
            )
        node.is_checked = True

    async def block(self, view: View, number: int) -> Block | None:
        """Return a block that all agree on; None where a provider does not have it yet."""
        blocks = list((await self._all(view.nodes, lambda node: node.block(number))).values())
        there = [block for block in blocks if block is not None]
        if len({block.hash for block in there}) > 1:
            raise ChainError(f"block {number} is called differently by two providers")
        return there[0] if len(there) == len(blocks) else None

    async def deposits(self, view: View, addresses: Sequence[str], first: int, last: int) -> Reading:
        if not addresses:
            return Reading((), is_sure=True)
        told = await self._all(
            view.nodes, lambda node: node.deposits(self._settings.contract, addresses, first, last)
        )
        found = {one for deposits in told.values() for one in deposits}
        return Reading(
            sorted(found, key=lambda one: (one.block_number, one.log_index)), is_sure=self._are_enough(told)
        )

    async def confirmed(self, view: View, number: int, addresses: Sequence[str]) -> frozenset[ChainDeposit]:
        """Return the deposits of a block that all answering providers have, if these are enough."""
        told = await self._all(
            view.nodes, lambda node: node.deposits(self._settings.contract, addresses, number, number)
        )
        if not self._are_enough(told):
            return frozenset()
        return frozenset.intersection(*(frozenset(found) for found in told.values()))

    def _are_enough(self, told: Collection[ChainNode]) -> bool:
        return len(told) >= min(_CONFIRMING, len(self._nodes))

    async def first_block_since(self, view: View, moment: datetime) -> int:
        """Return the first block made at a moment or later; the one after the newest where there is none."""
        wanted = moment.timestamp()
        low, high = 0, view.head + 1
        while low < high:
            middle = (low + high) // 2
            block = await self.block(view, middle)
            # Blocks that a provider no longer keeps are older than those it keeps.
            if block is None or block.made_at_s < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    async def close(self) -> None:
        await self._client.close()

    async def _all(
        self, nodes: Sequence[ChainNode], ask: Callable[[ChainNode], Awaitable[Result]]
    ) -> Mapping[ChainNode, Result]:
        """Ask several providers at once, and return the answers: at least one."""
        answers = await asyncio.gather(*(self._one(node, ask) for node in nodes), return_exceptions=True)
        told: dict[ChainNode, Result] = {}
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, NodeError):
                node.is_checked = False
                self.problems[node.name] = answer.problem
            elif isinstance(answer, BaseException):
                raise answer
            else:
                told[node] = answer
        if not told:
            raise ChainError("no provider answers")
        return told

    async def _one(self, node: ChainNode, ask: Callable[[ChainNode], Awaitable[Result]]) -> Result:
        try:
            async with asyncio.timeout(ASK_S):
                return await ask(node)
        except TimeoutError:
            raise NodeError(f"not done within {ASK_S:.0f} seconds") from None


@asynccontextmanager
async def _open(settings: Usdt) -> AsyncIterator[tuple[Chain, View]]:
    chain = Chain(settings)
    try:
        yield chain, await chain.look()
    except ChainError as error:
        problems = "; ".join(f"{name}: {problem}" for name, problem in sorted(chain.problems.items()))
        details = f" ({problems})" if problems else ""
        raise OperatorError(
            f"The chain cannot be read: {error}{details}. Check TUMIRA_USDT_RPC_URLS."
        ) from None
    finally:
        await chain.close()


async def deposits_on_chain(
    settings: Usdt, addresses: Sequence[str], first_block: int, last_block: int
) -> Sequence[ChainDeposit]:
    """Read the deposits of a block range from the chain alone."""
    found: list[ChainDeposit] = []
    async with _open(settings) as (chain, view):
        last = min(last_block, view.head)
        for first in range(first_block, last + 1, SPAN_MAX):
            reading = await chain.deposits(view, addresses, first, min(last, first + SPAN_MAX - 1))
            found += reading.deposits
    return found


async def blocks_between(settings: Usdt, since: datetime, until: datetime) -> tuple[int, int]:
    """Return the first and the last block of a period; the last is below the first where there is none."""
    async with _open(settings) as (chain, view):
        return await chain.first_block_since(view, since), await chain.first_block_since(view, until) - 1
