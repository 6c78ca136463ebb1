"""How does a top-up in USDT begin? The account gets an address once, and whatever comes there is its own."""

from dataclasses import dataclass

from tumira.accounts import store as accounts
from tumira.core.errors import Trouble
from tumira.core.ids import AccountId, TopUpId, new_id
from tumira.core.settings.payments import Payments
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.states import Currency, Method, State
from tumira.topups.store import NewTopUp, Step
from tumira.topups.usdt import addresses as deposit_addresses
from tumira.topups.usdt.address_derivation import ExtendedKey, derive_address, read_xpub, with_checksum
from tumira.topups.usdt.addresses import Allotted


@dataclass(frozen=True, slots=True)
class DepositAddress:
    """Where an account pays USDT, as it is shown, and the top-up that waits for it."""

    address: str
    top_up_id: TopUpId


async def start_usdt(database: Database, payments: Payments, account_id: AccountId) -> DepositAddress:
    """Begin a top-up in USDT, or return to the one that waits; the address stays the same for ever."""
    if payments.usdt is None:
        raise Trouble("USDT is not set up here; TUMIRA_USDT_RPC_URLS and TUMIRA_USDT_XPUB do that.")
    key = read_xpub(payments.usdt.xpub)
    async with database.transaction() as connection:
        if await accounts.find(connection, account_id) is None:
            raise Trouble("There is no such account; `tumira account list` shows them.")
        address = await _address(connection, key, account_id)
        return DepositAddress(with_checksum(address), await open_top_up(connection, account_id))


async def open_top_up(connection: Connection, account_id: AccountId) -> TopUpId:
    """Return the account's top-up that waits for USDT, held, or a new one.

    The caller holds the account's addresses, so that there are never two.
    """
    found = await deposit_addresses.find_open_top_up(connection, account_id)
    # It may have expired just now.
    if found is not None and (await top_ups.hold(connection, found)).state is State.PENDING:
        return found
    # By the database's clock, by which it also expires.
    now = await clock.read_now(connection)
    top_up_id = TopUpId(new_id(int(now.timestamp() * 1000)))
    await top_ups.insert(
        connection,
        NewTopUp(
            id=top_up_id,
            account_id=account_id,
            method=Method.USDT,
            provider="bep20",
            currency=Currency.USDT,
            # Nobody has to be asked: it comes by itself.
            is_due=False,
        ),
    )
    await top_ups.mark(connection, top_up_id, Step(State.PENDING))
    return top_up_id


async def _address(connection: Connection, key: ExtendedKey, account_id: AccountId) -> str:
    """Return the account's address, and give it one first where it has none."""
    allotted = await deposit_addresses.hold(connection, account_id, key.sha256)
    if allotted is None:
        place = await deposit_addresses.next_place(connection, key.sha256)
        # Whoever was before us at the places may have been here for the same account.
        allotted = await deposit_addresses.hold(connection, account_id, key.sha256)
        if allotted is None:
            allotted = Allotted(derive_address(key, place), place)
            await deposit_addresses.insert(connection, account_id, key.sha256, allotted)
    # A row that somebody changed would send a customer's money to somebody else.
    if allotted.address != derive_address(key, allotted.place):
        raise Trouble(
            "The address of this account does not follow from TUMIRA_USDT_XPUB: nothing may be paid there. "
            "Compare usdt_addresses with a backup."
        )
    return allotted.address
