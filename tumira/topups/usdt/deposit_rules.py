"""USDT deposits: their states, when they are final, and their units."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal
from enum import StrEnum
from typing import Final

from tumira.core.ids import AccountId, TopUpId

# Of the token on BNB Smart Chain. On other chains it has six, and such a contract is refused.
DECIMALS: Final = 18
# Depth of a final block where a node does not report finality.
DEEP_WITHOUT_FINALITY: Final = 60

# More digits than the largest number of the chain, so that nothing is rounded.
_EXACTLY: Final = Context(prec=100)


class DepositState(StrEnum):
    # In a block that others may still replace.
    SEEN = "seen"
    # It stays, and is credited once the account's deposits reach the smallest top-up.
    FINAL = "final"
    CREDITED = "credited"
    # Its block was replaced; the payment may come back in another one.
    ORPHANED = "orphaned"


@dataclass(frozen=True, slots=True)
class ChainDeposit:
    """A transfer of the token to an address of ours, as the chain has it."""

    tx_hash: str
    log_index: int
    block_number: int
    block_hash: str
    sender: str
    address: str
    # In the token's smallest unit.
    units: int


@dataclass(frozen=True, slots=True)
class Deposit:
    """A deposit, its account, and its depth below the newest block that was read."""

    facts: ChainDeposit
    account_id: AccountId
    state: DepositState
    top_up_id: TopUpId | None
    seen_at: datetime
    depth: int

    @property
    def amount(self) -> Decimal:
        return to_usdt(self.facts.units)

    @property
    def tx_hash(self) -> str:
        return self.facts.tx_hash


def depth(block_number: int, head: int) -> int:
    """Return how deep a block is: 1 for the newest, 0 for a block that is not there."""
    return max(0, head - block_number + 1)


def last_final(head: int, finalized: int, confirmations: int) -> int:
    """Return the newest final block, by its depth and by the nodes; below zero for none."""
    return min(finalized, head - confirmations + 1)


def to_usdt(units: int) -> Decimal:
    return Decimal(units).scaleb(-DECIMALS, _EXACTLY)


def to_units(amount: Decimal) -> int:
    return int(amount.scaleb(DECIMALS, _EXACTLY))
