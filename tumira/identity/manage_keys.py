"""Creating and revoking API keys."""

import secrets
import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from tumira.accounts import api_keys
from tumira.accounts import store as accounts
from tumira.accounts.api_keys import ApiKey, KeySecret, ParsedKey, Scope, write_key
from tumira.audit_log import OPERATOR, Actor
from tumira.core.errors import OperatorError
from tumira.core.ids import KEY, AccountId, KeyId, new_id, write_id
from tumira.core.settings.support import NO_SUPPORT, Support
from tumira.identity import notify_owner
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database

# In use at once: enough for every customer, and they fit on a page.
KEYS_MAX: Final = 100
# Made within 24 hours, and revoked ones that are kept: creating and revoking cannot fill the table.
KEYS_A_DAY_MAX: Final = 200
REVOKED_KEPT: Final = 1_000

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_SECRET_LENGTH = 32


class KeyExistsError(Exception):
    """There is a key with this id: the form that asked for it was sent twice."""


class TooManyKeysError(OperatorError):
    """The account has the largest number of keys in use."""


class TooManyKeysTodayError(OperatorError):
    """The account got the largest number of keys within a day."""


async def create_key(
    database: Database,
    account_id: AccountId,
    name: str,
    scopes: Sequence[Scope],
    *,
    actor: Actor = OPERATOR,
    key_id: KeyId | None = None,
    support: Support = NO_SUPPORT,
) -> tuple[KeyId, str]:
    """Create a key and return its value, which is kept nowhere.

    A form gives the key its id, and is carried out once: raises KeyExistsError for an id that was used.
    """
    key_id = key_id or KeyId(new_id(time.time_ns() // 1_000_000))
    secret = "".join(secrets.choice(_ALPHABET) for _ in range(_SECRET_LENGTH))
    async with database.transaction() as connection:
        if await accounts.find(connection, account_id) is None:
            raise OperatorError("There is no such account; `tumira account list` shows them.")
        # In a statement before the one that counts, whose snapshot would otherwise be older than the lock.
        await accounts.lock(connection, account_id)
        if await api_keys.find_secret(connection, key_id) is not None:
            raise KeyExistsError
        counts = await api_keys.count(connection, account_id)
        if counts.in_use >= KEYS_MAX:
            raise TooManyKeysError(
                f"The account has {KEYS_MAX} keys in use; revoke one with `tumira key revoke`."
            )
        if counts.made_today >= KEYS_A_DAY_MAX:
            raise TooManyKeysTodayError(
                f"The account got {KEYS_A_DAY_MAX} keys within a day; try again tomorrow."
            )
        await api_keys.delete_oldest_revoked(connection, account_id, REVOKED_KEPT)
        await api_keys.insert(
            connection, KeySecret(key_id, account_id, sha256(secret.encode()).digest()), name, scopes
        )
        await _note(connection, account_id, actor, "key created", key_id, name, support)
    return key_id, write_key(ParsedKey(key_id, secret))


async def revoke_key(
    database: Database,
    key_id: KeyId,
    *,
    owner_id: AccountId | None = None,
    actor: Actor = OPERATOR,
    support: Support = NO_SUPPORT,
) -> ApiKey | None:
    """Revoke a key from the next call on; None for an unknown key and for another account's."""
    async with database.transaction() as connection:
        secret = await api_keys.find_secret(connection, key_id)
        if secret is None or owner_id not in {None, secret.account_id}:
            return None
        # Locked, so that of two revocations at once only the first is recorded.
        await accounts.lock(connection, secret.account_id)
        was_in_use = await api_keys.is_in_use(connection, key_id)
        key = await api_keys.mark_revoked(connection, key_id)
        if key is not None and was_in_use:
            await _note(connection, key.account_id, actor, "key revoked", key_id, key.name, support)
    return key


async def _note(
    connection: Connection,
    account_id: AccountId,
    actor: Actor,
    what: str,
    key_id: KeyId,
    name: str,
    support: Support,
) -> None:
    detail = f"{name} ({write_id(KEY, key_id)})"
    await notify_owner.note_owners(connection, account_id, actor, what, detail, support=support)
