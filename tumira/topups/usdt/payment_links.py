"""How does a wallet learn what to pay, and to whom? From a link (ERC-681), or from the address alone.

Few wallets understand the link, and exchanges only the address; so the address is what is shown first.
"""

from decimal import Decimal
from typing import Final

from tumira.topups.usdt.address_derivation import with_checksum
from tumira.topups.usdt.deposit_rules import in_units

NETWORKS: Final = {56: "BNB Smart Chain (BEP20)", 97: "BNB Smart Chain testnet (BEP20)"}


def network_name(chain_id: int) -> str:
    """Return what a chain is called in wallets, so that nobody pays on another one."""
    return NETWORKS.get(chain_id, f"chain {chain_id}")


def payment_link(contract: str, chain_id: int, address: str, amount: Decimal | None = None) -> str:
    """Return the link by which a wallet pays USDT to an address: the token is called, and not the address."""
    link = f"ethereum:{with_checksum(contract)}@{chain_id}/transfer?address={with_checksum(address)}"
    if amount is None:
        return link
    assert amount > 0
    return f"{link}&uint256={in_units(amount)}"
