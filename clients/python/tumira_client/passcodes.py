"""One-time passcodes: made, stored as a keyed hash, checked once, expired, with few tries."""

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from tumira_client.numbers import e164

_SECRET_MIN: Final = 16


@dataclass(frozen=True, slots=True)
class StoredCode:
    """What is stored of a code; `expires_at_s` is in seconds since 1970."""

    hash: str
    expires_at_s: int
    tries: int = 0


class CodeStore(Protocol):
    """Where codes are stored, one for each phone: a table of your database."""

    def put(self, phone: str, code: StoredCode) -> None:
        """Store the code in place of an older one."""

    def count_try(self, phone: str) -> StoredCode | None:
        """Add one to `tries` and return the code after that, in one atomic step."""

    def remove(self, phone: str, code_hash: str) -> bool:
        """Remove the code if it still has this hash, and tell whether it had."""


class AsyncCodeStore(Protocol):
    """As `CodeStore`, for asynchronous programs."""

    async def put(self, phone: str, code: StoredCode) -> None:
        """Store the code in place of an older one."""

    async def count_try(self, phone: str) -> StoredCode | None:
        """Add one to `tries` and return the code after that, in one atomic step."""

    async def remove(self, phone: str, code_hash: str) -> bool:
        """Remove the code if it still has this hash, and tell whether it had."""


class MemoryCodeStore:
    """Codes in the memory of one process, for trials; they are lost when it ends."""

    def __init__(self) -> None:
        self._codes: dict[str, StoredCode] = {}
        self._lock = threading.Lock()

    def put(self, phone: str, code: StoredCode) -> None:
        with self._lock:
            self._codes[phone] = code

    def count_try(self, phone: str) -> StoredCode | None:
        with self._lock:
            code = self._codes.get(phone)
            if code is None:
                return None
            self._codes[phone] = counted = replace(code, tries=code.tries + 1)
            return counted

    def remove(self, phone: str, code_hash: str) -> bool:
        with self._lock:
            if phone not in self._codes or self._codes[phone].hash != code_hash:
                return False
            del self._codes[phone]
            return True


@dataclass(frozen=True, slots=True)
class CodeRules:
    """How codes are made and judged; the secret is a long random text that only your servers know."""

    secret: str = field(repr=False)
    country: str | None = None
    digits: int = 6
    lifetime_s: int = 600
    tries_max: int = 5
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        if len(self.secret) < _SECRET_MIN:
            raise ValueError(f"The secret for codes has at least {_SECRET_MIN} characters.")

    def make(self, phone: str) -> tuple[str, StoredCode]:
        """Return a new code for a phone, and what to store of it."""
        code = f"{secrets.randbelow(10**self.digits):0{self.digits}}"
        return code, StoredCode(self.hash(phone, code), int(self.clock()) + self.lifetime_s)

    def fits(self, phone: str, typed: str, stored: StoredCode) -> bool:
        """Tell whether a code is right, in time and within the tries; `stored` counts this one."""
        same = hmac.compare_digest(stored.hash, self.hash(phone, "".join(typed.split())))
        return same and stored.tries <= self.tries_max and self.clock() < stored.expires_at_s

    def hash(self, phone: str, code: str) -> str:
        hashed = f"{phone} {code}".encode(errors="replace")
        return hmac.digest(self.secret.encode(), hashed, "sha256").hex()


class Passcodes:
    """Passcodes in a store of your own.

    codes = Passcodes(store, CodeRules(os.environ["CODE_SECRET"]))
    tumira.send(phone, f"Your code is {codes.make(phone)}. It is valid for 10 minutes.")
    codes.check(phone, typed)
    """

    def __init__(self, store: CodeStore, rules: CodeRules) -> None:
        self._store = store
        self._rules = rules

    def make(self, phone: str) -> str:
        """Make and store a code for a phone, in place of an older one; send it, and never log it."""
        number = e164(phone, self._rules.country)
        code, stored = self._rules.make(number)
        self._store.put(number, stored)
        return code

    def check(self, phone: str, typed: str) -> bool:
        """Tell whether this is the phone's code; it is right once."""
        number = e164(phone, self._rules.country)
        stored = self._store.count_try(number)
        if stored is None or not self._rules.fits(number, typed, stored):
            return False
        # Of two checks at the same moment, one removes it.
        return self._store.remove(number, stored.hash)


class AsyncPasscodes:
    """As `Passcodes`, with an asynchronous store."""

    def __init__(self, store: AsyncCodeStore, rules: CodeRules) -> None:
        self._store = store
        self._rules = rules

    async def make(self, phone: str) -> str:
        """Make and store a code for a phone, in place of an older one; send it, and never log it."""
        number = e164(phone, self._rules.country)
        code, stored = self._rules.make(number)
        await self._store.put(number, stored)
        return code

    async def check(self, phone: str, typed: str) -> bool:
        """Tell whether this is the phone's code; it is right once."""
        number = e164(phone, self._rules.country)
        stored = await self._store.count_try(number)
        if stored is None or not self._rules.fits(number, typed, stored):
            return False
        return await self._store.remove(number, stored.hash)
