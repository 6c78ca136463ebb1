"""Is it still the owner who sits at a browser that is signed in? They say their password once more."""

from dataclasses import dataclass
from enum import Enum, auto

from tumira.core.ids import AccountId
from tumira.identity import throttle
from tumira.identity.passwords import matches
from tumira.identity.store import attempts, logins
from tumira.postgres.pool import Database


@dataclass(frozen=True, slots=True)
class Requester:
    """Somebody who is signed in, and who may be somebody else by now."""

    account_id: AccountId
    phone: str
    address: str


class PasswordCheck(Enum):
    """What became of a password that was compared, or was not because too many were tried."""

    RIGHT = auto()
    WRONG = auto()
    TOO_OFTEN = auto()


async def confirm_password(database: Database, suspect: Requester, password: str) -> PasswordCheck:
    """Compare the password; only who is signed in uses these tries up, so strangers cannot."""
    async with database.transaction() as connection:
        wait = await throttle.take_proof(connection, suspect.phone, suspect.address)
        if wait is not None:
            return PasswordCheck.TOO_OFTEN
        login = await logins.find(connection, suspect.phone)
    if not await matches(password, None if login is None else login.password_hash, suspect.address):
        return PasswordCheck.WRONG
    async with database.transaction() as connection:
        factor = await logins.find_factor(connection, suspect.account_id)
        # With a second factor a password alone forgives nothing: codes could be guessed without end.
        if factor is None or factor.since is None:
            await attempts.forgive(connection, suspect.phone, suspect.address)
    return PasswordCheck.RIGHT
