"""Identifies callers by their API keys, and slows down addresses that guess keys."""

import time
from collections import OrderedDict
from hashlib import blake2s, sha256
from hmac import compare_digest
from typing import Final

from tumira.accounts import api_keys
from tumira.accounts.api_keys import KeySecret, parse_key
from tumira.core.errors import InvalidApiKey, MissingApiKey, RateLimited
from tumira.postgres.pool import Database

KNOWN_MAX: Final = 10_000
BAD_KEYS_MAX: Final = 60
BAD_KEYS_WINDOW_S: Final = 60
ADDRESSES_MAX: Final = 10_000


class Callers:
    """Caches the accounts of keys by their hashes; whether a key is revoked is checked on every call."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[bytes, KeySecret] = OrderedDict()
        self._guesses: OrderedDict[str, list[float]] = OrderedDict()

    def find_known(self, authorization: str | None) -> KeySecret | None:
        """Return the key's record if it was proved before."""
        token = _read_token(authorization)
        return None if token is None else self._known.get(_fingerprint(token))

    async def identify(self, authorization: str | None, address: str) -> KeySecret:
        """Return the key's record, or raise a refusal."""
        token = _read_token(authorization)
        if token is None:
            raise MissingApiKey
        fingerprint = _fingerprint(token)
        secret = self._known.get(fingerprint)
        if secret is None:
            secret = await self._prove(token)
            if secret is None:
                raise self._bad_key(address)
            self._known[fingerprint] = secret
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        return secret

    async def _prove(self, token: str) -> KeySecret | None:
        parsed = parse_key(token)
        if parsed is None:
            return None
        async with self._database.connection() as connection:
            secret = await api_keys.find_secret(connection, parsed.key_id)
        if secret is None or not compare_digest(secret.sha256, sha256(parsed.secret.encode()).digest()):
            return None
        return secret

    def _bad_key(self, address: str) -> InvalidApiKey | RateLimited:
        """Count an unknown key of an address; from the 61st in a minute on the refusal is RATE_LIMITED."""
        now = time.monotonic()
        guesses = [at for at in self._guesses.pop(address, []) if now - at < BAD_KEYS_WINDOW_S]
        if len(guesses) < BAD_KEYS_MAX:
            refusal: InvalidApiKey | RateLimited = InvalidApiKey()
            guesses.append(now)
        else:
            wait_s = int(guesses[0] + BAD_KEYS_WINDOW_S - now) + 1
            refusal = RateLimited(
                f"Too many unknown API keys from this address; try again in {wait_s} s.", retry_after_s=wait_s
            )
        self._guesses[address] = guesses
        if len(self._guesses) > ADDRESSES_MAX:
            self._guesses.popitem(last=False)
        return refusal


def _fingerprint(token: str) -> bytes:
    # Half the time of SHA-256, for every call.
    return blake2s(token.encode()).digest()


def _read_token(authorization: str | None) -> str | None:
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
