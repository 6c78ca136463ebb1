"""JSON-RPC calls to one provider of the chain, whose answers are checked before use."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from tumira.topups.providers.http import NoAnswerError, ProviderClient
from tumira.topups.usdt.deposit_rules import ChainDeposit

# The hash of `Transfer(address,address,uint256)`: the first topic of a token's transfer log.
TRANSFER: Final = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
SPAN_MAX: Final = 1_000
ADDRESSES_MAX: Final = 200

# The event, the sender, the recipient.
_TOPICS: Final = 3
_DECIMALS_CALL: Final = "0x313ce567"
_OK: Final = 200
_PROBLEM_MAX: Final = 120
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]{1,64}")
_HASH: Final = re.compile(r"0x[0-9a-fA-F]{64}")
# An address padded to 32 bytes.
_PADDED: Final = re.compile(r"0x0{24}[0-9a-fA-F]{40}")


class NodeError(Exception):
    """A provider without a usable answer; `smaller_may_work` where a smaller request might be answered."""

    def __init__(self, problem: str, *, smaller_may_work: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.smaller_may_work = smaller_may_work


@dataclass(frozen=True, slots=True)
class Block:
    """A block, its current hash, and when it was made, in seconds since 1970."""

    number: int
    hash: str
    made_at_s: int


class ChainNode:
    """One provider. Its URL may contain a key, so no message contains the URL."""

    def __init__(self, name: str, url: str, client: ProviderClient) -> None:
        self.name = name
        # Whether its chain and token were checked since its last failure.
        self.is_checked = False
        self._url = url
        self._client = client
        self._ids = count(1)
        self._span = SPAN_MAX
        self._tells_finality = False

    async def chain_id(self) -> int:
        return _number(await self._ask("eth_chainId"))

    async def decimals(self, contract: str) -> int:
        return _number(await self._ask("eth_call", {"to": contract, "data": _DECIMALS_CALL}, "latest"))

    async def head(self) -> int:
        return _number(await self._ask("eth_blockNumber"))

    async def finalized(self) -> int | None:
        """Return the newest final block; None where the provider does not know finality."""
        try:
            block = _block(await self._ask("eth_getBlockByNumber", "finalized", False))  # noqa: FBT003
        except NodeError as error:
            # A provider that reported finality before has only failed now.
            if self._tells_finality or not error.smaller_may_work:
                raise
            return None
        if block is None:
            return None
        self._tells_finality = True
        return block.number

    async def block(self, number: int) -> Block | None:
        block = _block(await self._ask("eth_getBlockByNumber", hex(number), False))  # noqa: FBT003
        if block is not None and block.number != number:
            raise NodeError(f"answered with block {block.number} for {number}")
        return block

    async def deposits(
        self, contract: str, addresses: Sequence[str], first: int, last: int
    ) -> Sequence[ChainDeposit]:
        """Return the token's transfers to these addresses in a block range, the last block included.

        The number of blocks per call is halved when a call fails, and doubled again when it succeeds.
        """
        found: list[ChainDeposit] = []
        at = first
        while at <= last:
            upto = min(last, at + self._span - 1)
            try:
                found += await self._deposits(contract, addresses, at, upto)
            except NodeError as error:
                if at == upto or not error.smaller_may_work:
                    raise
                self._span = (upto - at + 1) // 2
            else:
                self._span = min(SPAN_MAX, 2 * self._span)
                at = upto + 1
        await self._check_blocks(found)
        return found

    async def _deposits(
        self, contract: str, addresses: Sequence[str], first: int, last: int
    ) -> Sequence[ChainDeposit]:
        found: list[ChainDeposit] = []
        for start in range(0, len(addresses), ADDRESSES_MAX):
            wanted = addresses[start : start + ADDRESSES_MAX]
            logs = await self._ask(
                "eth_getLogs",
                {
                    "address": contract,
                    "fromBlock": hex(first),
                    "toBlock": hex(last),
                    "topics": [TRANSFER, None, [f"0x{address[2:]:0>64}" for address in wanted]],
                },
            )
            if not isinstance(logs, list):
                raise NodeError("answered with no list of logs")
            read = [_deposit(log, contract) for log in logs]
            found += [
                one
                for one in read
                # Logs outside of the request are ignored.
                if one is not None and one.address in wanted and first <= one.block_number <= last
            ]
        return found

    async def _check_blocks(self, found: Sequence[ChainDeposit]) -> None:
        """Check that no deposit is in a replaced block."""
        for number in {one.block_number for one in found}:
            block = await self.block(number)
            names = {one.block_hash for one in found if one.block_number == number}
            if block is None or names != {block.hash}:
                raise NodeError(f"has logs of a block {number} that it does not have")

    async def _ask(self, method: str, *parameters: Any) -> Any:
        number = next(self._ids)
        call = {"jsonrpc": "2.0", "id": number, "method": method, "params": list(parameters)}
        try:
            reply = await self._client.call("POST", self._url, json=call)
        except NoAnswerError as error:
            raise NodeError(f"{method}: {error.problem}", smaller_may_work=error.may_have_arrived) from None
        try:
            answer = json.loads(reply.body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or (reply.status != _OK and "error" not in answer):
            raise NodeError(f"{method}: HTTP {reply.status} without an answer", smaller_may_work=True)
        if "result" not in answer or answer.get("error") is not None:
            raise NodeError(f"{method}: {_words(answer.get('error'))}", smaller_may_work=True)
        if answer.get("id") != number:
            raise NodeError(f"{method}: answered another question")
        return answer["result"]


def _words(error: Any) -> str:
    """Return an error message cut short and printable, because others wrote it."""
    text = str(error.get("message", error.get("code"))) if isinstance(error, dict) else str(error)
    return "".join(letter if letter.isprintable() else " " for letter in text[:_PROBLEM_MAX])


def _number(value: Any) -> int:
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        raise NodeError("answered with no number")
    return int(value, 16)


def _hash(value: Any) -> str:
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise NodeError("answered with no hash")
    return value.lower()


def _block(value: Any) -> Block | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise NodeError("answered with no block")
    return Block(
        _number(value.get("number")), _hash(value.get("hash")), made_at_s=_number(value.get("timestamp"))
    )


def _deposit(log: Any, contract: str) -> ChainDeposit | None:
    """Read a transfer from a log; None for another token, a removed log, and an amount of zero."""
    if not isinstance(log, dict):
        raise NodeError("answered with no log")
    topics = log.get("topics")
    is_ours = str(log.get("address")).lower() == contract and log.get("removed") is not True
    if not is_ours or not isinstance(topics, list) or len(topics) != _TOPICS or topics[0] != TRANSFER:
        return None
    if not all(isinstance(topic, str) and _PADDED.fullmatch(topic) for topic in topics[1:]):
        raise NodeError("answered with a transfer between no addresses")
    units = int(_hash(log.get("data")), 16)
    if units == 0:
        return None
    return ChainDeposit(
        tx_hash=_hash(log.get("transactionHash")),
        log_index=_number(log.get("logIndex")),
        block_number=_number(log.get("blockNumber")),
        block_hash=_hash(log.get("blockHash")),
        sender=f"0x{topics[1][-40:].lower()}",
        address=f"0x{topics[2][-40:].lower()}",
        units=units,
    )
