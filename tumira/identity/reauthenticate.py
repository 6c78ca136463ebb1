"""The password of a customer who is signed in, asked for again before a change of their access."""

from dataclasses import dataclass
from enum import Enum, auto

from tumira.audit_log import Actor
from tumira.core.ids import AccountId
from tumira.identity import throttle
from tumira.identity.passwords import matches
from tumira.identity.principal import Browser, Principal
from tumira.identity.store import attempts, logins, second_factors
from tumira.identity.store.attempts import AttemptKind
from tumira.postgres.pool import Database


@dataclass(frozen=True, slots=True)
class Requester:
    """A signed-in person who changes an account or their own login, and the address they do it from."""

    principal: Principal
    account_id: AccountId
    name: str
    address: str

    @property
    def actor(self) -> Actor:
        return Actor(self.name, self.address, self.principal.id)


class PasswordCheck(Enum):
    RIGHT = auto()
    WRONG = auto()
    TOO_OFTEN = auto()


async def confirm_password(database: Database, requester: Requester, password: str) -> PasswordCheck:
    """Compare the password; strangers cannot use up these attempts."""
    principal, address = requester.principal, requester.address
    # Without the device: attempts count together with those of others signed in to the same account.
    browser = Browser(address, "", None)
    async with database.transaction() as connection:
        if await throttle.take(connection, AttemptKind.PROOF, principal.subject, browser) is not None:
            return PasswordCheck.TOO_OFTEN
        login = await logins.find(connection, principal.kind, principal.phone)
    if not await matches(password, None if login is None else login.password_hash, address):
        return PasswordCheck.WRONG
    async with database.transaction() as connection:
        factor = await second_factors.find(connection, principal)
        # With a second factor a password alone forgives nothing: codes could be guessed without end.
        if factor is None or factor.since is None:
            await attempts.forgive(connection, principal.subject, address)
    return PasswordCheck.RIGHT
