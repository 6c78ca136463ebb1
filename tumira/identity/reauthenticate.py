"""The password of a customer who is signed in, asked for again before a change of their access."""

from dataclasses import dataclass
from enum import Enum, auto

from tumira.core.ids import AccountId
from tumira.identity import throttle
from tumira.identity.passwords import matches
from tumira.identity.principal import Principal, PrincipalKind
from tumira.identity.store import attempts, logins, second_factors
from tumira.postgres.pool import Database


@dataclass(frozen=True, slots=True)
class Requester:
    """A signed-in customer who asks for such a change, and the address they ask from."""

    account_id: AccountId
    phone: str
    address: str

    @property
    def principal(self) -> Principal:
        return Principal(PrincipalKind.ACCOUNT, self.account_id, self.phone)


class PasswordCheck(Enum):
    RIGHT = auto()
    WRONG = auto()
    TOO_OFTEN = auto()


async def confirm_password(database: Database, requester: Requester, password: str) -> PasswordCheck:
    """Compare the password; strangers cannot use up these attempts."""
    async with database.transaction() as connection:
        wait = await throttle.take_proof(connection, requester.phone, requester.address)
        if wait is not None:
            return PasswordCheck.TOO_OFTEN
        login = await logins.find(connection, requester.phone)
    if not await matches(password, None if login is None else login.password_hash, requester.address):
        return PasswordCheck.WRONG
    async with database.transaction() as connection:
        factor = await second_factors.find(connection, requester.principal)
        # With a second factor a password alone forgives nothing: codes could be guessed without end.
        if factor is None or factor.since is None:
            await attempts.forgive(connection, requester.phone, requester.address)
    return PasswordCheck.RIGHT
