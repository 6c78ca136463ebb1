"""When can a payment on the chain not vanish any more, and how much is it?"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal
from enum import StrEnum
from typing import Final

from tumira.core.ids import AccountId, TopUpId

# The token's, on BNB Smart Chain; on other chains it has six, and a contract that says so is not read.
DECIMALS: Final = 18
# Where a node does not say which blocks are final, one has to be so deep.
DEEP_WITHOUT_FINALITY: Final = 60

# As many digits as the largest number that the chain can write, so that nothing is ever rounded.
_EXACTLY: Final = Context(prec=100)


class DepositState(StrEnum):
    """How far a deposit has come."""

    # In a block that others may still replace.
    SEEN = "seen"
    # It stays; it waits until the account's deposits come to the smallest top-up.
    FINAL = "final"
    CREDITED = "credited"
    # Its block was replaced; the payment may come back in another one.
    ORPHANED = "orphaned"


@dataclass(frozen=True, slots=True)
class ChainDeposit:
    """A transfer of the token to an address of ours, as the chain tells it."""

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
    """A payment on the chain, whose it is, and how deep it lies by what was read last."""

    facts: ChainDeposit
    account_id: AccountId
    state: DepositState
    top_up_id: TopUpId | None
    seen_at: datetime
    depth: int

    @property
    def amount(self) -> Decimal:
        """Return how much it is, to the last decimal."""
        return to_usdt(self.facts.units)

    @property
    def tx_hash(self) -> str:
        """Return under which name explorers of the chain show it."""
        return self.facts.tx_hash


def depth(block_number: int, head: int) -> int:
    """Return how deep a block lies: one for the newest, and nothing for one that is not there."""
    return max(0, head - block_number + 1)


def last_final(head: int, finalized: int, confirmations: int) -> int:
    """Return the newest block that stays, by its depth and by what the nodes say; below zero for none."""
    return min(finalized, head - confirmations + 1)


def to_usdt(units: int) -> Decimal:
    """Return what a number of the smallest units is."""
    return Decimal(units).scaleb(-DECIMALS, _EXACTLY)


def to_units(amount: Decimal) -> int:
    """Return how many of the smallest units an amount is."""
    return int(amount.scaleb(DECIMALS, _EXACTLY))
