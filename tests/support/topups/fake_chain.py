"""A chain in memory, for what providers and reorganisations do; it answers as a node does."""

import time
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from tests.support.topups.chain import CHAIN_ID, AnyChain
from tumira.topups.usdt.node import TRANSFER

PAYER: Final = "0x" + "11" * 20


@dataclass(frozen=True, slots=True)
class _Block:
    hash: str
    made_at_s: int
    logs: tuple[dict[str, Any], ...] = ()


def _hash(*parts: object) -> str:
    return "0x" + sha256(repr(parts).encode()).hexdigest()


@dataclass(slots=True)
class FakeChain(AnyChain):
    token: str = "0x" + "55" * 20
    six_decimals: str = "0x" + "66" * 20
    _blocks: list[_Block] = field(default_factory=lambda: [_Block(_hash("first"), int(time.time()))])
    _transactions: int = 0
    # Ever made, so that a block that replaces another has another hash.
    _made: int = 0
    _saved: dict[str, tuple[list[_Block], int]] = field(default_factory=dict)

    def ask(self, method: str, *parameters: Any) -> Any:
        match method:
            case "eth_chainId":
                return hex(CHAIN_ID)
            case "eth_call":
                return hex(6 if parameters[0]["to"] == self.six_decimals else 18)
            case "eth_blockNumber":
                return hex(len(self._blocks) - 1)
            case "eth_getBlockByNumber":
                return self._block(parameters[0])
            case "eth_getLogs":
                return self._logs(parameters[0])
            case "hardhat_mine":
                for _ in range(int(parameters[0], 16)):
                    self._add()
            case "evm_snapshot":
                self._saved[name := str(len(self._saved))] = (list(self._blocks), self._transactions)
                return name
            case "evm_revert":
                blocks, self._transactions = self._saved[parameters[0]]
                self._blocks = list(blocks)
                return True
        return None

    def pay(self, address: str, units: int, *, token: str | None = None) -> str:
        return self._transfer(token or self.token, (address, units))

    def pay_twice(self, first: str, much: int, second: str, more: int) -> str:
        return self._transfer(self.token, (first, much), (second, more))

    def _block(self, name: str) -> Any:
        number = len(self._blocks) - 1 if name == "finalized" else int(name, 16)
        if number >= len(self._blocks):
            return None
        block = self._blocks[number]
        return {"number": hex(number), "hash": block.hash, "timestamp": hex(block.made_at_s)}

    def _logs(self, wanted: Any) -> Any:
        first, last = int(wanted["fromBlock"], 16), int(wanted["toBlock"], 16)
        found = [log for block in self._blocks[first : last + 1] for log in block.logs]
        return [
            log
            for log in found
            if log["address"] == wanted["address"] and log["topics"][2] in wanted["topics"][2]
        ]

    def _transfer(self, token: str, *payments: tuple[str, int]) -> str:
        self._transactions += 1
        tx_hash = _hash("transaction", self._transactions, token, payments)
        self._add(
            {
                "address": token,
                "topics": [TRANSFER, f"0x{PAYER[2:]:0>64}", f"0x{address[2:].lower():0>64}"],
                "data": f"0x{units:064x}",
                "transactionHash": tx_hash,
                "logIndex": hex(place),
            }
            for place, (address, units) in enumerate(payments)
        )
        return tx_hash

    def _add(self, logs: Any = ()) -> None:
        self._made += 1
        number, name = hex(len(self._blocks)), _hash("block", self._made)
        written = tuple({**log, "blockNumber": number, "blockHash": name} for log in logs)
        self._blocks.append(_Block(name, int(time.time()), written))
